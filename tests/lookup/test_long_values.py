"""Pages sorted by values of which a database sorts only the beginning, or in no order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import JSON, Index, Integer, LargeBinary, MetaData, String, Text, func, select, true, type_coerce
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.marks import on

from sqlalchemy_public_id import ConfigurationError, PublicIdMixin, lookup

pytestmark = [pytest.mark.backend, pytest.mark.usefixtures("rows")]


class Base(DeclarativeBase):
    metadata = MetaData()


def padded(length: int | None) -> Any:
    """Return a type with a collation whose order MySQL limits, too."""
    return (
        Text().with_variant(mysql.LONGTEXT(collation="utf8mb4_general_ci"), "mysql", "mariadb")
        if (length is None)
        else String(length).with_variant(mysql.VARCHAR(length, collation="utf8mb4_general_ci"), "mysql", "mariadb")
    )


class Article(PublicIdMixin, Base):
    __tablename__ = "article"
    __table_args__ = (
        Index(None, "kind", "address"),
        Index(None, "address"),
        Index(None, "text", mysql_length=10, mariadb_length=10),
    )
    text: Mapped[str | None] = mapped_column(padded(None))
    summary: Mapped[str] = mapped_column(padded(2000))
    content: Mapped[bytes] = mapped_column(LargeBinary(3000))
    kind: Mapped[int]
    address: Mapped[str] = mapped_column(padded(300))
    short: Mapped[str] = mapped_column(padded(20))
    data: Mapped[Any] = mapped_column(JSON)


ROWS = 20


@pytest.fixture
def rows(create: Callable[[MetaData], None], session: Session) -> None:
    create(Base.metadata)
    for number in range(ROWS):
        value = "a" * 1100 + "edcba"[number % 5]
        data = [[number % 3], {"a": number % 2}, number % 4][number % 3]
        session.add(
            Article(
                text=value,
                summary=value,
                content=value.encode(),
                address=f"{'a' * 290}{number % 5}",
                short=str(number % 2),
                kind=number % 3,
                data=data,
            )
        )
    session.commit()


@pytest.mark.parametrize("name", ["text", "summary", "content", "address"])
@pytest.mark.parametrize("is_descending", [False, True])
@pytest.mark.parametrize("kind", [None, 1])
def test_long_values(session: Session, name: str, is_descending: bool, kind: int | None) -> None:
    """Pages have every row once, although MySQL and MariaDB sort only the beginning of a long value."""
    attribute = getattr(Article, name)
    order = attribute.desc() if is_descending else attribute
    where = true() if kind is None else Article.kind == kind
    ids: list[int] = []
    cursor: str | None = None
    for _ in range(ROWS):
        page = lookup.page(session, Article, limit=3, order_by=order, after=cursor, where=where)
        ids += [row.id for row in page]
        if (cursor := page.next) is None:
            break

    assert sorted(ids) == list(session.scalars(select(Article.id).where(where).order_by(Article.id)))


def test_expression_of_a_long_value(session: Session) -> None:
    """A concatenation has the type of its first part, and is longer than that."""
    order = Article.short.concat(Article.text)
    first = lookup.page(session, Article, limit=ROWS - 1, order_by=order)
    rest = lookup.page(session, Article, limit=ROWS, order_by=order, after=first.next)

    assert sorted(row.id for row in (*first, *rest)) == list(range(1, ROWS + 1))


@on("mysql", "mariadb")
def test_function_without_a_type(session: Session) -> None:
    """A function of a long text is refused unless its type is named: the text might be sorted by its beginning only."""
    for text in (Article.text, Article.summary):
        with pytest.raises(ConfigurationError, match=r"name the type, as in func.lower\(Ticket.body, type_=String\)"):
            lookup.page(session, Article, limit=3, order_by=func.lower(text))
    first = lookup.page(session, Article, limit=ROWS - 1, order_by=func.lower(Article.text, type_=String))
    rest = lookup.page(session, Article, limit=3, order_by=func.lower(Article.text, type_=String), after=first.next)

    assert sorted(row.id for row in (*first, *rest)) == list(range(1, ROWS + 1))
    assert len(lookup.page(session, Article, limit=3, order_by=func.lower(Article.short))) == 3
    assert len(lookup.page(session, Article, limit=3, order_by=func.length(Article.text, type_=Integer))) == 3


@on("mysql", "mariadb")
@pytest.mark.parametrize(
    ("order", "sorted_by"),
    [
        (Article.short, "article.short ASC"),
        (func.lower(Article.text, type_=String(50)), "lower(article.text) ASC"),
        (type_coerce(Article.summary, String(255)), "article.summary ASC"),
        (func.lower(Article.text, type_=String(256)), "substr(lower(article.text), 1, 255) ASC"),
        (func.coalesce(Article.short, Article.text), "substr(coalesce(article.short, article.text), 1, 255) ASC"),
    ],
    ids=["short", "function", "type_coerce", "long function", "coalesce"],
)
def test_length_that_is_named(session: Session, statements: list[str], order: Any, sorted_by: str) -> None:
    """A value of up to 255 characters is sorted as it is, by an index; an expression may say its length."""
    lookup.page(session, Article, limit=3, order_by=order)

    assert f"ORDER BY {sorted_by}, article.id ASC" in statements[0]


@on("mysql")
def test_json(session: Session) -> None:
    """JSON, whose arrays and objects MySQL does not sort, is refused; a value of it is not."""
    with pytest.raises(ConfigurationError, match=r"sort by a text or a number in it, such as .*as_integer\(\)"):
        lookup.page(session, Article, limit=3, order_by=Article.data)

    assert len(lookup.page(session, Article, limit=3, order_by=Article.data["a"].as_integer())) == 3
