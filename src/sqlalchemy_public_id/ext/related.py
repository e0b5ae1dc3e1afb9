"""Types that let an object of a mapped class through as it is, so that Pydantic writes out all that it finds there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, SkipValidation
from typing_extensions import is_protocol

from sqlalchemy_public_id.ext import mapped
from sqlalchemy_public_id.ext.aliases import aliased, is_alias

__all__ = ["NOT_VALIDATED", "is_not_validated", "lets_through"]

NOT_VALIDATED = "what is not validated"
"""The words for ``SkipValidation``."""

_SKIP: Any = SkipValidation
_CONTAINERS: tuple[type[Any], ...] = (list, tuple, set, frozenset, dict, deque)


def lets_through(
    annotation: Any, checked: type[BaseModel], related: type[Any] | None, inside: tuple[Any, ...] = ()
) -> str | None:
    """What in the type *annotation* lets a related object through, in words; ``None`` where nothing does.

    :param checked: the models whose fields are checked.
    :param related: the class of the object, where that is known.
    :param inside: the aliases that lead here.
    """
    if is_alias(annotation):
        inside, within = (*inside, annotation), [aliased(annotation)] if annotation not in inside else []
    elif hasattr(annotation, "__supertype__"):
        within = [annotation.__supertype__]
    elif isinstance(annotation, TypeVar):
        within = list(annotation.__constraints__) or [annotation.__bound__ or Any]
    elif get_origin(annotation) is Annotated:
        noted, *notes = get_args(annotation)
        if is_not_validated(notes):
            return NOT_VALIDATED
        within = [noted]
    elif annotation is Any:
        return "Any"
    else:
        within, kind = list(get_args(annotation)), get_origin(annotation) or annotation
        if isinstance(kind, type) and _takes(kind, checked, related, is_bare=not within):
            return kind.__name__
    found = (lets_through(each, checked, related, inside) for each in within)
    return next((each for each in found if each is not None), None)


def is_not_validated(notes: Iterable[Any]) -> bool:
    """Whether the *notes* of a type say that any value will do: ``SkipValidation[…]``."""
    return any(note is _SKIP or isinstance(note, _SKIP) for note in notes)


# --- inside


def _takes(kind: type[Any], checked: type[BaseModel], related: type[Any] | None, *, is_bare: bool) -> bool:
    if kind is object or mapped.mapper_of(kind) is not None:
        return True
    if issubclass(kind, BaseModel):
        return not issubclass(kind, checked)
    if kind.__module__ == "collections.abc" or (issubclass(kind, _CONTAINERS) and not hasattr(kind, "_fields")):
        return is_bare  # a container of anything
    return is_protocol(kind) or (related is not None and issubclass(related, kind))
