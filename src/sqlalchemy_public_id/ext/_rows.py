"""The row that a request asks for, by its public id, or by its integer key in an old link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from typing_extensions import Unpack

from sqlalchemy_public_id import lookup
from sqlalchemy_public_id.columns import public_id_type
from sqlalchemy_public_id.ext import _mapped
from sqlalchemy_public_id.ext._legacy import LegacyKeys, key_column
from sqlalchemy_public_id.lookup import LoadOptions

M = TypeVar("M")  # a model


def find_row(
    session: Any,
    model: type[M],
    text: object,
    legacy_keys: LegacyKeys | None,
    *,
    attribute: str | None,
    **load: Unpack[LoadOptions],
) -> tuple[M | None, Mapping[str, str]]:
    """Return the row of *model* with the public id *text*, and the headers of its answer.

    If *legacy_keys* accepts *text* as the key in an old link, the row is the one with this key. Only then are there
    headers.
    """
    row = lookup.get(session, model, text, attribute=attribute, **load)
    if row is not None or legacy_keys is None:
        return row, {}
    _, column = _mapped.public_id(model, attribute)
    number = None if public_id_type(column).id_format.is_valid(text) else legacy_keys.key_in(text)
    if number is not None:
        row = lookup.one_row(session, model, key_column(model) == number, **load)
    if row is None:
        return None, {}
    legacy_keys.note(model)
    return row, legacy_keys.headers


def parameter_of(
    model: type[Any], param: str | None, *, attribute: str | None = None, legacy_keys: LegacyKeys | None = None
) -> str:
    """Return the name of the path parameter with the public id of *model*: *param*, or ``order_id`` for ``Order``.

    :raises ConfigurationError: if *model* has no such public id, or no integer key that *legacy_keys* could accept.
    """
    _mapped.public_id(model, attribute)
    if legacy_keys is not None:
        key_column(model)
    return param or f"{_mapped.snake_case(model.__name__)}_id"
