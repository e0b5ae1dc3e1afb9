"""Keep tables between tests, because CREATE TABLE and DROP TABLE took two thirds of the time on servers."""

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
    """Creates the tables of tests, and keeps them, emptied, if another test needs them.

    Kept tables are dropped if a test sends DDL, needs other tables, or creates none. SQLite has a new file for each
    test, so its tables are never kept.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Engine, MetaData]] = {}
        self._uses: weakref.WeakKeyDictionary[MetaData, int] = weakref.WeakKeyDictionary()
        self._changed: set[str] = set()
        """The names of the dialects to whose databases a test sent DDL."""

    def __enter__(self) -> ResidentTables:
        event.listen(Engine, "before_cursor_execute", self._on_statement)
        return self

    def __exit__(self, *_: object) -> None:
        event.remove(Engine, "before_cursor_execute", self._on_statement)
        self.drop()

    @contextmanager
    def of_test(self) -> Iterator[Callable[[Engine, MetaData], None]]:
        """Yield the function that creates the tables of a test; empty or drop them afterwards."""
        created: list[tuple[Engine, MetaData]] = []

        def create(engine: Engine, metadata: MetaData) -> None:
            others = [other for other, _ in created if other.url == engine.url]
            if not others and self._has(engine, metadata):
                engine.connect().close()  # initializes the dialect, as CREATE TABLE would
            else:
                if not others:
                    self.drop(engine.name)
                if engine.name != "sqlite":
                    metadata.drop_all(engine)
                metadata.create_all(engine)
                self._changed.discard(engine.name)
            created.append((engine, metadata))
            self._uses[metadata] = self._uses.get(metadata, 0) + 1

        self._changed.clear()
        yield create
        for engine, metadata in reversed(created):
            alone = sum(other.url == engine.url for other, _ in created) == 1
            if engine.name != "sqlite" and not (alone and self._keep(engine, metadata)):
                self._kept.pop(engine.name, None)
                metadata.drop_all(engine)

    def drop(self, database: str | None = None) -> None:
        """Drop the kept tables of one database or of all."""
        for name in [database] if database is not None else list(self._kept):
            if name in self._kept:
                engine, metadata = self._kept.pop(name)
                metadata.drop_all(engine)

    def _has(self, engine: Engine, metadata: MetaData) -> bool:
        kept_engine, kept = self._kept.get(engine.name, (None, None))
        return kept is metadata and kept_engine is not None and kept_engine.url == engine.url

    def _keep(self, engine: Engine, metadata: MetaData) -> bool:
        """Empty the tables for the next test. Return False if they have to be dropped."""
        if self._uses[metadata] < 2 or engine.name in self._changed or not _is_plain(metadata):
            return False
        if not self._has(engine, metadata):
            self._kept[engine.name] = create_engine(engine.url, poolclass=NullPool), metadata
        try:
            with self._kept[engine.name][0].begin() as connection:
                _empty(connection, metadata)
        except DBAPIError:  # for example, a trigger forbids it
            return False
        self._changed.discard(engine.name)
        return True

    def _on_statement(self, connection: Connection, cursor: Any, statement: str, *_: object) -> None:
        if statement.lstrip()[:8].upper().startswith(_DDL):
            self._changed.add(connection.dialect.name)


def _is_plain(metadata: MetaData) -> bool:
    """Return True if the tables need only CREATE TABLE, and their keys begin at 1."""
    return not any(table.dispatch.after_create or _begins_elsewhere(table) for table in metadata.tables.values())


def _begins_elsewhere(table: Table) -> bool:
    identity = getattr(table.autoincrement_column, "identity", None)
    return (identity is not None and identity.start not in (None, 1)) or any(
        name.endswith("auto_increment") for name in table.kwargs
    )


def _empty(connection: Connection, metadata: MetaData) -> None:
    """Delete all rows, and restart the keys at 1."""
    quote = connection.dialect.identifier_preparer.format_table
    if connection.dialect.name in ("mysql", "mariadb"):  # they refuse to delete rows that refer to each other
        connection.exec_driver_sql("SET FOREIGN_KEY_CHECKS = 0")
    for table in reversed(metadata.sorted_tables):
        connection.execute(table.delete())
    for table in metadata.sorted_tables:
        key = table.autoincrement_column
        if key is None or not isinstance(key.type, Integer):
            continue
        if connection.dialect.name == "postgresql":
            restart = text("SELECT setval(pg_get_serial_sequence(format('%I', :name), :key), 1, false)")
            connection.execute(restart, {"name": table.name, "key": key.name})
        else:
            connection.exec_driver_sql(f"ALTER TABLE {quote(table)} AUTO_INCREMENT = 1")
