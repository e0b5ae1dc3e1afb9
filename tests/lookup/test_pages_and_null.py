"""Pages in the order of a column whose type turns values into ``None``: only the database knows what is NULL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import JSON, MetaData, String, TypeDecorator, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.marks import on

from sqlalchemy_public_id import PublicIdMixin, lookup

pytestmark = pytest.mark.backend


class EmptyIsNone(TypeDecorator[str]):
    """Legacy data, where an empty text stands for none."""

    impl = String(20)
    cache_ok = True

    def process_result_value(self, value: str | None, dialect: object) -> str | None:
        return value or None


class Masked(TypeDecorator[str]):
    """A type that loses something, but no value: a control."""

    impl = String(20)
    cache_ok = True

    def process_result_value(self, value: str | None, dialect: object) -> str | None:
        return value and f"***{value[-1]}"


class Base(DeclarativeBase):
    metadata = MetaData()


class Product(PublicIdMixin, Base):
    __tablename__ = "product"
    color: Mapped[str | None] = mapped_column(EmptyIsNone)
    label: Mapped[str | None] = mapped_column(Masked)
    data: Mapped[Any] = mapped_column(JSON().with_variant(JSONB(), "postgresql"))


@pytest.fixture(autouse=True)
def _tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


@pytest.fixture
def products(session: Session) -> Session:
    values: list[Any] = ["", "a", "b", None]
    ranks: list[Any] = [{"rank": None}, {"rank": 1}, {"rank": 2}, {}]
    session.add_all([Product(color=values[n % 4], label=values[n % 4], data=ranks[n % 4]) for n in range(8)])
    session.commit()
    return session


def keys_by_pages(session: Session, order: Any) -> list[int]:
    """Return the keys of pages of one row each, so that every row ends a page; of ten pages at most."""
    keys: list[int] = []
    after = None
    for _ in range(10):
        page = lookup.page(session, Product, limit=1, after=after, order_by=order)
        keys += [product.id for product in page]
        after = page.next
        if after is None:
            break
    return keys


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(Product.label, id="masked"),
        pytest.param(Product.color, id="empty is none"),
        pytest.param(Product.color.desc(), id="empty is none, descending"),
    ],
)
def test_values_that_become_none(products: Session, order: Any) -> None:
    """Pages show every row once, in the order of the database, if a type turns a value into ``None``."""
    assert list(products.scalars(select(Product.id).order_by(order, Product.id))) == keys_by_pages(products, order)


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(Product.data["rank"], id="rank"),
        pytest.param(Product.data["rank"].desc(), id="rank, descending"),
    ],
)
@on("sqlite", "postgresql")  # MySQL and MariaDB compare JSON with text
def test_null_of_json(products: Session, order: Any) -> None:
    """Pages show every row once, in the order of the database, if a value is the ``null`` of JSON."""
    assert list(products.scalars(select(Product.id).order_by(order, Product.id))) == keys_by_pages(products, order)
