"""``lookup.page``: rows page by page, with public ids as cursors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import ForeignKey, MetaData, Select, String, event, func, select, update
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    ORMExecuteState,
    Session,
    aliased,
    contains_eager,
    joinedload,
    load_only,
    mapped_column,
    relationship,
    with_loader_criteria,
)

from sqlalchemy_public_id import (
    ConfigurationError,
    NanoId,
    PublicIdColumnMixin,
    PublicIdMixin,
    PublicIdNotFound,
    TypedId,
    bigint_key,
    lookup,
    public_id_column,
)
from sqlalchemy_public_id._private import IS_FAST
from sqlalchemy_public_id.errors import InvalidPage
from sqlalchemy_public_id.formats import Uuid7


class Base(DeclarativeBase):
    metadata = MetaData()


class PostId(TypedId, prefix="pgpost"): ...


class Post(PublicIdMixin[PostId], Base):
    __tablename__ = "post"
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "post"}  # noqa: RUF012
    kind: Mapped[str] = mapped_column(String(10))
    title: Mapped[str] = mapped_column(String(50), default="untitled")
    hidden: Mapped[bool] = mapped_column(default=False)
    comments: Mapped[list[Comment]] = relationship(order_by="Comment.id.desc()", cascade="all, delete-orphan")


class Video(Post):
    __tablename__ = "video"
    __mapper_args__ = {"polymorphic_identity": "video"}  # noqa: RUF012
    id: Mapped[int] = mapped_column(ForeignKey(Post.id), primary_key=True)
    seconds: Mapped[int] = mapped_column(default=60)


class Reel(Post):
    """A single-table subclass."""

    __mapper_args__ = {"polymorphic_identity": "reel"}  # noqa: RUF012


class Comment(PublicIdMixin, Base):
    __tablename__ = "comment"
    post_id: Mapped[int] = mapped_column(ForeignKey(Post.id))


class Seat(PublicIdColumnMixin, Base):
    """Has a key of three columns, two of which are text."""

    __tablename__ = "seat"
    hall: Mapped[str] = mapped_column(String(10), primary_key=True)
    row: Mapped[int] = mapped_column("line", primary_key=True, autoincrement=False)
    place: Mapped[str] = mapped_column(String(10), primary_key=True)


class Ticket(Base):
    """Has two public ids, one of which is stored as a number."""

    __tablename__ = "ticket"
    number: Mapped[int] = bigint_key()
    public_id: Mapped[str] = public_id_column(NanoId(length=8))
    code: Mapped[str] = public_id_column(Uuid7(prefix="pgcode"), name="other code")
    used: Mapped[bool] = mapped_column(default=False)


class Late(PublicIdColumnMixin, Base):
    __tablename__ = "late"
    id: Mapped[int] = bigint_key()
    public_id: Mapped[str] = public_id_column(NanoId(prefix="pglate"), deferred=True)


POSTS = [f"pgpost_{number:012}" for number in range(10)]
UNKNOWN = "pgpost_zzzzzzzzzzzz"


@pytest.fixture
def db(create: Callable[[MetaData], None], session: Session) -> Session:
    """Return a session with ten posts; every third post is a video, and each has two comments."""
    create(Base.metadata)
    for number, public_id in enumerate(POSTS):
        post = (Post if number % 3 else Video)(public_id=public_id, title=f"post {number}")
        post.comments = [Comment(), Comment()]
        session.add(post)
        session.flush()
    session.commit()
    return session


def ids(page: lookup.Page[Any]) -> list[str]:
    return [row.public_id for row in page]


def walk(db: Session, rows: Any, direction: str, limit: int = 3, **how: Any) -> list[list[Any]]:
    """Return all pages from one end to the other."""
    cursor = how.pop("start", None)
    pages: list[list[Any]] = []
    while True:
        page = lookup.page(db, rows, limit=limit, **{direction: cursor}, **how)
        pages.append(list(page))
        cursor = page.next if direction == "after" else page.previous
        assert page.has_more == (cursor is not None)
        if cursor is None:
            return pages


# --- forwards and backwards


PLACES: dict[str, tuple[dict[str, Any], list[str], bool, str | None, str | None]] = {
    "all": ({"limit": 2**31 - 2}, POSTS, False, None, None),
    "first": ({"limit": 4}, POSTS[:4], True, POSTS[3], None),
    "next": ({"limit": 4, "after": POSTS[3]}, POSTS[4:8], True, POSTS[7], POSTS[4]),
    "last, full": ({"limit": 2, "after": POSTS[7]}, POSTS[8:], False, None, POSTS[8]),
    "last": ({"limit": 3, "after": POSTS[7]}, POSTS[8:], False, None, POSTS[8]),
    "previous": ({"limit": 4, "before": POSTS[6]}, POSTS[2:6], True, POSTS[5], POSTS[2]),
    "before all": ({"limit": 4, "before": POSTS[2]}, POSTS[:2], False, POSTS[1], None),
    "newest": ({"limit": 3, "newest_first": True}, POSTS[:6:-1], True, POSTS[7], None),
    "older": ({"limit": 3, "newest_first": True, "after": POSTS[7]}, POSTS[6:3:-1], True, POSTS[4], POSTS[6]),
    "newer": ({"limit": 3, "newest_first": True, "before": POSTS[2]}, POSTS[5:2:-1], True, POSTS[3], POSTS[5]),
}
"""The arguments of a page, its ids, ``has_more``, ``next``, and ``previous``."""


@pytest.mark.backend(place=["all", "next", "previous"])
@pytest.mark.parametrize("place", PLACES)
def test_one_page(db: Session, statements: list[str], place: str) -> None:
    """A page has the rows after ``after``, or just before ``before``, in one order, and takes one statement."""
    options, *expected = PLACES[place]
    statements.clear()
    page = lookup.page(db, Post, **options)

    assert [ids(page), page.has_more, page.next, page.previous] == expected
    assert len(statements) == 1


def test_nothing_there(db: Session, statements: list[str]) -> None:
    """An empty table has one empty page, and the page after the last row is empty, too; it leads back to this row."""
    statements.clear()
    pages = lookup.page(db, Seat, limit=1), lookup.page(db, Post, limit=1, after=POSTS[-1])
    shown = [(list(page), page.has_more, page.next, page.previous) for page in pages]
    assert shown == [([], False, None, None), ([], False, None, f"{POSTS[-1]}~")]
    # a second statement distinguishes the end from an unknown id, unless the page has selected its row as well
    assert len(statements) == (3 if IS_FAST else 2)


@pytest.mark.backend
@pytest.mark.parametrize("listens", [False, True])
@pytest.mark.parametrize("options", [{}, {"newest_first": True}, {"cursor_execution_options": {"seen": True}}], ids=str)
def test_way_back_from_a_page_without_rows(
    db: Session, listen: Callable[..., None], options: dict[str, Any], listens: bool
) -> None:
    """The page at an end has no rows, and leads to the rows on the other side of its cursor, with the cursor's row."""
    if listens:
        listen(db, "do_orm_execute", lambda state: None)
    posts = POSTS[::-1] if options.get("newest_first") else POSTS
    end = lookup.page(db, Post, limit=3, after=posts[-1], **options)
    last = lookup.page(db, Post, limit=3, before=end.previous, **options)
    beginning = lookup.page(db, Post, limit=3, before=posts[0], **options)
    first = lookup.page(db, Post, limit=3, after=beginning.next, **options)

    assert [(list(page), page.has_more) for page in (end, beginning)] == [([], False)] * 2
    assert (end.next, beginning.previous) == (None, None)
    assert (ids(last), last.has_more, last.previous, last.next) == (posts[-3:], True, posts[-3], posts[-1])
    assert (ids(first), first.has_more, first.next, first.previous) == (posts[:3], True, posts[2], posts[0])


