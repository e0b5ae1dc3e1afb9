"""``lookup.pages``: a page of a collection for each of several parents."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest
from sqlalchemy import (
    Column,
    Connection,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    event,
    func,
    insert,
    select,
    text,
)
from sqlalchemy.orm import (
    DeclarativeBase,
    DynamicMapped,
    Mapped,
    Session,
    WriteOnlyMapped,
    aliased,
    foreign,
    joinedload,
    mapped_column,
    relationship,
    remote,
    selectinload,
    with_loader_criteria,
    with_parent,
)

from sqlalchemy_public_id import (
    ConfigurationError,
    InvalidCursor,
    NanoId,
    PublicIdMixin,
    lookup,
    public_id_column,
    references,
)
from sqlalchemy_public_id._private import IS_FAST
from sqlalchemy_public_id.errors import InvalidPage

pytestmark = pytest.mark.backend


class Base(DeclarativeBase):
    metadata = MetaData()


watching = Table(
    "np_watching",
    Base.metadata,
    Column("number", Integer, primary_key=True),  # the same person may watch an issue twice
    Column("issue_id", ForeignKey("np_issue.id")),
    Column("person_id", ForeignKey("np_person.id")),
)


class Person(PublicIdMixin, Base):
    __tablename__ = "np_person"
    name: Mapped[str] = mapped_column(String(20))


class Issue(PublicIdMixin, Base):
    __tablename__ = "np_issue"
    __mapper_args__: ClassVar[Any] = {"polymorphic_on": "kind", "polymorphic_identity": "issue"}
    kind: Mapped[str] = mapped_column(String(10))
    title: Mapped[str] = mapped_column(String(20))
    parent_id: Mapped[int | None] = mapped_column(ForeignKey("np_issue.id"))
    comments: Mapped[list[Comment]] = relationship(order_by="Comment.id.desc()", back_populates="issue")
    notes: WriteOnlyMapped[Comment] = relationship(viewonly=True)
    remarks: DynamicMapped[Comment] = relationship(viewonly=True)
    open_comments: Mapped[set[Comment]] = relationship(
        primaryjoin=lambda: (Issue.id == foreign(Comment.issue_id)) & ~Comment.hidden, viewonly=True
    )
    comments_of_later_issues: Mapped[list[Comment]] = relationship(
        primaryjoin=lambda: Issue.id <= foreign(Comment.issue_id), viewonly=True
    )
    watchers: Mapped[list[Person]] = relationship(secondary=watching)
    parts: Mapped[list[Issue]] = relationship(viewonly=True)
    first_comment: Mapped[Comment | None] = relationship(viewonly=True, uselist=False)


class Bug(Issue):
    __tablename__ = "np_bug"
    __mapper_args__: ClassVar[Any] = {"polymorphic_identity": "bug"}
    id: Mapped[int] = mapped_column(ForeignKey(Issue.id), primary_key=True)
    severity: Mapped[int] = mapped_column(default=1)
    traces: Mapped[list[Trace]] = relationship()


class Trace(PublicIdMixin, Base):
    __tablename__ = "np_trace"
    bug_id: Mapped[int] = mapped_column(ForeignKey(Bug.id))


class Comment(PublicIdMixin, Base):
    __tablename__ = "np_comment"
    __table_args__ = (Index(None, "issue_id", "id"),)
    issue_id: Mapped[int] = mapped_column(ForeignKey(Issue.id))
    issue_public_id = references.public_ref("issue")
    author_id: Mapped[int | None] = mapped_column(ForeignKey(Person.id))
    text: Mapped[str] = mapped_column(String(20))
    rank: Mapped[int | None]
    hidden: Mapped[bool] = mapped_column(default=False)
    issue: Mapped[Issue] = relationship(back_populates="comments")
    author: Mapped[Person | None] = relationship()
    reactions: Mapped[list[Reaction]] = relationship()


class Reaction(Base):
    __tablename__ = "np_reaction"
    id: Mapped[int] = mapped_column(primary_key=True)
    comment_id: Mapped[int] = mapped_column(ForeignKey(Comment.id))


class Site(Base):
    """Has a key of two columns, one of which is text."""

    __tablename__ = "np_site"
    country: Mapped[str] = mapped_column(String(2), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    visits: Mapped[list[Visit]] = relationship()


class Visit(Base):
    """Has an id that is unique only with the country, which is part of the foreign key."""

    __tablename__ = "np_visit"
    __table_args__ = (ForeignKeyConstraint(["country", "site"], [Site.country, Site.number]),)
    id: Mapped[int] = mapped_column(primary_key=True)
    country: Mapped[str] = mapped_column(String(2))
    site: Mapped[int]
    public_id: Mapped[str] = public_id_column(NanoId(prefix="vis"), unique_with=("country",))


ISSUES = 6
COMMENTS = [0, 1, 4, 5, 6, 12]
"""The number of comments of each issue."""


@pytest.fixture
def issues(create: Callable[[MetaData], None], session: Session) -> list[Issue]:
    """Return issues with more and more comments, which were written in turn."""
    create(Base.metadata)
    people = [Person(name=f"person {number}") for number in range(3)]
    issues = [Issue(title=f"issue {number}") for number in range(ISSUES)]
    session.add_all([*people, *issues])
    session.flush()
    for turn in range(max(COMMENTS)):
        for number, issue in enumerate(issues):
            if turn < COMMENTS[number]:
                rank = None if turn % 3 == 1 else -turn % 5
                comment = Comment(issue=issue, text=f"{number}.{turn}", rank=rank, author=people[turn % 3])
                comment.hidden = turn % 4 == 2
                comment.reactions = [Reaction(), Reaction()]
                session.add(comment)
                session.flush()
    session.commit()
    return list(session.scalars(select(Issue).order_by(Issue.id)))


@contextmanager
def counting(session: Session) -> Iterator[list[str]]:
    """Yield the SELECT statements that the session sends meanwhile."""
    sent: list[str] = []
    connection = session.connection()

    def before_cursor_execute(connection: Connection, cursor: Any, statement: str, *rest: Any) -> None:
        sent.append(statement)

    event.listen(connection, "before_cursor_execute", before_cursor_execute)
    try:
        yield sent
    finally:
        event.remove(connection, "before_cursor_execute", before_cursor_execute)


def one_by_one(
    session: Session, attribute: Any, parents: list[Any], *, where: Any = None, after: Any = None, **how: Any
) -> dict[Any, lookup.Page[Any]]:
    """Return the pages of ``page()`` for each parent: what ``pages()`` has to return."""
    child = attribute.property.mapper.class_
    found = {}
    for parent in parents:
        target = attribute.property.mapper.primary_key[0]
        is_of = target.in_(select(target).where(with_parent(parent, attribute)))
        condition = is_of if where is None else is_of & where
        found[parent] = lookup.page(session, child, where=condition, after=(after or {}).get(parent), **how)
    return found


ORDERS: dict[str, dict[str, Any]] = {
    "by key": {},
    "newest first": {"newest_first": True},
    "with NULLs": {"order_by": [Comment.rank, Comment.text.desc()]},
    "NULLs last": {"order_by": Comment.rank.desc().nulls_last(), "newest_first": True},
    "by an expression": {"order_by": func.length(Comment.text)},
}
COLLECTIONS: dict[str, Any] = {
    "list": Issue.comments,
    "write-only": Issue.notes,
    "dynamic": Issue.remarks,
    "with a condition": Issue.open_comments,
    "by a comparison": Issue.comments_of_later_issues,
}


@pytest.mark.parametrize("limit", [1, 5, 100])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("collection", COLLECTIONS)
def test_pages_are_those_of_each_parent(
    session: Session, issues: list[Issue], collection: str, order: str, limit: int
) -> None:
    """One statement returns the pages that ``page()`` returns for each parent, with the cursors of the same order."""
    expected = one_by_one(session, COLLECTIONS[collection], issues, limit=limit, **ORDERS[order])
    with counting(session) as sent:
        found = lookup.pages(session, COLLECTIONS[collection], of=issues, limit=limit, **ORDERS[order])

    assert found == expected
    assert list(found) == issues
    assert len(sent) == 1


@pytest.mark.parametrize("order", ORDERS)
def test_pages_go_on(session: Session, issues: list[Issue], order: str) -> None:
    """The cursors continue the pages of some parents, by ``pages()`` as by ``page()``; other parents begin."""
    how = {"limit": 3, **ORDERS[order]}
    first = lookup.pages(session, Issue.comments, of=issues, **how)
    after = {issue: page.next for issue, page in first.items() if page.next}
    second = lookup.pages(session, Issue.comments, of=issues, after=after, **how)

    assert second == one_by_one(session, Issue.comments, issues, after=after, **how)
    assert [len(page) for page in second.values()] == [0, 1, 1, 2, 3, 3]
    assert second[issues[1]] == first[issues[1]]
    with counting(session) as sent:
        lookup.pages(
            session, Issue.comments, of=issues, after={issues[5]: first[issues[5]].next}, limit=3, **ORDERS[order]
        )
    assert len(sent) <= 3


def test_cursor_of_another_parent(session: Session, issues: list[Issue]) -> None:
    """A comment of another issue is no cursor; nor is a parent that is not among the parents."""
    stranger = lookup.page(
        session, Issue.comments.property.mapper.class_, limit=1, where=Comment.issue_id == issues[5].id
    )
    with pytest.raises(InvalidCursor):
        lookup.pages(session, Issue.comments, of=issues, limit=3, after={issues[4]: stranger[0].public_id})
    with pytest.raises(ConfigurationError, match=r"after has .*, which is not among the parents"):
        lookup.pages(session, Issue.comments, of=issues[:2], limit=3, after={issues[4]: None})


@pytest.mark.parametrize(
    "order", [{}, {"newest_first": True}, {"order_by": Person.name.desc()}], ids=["by key", "newest first", "by name"]
)
def test_association_table(session: Session, issues: list[Issue], order: dict[str, Any]) -> None:
    """Rows of an association table are found; a row that it names twice is one row of the page."""
    people = list(session.scalars(select(Person).order_by(Person.id)))
    session.execute(
        insert(watching),
        [{"issue_id": issue.id, "person_id": person.id} for issue in issues[1:] for person in [*people, *people[1:]]],
    )
    with counting(session) as sent:
        found = lookup.pages(session, Issue.watchers, of=issues, limit=2, **order)

    assert found == one_by_one(session, Issue.watchers, issues, limit=2, **order)
    assert [len(page) for page in found.values()] == [0, 2, 2, 2, 2, 2]
    assert len(sent) == 1
    after = {issue: page.next for issue, page in found.items()}
    rest = lookup.pages(session, Issue.watchers, of=issues, limit=2, after=after, **order)
    assert [len(page) for page in rest.values()] == [0, 1, 1, 1, 1, 1]


def test_parts_of_the_same_table(session: Session, issues: list[Issue]) -> None:
    """A collection may be of the parent's own table."""
    for number in range(9):
        session.add(Issue(title=f"part {number}", parent_id=issues[number % 2].id))
        session.flush()
    with counting(session) as sent:
        found = lookup.pages(session, Issue.parts, of=issues, limit=2)

    assert found == one_by_one(session, Issue.parts, issues, limit=2)
    assert len(sent) == 1


