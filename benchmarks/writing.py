"""Rows written as fast as a client can: COPY on PostgreSQL, an INSERT of many rows elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from sqlalchemy import Engine, Table

from benchmarks.kinds import Tables

__all__ = ["Transactions", "literal", "prepared", "write"]

_AT_ONCE = 1_000
"""Rows of each table in a transaction. An application commits more often, which costs each kind of key the same."""

Transactions: TypeAlias = list[list[tuple[str, str]]]
"""Of each transaction, the statements; with those of COPY, the rows."""


def prepared(engine: Engine, tables: Tables, rows: int) -> Transactions:
    """Return what writes so many new rows into each of *tables*."""
    transactions = []
    for at in range(0, rows, _AT_ONCE):
        batch = tables.batch(min(_AT_ONCE, rows - at))
        both = (tables.accounts, batch.accounts), (tables.entries, batch.entries)
        transactions.append([_statement(engine, table, texts) for table, texts in both])
    return transactions


def write(connection: Any, transactions: Transactions) -> None:
    """Execute the *transactions* on a connection of the driver."""
    for statements in transactions:
        cursor = connection.cursor()
        for statement, rows in statements:
            if rows:
                with cursor.copy(statement) as copy:
                    copy.write(rows)
            else:
                cursor.execute(statement)
        connection.commit()
        cursor.close()


def literal(engine: Engine, type_: Any, text: str) -> str:
    """Return *text* as SQL for a column of *type_*."""
    return _written(text, _form(engine, type_))


def _statement(engine: Engine, table: Table, rows: Iterable[Sequence[str]]) -> tuple[str, str]:
    columns = ", ".join(column.name for column in table.columns)
    if engine.dialect.name == "postgresql":
        return f"COPY {table.name} ({columns}) FROM STDIN", "".join("\t".join(row) + "\n" for row in rows)
    forms = [_form(engine, column.type) for column in table.columns]
    values = ",".join(f"({','.join(map(_written, row, forms))})" for row in rows)
    return f"INSERT INTO {table.name} ({columns}) VALUES {values}", ""


def _form(engine: Engine, type_: Any) -> str:
    """Tell how a text is written for a column: as a number, in hexadecimal digits, or in quotes."""
    declared = type_.compile(engine.dialect)
    return "number" if "INT" in declared else "hex" if declared.startswith(("BINARY", "BLOB")) else "text"


def _written(text: str, form: str) -> str:
    if form == "number":
        return text
    return f"x'{text.replace('-', '')}'" if form == "hex" else f"'{text}'"
