"""Every example of the README, the documentation and the docstrings is a test (collected by Sybil).

Examples of one file build on each other: with pytest-xdist, say ``--dist loadfile``.
"""

from __future__ import annotations

import doctest
from typing import Any

from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session
from sqlalchemy.pool import StaticPool
from sybil import Sybil
from sybil.sybil import SybilCollection
from sybil.parsers import markdown, rest

from sqlalchemy_public_id import PublicIdMixin


def stored_user(names: dict[str, Any]) -> None:
    """Give docstrings a model ``User``, and a ``session`` whose database holds one."""

    class Base(DeclarativeBase): ...

    class User(PublicIdMixin, Base):
        __tablename__ = "user"
        name: Mapped[str]

    engine = create_engine("sqlite://", poolclass=StaticPool)
    Base.metadata.create_all(engine)
    session = Session(engine)
    session.add(User(public_id="izkpm55j334u", name="Ada"))
    session.commit()
    names.update(User=User, session=session, engine=engine)


def close(names: dict[str, Any]) -> None:
    """Close what the examples of a file have opened."""
    for value in list(names.values()):
        if isinstance(value, Session):
            value.close()
    for value in list(names.values()):
        if isinstance(value, Engine):
            value.dispose()


FENCES = [markdown.PythonCodeBlockParser(doctest_optionflags=doctest.ELLIPSIS)]
DOCSTRINGS = [rest.DocTestParser(optionflags=doctest.ELLIPSIS), rest.PythonCodeBlockParser()]

PAGES = Sybil(FENCES, path="docs", pattern="*.md", teardown=close)
FRONT = Sybil(FENCES, pattern="*.md", exclude="*/*", teardown=close)
SOURCES = Sybil(DOCSTRINGS, path="src", pattern="*.py", setup=stored_user, teardown=close)

pytest_collect_file = SybilCollection((PAGES, FRONT, SOURCES)).pytest()
