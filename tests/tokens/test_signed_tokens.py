"""Signed tokens: a forged one costs no statement, keys rotate, and no key is ever shown."""

from __future__ import annotations

import copy
import hashlib
import hmac
import pickle
import re
import secrets
import traceback
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from sqlalchemy import Engine, MetaData
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session
from support.async_sessions import tell
from support.strategies import any_text, junk

from sqlalchemy_public_id import ConfigurationError, PublicIdMixin, tokens
from sqlalchemy_public_id.asyncio import tokens as asyncio_tokens
from sqlalchemy_public_id.formats import BASE62
from sqlalchemy_public_id.tokens import Token, token_column

OLD, NEW, FOREIGN = (hashlib.sha256(name).digest() for name in (b"old", b"new", b"foreign"))

UNSIGNED = Token("reset")
BEFORE = Token("reset", signing_keys=[OLD])
ROTATED = Token("reset", signing_keys=[NEW, OLD])
AFTER = Token("reset", signing_keys=[NEW])
FORGED = Token("reset", signing_keys=[FOREIGN])
PERMISSIVE = Token("reset", signing_keys=[NEW], accept_unsigned=True)
OTHER_KIND = Token("share", signing_keys=[NEW])


class Base(DeclarativeBase):
    metadata = MetaData()


class Reset(PublicIdMixin, Base):
    __tablename__ = "signed_reset"
    token: Mapped[bytes] = token_column(ROTATED)


class Permissive(PublicIdMixin, Base):
    __tablename__ = "permissive_reset"
    token: Mapped[bytes] = token_column(PERMISSIVE)


