"""The modules whose names are public: those of the front door, every module for a framework, and a few others.

They are computed from the source, so that a new module cannot be forgotten in the tests of public modules.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import sqlalchemy_public_id

SOURCE = Path(__file__).parents[2] / "src" / "sqlalchemy_public_id"


def modules_of(package: str) -> list[str]:
    """Return the modules of *package* without an underscore, which users import: ``.ext.flask``."""
    return sorted(f".{package}.{path.stem}" for path in SOURCE.glob(f"{package}/*.py") if not path.stem.startswith("_"))


FRONT_DOOR = [
    f".{name}" for name in sqlalchemy_public_id.__all__ if inspect.ismodule(getattr(sqlalchemy_public_id, name))
]
"""The modules that ``from sqlalchemy_public_id import …`` returns."""

OTHERS = [
    ".alembic",
    ".alembic.revisions",
    ".asyncio",
    ".audit",
    ".backfill",
    ".errors",
    ".formats",
    ".formats.parse",
    ".keys.blocks",
    ".keys.cluster",
    ".testing",
    ".testing.fixtures",
]

PUBLIC = sorted(["", *OTHERS, *FRONT_DOOR, *modules_of("asyncio"), *modules_of("ext")])
