"""Typed ids behave like plain texts and have a type."""

from __future__ import annotations

import copy
import enum
import json
import pickle
from typing import Any

import pytest

from sqlalchemy_public_id import ConfigurationError, InvalidPublicId, NanoId, PublicIdType, TypedId, Uuid7
from sqlalchemy_public_id.errors import DuplicatePrefix
from sqlalchemy_public_id.formats import BASE62


class TicketId(TypedId, prefix="tkt", format=NanoId(length=8)): ...


class SeatId(TypedId, prefix="seat"): ...


class PlaceId(TypedId):
    """An abstract type: its subclasses have prefixes and share this type."""


class StationId(PlaceId, prefix="station"): ...


class PlatformId(PlaceId, prefix="platform", aliases=("track", "gleis")): ...


TEXT = "tkt_3k9x0a7b"


# --- generating and validating


def test_making() -> None:
    """Called without an argument, a typed id class generates an id of its format."""
    ids = [TicketId() for _ in range(1000)]

    assert {type(id) for id in ids} == {TicketId}
    assert len(set(ids)) == 1000
    assert all(map(TicketId.id_format.is_valid, ids))
    assert TicketId.prefix == "tkt"
    assert NanoId(length=8, prefix="tkt") == TicketId.id_format
    assert NanoId(prefix="seat") == SeatId.id_format


def test_checking() -> None:
    """Called with a text, a typed id class validates it; an id of the class is returned as is."""
    checked = TicketId(TEXT)

    assert type(checked) is TicketId
    assert checked == TEXT
    assert TicketId(checked) is checked


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("seat_3k9x0a7b2c1d", "the prefix is 'seat'"),
        (SeatId("seat_3k9x0a7b2c1d"), "the prefix is 'seat'"),
        ("tkt_3K9x0a7b", "it contains other characters"),
        (None, "it is of type NoneType"),
        (b"tkt_3k9x0a7b", "it is of type bytes"),
    ],
)
def test_malformed(value: Any, reason: str) -> None:
    """A value that is no id of the type raises, and the error names the type and the reason."""
    with pytest.raises(InvalidPublicId, match=r"^TicketId: ") as raised:
        TicketId(value)

    assert reason == raised.value.reason


class Plain(str, enum.Enum):
    """Members are texts, but ``str(member)`` returns something else."""

    MEMBER = TEXT

    def __str__(self) -> str:
        return f"a plain {self.name}"


@pytest.mark.parametrize(
    "make", [TicketId, TypedId.parse, PublicIdType(TicketId).checked], ids=["call", "parse", "column"]
)
def test_text_of_another_str_type(make: Any) -> None:
    """A member of a text enumeration counts as the text it equals, not as its ``str()``."""
    made = make(Plain.MEMBER)

    assert type(made) is TicketId
    assert made == TEXT


# --- behavior as text


def test_text_in_every_way() -> None:
    """An id compares, hashes, sorts and prints like its text, also in lists; its methods return plain texts."""
    ticket, ids = TicketId(TEXT), [TicketId() for _ in range(100)]

    assert TEXT.__eq__(ticket) is True
    assert ticket != TicketId()
    assert {TEXT: 1}[ticket] == len({ticket, TEXT}) == 1
    assert sorted(map(str, ids)) == sorted(ids)
    assert json.dumps({ticket: [ticket]}) == f'{{"{TEXT}": ["{TEXT}"]}}'
    assert [f"{ticket}", f"{ticket:>15}", "%s" % ticket] == [TEXT, f"   {TEXT}", TEXT]  # noqa: UP031
    assert [repr(ticket), f"{[ticket]}", f"{(1, ticket)}"] == [f"'{TEXT}'", f"['{TEXT}']", f"(1, '{TEXT}')"]
    assert type(str(ticket)) is type(ticket.upper()) is type(ticket[:3]) is type(ticket + "") is str


