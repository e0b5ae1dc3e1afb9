"""The table of counters: one row for each named sequence, with the first number that nobody has leased."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, MetaData, String, Table

from sqlalchemy_public_id.errors import ConfigurationError, shown

__all__ = ["END", "checked_name", "counter_table"]

END = 2**63 - 1
"""What a ``BIGINT`` holds at most, and so the first number that cannot be leased."""

_NAME = 100


def counter_table(name: str, schema: str | None = None) -> Table:
    """The table, in a metadata of its own; ``to_metadata()`` copies it into another one."""
    from sqlalchemy.dialects import mysql, postgresql  # a third of the time to import this library

    text = (
        String(_NAME)
        .with_variant(mysql.VARCHAR(_NAME, charset="ascii", collation="ascii_bin"), "mysql", "mariadb")
        .with_variant(postgresql.VARCHAR(_NAME, collation="C"), "postgresql")
    )
    return Table(
        name,
        MetaData(),
        Column("name", text, primary_key=True),
        Column("next", BigInteger, nullable=False, autoincrement=False),
        schema=schema,
    )


def checked_name(name: object) -> str:
    """*name*, if all databases keep it apart from every other name: some do not see a space at the end."""
    if not (isinstance(name, str) and 1 <= len(name) <= _NAME and name.isascii() and name.isprintable()) or (
        name != name.strip()
    ):
        raise ConfigurationError(
            f"the name of a sequence is {shown(name)}, expected 1 to {_NAME} printable characters of ASCII, "
            f"without a space at either end"
        )
    return name
