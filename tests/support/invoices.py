"""A table of invoices whose public id column is as the library declares it, or has a defect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pytest
from sqlalchemy import BigInteger, Column, Connection, Engine, Index, Integer, MetaData, Table, func, insert, select

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
                raise_counter(connection, table)
        return table

    return make


def raise_counter(connection: Connection, table: Table) -> None:
    """Let the counter of the key follow the rows, which on PostgreSQL it does not do by itself."""
    if connection.dialect.name == "postgresql":
        name = table.fullname if table.schema else connection.dialect.identifier_preparer.quote(table.name)
        largest = select(func.setval(func.pg_get_serial_sequence(name, "id"), func.max(table.c.id)))
        connection.execute(largest)
