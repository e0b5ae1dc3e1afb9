"""NanoId: settings, generation, validation and properties; the ISO 7064 MOD 37,36 check character."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlalchemy_public_id import (
    ConfigurationError,
    Format,
    InvalidPublicId,
    JetifyTypeId,
    NanoId,
    ObjectId,
    Snowflake,
    Ulid,
    Uuid4,
    Uuid7,
)
from sqlalchemy_public_id.formats import BASE36, BASE58, BASE62, CROCKFORD32, UNAMBIGUOUS, URLSAFE64
from sqlalchemy_public_id.formats.nanoid import check_character, is_checked
from sqlalchemy_public_id.formats.parse import parse

ID = "izkpm55j334u"

# --- generating


def test_all_settings() -> None:
    """The positional arguments are length, alphabet, prefix, separator and check digit."""
    text = NanoId(20, alphabet=BASE36.upper(), prefix="cus", separator=".", check_digit=True).generate()

    assert re.fullmatch(r"cus\.[0-9A-Z]{21}", text)


@pytest.mark.parametrize("count", [0, 1, 2, 341, 342, 5000])
def test_generate_many(count: int) -> None:
    """``generate_many()`` returns *count* different ids, including those that are pooled."""
    format = NanoId()
    ids = [format.generate(), *format.generate_many(count), format.generate(), *format.generate_many(count)]

    assert len(ids) == len(set(ids)) == 2 * count + 2


def test_ids_that_wait() -> None:
    """One read of random bytes makes hundreds of ids, which are pooled for the next calls."""
    format = NanoId()
    format.generate()
    waiting = [*format._pool]

    assert len(waiting) > 300
    assert [*format.generate_many(3), format.generate()] == waiting[:-5:-1]


def test_generate_many_of_a_negative_count() -> None:
    """A negative count is refused."""
    with pytest.raises(ValueError, match="count is -1, expected 0 or more"):
        NanoId().generate_many(-1)


# --- invalid settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"length": 0}, "length is 0, expected a whole number from 1 to 255"),
        ({"length": True}, "length is True, expected"),
        ({"length": 12.0}, "length is 12.0, expected"),
        ({"length": 256}, "length is 256, expected a whole number from 1 to 255"),
        ({"length": 252, "prefix": "cus"}, "would generate ids of 256 characters, expected 255 or fewer"),
        ({"length": 255, "check_digit": True}, "would generate ids of 256 characters, expected 255 or fewer"),
        ({"alphabet": ""}, "the alphabet '' is not allowed"),
        ({"alphabet": "abca"}, "the alphabet 'abca' is not allowed: it repeats a"),
        ({"alphabet": "a b"}, "expected printable ASCII characters"),
        ({"alphabet": "aé"}, "expected printable ASCII characters"),
        ({"alphabet": "a\n"}, "expected printable ASCII characters"),
        ({"alphabet": b"ab"}, "expected printable ASCII characters"),
        ({"prefix": ""}, "the prefix '' is not allowed"),
        ({"prefix": "1a"}, "expected ASCII letters, digits and '_', beginning with a letter"),
        ({"prefix": "a٣"}, "the prefix 'a٣' is not allowed"),  # an Arabic digit
        ({"prefix": "cus\n"}, "the prefix 'cus.n' is not allowed"),
        ({"prefix": 5}, "the prefix 5 is not allowed"),
        ({"prefix": "cus", "separator": ""}, "the separator '' is not allowed"),
        ({"prefix": "cus", "separator": " "}, "the separator ' ' is not allowed"),
        ({"separator": None}, "the separator None is not allowed"),
        ({"prefix": "cus", "alphabet": URLSAFE64}, "the alphabet contains the separator '_'"),
        ({"prefix": "cus", "separator": "-x"}, "the alphabet contains the separator '-x'"),
        ({"alphabet": BASE62, "check_digit": True}, "check_digit is defined .* for the 36 digits and letters"),
        ({"alphabet": BASE36[::-1], "check_digit": True}, "check_digit is defined"),
        ({"check_digit": 2}, "check_digit is 2, expected True or False"),
    ],
    ids=str,
)
def test_refused_settings(settings: dict[str, Any], message: str) -> None:
    """Invalid settings raise at once, and the message says what is wrong."""
    with pytest.raises(ConfigurationError, match=message):
        NanoId(**settings)


def test_a_format_is_not_changed() -> None:
    """A format is immutable."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        NanoId().length = 5


