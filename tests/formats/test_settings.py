"""Names of settings that a format does not have: the error has the name that is probably meant."""

from __future__ import annotations

from typing import Any

import pytest

from sqlalchemy_public_id import NanoId, Snowflake, Ulid, Uuid7
from sqlalchemy_public_id.keys import CoprimeKey


@pytest.mark.parametrize(
    ("format", "given", "meant"),
    [
        (NanoId, "size", "length"),
        (NanoId, "len", "length"),
        (NanoId, "n", "length"),
        (NanoId, "sep", "separator"),
        (NanoId, "chars", "alphabet"),
        (NanoId, "prefx", "prefix"),
        (NanoId, "checkdigit", "check_digit"),
        (Uuid7, "format", "encoding"),
        (Ulid, "sep", "separator"),
        (Snowflake, "machine", "machine_id"),
        (CoprimeKey, "sep", "separator"),
    ],
)
def test_nearly_right(format: Any, given: str, meant: str) -> None:
    """A name from another library, and a misspelled one, lead to the setting, and all settings are listed."""
    with pytest.raises(
        TypeError, match=rf"{format.__name__}\(\) has no setting {given} \(did you mean {meant}\?\); .*{meant}"
    ):
        format(**{given: 8})


def test_unknown() -> None:
    """A name that is like none of the settings is refused with the list of them."""
    with pytest.raises(
        TypeError, match=r"^Uuid7\(\) has no setting length; it takes prefix, separator, encoding, storage$"
    ):
        Uuid7(length=8)  # type: ignore[call-arg]
