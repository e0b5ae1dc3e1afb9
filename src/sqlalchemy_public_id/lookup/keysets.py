"""Build the statements of a page: rows in an order, after the row with a public id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, cast
from weakref import ref

from sqlalchemy import (
    Column,
    FromClause,
    Integer,
    ScalarSelect,
    Select,
    Table,
    bindparam,
    case,
    inspect,
    select,
)
from sqlalchemy.orm import ColumnProperty, Mapper, aliased

from sqlalchemy_public_id._private import without_lock
from sqlalchemy_public_id.dialects import Traits
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.lookup.ordering import Term, after, operand, tables_in
from sqlalchemy_public_id.references.columns import RefColumns, columns_of_refs
from sqlalchemy_public_id.references.reference import PublicRef
from sqlalchemy_public_id.weak import RefDict

CURSOR = "sqlalchemy_public_id_cursor"
LIMIT = "sqlalchemy_public_id_limit"
"""Parameters of the statements."""

_KEYSETS = "sqlalchemy_public_id.keysets"
"""Key in the ``info`` of a public id's property: the keysets of plain pages, whose statements are built once."""

_cursor_tables: RefDict[Mapper[Any], FromClause | None] = RefDict()
"""Cached aliases of tables. To copy a table's columns takes longer than to build the rest of a page's statement."""


def _cursor_table(mapper: Mapper[Any]) -> FromClause | None:
    """Return the cached alias of the table of *mapper*; ``None`` for an inherited or joined model."""
    key = ref(mapper)
    if key not in _cursor_tables:
        table: Any = mapper.selectable
        is_plain = mapper.inherits is None and isinstance(mapper.selectable, Table)
        _cursor_tables.keep(mapper, table.alias() if is_plain else None)
    return _cursor_tables[key]


