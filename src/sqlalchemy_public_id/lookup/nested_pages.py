"""Lists in lists: the first page of a collection for each of several parents."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    Table,
    and_,
    event,
    inspect,
    literal_column,
    select,
    true,
    tuple_,
    union_all,
)
from sqlalchemy.orm import Mapper, ORMExecuteState, QueryableAttribute, Session
from sqlalchemy.orm.interfaces import ORMOption

from sqlalchemy_public_id._private import may_change_statements, options_of
from sqlalchemy_public_id.dialects import LimitPerRow, traits_for
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.lookup.beside import columns_beside, requiring_columns
from sqlalchemy_public_id.lookup.collection import Collection, CollectionOf, checked_parents, collection_of
from sqlalchemy_public_id.lookup.fetching import KeysetQuery
from sqlalchemy_public_id.lookup.keysets import Keyset
from sqlalchemy_public_id.lookup.ordering import terms_of
from sqlalchemy_public_id.lookup.paging import Page, cursor_of, mark_of, page, require_limit
from sqlalchemy_public_id.lookup.selecting import Where, narrowing
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.orm.inspection import AnySession, is_sharded, public_id_attribute, session_of
from sqlalchemy_public_id.references.columns import in_same_database, refs_in
from sqlalchemy_public_id.references.reading import load

M = TypeVar("M")  # the model of the rows
P = TypeVar("P")  # the model of their parents

_PARENTS = 100
"""The number of parents in one statement with a UNION, whose text grows with each."""


def pages(
    session: AnySession,
    relationship: CollectionOf[M],
    *,
    of: Iterable[P],
    limit: int,
    after: Mapping[P, object] | None = None,
    newest_first: bool = False,
    order_by: Any = None,
    attribute: str | None = None,
    where: Where | None = None,
    options: Iterable[ORMOption] = (),
    references: Iterable[QueryableAttribute[Any]] = (),
) -> dict[P, Page[M]]:
    """Return a page of up to *limit* rows of a collection for each of several parents.

    The first pages of all parents take one statement, which reads only the rows of the pages if an index has the
    foreign key and then the columns of *order_by* and the key. The following pages take one statement for each parent:

    .. code-block:: text

        comments = lookup.pages(session, Issue.comments, of=issues, limit=5)
        first = issues[0]
        more = lookup.pages(session, Issue.comments, of=[first], limit=5, after={first: comments[first].next})

    The statement joins a ``LATERAL`` subquery on PostgreSQL and MySQL, and a correlated subquery on SQLite. MariaDB has
    neither, so the statement is a ``UNION ALL``, as it is for a collection of the parent's own table; it then holds
    100 parents, and 1,000 parents take ten statements. If a listener of the session adds a condition to the statement
    itself, instead of ``with_loader_criteria()``, each parent takes a statement of its own, because the condition would
    apply only after the rows of the pages are chosen.

    :param relationship: the attribute of the collection, such as ``Issue.comments``, also with an association table.
    :param of: the parents, which must be stored. The result has them as keys, in this order.
    :param limit: as for :func:`page`; each page has up to *limit* rows.
    :param after: a cursor for some of the parents: the :attr:`~Page.next` of their page, or the public id of a row of
        their collection. ``None`` stands for the first page. These cursors are those of :func:`page`, so that
        ``page(session, Comment, where=with_parent(issue, Issue.comments), after=cursor)``, with the order of these
        pages, continues one of them.
    :param newest_first: as for :func:`page`.
    :param order_by: as for :func:`page`. The ``order_by`` of the relationship is not used.
    :param attribute: as for :func:`page`.
    :param where: as for :func:`page`, but the condition names no other table, except in a subquery.
    :param options: loader options of the rows, such as ``[selectinload(Comment.author)]``.
    :param references: as for :func:`page`.
    :raises InvalidCursor: as for :func:`page`, also for the id of a row of another parent.
    :raises InvalidPage: if *limit* is out of range.
    :raises ConfigurationError: if the rows cannot be paged, or have no such parents.
    """
    session = session_of(session)
    require_limit(limit)
    collection = collection_of(relationship)
    parents = checked_parents(collection, of)
    if is_sharded(session):
        raise ConfigurationError(
            "pages() does not support a ShardedSession, because the rows of one parent may be in several shards; call "
            "page() for each parent"
        )
    child = collection.child
    name, _ = public_id_attribute(child, attribute)
    cursors = dict(after or {})
    strangers = [parent for parent in cursors if parent not in parents]
    if strangers:
        raise ConfigurationError(f"after has {safe_repr(strangers[0])}, which is not among the parents of of=…")
    statement = select(child).options(*options)
    condition = None if where is None else narrowing("pages", statement, child, where)
    beside = columns_beside(inspect(child), name)
    if beside and isinstance(condition, type(true())):  # any values of these columns; and_() would drop it
        condition = and_(*(column.is_not(None) for column in beside))
    order: dict[str, Any] = {"newest_first": newest_first, "order_by": order_by, "attribute": attribute}
    # built for cursors, too: it refuses a condition on another table
    first_pages = _FirstPages(session, collection, statement, condition, limit, references, **order)
    found = first_pages.fetch([parent for parent in parents if cursors.get(parent) is None])
    for parent in parents:
        if parent not in found:
            found[parent] = page(
                session,
                statement,
                limit=limit,
                after=cursors.get(parent),
                where=_both(collection.is_of(parent), condition),
                references=references,
                **order,
            )
    return {parent: found[parent] for parent in parents}


_PAGES = "sqlalchemy_public_id_pages"
"""An execution option: the statement of pages, as it was sent."""


class _Changed(Exception):
    """A listener has changed the statement."""


class _FirstPages:
    """The first page of each of several parents."""

    def __init__(
        self,
        session: Session,
        collection: Collection,
        statement: Select[Any],
        condition: Any,
        limit: int,
        references: Iterable[QueryableAttribute[Any]],
        *,
        newest_first: bool,
        order_by: Any,
        attribute: str | None,
    ) -> None:
        self.session = session
        self.collection = collection
        self.condition = condition
        self.limit = limit
        child = collection.child
        name, _ = public_id_attribute(child, attribute)
        mapper: Mapper[Any] = inspect(child)
        bind = session.get_bind(mapper)
        self.shown = refs_in(references, child)
        terms = [] if order_by is None else terms_of(order_by)
        self.mark = mark_of(terms, bind.dialect)
        self.keyset = Keyset(
            statement,
            child,
            name,
            terms,
            bind.dialect,
            references=in_same_database(session, bind, self.shown),
            descending=newest_first,
            backwards=False,
        )
        others = [] if condition is None else self.keyset.other_tables(condition)
        if others:
            raise ConfigurationError(
                f"pages(where=…) names {others[0]}, expected columns of {child.__name__}: write a condition on another "
                f"table as {child.__name__}.{{relationship}}.has(…), or as a subquery"
            )
        self.keys: list[Any] = [getattr(child, key) for key in self.keyset.keys]

    def fetch(self, parents: Sequence[Any]) -> dict[Any, Page[Any]]:
        """Return the pages of *parents*, in one statement if possible; none if the rows cannot be told apart."""
        if not parents:
            return {}
        mapper: Mapper[Any] = self.keyset.mapper
        connection = self.session.connection(bind_arguments={"mapper": mapper})  # now the dialect knows its server
        form = traits_for(connection.dialect).limit_per_row(connection.dialect)
        table = self.collection.parent_table
        is_near = self.session.get_bind(self.collection.parent) is self.session.get_bind(mapper)
        if form is LimitPerRow.UNION or table is None or not is_near:
            parts = [parents[at : at + _PARENTS] for at in range(0, len(parents), _PARENTS)]
            statements = [(self._union(part), {(at,): parent for at, parent in enumerate(part)}) for part in parts]
        else:
            by_key: dict[tuple[Any, ...], Any] = {tuple(inspect(parent).identity): parent for parent in parents}
            statements = [(self._correlated(table, list(by_key), form), by_key)]
        found: dict[Any, list[Any]] = {}
        for statement, named in statements:
            rows = self._execute(statement, named)
            if rows is None:
                return {}
            found.update((parent, rows[key]) for key, parent in named.items())
        return self._pages(found)

    # --- statements: the rows, and the columns that name the parent

    def _nearest(self, condition: ColumnElement[bool], *equal: Any) -> Select[Any]:
        """Return the statement for the keys of the first rows with *condition*, one more than the limit.

        :param equal: columns that are equal in all of these rows, with the direction in which an index is read.
        """
        rows: Any = select(*self.keys).select_from(self.collection.child).where(_both(condition, self.condition))
        return cast("Select[Any]", rows.order_by(*equal, *self.keyset.order).limit(self.limit + 1))

    @property
    def _foreign_key(self) -> list[Any]:
        """The first part of an ORDER BY that follows the index of the collection.

        MySQL does not see that a column is equal to that of another table, and sorts all rows of the parent otherwise.
        """
        columns = self.collection.foreign_key
        is_backwards = all(term.descending for term in self.keyset.terms)  # an index of columns without directions
        return [column.desc() if is_backwards else column for column in columns]

    def _correlated(self, table: Table, keys: list[tuple[Any, ...]], form: LimitPerRow) -> Select[Any]:
        child, columns = self.collection.child, self.collection.parent.primary_key
        equal = self._foreign_key if form is LimitPerRow.LATERAL else ()
        nearest = self._nearest(self.collection.is_of_row, *equal).correlate(table)
        rows: Any = self.keyset.rows.add_columns(*columns).select_from(table)
        if form is LimitPerRow.LATERAL:
            found: Any = nearest.lateral()
            rows = rows.join(found, true()).join(child, self._has_keys(found.c))
        else:
            rows = rows.join(child, _row_of(self.keys).in_(nearest))
        wanted = [key[0] for key in keys] if len(columns) == 1 else keys
        return cast("Select[Any]", rows.where(_row_of(columns).in_(wanted)).order_by(*columns, *self.keyset.order))

    def _union(self, parents: Sequence[Any]) -> Select[Any]:
        parts: list[Select[Any]] = []
        for at, parent in enumerate(parents):
            nearest = self._nearest(self.collection.is_of(parent, at)).subquery()
            parts.append(select(literal_column(str(at), Integer).label("parent"), *nearest.c))
        found: Any = union_all(*parts).subquery()
        number, *keys = found.c
        rows: Any = self.keyset.rows.add_columns(number).select_from(found)
        rows = rows.join(self.collection.child, self._has_keys(keys))
        return cast("Select[Any]", rows.order_by(number, *self.keyset.order))

    def _has_keys(self, columns: Iterable[Any]) -> ColumnElement[bool]:
        return and_(*(key == column for key, column in zip(self.keys, columns, strict=True)))

    # --- rows

    def _execute(
        self, statement: Select[Any], parents: Mapping[tuple[Any, ...], Any]
    ) -> dict[tuple[Any, ...], list[Any]] | None:
        """Return the rows of each of *parents*; ``None`` if a listener has changed the statement.

        The result is also ``None`` if the database names a parent otherwise than the session does: a key of text may
        be equal in another case.
        """
        width = len(next(iter(parents)))
        example = self.collection.is_of(next(iter(parents.values())))
        beside = columns_beside(self.keyset.mapper, self.keyset.name)
        child = self.collection.child
        found: dict[tuple[Any, ...], list[Any]] = {key: [] for key in parents}
        where = _both(example, self.condition)
        with requiring_columns("pages", self.session, child, beside, where, None, is_joined=True) as checked:
            try:
                with _unchanged(self.session, statement):
                    options = {**checked, _PAGES: statement}
                    result = self.session.execute(statement, execution_options=options)
            except _Changed:
                return None
            # joinedload() of a collection repeats the rows
            for row in result.unique(lambda row: (id(row[0]), *row[-width:])):
                key = tuple(row[-width:])
                if key not in found:
                    return None
                found[key].append(row)
        return found

    def _pages(self, found: Mapping[Any, list[Any]]) -> dict[Any, Page[Any]]:
        """Return the page of each parent from its rows, of which the last one may be one too many."""
        query, pages = KeysetQuery(self.session, self.keyset, {}), dict[Any, Page[Any]]()
        for parent, rows in found.items():
            has_more = len(rows) > self.limit
            del rows[self.limit :]
            self.keyset.remember_references(rows)
            end = cursor_of(query, rows[-1], self.mark) if has_more else None
            items = tuple([row[0] for row in rows])
            pages[parent] = Page(items=items, has_more=has_more, next=end, previous=None)
        if self.keyset.references.refs != self.shown:  # some are in another database
            load(self.session, [row for page in pages.values() for row in page])
        return pages


@contextmanager
def _unchanged(session: Session, statement: Select[Any]) -> Generator[None]:
    """Raise :exc:`_Changed`, before any SQL, if a listener to ``do_orm_execute`` changes which rows are selected.

    It may add options: ``with_loader_criteria()`` applies to the subqueries of the statement as well.
    """
    if not may_change_statements(session, besides="sqlalchemy_public_id"):
        yield
        return
    is_seen = False

    def do_orm_execute(state: ORMExecuteState) -> None:
        # runs after the listeners of the program, and also for other statements that they send
        nonlocal is_seen
        is_own = state.execution_options.get(_PAGES) is statement
        if is_own and not state.is_relationship_load and not state.is_column_load:
            is_seen = True
            if not _selects_equally(cast("Select[Any]", state.statement), statement):
                raise _Changed

    event.listen(session, "do_orm_execute", do_orm_execute)
    try:
        yield
    finally:
        event.remove(session, "do_orm_execute", do_orm_execute)
    if not is_seen:  # a listener has sent another statement instead
        raise _Changed


def _selects_equally(changed: Select[Any], statement: Select[Any]) -> bool:
    """Return True if *changed* is *statement*, apart from its options."""
    if changed is statement:
        return True
    own, options = options_of(statement), options_of(changed)
    return own is not None and options is not None and changed.compare(statement.options(*options[len(own) :]))


def _both(one: ColumnElement[bool], other: Any) -> ColumnElement[bool]:
    return one if other is None else and_(one, other)


def _row_of(columns: Sequence[Any]) -> Any:
    return columns[0] if len(columns) == 1 else tuple_(*columns)