def base62(number: int, width: int) -> str:
    """Return *number* in *width* digits, independently of the library."""
    return "".join(BASE62[number // 62**place % 62] for place in reversed(range(width)))


def checked(text: str) -> str:
    """Return *text* with its correct checksum, which everybody can compute."""
    return text + base62(zlib.crc32(text.encode("utf-8", "surrogatepass")), 6)


def signed(key: bytes, text: str) -> str:
    """Return *text* with its signature and checksum, independently of the library."""
    digest = hmac.new(key, b"sqlalchemy-public-id token\0" + text.encode(), hashlib.sha256).digest()
    return checked(text + base62(int.from_bytes(digest[:16], "big"), 22))


def hostile(genuine: str) -> list[Any]:
    """Return what a client may send to be taken for *genuine*, with correct checksums where one is possible."""
    body = genuine[:-6]
    random, signature = body[:-22], body[-22:]
    return [
        *(checked(body[:at] + ("A" if body[at] != "A" else "B") + body[at + 1 :]) for at in range(len(body))),
        *(FORGED.issue().reveal(), UNSIGNED.issue().reveal(), OTHER_KIND.issue().reveal()),
        checked("reset_" + OTHER_KIND.issue().reveal()[6:-6]),  # the signature of another kind
        checked(random + BEFORE.issue().reveal()[-28:-6]),  # the signature of another token
        *(
            checked(random),
            checked(random + signature[:-1]),
            checked(random + "0" * 22),
            checked(random + signature * 2),
        ),
        *(checked(random.replace("_", each) + signature) for each in ".~-:=|/ \0"),
        *(random + each + signature for each in ("", ".", "_", "~")),
        checked(body.swapcase()),
        checked(random + "\N{FULLWIDTH DIGIT ONE}" * 22),
        checked("\N{CYRILLIC SMALL LETTER ER}" + body[1:]),
        checked(body + "\n"),
        f" {genuine}",
        f"{genuine}\n",
        checked(body[:-1] + "\ud800"),
        "reset_" + "9" * 10_000_000,
        "🔑" * 77,
        genuine.encode(),
        [genuine],
        {"token": genuine},
        None,
        77,
        ROTATED,
    ]


# --- in a database


@pytest.mark.backend
def test_get(create: Callable[[MetaData], None], session: Session, statements: list[str]) -> None:
    """Tokens signed by any of the keys find their rows; an unknown one that is signed takes the same statement."""
    create(Base.metadata)
    old, new = BEFORE.issue(), ROTATED.issue()
    rows = [Reset(token=each.digest) for each in (old, new)]
    session.add_all(rows)
    session.commit()
    session.connection()
    statements.clear()

    assert [tokens.get(session, Reset, each.reveal()) for each in (old, new)] == rows
    assert tokens.get(session, Reset, ROTATED.issue().reveal()) is None
    assert len(set(statements[-1:] + statements[:1])) == 1


@pytest.mark.backend
def test_forged_tokens_send_nothing(
    create: Callable[[MetaData], None], session: Session, statements: list[str]
) -> None:
    """Whatever a client makes without a key gives None without a statement, even if a row has its digest."""
    create(Base.metadata)
    genuine, unsigned = ROTATED.issue(), UNSIGNED.issue()
    session.add_all([Reset(token=genuine.digest), Reset(token=unsigned.digest)])  # as one who can write to the table
    session.commit()
    session.connection()
    statements.clear()
    texts = [*hostile(genuine.reveal()), unsigned.reveal()]

    assert [text for text in texts if tokens.get(session, Reset, text) is not None] == []
    assert statements == []
    assert tokens.get(session, Reset, genuine.reveal()) is not None
    assert len(statements) > 0


def test_async(async_engine: AsyncEngine) -> None:
    """The function for ``AsyncSession`` refuses forged tokens without a transaction, too."""

    async def story(session: AsyncSession) -> None:
        genuine = ROTATED.issue()
        session.add(Reset(token=genuine.digest))
        await session.commit()

        texts = hostile(genuine.reveal())
        assert [text for text in texts if await asyncio_tokens.get(session, Reset, text) is not None] == []
        assert not session.in_transaction()
        assert await asyncio_tokens.get(session, Reset, genuine.reveal()) is not None

    tell(async_engine, Base.metadata, story)


@pytest.mark.backend
def test_tokens_of_before(create: Callable[[MetaData], None], session: Session, statements: list[str]) -> None:
    """Tokens without a signature find their rows only with ``accept_unsigned=True``, and new ones are signed."""
    create(Base.metadata)
    unsigned, new = UNSIGNED.issue(), PERMISSIVE.issue()
    session.add_all([Permissive(token=unsigned.digest), Permissive(token=new.digest), Reset(token=unsigned.digest)])
    session.commit()
    session.connection()
    statements.clear()

    assert tokens.get(session, Reset, unsigned.reveal()) is None
    assert statements == []
    assert [tokens.get(session, Permissive, each.reveal()) is not None for each in (unsigned, new)] == [True, True]
    sent = len(statements)
    assert tokens.get(session, Permissive, FORGED.issue().reveal()) is None
    assert len(statements) == sent
    assert AFTER.is_token(new.reveal())


# --- keys


def test_rotation() -> None:
    """The first key signs, all verify, and a token of a key that is gone is none."""
    old, new = BEFORE.issue().reveal(), ROTATED.issue().reveal()
    kinds = (BEFORE, ROTATED, AFTER, FORGED, UNSIGNED)

    assert [kind.is_token(old) for kind in kinds] == [True, True, False, False, False]
    assert [kind.is_token(new) for kind in kinds] == [False, True, True, False, False]
    assert ROTATED.verify(old, BEFORE.digest(old) or b"")
    assert not AFTER.verify(old, BEFORE.digest(old) or b"")


def test_the_form() -> None:
    """A signed token is the text of an unsigned one with 22 characters more, as documented; its scanner finds it."""
    text = AFTER.issue().reveal()
    both = re.findall(PERMISSIVE.pattern, f"GET /{text}?a=1 {UNSIGNED.issue().reveal()}")

    assert len(text) == len(UNSIGNED.issue().reveal()) + 22
    assert text == signed(NEW, text[:-28])
    assert re.findall(AFTER.pattern, f"GET /{text}?a=1 {UNSIGNED.issue().reveal()}") == [text]
    assert both[0] == text
    assert len(both) == 2
    assert all(map(PERMISSIVE.is_token, both))


def test_tokens_of_other_programs() -> None:
    """The signature is HMAC-SHA256 of the text: a token of a fixed key and random part stays valid in all versions."""
    kind = Token("download", signing_keys=[bytes(range(32))])

    assert kind.is_token(signed(bytes(range(32)), "download_" + "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefg"))
    assert kind.is_token("download_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefg0n6LzTXocZdoWs1nLnj1ql2YNgCo")


@given(any_text | junk)
def test_any_object(value: Any) -> None:
    """Any object is either no token, or raises nothing."""
    assert not ROTATED.is_token(value)
    assert ROTATED.digest(value) is None


# --- settings


@pytest.mark.parametrize(
    "keys",
    [
        [],
        (),
        NEW,
        NEW.hex(),
        [NEW.hex()],
        [NEW[:31]],
        [NEW, OLD[:16]],
        [NEW, None],
        {NEW, OLD},
        {NEW: OLD},
        iter([NEW]),
        [bytearray(NEW)],
        [b""],
        0,
        True,
    ],
    ids=lambda keys: type(keys).__name__,
)
def test_refused_keys(keys: Any) -> None:
    """Keys that are short, text, without an order or not in a list are refused; the error tells what to write."""
    with pytest.raises(ConfigurationError, match=r"^signing_keys .* each of 32 random bytes or more") as caught:
        Token("reset", signing_keys=keys)

    assert not shows_a_key("".join(traceback.format_exception(caught.value)))
    frames = traceback.TracebackException.from_exception(caught.value, capture_locals=True).stack
    assert [frame.name for frame in frames if frame.filename != __file__ and shows_a_key(str(frame.locals))] == []


def shows_a_key(text: str) -> bool:
    """Return True if *text* contains a part of a key."""
    return any(
        part in text for key in (OLD, NEW) for part in (key.hex()[:12], repr(key[:8])[2:-1], repr(key[8:16])[2:-1])
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"accept_unsigned": True}, "True needs signing_keys"),
        ({"accept_unsigned": 1, "signing_keys": [NEW]}, "expected True or False"),
        ({"accept_unsigned": None}, "expected True or False"),
        ({"signing_key": [NEW]}, "has no option signing_key; expected prefix, bytes, signing_keys and accept_unsigned"),
        ({"signing_keys": [NEW], "bytes": 1}, "bytes is 1"),
    ],
    ids=str,
)
def test_refused_settings(settings: dict[str, Any], message: str) -> None:
    """Settings that mean nothing without keys, or are mistyped, are refused without showing a key."""
    with pytest.raises(ConfigurationError, match=message) as caught:
        Token("reset", **settings)

    frames = traceback.TracebackException.from_exception(caught.value, capture_locals=True).stack
    own = [frame for frame in frames if frame.filename != __file__ and "signing_key" not in settings]
    assert [frame.name for frame in own if shows_a_key(str(frame.locals))] == []


