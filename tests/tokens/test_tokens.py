"""Tokens in a database: only the digest is stored, and only a well-formed token needs a statement."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, bindparam, insert, inspect, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, aliased, defer
from support.async_sessions import tell
from support.marks import on
from support.places_of_columns import PLACES, indexes_of

from sqlalchemy_public_id import ConfigurationError, PublicIdMixin, PublicIdNotFound, lookup, tokens
from sqlalchemy_public_id.asyncio import tokens as asyncio_tokens
from sqlalchemy_public_id.tokens import IssuedToken, Token, token_column

RESET = Token("reset")
SHARE = Token("share")


class Base(DeclarativeBase):
    metadata = MetaData()


class Reset(PublicIdMixin, Base):
    __tablename__ = "reset"
    token: Mapped[bytes] = token_column(RESET)
    expires_at: Mapped[datetime]


class Share(PublicIdMixin, Base):
    """A model with two tokens."""

    __tablename__ = "share"
    reading: Mapped[bytes] = token_column(SHARE, name="r")
    writing: Mapped[bytes] = token_column(Token("write"))


class Invitation(PublicIdMixin, Base):
    __tablename__ = "invitation"
    code: Mapped[bytes] = token_column(RESET)


class Plain(PublicIdMixin, Base):
    """A model without a token."""

    __tablename__ = "plain"


NOW = datetime(2026, 11, 21, 12)  # naive, because not every database stores a time zone
LATER = NOW + timedelta(hours=1)

IMPOSSIBLE: list[Any] = [
    Token("reset", bytes=16).issue().reveal(),
    SHARE.issue().reveal(),
    "",
    "reset_",
    "x" * 1_000_000,
    None,
    1,
    b"reset_",
    [],
]


@pytest.fixture
def stored(create: Callable[[MetaData], None], session: Session) -> Iterator[IssuedToken]:
    """Yield the issued token of a stored row, which is not the only row."""
    create(Base.metadata)
    issued = RESET.issue()
    session.add_all([Reset(token=issued.digest, expires_at=LATER), Reset(token=RESET.issue().digest, expires_at=NOW)])
    session.commit()
    session.connection()
    yield issued
    session.rollback()  # end the transaction before the tables are dropped


def found(session: Session, condition: Any) -> list[bytes]:
    """Return the digests of the rows that satisfy *condition*."""
    return list(session.scalars(select(Reset.token).where(condition)))


# --- finding


@pytest.mark.backend
def test_get(session: Session, stored: IssuedToken, statements: list[str]) -> None:
    """A token's row is found in one statement; an unknown token takes the same statement and gives None."""
    row = tokens.get(session, Reset, stored.reveal())

    assert row is not None
    assert (row.token, row.expires_at) == (stored.digest, LATER)
    assert tokens.get(session, Reset, RESET.issue().reveal()) is None
    assert len(statements) == 2
    assert len(set(statements)) == 1


def test_token_of_a_row_that_may_not_be_seen(session: Session, stored: IssuedToken, statements: list[str]) -> None:
    """A token gives None if its row does not satisfy ``where``, with a single statement."""
    text = stored.reveal()
    assert tokens.get(session, Reset, text, where=Reset.expires_at < NOW) is None
    assert len(statements) == 1
    assert tokens.get(session, Reset, text, where=Reset.expires_at > NOW) is not None
    assert tokens.get(session, Reset, text, where=lambda model: model.expires_at == LATER) is not None


def test_impossible_tokens_send_nothing(session: Session, stored: IssuedToken, statements: list[str]) -> None:
    """Malformed and mistyped tokens, other kinds and the digest itself give None without a statement."""
    text = stored.reveal()
    mistyped = [text[:at] + "~" + text[at + 1 :] for at in range(len(text))] + [text[:-1], text.swapcase()]
    wrong = [*IMPOSSIBLE, *mistyped, stored.digest, stored.digest.hex()]
    assert [each for each in wrong if tokens.get(session, Reset, each) is not None] == []

    assert statements == []


