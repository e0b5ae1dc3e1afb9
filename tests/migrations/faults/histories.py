"""A table that is migrated and migrated back under faults, and the catalog that is expected after each way."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeAlias

from alembic.migration import MigrationContext
from alembic.operations import Operations
from migrations.faults.faults import Fault, Sent, failing
from sqlalchemy import Connection, Engine, inspect
from sqlalchemy.engine import URL
from support.people import People, migrating, send

Meeting: TypeAlias = AbstractContextManager[Sent]
ROWS = 5
VARIANTS: dict[str, dict[str, Any]] = {
    "index": {},
    "default that goes": {"server_default": "drop"},
}
"""Options of the operations."""

_MORE = ", email varchar(50) UNIQUE, age integer DEFAULT 1 CHECK (age >= 0)"
_POSTGRESQL = """
SELECT 'column', attname || ' ' || format_type(atttypid, atttypmod) || ' ' || attcollation::regcollation
       || ' ' || attnotnull || ' ' || coalesce(pg_get_expr(adbin, adrelid), '')
FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE attrelid = 'person'::regclass AND attnum > 0 AND NOT attisdropped
UNION ALL SELECT 'constraint', conname || ' ' || pg_get_constraintdef(oid) || ' ' || convalidated
FROM pg_constraint WHERE conrelid = 'person'::regclass
UNION ALL SELECT 'index', pg_get_indexdef(indexrelid) || ' ' || indisvalid || ' ' || indisready
FROM pg_index WHERE indrelid = 'person'::regclass
UNION ALL SELECT 'trigger', tgname FROM pg_trigger WHERE tgrelid = 'person'::regclass AND NOT tgisinternal
UNION ALL SELECT 'function', proname || ' ' || prosrc FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
ORDER BY 1, 2
"""
_MYSQL = [
    "SHOW CREATE TABLE person",
    "SELECT TRIGGER_NAME, ACTION_STATEMENT FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = DATABASE()",
    "SELECT ROUTINE_NAME FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = DATABASE()",
]
_QUERIES = {"postgresql": [_POSTGRESQL], "sqlite": ["SELECT type, name, sql FROM sqlite_master ORDER BY type, name"]}


def catalog(engine: Engine) -> str:
    """Return everything that the catalog says about the table, its indexes, constraints, triggers and functions."""
    with engine.connect() as connection:
        rows = [tuple(row) for query in _QUERIES.get(engine.name, _MYSQL) for row in send(connection, query)]
    text = "\n".join(" ".join(map(str, row)) for row in rows)
    # leave out the key of the next row, and the quotes that SQLite writes around the name of a copied table
    return re.sub(r" AUTO_INCREMENT=\d+|\"| +(?=\()", "", re.sub(r"\s+", " ", text))


@contextmanager
def operations(connection: Connection) -> Iterator[Operations]:
    """Yield the ``op`` of one migration on *connection*."""
    if connection.dialect.name in ("mysql", "mariadb"):
        # inside a transaction, as in env.py, the operation would wait until the server has refreshed innodb_trx
        yield Operations(MigrationContext.configure(connection))
        return
    with migrating(connection) as op:
        yield op


_known: dict[tuple[URL, str], tuple[str, list[str], str, list[str]]] = {}
"""Database and variant → catalogs and statements of an undisturbed migration, there and back."""


class Table:
    """A table of people whose catalog is known both without and with ids."""

    def __init__(self, engine: Engine, variant: str = "index") -> None:
        options = VARIANTS[variant]
        self.people, self.engine = People(engine, **options), engine
        self.create()
        if (engine.url, variant) not in _known:
            beginning = catalog(engine)
            # what the library asks a server once would be counted, and the fault at the last statement not be met
            self.run("add_public_id")
            self.run("drop_public_id")
            # with one attempt, as in the histories: with more, the last step sets a longer lock timeout
            up, goal = self.run("add_public_id", attempts=1).statements, catalog(engine)
            down = self.run("drop_public_id", attempts=1).statements
            assert beginning == catalog(engine)
            _known[engine.url, variant] = beginning, up, goal, down
        self.beginning, self.up, self.goal, self.down = _known[engine.url, variant]

    def create(self) -> None:
        """Create the table, with rows, and with objects that a migration has to leave in place."""
        self.engine.dispose()
        self.people.create(ROWS, _MORE)
        self.people.execute("CREATE INDEX person_name ON person (name)")
        if self.engine.name == "sqlite":
            self.people.execute("CREATE TRIGGER person_born AFTER INSERT ON person BEGIN SELECT 1; END")

    def run(self, operation: str, during: Meeting | None = None, **options: Any) -> Sent:
        """Run *operation* on its own connection, inside the context manager *during*."""
        during = during or failing(self.engine, None)
        with during as sent, self.engine.connect() as connection, operations(connection) as op:
            self.people.say(op, operation, **options)
        return sent

    def try_to(self, operation: str, during: Meeting | None = None, **options: Any) -> tuple[Sent, str]:
        """Run *operation*; return the statements sent, and the error or the empty string."""
        told = ""
        with during or failing(self.engine, None) as sent:
            try:
                self.run(operation, nullcontext(sent), **options)
            except (Exception, KeyboardInterrupt) as error:
                told = f"{type(error).__name__}: {error}"
        if told and self.engine.name == "sqlite":
            gc.collect()  # cursors in the frames of the error keep a closed connection alive, with its locks
        return sent, told

    def tidy(self, *, anew: bool) -> None:
        """Prepare the table for the next history: remove the rows that were written, or create it *anew*."""
        if anew:
            self.create()
        else:
            self.people.execute(f"DELETE FROM person WHERE id > {ROWS}")

    def write(self) -> None:
        """Insert a row as an old program does, unless the column is complete and has no default."""
        state = self.people.state()
        if not state.complete or state.default is not None:
            self.people.write(1)

    def rows(self) -> dict[int, tuple[Any, ...]]:
        """Return the rows by their keys, without the public ids."""
        with self.engine.connect() as connection:
            return {row[0]: tuple(row) for row in send(connection, "SELECT id, name, email, age FROM person")}

    def ids(self) -> dict[int, str]:
        """Return the public ids by the keys of their rows; rows without an id are left out."""
        with self.engine.connect() as connection:
            if not any(column["name"] == "public_id" for column in inspect(connection).get_columns("person")):
                return {}
            query = "SELECT id, public_id FROM person WHERE public_id IS NOT NULL"
            return {row[0]: row[1] for row in send(connection, query)}

    def problems_at_goal(self, given: dict[int, str], rows: dict[int, tuple[Any, ...]]) -> list[str]:
        """Return how the table differs from its state after an undisturbed migration of *rows*."""
        ids, now, format = self.ids(), catalog(self.engine), self.people.format
        checks = {
            f"the catalog is\n{now}\ninstead of\n{self.goal}": now == self.goal,
            "rows have changed": self.rows() == rows,
            "rows have no id": ids.keys() == rows.keys(),
            "ids are malformed": all(map(format.is_valid, ids.values())),
            "rows share an id": len(set(ids.values())) == len(ids),
            "ids that were given have changed": given.items() <= ids.items(),
        }
        return [problem for problem, is_well in checks.items() if not is_well]

    def problems_at_beginning(self, rows: dict[int, tuple[Any, ...]]) -> list[str]:
        """Return how the table differs from its state before the migration."""
        now = catalog(self.engine)
        checks = {
            f"after the way back, the catalog is\n{now}\ninstead of\n{self.beginning}": now == self.beginning,
            "after the way back, rows have changed": self.rows() == rows,
        }
        return [problem for problem, is_well in checks.items() if not is_well]

    def there_and_back(self, up: Fault, down: Fault | None) -> list[str]:
        """Meet a fault on the way up, write a row, and repeat the operation; then on the way back. Return the problems.

        On both ways, the operation gives up at the first lock that it does not get.
        """
        try:
            found = list(self._there_and_back(up, down))
        except Exception as error:
            found = [f"{type(error).__name__}: {error}"]
        self.tidy(anew=bool(found))
        return [f"{up} {self.up[up.number - 1][:80]!r}, {down}: {problem}" for problem in found]

    def _there_and_back(self, up: Fault, down: Fault | None) -> Iterator[str]:
        sent, _ = self.try_to("add_public_id", failing(self.engine, up), attempts=1)
        if not sent.is_hit:
            yield "the operation did not come to it"
        self.write()
        rows, given = self.rows(), self.ids()
        self.run("add_public_id")
        yield from self.problems_at_goal(given, rows)
        if down is not None:
            sent, _ = self.try_to("drop_public_id", failing(self.engine, down), attempts=1)
            if not sent.is_hit:
                yield "the way back did not come to it"
        self.run("drop_public_id")
        yield from self.problems_at_beginning(rows)