def test_keys_are_not_shown() -> None:
    """Neither the kind of tokens, its column nor a token shows a key, and a pickle of them is refused."""
    shown = [ROTATED, PERMISSIVE, Reset.__table__.c.token.type, ROTATED.issue(), [ROTATED], {"kind": ROTATED}]

    assert repr(ROTATED) == "Token('reset', bytes=32, signing_keys=<2 of them>)"
    assert repr(PERMISSIVE).endswith("signing_keys=<1 of them>, accept_unsigned=True)")
    assert not shows_a_key(" ".join([*map(repr, shown), *map(str, shown)]))
    for kept in (ROTATED, PERMISSIVE, Reset.__table__.c.token.type, ROTATED._signer):
        with pytest.raises(TypeError, match="cannot be pickled, because its secret keys would stay there"):
            pickle.dumps(kept)
    assert copy.deepcopy(ROTATED) is copy.copy(ROTATED) is ROTATED


def test_a_list_that_changes() -> None:
    """A list that changes later changes nothing."""
    keys = [NEW]
    kind = Token("reset", signing_keys=keys)
    keys[:] = [secrets.token_bytes(32)]

    assert AFTER.is_token(kind.issue().reveal())


@pytest.mark.backend
def test_nothing_is_logged(
    engine: Engine, create: Callable[[MetaData], None], caplog: pytest.LogCaptureFixture
) -> None:
    """With every logger at DEBUG, no key and no text is logged."""
    create(Base.metadata)
    issued = ROTATED.issue()
    with caplog.at_level("DEBUG"), Session(engine) as session:
        session.add(Reset(token=issued.digest))
        session.commit()
        assert tokens.get(session, Reset, issued.reveal()) is not None
        assert tokens.get(session, Reset, FORGED.issue().reveal()) is None

    assert not shows_a_key(caplog.text)
    assert issued.reveal()[6:16] not in caplog.text