def test_inheritance(session: Session, issues: list[Issue]) -> None:
    """A subclass has the collections of its base, and its own, which refer to its own table."""
    bugs = [Bug(title="bug"), Bug(title="bug")]
    bugs[0].traces = [Trace(), Trace(), Trace()]
    bugs[1].comments = [Comment(text="of a bug")]
    session.add_all(bugs)
    session.flush()
    of = [*bugs, *issues]

    assert lookup.pages(session, Bug.traces, of=bugs, limit=2) == one_by_one(session, Bug.traces, bugs, limit=2)
    assert lookup.pages(session, Bug.comments, of=bugs, limit=2) == one_by_one(session, Bug.comments, bugs, limit=2)
    assert lookup.pages(session, Issue.comments, of=of, limit=2) == one_by_one(session, Issue.comments, of, limit=2)
    with pytest.raises(ConfigurationError, match="expected objects of Bug"):
        lookup.pages(session, Bug.comments, of=of, limit=2)


def test_composite_key_and_shared_ids(session: Session, issues: list[Issue]) -> None:
    """Parents may have a key of several columns, and rows an id that is unique only with one of them."""
    sites = [Site(country=country, number=number) for country in ("de", "fr") for number in (1, 2)]
    session.add_all(sites)
    session.flush()
    for number in range(12):
        site = sites[number % 4]
        session.add(Visit(country=site.country, site=site.number, public_id=f"vis_{number // 4 * 2 + number % 2:012}"))
        session.flush()
    shared = [visit.public_id for visit in session.scalars(select(Visit))]
    assert len(set(shared)) < len(shared)
    found = lookup.pages(session, Site.visits, of=sites, limit=2)

    assert found == one_by_one(session, Site.visits, sites, limit=2)
    after = {site: page.next for site, page in found.items()}
    rest = lookup.pages(session, Site.visits, of=sites, limit=2, after=after)
    assert [[visit.site for visit in page] for page in rest.values()] == [[1], [2], [1], [2]]