def test_token_that_is_being_replaced(session: Session, stored: IssuedToken) -> None:
    """A token is no longer accepted once its object has a new one, even before the flush."""
    row = session.scalars(select(Reset).where(Reset.token == stored.digest)).one()
    row.token = RESET.issue().digest
    with session.no_autoflush:
        assert tokens.get(session, Reset, stored.reveal()) is None


def test_how_a_row_is_loaded(session: Session, engine: Engine, stored: IssuedToken) -> None:
    """``options``, execution options, locks and ``populate_existing`` work as in a lookup."""
    row = tokens.get(session, Reset, stored.reveal(), options=[defer(Reset.expires_at)], with_for_update=True)
    assert row is not None
    assert "expires_at" in inspect(row).unloaded

    session.connection().execute(update(Reset.__table__).values(expires_at=NOW))
    fresh = tokens.get(
        session,
        Reset,
        stored.reveal(),
        populate_existing=True,
        with_for_update={"of": Reset},
        execution_options={"a": 1},
    )
    assert fresh is row
    assert row.expires_at == NOW


def test_several_tokens(create: Callable[[MetaData], None], session: Session) -> None:
    """If a model has several tokens, the call must name one; attributes and columns may have any name."""
    create(Base.metadata)
    reading, writing = SHARE.issue(), Token("write").issue()
    share = Share(reading=reading.digest, writing=writing.digest)
    invited = RESET.issue()
    invitation = Invitation(code=invited.digest)
    session.add_all([share, invitation])

    assert tokens.get(session, Invitation, invited.reveal()) is invitation
    assert tokens.get(session, Share, reading.reveal(), attribute="reading") is share
    assert tokens.get(session, Share, writing.reveal(), attribute="writing") is share
    assert tokens.get(session, Share, reading.reveal(), attribute="writing") is None
    with pytest.raises(ConfigurationError, match="has several tokens; name one of reading, writing"):
        tokens.get(session, Share, reading.reveal())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda session, text: tokens.get(session.connection(), Reset, text), "expected a Session"),
        (lambda session, text: tokens.get(session, Plain, text), "has no token; add a token_column"),
        (lambda session, text: tokens.get(session, str, text), r"^<class 'str'> is not a mapped class"),
        (lambda session, text: tokens.get(session, text, Reset), r"^an object of type str \(54 long\) is not a mapped"),
        (
            lambda session, text: tokens.get(session, Reset, text, attribute=text),
            r"^attribute is an object of type str \(54 long\), .*'token'$",
        ),
        (
            lambda session, text: tokens.get(session, Reset, text, with_for_updates=True),
            r"get\(\) has no option with_for_updates; expected options, with_for_update",
        ),
    ],
)
@on("sqlite")
def test_mistaken_calls(session: Session, call: Callable[..., Any], message: str) -> None:
    """Invalid sessions, models and options raise with enough detail, but without the token's text."""
    text = Token("rese").issue().reveal()
    with pytest.raises((ConfigurationError, TypeError), match=message) as caught:
        call(session, text)

    assert text[6:16] not in str(caught.value)


@on("sqlite")
def test_swapped_arguments(session: Session) -> None:
    """A token passed in place of another argument is shown only by its type and length."""
    issued = RESET.issue()
    wrong: list[Callable[[Any], Any]] = [
        lambda value: tokens.get(value, Reset, value),
        lambda value: tokens.get(session, value, Reset),
        lambda value: tokens.get(session, value, value),
        lambda value: tokens.get(session, Reset, value, attribute=value),
        lambda value: tokens.get(session, Share, value, attribute=value),
        lambda value: tokens.get(session, Share, value),
        lambda value: tokens.get(session, Plain, value, attribute=value),
        lambda value: asyncio.run(asyncio_tokens.get(session, value, Reset)),
        lambda value: asyncio.run(asyncio_tokens.get(session, Reset, value, attribute=value)),
        token_column,
        Token,
        lambda value: Token("reset", bytes=value),
    ]
    text = issued.reveal()
    shown = []
    for value in (text, text.encode(), [text], {"token": text}, issued.digest):
        for call in wrong:
            with pytest.raises((ConfigurationError, TypeError)) as caught:
                call(value)
            shown.append("".join(traceback.format_exception_only(caught.value)))
    assert [message for message in shown if text[6:16] in message] == []
    assert [message for message in shown if repr(issued.digest)[2:20] in message] == []


