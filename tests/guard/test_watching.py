"""What operators see: the log, and a counter for metrics."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import create_engine, insert
from sqlalchemy.orm import Session
from support.members import A, B, C, D, Tiny, User
from support.ways import flush, numbers

from sqlalchemy_public_id import PublicIdCollision, guard, testing

NAME = "sqlalchemy_public_id"

pytestmark = pytest.mark.usefixtures("members")


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == NAME]


def test_replaced_ids(session: Session, caplog: pytest.LogCaptureFixture) -> None:
    """Each replaced id is counted, and logged with its table and the number of tries but without the id itself."""
    before = guard.collisions()
    with caplog.at_level(logging.DEBUG, NAME):
        session.add(User(public_id=A))
        session.flush()
    assert logged(caplog) == []
    with caplog.at_level(logging.INFO, NAME), testing.fixed_ids(User, A, A, B):
        session.add(User())
        session.flush()
    with caplog.at_level(logging.INFO, NAME), testing.fixed_ids(User, C, A, D):
        session.execute(insert(User), [{"name": "1"}, {"name": "2"}])

    message = "user: a public_id was already taken, and was replaced (try {})"
    assert logged(caplog)[0] == ("INFO", message.format(2))  # the second A is skipped without another INSERT
    assert logged(caplog)[-1] == ("INFO", message.format(1))
    assert guard.collisions()["user"] - before.get("user", 0) == len(logged(caplog)) == 2
    assert A not in caplog.text


def test_row_without_an_id(session: Session, caplog: pytest.LogCaptureFixture) -> None:
    """Running out of retries is also logged as an error."""
    flush(session, Tiny, numbers(36))
    caplog.clear()  # many of these rows collided
    with caplog.at_level(logging.ERROR, NAME), pytest.raises(PublicIdCollision):
        session.execute(insert(Tiny))

    assert logged(caplog) == [("ERROR", "tiny: no free public_id was found for a row in 1000 tries")]


def test_database_without_a_retry(caplog: pytest.LogCaptureFixture) -> None:
    """Guarding an engine for which collisions cannot be retried logs one warning."""
    driver = SimpleNamespace(paramstyle="pyformat", __version__="2.3.13", Error=Exception)
    engine = create_engine("mssql+pymssql://", module=driver)
    with caplog.at_level(logging.WARNING, NAME):
        for _ in range(2):
            guard.install(engine)

    [(level, message)] = logged(caplog)
    assert level == "WARNING"
    assert message == (
        "public ids on mssql: a collision is raised instead of retried, because the library does not know how this "
        "database reports one; ids are generated and validated as usual"
    )


@pytest.mark.parametrize("target", ["sqlite://", None, Session()], ids=["text", "None", "session"])
def test_no_engine(target: Any) -> None:
    """The guard accepts only engines."""
    with pytest.raises(TypeError, match="expected an Engine or an AsyncEngine"):
        guard.install(target)
