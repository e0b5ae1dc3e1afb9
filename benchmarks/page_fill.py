"""The bytes of tables and indexes, and how full their pages are.

PostgreSQL: ``pg_relation_size``; the fill is ``avg_leaf_density`` of ``pgstatindex``, and ``tuple_percent`` of a table.
InnoDB: ``mysql.innodb_index_stats`` counts the pages of each index, of which the table itself is one. The fill is the
mean of ``DATA_SIZE`` in ``information_schema.INNODB_BUFFER_PAGE``: of the pages that are in memory after a scan.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, Engine, Table, inspect, text

__all__ = ["Size", "sizes"]


@dataclass
class Size:
    """A table, or an index of it."""

    of: str
    """The columns, or "rows"."""
    bytes_a_row: float
    fill: float | None
    """The part of a page that holds data, 1 for all of it."""


def sizes(engine: Engine, table: Table, rows: int) -> list[dict[str, Any]]:
    """Return the sizes of *table* and of each of its indexes."""
    measure = _postgresql if engine.dialect.name == "postgresql" else _innodb
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        return [asdict(size) for size in measure(connection, table, rows)]


def _indexes(connection: Connection, table: Table) -> dict[str, str]:
    """Return the indexes besides the key, and their columns."""
    found = inspect(connection).get_indexes(table.name)
    return {str(index["name"]): ", ".join(map(str, index["column_names"])) for index in found}


def _postgresql(connection: Connection, table: Table, rows: int) -> list[Size]:
    connection.execute(text("CREATE EXTENSION IF NOT EXISTS pgstattuple"))
    connection.execute(text(f"VACUUM ANALYZE {table.name}"))

    def bytes_of(name: str) -> float:
        size: int = connection.scalar(text(f"SELECT pg_relation_size('{name}')"))
        return size / rows

    fill = connection.scalar(text(f"SELECT tuple_percent FROM pgstattuple('{table.name}')"))
    found = [Size("rows", bytes_of(table.name), fill / 100)]
    for name, columns in {f"{table.name}_pkey": "id", **_indexes(connection, table)}.items():
        density = connection.scalar(text(f"SELECT avg_leaf_density FROM pgstatindex('{name}')"))
        found.append(Size(columns, bytes_of(name), density / 100))
    return found


_PAGES = text(
    "SELECT stat_value FROM mysql.innodb_index_stats WHERE database_name = DATABASE() AND table_name = :table "
    "AND index_name = :index AND stat_name = 'size'"
)
_IN_MEMORY = text(
    "SELECT AVG(data_size) FROM information_schema.innodb_buffer_page WHERE page_type = 'INDEX' "
    "AND number_records > 1 AND table_name LIKE CONCAT('%', DATABASE(), '%', :table, '%') AND index_name = :index"
)


def _innodb(connection: Connection, table: Table, rows: int) -> list[Size]:
    connection.execute(text(f"ANALYZE TABLE {table.name}")).all()
    page = int(connection.scalar(text("SELECT @@innodb_page_size")) or 0)
    found = []
    for index, columns in {"PRIMARY": "rows", **_indexes(connection, table)}.items():
        names = {"table": table.name, "index": index}
        connection.scalar(text(f"SELECT COUNT(*) FROM {table.name} FORCE INDEX ({index})"))
        pages = int(connection.scalar(_PAGES, names) or 0)
        data = connection.scalar(_IN_MEMORY, names)
        found.append(Size(columns, pages * page / rows, None if data is None else float(data) / page))
    return found