@pytest.mark.skipif(
    not IS_FAST, reason="if options of a SELECT are unknown, its filter hides the cursor of an empty page"
)
def test_way_back_past_a_filter(db: Session) -> None:
    """The row of the cursor is passed over if it no longer matches; a page without rows on both sides leads on."""
    videos, none = select(Post).where(Post.title == "post 5"), select(Post).where(Post.title == "none")
    end = lookup.page(db, videos, limit=3, after=POSTS[7])
    back = lookup.page(db, videos, limit=3, before=end.previous)
    there = lookup.page(db, none, limit=3, after=POSTS[7])
    and_back = lookup.page(db, none, limit=3, before=there.previous)
    again = lookup.page(db, none, limit=3, after=and_back.next)

    assert (ids(end), ids(back)) == ([], [POSTS[5]])
    assert [list(page) for page in (there, and_back, again)] == [[], [], []]
    assert (and_back.next, again.previous) == (POSTS[7], f"{POSTS[7]}~")
    with pytest.raises(PublicIdNotFound):
        lookup.page(db, Post, limit=3, before=f"{UNKNOWN}~")
    with pytest.raises(PublicIdNotFound):
        lookup.page(db, Post, limit=3, before=end.previous, where=Post.title == "post 5")


def test_page_is_a_sequence(db: Session) -> None:
    """A page can be used like a tuple of its rows, and is immutable."""
    page = lookup.page(db, Post, limit=4)

    assert (len(page), page[0], page[-1], page[1:3]) == (4, page.items[0], page.items[3], page.items[1:3])
    assert page[2] in page
    assert page == lookup.page(db, Post, limit=4)
    with pytest.raises(AttributeError):
        page.has_more = False


