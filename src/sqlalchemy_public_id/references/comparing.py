"""What a reference is in SQL. Comparisons with ids go from the id to the key, so that indexes serve them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection
from typing import Any, cast

from sqlalchemy import BindParameter, ColumnElement, FromClause, Join, Select, and_, case, inspect, select
from sqlalchemy.orm import Mapper
from sqlalchemy.sql import operators

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.references.reference import PublicRef, refs_of
from sqlalchemy_public_id.references.stored import key_and_public_id

__all__ = ["RefExpression"]

_EQUAL = {operator.eq, operators.is_}
_UNEQUAL = {operator.ne, operators.is_not}


class RefExpression(operators.ColumnOperators):
    """The reference *name* of *owner*, a model or an alias of one."""

    def __init__(self, owner: Any, name: str) -> None:
        self._owner = owner
        self._name = name

    def __clause_element__(self) -> ColumnElement[Any]:
        """The public id itself. The foreign key stands beside the subquery, so that the table is selected from."""
        ref, foreign_key = self._found()
        rows, key, public_id = _rows(ref)
        found = select(public_id).where(key == foreign_key).correlate_except(rows).scalar_subquery()
        return case((foreign_key.is_not(None), found))

    def operate(self, op: Any, *other: Any, **kwargs: Any) -> ColumnElement[Any]:
        value: Any = other[0] if other else ()
        if value is None and op in _EQUAL | _UNEQUAL:
            foreign_key = self._found()[1]
            null: ColumnElement[bool] = foreign_key.is_(None) if op in _EQUAL else foreign_key.is_not(None)
            return null
        if op is operator.eq and _is_id(value):
            return self._one_of(lambda public_id: public_id == value)
        if op is operator.ne and _is_id(value):
            return self._none_of(lambda public_id: public_id == value)
        if op is operators.in_op and _are_ids(value):
            return self._one_of(lambda public_id: public_id.in_(value))
        if op is operators.not_in_op and _are_ids(value):
            return self._none_of(lambda public_id: public_id.in_(value))
        answer: ColumnElement[Any] = op(self.__clause_element__(), *other, **kwargs)
        return answer

    def reverse_operate(self, op: Any, other: Any, **kwargs: Any) -> ColumnElement[Any]:
        answer: ColumnElement[Any] = op(other, self.__clause_element__(), **kwargs)
        return answer

    def _found(self) -> tuple[PublicRef, Any]:
        """The reference, and the foreign key as an expression."""
        entity: Any = inspect(self._owner, raiseerr=False)
        if entity is None:
            raise ConfigurationError(
                f"{self._owner.__name__}.{self._name} belongs to no mapped class: use the attribute of a model"
            )
        ref = refs_of(entity.mapper)[self._name]
        return ref, getattr(self._owner, ref.key)

    def _one_of(self, condition: Callable[[Any], ColumnElement[bool]]) -> ColumnElement[bool]:
        ref, foreign_key = self._found()
        found: ColumnElement[bool] = foreign_key.in_(self._keys(ref, condition))
        return found

    def _none_of(self, condition: Callable[[Any], ColumnElement[bool]]) -> ColumnElement[bool]:
        """As a column would answer: true where there is an id, and it is another one."""
        ref, foreign_key = self._found()
        return and_(foreign_key.is_not(None), foreign_key.not_in(self._keys(ref, condition)))

    def _keys(self, ref: PublicRef, condition: Callable[[Any], ColumnElement[bool]]) -> Select[Any]:
        _, key, public_id = _rows(ref)
        found = select(key).where(condition(public_id)).correlate(None)
        own = cast("Mapper[Any]", inspect(self._owner).mapper)
        target = cast("Mapper[Any]", inspect(ref.target))
        if target.local_table not in own.tables:
            return found
        # a table that refers to itself: MySQL reads from one that it changes only by way of a copy, and DISTINCT is one
        (copied,) = found.distinct().subquery().c
        return select(copied)


def _rows(ref: PublicRef) -> tuple[FromClause, ColumnElement[Any], ColumnElement[str]]:
    """Return keys and public ids of the rows that *ref* may point to, under a new name.

    They are columns of a table and not of an entity: conditions that a program adds to its queries hide no rows here,
    as they hide none from what an object shows.
    """
    table, key, public_id = key_and_public_id(ref.source)
    joins = isinstance(table, Join)
    rows = select(key, public_id).select_from(table).subquery() if joins else table.alias()
    columns: list[Any] = [rows.corresponding_column(column) for column in (key, public_id)]
    return rows, columns[0], columns[1]


def _is_id(value: object) -> bool:
    """Whether *value* is sent as a parameter, and is not an expression that may depend on the row."""
    return isinstance(value, (str, BindParameter))


def _are_ids(values: object) -> bool:
    if isinstance(values, Collection):
        return all(map(_is_id, cast("Collection[object]", values)))
    return isinstance(values, BindParameter)
