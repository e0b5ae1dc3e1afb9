"""What the fields of a response model read from a mapped object, and which of them may show an integer key.

A field that reads a column shows that column, whatever type the field declares. For everything else, such as a hybrid,
a property or related objects, the declared type decides: a type that can hold a number is refused, unless it is marked
with :class:`NotAKey`. The check calls no code of the application.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterable, Iterator
from numbers import Number
from types import UnionType
from typing import Annotated, Any, ForwardRef, TypeVar, Union, get_args, get_origin

import typing_extensions
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    PlainValidator,
    SkipValidation,
    TypeAdapter,
    WrapValidator,
)
from pydantic.fields import FieldInfo
from sqlalchemy import Column
from sqlalchemy.orm import ColumnProperty, CompositeProperty, Mapper, RelationshipProperty, SynonymProperty

from sqlalchemy_public_id.columns import is_public_id, public_id_type
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.references.reference import refs_of
from sqlalchemy_public_id.typed import TypedId

Path = tuple[str | int, ...]
"""Names of attributes, with indexes of lists and keys of dictionaries among them."""

_SKIP: Any = SkipValidation
# before Python 3.15, ``type X = …`` and typing_extensions have different classes
_ALIASES: tuple[type[Any], ...] = (
    typing_extensions.TypeAliasType,
    getattr(typing, "TypeAliasType", typing_extensions.TypeAliasType),
)


class NotAKey:
    """Mark a field of a :class:`PublicModel` that is not an integer key, although its type could hold one.

    For example, ``orders: Annotated[int, NotAKey()]`` shows a number that a hybrid or a property computes, or a part of
    a composite key that is not secret.
    """

    def __repr__(self) -> str:
        return "NotAKey()"


# --- sources


class NotConfigured(Exception):
    """The path leads through a relationship of a model whose mapper is not configured yet."""


def read_paths(cls: type[BaseModel], name: str, field: FieldInfo) -> Iterator[Path]:
    """Yield the attribute paths that Pydantic reads *field* from, in the order in which it tries them."""
    config = cls.model_config
    alias = field.validation_alias
    if alias is not None and config.get("validate_by_alias", True):
        for choice in alias.choices if isinstance(alias, AliasChoices) else [alias]:
            yield tuple(choice.path) if isinstance(choice, AliasPath) else (choice,)
    if alias is None or config.get("validate_by_name") or config.get("populate_by_name"):
        yield (name,)


def has_attribute(mapper: Mapper[Any], name: str) -> bool:
    """Return True if the objects of *mapper* have an attribute *name*, mapped or not."""
    missing = object()
    is_there = inspect.getattr_static(mapper.class_, name, missing) is not missing
    return is_there or mapper.has_property(name) or name == "_sa_instance_state"


def columns_at(mapper: Mapper[Any], path: Path) -> tuple[Mapper[Any], list[Column[Any]]] | None:
    """Return the columns that *path* reads, and the mapper that they belong to; ``None`` if it reads no column.

    :raises NotConfigured: if a mapper on the path is not configured yet.
    """
    name, *rest = path
    prop = mapper.get_property(str(name)) if mapper.has_property(str(name)) else None
    if isinstance(prop, SynonymProperty):
        return columns_at(mapper, (prop.name, *rest))
    if isinstance(prop, RelationshipProperty) and rest:
        if not mapper.configured:
            raise NotConfigured
        related: Mapper[Any] = prop.mapper
        if not prop.uselist:
            return columns_at(related, tuple(rest))
        return columns_at(related, tuple(rest[1:])) if isinstance(rest[0], int) and rest[1:] else None
    if isinstance(prop, ColumnProperty):
        columns: list[Any] = list(prop.columns)
    elif isinstance(prop, CompositeProperty):
        columns = [column for part in prop.props for column in part.columns]
    else:
        return None
    return (mapper, columns) if all(isinstance(column, Column) for column in columns) else None


def format_at(mapper: Mapper[Any], path: Path) -> Format | None:
    """Return the format of the public ids that *path* reads; None if it reads something else, or is not known yet."""
    if len(path) != 1:
        return None
    if mapper.configured and path[0] in refs_of(mapper):
        return refs_of(mapper)[str(path[0])].id_format
    _, columns = columns_at(mapper, path) or (None, [])
    return public_id_type(columns[0]).id_format if len(columns) == 1 and is_public_id(columns[0]) else None


def refuses_all(cls: type[BaseModel], name: str, field: FieldInfo, format: Format) -> bool:
    """Return True if *field* of *cls* has the type of other ids than those of *format*, and nothing converts them."""
    own = _formats_in(field.annotation, field.metadata)
    decorators = cls.__pydantic_decorators__
    validators: list[Any] = [*decorators.field_validators.values(), *decorators.validators.values()]
    changes = any({name, "*"}.intersection(each.info.fields) for each in validators)
    others = [each for each in decorators.model_validators.values() if each.info.mode != "after"]
    if not own or changes or len(others) > 1:  # PublicModel has one itself
        return False
    return not any(one.is_valid(form.example()) for one in own for form in format.forms)


def _formats_in(annotation: Any, notes: Iterable[Any]) -> list[Format] | None:
    """Return the formats of the ids that a type consists of; None if it is, or may become, anything else."""
    notes = list(notes)
    if any(isinstance(note, (BeforeValidator, PlainValidator, WrapValidator)) for note in notes):
        return None
    marked: list[Any] = [getattr(note, "id_format", None) for note in notes]
    formats: list[Format] = [each for each in marked if isinstance(each, Format)]
    if formats:
        return formats
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        return _formats_in(inner, [*more, *notes])
    if get_origin(annotation) in (Union, UnionType):
        parts = [_formats_in(each, ()) for each in get_args(annotation) if each is not type(None)]
        return None if None in parts else [one for part in parts for one in part or ()]
    cls: type[Any] = annotation if isinstance(annotation, type) else type(None)
    format: Any = getattr(cls, "id_format", None) if issubclass(cls, TypedId) else None
    return None if format is None else [format]


# --- types


def may_hold_a_key(field: FieldInfo, model: type[BaseModel], checked: type[BaseModel]) -> str | None:
    """Return the part of the type of *field* that could show an integer key; ``None`` if there is none.

    :param checked: the base of the models that check their own fields.
    """
    coerces = bool(model.model_config.get("coerce_numbers_to_str"))
    return _doubtful(field.annotation, field.metadata, checked, coerces, ())


def has_marker(notes: Iterable[Any]) -> bool:
    """Return True if :class:`NotAKey` is among the metadata of a type."""
    return any(note is NotAKey or isinstance(note, NotAKey) for note in notes)


def _doubtful(
    annotation: Any, notes: Iterable[Any], checked: type[BaseModel], coerces: bool, outer: tuple[Any, ...]
) -> str | None:
    notes = list(notes)
    if has_marker(notes) or annotation in outer or isinstance(annotation, (str, ForwardRef)):
        return None  # a name that is not defined yet is checked with the first object
    if any(note is _SKIP or isinstance(note, _SKIP) for note in notes):
        return "what is not validated"
    coerces = coerces or any(map(_makes_text, notes))
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        return _doubtful(inner, [*more, *notes], checked, coerces, outer)
    parts = _parts(annotation)
    if parts is not None:
        found = (_doubtful(part, (), checked, coerces, (*outer, annotation)) for part in parts)
        return next((each for each in found if each is not None), None)
    cls: type[Any] = annotation if isinstance(annotation, type) else type(None)
    if issubclass(cls, checked) or _is_text(annotation, cls, coerces):
        return None
    return str(getattr(annotation, "__name__", annotation))


def _parts(annotation: Any) -> list[Any] | None:
    """Return the types that *annotation* is made of, or stands for; ``None`` if it is a single type."""
    if hasattr(annotation, "__supertype__"):
        return [annotation.__supertype__]
    if isinstance(annotation, TypeVar):
        return list(annotation.__constraints__) or [annotation.__bound__ or Any]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, _ALIASES) or isinstance(origin, _ALIASES):
        return [_aliased(annotation)]
    is_container = isinstance(origin, type) and origin.__module__ in ("builtins", "collections", "collections.abc")
    if origin in (Union, UnionType) or is_container:
        return [argument for argument in arguments if argument is not Ellipsis]
    return None


def _aliased(annotation: Any) -> Any:
    """Return the value of the alias *annotation*, which may contain the alias again."""
    alias: Any = annotation if isinstance(annotation, _ALIASES) else get_origin(annotation)
    value = alias.__value__
    arguments: dict[Any, Any] = dict(zip(alias.__type_params__, get_args(annotation), strict=False))
    if isinstance(value, TypeVar):
        return arguments.get(value, value)
    parameters: tuple[Any, ...] = getattr(value, "__parameters__", ())
    return value[tuple(arguments.get(one, one) for one in parameters)] if arguments and parameters else value


def _is_text(annotation: Any, cls: type[Any], coerces: bool) -> bool:
    """Return True if Pydantic serializes *annotation* as a string, a boolean or null, and accepts no number for it."""
    if issubclass(cls, (str, Number)):
        return issubclass(cls, (bool, TypedId)) or (issubclass(cls, str) and not coerces)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        schema = adapter.json_schema(mode="serialization")
    except Exception:  # Pydantic cannot describe it, or the author's code raises
        return False
    is_text = schema.get("type") in ("string", "boolean", "null")
    return is_text and not any(_accepts(adapter, number) for number in (7, 7 * 86_400))


def _accepts(adapter: TypeAdapter[Any], number: int) -> bool:
    """Return True if *number* is converted to a value, such as a time since 1970 or an IP address."""
    try:
        adapter.validate_python(number)
    except Exception:
        return False
    return True


def _makes_text(note: Any) -> bool:
    """Return True if *note* converts a number to a string."""
    is_str = isinstance(note, (BeforeValidator, PlainValidator)) and note.func is str
    return is_str or bool(getattr(note, "coerce_numbers_to_str", False))
