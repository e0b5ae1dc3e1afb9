"""What the operations for cluster keys look at before they begin, to refuse what would not be right afterwards."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, column, func, inspect, select, table

from sqlalchemy_public_id.alembic.clusters.ops import SetClusterOp
from sqlalchemy_public_id.dialects.catalog import columns_of
from sqlalchemy_public_id.dialects.quoting import quoted_table
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.keys.ranges import LAST_KEY, SEQUENCE_BITS, Range

__all__ = ["look_at_column", "look_at_rows", "name_in_sqlite"]

_BITS = {"TINYINT": 8, "SMALLINT": 16, "MEDIUMINT": 24, "INTEGER": 32, "INT": 32}
_WIDE = {"BIGINT", "NUMERIC", "DECIMAL"}


def look_at_column(connection: Connection, name: str, key: str, schema: str | None, last: int = LAST_KEY) -> None:
    """Refuse a key that cannot hold the numbers up to *last*, or that does not count. Not for SQLite.

    :raises ConfigurationError: in these cases, with the migration that changes it.
    """
    inspector = inspect(connection)
    if not inspector.has_table(name, schema=schema):
        raise ConfigurationError(f"there is no table {name!r}: create it first, or mend its name")
    dialect = connection.dialect.name
    columns = columns_of(inspector, name, schema)
    found = columns.get(key)
    if found is None:
        raise ConfigurationError(f"{name} has no column {key!r}; there are: {', '.join(columns)}")
    type_: Any = found["type"]
    type_ = getattr(type_, "data_type", type_)  # of a DOMAIN
    kind = type(type_).__name__
    limit = 2 ** (_BITS[kind] - 1) - 1 if kind in _BITS else LAST_KEY if kind in _WIDE else 0
    if last > limit:
        of_range = "a cluster key has 64 bits" if last > 1 << SEQUENCE_BITS else f"the range ends at {last}"
        raise ConfigurationError(
            f"the key of {name} is {kind}, {of_range}: op.alter_column({name!r}, {key!r}, type_=sa.BigInteger()) first"
        )
    if dialect in {"mysql", "mariadb"} and not found.get("autoincrement"):
        raise ConfigurationError(
            f"the key of {name} is not AUTO_INCREMENT, so {dialect} has no counter for it, and does not tell the key "
            f"of a new row: op.alter_column({name!r}, {key!r}, existing_type=sa.BigInteger(), "
            f"existing_nullable=False, autoincrement=True) first"
        )


def look_at_rows(connection: Connection, op: SetClusterOp, keys: Range) -> None:
    """Refuse rows outside of *keys*. The smallest and the largest key are the ends of an index.

    :raises ConfigurationError: where others may have the same keys, and where the counter would leave the range.
    """
    key = table(op.table_name, column(op.column_name), schema=op.schema).c[op.column_name]
    smallest, largest = connection.execute(select(func.min(key), func.max(key))).one()
    if smallest is None:
        return
    there = f"there are rows in {op.table_name} from {smallest} to {largest}"
    dialect = connection.dialect.name
    elsewhere = "use op.create_cluster_sequence(), whose counter is one of its own"
    if dialect == "sqlite":
        elsewhere = "keep them in another table"
    if dialect != "postgresql" and largest > keys.last:
        raise ConfigurationError(
            f"{there}, and the range is {keys.start} to {keys.last}: {dialect} counts on from the largest key, so "
            f"new ones would be outside of the range, too; {elsewhere}"
        )
    if op.keep_outside:
        return
    what_to_do = (
        "give these rows other keys, or say keep_outside=True, if no other database has made keys of this table"
    )
    if keys.cluster is not None:  # keys of other clusters are what a merge brings
        if smallest < min(1 << SEQUENCE_BITS, keys.start):
            raise ConfigurationError(
                f"{there}, and {smallest} is from before there were clusters: other databases may have the same keys; "
                f"{what_to_do}"
            )
    elif smallest < keys.start or largest > keys.last:
        raise ConfigurationError(
            f"{there}, and the range is {keys.start} to {keys.last}: keys outside of it may be those of other "
            f"databases as well; {what_to_do}"
        )


def name_in_sqlite(connection: Connection, name: str, schema: str | None) -> str:
    """What SQLite calls the table *name* itself: it finds tables whatever their case, and counters do not.

    :raises ConfigurationError: where there is no such table, or none with a counter.
    """
    master = quoted_table("sqlite_master", schema, connection.dialect)
    query = f"SELECT name, sql FROM {master} WHERE type = 'table' AND name = ? COLLATE NOCASE"
    found = connection.exec_driver_sql(query, (name,)).one_or_none()
    if found is None:
        raise ConfigurationError(f"there is no table {name!r}: create it first, or mend its name")
    if "AUTOINCREMENT" not in found.sql.upper():
        raise ConfigurationError(
            f"the key of {name} is not AUTOINCREMENT, so SQLite has no counter for it; "
            f"create the table with sqlite_autoincrement=True"
        )
    return str(found.name)