# --- validating


@pytest.mark.parametrize(
    ("format", "text"),
    [
        (NanoId(prefix="line_item"), f"line_item_{ID}"),
        (NanoId(prefix="Cus9", separator="::"), f"Cus9::{ID}"),
        (NanoId(alphabet=URLSAFE64, prefix="cus", separator="."), "cus._-_-_-_-_-_-"),
        (NanoId(17, check_digit=True), "a12425gabc1234002m"),
        (NanoId(17, alphabet=BASE36.upper(), check_digit=True), "A12425GABC1234002M"),
        (NanoId(3, alphabet="]^-\\["), "]^-"),
        (NanoId(4, alphabet="$.*+?(){}|/"), "$.*/"),
    ],
)
def test_accepted(format: NanoId, text: str) -> None:
    """A well-formed id is accepted and returned unchanged."""
    assert format.is_valid(text)
    assert format.validate(text) == text


@pytest.mark.parametrize(
    ("format", "value", "reason"),
    [
        (NanoId(), "", "it has 0 characters"),
        (NanoId(), "x", "it has 1 character"),
        (NanoId(), ID + "\n", "it has 13 characters"),
        (NanoId(), ID[1:] + "\n", "it contains other characters"),
        (NanoId(), ID[1:] + "\ud800", "it contains other characters"),
        (NanoId(), ID[1:] + "٣", "it contains other characters"),
        (NanoId(), ID.upper(), "it contains other characters"),
        (NanoId(), None, "it is of type NoneType"),
        (NanoId(), ID.encode(), "it is of type bytes"),
        (NanoId(prefix="cus"), f"CUS_{ID}", "the prefix is 'CUS'"),
        (NanoId(prefix="cus"), f"a_b_{ID}", "the prefix is 'a_b'"),
        (NanoId(prefix="cus"), f"_{ID}", "the prefix is ''"),
        (NanoId(prefix="cus"), ID, "it does not begin with 'cus_'"),
        (NanoId(prefix="cus", separator="."), f"cus_{ID}", "it does not begin with 'cus.'"),
        (NanoId(prefix="cus"), f"cus_{ID}x", "it has 17 characters"),
        (NanoId(17, check_digit=True), "a12425gabc1234020m", "its check digit is wrong, so it is mistyped"),
        (NanoId(17, check_digit=True), "a12425gabc123402!m", "it contains other characters"),
    ],
)
def test_refused(format: NanoId, value: object, reason: str) -> None:
    """A malformed id is refused, and the error says what is wrong with it."""
    with pytest.raises(InvalidPublicId) as raised:
        format.validate(value)

    assert not format.is_valid(value)
    assert raised.value.reason == reason


def test_message() -> None:
    """The message names the field and shows the text, the reason and what was expected."""
    with pytest.raises(InvalidPublicId) as raised:
        NanoId(prefix="cus").validate(f"ord_{ID}", field="customer")

    expected = f"customer: 'ord_{ID}' is not a public id: the prefix is 'ord' (expected cus_ and 12 of 0-9 a-z)"
    assert str(raised.value) == expected


