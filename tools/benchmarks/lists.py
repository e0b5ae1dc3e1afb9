"""Lists in lists: five comments of each of twenty issues, among a thousand, 10⁵ and 10⁶, compared with SQL by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, ForeignKey, Index, Select, String, func, insert, inspect, select, true
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, aliased, mapped_column, relationship

from sqlalchemy_public_id import NanoId, PublicIdMixin, lookup
from tools.benchmarks.databases import ALL, Bench
from tools.benchmarks.measure import Comparison, Subject, compared

__all__ = ["run"]

_ISSUES, _SHOWN, _LIMIT, _RANKS = 1000, 20, 5, 97
_BATCH = 10_000
_LATERAL = {"postgresql", "mysql"}
"""The databases where the SQL by hand is LATERAL; elsewhere, it numbers the rows with a window function."""


class Base(DeclarativeBase):
    """The base of the models of this suite."""


class Issue(PublicIdMixin, Base):
    """A thousand issues, twenty of which are shown and have half of the comments."""

    __tablename__ = "bench_issue"
    comments: Mapped[list[Comment]] = relationship()


class Comment(PublicIdMixin, Base):
    """The comments, with an index for each order."""

    __tablename__ = "bench_comment"
    __table_args__ = (Index(None, "issue_id", "id"), Index("bench_comment_by_rank", "issue_id", "rank", "id"))
    issue_id: Mapped[int] = mapped_column(ForeignKey(Issue.id))
    rank: Mapped[int]
    text: Mapped[str] = mapped_column(String(20), default="text")


ORDERS: dict[str, list[Any]] = {"by key": [], "by a column": [Comment.rank.desc()]}

Read = Callable[[Session, Sequence[Issue], Sequence[Any]], list[list[int]]]
"""A function that returns the keys of the comments of each issue."""


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare µs for the lists of twenty issues."""
    for database in bench.on(*ALL):
        with database.engines() as (engine, _):
            for rows in (1_000, 5_000) if bench.quick else (1_000, 100_000, 1_000_000):
                Base.metadata.drop_all(engine)
                _fill(engine, rows)
                for order, terms in ORDERS.items():
                    ours, each, rival = "lookup.pages()", "twenty lookup.page()", "SQL by hand"
                    ways: dict[str, Read] = {ours: _pages, each: _page_each, rival: _by_hand}
                    subjects = {name: _read(engine, way, terms) for name, way in ways.items()}
                    what = f"{rows:,} comments, {order}, {database.name}"
                    pairs = [(ours, each, None), (ours, rival, None)]
                    yield from compared(what, subjects, pairs, bench.times(12, 2))
            Base.metadata.drop_all(engine)


def _fill(engine: Engine, rows: int) -> None:
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(Issue), [{"public_id": each} for each in NanoId().generate_many(_ISSUES)])
        issues = connection.scalars(select(Issue.id).order_by(Issue.id)).all()
    for at in range(0, rows, _BATCH):
        numbers = range(at, min(rows, at + _BATCH))
        comments = [
            {
                "public_id": id,
                "rank": number % _RANKS,
                "issue_id": issues[number // 2 % (_SHOWN if number % 2 else _ISSUES)],
            }
            for number, id in zip(numbers, NanoId().generate_many(len(numbers)), strict=True)
        ]
        with engine.begin() as connection:
            connection.execute(insert(Comment), comments)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        tables = "ANALYZE TABLE" if engine.name in ("mysql", "mariadb") else "ANALYZE"
        connection.exec_driver_sql(f"{tables} {Comment.__tablename__}").close()


def _pages(session: Session, issues: Sequence[Issue], order: Sequence[Any]) -> list[list[int]]:
    pages = lookup.pages(session, Issue.comments, of=issues, limit=_LIMIT, order_by=order or None)
    return [[comment.id for comment in pages[issue]] for issue in issues]


def _page_each(session: Session, issues: Sequence[Issue], order: Sequence[Any]) -> list[list[int]]:
    return [
        [
            comment.id
            for comment in lookup.page(
                session, Comment, where=Comment.issue_id == issue.id, limit=_LIMIT, order_by=order or None
            )
        ]
        for issue in issues
    ]


def _by_hand(session: Session, issues: Sequence[Issue], order: Sequence[Any]) -> list[list[int]]:
    wanted = Issue.id.in_([issue.id for issue in issues])
    if session.get_bind().dialect.name in _LATERAL:
        first = select(Comment).where(Comment.issue_id == Issue.id).order_by(*order, Comment.id).limit(_LIMIT + 1)
        comment = aliased(Comment, first.lateral())
        statement: Select[Any] = select(comment).select_from(Issue).join(comment, true()).where(wanted)
        statement = statement.order_by(Issue.id, *(comment.rank.desc() for _ in order), comment.id)
    else:
        number = func.row_number().over(partition_by=Comment.issue_id, order_by=[*order, Comment.id]).label("number")
        parents = Comment.issue_id.in_([issue.id for issue in issues])
        numbered = select(Comment.id, number).where(parents).subquery()
        statement = select(Comment).join(numbered, numbered.c.id == Comment.id).where(numbered.c.number <= _LIMIT + 1)
        statement = statement.order_by(Comment.issue_id, *order, Comment.id)
    found: dict[int, list[int]] = {issue.id: [] for issue in issues}
    for each in session.scalars(statement):
        found[each.issue_id].append(each.id)
    return [found[issue.id][:_LIMIT] for issue in issues]


def _read(engine: Engine, read: Read, order: Sequence[Any]) -> Subject:
    @contextmanager
    def subject() -> Iterator[Callable[[], object]]:
        with Session(engine) as session:
            issues = session.scalars(select(Issue).order_by(Issue.id).limit(_SHOWN)).all()
            assert all(inspect(issue).persistent for issue in issues)
            read_keys: list[list[int]] = []

            def work() -> None:
                read_keys.extend(read(session, issues, order))

            yield work
            assert [len(keys) for keys in read_keys] == [_LIMIT] * _SHOWN
            assert read_keys == _page_each(session, issues, order)

    return subject
