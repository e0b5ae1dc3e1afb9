"""The SQL for the row at the cursor of a page."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, cast

from sqlalchemy import ScalarSelect, Select, SQLColumnExpression, bindparam, case, inspect, select

from sqlalchemy_public_id._private import without_lock
from sqlalchemy_public_id.lookup.ordering import Term, operand

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
    """

    def __init__(
        self,
        selected: Select[Any],
        entity: Any,
        name: str,
        *,
        visible: SQLColumnExpression[bool] | None,
        is_joined: bool,
    ) -> None:
        self._selected = selected
        self._entity = entity
        self._name = name
        self._id: Any = getattr(entity, name)
        self._visible = visible
        self._is_joined = is_joined

    # --- statements

    def select(self, columns: Sequence[Any], public_id: object = None, *, as_selected: bool = False) -> Select[Any]:
        """Return the statement for *columns* of the row, or of the row with *public_id*.

        :param as_selected: return nothing if the row does not meet the conditions of the page's statement.
        """
        is_cursor = self._id == (self._parameter if public_id is None else public_id)
        if as_selected or self._is_joined:
            row: Any = self._selected.where(is_cursor).with_only_columns(*columns, maintain_column_froms=True)
            row = row.limit(1)  # a join repeats the row, with the same values each time
        else:
            row = select(*columns).select_from(self._entity).where(is_cursor)
            row = row if self._visible is None else row.where(self._visible)
        return cast("Select[Any]", row.correlate(None))

    def select_id(self, *, as_selected: bool) -> Select[Any]:
        """Return the statement for the public id of the row, as it is stored."""
        return self.select([self._id], as_selected=as_selected)

    def select_values(self, terms: Sequence[Term], *, as_selected: bool) -> Select[Any]:
        """Return the statement for the values of *terms* in the row, and then for each of them, 1 if it is NULL."""
        values = [term.value_of(term.element) for term in terms]
        are_null = (case((operand(value).is_(None), 1), else_=0) for value in values)
        return self.select([*values, *are_null], as_selected=as_selected)

    # --- subqueries

    def value(self, term: Term) -> ScalarSelect[Any]:
        """Return the value of *term* in the row: NULL if the row is hidden."""
        row = self.select([term.value_of(term.element)])
        subquery: ScalarSelect[Any] = (without_lock(row) if self._is_joined else row).scalar_subquery()
        return subquery

    def values(self, terms: Sequence[Term]) -> list[ScalarSelect[Any]]:
        """Return the :meth:`value` of each of *terms*."""
        return [self.value(term) for term in terms]

    def stored_value(self, term: Term) -> ScalarSelect[Any] | None:
        """Return the value of *term* in the row, even if the row is hidden; None if *term* is no column."""
        if term.attribute is None:
            return None
        mapper: Any = inspect(self._entity).mapper
        columns = (mapper.columns[name] for name in (term.attribute, self._name))
        column, id = map(mapper.selectable.corresponding_column, columns)
        query = select(term.value_of(column)).select_from(mapper.selectable).where(id == self._parameter)
        return query.correlate(None).scalar_subquery()

    @cached_property
    def _parameter(self) -> Any:
        return bindparam(CURSOR, type_=self._id.type.as_parameter)
