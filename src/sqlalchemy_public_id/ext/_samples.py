"""Objects that are made up, to see whether what Python computes of an object changes with its integer keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy.orm import Mapper
from sqlalchemy.orm.attributes import set_committed_value

from sqlalchemy_public_id.ext._mapped import Key

__all__ = ["Untold", "key_in"]


class Untold(Exception):
    """The function fails for an object without related objects, or its results differ by themselves."""


def key_in(mapper: Mapper[Any], keys: Mapping[str, Key], compute: Callable[[Any], Any]) -> Key | None:
    """The first of *keys*, by the name of its attribute, that the result of *compute* for an object changes with.

    A result that is true or false shows no key.

    :raises Untold: where that cannot be told.
    """
    usual = {prop.key: _value(prop.columns[0].type) for prop in mapper.column_attrs}
    usual |= {name: _NUMBER + place for place, name in enumerate(keys)}

    def computed(**changed: int) -> Any:
        sample = mapper.class_manager.new_instance()
        for name, value in (usual | changed).items():
            set_committed_value(sample, name, value)
        return compute(sample)

    try:
        result = computed()
        if not result == computed():
            raise Untold
        if isinstance(result, bool):
            return None
        changed = (key for name, key in keys.items() if computed(**{name: 2 * _NUMBER}) != result)
        return next(changed, None)
    except Exception as error:  # the function is that of an author who did not expect such an object
        raise Untold from error


# --- inside

_NUMBER = 400_000_000


def _value(type_: Any) -> Any:
    """A value for a column of this type, if its Python type has one by itself: an empty text, zero."""
    try:
        return type_.python_type()
    except Exception:  # a type that needs arguments, or that has no Python type
        return None