class Keyset:
    """The rows of *selected*, which selects *entity*, in the order of *terms* and of the keys.

    Its statements select the columns of *references* beside each object, and have the parameters :data:`CURSOR` and
    :data:`LIMIT`.

    :param has_id_column: also select the public id *name* beside each object, which may not have loaded it.
    :param backwards: reverse the order.
    """

    def __init__(
        self,
        selected: Select[Any],
        entity: Any,
        name: str,
        terms: Sequence[Term],
        traits: Traits,
        *,
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
        self.nulls_are_largest: bool = traits.nulls_are_largest
        by_position = traits.sorts_enums_by_position
        ordered = [self._completed(term, by_position) for term in terms]
        ordered += [Term(getattr(entity, key), descending, may_be_null=False, attribute=key) for key in self.keys]
        self.terms: list[Term] = [term.reversed() for term in ordered] if backwards else ordered
        # The row of the cursor is selected from an alias of the table, because with_loader_criteria() and listeners may
        # add conditions to every entity. For an inherited or joined model, it is selected from an alias of the entity.
        self.cursor_table: FromClause | None = _cursor_table(mapper)

    # --- statements

    @cached_property
    def first_rows(self) -> Select[Any]:
        """The statement of the first page."""
        order = [part for term in self.terms for part in term.order_by(self.nulls_are_largest)]
        own = [self.id] if self.has_id_column else []
        rows = self.selected.add_columns(*own, *self.references.columns)
        return rows.order_by(*order).limit(bindparam(LIMIT, type_=Integer))

    @cached_property
    def rows_after_cursor(self) -> Select[Any]:
        """The statement of a page after the row of the cursor, if no term can be NULL there."""
        return self.rows_after([self.value(term) for term in self.terms])

    def rows_after(self, place: Sequence[Any]) -> Select[Any]:
        """Return the statement of a page after *place*, a value for each term."""
        return self.first_rows.where(after(self.terms, place, self.nulls_are_largest))

    def values_of_cursor(self, *terms: Term) -> Select[Any]:
        """Return the statement for the values of *terms* in the row of the cursor, and for each, 1 if it is NULL."""
        values = self._in_row_of_cursor(terms)
        return self._row_of_cursor(terms, *values, *(case((operand(value).is_(None), 1), else_=0) for value in values))

    def value(self, term: Term) -> ScalarSelect[Any]:
        """Return the value of *term* in the row of the cursor, as a subquery."""
        return self._row_of_cursor([term], *self._in_row_of_cursor([term])).scalar_subquery()

    def values_if_selected(self) -> list[ScalarSelect[Any]]:
        """Return a subquery for each term: its value in the row of the cursor, or NULL if the row is not selected."""
        # a join repeats the row, whose values are the same each time
        row = self.selected.where(self.id == self.cursor_id).correlate(None).limit(1)
        values = (term.value_of(term.element) for term in self.terms)
        selects = (row.with_only_columns(value, maintain_column_froms=True) for value in values)
        return [without_lock(each).scalar_subquery() for each in selects]

    @cached_property
    def cursor_id(self) -> Any:
        """The parameter for the public id of the cursor."""
        return bindparam(CURSOR, type_=self.id.type.as_parameter)

    @cached_property
    def cursor(self) -> Any:
        """An alias of the entity, for the row of the cursor."""
        return aliased(self.mapper.class_, flat=True)

    @property
    def may_be_null(self) -> bool:
        """True if the statement depends on which terms are NULL in the row of the cursor."""
        others = self.terms[: -len(self.keys)]
        return any(term.may_be_null for term in others)

    @property
    def cursor_is_entity(self) -> bool:
        """True if conditions that the application adds to entities can hide the row of the cursor."""
        return self.cursor_table is None or any(term.attribute is None for term in self.terms)

    def remember_references(self, rows: Sequence[Any]) -> None:
        """Keep the columns of the references of *rows*, which a statement has returned."""
        self.references.remember(rows, first=2 if self.has_id_column else 1)

    def _in_row_of_cursor(self, terms: Sequence[Term]) -> list[Any]:
        is_entity = any(term.attribute is None for term in terms)
        return [
            term.value_of(term.element if is_entity else self._cursor_column(cast("str", term.attribute)))
            for term in terms
        ]

    def _row_of_cursor(self, terms: Sequence[Term], *columns: Any) -> Select[Any]:
        query: Any = select(*columns)
        if any(term.attribute is None for term in terms):
            query = query.select_from(self.entity).where(self.id == self.cursor_id).correlate(None)
        else:
            query = query.where(self._cursor_column(self.name) == self.cursor_id)
        return cast("Select[Any]", query)

    def _cursor_column(self, attribute: str) -> Any:
        if self.cursor_table is None:
            return getattr(self.cursor, attribute)
        return self.cursor_table.c[self.mapper.columns[attribute].key]

    # --- terms

    def _completed(self, term: Term, by_position: bool) -> Term:
        name = self._attributes.get(term.element)
        if name is not None and not isinstance(self.mapper.columns[name], Column):
            name = None  # a column_property() of an expression
        others = [table for table in tables_in(term.element) if table not in self._tables]
        if others:
            raise ConfigurationError(
                f"order_by has a column of {others[0].name}, but a join can repeat a row at several places; sort by a "
                f"subquery, such as select(Person.name).where(Person.id == Ticket.owner_id).scalar_subquery()"
            )
        # a column of another table is NULL after an outer join
        may_be_null = name is None or bool(self.mapper.columns[name].nullable)
        return replace(term, attribute=name, may_be_null=may_be_null, by_position=by_position and term.is_enum)

    @cached_property
    def _attributes(self) -> dict[Any, str]:
        """Element of the entity, or of its alias → the name of its attribute."""
        return {getattr(self.entity, prop.key).__clause_element__(): prop.key for prop in self.mapper.column_attrs}

    @cached_property
    def _tables(self) -> set[Any]:
        """The tables of the entity, or its aliases of them."""
        return {*self.mapper.tables, *(table for element in self._attributes for table in tables_in(element))}


def plain_keyset(
    model: type[Any],
    name: str,
    traits: Traits,
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
            traits,
            references=references,
            has_id_column=cast("ColumnProperty[Any]", attribute).deferred,
            descending=descending,
            backwards=backwards,
        )
    return keyset
