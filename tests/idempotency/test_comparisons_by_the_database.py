"""How the database compares values for ``insert_once()``: casts, time zones, serializers, number of statements."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, event, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session
from support.async_sessions import tell
from support.forms import FIRST, Base, Form, is_repetition
from support.marks import on
from support.purchases import differing

from conftest import Statements
from sqlalchemy_public_id import IdempotencyConflict
from sqlalchemy_public_id.asyncio.idempotency import insert_once as async_once
from sqlalchemy_public_id.idempotency import insert_once

pytestmark = pytest.mark.backend

NOON = datetime(2024, 5, 17, 12)
UTC, EAST = timezone.utc, timezone(timedelta(hours=9))


@pytest.fixture
def db(create: Callable[[MetaData], None], session: Session) -> Session:
    create(Base.metadata)
    return session


@on("mysql", "mariadb")
def test_cast_that_is_refused(db: Session, statements: Statements) -> None:
    """If the database rejects a CAST, this value alone is compared in Python, and the transaction continues."""
    assert is_repetition(db, "unsigned", Decimal("9.99"), Decimal("9.99"))
    assert not is_repetition(db, "unsigned", Decimal("9.99"), Decimal("9.98"))
    assert [each for each in statements if "UNSIGNED)" in each]
    form = {"public_id": "8w0tnq3c5yzd", "price": Decimal("9.994999")}
    insert_once(db, Form(unsigned=Decimal("9.99"), **form))
    assert differing(db, Form(unsigned=Decimal("9.98"), **form)) == ("unsigned",)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("value", [NOON.replace(tzinfo=UTC), NOON.replace(tzinfo=EAST), NOON])
@on("postgresql")
def test_time_zones(db: Session, engine: Engine, zone: str, value: datetime) -> None:
    """PostgreSQL converts times with and without a zone using the session's time zone, and so does the comparison."""

    @event.listens_for(engine, "begin")
    def _(connection: Any) -> None:
        connection.execute(text(f"SET LOCAL TIME ZONE '{zone}'"))

    attributes = ["at", "at_zone", "day"]
    assert [each for each in attributes if is_repetition(db, each, value, value)] == attributes
    assert [each for each in attributes if is_repetition(db, each, value, value + timedelta(days=1))] == []


@on("sqlite", "mysql", "mariadb")
def test_time_zones_that_are_dropped(db: Session) -> None:
    """Other databases drop the zone, and the local time is compared."""
    attributes, noon = ["at", "at_zone"], NOON.replace(tzinfo=EAST)
    assert [each for each in attributes if is_repetition(db, each, noon, noon)] == attributes
    assert [each for each in attributes if is_repetition(db, each, noon, noon.replace(hour=13))] == []


def test_serializer_of_the_engine(engine: Engine, create: Callable[[MetaData], None], new_engine: Any) -> None:
    """JSON is compared as the engine serializes it, even if the standard library cannot serialize a value."""
    create(Base.metadata)
    own = new_engine(engine.name, engine.url, json_serializer=lambda value: json.dumps(value, default=str))
    with Session(own) as session:
        assert is_repetition(session, "data", {"on": date(2024, 1, 1)}, {"on": date(2024, 1, 1)})
        assert is_repetition(session, "data", {"on": date(2024, 1, 1)}, {"on": "2024-01-01"})
        assert not is_repetition(session, "data", {"on": date(2024, 1, 1)}, {"on": date(2024, 1, 2)})


def test_async(async_engine: AsyncEngine) -> None:
    """Asynchronous drivers compare values in the database, too."""
    values = {"number": 5, "price": Decimal("9.994999"), "folded": "Ada", "at": datetime(2024, 5, 17, 12, 0, 0, 600000)}

    async def story(session: AsyncSession) -> None:
        assert (await async_once(session, Form(public_id=FIRST, **values)))[1] is True
        await session.commit()
        assert (await async_once(session, Form(public_id=FIRST, **values)))[1] is False
        again = Form(public_id=FIRST, **values | {"number": 6, "price": Decimal(6)})
        with pytest.raises(IdempotencyConflict) as caught:
            await async_once(session, again)
        assert caught.value.differing == ("number", "price")
        assert (await async_once(session, again, compare=["folded"]))[1] is False

    tell(async_engine, Base.metadata, story)


def test_the_database_is_asked_once(db: Session, statements: Statements) -> None:
    """One SELECT compares all values that the column may have changed; without such values, none is sent."""
    values = {"folded": "ADA", "price": Decimal("9.994999"), "small": 3}
    insert_once(db, Form(public_id=FIRST, **values))
    db.commit()
    found = []
    for given in (values, {"small": 3}):
        statements.clear()
        _, is_new = insert_once(db, Form(public_id=FIRST, **given))
        found.append((is_new, sum("value_0" in statement for statement in statements)))

    assert found == [(False, 1), (False, 0)]

    assert differing(db, Form(public_id=FIRST, **values | {"folded": "eve", "small": 4})) == ("small", "folded")