def test_rows_that_come_and_go(db: Session) -> None:
    """Rows inserted or deleted between two pages do not cause other rows to be repeated or skipped."""
    first = lookup.page(db, Post, limit=4, newest_first=True)
    for public_id in (POSTS[8], POSTS[4]):
        db.delete(lookup.get_one(db, Post, public_id))
    db.add(Post())
    db.commit()

    rest = [POSTS[5], *POSTS[3:0:-1]]
    assert ids(lookup.page(db, Post, limit=4, newest_first=True, after=first.next)) == rest


# --- cursors


NO_IDS: list[Any] = ["", "1", 1, True, POSTS[0].upper(), f"{POSTS[0]}\n", "a" * 10**7, b"pgpost", [POSTS[0]]]


@pytest.mark.parametrize("field", ["after", "before"])
@pytest.mark.parametrize("cursor", [UNKNOWN, POSTS[5], *NO_IDS], ids=lambda value: repr(value)[:30])
def test_cursor_of_no_row(db: Session, statements: list[str], field: str, cursor: Any) -> None:
    """A cursor whose row does not exist, or no longer exists, raises an error that names the argument.

    No statement is sent for a value that cannot be an id of the model.
    """
    db.delete(lookup.get_one(db, Post, POSTS[5]))
    db.commit()
    statements.clear()
    with pytest.raises(PublicIdNotFound) as caught:
        lookup.page(db, Post, limit=3, **{field: cursor})
    assert (caught.value.field, caught.value.value, caught.value.model) == (field, cursor, "Post")
    assert len(str(caught.value)) < 500
    assert len(statements) == (0 if cursor in NO_IDS else 2)


