"""What the guard is installed on."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy.orm import Session

from sqlalchemy_public_id import guard


@pytest.mark.parametrize("target", ["sqlite://", None, Session()], ids=["text", "None", "session"])
def test_no_engine(target: Any) -> None:
    """The guard is for engines; anything else is refused."""
    with pytest.raises(TypeError, match="expected an Engine or an AsyncEngine"):
        guard.install(target)