def test_pickle_and_copy() -> None:
    """A pickle of any protocol and a copy keep the type and the text of an id."""
    ids = [TicketId(TEXT)]
    clones = [pickle.loads(pickle.dumps(ids, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    clones += [copy.copy(ids), copy.deepcopy(ids)]
    assert [(type(clone), clone) for [clone] in clones] == [(TicketId, TEXT)] * len(clones)


# --- parse


def test_parse() -> None:
    """The prefix determines the type; a type parses its own ids, and an abstract type those of its subclasses."""
    made = [TicketId(), SeatId(), StationId(), PlatformId()]
    parsed = [TypedId.parse(str(id)) for id in made]
    assert (parsed, [*map(type, parsed)]) == (made, [TicketId, SeatId, StationId, PlatformId])
    assert type(TicketId.parse(TEXT)) is TicketId
    with pytest.raises(InvalidPublicId, match=r"it is of type SeatId \(expected tkt_ and 8 of 0-9 a-z\)"):
        TicketId.parse(str(SeatId()))
    assert type(PlaceId.parse(str(StationId()))) is StationId
    with pytest.raises(InvalidPublicId, match="it is of type TicketId") as raised:
        PlaceId.parse(str(TicketId()))

    assert raised.value.expected == "an id of a declared PlaceId type"


@pytest.mark.parametrize("text", ["", "tkt_", "tkt_!", "nobody_3k9x0a7b", "\ud800", "tkt_" * 10**6, None, 5])
def test_parse_of_something_else(text: Any) -> None:
    """A text that belongs to no type raises, and the error holds it."""
    with pytest.raises(InvalidPublicId, match=r"^page: .* no type has ids like this") as raised:
        TypedId.parse(text, field="page")

    assert raised.value.value is text


# --- aliases


def test_aliases() -> None:
    """Ids with a former prefix stay valid unchanged, and so do older formats; new ids have the current prefix."""
    body = PlatformId().removeprefix("platform_")
    texts = [f"{prefix}_{body}" for prefix in ("track", "gleis", "platform")]
    assert [PlatformId(text) for text in texts] == [TypedId.parse(text) for text in texts] == texts
    assert [type(TypedId.parse(text)) for text in texts] == [PlatformId] * 3

    class ReturnId(TypedId, format=NanoId(9, prefix="ret").accepting(NanoId(7, prefix="ret")), aliases=("back",)): ...

    assert all(map(ReturnId.id_format.is_valid, ("ret_000000000", "ret_0000000", "back_000000000")))


def test_aliases_of_numbers() -> None:
    """If ids are stored as numbers, an id with a former prefix is converted to the current prefix."""

    class RenamedId(TypedId, prefix="renamed", format=Uuid7(), aliases=("formerly",)): ...

    old = RenamedId().replace("renamed", "formerly")

    assert RenamedId(old) == RenamedId.parse(old) == TypedId.parse(old) == old.replace("formerly", "renamed")


# --- declarations that cannot work


def test_abstract_types_have_no_ids() -> None:
    """A type without a prefix raises for every call, and the message says how to declare a prefix."""
    for arguments in ((), (TEXT,)):
        with pytest.raises(ConfigurationError, match=r'PlaceId has no prefix.*class CustomerId.PlaceId, prefix="cus"'):
            PlaceId(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"format": NanoId()}, "WrongId has no prefix"),
        ({"format": "nanoid"}, "WrongId: format is 'nanoid', expected a format"),
        ({"prefix": "a", "format": NanoId(prefix="b")}, r"two prefixes, 'a' and 'b' .* write aliases=\('b',\)"),
        ({"prefix": "a b"}, "the prefix 'a b' is not allowed"),
        ({"prefix": "a", "aliases": ("b c",)}, "the prefix 'b c' is not allowed"),
        ({"prefix": "a", "aliases": "former"}, r"aliases is 'former', expected a tuple: \('former',\)"),
        ({"aliases": ("former",)}, "WrongId has aliases but no prefix"),
        ({"prefix": "a", "format": NanoId(alphabet=BASE62 + "_")}, "the alphabet contains the separator"),
        ({"prefix": "a", "length": 8}, r"has no option length; .* format=NanoId\(length=8\)"),
    ],
    ids=str,
)
def test_refused_declarations(arguments: dict[str, Any], message: str) -> None:
    """An invalid declaration raises at once, and the message says what to write."""
    with pytest.raises(ConfigurationError, match=message):
        type("WrongId", (TypedId,), {}, **arguments)


def test_prefix_that_is_taken() -> None:
    """Each prefix, including former ones, has one owner, and the error names both claimants."""
    with pytest.raises(DuplicatePrefix, match=r"'gleis' of .*OtherId belongs to .*PlatformId"):
        type("OtherId", (TypedId,), {}, prefix="gleis")


# --- subclasses


def test_subclass_of_a_type_with_a_prefix() -> None:
    """A subclass that only adds behavior shares the ids of its base, and ``parse()`` returns the base type."""

    class ShownTicketId(TicketId):
        def shown(self) -> str:
            return self.upper()

    assert ShownTicketId(TEXT).shown() == ShownTicketId(TicketId(TEXT)).shown() == "TKT_3K9X0A7B"
    assert type(TicketId(ShownTicketId(TEXT))) is TicketId
    assert type(TypedId.parse(str(ShownTicketId()))) is TicketId