@pytest.mark.backend
@pytest.mark.parametrize("include_aliases", [False, True])
def test_place_that_the_session_hides(db: Session, include_aliases: bool) -> None:
    """A row that is marked as deleted, and hidden by SQLAlchemy's recipe, is not a valid cursor.

    It is one with the execution option by which the recipe leaves out its criteria.
    """

    @event.listens_for(db, "do_orm_execute")
    def _(state: ORMExecuteState) -> None:
        include_deleted = state.execution_options.get("include_deleted", False)
        if state.is_select and not state.is_column_load and not state.is_relationship_load and not include_deleted:
            visible = with_loader_criteria(Ticket, Ticket.used.is_(False), include_aliases=include_aliases)
            state.statement = state.statement.options(visible)

    db.add_all(Ticket() for _ in range(6))
    db.commit()
    first = lookup.page(db, Ticket, limit=2, attribute="code")
    rest = list(lookup.page(db, Ticket, limit=9, after=first.next, attribute="code"))
    first[-1].used = True
    db.commit()

    cursors = {"public_id": first[-1].public_id, "code": first[-1].code}
    for name, cursor in cursors.items():
        for field in ("after", "before"):
            with pytest.raises(PublicIdNotFound, match=f"{field}: no Ticket has the public id"):
                lookup.page(db, Ticket, limit=9, attribute=name, **{field: cursor})
    keep: Any = {"cursor_execution_options": {"include_deleted": True}}
    walks = [walk(db, Ticket, "after", start=cursor, attribute=name, **keep) for name, cursor in cursors.items()]
    assert [[ticket for page in pages for ticket in page] for pages in walks] == [rest, rest]
    back = [lookup.page(db, Ticket, limit=9, before=cursor, attribute=name, **keep) for name, cursor in cursors.items()]
    assert [*map(list, back)] == [[first[0]]] * 2
    with pytest.raises(PublicIdNotFound):
        lookup.page(db, Ticket, limit=2, after=rest[0].code, **keep)
    db.execute(update(Ticket).values(used=True))
    with pytest.raises(PublicIdNotFound):
        lookup.page(db, Ticket, limit=2, after="0" * 8, **keep)
    assert list(lookup.page(db, Ticket, limit=2, after=first[0].public_id, **keep)) == []


@pytest.mark.parametrize("include_aliases", [False, True])
def test_place_in_a_hierarchy_that_is_hidden(db: Session, statements: list[str], include_aliases: bool) -> None:
    """Criteria on the parent class of an inheriting model apply to a cursor whenever they apply to a page.

    SQLAlchemy applies them to subclasses only with ``include_aliases=True``.
    """
    lookup.get_one(db, Video, POSTS[3]).hidden = True
    db.commit()
    visible = with_loader_criteria(Post, Post.hidden.is_(False), include_aliases=include_aliases)
    rows = select(Video).options(visible)

    for options, expected in (
        ({"limit": 2, "after": POSTS[3]}, [POSTS[6], POSTS[9]]),
        ({"limit": 2, "before": POSTS[3]}, [POSTS[0]]),
        ({"limit": 1, "after": POSTS[3], "newest_first": True}, [POSTS[0]]),
    ):
        if include_aliases:
            with pytest.raises(PublicIdNotFound):
                lookup.page(db, rows, **options)
        else:
            assert ids(lookup.page(db, rows, **options)) == expected
    assert ids(lookup.page(db, rows, limit=9)) == [POSTS[0], *POSTS[3:4] * (not include_aliases), POSTS[6], POSTS[9]]
    statements.clear()
    assert ids(lookup.page(db, rows, limit=2, after=POSTS[9])) == []
    assert len(statements) == (2 if IS_FAST else 1)
    with pytest.raises(PublicIdNotFound):
        lookup.page(db, rows, limit=2, after=POSTS[1])

    @event.listens_for(db, "do_orm_execute")
    def _(state: ORMExecuteState) -> None:
        state.statement = state.statement.options(visible)

    with pytest.raises(PublicIdNotFound):
        lookup.page(db, select(Post), limit=2, after=POSTS[3])