@on("sqlite")
def test_token_in_place_of_a_public_id(session: Session, stored: IssuedToken) -> None:
    """A token that is looked up as the public id of its model is not shown in the error; a plain model shows the id."""
    text = stored.reveal()
    wrong: list[Callable[[], Any]] = [
        lambda: lookup.get_one(session, Reset, text),
        lambda: lookup.get_one(session, select(Reset), text, field="reset"),
        lambda: lookup.get_many(session, Reset, [text], field="reset"),
        lambda: lookup.page(session, Reset, limit=1, after=text),
        lambda: lookup.page(session, Reset, limit=1, before=f"{'a' * 12}~{text}"),
    ]
    for call in wrong:
        with pytest.raises(PublicIdNotFound, match=r"an object of type str \(\d+ long\)") as caught:
            call()
        assert text[6:16] not in "".join(traceback.format_exception_only(caught.value))
        assert text in str(caught.value.value)
    with pytest.raises(PublicIdNotFound, match="no Plain has the public id 'reset_guessed'"):
        lookup.get_one(session, Plain, "reset_guessed")


# --- in statements


@pytest.mark.backend
def test_compared_with_a_digest(session: Session, stored: IssuedToken) -> None:
    """Statements compare the digest of a token, alone, in a list, or with an alias."""
    digest, other = RESET.digest(stored.reveal()), aliased(Reset)

    assert digest == stored.digest
    assert found(session, Reset.token == digest) == [stored.digest]
    assert found(session, Reset.token.in_([digest, RESET.issue().digest])) == [stored.digest]
    assert session.scalars(select(other.token).where(other.token == digest)).all() == [stored.digest]
    assert session.query(Reset).filter_by(token=digest).one().token == stored.digest
    assert stored.digest not in found(session, Reset.token != digest)


def test_compared_with_what_is_no_token(session: Session, stored: IssuedToken) -> None:
    """The digest of an invalid text is ``None``, which matches no row, not even a NULL token."""
    digest, other = RESET.digest("reset_guessed"), aliased(Reset)

    assert digest is None
    assert found(session, Reset.token == digest) == found(session, Reset.token.in_([digest])) == []
    assert len(found(session, Reset.token != digest)) == 2
    joined = select(Reset).outerjoin(other, other.id == -Reset.id)  # the joined token is NULL
    assert session.scalars(joined.where(other.token == digest)).all() == []
    assert session.scalars(joined.where(~(other.token != digest))).all() == []
    assert found(session, Reset.token.is_(None)) == []


@pytest.mark.backend
def test_literals(session: Session, stored: IssuedToken) -> None:
    """A digest can be rendered with ``literal_binds``."""
    query = select(Reset.token).where(Reset.token == stored.digest)
    sql = query.compile(session.connection(), compile_kwargs={"literal_binds": True})

    assert session.connection().exec_driver_sql(str(sql)).scalar_one() == stored.digest


COMPARISONS: dict[str, Callable[[str], Any]] = {
    "where": lambda text: Reset.token == text,
    "not": lambda text: Reset.token != text,
    "in": lambda text: Reset.token.in_([RESET.issue().digest, text]),
    "bindparam": lambda text: Reset.token == bindparam("a", text),
    "like": lambda text: Reset.token.like(text),
    "<": lambda text: Reset.token < text,
    "alias": lambda text: aliased(Reset).token == text,
    "table": lambda text: Reset.__table__.c.token == text,
}


