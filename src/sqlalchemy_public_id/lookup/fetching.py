"""Fetch the rows of a page, from one database or from several shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Integer, distinct, false, func, inspect, select
from sqlalchemy.orm import Session

from sqlalchemy_public_id._private import loader_criteria, may_change_statements, without_lock
from sqlalchemy_public_id.columns import public_id_type
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.lookup.beside import ambiguous
from sqlalchemy_public_id.lookup.keysets import LIMIT, Keyset
from sqlalchemy_public_id.lookup.ordering import Term, after
from sqlalchemy_public_id.lookup.selecting import is_grouped
from sqlalchemy_public_id.orm.inspection import public_id_attribute
from sqlalchemy_public_id.stored_ids import as_bits_format

LARGEST_LIMIT = 2**31 - 1
"""The LIMIT of a statement is an INTEGER on PostgreSQL."""


_NONE: Mapping[str, Any] = {}


class KeysetQuery:
    """The rows of *keyset*, fetched in *session*.

    :param cursor_options: the execution options of the statement that reads the row of a cursor.
    :param is_plain: True if the statement of the page has neither options nor a lock.
    :param checked: execution options of the statement that finds the row of the cursor, or of the first page.
    """

    def __init__(
        self,
        session: Session,
        keyset: Keyset,
        cursor_options: Mapping[str, Any],
        *,
        is_plain: bool = False,
        checked: Mapping[str, Any] = _NONE,
    ) -> None:
        self.session = session
        self.checked = checked
        self.keyset = keyset
        self.cursor_options = cursor_options
        self.is_plain = is_plain
        self.criteria: list[Any] | None = [] if is_plain else loader_criteria(keyset.selected)
        """Criteria of the page's own statement. They apply to its subqueries, but not to other statements."""

    def rows_after(
        self, public_id: object, limit: int, *, inclusive: bool = False, known: Any = None
    ) -> tuple[list[Any], int] | None:
        """Return the rows after the one with *public_id*, and the number of rows that the database sent.

        A row that a join repeats is sent several times, but returned once. Return ``None`` if no row has the id, or if
        it is hidden.

        :param inclusive: return the row with the id, too, if it is among the rows of the page's statement.
        :param known: the object with the id, if it is known to be visible.
        :raises AmbiguousPublicId: if several rows have the id.
        """
        keyset, is_known = self.keyset, known is not None
        if public_id is None:
            return self._fetch(keyset.first_rows, {LIMIT: limit}, self.checked)
        key: Sequence[Any] | None = ()
        if keyset.beside:
            key = inspect(known).identity if is_known else self._read_key(public_id)
        if key is None:
            return None
        self.parameters: dict[str, Any] = keyset.cursor_row.parameters(public_id, key)
        parameters = {LIMIT: limit, **self.parameters}
        # An expert's query has the row of the cursor as a subquery, in one statement. It cannot if a value may be NULL,
        # because then the condition has another form, nor if this row is read with options of its own.
        if keyset.may_be_null or self.cursor_options:
            place = self._read_values(public_id)
            if self.criteria is not None:
                if place is None:
                    return None
                return self._fetch(keyset.rows_after(place, or_equal=inclusive), parameters)
            # criteria of the statement may hide the row, so an unknown one takes as many statements as a hidden one
            is_visible = false() if place is None else keyset.cursor_row.value(keyset.terms[-1]).is_not(None)
            rest = keyset.first_rows if place is None else keyset.rows_after(place, or_equal=inclusive)
            rows, sent = self._fetch(rest.where(is_visible), parameters)
            is_certain = bool(rows) or is_known or self._read_id(public_id, rows) is not None
            return (rows, sent) if is_certain and place is not None else None
        # a listener that hides rows would leave out the rows of the page, but not the row of the cursor in the subquery
        if not is_known and may_change_statements(self.session, besides="sqlalchemy_public_id"):
            return self._rows_from_cursor(public_id, limit, inclusive=inclusive)
        rows, sent = self._fetch(keyset.rows_from_cursor if inclusive else keyset.rows_after_cursor, parameters)
        # the cursor is the last row, or a row that does not exist or is hidden
        return (rows, sent) if rows or is_known or self._read_id(public_id, rows) is not None else None

    def _rows_from_cursor(self, public_id: object, limit: int, *, inclusive: bool) -> tuple[list[Any], int] | None:
        """Return the rows after the one with *public_id*, which the statement selects as well.

        A listener may add a condition to this statement, but not to the subqueries in it. So the row of the cursor is
        visible if the statement has returned it first.
        """
        one_more = min(limit + 1, LARGEST_LIMIT)
        rows, sent = self._fetch(self.keyset.rows_from_cursor, {LIMIT: one_more, **self.parameters})
        is_first = bool(rows) and self.id_of(rows[0]) == public_id
        if not is_first:  # it is no longer among the rows, or a row that does not exist or is hidden
            stored = self._read_id(public_id, rows)
            if stored is None:
                return None
            is_first = bool(rows) and self.id_of(rows[0]) == stored
        if not is_first or inclusive:
            return rows[:limit], min(sent, limit)
        if len(rows) == 1 and sent > limit:  # repetitions of the row have used up the LIMIT
            return self.rows_after(public_id, limit, known=rows[0][0])
        return rows[1:], sent - 1

    def _fetch(
        self, statement: Any, parameters: dict[str, Any], options: Mapping[str, Any] = _NONE
    ) -> tuple[list[Any], int]:
        # if a join repeats rows, only the number that was sent tells whether LIMIT has cut some off
        sent = 0

        def count(row: Any) -> int:
            nonlocal sent
            sent += 1
            return id(row[0])

        rows = self.session.execute(statement, parameters, execution_options=options).unique(count).all()
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

    def count(self, up_to: int | None = None) -> int:
        """Return the number of rows of all pages, in all shards; *up_to* if there are as many or more."""
        selected, bind_arguments = self.keyset.selected, {"mapper": self.keyset.mapper}
        keys = [getattr(self.keyset.entity, name) for name in self.keyset.keys]
        if self.criteria is None:
            found = len(self.session.scalars(selected, bind_arguments=bind_arguments).unique().all())
        elif may_change_statements(self.session, besides="sqlalchemy_public_id"):
            # a listener finds the entity in a statement that selects from it, but not in a subquery
            rows: Any = selected if self.is_plain else without_lock(selected)
            if len(keys) == 1 and up_to is None and not is_grouped(selected):
                number: Any = rows.with_only_columns(func.count(distinct(*keys)), maintain_column_froms=True)
                found = sum(self.session.scalars(number, bind_arguments=bind_arguments))
            else:
                rows = rows.with_only_columns(*keys, maintain_column_froms=True).distinct().limit(up_to)
                found = len(self.session.execute(rows, bind_arguments=bind_arguments).all())
        else:
            rows = without_lock(selected.with_only_columns(*keys, maintain_column_froms=True)).distinct().limit(up_to)
            # with_loader_criteria() applies to a subquery only as an option of the outer statement
            query: Any = select(func.count()).select_from(rows.subquery()).options(*self.criteria)
            found = sum(self.session.scalars(query, bind_arguments=bind_arguments))
        return found if up_to is None else min(found, up_to)

    # --- the row of the cursor

    def _read_values(self, public_id: object) -> list[Any] | None:
        """Return the values of the terms in the row with *public_id*, ``None`` for NULL; ``None`` if there is no row.

        The values are subqueries, so that no type or driver rounds them on the way. Criteria that do not apply to the
        row of the cursor would hide it from a subquery of the entity, but not from one of its table. The database
        decides which values are NULL, because a type may return ``None`` for other values, too.
        """
        keyset = self.keyset
        as_selected = self.criteria is None and bool(self.cursor_options)
        query = keyset.cursor_row.select_nulls(keyset.terms, as_selected=as_selected)
        row = self._read_cursor_row(query, self.parameters).first()
        if row is None:
            return None
        value_of = keyset.cursor_row.stored_value if self.cursor_options else keyset.cursor_row.value
        return [None if is_null else value_of(term) for term, is_null in zip(keyset.terms, row, strict=True)]

    def _read_id(self, public_id: object, rows: list[Any]) -> Any:
        """Return the public id of the row of the cursor as it is stored; None if there is no row, or it is hidden.

        :param rows: the rows that the page's own statement has found after it. If there are some, criteria of this
            statement do not hide the row of the cursor.
        """
        as_selected = self.criteria is None and not rows
        query = self.keyset.cursor_row.select_id(as_selected=as_selected)
        row = self._read_cursor_row(query, self.parameters).first()
        return None if row is None else row[0]

    def _read_key(self, public_id: object) -> Sequence[Any] | None:
        """Return the key of the row with *public_id*, which is unique only with other columns; None if there is none.

        :raises AmbiguousPublicId: if several rows have the id.
        """
        keyset, as_selected = self.keyset, self.criteria is None
        query = keyset.cursor_row.select_keys(public_id, as_selected=as_selected).execution_options(**self.checked)
        keys = self._read_cursor_row(query, {}).all()
        if len(keys) > 1:
            raise ambiguous(keyset.mapper, keyset.name, [public_id])
        return keys[0] if keys else None

    def _read_cursor_row(self, query: Any, parameters: Mapping[str, Any]) -> Any:
        return self.session.execute(
            query.options(*(self.criteria or ())),
            parameters,
            execution_options=self.cursor_options,
            bind_arguments={"mapper": self.keyset.mapper},
        )