@pytest.mark.parametrize("limit", [0, True, "3", 1.0, None, 2**31 - 1, 10**5000], ids=type)
def test_limit(limit: Any) -> None:
    """The limit is an integer of at least one, and at most what every driver can send."""
    with (
        Session() as session,
        pytest.raises(InvalidPage, match=r"limit is .*, expected .* from 1 to 2147483646") as raised,
    ):
        lookup.page(session, Post, limit=limit)
    assert raised.value.field == "limit"


def test_two_cursors() -> None:
    """A page accepts either ``after`` or ``before``, not both."""
    with Session() as session, pytest.raises(InvalidPage, match="both") as raised:
        lookup.page(session, Post, limit=1, after=POSTS[0], before=POSTS[5])
    assert raised.value.field == "before"


# --- statements of the caller


def test_conditions_and_joins(db: Session) -> None:
    """Rows that the caller's statement excludes do not count towards the limit; it may select from an alias."""
    rows = select(Post).where(Post.kind == "video").order_by(Post.title).order_by(None)
    newest = select(func.max(Comment.id)).group_by(Comment.post_id)
    other = aliased(Post)
    statements = [
        rows,
        rows.join(Post.comments).where(Comment.id.in_(newest)),
        rows.join(Post.comments).where(Comment.id.in_(newest)).options(contains_eager(Post.comments)),
        select(other).where(other.kind == "video"),
    ]
    pages = [ids(lookup.page(db, statement, limit=2, after=POSTS[1])) for statement in statements]
    assert pages == [[POSTS[3], POSTS[6]]] * 4


@pytest.mark.backend
@pytest.mark.parametrize("newest_first", [False, True])
def test_joined_collections(db: Session, statements: list[str], newest_first: bool) -> None:
    """Rows that are loaded with their collections count once each."""
    db.expunge_all()
    statements.clear()
    rows = select(Post).options(joinedload(Post.comments))
    page = lookup.page(db, rows, limit=4, after=POSTS[5], newest_first=newest_first)

    assert ids(page) == (POSTS[4:0:-1] if newest_first else POSTS[6:])
    assert [len(post.comments) for post in page] == [2] * 4
    assert page.has_more == newest_first
    assert len(statements) <= 2


@pytest.mark.backend
def test_join_that_repeats_rows(db: Session) -> None:
    """A one-to-many join may make pages shorter, but skips and repeats no row, even with a condition on the join."""
    joined = select(Post).join(Post.comments)
    listed = select(Post).where(Post.id == Comment.post_id)
    forms: Any = [(joined, {}), (joined, {"where": Comment.id > 0}), (listed, {"where": Comment.id > 0})]
    walks = [walk(db, rows, "after", limit=3, **options) for rows, options in forms]
    assert [[post.public_id for page in pages for post in page] for pages in walks] == [POSTS] * 3
    pages = walk(db, joined.distinct(), "after", limit=3)
    assert [[post.public_id for post in page] for page in pages] == [POSTS[:3], POSTS[3:6], POSTS[6:9], POSTS[9:]]


def test_options_of_the_caller(db: Session, statements: list[str]) -> None:
    """Loader options and execution options are kept; a public id that is not loaded needs no statement of its own."""
    seen: list[Any] = []
    event.listen(db, "do_orm_execute", lambda state: seen.append(state.execution_options.get("mine")))
    db.expunge_all()
    statements.clear()
    rows = select(Post).options(load_only(Post.title, raiseload=True)).execution_options(mine="yes")
    page = lookup.page(db, rows, limit=2, after=POSTS[0])

    assert [post.title for post in page] == ["post 1", "post 2"]
    assert (page.next, page.previous) == (POSTS[2], POSTS[1])
    assert len(statements) == 1
    assert set(seen) == {"yes"}


