"""Fetch the rows of a page, from one database or from several shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Integer, SQLColumnExpression, func, inspect, select
from sqlalchemy.orm import Session

from sqlalchemy_public_id._private import loader_criteria, without_lock
from sqlalchemy_public_id.columns import public_id_type
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.lookup.keysets import CURSOR, LIMIT, Keyset
from sqlalchemy_public_id.lookup.ordering import Term, after
from sqlalchemy_public_id.orm.inspection import public_id_attribute
from sqlalchemy_public_id.types import as_bits_format


class KeysetQuery:
    """The rows of *keyset*, fetched in *session*.

    :param visible: the condition that the row of a cursor has to meet, or None.
    """

    def __init__(self, session: Session, keyset: Keyset, visible: SQLColumnExpression[bool] | None) -> None:
        self.session = session
        self.keyset = keyset
        self.visible = visible

    def rows_after(self, public_id: object, limit: int, *, is_known: bool = False) -> tuple[list[Any], int] | None:
        """Return the rows after the one with *public_id*, and the number of rows that the database sent.

        A row that a join repeats is sent several times, but returned once. Return ``None`` if no row has the id;
        with *is_known*, do not check this.
        """
        keyset = self.keyset
        if public_id is None:
            return self._fetch(keyset.first_rows, {LIMIT: limit})
        parameters = {LIMIT: limit, CURSOR: public_id}
        if self.visible is not None and not is_known:
            if not keyset.may_be_null:
                rows, sent = self._fetch(keyset.rows_after(keyset.values_if_selected()), parameters)
                if rows:
                    return rows, sent
            # before anything else, so that a hidden row takes as many statements as a missing one
            if not self._is_visible(public_id):
                return None
        if keyset.may_be_null:
            place = self._place(public_id)
            return None if place is None else self._fetch(keyset.rows_after(place), parameters)
        rows, sent = self._fetch(keyset.rows_after_cursor, parameters)
        if (
            not rows and not is_known
        ):  # the cursor is the last row, an unknown id, or a row that a condition of the application hides
            place = self._place(public_id)
            if place is None:
                return None
            if keyset.cursor_table is None:
                return self._fetch(keyset.rows_after(place), parameters)
        return rows, sent

    def _fetch(self, statement: Any, parameters: dict[str, Any]) -> tuple[list[Any], int]:
        sent = 0

        def count(row: Any) -> int:
            nonlocal sent
            sent += 1
            return id(row[0])

        rows = self.session.execute(statement, parameters).unique(count).all()
        return list(rows), sent

    def id_of(self, row: Any) -> Any:
        """Return the public id of a row of :meth:`rows_after`."""
        if self.keyset.has_id_column:
            return row[1]
        values, name = inspect(row[0]).dict, self.keyset.name
        if name in values:
            return values[name]
        # a listener of the session has added an option that defers the public id
        keys = zip(self.keyset.terms, inspect(row[0]).identity, strict=True)
        return self.session.scalar(select(self.keyset.id).where(*(term.expression == key for term, key in keys)))

    def count(self) -> int:
        """Return the number of rows of all pages, in all shards."""
        selected, bind_arguments = self.keyset.selected, {"mapper": self.keyset.mapper}
        criteria = loader_criteria(selected)
        if criteria is None:
            return len(self.session.scalars(selected, bind_arguments=bind_arguments).unique().all())
        keys = [getattr(self.keyset.entity, name) for name in self.keyset.keys]
        rows = without_lock(selected.with_only_columns(*keys, maintain_column_froms=True)).distinct()
        # with_loader_criteria() applies to a subquery only as an option of the outer statement
        query: Any = select(func.count()).select_from(rows.subquery()).options(*criteria)
        return sum(self.session.scalars(query, bind_arguments=bind_arguments))

    # --- the row of the cursor

    def _place(self, public_id: object) -> list[Any] | None:
        """Return the values of the terms in the row with *public_id*, ``None`` for NULL; ``None`` if there is no row.

        The values are subqueries, so that no type or driver rounds them on the way. If they select from an alias of the
        entity, conditions may hide its row, so they are replaced by the values that were read. The database decides
        which values are NULL, because a type may return ``None`` for other values, too.
        """
        keyset = self.keyset
        query = keyset.values_of_cursor(*keyset.terms)
        parameters, bind_arguments = {CURSOR: public_id}, {"mapper": keyset.mapper}
        row = self.session.execute(query, parameters, bind_arguments=bind_arguments).first()
        is_hidden = row is None and keyset.cursor_is_entity
        if is_hidden:
            row = self._execute_without_criteria(query, parameters).first()
        if row is None:
            return None
        is_read = is_hidden or keyset.cursor_table is None
        count = len(keyset.terms)
        return [
            None if is_null else stored if is_read and stored is not None else keyset.value(term)
            for term, stored, is_null in zip(keyset.terms, row[:count], row[count:], strict=True)
        ]

    def _is_visible(self, public_id: object) -> bool:
        if self.visible is None:
            return True
        id = self.keyset.id
        query = select(id).where(id == public_id, self.visible)
        return self._execute_without_criteria(query, {}).first() is not None

    def _execute_without_criteria(self, query: Any, parameters: dict[str, Any]) -> Any:
        """Execute *query* without conditions that the application adds to its session, which may hide the row."""
        if self.session.autoflush:
            self.session.flush()
        bind_arguments: dict[str, Any] = {"mapper": self.keyset.mapper, "clause": query}
        return self.session.connection(bind_arguments=bind_arguments).execute(query, parameters)


class ShardedKeysetQuery(KeysetQuery):
    """Fetch *keyset* from several databases: each sends its first rows, which are sorted here.

    Shards may have the same keys, so rows with equal keys are sorted by public id. Only integers and ids are sorted
    alike by all databases and by Python.
    """

    def __init__(self, session: Session, keyset: Keyset, visible: SQLColumnExpression[bool] | None) -> None:
        super().__init__(session, keyset, visible)
        self.format: Format = public_id_type(public_id_attribute(keyset.mapper.class_, keyset.name)[1]).id_format
        if len(keyset.terms) > len(keyset.keys):
            raise ConfigurationError(
                "order_by is not supported for several shards, because their databases may sort values differently; "
                "leave it out"
            )
        if not all(isinstance(term.expression.type, Integer) for term in keyset.terms):
            raise ConfigurationError(
                f"the key of {keyset.mapper.class_.__name__} is not an integer, and the databases of several shards "
                f"may sort other keys differently; a page of several shards needs an integer key"
            )
        self.descending: bool = keyset.terms[0].descending

    def rows_after(self, public_id: object, limit: int, *, is_known: bool = False) -> tuple[list[Any], int] | None:
        statement = self.keyset.first_rows
        if public_id is not None:
            values = self._key_of(public_id)
            if values is None:
                return None
            terms = [*self.keyset.terms, Term(self.keyset.id, self.descending)]
            statement = statement.where(after(terms, [*values, public_id], self.keyset.nulls_are_largest))
        sent: Counter[Any] = Counter()
        last: dict[Any, Any] = {}

        def count(row: Any) -> int:
            shard = inspect(row[0]).identity_token
            sent[shard] += 1
            last[shard] = self._sort_key(row)
            return id(row[0])

        result = self.session.execute(statement, {LIMIT: limit}).unique(count)
        rows = sorted(result.all(), key=self._sort_key, reverse=self.descending)
        # A shard that has sent *limit* rows may have more after its last one. So the rows are complete only up to the
        # nearest of these last rows.
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

    def _sort_key(self, row: Any) -> tuple[Any, ...]:
        """Return the key of the row, and its public id as the databases sort it."""
        public_id = as_bits_format(self.format).to_int(row[1]) if self.format.is_native else str(row[1])
        return (*inspect(row[0]).identity, public_id)

    def _key_of(self, public_id: object) -> Sequence[Any] | None:
        """Return the key of the row with *public_id*, which may be in any shard.

        The id is a value of the statement, not a parameter, so that the application's shard chooser can look at it.
        """
        cursor = self.keyset.cursor
        columns = [getattr(cursor, key) for key in self.keyset.keys]
        query = select(*columns).where(getattr(cursor, self.keyset.name) == public_id)
        return self.session.execute(query).first() if self._is_visible(public_id) else None

    def _execute_without_criteria(self, query: Any, parameters: dict[str, Any]) -> Any:
        return self.session.execute(query, parameters)  # only the session can send it to several databases
