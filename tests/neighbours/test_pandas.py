"""pandas: what it reads for a public id, and how it inserts rows that get theirs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from neighbours.guide import examples
from sqlalchemy import Engine, ForeignKey, String, create_engine, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from sqlalchemy_public_id import InvalidPublicId, NanoId, PublicIdMixin, Uuid7, public_ref


class Base(DeclarativeBase): ...


class Author(PublicIdMixin, Base):
    __tablename__ = "author"
    __public_id__ = NanoId(prefix="nbaut")
    name: Mapped[str] = mapped_column(String(50))


class Post(PublicIdMixin, Base):
    __tablename__ = "post"
    __public_id__ = Uuid7(prefix="nbpost")
    title: Mapped[str] = mapped_column(String(50))
    author_id: Mapped[int | None] = mapped_column(ForeignKey(Author.id))
    author: Mapped[Author | None] = relationship()
    author_public_id: Mapped[str | None] = public_ref("author")


@pytest.fixture
def posts(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path}/posts.db")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Post(title="first", author=Author(name="Ada")))
        session.commit()
    yield engine
    engine.dispose()


def test_examples_of_the_guide(posts: Engine) -> None:
    """The query reads public ids, and the rows of the frame get theirs, with a missing author as NULL."""
    read, write = examples("pandas")
    with Session(posts) as session:
        ada = session.scalars(select(Author.public_id)).one()
        names: dict[str, Any] = {"pd": pd, "select": select, "insert": insert, "session": session, "Post": Post}
        exec(read, names)
        frame = names["frame"]
        assert frame["author_public_id"].tolist() == [ada]
        assert Post.public_id.type.id_format.is_valid(frame["public_id"][0])

        names["frame"] = pd.DataFrame({"title": ["second", "third"], "author_public_id": [ada, None]})
        exec(write, names)
        stored = session.execute(select(Post.title, Post.author_public_id).order_by(Post.id)).all()
        assert stored == [("first", ada), ("second", ada), ("third", None)]


def test_names_of_tables(posts: Engine) -> None:
    """Given the name of a table or textual SQL, pandas knows no types, and reads the stored number."""
    for frame in (pd.read_sql_table("post", posts), pd.read_sql("SELECT * FROM post", posts)):
        assert isinstance(frame["public_id"][0], bytes)
    assert isinstance(pd.read_sql_table("author", posts)["public_id"][0], str)


def test_to_sql_sends_no_ids(posts: Engine) -> None:
    """``to_sql`` inserts into a table that it reflects, so that the rows get no ids."""
    with pytest.raises(pd.errors.DatabaseError, match=r"NOT NULL constraint failed: post\.public_id"):
        pd.DataFrame({"title": ["second"]}).to_sql("post", posts, if_exists="append", index=False)


def test_missing_values(posts: Engine) -> None:
    """NaN is no id, and the error says so."""
    rows: Any = pd.DataFrame({"title": ["a", "b"], "author_public_id": ["nbaut_0123456789ab", None]}).to_dict("records")

    with Session(posts) as session, pytest.raises(InvalidPublicId, match=re.escape("nan is not a public id")):
        session.execute(insert(Post), rows)
