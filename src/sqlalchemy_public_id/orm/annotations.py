"""What ``Mapped[…]`` tells type checkers about an attribute, and ``PublicIdMixin[…]`` about the ids of a model.

SQLAlchemy reads the annotation only to choose a type for the column: neither beside a type, nor for a descriptor.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Iterator
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Union, get_args, get_origin

from sqlalchemy.orm import Mapped

from sqlalchemy_public_id.typed import TypedId

MIXINS = "sqlalchemy_public_id.declare"
"""The module of the mixins."""


def wrong_annotation(model: type[Any], name: str, shown: type[Any]) -> type[Any] | None:
    """Return the class in the annotation of an attribute of *model* if its values, of the class *shown*, are no such.

    An annotation that contains no class, such as a ``NewType``, or that cannot be evaluated here, contradicts nothing.
    """
    annotation = next((found for base in model.__mro__ if (found := _mapped_type(base, name)) is not None), None)
    members = list(_members(annotation))
    return None if any(_may_hold(each, shown) for each in members) else next(iter(members), None)


def _mapped_type(cls: type[Any], name: str) -> Any:
    """Return the type in the ``Mapped[…]`` of an attribute in the body of *cls*; None if there is none."""
    names = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    try:
        annotations = {key: value for key, value in inspect.get_annotations(cls).items() if key == name}
        hint = typing.get_type_hints(SimpleNamespace(__annotations__=annotations), names).get(name)
    except Exception:  # whatever the evaluation raises; SQLAlchemy has its own error for what it cannot evaluate
        return None
    origin = get_origin(hint)
    return get_args(hint)[0] if isinstance(origin, type) and issubclass(origin, Mapped) else None


def _members(annotation: Any) -> Iterator[Any]:
    """Yield the types that *annotation* allows, except for None."""
    if get_origin(annotation) in (Union, UnionType):
        for each in get_args(annotation):
            yield from _members(each)
    elif annotation not in (None, NoneType):
        yield annotation


def _may_hold(annotation: Any, shown: type[Any]) -> bool:
    if annotation is Any:  # a class since Python 3.11
        return True
    try:
        return not isinstance(annotation, type) or issubclass(shown, annotation)
    except TypeError:  # a protocol that cannot be checked, or a generic
        return True


def typed_ids_of_mixins(model: type[Any]) -> dict[str, type[TypedId]]:
    """Return the typed ids that *model* itself has in the brackets of its mixins, each by what is written."""
    found: dict[str, type[TypedId]] = {}
    for base in vars(model).get("__orig_bases__", ()):
        mixin = get_origin(base)
        if getattr(mixin, "__module__", None) == MIXINS:
            typed = (each for each in get_args(base) if isinstance(each, type) and issubclass(each, TypedId))
            found |= {f"{mixin.__name__}[{each.__name__}]": each for each in typed}
    return found


def names_of_mixins(model: type[Any]) -> tuple[str, str]:
    """Return the names of the class that adds an id and a key to *model*, and of the one that adds the id alone.

    Dataclasses and SQLModel have classes of their own.
    """
    library = MIXINS.partition(".")[0]
    names = (base.__name__ for base in model.__mro__ if base.__module__.partition(".")[0] == library)
    with_key = next(names, "PublicIdMixin").replace("PublicIdColumn", "PublicId")
    return with_key, with_key.replace("PublicId", "PublicIdColumn")
