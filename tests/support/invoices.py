"""A table of invoices whose public id column is as the library declares it, or has a defect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pytest
from sqlalchemy import BigInteger, Column, Engine, Index, Integer, MetaData, Table, insert

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.dialects import traits_for

NAME = "invoice"
NewInvoices: TypeAlias = Callable[..., Table]


@pytest.fixture
def new_invoices(engine: Engine, create: Callable[[MetaData], None]) -> NewInvoices:
    """Create the table, with the defects that the arguments name, and with three ids or those of *rows*."""

    def make(
        *rest: Any,
        rows: Sequence[Any] | None = None,
        name: str = NAME,
        type: Any = None,
        key: Any = None,
        first: int = 1,
        index: bool = True,
        **options: Any,
    ) -> Table:
        table = Table(
            name,
            MetaData(),
            Column("id", key or BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
            Column("public_id", type or traits_for(engine.dialect).text_type(16), **{"nullable": False, **options}),
            *rest,
        )
        if index:
            Index(f"uq_{name}_public_id", table.c.public_id, unique=True)
        create(table.metadata)
        ids = NanoId().generate_many(3) if rows is None else rows
        if ids:
            values = [{"id": at, "public_id": id} for at, id in enumerate(ids, first)]
            with engine.begin() as connection:
                connection.execute(insert(table), values)
        return table

    return make
