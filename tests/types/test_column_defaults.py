"""The column default, when it is called outside an INSERT that SQLAlchemy executes."""

from __future__ import annotations

from inspect import signature
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, String, Table, create_engine, event, insert, inspect, select
from sqlalchemy.orm import DeclarativeBase

from sqlalchemy_public_id import NanoId, PublicIdMixin, TypedId, Uuid7


class Base(DeclarativeBase):
    metadata = MetaData()


class ThingId(TypedId, prefix="defaulted"): ...


class Text(PublicIdMixin, Base):
    __tablename__ = "text"
    __public_id__ = NanoId(prefix="defaulted_text")


class Native(PublicIdMixin, Base):
    __tablename__ = "native"
    __public_id__ = Uuid7()


class Typed(PublicIdMixin[ThingId], Base):
    __tablename__ = "typed"


CALLED_WITH: dict[str, Any] = {
    "None, as the forms of admin packages do": None,
    "an object, as sqlalchemy_utils.force_instant_defaults() does": Text(),
    "a context that compiled nothing": SimpleNamespace(isinsert=True),
}


@pytest.mark.parametrize("context", CALLED_WITH.values(), ids=CALLED_WITH)
@pytest.mark.parametrize("model", [Text, Native, Typed])
def test_default_makes_an_id(model: Any, context: Any) -> None:
    """The column default generates an id whatever argument it is called with."""
    column = model.__table__.c.public_id

    assert isinstance(column.default.arg(context), column.type.python_type)
    assert column.type.id_format.is_valid(column.default.arg(context))


@pytest.mark.parametrize("model", [Text, Native, Typed])
def test_default_looks_like_a_function(model: Any) -> None:
    """The column default has a name and parameters, which packages that make schemas read."""
    default = default_of(model)

    assert default.__name__ == "next_id"
    assert list(signature(default).parameters) == ["context"]
    assert type(default).__name__ == "IdDefault"


def test_instant_defaults() -> None:
    """A listener that applies all defaults to a new object sets its id, and a given id replaces it."""

    class Instant(DeclarativeBase): ...

    class Order(PublicIdMixin, Instant):
        __tablename__ = "order"

    def fill(target: Any, args: Any, kwargs: Any) -> None:
        for name, column in inspect(type(target)).columns.items():
            if column.default is not None:
                setattr(target, name, column.default.arg(target))

    event.listen(Order, "init", fill)

    assert NanoId().is_valid(vars(Order())["public_id"])
    assert Order(public_id="a" * 12).public_id == "a" * 12


def default_of(model: Any) -> Any:
    return model.__table__.c.public_id.default.arg


@pytest.mark.parametrize("order", [["copied", "public_id"], ["public_id", "copied"]], ids=" before ".join)
@pytest.mark.parametrize("rows", [1, 3])
def test_history_table_with_an_id_of_its_own(order: list[str], rows: int) -> None:
    """A column with another table's copied default stays NULL, and the table's own public id is generated."""
    columns = {
        "copied": Column("copied", String(60), default=default_of(Text)),
        "public_id": Column("public_id", Native.__table__.c.public_id.type, default=default_of(Native)),
    }
    history = Table("history", MetaData(), Column("key", Integer, primary_key=True), *map(columns.get, order))
    engine = create_engine("sqlite://")
    history.create(engine)
    with engine.begin() as connection:
        connection.execute(insert(history), [{"key": key} for key in range(rows)])
        found = connection.execute(select(history.c.copied, history.c.public_id)).all()

    assert [row.copied for row in found] == [None] * rows
    assert len({row.public_id for row in found} - {None}) == rows