def test_options_of_a_listener(db: Session) -> None:
    """A listener of the session may also exclude the public id from the loaded attributes."""

    @event.listens_for(db, "do_orm_execute")
    def _(state: ORMExecuteState) -> None:
        if isinstance(state.statement, Select) and state.statement.column_descriptions[0]["expr"] is Post:
            state.statement = state.statement.options(load_only(Post.title, raiseload=True))

    db.expunge_all()
    page = lookup.page(db, Post, limit=2, after=POSTS[0])

    assert (page.next, page.previous) == (POSTS[2], POSTS[1])


def test_public_id_that_is_deferred(db: Session, statements: list[str]) -> None:
    """A page takes one statement even if the public id is deferred; otherwise, it selects no column twice."""
    db.add_all([Late(), Late(), Late()])
    db.commit()
    ids = db.scalars(select(Late.public_id).order_by(Late.id)).all()
    db.expunge_all()
    statements.clear()
    page = lookup.page(db, Late, limit=1, after=ids[0])
    assert (page.next, page.previous) == (ids[1], ids[1])
    lookup.page(db, Post, limit=1)

    assert len(statements) == 2
    assert statements[1].split("FROM")[0].count("post.public_id") == 1


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (lambda: select(Post).order_by(Post.title), "ORDER BY"),
        (lambda: select(Post).limit(3), "LIMIT"),
        (lambda: select(Post).offset(3), "OFFSET"),
        (lambda: select(Post.title), "selects title"),
        (lambda: select(Post, Comment), "selects Post, Comment"),
        (lambda: select(Post.__table__), "of one model"),
        (lambda: select(Post).union(select(Post)), "not a mapped class"),
    ],
)
def test_statements_that_are_refused(rows: Callable[[], Any], message: str) -> None:
    """A statement with an order, a limit or an offset, or of anything but one model, is rejected."""
    with Session() as session, pytest.raises(ConfigurationError, match=message):
        lookup.page(session, rows(), limit=3)


# --- models of all kinds


def test_inheritance(db: Session) -> None:
    """A page of a model includes rows of its subclasses; a cursor must be an id of the requested model."""
    assert [type(post) for post in lookup.page(db, Post, limit=4)] == [Video, Post, Post, Video]
    assert ids(lookup.page(db, Video, limit=2, after=POSTS[0])) == [POSTS[3], POSTS[6]]
    assert ids(lookup.page(db, Video, limit=2, before=POSTS[6])) == [POSTS[0], POSTS[3]]
    for model in (Video, Reel):
        with pytest.raises(PublicIdNotFound):
            lookup.page(db, model, limit=2, after=POSTS[1])


@pytest.mark.backend
@pytest.mark.parametrize("newest_first", [False, True])
def test_composite_key(db: Session, newest_first: bool) -> None:
    """A composite key is compared column by column, in its own order."""
    db.add_all(Seat(hall=hall, row=row, place=place) for place in "cab" for row in (2, 10, 1) for hall in "yx")
    db.commit()
    pages = walk(db, Seat, "after", limit=4, newest_first=newest_first)
    found = [(seat.hall, seat.row, seat.place) for page in pages for seat in page]

    assert found == sorted(found, reverse=newest_first)
    assert len(found) == 18
    last = pages[-1][-1].public_id
    backwards = walk(db, Seat, "before", limit=4, newest_first=newest_first, start=last)
    assert [seat for page in reversed(backwards) for seat in page] == [seat for page in pages for seat in page][:-1]


@pytest.mark.filterwarnings("ignore:An alias is being generated automatically:sqlalchemy.exc.SAWarning")
def test_rows_that_show_no_public_id(db: Session) -> None:
    """SQLAlchemy's automatic alias of a joined subclass hides the ids; the remedy in the error returns all rows."""
    with pytest.raises(ConfigurationError, match=r"has no public id.*aliased\(Subclass, flat=True\)"):
        lookup.page(db, select(Post).outerjoin(Video), limit=1)
    video = aliased(Video, flat=True)
    rows = select(Post).outerjoin(video, video.id == Post.id)
    assert [post.public_id for page in walk(db, rows, "after") for post in page] == POSTS
