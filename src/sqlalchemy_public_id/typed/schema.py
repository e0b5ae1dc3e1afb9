"""The schemas of public ids for Pydantic.

Imported by ``sqlalchemy_public_id.ext.pydantic``, and by a typed id when Pydantic calls for its schema.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from pydantic_core import PydanticCustomError, core_schema

from sqlalchemy_public_id.errors import InvalidPublicId
from sqlalchemy_public_id.formats import Format, NanoId
from sqlalchemy_public_id.formats._bits import BitsFormat
from sqlalchemy_public_id.formats.nanoid import check_character

_NUMBERS = (0x017F22E279B07CC398C4DC0C0C07398F, 0x919108F752D14320 << 64 | 0x9BACF847DB4148A8)
"""The examples of RFC 9562 for UUIDs of version 7 (A.6) and 4 (A.3)."""


def core_schema_of(
    check: Callable[[Any], str], mark: Callable[[str, str | None], None], *, name: str, field: str | None
) -> core_schema.CoreSchema:
    """Return the schema of ids that *check* accepts and makes canonical; they are strings in JSON.

    Nothing else is converted but the objects that formats take, such as UUIDs, so strict mode makes no difference. A
    refused value raises an error of type ``public_id``.

    :param mark: called with an id that was parsed from a string, and the name of its field, or None outside of a model.
    :param name: a name for the ids, which the places of errors in a union contain.
    :param field: the name of the field, for releases of Pydantic that do not tell it to their validators.
    """

    def checked(value: object, info: core_schema.ValidationInfo) -> str:
        try:
            found = check(value)
        except InvalidPublicId as error:
            facts = {"reason": error.reason, "expected": error.expected}
            template = "Input is not a public id: {reason} (expected {expected})"
            raise PydanticCustomError("public_id", template, facts) from None
        if found is not value:
            mark(found, info.field_name or field)
        return found

    checked.__name__ = checked.__qualname__ = name
    return core_schema.with_info_plain_validator_function(
        checked, serialization=core_schema.to_string_ser_schema(when_used="json")
    )


def json_schema_of(format: Format | None) -> dict[str, Any]:
    """Return the JSON schema of the ids of *format*; None stands for any format."""
    schema: dict[str, Any] = {"type": "string", "format": "public-id"}
    if format is not None:
        lengths = [part._own_length for part in format._chain()]  # pyright: ignore[reportPrivateUsage]  # private to users, not to us
        schema |= {"pattern": format.pattern, "minLength": min(lengths), "maxLength": max(lengths)}
        schema["examples"] = [example_of(format)]
    return schema


def example_of(format: Format) -> str:
    """Return an id of *format* for documentation: the same one each time, so that documents do not change."""
    if isinstance(format, NanoId):
        drawn = hashlib.shake_128(repr(format.prefixed(None)).encode()).digest(format.length)
        text = "".join(format.alphabet[byte % len(format.alphabet)] for byte in drawn)
        text += check_character(text, format.alphabet) if format.check_digit else ""
        return format.validate(text if format.prefix is None else format.prefix + format.separator + text)
    if isinstance(format, BitsFormat):
        for number in _NUMBERS:
            try:
                return format.validate(format.from_int(number << format.bits >> 128))
            except InvalidPublicId:
                continue
    return format.example()
