"""Rows page by page, with public ids as cursors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast, overload

from sqlalchemy import ColumnElement, FromClause, Integer, Select, Table, and_, inspect, or_, select
from sqlalchemy.orm import Mapper, Session, aliased
from typing_extensions import Required, TypedDict, Unpack

from sqlalchemy_public_id.errors import ConfigurationError, PublicIdNotFound, shown
from sqlalchemy_public_id.orm.inspection import is_sharded, public_id_attribute, require_session
from sqlalchemy_public_id.types import as_bits_format, public_id_type

__all__ = ["Page", "Place", "page"]

M = TypeVar("M")
"""A model."""

_MOST = 2**31 - 2
"""The highest limit: one more is asked for, as an INTEGER of PostgreSQL."""


class Place(TypedDict, total=False):
    """The keyword arguments of :func:`page`."""

    limit: Required[int]
    after: object
    before: object
    newest_first: bool
    attribute: str | None


@dataclass(frozen=True)
class Page(Sequence[M], Generic[M]):
    """Rows that follow one another, as a sequence."""

    items: tuple[M, ...]
    has_more: bool
    """Whether there are more rows behind these; before these, where they were asked for with ``before``."""
    next: str | None
    """What to give as ``after`` for the page behind this one; ``None`` where there is none."""
    previous: str | None
    """What to give as ``before`` for the page before this one; ``None`` where there is none."""

    @overload
    def __getitem__(self, index: int) -> M: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[M, ...]: ...
    def __getitem__(self, index: int | slice) -> M | tuple[M, ...]:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)


@overload
def page(session: Session, rows: type[M], **place: Unpack[Place]) -> Page[M]: ...
@overload
def page(session: Session, rows: Select[tuple[M]], **place: Unpack[Place]) -> Page[M]: ...  # SQLAlchemy 2.0
@overload
def page(session: Session, rows: Select[M], **place: Unpack[Place]) -> Page[M]: ...  # SQLAlchemy 2.1
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
    """Up to *limit* rows, in the order of their keys.

    >>> from sqlalchemy_public_id import lookup
    >>> first = lookup.page(session, User, limit=20)
    >>> second = lookup.page(session, User, limit=20, after=first[-1].public_id)
    >>> [user.name for user in first], first.has_more, list(second)
    (['Ada'], False, [])

    One statement. A second one follows where the first brings nothing, to tell the end from an unknown id, and where
    a join has repeated rows, to tell whether there are more.

    On a :class:`~sqlalchemy.ext.horizontal_shard.ShardedSession` the order is that of key and public id over all
    shards, so the keys have to be integers. The cursor is looked up first, in the shard that its id tells or else in
    all of them; then each shard is asked for its part.

    :param rows: a model, or ``select(Model)`` with conditions, joins and options, but no order or limit of its own.
    :param limit: how many rows at most; 1 or more, and not above 2 147 483 646.
    :param after: the public id of the row that these rows follow; ``None`` for the beginning. It marks a place, and
        need not be among *rows*.
    :param before: the public id of the row that these rows precede.
    :param newest_first: whether the highest key comes first.
    :param attribute: which public id, where a model has several; ``public_id`` by default.
    :raises PublicIdNotFound: where no row has the id *after* or *before*, because it is malformed or unknown, or its
        row was deleted; the error's ``field`` says which of the two.
    :raises ConfigurationError: where *rows* cannot be paged.
    """
    require_session(session)
    statement, entity = _selected(rows)
    mapper: Mapper[Any] = inspect(entity).mapper
    name, column = public_id_attribute(mapper.class_, attribute)
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= _MOST:
        raise ValueError(f"limit is {shown(limit)}, expected a whole number from 1 to {_MOST}")
    if after is not None and before is not None:
        raise ValueError("after and before are both given; a page follows one row, or precedes one")
    backwards = before is not None
    cursor = before if backwards else after
    unknown = PublicIdNotFound(cursor, model=mapper.class_.__name__, field="before" if backwards else "after")
    if cursor is not None and not public_id_type(column).id_format.is_valid(cursor):
        raise unknown

    run_of = _ShardedRun if is_sharded(session) else _Run
    run = run_of(session, statement.add_columns(getattr(entity, name)), entity, name, newest_first != backwards)
    found, sent = run.beyond(cursor, limit + 1)
    if not found and cursor is not None:
        key = run.key_of(cursor)
        if key is None:
            raise unknown
        if run.may_have_missed_it:
            found, sent = run.beyond(cursor, limit + 1, key)
    has_more = len(found) > limit
    if not has_more and sent > limit:  # some rows came several times, so others may not have come
        has_more = bool(run.beyond(found[-1][1], 1)[0])

    del found[limit:]
    if backwards:
        found.reverse()
    has_next, has_previous = (bool(found), has_more) if backwards else (has_more, bool(found) and cursor is not None)
    return Page(
        items=tuple(row for row, _ in found),
        has_more=has_more,
        next=found[-1][1] if has_next else None,
        previous=found[0][1] if has_previous else None,
    )


# --- inside


def _selected(rows: Any) -> tuple[Select[Any], Any]:
    """*rows* as a statement, and the entity that it selects."""
    if not isinstance(rows, Select):
        public_id_attribute(rows)
        return select(rows), rows
    statement = cast("Select[Any]", rows)
    selected = statement.column_descriptions
    entity = selected[0].get("entity") if len(selected) == 1 else None
    if entity is None or selected[0]["expr"] is not entity:
        names = ", ".join(str(each["name"]) for each in selected)
        raise ConfigurationError(f"a page is of one model, select(Model), but this statement selects {names}")
    if not statement.compare(statement.order_by(None).limit(None).offset(None)):
        raise ConfigurationError(
            "the statement of a page has an ORDER BY, LIMIT or OFFSET; leave it out: a page is in the order of the "
            "keys, or the other way round with newest_first=True, and has a limit of its own"
        )
    return statement, entity


class _Run:
    """The rows of *statement*, which selects *entity* and its public id, in the order of the keys."""

    def __init__(self, session: Session, statement: Select[Any], entity: Any, name: str, descending: bool) -> None:
        mapper: Mapper[Any] = inspect(entity).mapper
        self.session = session
        self.mapper = mapper
        self.descending = descending
        self.name = name
        self.keys = [mapper.get_property_by_column(column).key for column in mapper.primary_key]
        self.columns = [getattr(entity, key) for key in self.keys]
        # the row of the cursor, under another name; a table, since sessions may add conditions to every entity
        self.marked = aliased(mapper.class_, flat=True)
        table = mapper.selectable
        self.table: FromClause | None = None
        if mapper.inherits is None and isinstance(table, Table):
            self.table = table.alias()
        order = (column.desc() if descending else column.asc() for column in self.columns)
        self.statement = statement.order_by(*order)

    @property
    def may_have_missed_it(self) -> bool:
        """Whether a condition of the statement on aliases may have hidden the row of the cursor."""
        return self.table is None

    def beyond(self, public_id: object, limit: int, key: Sequence[Any] | None = None) -> tuple[list[Any], int]:
        """Rows beyond that of *public_id*, each with its public id; and how many were sent, repeated ones included.

        The *key* of the row is found by the statement itself, where it is not given.
        """
        sent = 0

        def identity(row: Any) -> int:
            nonlocal sent
            sent += 1
            return id(row[0])

        statement = self.statement.limit(limit)
        if public_id is not None:
            marks = key or [self._mark(public_id, name).scalar_subquery() for name in self.keys]
            statement = statement.where(self._is_beyond(marks))
        found = self.session.execute(statement).unique(identity).all()
        return list(found), sent

    def key_of(self, public_id: object) -> Sequence[Any] | None:
        """The key of the row with *public_id*, where there is one."""
        return self.session.execute(self._mark(public_id, *self.keys), bind_arguments={"mapper": self.mapper}).first()

    def _mark(self, public_id: object, *attributes: str) -> Select[Any]:
        """Attributes of the row of *public_id*, past the conditions of the statement."""
        columns: list[ColumnElement[Any]] = [self._marked(attribute) for attribute in attributes]
        marked: Select[Any] = select(*columns)
        return marked.where(self._marked(self.name) == public_id)

    def _marked(self, attribute: str) -> Any:
        if self.table is None:
            return getattr(self.marked, attribute)
        return self.table.c[self.mapper.columns[attribute].key]

    def _is_beyond(self, marks: Sequence[Any], *more: tuple[Any, Any]) -> ColumnElement[bool]:
        """Whether the key of a row is beyond *marks*, column by column where it is a composite one.

        *more* are columns that decide between rows with one key, each with its mark.
        """
        pairs = [*zip(self.columns, marks, strict=True), *more]
        alternatives: list[ColumnElement[bool]] = []
        for at, (column, mark) in enumerate(pairs):
            equal = [each == other for each, other in pairs[:at]]
            alternatives.append(and_(*equal, column < mark if self.descending else column > mark))
        return or_(*alternatives)


class _ShardedRun(_Run):
    """The same over several databases: each sends its first rows, which are put into one order here.

    Keys may be there several times, so the public id decides between them. Only integers and ids are ordered alike by
    all databases, and by Python.
    """

    def __init__(self, session: Session, statement: Select[Any], entity: Any, name: str, descending: bool) -> None:
        super().__init__(session, statement, entity, name, descending)
        self.id = getattr(entity, name)
        self.format = public_id_type(public_id_attribute(inspect(entity).mapper.class_, name)[1]).id_format
        if not all(isinstance(column.type, Integer) for column in self.columns):
            raise ConfigurationError(
                f"the key of {inspect(entity).mapper.class_.__name__} is no integer, and databases do not agree on the "
                f"order of other keys; a page of several shards needs an integer key"
            )
        self._marks: dict[object, Sequence[Any] | None] = {}

    @property
    def may_have_missed_it(self) -> bool:
        return False

    def beyond(self, public_id: object, limit: int, key: Sequence[Any] | None = None) -> tuple[list[Any], int]:
        statement = self.statement.limit(limit)
        if public_id is not None:
            mark = key or self.key_of(public_id)
            if mark is None:
                return [], 0
            statement = statement.where(self._is_beyond(mark, (self.id, public_id)))
        sent: Counter[Any] = Counter()
        last: dict[Any, Any] = {}

        def identity(row: Any) -> int:
            shard = inspect(row[0]).identity_token
            sent[shard] += 1
            last[shard] = self._place(row)
            return id(row[0])

        found = self.session.execute(statement).unique(identity).all()
        found = sorted(found, key=self._place, reverse=self.descending)
        # a shard that sent all it was allowed to may have more rows behind its last one
        ends = [last[shard] for shard, rows in sent.items() if rows >= limit]
        if ends:
            end = max(ends) if self.descending else min(ends)
            seen = [row for row in found if (self._place(row) >= end if self.descending else self._place(row) <= end)]
        else:
            seen = found
        if len(seen) < min(limit, len(found)):
            return seen, limit  # rows were left out, and are asked for when the next page is
        return seen[:limit], limit if ends else len(seen)

    def _place(self, row: Any) -> tuple[Any, ...]:
        """The key of the row, and its public id as the databases order it."""
        public_id = as_bits_format(self.format).to_int(row[1]) if self.format.is_native else str(row[1])
        return (*inspect(row[0]).identity, public_id)

    def key_of(self, public_id: object) -> Sequence[Any] | None:
        """The key of the row with *public_id*, which may be in any shard."""
        if public_id not in self._marks:
            columns = [getattr(self.marked, key) for key in self.keys]
            query = select(*columns).where(getattr(self.marked, self.name) == public_id)
            self._marks[public_id] = self.session.execute(query).first()
        return self._marks[public_id]
