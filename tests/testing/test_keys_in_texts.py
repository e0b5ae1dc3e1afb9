"""``testing.assert_no_keys_in()`` finds the integer keys of rows in an answer, a log or a page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import ForeignKey, ForeignKeyConstraint, MetaData, String
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from sqlalchemy_public_id import ConfigurationError, NanoId, PublicIdColumnMixin, PublicIdMixin, TypedId, testing
from sqlalchemy_public_id.testing import assert_no_keys_in

SHIP, CREW, PORT = 777001, 777002, 777003


class Base(DeclarativeBase):
    metadata = MetaData()


class ShipId(TypedId, prefix="textship", format=NanoId(length=12)): ...


class Port(PublicIdMixin, Base):
    __tablename__ = "port"
    __public_id__ = NanoId(length=6, alphabet="0123456789")


class Ship(PublicIdMixin[ShipId], Base):
    __tablename__ = "ship"
    kind: Mapped[str] = mapped_column(String(9), default="ship")
    port_id: Mapped[int | None] = mapped_column(ForeignKey(Port.id))
    home: Mapped[Port | None] = relationship()
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "ship"}  # noqa: RUF012


class Ferry(Ship):
    __tablename__ = "ferry"
    id: Mapped[int] = mapped_column(ForeignKey(Ship.id), primary_key=True)
    __mapper_args__ = {"polymorphic_identity": "ferry"}  # noqa: RUF012


class Deck(PublicIdColumnMixin, Base):
    """A part of its key refers to a row; the other one is a position."""

    __tablename__ = "deck"
    ship_id: Mapped[int] = mapped_column(ForeignKey(Ship.id), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Log(PublicIdColumnMixin, Base):
    """Both parts of its key are numbers of its own."""

    __tablename__ = "log"
    year: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Remark(PublicIdMixin, Base):
    """Refers to a composite key."""

    __tablename__ = "remark"
    log_year: Mapped[int]
    log_number: Mapped[int]
    __table_args__ = (ForeignKeyConstraint(["log_year", "log_number"], ["log.year", "log.number"]),)


class Word(PublicIdColumnMixin, Base):
    __tablename__ = "word"
    text: Mapped[str] = mapped_column(String(9), primary_key=True)


@pytest.fixture
def ship() -> Ship:
    return Ship(id=SHIP, public_id="textship_777001777001", port_id=PORT, kind="ship")


def shown(text: str | bytes, *rows: object) -> bool:
    """Return True if *text* shows a key of *rows*."""
    try:
        assert_no_keys_in(text, rows)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize(
    "text",
    [
        "777001",
        '{"id":777001,"name":"Ada"}',
        '{"id": "777001"}',
        "[777001, 5]",
        "/ships/777001?page=2",
        "order_777001.pdf",
        "order-777001",
        "777001-5",
        "Duplicate entry '777001' for key 'ship.PRIMARY'",
        "[parameters: ('textship_000000000000', 777001, None)]",
        "DETAIL:  Key (id)=(777001) already exists.",
        "the ship 777001.",
        "id=777001&x",
        "777001.0",
        "777001.000",
        b'{"id":777001}',
        "\u8239777001\u53f7",
        json.dumps("a line\n777001"),
        json.dumps(json.dumps({"text": "a line\n777001"})),
        json.dumps("caf\u00e9777001"),
        repr("a line\n777001"),
        "%2Fships%2F777001",
        "ships%20777001",
        "<a href='/ships/777001'>&#x27;777001&#x27;</a>",
        "a &nbsp;&#55;&#55;&#55;001",
        "textship_777001777001 and 777001",
    ],
)
def test_text_with_a_key(text: str | bytes, ship: Ship) -> None:
    """A key is found as a whole number, in JSON, messages of databases, logs, URLs and HTML."""
    assert shown(text, ship)


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"public_id": "textship_777001777001"}',
        "/ships/textship_777001777001",
        "7770010",
        "1777001",
        "17770011",
        "777001abc",
        "x777001",
        "textship_a777001b0000",
        "0.777001",
        "3.777001",
        "777001.5",
        "2026-11-28T10:00:00.777001Z",
        "version 1.2.777001",
        '{"balance": -777001}',
        "-777001",
        "777001e3",
        "000777001",
        "018f777001ab",
        "777004",
    ],
)
def test_text_without_a_key(text: str, ship: Ship) -> None:
    """Digits inside ids, longer or other numbers, and the ids of the rows themselves are no keys."""
    assert not shown(text, ship)


@pytest.mark.parametrize(("number", "column"), [(SHIP, "ship.id"), (PORT, "ship.port_id")])
def test_message(number: int, column: str, ship: Ship) -> None:
    """The error names the column, and shows the text around the key."""
    before, after = "a" * 50 + " ", " " + "b" * 50
    with pytest.raises(AssertionError) as error:
        assert_no_keys_in(f"{before}{number}{after}", [ship])

    assert str(error.value) == f"the text shows {column}, in '{before[-40:]}{number}{after[:40]}'"


def test_small_keys() -> None:
    """For a small key, which may be another number, the error says how to choose keys."""
    with pytest.raises(
        AssertionError, match=r"shows ship.id, in '.*'; begin the keys of the test at a number such as 7"
    ):
        assert_no_keys_in("total 3", [Ship(id=3, port_id=None)])


def test_composite_keys() -> None:
    """Each part of a composite key, and of a reference to one, is found; a position within another row is not."""
    deck, log = Deck(ship_id=SHIP, position=777010), Log(year=777020, number=777021)
    remark = Remark(id=777030, log_year=777020, log_number=777021)

    assert shown("777001", deck)
    assert not shown("777010", deck)
    assert [shown(text, log) for text in ("777020", "777021")] == [True, True]
    assert [shown(text, remark) for text in ("777020", "777021", "777030")] == [True, True, True]


def test_ids_of_digits() -> None:
    """An id that consists of the digits of a key is not taken for an id."""
    port = Port(id=777001, public_id="777001")

    assert shown('{"public_id": "777001"}', port)
    assert not shown('{"public_id": "777002"}', port)


@pytest.mark.backend
def test_stored_rows(create: Callable[[MetaData], None], session: Session) -> None:
    """Keys of rows that the database numbers, also of subclasses, are found after a commit; expired rows are loaded."""
    create(Base.metadata)
    port = Port()
    rows = [Ship(home=port), Ferry(id=SHIP, home=port), Deck(ship_id=SHIP, position=1)]
    session.add_all(rows[:2])
    session.flush()
    session.add(rows[2])
    session.commit()
    keys = [rows[0].id, SHIP, port.id]
    session.expire_all()

    assert [shown(f"[{key}]", *rows) for key in keys] == [True, True, True]
    assert not shown(" ".join(row.public_id for row in rows) + " 777777", *rows)


def test_rows_that_are_not_loaded(create: Callable[[MetaData], None], session: Session) -> None:
    """A row without a key, and a detached row whose foreign key is not loaded, are rejected: nothing would be found."""
    create(Base.metadata)
    ship = Ship()
    session.add(ship)
    with pytest.raises(ConfigurationError, match=r"Ship.id has no value yet; flush the row"):
        assert_no_keys_in("", [ship])
    session.commit()
    session.refresh(ship)
    session.expire(ship, ["port_id"])
    session.expunge(ship)
    with pytest.raises(ConfigurationError, match=r"Ship.port_id is not loaded; refresh the row"):
        assert_no_keys_in("", [ship])


@pytest.mark.backend
def test_expired_rows_of_an_async_session(async_engine: Any) -> None:
    """An expired row of an ``AsyncSession`` is rejected, because only an ``await`` can load it."""
    from sqlalchemy.ext.asyncio import AsyncSession

    async def story() -> None:
        async with async_engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        try:
            async with AsyncSession(async_engine) as session:
                ship = Ship()
                session.add(ship)
                await session.commit()
                with pytest.raises(
                    ConfigurationError, match=r"Ship.(port_id|public_id) is not loaded; refresh the row"
                ):
                    assert_no_keys_in("", [ship])
                await session.refresh(ship)
                assert_no_keys_in("", [ship])
        finally:
            async with async_engine.begin() as connection:
                await connection.run_sync(Base.metadata.drop_all)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("text", "rows", "message"),
    [
        ({"id": 1}, [Ship(id=1)], r"text is \{'id': 1\}, expected a string, such as response.text"),
        ("", [], "rows have no integer keys"),
        ("", [Word(text="a")], "rows have no integer keys"),
        ("", ["a"], "rows has 'a', expected an object of a mapped class"),
        ("", [Ship], "rows has .*Ship.*, expected an object"),
        ("", Ship(id=1), "rows is .*Ship.*, expected a list of objects"),
    ],
    ids=["no text", "no rows", "no keys", "text as a row", "class", "one row"],
)
def test_wrong_arguments(text: Any, rows: Any, message: str) -> None:
    """Anything but a text, and rows in which nothing could be found, are rejected."""
    with pytest.raises(ConfigurationError, match=message):
        testing.assert_no_keys_in(text, rows)