# --- what is left out, and what comes with the rows


def test_where(session: Session, issues: list[Issue]) -> None:
    """Rows that ``where=`` leaves out do not count; it may be a function of the model, or look into other tables."""
    visible: dict[str, Any] = {
        "column": ~Comment.hidden,
        "function": lambda comment: ~comment.hidden,
        "relationship": Comment.author.has(Person.name == "person 0"),
    }
    for condition in visible.values():
        found = lookup.pages(session, Issue.comments, of=issues, limit=2, where=condition)
        plain = condition(Comment) if callable(condition) and not hasattr(condition, "type") else condition
        assert found == one_by_one(session, Issue.comments, issues, limit=2, where=plain)
    for after in ({}, dict.fromkeys(issues, "any")):
        with pytest.raises(ConfigurationError, match="names np_issue, expected columns of Comment"):
            lookup.pages(session, Issue.comments, of=issues, limit=2, after=after, where=Issue.title == "issue 1")


def add_criteria(state: Any) -> None:
    if state.is_select:
        state.statement = state.statement.options(with_loader_criteria(Comment, ~Comment.hidden, include_aliases=True))


def add_condition(state: Any) -> None:
    mapper = state.bind_mapper
    if state.is_select and mapper is not None and mapper.class_ is Comment:
        state.statement = state.statement.where(~Comment.hidden)


