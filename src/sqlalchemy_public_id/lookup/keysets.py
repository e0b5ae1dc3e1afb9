"""The statements of a page: rows after that of a public id, in an order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, cast
from weakref import ref

from sqlalchemy import (
    Column,
    FromClause,
    Integer,
    Select,
    SQLColumnExpression,
    Table,
    func,
    inspect,
    select,
)
from sqlalchemy.orm import Mapper, Session, aliased

from sqlalchemy_public_id._compat import loader_criteria, without_lock
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.lookup.ordering import Term, after, tables_in
from sqlalchemy_public_id.orm.inspection import public_id_attribute
from sqlalchemy_public_id.types import as_bits_format, public_id_type
from sqlalchemy_public_id.weak import RefDict

_cursor_tables: RefDict[Mapper[Any], FromClause | None] = RefDict()
"""Aliases of tables: copying the columns of one takes longer than all else that a page needs before it is executed."""


def _cursor_table(mapper: Mapper[Any]) -> FromClause | None:
    """Return an alias of the table of *mapper*, the same on each call; ``None`` for an inherited or joined model."""
    key = ref(mapper)
    if key not in _cursor_tables:
        table: Any = mapper.selectable
        is_plain = mapper.inherits is None and isinstance(mapper.selectable, Table)
        _cursor_tables.keep(mapper, table.alias() if is_plain else None)
    return _cursor_tables[key]


class KeysetQuery:
    """The rows of *statement*, which selects *entity* and its public id, in the order of *terms* and of the keys.

    :param visible: the condition that the row of a cursor has to meet, or None.
    :param backwards: in the opposite order.
    """

    def __init__(
        self,
        session: Session,
        statement: Select[Any],
        entity: Any,
        name: str,
        terms: Sequence[Term],
        *,
        visible: SQLColumnExpression[bool] | None,
        descending: bool,
        backwards: bool,
    ) -> None:
        mapper: Mapper[Any] = inspect(entity).mapper
        self.session: Session = session
        self.entity: Any = entity
        self.mapper: Mapper[Any] = mapper
        self.name: str = name
        self.visible = visible
        self.keys: list[str] = [mapper.get_property_by_column(column).key for column in mapper.primary_key]
        traits = traits_for(session.get_bind(mapper).dialect)
        self.nulls_are_largest: bool = traits.nulls_are_largest
        by_position = traits.sorts_enums_by_position
        ordered = [self._completed(term, by_position) for term in terms]
        ordered += [Term(getattr(entity, key), descending, may_be_null=False, attribute=key) for key in self.keys]
        self.terms: list[Term] = [term.reversed() for term in ordered] if backwards else ordered
        # The row of the cursor has an alias of its own: of the table, since with_loader_criteria() and listeners of the
        # session may add conditions to every entity. Of an inherited or joined model it is an alias of the entity.
        self.cursor_table: FromClause | None = _cursor_table(mapper)
        self.selected = statement
        order = [part for term in self.terms for part in term.order_by(self.nulls_are_largest)]
        self.statement: Select[Any] = statement.add_columns(getattr(entity, name)).order_by(*order)

    @cached_property
    def cursor(self) -> Any:
        """An alias of the entity, for the row of the cursor."""
        return aliased(self.mapper.class_, flat=True)

    # --- the rows of a page

    def rows_after(self, public_id: object, limit: int, *, is_known: bool = False) -> tuple[list[Any], int] | None:
        """Return rows after that of *public_id*, each with its public id, and the number of rows that were sent.

        Repeated rows are sent several times, and returned once. Return ``None`` if no row has the id; a row that
        *is_known* exists.
        """
        if public_id is None:
            return self._fetch(None, limit)
        # first, so that a row which may not be seen is like none in the number of statements, too
        if not is_known and not self._is_visible(public_id):
            return None
        if self._may_be_null:
            place = self._place(public_id)
            return None if place is None else self._fetch(place, limit)
        rows, sent = self._fetch([self._value(public_id, term) for term in self.terms], limit)
        if (
            not rows and not is_known
        ):  # the last row, or an unknown id, or a condition that the application adds has hidden the row
            place = self._place(public_id)
            if place is None:
                return None
            if self.cursor_table is None:
                return self._fetch(place, limit)
        return rows, sent

    def _fetch(self, place: Sequence[Any] | None, limit: int) -> tuple[list[Any], int]:
        sent = 0

        def count(row: Any) -> int:
            nonlocal sent
            sent += 1
            return id(row[0])

        statement = self.statement.limit(limit)
        if place is not None:
            statement = statement.where(after(self.terms, place, self.nulls_are_largest))
        rows = self.session.execute(statement).unique(count).all()
        return list(rows), sent

    def count(self) -> int:
        """Return the number of rows of all pages."""
        keys = [getattr(self.entity, name) for name in self.keys]
        total: int = self._count_of(keys).scalar_one()
        return total

    def _count_of(self, keys: list[Any]) -> Any:
        rows = self.selected.with_only_columns(*keys, maintain_column_froms=True).distinct()
        # with_loader_criteria() of the statement holds for a subquery as an option of the outer one
        query = select(func.count()).select_from(without_lock(rows).subquery())
        query = query.options(*loader_criteria(self.selected))
        return self.session.execute(query, bind_arguments={"mapper": self.mapper})

    # --- the row of the cursor

    @property
    def _may_be_null(self) -> bool:
        """True if the statement depends on where the row of the cursor has NULL."""
        others = self.terms[: -len(self.keys)]
        return any(term.may_be_null for term in others)

    def _place(self, public_id: object) -> list[Any] | None:
        """Return the values of the terms in the row with *public_id*; ``None`` if there is none.

        They are subqueries, so that no type or driver rounds a value on the way. Those of an alias of the entity can
        be hidden, as above, and are replaced by what was read.
        """
        query = self._of_cursor(public_id, *self.terms)
        row = self.session.execute(query, bind_arguments={"mapper": self.mapper}).first()
        if row is None:
            return None
        return [
            stored if stored is None or self.cursor_table is None else self._value(public_id, term)
            for term, stored in zip(self.terms, row, strict=True)
        ]

    def _is_visible(self, public_id: object) -> bool:
        if self.visible is None:
            return True
        id = getattr(self.entity, self.name)
        return self.session.execute(select(id).where(id == public_id, self.visible)).first() is not None

    def _value(self, public_id: object, term: Term) -> Any:
        return self._of_cursor(public_id, term).scalar_subquery()

    def _of_cursor(self, public_id: object, *terms: Term) -> Any:
        """Return the query of the values of *terms* in the row with *public_id*."""
        attributes = [term.attribute for term in terms]
        if None not in attributes:
            own = [self._cursor_column(cast("str", attribute)) for attribute in attributes]
            query: Any = select(*(term.value_of(column) for term, column in zip(terms, own, strict=True)))
            return query.where(self._cursor_column(self.name) == public_id)
        query = select(*(term.value_of(term.expression) for term in terms)).select_from(self.entity)
        return query.where(getattr(self.entity, self.name) == public_id).correlate(None)

    def _completed(self, term: Term, by_position: bool) -> Term:
        name = self._attributes.get(term.element)
        if name is not None and not isinstance(self.mapper.columns[name], Column):
            name = None  # a column_property() of an expression
        others = [table for table in tables_in(term.element) if table not in self._tables]
        if others:
            raise ConfigurationError(
                f"order_by has a column of {others[0].name}, and a join may repeat rows, at several places; sort by a "
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

    def _cursor_column(self, attribute: str) -> Any:
        if self.cursor_table is None:
            return getattr(self.cursor, attribute)
        return self.cursor_table.c[self.mapper.columns[attribute].key]


class ShardedKeysetQuery(KeysetQuery):
    """The same over several databases: each sends its first rows, which are sorted here.

    Shards may have the same keys, so the public id decides between them. All databases and Python agree only on the
    order of integers and ids.
    """

    def __init__(self, session: Session, statement: Select[Any], entity: Any, name: str, **options: Any) -> None:
        super().__init__(session, statement, entity, name, **options)
        self.id: Any = getattr(entity, name)
        self.format: Format = public_id_type(public_id_attribute(self.mapper.class_, name)[1]).id_format
        if len(self.terms) > len(self.keys):
            raise ConfigurationError(
                "order_by is not supported for several shards: their databases need not agree on the order of values"
            )
        if not all(isinstance(term.expression.type, Integer) for term in self.terms):
            raise ConfigurationError(
                f"the key of {self.mapper.class_.__name__} is no integer, and databases do not agree on the "
                f"order of other keys; a page of several shards needs an integer key"
            )
        self.descending: bool = self.terms[0].descending

    def rows_after(self, public_id: object, limit: int, *, is_known: bool = False) -> tuple[list[Any], int] | None:
        statement = self.statement.limit(limit)
        if public_id is not None:
            values = self._key_of(public_id)
            if values is None:
                return None
            terms = [*self.terms, Term(self.id, self.descending)]
            statement = statement.where(after(terms, [*values, public_id], self.nulls_are_largest))
        sent: Counter[Any] = Counter()
        last: dict[Any, Any] = {}

        def count(row: Any) -> int:
            shard = inspect(row[0]).identity_token
            sent[shard] += 1
            last[shard] = self._sort_key(row)
            return id(row[0])

        rows = sorted(self.session.execute(statement).unique(count).all(), key=self._sort_key, reverse=self.descending)
        # A shard that has sent as many rows as it may can have more after its last one. So rows are complete only up to
        # the nearest last row of such a shard.
        ends = [last[shard] for shard, count_sent in sent.items() if count_sent >= limit]
        complete = rows
        if ends:
            end = max(ends) if self.descending else min(ends)
            complete = [
                row for row in rows if (self._sort_key(row) >= end if self.descending else self._sort_key(row) <= end)
            ]
        if len(complete) < min(limit, len(rows)):
            return complete, limit  # the next page selects the rest
        return complete[:limit], limit if ends else len(complete)

    def count(self) -> int:
        return sum(self._count_of([term.expression for term in self.terms]).scalars())

    def _sort_key(self, row: Any) -> tuple[Any, ...]:
        """Return the key of the row, and its public id as the databases sort it."""
        public_id = as_bits_format(self.format).to_int(row[1]) if self.format.is_native else str(row[1])
        return (*inspect(row[0]).identity, public_id)

    def _key_of(self, public_id: object) -> Sequence[Any] | None:
        """Return the key of the row with *public_id*, which may be in any shard."""
        columns = [getattr(self.cursor, key) for key in self.keys]
        query = select(*columns).where(getattr(self.cursor, self.name) == public_id)
        return self.session.execute(query).first() if self._is_visible(public_id) else None
