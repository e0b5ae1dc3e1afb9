"""Ids of two formats are refused in one column of numbers, and numbers where SQL needs the text of an id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import (
    ARRAY,
    ForeignKey,
    Integer,
    MetaData,
    String,
    all_,
    any_,
    case,
    exists,
    func,
    insert,
    intersect,
    literal,
    null,
    select,
    type_coerce,
    union,
    union_all,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, aliased, mapped_column, relationship
from support.marks import on

from sqlalchemy_public_id import (
    ConfigurationError,
    NanoId,
    PublicIdColumnMixin,
    PublicIdMixin,
    Snowflake,
    TypedId,
    Uuid4,
    Uuid7,
    public_ref,
)
from sqlalchemy_public_id.errors import InvalidKey

pytestmark = pytest.mark.backend


class Base(DeclarativeBase):
    metadata = MetaData()


class PostId(TypedId, prefix="mixpost", format=Uuid7()): ...


class PhotoId(TypedId, prefix="mixphoto", format=Uuid7()): ...


class Post(PublicIdMixin[PostId], Base):
    __tablename__ = "mix_post"
    name: Mapped[str | None] = mapped_column(String(20))


class Photo(PublicIdMixin[PhotoId], Base):
    __tablename__ = "mix_photo"


class Old(PublicIdMixin, Base):
    __tablename__ = "mix_old"
    __public_id__ = Uuid4(encoding="hyphenated")


class New(PublicIdMixin, Base):
    __tablename__ = "mix_new"
    __public_id__ = Uuid7(prefix="mixnew").accepting(Uuid4(encoding="hyphenated"))


class Song(PublicIdMixin, Base):
    __tablename__ = "mix_song"
    __public_id__ = NanoId(prefix="mixsong")


class Film(PublicIdMixin, Base):
    __tablename__ = "mix_film"
    __public_id__ = Uuid7(prefix="mixfilm", storage="text")


class Parcel(PublicIdColumnMixin, Base):
    __tablename__ = "mix_parcel"
    __public_id__ = Snowflake(machine_id=1)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)


class Comment(PublicIdMixin, Base):
    __tablename__ = "mix_comment"
    post_id: Mapped[int | None] = mapped_column(ForeignKey("mix_post.id"))
    photo_id: Mapped[int | None] = mapped_column(ForeignKey("mix_photo.id"))
    post: Mapped[Post | None] = relationship()
    photo: Mapped[Photo | None] = relationship()
    post_public_id: Mapped[PostId | None] = public_ref("post")
    photo_public_id: Mapped[PhotoId | None] = public_ref("photo")


POSTS, PHOTOS = select(Post.public_id), select(Photo.public_id)


def either() -> Any:
    return func.coalesce(Comment.post_public_id, Comment.photo_public_id)


MIXED: dict[str, Callable[[], Any]] = {
    "union_all": lambda: union_all(POSTS, PHOTOS),
    "union": lambda: union(PHOTOS, POSTS),
    "intersect": lambda: intersect(POSTS, PHOTOS),
    "the second column": lambda: select(Post.id, Post.public_id).union(select(Photo.id, Photo.public_id)),
    "a nested union": lambda: union_all(union_all(POSTS, POSTS), union_all(POSTS, PHOTOS)),
    "a union in a subquery": lambda: select(union_all(POSTS, PHOTOS).subquery().c.public_id),
    "a union in a CTE": lambda: select(func.max(union_all(POSTS, PHOTOS).cte().c.public_id)),
    "a union as the rows of a model": lambda: select(
        aliased(
            Post,
            union_all(
                select(Post.id, Post.public_id, Post.name), select(Photo.id, Photo.public_id, null().label("name"))
            ).subquery(),
        )
    ),
    "numbers and text": lambda: union_all(POSTS, select(Song.public_id)),
    "text and numbers": lambda: union_all(select(Song.public_id), POSTS),
    "coalesce": lambda: select(either()),
    "a label": lambda: select(either().label("about")),
    "max of two": lambda: select(func.max(func.coalesce(Post.public_id, Photo.public_id))),
    "CASE": lambda: select(case((Comment.post_id == 1, Comment.post_public_id), else_=Comment.photo_public_id)),
    "the first of a CASE": lambda: select(case((Comment.post_id == 1, Comment.photo_public_id), else_=either())),
    "==": lambda: select(Post).where(Post.public_id == Photo.public_id),
    "!=": lambda: select(Post).where(Post.public_id != Photo.public_id),
    "<": lambda: select(Post).where(Post.public_id < Photo.public_id),
    "ON": lambda: select(Post).join(Photo, Photo.public_id == Post.public_id),
    "numbers == text": lambda: select(Post).where(Post.public_id == Song.public_id),
    "text == numbers": lambda: select(Song).where(Song.public_id == Post.public_id),
    "a reference": lambda: select(Comment).where(Comment.post_public_id == Photo.public_id),
    "IN": lambda: select(Post).where(Post.public_id.in_(PHOTOS)),
    "NOT IN": lambda: select(Post).where(Post.public_id.not_in(PHOTOS)),
    "IN a union": lambda: select(Post).where(Post.public_id.in_(union_all(POSTS, PHOTOS))),
    "a scalar subquery": lambda: select(Post).where(Post.public_id == PHOTOS.limit(1).scalar_subquery()),
    "a union that is compared": lambda: select(Post).where(either() == "mixpost_036twi214qwj7mgsvq83nm8wf"),
    "EXISTS": lambda: select(exists().where(Post.public_id == Photo.public_id)),
}


@pytest.fixture
def rows(session: Session, create: Callable[[MetaData], None]) -> Any:
    """A post and a photo with a comment each, and a row of every other model."""
    create(Base.metadata)
    post, photo = Post(name="post"), Photo()
    session.add_all([post, photo, Comment(post=post), Comment(photo=photo), Old(), New(), Song(), Film()])
    session.flush()
    return post, photo


@pytest.mark.parametrize("way", MIXED)
def test_two_formats(session: Session, way: str, rows: Any) -> None:
    """Ids of two formats, one of which is stored as numbers, are refused before a statement is sent."""
    with pytest.raises(ConfigurationError, match=r"has ids of two formats.*storage=\"text\""):
        session.execute(MIXED[way]())


def test_harmless(session: Session, rows: Any) -> None:
    """Ids of one format, of text formats, and of formats that write or accept the same ids may meet."""
    post, photo = rows
    new, old = session.scalars(select(New.public_id)).one(), session.scalars(select(Old.public_id)).one()
    song, film = session.scalars(select(Song.public_id)).one(), session.scalars(select(Film.public_id)).one()
    other = aliased(Post)

    assert session.scalars(union_all(POSTS, select(other.public_id))).all() == [post.public_id] * 2
    assert session.scalars(select(Post).join(other, other.public_id == Post.public_id)).one() is post
    assert session.scalars(select(Post).where(Post.public_id.in_(select(other.public_id)))).one() is post
    assert {*session.scalars(union_all(select(Song.public_id), select(Film.public_id)))} == {song, film}
    assert (
        session.scalars(select(func.coalesce(Song.public_id, select(Film.public_id).scalar_subquery()))).one() == song
    )
    shown = session.scalars(union_all(select(New.public_id), select(Old.public_id))).all()
    assert {*shown} == {new, Uuid7(prefix="mixnew").accepting(Uuid4(encoding="hyphenated")).validate(old)}
    assert session.scalar(select(func.count()).select_from(union_all(POSTS, PHOTOS).subquery())) == 2
    with_photo = select(case((Photo.public_id == photo.public_id, Post.public_id))).join_from(Comment, Post)
    assert session.scalar(with_photo.join(Photo, Photo.id == Comment.id)) == post.public_id
    assert session.scalar(select(func.coalesce(null(), Post.public_id, type_=Post.public_id.type))) == post.public_id
    named = union_all(select(Post.name, Post.public_id), select(null(), other.public_id))
    assert {*session.scalars(select(named.subquery().c.public_id))} == {post.public_id}


def test_numbers_on_purpose(session: Session, rows: Any) -> None:
    """``type_coerce()`` compares the numbers of two formats."""
    same = select(Post).where(Post.public_id == type_coerce(Photo.public_id, Post.public_id.type))

    assert session.scalars(same).all() == []


def test_columns_in_lists(database: str) -> None:
    """Building a comparison of columns raises nothing: ``in`` compares a column with each item of a list."""
    columns = [Photo.__table__.c.public_id, Song.__table__.c.public_id, Song.__table__.c.id]

    assert Post.__table__.c.public_id not in columns
    assert Song.__table__.c.public_id in columns


# --- text

OF_TEXT: dict[str, Callable[[Any], Any]] = {
    "like": lambda column: column.like("mix%"),
    "not_ilike": lambda column: column.not_ilike("mix%"),
    "startswith": lambda column: column.startswith("mixpost_"),
    "istartswith": lambda column: column.istartswith("mixpost_"),
    "endswith": lambda column: column.endswith("0"),
    "contains": lambda column: column.contains("post"),
    "icontains": lambda column: column.icontains("post"),
    "regexp_match": lambda column: column.regexp_match("^mix"),
    "regexp_replace": lambda column: column.regexp_replace("^mix", ""),
    "match": lambda column: column.match("mix"),
    "concat": lambda column: column.concat("x"),
    "+": lambda column: column + "x",
    "reversed +": lambda column: "x" + column,
}


@pytest.mark.parametrize("way", OF_TEXT)
@pytest.mark.parametrize("column", [(Post, "public_id"), (Parcel, "public_id"), (Comment, "post_public_id")])
def test_operators_of_text(column: tuple[Any, str], way: str, database: str) -> None:
    """Operators of text are refused for numbers, whose text the database does not know."""
    with pytest.raises(ConfigurationError, match=r"stores numbers.*storage=\"text\""):
        OF_TEXT[way](getattr(*column))


def test_operators_of_stored_text(session: Session, rows: Any) -> None:
    """Operators of text work with ids that are stored as text; numbers are ordered."""
    post, _ = rows
    assert session.scalar(select(Film.public_id.startswith("mixfilm_")))
    assert str(session.scalar(select("x" + Song.public_id))).startswith("xmixsong_")
    assert session.scalars(select(Post).where(Post.public_id <= post.public_id)).one() is post


# --- keys


@on("sqlite", "mysql")
@pytest.mark.parametrize("model", [Song, Post])
def test_ids_and_keys(session: Session, model: Any, rows: Any) -> None:
    """A statement that compares an id with a key or another integer is refused, whichever is on the left."""
    for condition in (
        model.public_id == Comment.post_id,
        Comment.post_id == model.public_id,
        model.public_id != Parcel.number,
        Comment.id.between(model.public_id, 5),
    ):
        with pytest.raises(InvalidKey):
            session.execute(select(model.id).where(condition))


def test_ids_that_are_numbers(session: Session, rows: Any) -> None:
    """A Snowflake is stored as a number, and may be compared with one."""
    session.execute(insert(Parcel).values(number=5))

    assert session.scalars(select(Parcel.number).where(Parcel.public_id > Parcel.number)).all() == [5]


# --- arrays


@on("postgresql")
@pytest.mark.parametrize("model", [Post, Song, Parcel])
def test_any(session: Session, model: Any, rows: Any) -> None:
    """``any_()``, ``all_()`` and ``func.any()`` compare ids with a list, a malformed one among them matches no row."""
    if model is Parcel:
        session.execute(insert(Parcel).values(number=5))
    public_id: Any = session.scalars(select(model.public_id)).one()
    column = model.public_id
    other = model.public_id.type.next_id()

    def found(condition: Any) -> bool:
        return bool(session.scalars(select(model).where(condition)).all())

    assert found(column == any_([public_id, "nonsense"]))
    assert not found(column == any_([other, "nonsense"]))
    assert found(column != all_([other, "nonsense"]))
    assert not found(column != all_([other, public_id]))
    assert found(column == func.any([other, public_id]))
    assert found(column == func.ANY([other, public_id, "nonsense"]))
    assert found(any_(literal([public_id], ARRAY(column.type))) == column)
    assert found(column.in_([public_id, "nonsense"]))


@on("postgresql", "mysql")
def test_any_of_a_query(session: Session, rows: Any) -> None:
    """The ids of a query have the format of the column."""
    assert session.scalars(select(Post).where(Post.public_id == any_(POSTS.scalar_subquery()))).all()
    with pytest.raises(ConfigurationError, match="two formats"):
        session.execute(select(Post).where(Post.public_id == any_(PHOTOS.scalar_subquery())))