def add_limit(state: Any) -> None:
    if state.is_select and not state.statement.compare(state.statement.limit(None)):
        return
    if state.is_select:
        state.statement = state.statement.limit(20)


def send_another(state: Any) -> Any:
    if state.is_select and not state.execution_options.get("other"):
        state.session.execute(select(Issue.id).limit(1), execution_options={"other": True})
        option = with_loader_criteria(Comment, ~Comment.hidden, include_aliases=True)
        return state.invoke_statement(statement=state.statement.options(option))
    return None


@pytest.mark.parametrize("listener", [add_criteria, add_condition, add_limit, send_another])
def test_listeners(session: Session, listen: Callable[..., None], issues: list[Issue], listener: Any) -> None:
    """Rows that a listener hides are not counted, by whichever means it hides them; each page is that of its parent."""
    listen(session, "do_orm_execute", listener)
    expected = one_by_one(session, Issue.comments, issues, limit=4)
    with counting(session) as sent:
        found = lookup.pages(session, Issue.comments, of=issues, limit=4)

    assert found == expected
    assert [len(page) for page in found.values()] == (
        [0, 1, 4, 4, 4, 4] if listener is add_limit else [0, 1, 3, 4, 4, 4]
    )
    if listener in (add_criteria, send_another) and IS_FAST:
        assert len(sent) == 1 + (listener is send_another)


