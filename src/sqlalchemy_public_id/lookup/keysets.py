"""Build the statements of a page: rows in an order, after the row with a public id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

from sqlalchemy import (
    JSON,
    Column,
    ColumnElement,
    Dialect,
    Integer,
    Select,
    SQLColumnExpression,
    bindparam,
    inspect,
    select,
)
from sqlalchemy.orm import ColumnProperty, Mapper
from sqlalchemy.types import NullType

from sqlalchemy_public_id.dialects import Traits, traits_for
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.lookup.beside import columns_beside
from sqlalchemy_public_id.lookup.cursor_row import CursorRow
from sqlalchemy_public_id.lookup.ordering import Term, after, has_row_of, tables_in
from sqlalchemy_public_id.references.columns import RefColumns, columns_of_refs
from sqlalchemy_public_id.references.reference import PublicRef

LIMIT = "sqlalchemy_public_id_limit"
"""A parameter of the statements."""

_KEYSETS = "sqlalchemy_public_id.keysets"
"""Key in the ``info`` of a public id's property: the keysets of plain pages, whose statements are built once."""


class Keyset:
    """The rows of *selected*, which selects *entity*, in the order of *terms* and of the keys.

    Its statements select the columns of *references* beside each object, and have the parameters ``CURSOR`` and
    :data:`LIMIT`.

    :param visible: the condition that the row of a cursor has to meet, or None; it is among those of *selected*.
    :param has_id_column: also select the public id *name* beside each object, which may not have loaded it.
    :param backwards: reverse the order.
    """

    def __init__(
        self,
        selected: Select[Any],
        entity: Any,
        name: str,
        terms: Sequence[Term],
        dialect: Dialect,
        *,
        visible: SQLColumnExpression[bool] | None = None,
        references: tuple[PublicRef, ...],
        has_id_column: bool = True,
        descending: bool,
        backwards: bool,
    ) -> None:
        mapper: Mapper[Any] = inspect(entity).mapper
        self.selected = selected
        self.entity: Any = entity
        self.mapper: Mapper[Any] = mapper
        self.name: str = name
        self.id: Any = getattr(entity, name)
        self.keys: list[str] = [mapper.get_property_by_column(column).key for column in mapper.primary_key]
        if any(each.concrete for each in mapper.self_and_descendants if each is not mapper):
            self.keys.append(name)  # concrete tables number their rows separately, so keys repeat
        self.has_id_column = has_id_column
        self.references: RefColumns = columns_of_refs(references, entity)
        traits = traits_for(dialect)
        self.nulls_are_largest: bool = traits.nulls_are_largest
        ordered = [self._completed(term, traits, dialect) for term in terms]
        ordered += [Term(getattr(entity, key), descending, may_be_null=False, attribute=key) for key in self.keys]
        self.terms: list[Term] = [term.reversed() for term in ordered] if backwards else ordered
        self.beside: tuple[Column[Any], ...] = columns_beside(mapper, name)
        """The columns with which the public id is unique; none if it is unique alone."""
        self.cursor_row: CursorRow = CursorRow(
            selected,
            entity,
            name,
            visible=visible,
            is_joined=visible is not None and self._is_joined(visible),
            has_key=bool(self.beside),
        )

    # --- statements

    @cached_property
    def first_rows(self) -> Select[Any]:
        """The statement of the first page."""
        return self.rows.order_by(*self.order).limit(bindparam(LIMIT, type_=Integer))

    @cached_property
    def rows(self) -> Select[Any]:
        """The statement of all rows, in any order: an object, its public id, and the columns of its references."""
        own = [self.id] if self.has_id_column else []
        return self.selected.add_columns(*own, *self.references.columns)

    @cached_property
    def order(self) -> list[ColumnElement[Any]]:
        """The ORDER BY of the rows."""
        return [part for term in self.terms for part in term.order_by(self.nulls_are_largest)]

    @cached_property
    def rows_after_cursor(self) -> Select[Any]:
        """The statement of a page after the row of the cursor, if no term can be NULL there."""
        return self.rows_after(self.cursor_row.values(self.terms))

    @cached_property
    def rows_from_cursor(self) -> Select[Any]:
        """The statement of a page that begins with the row of the cursor, if no term can be NULL there."""
        return self.rows_after(self.cursor_row.values(self.terms), or_equal=True)

    def rows_after(self, place: Sequence[Any], *, or_equal: bool = False) -> Select[Any]:
        """Return the statement of a page after *place*, a value for each term; with *or_equal*, also of rows there."""
        return self.first_rows.where(after(self.terms, place, self.nulls_are_largest, or_equal=or_equal))

    # --- terms

    @property
    def may_be_null(self) -> bool:
        """True if the statement depends on which terms are NULL in the row of the cursor."""
        others = self.terms[: -len(self.keys)]
        return any(term.may_be_null for term in others)

    def remember_references(self, rows: Sequence[Any]) -> None:
        """Keep the columns of the references of *rows*, which a statement has returned."""
        self.references.remember(rows, first=2 if self.has_id_column else 1)

    def _completed(self, term: Term, traits: Traits, dialect: Dialect) -> Term:
        name = self._attributes.get(term.element)
        if name is not None and not isinstance(self.mapper.columns[name], Column):
            name = None  # a column_property() of an expression
        others = self.other_tables(term.element)
        if others:
            raise ConfigurationError(
                f"order_by has a column of {others[0].name}, but a join can repeat a row at several places; sort by a "
                f"subquery, such as select(Person.name).where(Person.id == Ticket.owner_id).scalar_subquery()"
            )
        type_ = term.type_on(dialect)
        if isinstance(type_, JSON) and not traits.sorts_json(dialect):
            raise ConfigurationError(
                f"order_by has JSON, and {dialect.name} sorts its arrays and objects in no order; sort by a text or a "
                f'number in it, such as Ticket.data["rank"].as_integer()'
            )
        column = None if name is None else self.mapper.columns[name]
        is_enum = traits.sorts_enums_by_position and term.is_enum(dialect)
        if isinstance(type_, NullType) and any(traits.sorted_length(each, dialect) for each in term.types_in(dialect)):
            raise ConfigurationError(
                f"order_by has an expression of a long text whose type is unknown, and {dialect.name} sorts only the "
                f"beginning of a text; name the type, as in func.lower(Ticket.body, type_=String)"
            )
        source = inspect(self.entity).selectable
        return replace(
            term,
            attribute=name,
            may_be_null=column is None or bool(column.nullable) or not has_row_of(source, column.table),
            by_position=is_enum,
            is_rounded=name is None and traits.rounds_values_of_subqueries(dialect) and term.is_decimal,
            cut_at=None if is_enum else traits.sorted_length(type_, dialect),
        )

    def _is_joined(self, visible: Any) -> bool:
        """Return True if a condition names a table that only the page's own statement joins."""
        return bool(self.other_tables(visible))

    def other_tables(self, condition: Any) -> list[Any]:
        """Return the tables that *condition* names beside those of the entity."""
        element = condition.__clause_element__() if hasattr(condition, "__clause_element__") else condition
        return [table for table in tables_in(element) if table not in self._tables]

    @cached_property
    def _attributes(self) -> dict[Any, str]:
        """Element of the entity, or of its alias → the name of its attribute."""
        # a concrete base has a column of its own for the kind of a row, and no attribute for it
        attributes = {prop.key: getattr(self.entity, prop.key, None) for prop in self.mapper.column_attrs}
        return {each.__clause_element__(): key for key, each in attributes.items() if each is not None}

    @cached_property
    def _tables(self) -> set[Any]:
        """The tables of the entity, or its aliases of them."""
        return {*self.mapper.tables, *(table for element in self._attributes for table in tables_in(element))}


def plain_keyset(
    model: type[Any],
    name: str,
    dialect: Dialect,
    *,
    references: tuple[PublicRef, ...],
    descending: bool,
    backwards: bool,
) -> Keyset:
    """Return the keyset of all rows of *model*, in the order of its keys. It is cached."""
    attribute = cast("Mapper[Any]", inspect(model)).attrs[name]
    keysets = attribute.info.setdefault(_KEYSETS, {})
    key = model, tuple(ref.attribute for ref in references), descending, backwards
    keyset: Keyset | None = keysets.get(key)
    if keyset is None:
        keyset = keysets[key] = Keyset(
            select(model),
            model,
            name,
            (),
            dialect,
            references=references,
            has_id_column=cast("ColumnProperty[Any]", attribute).deferred,
            descending=descending,
            backwards=backwards,
        )
    return keyset
