"""Tables that outlive a test: CREATE TABLE and DROP TABLE took two thirds of the time of the tests on servers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, Integer, MetaData, Table, create_engine, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

_DDL = ("CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE", "COMMENT", "GRANT", "REVOKE")


class ResidentTables:
    """Creates the tables of tests, and keeps those that were needed twice in turn, emptied.

    Tables are dropped if a test sends DDL, if another metadata is created, or if a test creates none. SQLite has a new
    file for each test, so its tables are never kept.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Engine, MetaData]] = {}
        self._uses: weakref.WeakKeyDictionary[MetaData, int] = weakref.WeakKeyDictionary()
        self._schema_changed = False

    def __enter__(self) -> ResidentTables:
        event.listen(Engine, "before_cursor_execute", self._on_statement)
        return self

    def __exit__(self, *_: object) -> None:
        event.remove(Engine, "before_cursor_execute", self._on_statement)
        self.drop()

    @contextmanager
    def of_test(self, engine: Engine) -> Iterator[Callable[[MetaData], None]]:
        """Give a test the function that creates its tables."""
        created: list[MetaData] = []
        kept = self._kept.get(engine.name)
        if kept is not None and kept[0].url != engine.url:
            self.drop()

        def make(metadata: MetaData) -> None:
            kept = self._kept.get(engine.name)
            if kept is not None and kept[1] is metadata and metadata not in created:
                engine.connect().close()  # as if the tables were created: the dialect is initialized
            else:
                self.drop(engine.name)
                if engine.name != "sqlite":
                    metadata.drop_all(engine)
                metadata.create_all(engine)
            created.append(metadata)
            self._uses[metadata] = self._uses.get(metadata, 0) + 1
            self._schema_changed = False

        self._schema_changed = False
        yield make
        if engine.name == "sqlite":
            return
        if len(created) == 1 and self._uses[created[0]] > 1 and not self._schema_changed and _is_plain(created[0]):
            maintenance = self._maintenance(engine)
            try:
                with maintenance.begin() as connection:
                    _empty(connection, created[0])
            except DBAPIError:
                pass
            else:
                self._kept[engine.name] = maintenance, created[0]
                return
        self._kept.pop(engine.name, None)
        for metadata in reversed(created):
            metadata.drop_all(engine)

    def drop(self, database: str | None = None) -> None:
        """Drop the tables that are kept, of one database or of all."""
        for name in [database] if database is not None else list(self._kept):
            engine, metadata = self._kept.pop(name, (None, None))
            if engine is not None and metadata is not None:
                metadata.drop_all(engine)

    def _maintenance(self, engine: Engine) -> Engine:
        kept = self._kept.get(engine.name)
        return kept[0] if kept is not None else create_engine(engine.url, poolclass=NullPool)

    def _on_statement(self, connection: Connection, cursor: Any, statement: str, *_: object) -> None:
        if statement.lstrip()[:8].upper().startswith(_DDL):
            self._schema_changed = True


def _is_plain(metadata: MetaData) -> bool:
    """Return True if the tables of *metadata* are as CREATE TABLE made them, and their keys begin at 1."""
    return not any(
        table.dispatch.after_create or (table.autoincrement_column is not None and _starts_elsewhere(table))
        for table in metadata.sorted_tables
    )


def _starts_elsewhere(table: Table) -> bool:
    column = table.autoincrement_column
    identity = column.identity if column is not None else None
    return (identity is not None and identity.start not in (None, 1)) or any(
        name.endswith("auto_increment") for name in table.kwargs
    )


def _empty(connection: Connection, metadata: MetaData) -> None:
    """Delete all rows, and have the keys begin at 1 again."""
    quote = connection.dialect.identifier_preparer.format_table
    for table in reversed(metadata.sorted_tables):
        connection.execute(text(f"DELETE FROM {quote(table)}"))
    for table in metadata.sorted_tables:
        key = table.autoincrement_column
        if key is None or not isinstance(key.type, Integer):
            continue
        if connection.dialect.name == "postgresql":
            connection.execute(
                text("SELECT setval(pg_get_serial_sequence(:table, :key), 1, false)"),
                {"table": quote(table), "key": key.name},
            )
        else:
            connection.execute(text(f"ALTER TABLE {quote(table)} AUTO_INCREMENT = 1"))
