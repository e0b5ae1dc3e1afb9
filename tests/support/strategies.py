"""Hypothesis strategies: formats, the arguments of their constructors, and texts that clients send as ids."""

from __future__ import annotations

from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from sqlalchemy_public_id import Format, NanoId
from sqlalchemy_public_id.formats import BASE36, BASE58, BASE62, CROCKFORD32, UNAMBIGUOUS, URLSAFE64

PRINTABLE = "".join(map(chr, range(ord("!"), ord("~") + 1)))

junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(), max_size=5),
    st.binary(max_size=5),
    st.lists(st.none()),
)
"""Values of any type, and texts of any characters."""

any_text = st.text(st.characters())
"""Texts of any characters, including lone surrogates and NUL.

A strategy without an alphabet has the characters of UTF-8. To find them, Hypothesis encodes every character that there
is, once for each checkout: that took longer than any test.
"""

presets = st.sampled_from([BASE36, BASE58, BASE62, CROCKFORD32, UNAMBIGUOUS, URLSAFE64])
alphabets = presets | st.lists(st.sampled_from(PRINTABLE), min_size=1, unique=True).map("".join)
prefixes = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,15}", alphabet=PRINTABLE, fullmatch=True)
separators = st.text(PRINTABLE, min_size=1, max_size=3)


def settings() -> st.SearchStrategy[dict[str, Any]]:
    """Return arguments for :class:`NanoId`, some of which are invalid."""
    return st.fixed_dictionaries(
        {},
        optional={
            "length": st.integers(-1, 300) | junk,
            "alphabet": alphabets | junk,
            "prefix": prefixes | junk,
            "separator": separators | junk,
            "check_digit": st.booleans() | junk,
        },
    )


@st.composite
def nanoids(draw: st.DrawFn, check_digits: bool = True) -> NanoId:
    """Draw a :class:`NanoId` that accepts only its own ids; without *check_digits*, one without a check digit."""
    check_digit = check_digits and draw(st.booleans())
    alphabet = draw(st.sampled_from([BASE36, BASE36.upper()]) if check_digit else alphabets)
    others = sorted(set(PRINTABLE) - set(alphabet))
    prefix = draw(st.none() | prefixes) if others else None
    separator = draw(st.text(others, min_size=1, max_size=3)) if prefix else "_"
    assume(prefix is None or not prefix.endswith(separator))
    return NanoId(
        draw(st.integers(1, 40)), alphabet=alphabet, prefix=prefix, separator=separator, check_digit=check_digit
    )


@st.composite
def formats(draw: st.DrawFn, check_digits: bool = True) -> Format:
    """Draw a format, which may accept older formats."""
    return draw(nanoids(check_digits)).accepting(*draw(st.lists(nanoids(check_digits), max_size=2)))


def texts(format: Format) -> st.SearchStrategy[str]:
    """Return texts of every kind, mostly ids of *format* and texts that resemble them."""
    # sometimes with a wrong check digit, or a newline at the end
    alike = st.from_regex(format.pattern, alphabet=st.characters())
    spoiled = st.tuples(
        alike, st.integers(0, format.max_length), st.integers(0, 2), st.text(st.characters(), max_size=2)
    )
    return alike | any_text | spoiled.map(_spoil)


def _spoil(parts: tuple[str, int, int, str]) -> str:
    """Return the text with some of its characters replaced by others."""
    text, at, cut, instead = parts
    return text[:at] + instead + text[at + cut :]