class ShardedKeysetQuery(KeysetQuery):
    """Fetch *keyset* from several databases: each sends its first rows, which are sorted here.

    Shards may have the same keys, so rows with equal keys are sorted by public id. Only integers and ids are sorted
    alike by all databases and by Python.
    """

    def __init__(
        self,
        session: Session,
        keyset: Keyset,
        cursor_options: Mapping[str, Any],
        *,
        is_plain: bool = False,
        checked: Mapping[str, Any] = _NONE,
    ) -> None:
        super().__init__(session, keyset, cursor_options, is_plain=is_plain, checked=checked)
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

    def rows_after(
        self, public_id: object, limit: int, *, inclusive: bool = False, known: Any = None
    ) -> tuple[list[Any], int] | None:
        statement = self.keyset.first_rows
        if public_id is not None:
            values = self._key_of(public_id)
            if values is None:
                return None
            terms = [*self.keyset.terms, Term(self.keyset.id, self.descending)]
            place = [*values, public_id]
            statement = statement.where(after(terms, place, self.keyset.nulls_are_largest, or_equal=inclusive))
        sent: Counter[Any] = Counter()
        last: dict[Any, Any] = {}

        def count(row: Any) -> int:
            shard = inspect(row[0]).identity_token
            sent[shard] += 1
            last[shard] = self._sort_key(row)
            return id(row[0])

        checked = self.checked if public_id is None else _NONE
        result = self.session.execute(statement, {LIMIT: limit}, execution_options=checked).unique(count)
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
        columns = [getattr(self.keyset.entity, key) for key in self.keyset.keys]
        query = self.keyset.cursor_row.select(columns, public_id, as_selected=self.criteria is None)
        if self.keyset.beside:
            key = self._read_key(public_id)
            return None if key is None else [*key, public_id][: len(columns)]
        row: Sequence[Any] | None = self._read_cursor_row(query, {}).first()
        return row
