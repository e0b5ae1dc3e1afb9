"""A pytest plugin that checks that the tests have imported the library from the folder in PUBLIC_ID_SOURCE."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

NO_TESTS_RUN = 4
"""The exit status: no test failed, but the run proves nothing."""


def pytest_collection_finish(session: pytest.Session) -> None:
    """Stop before the first test if another copy of the library was imported, such as the editable installation."""
    library, source = sys.modules.get("sqlalchemy_public_id"), os.environ["PUBLIC_ID_SOURCE"]
    file = Path(str(getattr(library, "__file__", None)))
    if library is not None and Path(source).resolve() not in file.resolve().parents:
        pytest.exit(f"the tests have imported {file}, which is not in {source}", NO_TESTS_RUN)