@pytest.mark.parametrize(
    ("format", "expected", "pattern"),
    [
        (NanoId(), "12 of 0-9 a-z", "^[0-9a-z]{12}$"),
        (NanoId(3, alphabet=BASE58), "3 of 1-9 A-H J-N P-Z a-k m-z", "^[1-9A-HJ-NP-Za-km-z]{3}$"),
        (NanoId(prefix="cus", check_digit=True), "cus_ and 13 of 0-9 a-z with a check digit", "^cus_[0-9a-z]{13}$"),
        (NanoId(prefix="cus", separator="."), "cus. and 12 of 0-9 a-z", r"^cus\.[0-9a-z]{12}$"),
        (NanoId(4, alphabet=URLSAFE64), "4 of - 0-9 A-Z _ a-z", r"^[\-0-9A-Z_a-z]{4}$"),
        (NanoId(4, alphabet="abxyz"), "4 of a-b x-z", "^[abx-z]{4}$"),
        (
            NanoId(4).accepting(NanoId(3, alphabet="ab", prefix="x")),
            "4 of 0-9 a-z or x_ and 3 of a-b",
            "^(?:[0-9a-z]{4}|x_[ab]{3})$",
        ),
        (NanoId(4).accepting(NanoId(4)), "4 of 0-9 a-z", "^[0-9a-z]{4}$"),
        (NanoId(4).accepting("a.b/"), "4 of 0-9 a-z or 'a.b/'", r"^(?:[0-9a-z]{4}|a\.b\/)$"),
        (
            NanoId(4).accepting(NanoId(3).accepting(NanoId(2))),
            "4 of 0-9 a-z or 3 of 0-9 a-z or 2 of 0-9 a-z",
            "^(?:[0-9a-z]{4}|[0-9a-z]{3}|[0-9a-z]{2})$",
        ),
    ],
)
def test_expected(format: NanoId, expected: str, pattern: str) -> None:
    """A format describes the ids it accepts in words and as an anchored regular expression."""
    assert format.expected == expected
    assert format.pattern == pattern


# --- the check digit


@given(st.text(BASE36, min_size=2, max_size=64))
def test_same_as_stdnum(text: str) -> None:
    """The check character and the result of the check equal those of python-stdnum, in both letter cases."""
    mod_37_36 = pytest.importorskip("stdnum.iso7064.mod_37_36")
    expected = mod_37_36.calc_check_digit(text.upper())

    assert expected == check_character(text.upper(), BASE36.upper())
    assert expected.lower() == check_character(text)
    assert mod_37_36.is_valid(text.upper()) == is_checked(text)


def test_every_mistyped_character_is_detected() -> None:
    """Replacing a single character never results in another valid id."""
    format = NanoId(prefix="cus", check_digit=True)
    text = format.generate()

    assert format.quick_check(text)
    mistyped = {text[:place] + wrong + text[place + 1 :] for place in range(4, len(text)) for wrong in BASE36} - {text}
    assert [*filter(format.is_valid, mistyped)] == [*filter(format.quick_check, mistyped)] == []


# --- properties


@pytest.mark.parametrize(
    ("format", "capacity", "bits"),
    [
        (NanoId(16, alphabet=BASE62, prefix="cus").accepting(NanoId(50)), 62**16, 16 * math.log2(62)),
        (NanoId(5, check_digit=True), 36**5, 5 * math.log2(36)),  # the check digit follows from the rest
        (NanoId(5, alphabet="x"), 1, 0.0),
    ],
)
def test_capacity_and_entropy(format: NanoId, capacity: int, bits: float) -> None:
    """A format knows the number of ids it can generate, and the random bits of each."""
    assert capacity == format.capacity == format.budget().capacity
    assert bits == pytest.approx(format.entropy_bits)
    assert not format.ordered


def test_value() -> None:
    """Formats with the same settings are equal and have the same hash; formats with different settings are not."""
    formats = [
        NanoId(),
        NanoId(13),
        NanoId(alphabet=BASE36.upper()),
        NanoId(prefix="a"),
        NanoId(prefix="a", separator="."),
        NanoId(check_digit=True),
        NanoId().accepting(NanoId(13)),
        NanoId().accepting("__world__"),
        NanoId().accepting("__default__"),
    ]

    assert len(formats) == len(set(formats)) == len({*formats, *map(copy.deepcopy, formats)})


@pytest.mark.parametrize("clone", [copy.copy, lambda value: pickle.loads(pickle.dumps(value))])
def test_a_copy_has_a_pool_of_its_own(clone: Any) -> None:
    """A copy is equal, and never generates an id that is pooled in the original."""
    format = NanoId().accepting(NanoId(10), "__world__")
    first = format.generate()
    twin = clone(format)

    assert twin == format
    assert not {first, *format.generate_many(500)} & set(twin.generate_many(500))


# --- accepting older formats, changing the prefix


def test_accepting() -> None:
    """A format generates new ids, and validates older ones by their own rules, which the new format alone refuses."""
    old, new = NanoId(17, check_digit=True), NanoId(16, prefix="cus")
    format = new.accepting(old)

    assert new.is_valid(format.generate())
    assert format.is_valid("a12425gabc1234002m")
    assert not format.is_valid("a12425gabc1234020m")
    assert not new.is_valid("a12425gabc1234002m")
    assert format.max_length == 20
    assert NanoId(5).accepting(NanoId(30)).max_length == 30
    assert not NanoId(5).accepting(old).has_exact_pattern


