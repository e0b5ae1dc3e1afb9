"""The places in which a model can declare a column: ``PLACES["a mixin"](token_column)`` returns the table of seats."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import new_class
from typing import Annotated, Any, TypeAlias

from sqlalchemy import Integer, MetaData, String, Table
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, MappedColumn, declared_attr, mapped_column
from support.marks import before_sqlalchemy
from typing_extensions import TypeAliasType

Declare: TypeAlias = Callable[[], MappedColumn[Any]]


def _new(*bases: Any, **members: Any) -> Any:
    name = members.get("__tablename__", "part")
    return new_class(name, bases, exec_body=lambda own: own.update(members))


def _base(parts: tuple[Any, ...], **members: Any) -> Any:
    return _new(*parts, DeclarativeBase, metadata=MetaData(), **members)


def _code(declare: Declare) -> dict[str, Any]:
    return {"code": declare(), "__annotations__": {"code": Mapped[Any]}}


def _seat(*bases: Any, table: str = "seat", **members: Any) -> Any:
    key, tenant = mapped_column(Integer, primary_key=True), mapped_column(Integer, nullable=False)
    return _new(*bases, __tablename__=table, id=key, tenant=tenant, **members).__table__


def _two_models(declare: Declare, parts: tuple[Any, ...]) -> Any:
    mixin, base = _new(*parts, **_code(declare)), _base(parts)
    return [_seat(mixin, base, table=name) for name in ("first", "seat")][1]


def _annotated(declare: Declare, **kind: Any) -> dict[str, Any]:
    type_: Any = Annotated[str | None if kind.get("optional") else Any, declare()]
    if kind.get("alias"):
        type_ = TypeAliasType("Code", type_)
    return {"__annotations__": {"code": Mapped[type_]}}


def _two_models_of_an_annotation(declare: Declare, parts: tuple[Any, ...]) -> Any:
    base, members = _base(parts), _annotated(declare)
    return [_seat(base, table=name, **members) for name in ("first", "seat")][1]


_PLACES: dict[str, Callable[[Declare, tuple[Any, ...]], Table]] = {
    "the model": lambda declare, parts: _seat(_base(parts), **_code(declare)),
    "a mixin": lambda declare, parts: _seat(_new(*parts, **_code(declare)), _base(parts)),
    "a mixin of two models": _two_models,
    "a mixin of a mixin": lambda declare, parts: _seat(_new(_new(*parts, **_code(declare))), _base(parts)),
    "a function of a mixin": lambda declare, parts: _seat(
        _new(*parts, code=declared_attr(lambda cls: declare())), _base(parts)
    ),
    "an abstract model": lambda declare, parts: _seat(_new(_base(parts), __abstract__=True, **_code(declare))),
    "the base": lambda declare, parts: _seat(_base(parts, **_code(declare))),
    "an annotation": lambda declare, parts: _seat(_base(parts), **_annotated(declare)),
    "an annotation beside mapped_column()": lambda declare, parts: _seat(
        _base(parts), **_annotated(declare), code=mapped_column(info={"seen": True})
    ),
    "an annotation in the map of types": lambda declare, parts: _seat(
        _base(parts, type_annotation_map={Any: String(99)}), **_annotated(declare)
    ),
    "an alias of an annotation": lambda declare, parts: _seat(_base(parts), **_annotated(declare, alias=True)),
    "an annotation that may be None": lambda declare, parts: _seat(_base(parts), **_annotated(declare, optional=True)),
    "an annotation in a mixin": lambda declare, parts: _seat(_new(*parts, **_annotated(declare)), _base(parts)),
    "an annotation in two models": _two_models_of_an_annotation,
    "an annotation in an abstract model": lambda declare, parts: _seat(
        _new(_base(parts), __abstract__=True, **_annotated(declare))
    ),
    "an annotation in the base": lambda declare, parts: _seat(_base(parts, **_annotated(declare))),
    "a copy of the table with an annotation": lambda declare, parts: _seat(
        _base(parts), **_annotated(declare)
    ).to_metadata(MetaData()),
    "a copy of the table": lambda declare, parts: _seat(_base(parts), **_code(declare)).to_metadata(MetaData()),
}

if before_sqlalchemy(2, 0, 37):  # it does not read such an alias without an entry in the map of types
    del _PLACES["an alias of an annotation"]

PLACES: dict[str, Callable[[Declare], Table]] = {
    f"{place}{kind}": partial(table, parts=parts)
    for place, table in _PLACES.items()
    for kind, parts in {"": (), ", dataclass": (MappedAsDataclass,)}.items()
}
"""A place → a function that declares the column ``code`` there, and returns the table, which has a ``tenant``, too."""


def indexes_of(table: Table) -> list[tuple[Any, bool, list[str]]]:
    """Return the name of each index of *table*, whether it is unique, and its columns."""
    return [(index.name, index.unique, index.columns.keys()) for index in table.indexes]
