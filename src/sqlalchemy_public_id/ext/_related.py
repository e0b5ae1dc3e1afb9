"""Types that let more of a relationship through than what was checked: objects as they are, or keys of dictionaries."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from types import UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, RootModel, SkipValidation
from typing_extensions import is_protocol, is_typeddict

from sqlalchemy_public_id.ext import _mapped
from sqlalchemy_public_id.ext._aliases import aliased, is_alias
from sqlalchemy_public_id.typed import TypedId

__all__ = ["NOT_VALIDATED", "is_not_validated", "lets_through", "shows_keys"]

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
    within = _within(annotation)
    if is_alias(annotation):
        inside, within = (*inside, annotation), within if annotation not in inside else []
    elif get_origin(annotation) is Annotated:
        if is_not_validated(get_args(annotation)[1:]):
            return NOT_VALIDATED
    elif annotation is Any:
        return "Any"
    elif within is None:
        within, kind = list(get_args(annotation)), get_origin(annotation) or annotation
        if isinstance(kind, type) and _takes(kind, checked, related, is_bare=not within):
            return kind.__name__
    found = (lets_through(each, checked, related, inside) for each in within or ())
    return next((each for each in found if each is not None), None)


def shows_keys(annotation: Any, id_note: type[Any], inside: tuple[Any, ...] = ()) -> bool:
    """Return True if the type *annotation*, given a dictionary, shows its keys as something else than public ids.

    :param id_note: the note on a type that makes it one of public ids.
    :param inside: the aliases that lead here.
    """
    if annotation in inside:
        return False
    within, kind = _within(annotation), get_origin(annotation) or annotation
    if within is not None:
        return any(shows_keys(each, id_note, (*inside, annotation)) for each in within)
    if not isinstance(kind, type) or kind is UnionType:
        return annotation is Any or any(shows_keys(each, id_note, inside) for each in get_args(annotation))
    if issubclass(kind, RootModel):
        return shows_keys(kind.model_fields["root"].annotation, id_note, inside)
    if kind is object or (not is_typeddict(annotation) and issubclass(kind, Mapping)):
        return not (get_args(annotation) and _is_id(get_args(annotation)[0], id_note))
    return kind.__module__ == "collections.abc" and not issubclass(kind, (Sequence, Set))


def is_not_validated(notes: Iterable[Any]) -> bool:
    """Whether the *notes* of a type say that any value will do: ``SkipValidation[…]``."""
    return any(note is _SKIP or isinstance(note, _SKIP) for note in notes)


# --- inside


def _within(annotation: Any) -> list[Any] | None:
    """The types that *annotation* is another name for, or a note on; ``None`` where it is none."""
    if is_alias(annotation):
        return [aliased(annotation)]
    if hasattr(annotation, "__supertype__"):
        return [annotation.__supertype__]
    if isinstance(annotation, TypeVar):
        return list(annotation.__constraints__) or [annotation.__bound__ or Any]
    return [get_args(annotation)[0]] if get_origin(annotation) is Annotated else None


def _is_id(annotation: Any, id_note: type[Any]) -> bool:
    if get_origin(annotation) is Annotated and any(isinstance(note, id_note) for note in get_args(annotation)[1:]):
        return True
    within = _within(annotation)
    if within is not None:
        return all(_is_id(each, id_note) for each in within)
    return isinstance(annotation, type) and issubclass(annotation, TypedId)


def _takes(kind: type[Any], checked: type[BaseModel], related: type[Any] | None, *, is_bare: bool) -> bool:
    if kind is object or _mapped.mapper_of(kind) is not None:
        return True
    if issubclass(kind, BaseModel):
        return not issubclass(kind, checked)
    if kind.__module__ == "collections.abc" or (issubclass(kind, _CONTAINERS) and not hasattr(kind, "_fields")):
        return is_bare  # a container of anything
    return is_protocol(kind) or (related is not None and issubclass(related, kind))