@pytest.mark.parametrize("way", COMPARISONS)
def test_comparisons_with_text(way: str) -> None:
    """A comparison with the text of a token is refused where it is written, so no error of SQLAlchemy shows it."""
    text = RESET.issue().reveal()
    with pytest.raises(TypeError, match=r"compare the column with digest\(text\)") as caught:
        select(Reset).where(COMPARISONS[way](text)).compile(compile_kwargs={"literal_binds": True})
    assert text[6:16] not in "".join(traceback.format_exception_only(caught.value))


@pytest.mark.backend
@pytest.mark.parametrize(
    "statement", [insert(Reset).values(expires_at=NOW, public_id="a" * 12), update(Reset)], ids=str
)
def test_literals_that_are_no_digests(session: Session, stored: IssuedToken, statement: Any) -> None:
    """The text of a token is rendered as NULL with ``literal_binds``, which the column refuses."""
    text = RESET.issue().reveal()
    literal = statement.values(token=text).compile(session.connection(), compile_kwargs={"literal_binds": True})
    assert text[6:16] not in str(literal)
    with pytest.raises(DBAPIError), session.begin_nested():
        session.connection().exec_driver_sql(str(literal))
    assert found(session, Reset.token == stored.digest) == [stored.digest]


# --- storing


@pytest.mark.backend
def test_the_column(engine: Engine, session: Session, stored: IssuedToken) -> None:
    """The column has 32 bytes, NOT NULL, and only one index, which is unique and named."""
    table = inspect(engine)
    [column] = [column for column in table.get_columns("reset") if column["name"] == "token"]
    types = {"sqlite": "BLOB", "postgresql": "BYTEA", "mysql": "BINARY(32)", "mariadb": "BINARY(32)"}
    indexes = {index["name"]: index for index in table.get_indexes("reset")}

    assert str(column["type"].compile(engine.dialect)) == types[engine.dialect.name]
    assert column["nullable"] is False
    assert sorted(indexes) == ["uq_reset_public_id", "uq_reset_token"]
    assert indexes["uq_reset_token"]["column_names"] == ["token"]
    assert indexes["uq_reset_token"]["unique"]


@pytest.mark.parametrize("options", [{}, {"info": {"label": "code"}}], ids=["plain", "info"])
@pytest.mark.parametrize("place", PLACES)
def test_index_of_every_place(place: str, options: dict[str, Any]) -> None:
    """The index has its name, wherever a model declares the column, and whatever the application keeps in ``info``."""
    table = PLACES[place](partial(token_column, RESET, **options))

    assert indexes_of(table) == [("uq_seat_code", True, ["code"])]


@pytest.mark.backend
def test_every_byte_comes_back(session: Session, stored: IssuedToken) -> None:
    """Digests with any bytes, including zeros and trailing spaces, are read back unchanged."""
    digests = [bytes(32), bytes([255]) * 32, bytes(range(32)), b"a" + b" " * 31, b"a" + b"\0" * 31]
    session.add_all(Reset(token=digest, expires_at=NOW) for digest in digests)
    session.commit()

    assert set(found(session, Reset.token.in_(digests))) == set(digests)


@pytest.mark.backend
@pytest.mark.parametrize("is_taken", [True, False], ids=["taken", "missing"])
def test_a_row_needs_a_token_of_its_own(session: Session, stored: IssuedToken, is_taken: bool) -> None:
    """A taken or missing digest raises IntegrityError, and the guard does not take it for a collision."""
    session.add(Reset(token=stored.digest if is_taken else None, expires_at=NOW))

    with pytest.raises(IntegrityError):
        session.flush()


WAYS: dict[str, Callable[[Session, Any], Any]] = {
    "add": lambda session, value: (session.add(Reset(token=value, expires_at=NOW)), session.flush()),
    "insert": lambda session, value: session.execute(insert(Reset).values(token=value, expires_at=NOW)),
    "update": lambda session, value: session.execute(update(Reset).values(token=value)),
    "where": lambda session, value: session.execute(select(Reset).where(Reset.token == bindparam("a")), {"a": value}),
    "equal": lambda session, value: session.execute(select(Reset).where(Reset.token == value)),
    "in": lambda session, value: session.execute(select(Reset).where(Reset.token.in_([value]))),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["text", "issued", "hex", "short"])
