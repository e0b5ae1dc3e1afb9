"""The SQL for the row at the cursor of a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, cast

from sqlalchemy import (
    Column,
    ColumnClause,
    ColumnElement,
    ScalarSelect,
    Select,
    SelectBase,
    SQLColumnExpression,
    and_,
    bindparam,
    case,
    inspect,
    select,
)
from sqlalchemy.sql.visitors import replacement_traverse

from sqlalchemy_public_id._private import without_lock
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.lookup.ordering import Term

CURSOR = "sqlalchemy_public_id_cursor"
"""The parameter for the public id of the row."""


class CursorRow:
    """The row of *entity* whose public id is the parameter :data:`CURSOR`, or another one.

    It is selected from the entity of the page, so that whatever hides rows of the page hides it, too: criteria that the
    application adds to the session or the statement apply to subqueries as well.

    :param selected: the statement of the page, without an order.
    :param name: the attribute with the public id.
    :param visible: the condition that the row has to meet, or None; it is among those of *selected*.
    :param is_joined: True if *visible* names a table that only *selected* joins.
    :param has_key: find the row by its key, too, because its public id is unique only with other columns.
    """

    def __init__(
        self,
        selected: Select[Any],
        entity: Any,
        name: str,
        *,
        visible: SQLColumnExpression[bool] | None,
        is_joined: bool,
        has_key: bool = False,
    ) -> None:
        self._selected = selected
        self._entity = entity
        self._name = name
        self._id: Any = getattr(entity, name)
        self._visible = visible
        self._is_joined = is_joined
        mapper: Any = inspect(entity).mapper
        keys = mapper.primary_key if has_key else ()
        self.keys: list[str] = [mapper.get_property_by_column(key).key for key in keys]
        """The attributes of the key; none if the public id is unique alone."""

    # --- statements

    def select(self, columns: Sequence[Any], public_id: object = None, *, as_selected: bool = False) -> Select[Any]:
        """Return the statement for *columns* of the row, or of the row with *public_id*.

        :param as_selected: return nothing if the row does not meet the conditions of the page's statement.
        """
        is_cursor = self._id == (self._parameter if public_id is None else public_id)
        if public_id is None and self.keys:
            is_cursor = self._is_cursor(self._id, [getattr(self._entity, key) for key in self.keys])
        if as_selected or self._is_joined:
            row = self._rows_selected(columns, is_cursor).limit(1)  # a join repeats the row, with equal values
        else:
            row = self._rows_of_entity(columns, is_cursor)
        return row.correlate(None)

    def select_keys(self, public_id: object, *, as_selected: bool) -> Select[Any]:
        """Return the statement for :attr:`keys` of the row with *public_id*, or of two rows if several have it.

        :param as_selected: as for :meth:`select`.
        """
        keys = [getattr(self._entity, key) for key in self.keys]
        if not as_selected and not self._is_joined:
            return self._rows_of_entity(keys, self._id == public_id).correlate(None).limit(2)
        # Joined to the entity, and not selected from: a listener adds its condition to the outer statement, which has
        # no conditions yet, because those of the page do not say which of several rows the cursor is.
        selected: Any = without_lock(self._rows_selected(keys, self._id == public_id).correlate(None)).subquery()
        is_selected = and_(*(key == column for key, column in zip(keys, selected.c, strict=True)))
        rows = cast("Select[Any]", select(*keys).select_from(self._entity).join(selected, is_selected))
        return rows.correlate(None).distinct().limit(2)  # a join of the page repeats its rows

    def _rows_selected(self, columns: Sequence[Any], is_cursor: Any) -> Select[Any]:
        rows = self._selected.where(is_cursor).with_only_columns(*columns, maintain_column_froms=True)
        return cast("Select[Any]", rows)

    def _rows_of_entity(self, columns: Sequence[Any], is_cursor: Any) -> Select[Any]:
        rows = cast("Select[Any]", select(*columns).select_from(self._entity).where(is_cursor))
        return rows if self._visible is None else rows.where(self._visible)

    def parameters(self, public_id: object, key: Sequence[Any]) -> dict[str, Any]:
        """Return the parameters for the row with *public_id* and *key*, which is empty if the id is unique alone."""
        own = {CURSOR: public_id}
        return own | {f"{CURSOR}_{at}": value for at, value in enumerate(key)} if key else own

    def _is_cursor(self, public_id: Any, keys: Iterable[Any]) -> ColumnElement[bool]:
        own = (key == bindparam(f"{CURSOR}_{at}", type_=key.type) for at, key in enumerate(keys))
        return and_(public_id == self._parameter, *own)

    @cached_property
    def _parameter(self) -> Any:
        return bindparam(CURSOR, type_=self._id.type.as_parameter)

    def select_id(self, *, as_selected: bool) -> Select[Any]:
        """Return the statement for the public id of the row, as it is stored."""
        return self.select([self._id], as_selected=as_selected)

    def select_nulls(self, terms: Sequence[Term], *, as_selected: bool) -> Select[Any]:
        """Return the statement for a number for each of *terms*: 1 if it is NULL in the row, and 0 otherwise."""
        are_null = [case((term.compared.is_(None), 1), else_=0) for term in terms]
        return self.select(are_null, as_selected=as_selected)

    # --- subqueries

    def value(self, term: Term) -> ScalarSelect[Any]:
        """Return the value of *term* in the row: NULL if the row is hidden."""
        row = self.select([term.value_of(term.element)])
        subquery: ScalarSelect[Any] = (without_lock(row) if self._is_joined else row).scalar_subquery()
        return subquery

    def values(self, terms: Sequence[Term]) -> list[ScalarSelect[Any]]:
        """Return the :meth:`value` of each of *terms*."""
        return [self.value(term) for term in terms]

    def stored_value(self, term: Term) -> ScalarSelect[Any]:
        """Return the value of *term* in the row, even if the row is hidden.

        :raises ConfigurationError: if *term* needs other rows, of which criteria may hide some.
        """
        mapper: Any = inspect(self._entity).mapper
        source = mapper.selectable
        id, *keys = (source.corresponding_column(mapper.columns[name]) for name in (self._name, *self.keys))
        query = select(term.value_of(self._stored(term.element))).select_from(source).where(self._is_cursor(id, keys))
        return query.correlate(None).scalar_subquery()

    def _stored(self, expression: Any) -> Any:
        """Return *expression* with the columns of the tables in place of the attributes of the entity."""
        mapper: Any = inspect(self._entity).mapper
        stored = {
            getattr(self._entity, prop.key).__clause_element__(): mapper.selectable.corresponding_column(column)
            for prop in mapper.column_attrs
            for column in prop.columns[:1]
            if isinstance(column, Column) and hasattr(self._entity, prop.key)
        }

        def replace(element: Any, **kw: Any) -> Any:
            is_column = isinstance(element, ColumnClause) and element.table is not None
            column = stored.get(element) if is_column else None
            if isinstance(element, (SelectBase, ScalarSelect)) or (is_column and column is None):
                raise ConfigurationError(
                    "order_by with cursor_execution_options may have columns of the model and expressions of them, but "
                    "no subquery, because the options would apply to its rows; leave out either of them"
                )
            return column

        return cast("Any", replacement_traverse(expression, {}, replace))