def test_accepting_accumulates() -> None:
    """A format that was changed twice accepts all three forms, and lists the newest first."""
    first, second = NanoId(10), NanoId(11)
    chain, row = NanoId(12).accepting(second.accepting(first)), NanoId(12).accepting(second).accepting(first)

    accepted = [[length for length in range(14) if format.is_valid("a" * length)] for format in (chain, row)]
    assert accepted == [[10, 11, 12]] * 2
    assert chain.forms == row.forms == (NanoId(12), second, first)


def test_accepting_the_other_case() -> None:
    """An id that two forms accept has the spelling of the newer one, unless it is written as the older one wrote it."""
    format = NanoId(4, ignore_case=True).accepting(NanoId(4, alphabet=BASE36.upper(), ignore_case=True))

    assert [format.canonical(text) for text in ("abc1", "ABC1", "aBc1")] == ["abc1", "ABC1", "abc1"]


def test_single_ids() -> None:
    """Fixed ids that an application has chosen are accepted besides those of the format, and never generated."""
    format = NanoId(8).accepting("__world__", NanoId(10), "x")

    assert [format.validate(text) for text in ("__world__", "x", "a" * 8, "a" * 10)]
    assert not any(map(format.is_valid, ("__World__", "__world__ ", "__world_", "y", "")))
    assert format.max_length == 10
    assert {len(id) for id in format.generate_many(100)} == {8}
    assert [form.is_valid("x") for form in format.forms] == [False, False, False, True]


@pytest.mark.parametrize("text", ["", "with blank", "é", "a" * 256, 12])
def test_what_no_single_id_can_be(text: Any) -> None:
    """A fixed id must consist of printable ASCII characters, and be no longer than any other id."""
    with pytest.raises(ConfigurationError, match=r"printable ASCII|255 or fewer|takes formats and strings, not 12"):
        NanoId().accepting(text)


def test_prefixed() -> None:
    """A copy with another prefix accepts the ids of the older formats of the original under their own prefixes."""
    format = NanoId(5, prefix="a").accepting(NanoId(4, prefix="b")).prefixed("c")

    assert format.generate().startswith("c_")
    assert [format.is_valid(text) for text in ("c_00000", "a_00000", "b_0000")] == [True, False, True]
    assert NanoId(5) == NanoId(5, prefix="a").prefixed(None)


def test_a_format_has_to_be_complete() -> None:
    """The abstract base class cannot be instantiated."""
    with pytest.raises(TypeError, match="abstract"):
        Format()


# --- settings without a name


@pytest.mark.parametrize(
    ("construct", "advice"),
    [
        (lambda: NanoId(12, "cus"), r"write NanoId\(12, prefix='cus'\)"),  # type: ignore[misc]
        (lambda: NanoId(12, 5), r"write NanoId\(12, alphabet=…, prefix=…, separator=…, check_digit=…, ignore_case=…\)"),  # type: ignore[misc]
        (lambda: JetifyTypeId("cus", "text"), r"write JetifyTypeId\('cus', prefix='text'\)"),  # type: ignore[misc]
        (lambda: Snowflake(1, 5), r"write Snowflake\(1, epoch=…, "),  # type: ignore[misc]
    ],
    ids=["NanoId", "a number", "JetifyTypeId", "Snowflake"],
)
def test_settings_have_names(construct: Callable[[], object], advice: str) -> None:
    """Only the first setting may be given without its name; the error shows what to write."""
    with pytest.raises(ConfigurationError, match=advice):
        construct()


@pytest.mark.parametrize("cls", [NanoId, Uuid4, Uuid7, Ulid, ObjectId])
def test_prefix_with_its_separator(cls: Any) -> None:
    """A prefix that ends with the separator is refused, and the error shows the right one."""
    with pytest.raises(ConfigurationError, match=r"'cus_' ends with the separator.*write prefix='cus'"):
        cls(prefix="cus_")

    assert cls(prefix="cus_", separator=".").generate().startswith("cus_.")


# --- ignoring case


