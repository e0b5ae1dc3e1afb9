"""The column type: what it binds, compares, reads, renders and copies."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import (
    Column,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    func,
    insert,
    literal,
    select,
    tuple_,
    update,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import CompileError
from sqlalchemy.orm import DeclarativeBase, Session, mapped_column
from sqlalchemy.pool import NullPool
from support.marks import on

from sqlalchemy_public_id import (
    ConfigurationError,
    InvalidPublicId,
    NanoId,
    PublicIdMixin,
    PublicIdType,
    TypedId,
    Uuid7,
    testing,
)
from sqlalchemy_public_id.formats import BASE62

pytestmark = pytest.mark.backend


class Base(DeclarativeBase):
    metadata = MetaData()


class TicketId(TypedId, prefix="sqlticket", aliases=("tk",)): ...


class OtherTicketId(TicketId, prefix="sqlother"): ...


class Account(PublicIdMixin, Base):
    """Has case-sensitive ids of two lengths."""

    __tablename__ = "account"
    __public_id__ = NanoId(length=16, alphabet=BASE62).accepting(NanoId(length=12, alphabet=BASE62))


class Ticket(PublicIdMixin[TicketId], Base):
    __tablename__ = "ticket"


LONG, SHORT = "aBcdefghijkl0123", "abcdefghijkl"
MALFORMED = {
    "empty": "",
    "NUL": "abcdef\0ghijk",
    "only NUL": "\0",
    "not ASCII": "abcdefghijké",
    "full width": "\uff41bcdefghijkl",
    "lone surrogate": "abcdefghijk\ud800",
    "10 MB": "a" * 10_000_000,
    "one more character": LONG + "x",
    "blank behind": SHORT + " ",
    "blanks behind": SHORT + "    ",
    "blank before": " " + SHORT,
    "new line behind": SHORT + "\n",
    "other case": SHORT.upper(),
    "wildcard": "%",
    "quote": "' OR 1=1 --",
    "backslash": "\\",
}


@pytest.fixture
def accounts(create: Callable[[MetaData], None], session: Session) -> Session:
    """Return a session on a database with the accounts LONG and SHORT, and one ticket."""
    create(Base.metadata)
    session.add_all([Account(public_id=LONG), Account(public_id=SHORT), Ticket(public_id="sqlticket_000000000000")])
    session.commit()
    return session


def ids(session: Session, *conditions: Any) -> list[str]:
    return sorted(session.scalars(select(Account.public_id).where(*conditions)))


# --- one process, several types


def in_one_process(*queries: Any) -> list[Any]:
    """Return the result of each query on one engine, which shares its statement cache."""
    with create_engine("sqlite://", poolclass=NullPool).connect() as connection:
        return [connection.scalar(query) for query in queries]


def test_statements_of_several_types() -> None:
    """A statement cached for one type does not validate, truncate or convert the ids of another type."""
    lengths = [PublicIdType(NanoId(length=length)) for length in (3, 6)]
    read = [literal("sqlticket_000000000000", PublicIdType(each)) for each in (TicketId, TicketId.id_format, TicketId)]

    assert in_one_process(*(select(literal("a" * n, type_)) for n, type_ in zip((3, 6), lengths, strict=True))) == [
        "aaa",
        "aaaaaa",
    ]
    assert in_one_process(
        *(select(literal("a" * n, type_) == "a" * 6) for n, type_ in zip((3, 6), lengths, strict=True))
    ) == [0, 1]
    assert [type(found) for found in in_one_process(*map(select, read))] == [TicketId, str, TicketId]


# --- representation and copies


@pytest.mark.parametrize("declared", [NanoId(length=16).accepting(NanoId(prefix="old"), NanoId(length=8)), TicketId])
def test_repr_is_a_constructor_call(declared: Any) -> None:
    """The ``repr``, which Alembic writes into migrations, can be evaluated, and names a typed id class."""
    assert eval(repr(PublicIdType(declared))).format == declared


COPIES: dict[str, Callable[[PublicIdType], Any]] = {
    "copy()": lambda type_: type_.copy(),
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "pickle": lambda type_: pickle.loads(pickle.dumps(type_)),
    "to_metadata": lambda type_: Table("t", MetaData(), Column("x", type_)).to_metadata(MetaData()).c.x.type,
    "with_variant": lambda type_: type_.with_variant(Integer(), "oracle"),
}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("declared", [NanoId(length=5), TicketId], ids=["format", "typed id"])
def test_copies(declared: Any, way: str) -> None:
    """A copy generates, validates and shows ids like the original."""
    type_ = PublicIdType(declared)
    copied = COPIES[way](type_)

    assert copied.format == type_.format
    assert copied.python_type is type_.python_type
    assert repr(copied) == repr(type_)
    assert type(copied.next_id()) is type_.python_type
    assert copied.checked(type_.next_id())


CONVERSIONS = ["process_bind_param", "process_result_value", "bind_processor", "result_processor", "bind_expression"]


@pytest.mark.parametrize("method", CONVERSIONS)
def test_subclass_that_converts_ids(method: str) -> None:
    """A subclass with conversions of its own is refused, because comparisons and look-ups would not know them."""
    own: dict[str, Any] = {method: lambda self, *given: None}
    message = rf"Reversed has its own {method}, .* write a subclass of Format"
    for bases, names in [((PublicIdType,), own), ((type("Mixin", (), own), PublicIdType), {})]:
        with pytest.raises(ConfigurationError, match=message):
            type("Reversed", bases, {"cache_ok": True, **names})


VARIANTS: dict[str, Callable[[], Any]] = {
    "of numbers": lambda: PublicIdType(Uuid7()).with_variant(String(36), "mysql"),
    "as numbers": lambda: PublicIdType(Uuid7(storage="text")).with_variant(PublicIdType(Uuid7()), "postgresql"),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_variant_of_numbers(variant: str) -> None:
    """A variant for one database is refused if one of the two types stores numbers, which no comparison would find."""
    with pytest.raises(ConfigurationError, match=r"would store ids of Uuid7\(.*in two ways"):
        VARIANTS[variant]()


@pytest.mark.parametrize("declared", [None, 12, "cus", NanoId, TypedId, str, [NanoId()]])
def test_what_is_no_format(declared: Any) -> None:
    """Anything but a format or a typed id class with a prefix raises where the column is declared."""
    with pytest.raises(ConfigurationError):
        PublicIdType(declared)


# --- SQL text


QUOTED = {
    "sqlite://": "code = '''%:a'",
    "postgresql+psycopg://": "code = '''%%:a'",
    "mysql+pymysql://": "code = '''%%:a'",
    "mariadb+pymysql://": "code = '''%%:a'",
}


@pytest.mark.parametrize("url", QUOTED)
def test_literals(url: str) -> None:
    """With ``literal_binds``, well-formed ids are quoted for the dialect, and malformed ones match nothing."""
    table = Table(
        "t",
        MetaData(),
        Column("public_id", PublicIdType(NanoId(length=5))),
        Column("code", PublicIdType(NanoId(length=4, alphabet="'%:a"))),
    )
    condition = (table.c.public_id == "abcde") & table.c.public_id.in_(["abcde", "é", "\0"]) & (table.c.code == "'%:a")
    text = str(condition.compile(dialect=make_url(url).get_dialect()(), compile_kwargs={"literal_binds": True}))

    assert text.replace("t.", "") == f"public_id = 'abcde' AND public_id IN ('abcde', '', '') AND {QUOTED[url]}"


def test_literal_that_would_be_written() -> None:
    """A malformed id also raises in an INSERT that is compiled with ``literal_binds``."""
    table = Table("t", MetaData(), Column("public_id", PublicIdType(NanoId(length=5))))
    with pytest.raises(CompileError) as caught:
        insert(table).values(public_id="toolong").compile(compile_kwargs={"literal_binds": True})

    assert isinstance(caught.value.__cause__, InvalidPublicId)


# --- comparisons


@pytest.mark.parametrize("why", MALFORMED)
def test_malformed_text_matches_nothing(accounts: Session, why: str) -> None:
    """A malformed text equals no id, is in no list of ids, and raises on no database."""
    column, text = Account.public_id, MALFORMED[why]

    assert ids(accounts, column == text) == ids(accounts, column.is_not_distinct_from(text)) == []
    assert ids(accounts, column != text) == ids(accounts, column.is_distinct_from(text)) == [LONG, SHORT]
    assert ids(accounts, column.in_([text, LONG])) == [LONG]
    assert ids(accounts, column.not_in([text, LONG])) == [SHORT]
    assert ids(accounts, tuple_(Account.id, column).in_([(1, text), (2, SHORT)])) == [SHORT]


@pytest.mark.parametrize("value", [1, b"abcdefghijkl"], ids=lambda value: type(value).__name__)
def test_compared_with_what_is_no_text(value: Any) -> None:
    """Comparing a public id with an integer key or bytes raises."""
    with pytest.raises(InvalidPublicId) as caught:
        in_one_process(select(literal(LONG, Account.__table__.c.public_id.type) == value))

    assert caught.value.value is value
    assert caught.value.reason == f"it is of type {type(value).__name__}"


def test_order_is_that_of_bytes(accounts: Session) -> None:
    """``ORDER BY``, ``<`` and ``max()`` use ASCII order on every database: digits, capitals, lower-case letters."""
    made = [letter * 16 for letter in "b0Z9aAzB"]
    accounts.add_all([Account(public_id=each) for each in made])
    accounts.commit()
    found = accounts.scalars(select(Account.public_id).order_by(Account.public_id)).all()

    assert list(found) == sorted([*made, LONG, SHORT])
    assert ids(accounts, Account.public_id < "A" * 16) == ["0" * 16, "9" * 16]
    assert accounts.scalar(select(func.max(Account.public_id))) == "z" * 16


def test_like(accounts: Session) -> None:
    """LIKE patterns are not ids, and are sent unchanged."""
    assert ids(accounts, Account.public_id.like("_Bc%0123")) == [LONG]
    assert ids(accounts, Account.public_id.endswith("0123")) == [LONG]
    assert ids(accounts, Account.public_id.contains("%", autoescape=True)) == []
    assert ids(accounts, Account.public_id.like("x" * 100 + "%")) == []
    assert accounts.scalars(select(Ticket.id).where(Ticket.public_id.like("sqlticket~_%", escape="~"))).all() == [1]


def test_row_of_another_format(accounts: Session) -> None:
    """A stored id of a former format is found if it is as long as the column."""
    former = "-" * len(LONG)
    accounts.execute(sqlalchemy.text("INSERT INTO account (public_id) VALUES (:id)"), {"id": former})

    assert ids(accounts, Account.public_id == former) == [former]


# --- reading and writing


def test_typed_ids_are_read(accounts: Session) -> None:
    """A typed id column returns typed ids for columns and aggregates, and None for NULL."""
    (found,) = accounts.scalars(select(Ticket.public_id)).all()
    greatest = accounts.scalar(select(func.max(Ticket.public_id)))
    missing = accounts.execute(select(Ticket.public_id).select_from(Account).outerjoin(Ticket, Ticket.id < 0)).all()

    assert [type(found), type(greatest)] == [TicketId, TicketId]
    assert [row[0] for row in missing] == [None, None]
    for wrong in (LONG, OtherTicketId()):
        with pytest.raises(InvalidPublicId):
            accounts.connection().execute(insert(Ticket).values(public_id=wrong))


WRITES: dict[str, Callable[[str], Any]] = {
    "insert": lambda text: insert(Account).values(public_id=text),
    "update": lambda text: update(Account).values(public_id=text),
    "table insert": lambda text: insert(Account.__table__).values(public_id=text),
}


@pytest.mark.parametrize("way", WRITES)
@pytest.mark.parametrize("name", [name for name in MALFORMED if name != "other case"])
def test_malformed_text_is_not_written(accounts: Session, statements: list[str], way: str, name: str) -> None:
    """A malformed id raises its own error before any statement is sent."""
    accounts.connection()
    statements.clear()
    with pytest.raises(InvalidPublicId) as caught:
        accounts.connection().execute(WRITES[way](MALFORMED[name]))
    assert caught.value.value == MALFORMED[name]
    assert not statements


class OwnId(PublicIdType):
    """A subclass of the column type that generates ids in its own way."""

    cache_ok = True

    def next_id(self) -> str:
        return "own" + super().next_id()[3:]


OWN_ID = OwnId(NanoId())


@on("sqlite")
def test_subclass_makes_its_own_ids(session: Session) -> None:
    """A retry calls ``next_id()`` of the subclass, which the column default may call as well."""

    class Own(DeclarativeBase): ...

    class Song(Own):
        __tablename__ = "song"
        id = mapped_column(Integer, primary_key=True)
        public_id = mapped_column(OWN_ID, default=OWN_ID.next_id, unique=True, nullable=False)

    Own.metadata.create_all(session.get_bind())
    with testing.fixed_ids(OWN_ID.id_format, *["a" * 12] * 2):
        for _ in range(2):
            session.add(Song())
            session.flush()

    assert [id[:3] for id in session.scalars(select(Song.public_id))] == ["own", "own"]
