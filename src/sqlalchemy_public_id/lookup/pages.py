"""Rows page by page, with public ids as cursors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar, cast, overload

from sqlalchemy import ColumnElement, FromClause, Integer, Select, Table, and_, inspect, or_, select
from sqlalchemy.orm import Mapper, Session, aliased
from typing_extensions import Required, TypedDict, Unpack

from sqlalchemy_public_id.errors import ConfigurationError, PublicIdNotFound, safe_repr
from sqlalchemy_public_id.orm.inspection import is_sharded, public_id_attribute, require_session
from sqlalchemy_public_id.types import as_bits_format, public_id_type

M = TypeVar("M")  # a model

_LARGEST_LIMIT = 2**31 - 2
"""The statement selects one row more, and its LIMIT is an INTEGER of PostgreSQL."""


class PageOptions(TypedDict, total=False):
    """The keyword arguments of :func:`page`."""

    limit: Required[int]
    after: object
    before: object
    newest_first: bool
    attribute: str | None


@dataclass(frozen=True)
class Page(Sequence[M], Generic[M]):
    """A sequence of consecutive rows."""

    items: tuple[M, ...]
    has_more: bool
    """True if there are more rows after these; before these, if the page was selected with ``before``."""
    next: str | None
    """The ``after`` of the page after this one; ``None`` if there is none."""
    previous: str | None
    """The ``before`` of the page before this one; ``None`` if there is none."""

    @overload
    def __getitem__(self, index: int) -> M: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[M, ...]: ...
    def __getitem__(self, index: int | slice) -> M | tuple[M, ...]:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)


@overload
def page(session: Session, rows: type[M], **options: Unpack[PageOptions]) -> Page[M]: ...
@overload
def page(session: Session, rows: Select[tuple[M]], **options: Unpack[PageOptions]) -> Page[M]: ...  # SQLAlchemy 2.0
@overload
def page(session: Session, rows: Select[M], **options: Unpack[PageOptions]) -> Page[M]: ...  # SQLAlchemy 2.1
def page(
    session: Session,
    rows: Any,
    *,
    limit: int,
    after: object = None,
    before: object = None,
    newest_first: bool = False,
    attribute: str | None = None,
) -> Page[Any]:
    """Return up to *limit* rows, in the order of their keys.

    >>> from sqlalchemy_public_id import lookup
    >>> first = lookup.page(session, User, limit=20)
    >>> second = lookup.page(session, User, limit=20, after=first[-1].public_id)
    >>> [user.name for user in first], first.has_more, list(second)
    (['Ada'], False, [])

    One statement. A second one follows if the first returns nothing, to tell the end from an unknown id, and if a join
    has repeated rows, to tell whether there are more.

    On a :class:`~sqlalchemy.ext.horizontal_shard.ShardedSession` the order is that of key and public id over all
    shards, so the keys have to be integers. The cursor is looked up first, in the shard that its id names or else in
    all of them; then each shard selects its part.

    :param rows: a model, or ``select(Model)`` with conditions, joins and options, but no order or limit of its own.
    :param limit: the largest number of rows, from 1 to 2 147 483 646.
    :param after: the public id of the row that these rows follow; ``None`` for the beginning. It is a position, and
        need not be among *rows*.
    :param before: the public id of the row that these rows precede.
    :param newest_first: sort by the key in descending order.
    :param attribute: the name of the public id, if a model has several; ``public_id`` by default.
    :raises PublicIdNotFound: if no row has the id *after* or *before*, because it is malformed or unknown, or its
        row was deleted; the error's ``field`` is the name of the argument.
    :raises ConfigurationError: if *rows* cannot be paged.
    """
    require_session(session)
    statement, entity = _selected(rows)
    mapper: Mapper[Any] = inspect(entity).mapper
    name, column = public_id_attribute(mapper.class_, attribute)
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= _LARGEST_LIMIT:
        raise ValueError(f"limit is {safe_repr(limit)}, expected a whole number from 1 to {_LARGEST_LIMIT}")
    if after is not None and before is not None:
        raise ValueError("after and before are both given; a page follows one row, or precedes one")
    backwards = before is not None
    cursor = before if backwards else after
    unknown = PublicIdNotFound(cursor, model=mapper.class_.__name__, field="before" if backwards else "after")
    if cursor is not None and not public_id_type(column).id_format.is_valid(cursor):
        raise unknown

    query_class = _ShardedKeysetQuery if is_sharded(session) else _KeysetQuery
    statement = statement.add_columns(getattr(entity, name))
    query = query_class(session, statement, entity, name, newest_first != backwards)
    selected, sent = query.fetch_after(cursor, limit + 1)
    if not selected and cursor is not None:
        key = query.key_of(cursor)
        if key is None:
            raise unknown
        if query.cursor_may_be_filtered:
            selected, sent = query.fetch_after(cursor, limit + 1, key)
    has_more = len(selected) > limit
    if not has_more and sent > limit:  # repeated rows have used up the LIMIT
        has_more = bool(query.fetch_after(selected[-1][1], 1)[0])

    del selected[limit:]
    if backwards:
        selected.reverse()
    has_next, has_previous = has_more, bool(selected) and cursor is not None
    if backwards:
        has_next, has_previous = bool(selected), has_more
    return Page(
        items=tuple(row for row, _ in selected),
        has_more=has_more,
        next=selected[-1][1] if has_next else None,
        previous=selected[0][1] if has_previous else None,
    )


def _selected(rows: Any) -> tuple[Select[Any], Any]:
    """Return *rows* as a statement, and the entity that it selects."""
    if not isinstance(rows, Select):
        public_id_attribute(rows)
        return select(rows), rows
    statement = cast("Select[Any]", rows)
    columns = statement.column_descriptions
    entity = columns[0].get("entity") if len(columns) == 1 else None
    if entity is None or columns[0]["expr"] is not entity:
        names = ", ".join(str(column["name"]) for column in columns)
        raise ConfigurationError(f"a page is of one model, select(Model), but this statement selects {names}")
    if not statement.compare(statement.order_by(None).limit(None).offset(None)):
        raise ConfigurationError(
            "the statement of a page has an ORDER BY, LIMIT or OFFSET; leave it out: a page is in the order of the "
            "keys, descending with newest_first=True, and has a limit of its own"
        )
    return statement, entity


class _KeysetQuery:
    """The rows of *statement*, which selects *entity* and its public id, in the order of the keys."""

    def __init__(self, session: Session, statement: Select[Any], entity: Any, name: str, descending: bool) -> None:
        mapper: Mapper[Any] = inspect(entity).mapper
        self.session = session
        self.mapper = mapper
        self.descending = descending
        self.name = name
        self.keys = [mapper.get_property_by_column(column).key for column in mapper.primary_key]
        self.columns = [getattr(entity, key) for key in self.keys]
        # The row of the cursor has an alias of its own: of the table, since with_loader_criteria() and listeners of the
        # session may add conditions to every entity. Of an inherited or joined model it is an alias of the entity.
        table = mapper.selectable
        is_plain = mapper.inherits is None and isinstance(table, Table)
        self.cursor_table: FromClause | None = table.alias() if is_plain else None
        self.cursor_may_be_filtered = not is_plain
        """True if a condition that is added to entities may have hidden the row of the cursor."""
        order = (column.desc() if descending else column.asc() for column in self.columns)
        self.statement = statement.order_by(*order)

    @cached_property
    def cursor(self) -> Any:
        """An alias of the entity, for the row of the cursor."""
        return aliased(self.mapper.class_, flat=True)

    def fetch_after(self, public_id: object, limit: int, key: Sequence[Any] | None = None) -> tuple[list[Any], int]:
        """Return rows after that of *public_id*, each with its public id, and the number of rows that were sent.

        Repeated rows are sent several times, and returned once. The statement selects the *key* itself by default.
        """
        sent = 0

        def count(row: Any) -> int:
            nonlocal sent
            sent += 1
            return id(row[0])

        statement = self.statement.limit(limit)
        if public_id is not None:
            values = key or [self._cursor_value(public_id, name).scalar_subquery() for name in self.keys]
            statement = statement.where(self._is_after(values))
        rows = self.session.execute(statement).unique(count).all()
        return list(rows), sent

    def key_of(self, public_id: object) -> Sequence[Any] | None:
        """Return the key of the row with *public_id*, or ``None``."""
        query = self._cursor_value(public_id, *self.keys)
        return self.session.execute(query, bind_arguments={"mapper": self.mapper}).first()

    def _cursor_value(self, public_id: object, *attributes: str) -> Select[Any]:
        columns: list[ColumnElement[Any]] = [self._cursor_column(attribute) for attribute in attributes]
        query: Select[Any] = select(*columns)
        return query.where(self._cursor_column(self.name) == public_id)

    def _cursor_column(self, attribute: str) -> Any:
        if self.cursor_table is None:
            return getattr(self.cursor, attribute)
        return self.cursor_table.c[self.mapper.columns[attribute].key]

    def _is_after(self, values: Sequence[Any], *more: tuple[Any, Any]) -> ColumnElement[bool]:
        """Compare the key with *values*, column by column, and then the first of each pair of *more* with the second.

        ``(a, b) > (1, 2)`` would not use the index on every database.
        """
        pairs = [*zip(self.columns, values, strict=True), *more]
        alternatives: list[ColumnElement[bool]] = []
        for at, (column, value) in enumerate(pairs):
            equal = [before == other for before, other in pairs[:at]]
            alternatives.append(and_(*equal, column < value if self.descending else column > value))
        return or_(*alternatives)


class _ShardedKeysetQuery(_KeysetQuery):
    """The same over several databases: each sends its first rows, which are sorted here.

    Shards may have the same keys, so the public id decides between them. All databases and Python agree only on the
    order of integers and ids.
    """

    def __init__(self, session: Session, statement: Select[Any], entity: Any, name: str, descending: bool) -> None:
        super().__init__(session, statement, entity, name, descending)
        self.cursor_may_be_filtered = False
        self.id = getattr(entity, name)
        self.format = public_id_type(public_id_attribute(self.mapper.class_, name)[1]).id_format
        if not all(isinstance(column.type, Integer) for column in self.columns):
            raise ConfigurationError(
                f"the key of {self.mapper.class_.__name__} is no integer, and databases do not agree on the "
                f"order of other keys; a page of several shards needs an integer key"
            )
        self._cursor_keys: dict[object, Sequence[Any] | None] = {}

    def fetch_after(self, public_id: object, limit: int, key: Sequence[Any] | None = None) -> tuple[list[Any], int]:
        statement = self.statement.limit(limit)
        if public_id is not None:
            values = key or self.key_of(public_id)
            if values is None:
                return [], 0
            statement = statement.where(self._is_after(values, (self.id, public_id)))
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

    def _sort_key(self, row: Any) -> tuple[Any, ...]:
        """Return the key of the row, and its public id as the databases sort it."""
        public_id = as_bits_format(self.format).to_int(row[1]) if self.format.is_native else str(row[1])
        return (*inspect(row[0]).identity, public_id)

    def key_of(self, public_id: object) -> Sequence[Any] | None:
        """Return the key of the row with *public_id*, which may be in any shard."""
        if public_id not in self._cursor_keys:
            columns = [getattr(self.cursor, key) for key in self.keys]
            query = select(*columns).where(getattr(self.cursor, self.name) == public_id)
            self._cursor_keys[public_id] = self.session.execute(query).first()
        return self._cursor_keys[public_id]
