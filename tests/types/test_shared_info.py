"""Columns to which a program passes one dictionary as ``info``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Column, Integer, String, Table
from sqlalchemy.orm import DeclarativeBase, Session, configure_mappers, mapped_column
from support.shapes import new_base

from sqlalchemy_public_id import NanoId, PublicIdType, bigint_key, lookup, public_id_column
from sqlalchemy_public_id.columns import max_retries
from sqlalchemy_public_id.tokens import Token, token_column

INFO = {"label": "shown in forms"}


def with_columns(base: Any, name: str, format: NanoId) -> Any:
    column = public_id_column(format, info=INFO)
    return type(name, (base,), {"__tablename__": name.lower(), "id": bigint_key(info=INFO), "public_id": column})


def on_tables(base: Any, name: str, format: NanoId) -> Any:
    column = Column("public_id", PublicIdType(format), default=format.generate, unique=True, nullable=False, info=INFO)
    return type(
        name,
        (base,),
        {"__table__": Table(name.lower(), base.metadata, Column("id", Integer, primary_key=True), column)},
    )


@pytest.mark.parametrize("declare", [with_columns, on_tables])
def test_models(session: Session, declare: Callable[[Any, str, NanoId], Any]) -> None:
    """Each model gets ids of its own, under its prefix: its column does not count as a copy of the other one."""
    base: type[DeclarativeBase] = new_base()
    models = [declare(base, name, NanoId(prefix=name.lower())) for name in ("Infoa", "Infob")]
    base.metadata.create_all(session.get_bind())
    objects = [model() for model in models]
    session.add_all(objects)
    session.flush()

    assert [lookup.resolve(session, each.public_id, base=base) for each in objects] == objects
    assert INFO == {"label": "shown in forms"}


def test_settings() -> None:
    """The settings of a public id are those of no other column: neither another id, a token, nor a name."""
    base: Any = new_base()
    members = {
        "id": bigint_key(info=INFO),
        "code": public_id_column(max_retries=3, unique_with=["tenant"], info=INFO),
        "public_id": public_id_column(info=INFO),
        "token": token_column(Token("infotoken"), info=INFO),
        "tenant": mapped_column(Integer, nullable=False, info=INFO),
        "name": mapped_column(String(20), unique=True, index=True, info=INFO),
    }
    table = type("Box", (base,), {"__tablename__": "box", **members}).__table__
    configure_mappers()

    assert [max_retries(table.c[name]) for name in ("code", "public_id")] == [3, 1000]
    assert {index.name: index.columns.keys() for index in table.indexes} == {
        "uq_box_code": ["code", "tenant"],
        "uq_box_public_id": ["public_id"],
        "uq_box_token": ["token"],
        "ix_box_name": ["name"],
    }