@pytest.mark.parametrize("alphabet", [UNAMBIGUOUS, CROCKFORD32, BASE36], ids=["lower", "upper", "base 36"])
@pytest.mark.parametrize("settings", [{}, {"prefix": "cus"}, {"prefix": "Cus", "separator": "."}], ids=str)
def test_ignored_case(alphabet: str, settings: dict[str, Any]) -> None:
    """With ``ignore_case=True``, an id in any case, prefix included, is an id, and new ids have the declared case."""
    format = NanoId(8, alphabet=alphabet, ignore_case=True, **settings)
    plain = NanoId(8, alphabet=alphabet, **settings)
    for text in format.generate_many(50):
        assert plain.is_valid(text)
        for other in (text, text.upper(), text.lower(), text.swapcase()):
            assert format.validate(other) == text
            assert re.fullmatch(format.pattern, other)
            assert bool(format.quick_check(other)) is (other == text)
            assert bool(re.fullmatch(format.stored_pattern, other)) is (other == text)


def test_case_matters_by_default() -> None:
    """Without the option, ids in another case are refused, as ever."""
    format = NanoId(alphabet=UNAMBIGUOUS, prefix="cus")
    assert format == NanoId(alphabet=UNAMBIGUOUS, prefix="cus", ignore_case=False)
    assert format != NanoId(alphabet=UNAMBIGUOUS, prefix="cus", ignore_case=True)
    assert not format.is_valid(f"CUS_{'b' * 12}")
    assert not format.is_valid(f"cus_{'B' * 12}")


def test_check_digit_in_another_case() -> None:
    """The check digit detects a mistyped id in either case."""
    format = NanoId(prefix="cus", check_digit=True, ignore_case=True)
    text = format.generate()
    wrong = text[:-1] + next(each for each in BASE36 if not format.is_valid(text[:-1] + each))

    assert format.canonical(text.upper()) == text
    with pytest.raises(InvalidPublicId, match="its check digit is wrong, so it is mistyped"):
        format.validate(wrong.upper())


@pytest.mark.parametrize(
    ("text", "reason"),
    [("XUS_BBBBBB", "the prefix is 'XUS'"), ("CUS_BBBBB", "it has 9 characters"), ("CUS_AAAAAA", "other characters")],
)
def test_reasons_in_another_case(text: str, reason: str) -> None:
    """A text in another case is refused for the same reasons; the message says that either case is accepted."""
    format = NanoId(6, alphabet=UNAMBIGUOUS, prefix="cus", ignore_case=True)
    with pytest.raises(InvalidPublicId, match=f"{reason}.*6 of 6-9 .* in either case"):
        format.validate(text)


@pytest.mark.parametrize("alphabet", [BASE58, BASE62, URLSAFE64, "abcDEF"])
def test_both_cases_cannot_be_ignored(alphabet: str) -> None:
    """An alphabet with letters of both cases is refused, and so is an option that is not a boolean."""
    with pytest.raises(ConfigurationError, match="ignore_case=True needs letters of one case"):
        NanoId(alphabet=alphabet, ignore_case=True)
    with pytest.raises(ConfigurationError, match="ignore_case is 'yes', expected True or False"):
        NanoId(ignore_case="yes")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="the alphabet contains the separator 'X'"):
        NanoId(prefix="cus", separator="X", ignore_case=True)


def test_ignored_case_is_a_setting() -> None:
    """The option survives repr and parse, pickles, copies, another prefix, and older formats."""
    format = NanoId(6, alphabet=UNAMBIGUOUS, prefix="cus", ignore_case=True)
    assert parse(repr(format)) == pickle.loads(pickle.dumps(format)) == copy.copy(format) == format
    assert format.prefixed("ord").canonical("ORD_BCDFGH") == "ord_bcdfgh"
    assert NanoId().accepting(format).canonical("CUS_BCDFGH") == "cus_bcdfgh"
    assert format.accepting(NanoId()).forms == (format, NanoId())


def test_issued_ids_come_first() -> None:
    """An id of an older format is found as it was issued, although the newer format would change its case."""
    format = NanoId(6, ignore_case=True).accepting(NanoId(6, alphabet=BASE62))

    assert [format.canonical(text) for text in ("aBcDeF", "ABCDEF", "abcdef")] == ["aBcDeF", "ABCDEF", "abcdef"]