def test_only_digests_are_sent(session: Session, stored: IssuedToken, way: str, kind: str) -> None:
    """A text or an issued token raises before it is sent, and the message says what to write instead."""
    issued = RESET.issue()
    value = {"text": issued.reveal(), "issued": issued, "hex": issued.digest.hex(), "short": issued.digest[:16]}[kind]
    with pytest.raises(TypeError, match=r"store issued\.digest, and compare the column with digest\(text\)") as caught:
        WAYS[way](session, value)

    assert issued.reveal()[6:16] not in f"{caught.value} {caught.value.args}"


@pytest.mark.parametrize("option", ["nullable", "unique", "index", "default", "primary_key"])
def test_options_of_the_column(option: str) -> None:
    """Options that ``token_column()`` sets itself are refused."""
    with pytest.raises(ConfigurationError, match=f"sets {option} itself"):
        token_column(RESET, **{option: True})


def frames_that_show(text: str, error: BaseException) -> list[str]:
    """Return the names of functions outside of this file whose variables contain a part of *text*."""
    stack = traceback.TracebackException.from_exception(error, capture_locals=True).stack
    assert any("tokens" in frame.filename and frame.name == "get" for frame in stack)
    return [frame.name for frame in stack if frame.filename != __file__ and text[6:16] in str(frame.locals)]


@pytest.mark.backend
def test_no_traceback_shows_the_text(session: Session, stored: IssuedToken, create: Callable[[MetaData], None]) -> None:
    """If the database fails, no variable in the traceback contains the token."""
    session.rollback()
    Base.metadata.drop_all(session.get_bind())
    text = RESET.issue().reveal()
    with pytest.raises(DBAPIError) as caught:
        tokens.get(session, Reset, text)
    create(Base.metadata)

    assert frames_that_show(text, caught.value) == []
    assert text[6:16] not in "".join(traceback.format_exception(caught.value))


# --- async


def test_async(async_engine: AsyncEngine) -> None:
    """The function for ``AsyncSession`` finds valid tokens, and neither sends nor shows anything of others."""

    async def story(session: AsyncSession) -> None:
        issued = RESET.issue()
        session.add(Reset(token=issued.digest, expires_at=LATER))
        await session.commit()

        row = await asyncio_tokens.get(session, Reset, issued.reveal(), with_for_update=True)
        assert row is not None
        assert row.token == issued.digest
        assert await asyncio_tokens.get(session, Reset, issued.reveal(), where=Reset.expires_at < NOW) is None
        await session.rollback()
        with pytest.raises(TypeError, match="has no option with_for_updates"):
            await asyncio_tokens.get(session, Reset, "", with_for_updates=True)
        assert [text for text in IMPOSSIBLE if await asyncio_tokens.get(session, Reset, text) is not None] == []
        assert not session.in_transaction()
        await session.run_sync(lambda sync_session: Base.metadata.drop_all(sync_session.connection()))
        with pytest.raises(DBAPIError) as caught:
            await asyncio_tokens.get(session, Reset, issued.reveal())
        assert frames_that_show(issued.reveal(), caught.value) == []

    tell(async_engine, Base.metadata, story)


@pytest.mark.backend
def test_nothing_is_logged(
    engine: Engine, session: Session, stored: IssuedToken, caplog: pytest.LogCaptureFixture
) -> None:
    """With ``echo`` on, INSERT and lookup show no more than the digest."""
    issued = RESET.issue()
    with caplog.at_level("DEBUG", logger="sqlalchemy"), Session(engine) as other:
        other.add(Reset(token=issued.digest, expires_at=NOW))
        other.commit()
        assert tokens.get(other, Reset, issued.reveal()) is not None

    assert "INSERT INTO reset" in caplog.text
    assert issued.reveal()[6:16] not in caplog.text
