"""Formats parsed from expressions."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import strategies

from sqlalchemy_public_id import ConfigurationError, Format, NanoId, Snowflake, Ulid, Uuid7, formats
from sqlalchemy_public_id.formats import BASE58
from sqlalchemy_public_id.formats.parse import known_formats, parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NanoId", NanoId()),
        ("  NanoId()\n", NanoId()),
        ('NanoId(length=16, prefix="cus")', NanoId(length=16, prefix="cus")),
        ("NanoId(8, alphabet=BASE58)", NanoId(length=8, alphabet=BASE58)),
        ("NanoId(prefix=None)", NanoId()),
        ("NanoId.accepting(NanoId(8))", NanoId().accepting(NanoId(length=8))),
        ("Uuid7", Uuid7()),
        ("Uuid7('post', encoding='hyphenated')", Uuid7(prefix="post", encoding="hyphenated")),
        ("Ulid(prefix='evt').accepting(Uuid7)", Ulid(prefix="evt").accepting(Uuid7())),
        ("Snowflake(5, epoch=1704067200000)", Snowflake(machine_id=5, epoch=1704067200000)),
        ("NanoId().accepting('__world__', NanoId(8))", NanoId().accepting("__world__", NanoId(length=8))),
        (
            "NanoId(9).accepting(NanoId(8).accepting(NanoId(7)))",
            NanoId(length=9).accepting(NanoId(length=8).accepting(NanoId(length=7))),
        ),
    ],
)
def test_what_people_write(text: str, expected: Format) -> None:
    """Arguments may be positional or keywords, alphabets are names, and parentheses may be omitted."""
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it cannot be parsed"),
        (None, "object of type 'NoneType' has no len()"),
        ("x" * 20_000, "it has 20000 characters"),
        ("(" * 9_000, "it cannot be parsed"),
        ("-" * 9_000 + "1", "it cannot be parsed"),
        (r'NanoId(prefix="\d")', "it cannot be parsed"),
        ("nanoid", "nanoid is not the name of a format"),
        ("Format", "Format is not the name of a format"),
        ("BASE36", "BASE36 is not the name of a format"),
        ("12", "'12' is neither a format nor accepting(…) with other formats"),
        ("BitsFormat()", "BitsFormat is not the name of a format"),
        ("Snowflake", "missing a required argument: 'machine_id'; expected Snowflake(machine_id=…, epoch=…"),
        ("NanoId(wide=2)", "unexpected keyword argument 'wide'; expected NanoId(length=…, alphabet=…"),
        ("NanoId(**{})", "NanoId takes each argument once, and none with **"),
        ("NanoId(length=1, length=2)", "NanoId takes each argument once, and none with **"),
        ("NanoId(*[])", "'*[]' is neither a literal nor the name of an alphabet"),
        ("NanoId(length=2 * 6)", "'2 * 6' is neither a literal nor the name of an alphabet"),
        ("NanoId(prefix={[]: 1})", "unhashable type"),
        ("NanoId(alphabet=__name__)", "__name__ is not the name of a format or of an alphabet"),
        ("NanoId(alphabet=BASE37)", "BASE37 is not the name of a format or of an alphabet"),
        ("NanoId().accepting(older=NanoId())", "is neither a format nor accepting(…) with other formats"),
        ("NanoId().accepting(12)", "'12' is neither a format nor accepting(…) with other formats"),
        ("__import__('os').system('true')", "is neither a format nor accepting(…) with other formats"),
    ],
)
def test_what_is_refused(text: Any, why: str) -> None:
    """Anything else raises, with the reason and the list of formats."""
    with pytest.raises(ConfigurationError) as caught:
        parse(text)

    assert why in str(caught.value)
    assert "write one of JetifyTypeId" in str(caught.value)


@pytest.mark.parametrize("text", ["NanoId(0)", "NanoId(length=NanoId)"])
def test_settings_that_cannot_work(text: str) -> None:
    """Invalid settings raise the error of the format itself."""
    with pytest.raises(ConfigurationError, match=r"^length is .*, expected a whole number from 1 to 255"):
        parse(text)


@given(strategies.any_text | st.text("NanoId()[]{}.,=*'\"\\1eBASE36:lambda ").map("NanoId({})".format))
def test_any_text(text: str) -> None:
    """Any text gives a format or raises ConfigurationError."""
    with contextlib.suppress(ConfigurationError):
        assert isinstance(parse(text), Format)


def test_every_format_is_known() -> None:
    """Each format of the package can be referred to by its name."""
    exported = {getattr(formats, name) for name in formats.__all__}
    expected = {value for value in exported if isinstance(value, type) and issubclass(value, Format)}

    assert set(known_formats().values()) == expected - {Format}
