"""How much of the library's code runs for one collided INSERT: it is what one must read to debug a retry."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

import pytest
from sqlalchemy import MetaData, String
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.marks import fast_ways

import sqlalchemy_public_id
from sqlalchemy_public_id import PublicIdMixin, testing

PACKAGE = str(Path(sqlalchemy_public_id.__file__).parent)
MOST = {"sqlite": (48, 15), "postgresql": (69, 18), "mysql": (52, 18), "mariadb": (52, 18)}
"""Database → maximum of functions and modules; comprehensions and lambdas count as part of their function."""

OTHERS = {"keys", "references", "testing"}
"""Listeners that other tests in the process have installed, and the module that forces the collision."""


class Base(DeclarativeBase):
    metadata = MetaData()


class Walker(PublicIdMixin, Base):
    __tablename__ = "walker"
    name: Mapped[str | None] = mapped_column(String(50))


@pytest.mark.backend
@fast_ways
def test_path_of_a_collided_insert(create: Callable[[MetaData], None], session: Session) -> None:
    """One collided INSERT runs no more functions and modules of the library than the recorded maximum."""
    create(Base.metadata)
    first = Walker()
    session.add(first)
    session.commit()
    passed: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            passed.add(code)

    for _ in range(2):  # the first one inspects the statement, the table and the driver
        session.add(Walker())
        with testing.collisions(Walker, first.public_id, times=1):
            passed.clear()
            sys.setprofile(note)
            try:
                session.flush()
            finally:
                sys.setprofile(None)

    passed = {code for code in passed if Path(code.co_filename).relative_to(PACKAGE).parts[0] not in OTHERS}
    functions, modules = MOST[session.get_bind().dialect.name]
    assert len(passed) <= functions
    assert len({code.co_filename for code in passed}) <= modules