def test_loader_options(session: Session, issues: list[Issue]) -> None:
    """Loader options apply to the rows; a joined collection repeats no row."""
    options = [joinedload(Comment.reactions), selectinload(Comment.author)]
    session.expunge_all()
    parents = list(session.scalars(select(Issue).order_by(Issue.id)))
    found = lookup.pages(session, Issue.comments, of=parents, limit=5, options=options)
    with counting(session) as sent:
        shown = [
            [(comment.text, len(comment.reactions), comment.author is not None) for comment in page]
            for page in found.values()
        ]

    assert sent == []
    assert [len(page) for page in shown] == [0, 1, 4, 5, 5, 5]
    assert {each[1:] for page in shown for each in page} == {(2, True)}


def test_references(session: Session, issues: list[Issue]) -> None:
    """References are selected with the rows: reading them sends nothing."""
    session.expunge_all()
    parents = list(session.scalars(select(Issue).order_by(Issue.id)))
    found = lookup.pages(session, Issue.comments, of=parents, limit=2, references=[Comment.issue_public_id])
    with counting(session) as sent:
        shown = {issue.public_id: {comment.issue_public_id for comment in page} for issue, page in found.items()}

    assert sent == []
    assert list(shown.values()) == [set(), *({issue.public_id} for issue in parents[1:])]


def test_unflushed_rows(session: Session, issues: list[Issue]) -> None:
    """New rows are flushed first, as before each query of the session; an expired parent is loaded."""
    issues[0].comments.append(Comment(text="new"))
    session.expire(issues[1])
    found = lookup.pages(session, Issue.comments, of=issues[:2], limit=5)

    assert [[comment.text for comment in page] for page in found.values()] == [["new"], ["1.0"]]


def test_many_parents(session: Session, issues: list[Issue]) -> None:
    """Parents given twice are answered once; of 250 parents, one statement answers all, or each three hundred."""
    session.add_all([Issue(title="more") for _ in range(244)])
    session.flush()
    parents = list(session.scalars(select(Issue).order_by(Issue.id)))
    with counting(session) as sent:
        found = lookup.pages(session, Issue.comments, of=iter([*parents, *parents]), limit=3)

    assert list(found) == parents
    assert [len(page) for page in found.values()][: ISSUES + 1] == [0, 1, 3, 3, 3, 3, 0]
    assert len(sent) == (3 if " UNION ALL " in sent[0] else 1)
    with counting(session) as sent:
        assert lookup.pages(session, Issue.comments, of=[], limit=3) == {}
    assert sent == []


# --- what is refused


