"""Rows page by page, with public ids as cursors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from sqlalchemy import inspect
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import Mapper, QueryableAttribute

from sqlalchemy_public_id.columns import public_id_type
from sqlalchemy_public_id.errors import ConfigurationError, InvalidCursor, InvalidPage
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.formats.alphabets import MAX_LENGTH
from sqlalchemy_public_id.lookup.beside import requiring_columns
from sqlalchemy_public_id.lookup.fetching import LARGEST_LIMIT, KeysetQuery, ShardedKeysetQuery
from sqlalchemy_public_id.lookup.keysets import Keyset, plain_keyset
from sqlalchemy_public_id.lookup.ordering import Term, digest, terms_of
from sqlalchemy_public_id.lookup.selecting import Rows, Where, narrowing, selected
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.orm.inspection import AnySession, has_tokens, is_sharded, public_id_attribute, session_of
from sqlalchemy_public_id.references.columns import in_same_database, refs_in
from sqlalchemy_public_id.references.reading import load

M = TypeVar("M")  # a model

_MARK = "~"
"""The separator between the public id of a cursor and the digest of its order."""
_INCLUSIVE = "~"
"""The end of a cursor whose page has its row, too. Pages without rows have such cursors."""
_LARGEST_LIMIT = LARGEST_LIMIT - 1
"""The statement selects one more row."""


@dataclass(frozen=True)
class Page(Sequence[M], Generic[M]):
    """A sequence of consecutive rows."""

    items: tuple[M, ...]
    has_more: bool
    """True if there are more rows after these; with ``before``, if there are more rows before these."""
    next: str | None
    """The cursor to pass as ``after`` for the next page; ``None`` if there is none."""
    previous: str | None
    """The cursor to pass as ``before`` for the previous page; ``None`` if there is none."""
    total: int | None = None
    """The number of rows on all pages, with ``count=True``; with a number, at most this number."""

    @overload
    def __getitem__(self, index: int) -> M: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[M, ...]: ...
    def __getitem__(self, index: int | slice) -> M | tuple[M, ...]:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)


def page(
    session: AnySession,
    rows: Rows[M],
    *,
    limit: int,
    after: object = None,
    before: object = None,
    newest_first: bool = False,
    order_by: Any = None,
    attribute: str | None = None,
    where: Where | None = None,
    cursor_execution_options: Mapping[str, Any] | None = None,
    references: Iterable[QueryableAttribute[Any]] = (),
    count: bool | int = False,
) -> Page[M]:
    """Return a page of up to *limit* rows, sorted by key or by *order_by*.

    >>> from sqlalchemy_public_id import lookup
    >>> first = lookup.page(session, User, limit=20)
    >>> second = lookup.page(session, User, limit=20, after=first[-1].public_id)
    >>> [user.name for user in first], first.has_more, list(second)
    (['Ada'], False, [])
    >>> lookup.page(session, User, limit=20, order_by=[User.name.desc()], count=True).total
    1

    A page usually takes one statement. Another follows if it is empty, to tell the end from an unknown cursor, or if a
    join repeats rows, to find out whether there are more. If *order_by* may be NULL, or with
    *cursor_execution_options*, the cursor's row is read first.

    An index can serve the page if it has the columns of *order_by*, with their directions, followed by the key (which
    InnoDB adds by itself). Columns that *where* compares with a value come first:
    ``Index(None, Ticket.organization_id, Ticket.priority.desc(), Ticket.id)``.

    With a :class:`~sqlalchemy.ext.horizontal_shard.ShardedSession`, rows are sorted by key and public id over all
    shards, so keys have to be integers. The cursor's row is looked up first, in the shard that its id determines or
    else in all shards; then each shard selects its part.

    :param rows: a model, or ``select(Model)`` with conditions, joins and options, but no order or limit of its own.
    :param limit: the maximum number of rows, from 1 to 2,147,483,646.
    :param after: the :attr:`~Page.next` of a page, or the public id of the row that these rows follow; ``None`` starts
        at the beginning. That row has to meet *where* and the criteria of the session, but need not be among *rows*.
    :param before: the :attr:`~Page.previous` of a page, or the public id of the row that these rows precede.
    :param newest_first: sort by key in descending order; with *order_by*, this applies to rows with equal values.
    :param order_by: one or several attributes of the model, or expressions of them, with ``desc()``, ``nulls_last()``
        and so on; rows with equal values are sorted by key. Without ``nulls_first()`` or ``nulls_last()``, NULL sorts
        as the largest value on PostgreSQL, and as the smallest elsewhere. A cursor is valid for one *order_by* only,
        including the values in its expressions. Columns of joined tables are refused, because a join may repeat a row
        in several places.
    :param attribute: the name of the public id, if a model has several; ``public_id`` by default.
    :param where: a condition on visible rows, or a function that takes the model and returns one. Other rows are left
        out, and their ids are refused as cursors. Conditions of ``select()`` do not apply to cursors, so that a row
        which no longer matches a filter is still a valid position; but if *where* names a table that *rows* joins, the
        row of the cursor has to be among *rows*.
    :param cursor_execution_options: execution options of the statement that reads the row of the cursor. Criteria that
        the application adds to its session hide this row, as they hide others. A listener to ``do_orm_execute`` that
        leaves out some of them for an execution option, such as ``{"include_deleted": True}``, does so for the cursor
        as well: a row that was deleted softly is then still a valid position, and other tenants' rows are not.
    :param references: attributes of :func:`~sqlalchemy_public_id.references.public_ref`, such as
        ``[Order.customer_public_id]``. The statement also selects their public ids, so that reading them sends no
        further statement, unless their rows are in another database.
    :param count: count the rows of all pages, in one more statement, which reads all of them. With a number, such as
        ``count=1000``, it stops there, so that a :attr:`~Page.total` of 1000 means 1000 or more.
    :raises InvalidCursor: if *after* or *before* is malformed, unknown, the id of a deleted or hidden row, or a cursor
        of another order; the error's ``field`` is the name of the argument.
    :raises InvalidPage: if *limit* is out of range, or both *after* and *before* are given.
    :raises ConfigurationError: if *rows* cannot be paged, or *count* is neither a boolean nor a number from 1.
    """
    session = session_of(session)
    statement, entity, _ = selected("page", rows, None, attribute)
    visible = None if where is None else narrowing("page", statement, entity, where)
    if visible is not None:
        statement = statement.where(visible)
    mapper: Mapper[Any] = inspect(entity).mapper
    name, column = public_id_attribute(mapper.class_, attribute)
    require_limit(limit)
    largest_count = checked_count(count)
    if after is not None and before is not None:
        both = "pass either after or before, not both: a page follows one row, or precedes one"
        raise InvalidPage(both, field="before", reason=both)
    terms = [] if order_by is None else terms_of(order_by)
    cursor_options = checked_cursor_options(cursor_execution_options)
    backwards = before is not None
    given, field = (before, "before") if backwards else (after, "after")
    id_format = public_id_type(column).id_format
    mark = mark_of(terms, session.get_bind(mapper).dialect)
    cursor, is_inclusive = (None, False) if given is None else _id_in(given, field, mark, id_format, mapper)

    bind, sharded = session.get_bind(mapper), is_sharded(session)
    shown = refs_in(references, entity)
    beside = shown if sharded else in_same_database(session, bind, shown)  # a reference stays in its shard
    if visible is None and not terms and isinstance(rows, type) and not sharded:
        keyset = plain_keyset(
            entity, name, bind.dialect, references=beside, descending=newest_first, backwards=backwards
        )
    else:
        keyset = Keyset(
            statement,
            entity,
            name,
            terms,
            bind.dialect,
            visible=visible,
            references=beside,
            descending=newest_first,
            backwards=backwards,
        )
    rows_of = ShardedKeysetQuery if sharded else KeysetQuery
    with requiring_columns("page", session, entity, keyset.beside, visible, None) as checked:
        query = rows_of(session, keyset, cursor_options, is_plain=isinstance(rows, type), checked=checked)
        found = query.rows_after(cursor, limit + 1, inclusive=is_inclusive)
        if found is None:
            raise _invalid_cursor(given, field, mapper)
        rows_found, sent = found
        has_more = len(rows_found) > limit
        if not has_more and sent > limit:  # repeated rows have used up the LIMIT
            rest = query.rows_after(query.id_of(rows_found[-1]), 1, known=rows_found[-1][0])
            has_more = rest is not None and bool(rest[0])

    del rows_found[limit:]
    if beside:
        keyset.remember_references(rows_found)
    if beside != shown:
        load(session, [row[0] for row in rows_found])
    if backwards:
        rows_found.reverse()
    if rows_found:
        ahead = cursor_of(query, rows_found[0 if backwards else -1], mark) if has_more else None
        back = None if cursor is None else cursor_of(query, rows_found[-1 if backwards else 0], mark)
    else:  # back to the row of the cursor, unless this page would have had it
        ahead = None
        back = None if cursor is None else f"{cursor}{mark}{'' if is_inclusive else _INCLUSIVE}"
    return Page(
        items=tuple([row[0] for row in rows_found]),
        has_more=has_more,
        next=back if backwards else ahead,
        previous=ahead if backwards else back,
        total=query.count(largest_count) if count else None,
    )


def require_limit(limit: object) -> None:
    """Raise :exc:`InvalidPage` if *limit* is not a number of rows."""
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= _LARGEST_LIMIT:
        expected = f"expected a whole number from 1 to {_LARGEST_LIMIT}"
        raise InvalidPage(f"limit is {safe_repr(limit)}, {expected}", field="limit", reason=expected)


def checked_count(count: object) -> int | None:
    """Return the number of rows up to which a page counts; ``None`` if all are counted, or none."""
    if isinstance(count, bool):
        return None
    if not isinstance(count, int) or not 1 <= count <= LARGEST_LIMIT:
        raise ConfigurationError(
            f"count is {safe_repr(count)}, expected True, False, or the number of rows at which counting stops, from 1 "
            f"to {LARGEST_LIMIT}"
        )
    return count


def checked_cursor_options(options: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the execution options, which may be ``None``; refuse anything else, such as ``True``."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise ConfigurationError(
            f"cursor_execution_options is {safe_repr(options)}, expected execution options that a listener to "
            f'do_orm_execute reads, such as {{"include_deleted": True}}'
        )
    return options


def mark_of(terms: Sequence[Term], dialect: Dialect) -> str:
    """Return the end of the cursors of an order; none if rows are in the order of their keys."""
    return f"{_MARK}{digest(terms, dialect)}" if terms else ""


def cursor_of(query: KeysetQuery, row: Sequence[Any], mark: str) -> str:
    """Return the cursor of *row*, for the rows after it or before it.

    :raises ConfigurationError: if the row has no public id.
    """
    public_id = query.id_of(row)
    if public_id is None:
        raise ConfigurationError(
            f"the {type(row[0]).__name__} at the end of a page has no public id, so there is no cursor for the next "
            f"page; fill the rows without one (backfill.run()). If they have one, the statement joins a subclass of "
            f"the same tables: join aliased(Subclass, flat=True) instead"
        )
    return f"{public_id}{mark}"


def _id_in(cursor: object, field: str, mark: str, id_format: Format, mapper: Mapper[Any]) -> tuple[str, bool]:
    """Return the public id in *cursor*, and whether its row belongs to the page; refuse a cursor of another order."""
    text, other = id_format.canonical(cursor), ""  # the whole cursor first, because an alphabet may contain the mark
    is_inclusive = False
    if text is None and isinstance(cursor, str):
        rest = cursor[: 2 * MAX_LENGTH]
        is_inclusive = rest.endswith(_INCLUSIVE)
        rest = rest.removesuffix(_INCLUSIVE)
        text = id_format.canonical(rest) if is_inclusive else None
        if text is None:
            before, _, other = rest.rpartition(_MARK)
            text = id_format.canonical(before)
    if text is None:
        raise _invalid_cursor(cursor, field, mapper)
    if other and f"{_MARK}{other}" != mark:
        raise _invalid_cursor(cursor, field, mapper, "it belongs to a page in another order")
    return text, is_inclusive


def _invalid_cursor(cursor: object, field: str, mapper: Mapper[Any], reason: str | None = None) -> InvalidCursor:
    model, may_be_token = mapper.class_.__name__, has_tokens(mapper)
    if type(cursor) is int:
        reason = "it is an integer; pass the next or previous of a page, or a public id, and no key or page number"
    return InvalidCursor(cursor, model=model, field=field, reason=reason, may_be_token=may_be_token)
