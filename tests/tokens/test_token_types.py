"""Tokens without a database: their format, and that only ``reveal`` shows the text."""

from __future__ import annotations

import copy
import hashlib
import hmac
import json
import pickle
import pprint
import re
import string
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Column
from support.forks import fork, ignore_fork_warning
from support.strategies import any_text, junk

from sqlalchemy_public_id import ConfigurationError, NanoId
from sqlalchemy_public_id.formats import BASE62, Uuid7
from sqlalchemy_public_id.tokens import IssuedToken, Token, TokenType

SESS = Token(prefix="sess")
KINDS = pytest.mark.parametrize("token", [SESS, Token("a", bytes=16)], ids=repr)

PRINTABLE = string.digits + string.ascii_letters + string.punctuation


def base62(number: int, width: int) -> str:
    """Return *number* in *width* digits, independently of the library."""
    return "".join(BASE62[number // 62**place % 62] for place in reversed(range(width)))


def checked(text: str) -> str:
    """Return *text* with its correct checksum."""
    return text + base62(zlib.crc32(text.encode()), 6)


# --- issuing


@KINDS
def test_a_token_is_its_own(token: Token, monkeypatch: pytest.MonkeyPatch) -> None:
    """An issued token is valid, and verifies only against its own digest, in constant time."""
    issued, other = token.issue(), token.issue()
    text, compared = issued.reveal(), list[Any]()
    compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda *both: compared.append(both) or compare(*both))
    verdicts = token.verify(text, issued.digest), token.verify(text, other.digest)

    assert token.is_token(text)
    assert verdicts == (True, False)
    assert compared == [(issued.digest, issued.digest), (issued.digest, other.digest)]
    assert token.digest(text) == issued.digest == hashlib.sha256(text.encode()).digest()


@pytest.mark.parametrize(("size", "width"), [(16, 22), (24, 33), (32, 43), (64, 86)])
def test_random_characters(size: int, width: int) -> None:
    """The random part has the minimum number of characters for its bits."""
    token = Token("sess", bytes=size)

    assert len(token.issue().reveal()) == len("sess_") + width + 6
    assert 62 ** (width - 1) < 2 ** (8 * size) <= 62**width


def test_tokens_are_random() -> None:
    """Every character of the alphabet occurs at every place, and no token repeats."""
    bodies = [SESS.issue().reveal()[5:-6] for _ in range(2000)]

    assert len(set(bodies)) == len(bodies)
    assert [set(place) for place in zip(*bodies, strict=True)] == [set(BASE62)] * 43


def test_the_form_is_fixed() -> None:
    """A token that was issued once stays valid, and its checksum does not change."""
    text = "sess_0aA0aA0aA0aA0aA0aA0aA0aA0aA0aA0aA0aA0aA0aAz1iCbhh"

    assert checked(text[:-6]) == text
    assert SESS.is_token(text)


# --- validating


@KINDS
@given(data=st.data())
def test_every_changed_character_is_found(token: Token, data: st.DataObject) -> None:
    """Replacing any single character, including the prefix, makes a token invalid."""
    text = token.issue().reveal()
    at = data.draw(st.integers(0, len(text) - 1))
    instead = data.draw(st.sampled_from(PRINTABLE) | st.characters())

    assert token.is_token(text[:at] + instead + text[at + 1 :]) == (instead == text[at])


@KINDS
def test_part_of_a_text_is_no_token(token: Token) -> None:
    """A part of a token, a token with more text around it, or one in other letter case is invalid."""
    text = token.issue().reveal()
    parts = [text[:end] for end in range(len(text))] + [text[start:] for start in range(1, len(text))]
    longer = [f" {text}", f"{text} ", f"{text}\n", f"{text}0", text * 2, text.swapcase(), "x" * 10_000_000]

    assert not any(map(token.is_token, parts + longer))


@KINDS
@given(value=junk | any_text)
def test_anything_may_be_asked_about(token: Token, value: object) -> None:
    """Any other value is not a token, and does not raise."""
    assert not token.is_token(value)
    assert token.digest(value) is None
    assert not token.verify(value, bytes(32))


@pytest.mark.parametrize("digest", [None, "0" * 32])
@pytest.mark.parametrize("text", [SESS.issue().reveal(), "sess_guessed"], ids=["issued", "guessed"])
def test_digests_are_bytes(digest: Any, text: str) -> None:
    """An invalid digest, such as None from a nullable column, raises for every text without showing it."""
    with pytest.raises(ConfigurationError, match=r"^digest is an object of type \w+.*, expected 32 bytes") as caught:
        SESS.verify(text, digest)

    assert text not in str(caught.value)


def test_another_prefix_is_another_kind() -> None:
    """A token with another prefix is not a token of this kind."""
    text = SESS.issue().reveal()

    assert Token(prefix="shar").is_token(checked(f"shar{text[4:-6]}"))
    assert not Token(prefix="shar").is_token(text)
    assert not SESS.is_token(checked(f"shar{text[4:-6]}"))


@KINDS
def test_the_pattern_finds_tokens_in_a_text(token: Token) -> None:
    """The pattern finds tokens in a text, and the checksum distinguishes them from dummies."""
    text = token.issue().reveal()
    dummy = text[:-6] + ("000000" if text[-6:] != "000000" else "111111")
    leaked = f"GET /reset?t={text}&x=1\n{{'token': '{text}'}} {text}. {dummy} x{text} {text}x"
    found = re.findall(token.pattern, leaked)

    assert found == [text, text, text, dummy]
    assert list(map(token.is_token, found)) == [True, True, True, False]


SHOW = {
    "str": str,
    "a dictionary": lambda issued: f"{ {issued: [issued]} }",
    "pprint": pprint.pformat,
    "json with default=str": lambda issued: json.dumps(issued, default=str),
}


@pytest.mark.parametrize("show", SHOW.values(), ids=SHOW)
def test_an_issued_token_is_not_shown(show: Any) -> None:
    """However an issued token is printed, formatted or logged, only its prefix is shown."""
    issued = SESS.issue()
    shown = show(issued)

    assert "sess_" in shown
    assert issued.reveal()[5:15] not in shown


@pytest.mark.parametrize(
    "keep", [pickle.dumps, lambda issued: pickle.dumps(issued, 0), copy.copy, copy.deepcopy, json.dumps, vars]
)
def test_an_issued_token_is_not_kept(keep: Any) -> None:
    """An issued token cannot be pickled, copied, serialized to JSON or inspected with ``vars``."""
    issued = SESS.issue()

    with pytest.raises(TypeError) as caught:
        keep(issued)

    assert issued.reveal() not in str(caught.value)


def test_kind_of_tokens() -> None:
    """A kind of tokens has no secret, so it can be printed."""
    assert repr(SESS) == "Token('sess', bytes=32)"
    assert repr(TokenType(SESS)) == "TokenType(Token('sess', bytes=32))"


class Short(Token):
    """A kind of tokens of an application, with a default of its own."""

    def __init__(self, prefix: str, *, bytes: int = 16) -> None:
        super().__init__(prefix, bytes=bytes)


@pytest.mark.parametrize(
    "token",
    [SESS, Token("a", bytes=16), Token("b_1", bytes=20), Token("c", bytes=64), Short("d"), Short("e", bytes=32)],
    ids=repr,
)
def test_pickled_kind(token: Token) -> None:
    """A pickled kind of tokens, alone or in a column, has its class and settings: each accepts the other's tokens."""
    column = Column("token", TokenType(token))
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        kept: Any = pickle.loads(pickle.dumps([token, column.type, column], protocol))
        for again in (kept[0], kept[1].token, kept[2].type.token):
            assert (type(again), repr(again), again.pattern) == (type(token), repr(token), token.pattern)
            assert again.is_token(token.issue().reveal())
            assert token.is_token(again.issue().reveal())


@pytest.mark.parametrize("kind", [Token, IssuedToken])
def test_object_that_was_never_made(kind: type[Any]) -> None:
    """An object whose constructor raised still has a ``repr``, as error reports call it."""
    assert repr(kind.__new__(kind)) == f"<{kind.__name__}>"


# --- settings

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"prefix": ""}, "the prefix '' is not allowed"),
    ({"prefix": None}, "the prefix None is not allowed"),
    ({"prefix": "se ss"}, "ASCII letters, digits and '_'"),
    ({"prefix": "é"}, "ASCII letters, digits and '_'"),
    ({"prefix": "x" * 33}, "up to 32"),
    ({"prefix": "sess\n"}, "is not allowed"),
    ({"bytes": 15}, "bytes is 15, expected a whole number from 16 to 64"),
    ({"bytes": 65}, "bytes is 65, expected a whole number from 16 to 64"),
    ({"bytes": True}, "from 16 to 64"),
    ({"bytes": "32"}, "from 16 to 64"),
    ({"length": 32}, "Token has no option length; expected prefix, bytes, signing_keys and accept_unsigned"),
    ({"format": Uuid7()}, "a token takes no format: public ids are short, or in the order of time, and can be guessed"),
    ({"prefix": NanoId(length=43)}, "a token takes no format"),
]


@pytest.mark.parametrize(("settings", "message"), WRONG, ids=[message for _, message in WRONG])
def test_settings_that_cannot_work(settings: dict[str, Any], message: str) -> None:
    """Invalid settings raise where the token is declared."""
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        Token(**{"prefix": "sess"} | settings)


@pytest.mark.parametrize("declared", [NanoId(), "sess", None, Token])
def test_a_column_takes_a_kind_of_tokens(declared: Any) -> None:
    """The column type accepts only a kind of tokens."""
    with pytest.raises(ConfigurationError, match="is not a Token"):
        TokenType(declared)


@ignore_fork_warning
def test_tokens_of_children() -> None:
    """Tokens of forked processes differ from those of the parent and of each other."""

    def work() -> list[str]:
        return [SESS.issue().reveal() for _ in range(50)]

    made = work()
    children = [fork(work) for _ in range(4)]
    made += work() + [text for child in children for text in child()]

    assert len(made) == len(set(made)) == 6 * 50