class Unhashable(PublicIdMixin, Base):
    __tablename__ = "np_unhashable"

    def __eq__(self, other: object) -> bool:
        """Compare as a dataclass does, so that Python removes the hash."""
        return isinstance(other, Unhashable) and self.public_id == other.public_id

    comments: Mapped[list[Comment]] = relationship(
        primaryjoin=lambda: Unhashable.id == remote(foreign(Comment.issue_id)), viewonly=True
    )


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a class": (lambda: Comment, "expected the attribute of a relationship"),
    "a column": (lambda: Issue.title, "expected the attribute of a relationship"),
    "an alias": (lambda: aliased(Issue).comments, "expected the attribute of a relationship"),
    "a subclass": (lambda: Issue.comments.of_type(aliased(Comment)), "expected the attribute of a relationship"),
    "a condition": (lambda: Issue.comments.and_(Comment.hidden), "expected the attribute of a relationship"),
    "one object": (lambda: Issue.first_comment, "Issue.first_comment is no collection"),
    "many to one": (lambda: Comment.issue, "Comment.issue is no collection"),
    "no public id": (lambda: Comment.reactions, "Reaction"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_attributes(session: Session, issues: list[Issue], name: str) -> None:
    """Anything but a collection of rows with public ids is refused, before any SQL."""
    attribute, message = REFUSED[name]
    of = (
        session.scalars(select(Comment)).all()
        if "comment" in name or name in ("many to one", "no public id")
        else issues
    )
    with counting(session) as sent, pytest.raises(ConfigurationError, match=message):
        lookup.pages(session, attribute(), of=of, limit=2)
    assert sent == []


def test_parents_that_are_none(session: Session, issues: list[Issue]) -> None:
    """Objects that are not stored, other objects, and one object in place of several are refused."""
    row = Unhashable()
    session.add(row)
    session.flush()
    cases: list[tuple[Any, type[Exception], str]] = [
        ([Issue(title="new")], ConfigurationError, "is not stored"),
        ([issues[0].public_id], ConfigurationError, "expected objects of Issue"),
        ([None], ConfigurationError, "expected objects of Issue"),
        (issues[0], TypeError, "expected a list of Issue objects"),
        (7, TypeError, "expected a list of Issue objects"),
    ]
    for of, error, message in cases:
        with pytest.raises(error, match=message):
            lookup.pages(session, Issue.comments, of=of, limit=2)
    with pytest.raises(ConfigurationError, match="cannot be the keys of a dictionary"):
        lookup.pages(session, Unhashable.comments, of=[row], limit=2)
    with pytest.raises(InvalidPage):
        lookup.pages(session, Issue.comments, of=issues, limit=0)


# --- how the rows are found

FAMILIES = 1_000
CHILDREN = 10
"""So many rows that no database would read all of them for the pages of a tenth of the parents."""


@pytest.fixture
def many_comments(create: Callable[[MetaData], None], session: Session) -> list[Issue]:
    """Return issues, each of which has twice as many comments as a page, and let the database count its rows."""
    create(Base.metadata)
    session.execute(insert(Issue), [{"title": f"issue {number}", "kind": "issue"} for number in range(FAMILIES)])
    keys = list(session.scalars(select(Issue.id).order_by(Issue.id)))
    comments = [{"issue_id": key, "text": "text", "hidden": False} for _ in range(CHILDREN) for key in keys]
    session.execute(insert(Comment), comments)
    session.commit()
    analyze = {"sqlite": "ANALYZE", "postgresql": "ANALYZE np_comment, np_issue"}
    session.execute(text(analyze.get(session.get_bind().dialect.name, "ANALYZE TABLE np_comment, np_issue")))
    session.commit()
    return list(session.scalars(select(Issue).order_by(Issue.id).limit(100)))


def plan_of(session: Session, statement: str, parameters: Any) -> list[str]:
    """Return the steps of the plan of *statement*, each as a line with a table, an index, and what is done."""
    name = session.get_bind().dialect.name
    explain = {"sqlite": "EXPLAIN QUERY PLAN ", "mysql": "EXPLAIN FORMAT=TRADITIONAL "}.get(name, "EXPLAIN ")
    lines = session.connection().exec_driver_sql(explain + statement, parameters).mappings().all()
    if name in ("mysql", "mariadb"):
        return [f"{line['type']} of {line['table']} by {line['key']}: {line['Extra']}" for line in lines]
    return [str(line["detail" if name == "sqlite" else "QUERY PLAN"]).strip() for line in lines]


READS_ALL = re.compile(r"SCAN np_comment|Seq Scan on np_comment|(ALL|index) of np_comment")
SORTS_ROWS = re.compile(r"TEMP B-TREE|Sort Key: \S*(issue_id|comment)|of np_comment by .*filesort")


@pytest.mark.parametrize("parents", [1, 3, 100])
def test_plan(session: Session, many_comments: list[Issue], parents: int) -> None:
    """An index on the foreign key and the key finds the rows of the pages, in either order: no others are read."""
    for order in ({}, {"newest_first": True}):
        sent: list[tuple[str, Any]] = []

        def before_cursor_execute(*given: Any, sent: list[tuple[str, Any]] = sent) -> None:
            sent.append((given[2], given[3]))

        connection = session.connection()
        event.listen(connection, "before_cursor_execute", before_cursor_execute)
        lookup.pages(session, Issue.comments, of=many_comments[:parents], limit=5, **order)
        event.remove(connection, "before_cursor_execute", before_cursor_execute)
        ((statement, parameters),) = sent
        plan = plan_of(session, statement, parameters)

        assert any("ix_np_comment_issue_id" in step for step in plan), plan
        assert [step for step in plan if READS_ALL.search(step)] == []
        assert [step for step in plan[2:] if SORTS_ROWS.search(step)] == []  # the rows found may be sorted, at the top
