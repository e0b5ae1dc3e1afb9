"""A table in use, as the database describes it: its column of public ids, its indexes, triggers and rows."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, replace
from typing import Any, ClassVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    Inspector,
    Integer,
    Row,
    String,
    case,
    column,
    func,
    inspect,
    literal,
    select,
)
from sqlalchemy import table as sql_table
from sqlalchemy.engine import Dialect
from sqlalchemy.engine.interfaces import ReflectedColumn
from sqlalchemy.exc import NoSuchTableError, SAWarning

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.dialects.quoting import quoted_table
from sqlalchemy_public_id.errors import ConfigurationError, Obstacle
from sqlalchemy_public_id.migrations.column import PublicIdColumn
from sqlalchemy_public_id.migrations.state import Demand, IndexFacts, State
from sqlalchemy_public_id.naming import not_null_check_name

FEW_ROWS = 10_000
"""A table of at most this many rows is locked for milliseconds only."""
_BITS = {"TINYINT": 8, "SMALLINT": 16, "MEDIUMINT": 24, "BIGINT": 64}


class LiveTable(ABC):
    """The table of *target* in the database of *connection*. Everything is read on demand."""

    can_skip_triggers: ClassVar[bool] = False
    """True if the database can skip the triggers that an UPDATE fires."""
    ignores_case: ClassVar[bool] = False
    """True if the names of columns and indexes are the same in capitals."""

    def __init__(self, connection: Connection, target: PublicIdColumn) -> None:
        self.connection: Connection = connection
        self.target: PublicIdColumn = target
        self.name: str = quoted_table(target.table, target.schema, connection.dialect)
        """The name, quoted, with its schema."""
        self.names: dict[str, Any] = {
            "table": target.table,
            "schema": target.schema,
            "database": target.schema or "main",
            "regclass": self.name,
            "column": target.column,
            "unique": target.unique_name,
            "check": not_null_check_name(target.table, target.column),
        }
        """The parameters of all catalog queries; each query uses some of them."""
        self._rows = sql_table(target.table, column(target.column), schema=target.schema)

    # --- the catalogs

    def read_state(self) -> State:
        """Return the state of the column and the indexes of the table.

        :raises ConfigurationError: if there is no such table, or if it is a view or another object that stores no rows.
        """
        found = self._read_state()
        target = self.target
        where = f"{target.table!r} in schema {target.schema!r}" if target.schema else repr(target.table)
        if found is None:
            raise ConfigurationError(f"there is no table {where}; create it first, or correct its name")
        kind, state, indexes = found
        if kind != "table":
            raise ConfigurationError(f"{where} is not an ordinary table; name the table that holds the rows")
        if self.ignores_case:
            spelling = {name.lower(): name for name in target.unique_columns}
            indexes = [
                replace(index, columns=tuple(spelling.get(name.lower(), name) for name in index.columns))
                for index in indexes
            ]
        return state.with_indexes(indexes, target)

    def read(self, query: Executable) -> Sequence[Row[Any]]:
        """Return the rows of a *query* of the catalogs that looks up this table alone."""
        return self.connection.execute(query, self.names).all()

    @abstractmethod
    def _read_state(self) -> tuple[str, State, Iterable[IndexFacts]] | None:
        """Return ``"table"``, the state without the indexes, and the indexes.

        ``None`` if nothing has this name. For a view, or anything else that stores no rows, the kind is another one.
        """

    @abstractmethod
    def estimate_rows(self) -> int | None:
        """Return the estimated number of rows, which SQLite counts; None if the database has no estimate."""

    def estimate_bytes(self) -> int | None:
        """Return the size of the table and its indexes in bytes, as the catalogs report it; None on SQLite."""
        return None

    @abstractmethod
    def update_triggers(self) -> list[str]:
        """Return the names of the triggers and rules that an UPDATE of the column fires."""

    def obstacles_of_hidden_triggers(self) -> Iterator[Obstacle]:
        """Yield an obstacle if the user may not see the triggers that an UPDATE fires."""
        yield from ()  # only MySQL and MariaDB hide any

    def obstacles_to_skipping(self) -> Iterator[Obstacle]:
        """Yield the obstacles that keep the role from skipping triggers."""
        yield from ()

    @abstractmethod
    def without_triggers(self) -> AbstractContextManager[None]:
        """Skip the triggers of the table inside the open transaction."""

    def restore_settings(self, state: State) -> None:
        """Restore settings of the session that a step has changed, and that a ROLLBACK does not restore."""
        return  # only SQLite has any

    @abstractmethod
    def columns_changed_by_updates(self) -> list[str]:
        """Return the columns that every UPDATE sets, with ``ON UPDATE CURRENT_TIMESTAMP`` of MySQL and MariaDB."""

    def read_primary_key(self, inspector: Inspector | None = None) -> list[str]:
        """Return the names of the columns of the primary key, in its order.

        :param inspector: one that may have reflected the table already.
        :raises sqlalchemy.exc.NoSuchTableError: if there is no such table.
        """
        inspector = inspector or inspect(self.connection)
        with _reflecting(inspector):  # on MySQL and MariaDB, this reflects all columns as well
            names = inspector.get_pk_constraint(self.target.table, schema=self.target.schema)["constrained_columns"]
        return [_unescaped(name, inspector.dialect) for name in names]

    def read_largest_key(self, key: str, type_: Integer) -> int:
        """Return the largest number that the column *key* of this *type_*, and its counter, can reach."""
        return largest_number(type_)

    def obstacle_of_partitions(self, keys: Iterable[str]) -> Obstacle | None:
        """Return an obstacle if the unique index lacks some of the *keys* by which the table is partitioned."""
        target, instead = self.target, "keep the ids in a separate table that refers to this one"
        has = {self.folded(name) for name in target.unique_columns}
        missing = [key for key in dict.fromkeys(keys) if self.folded(key) not in has]
        if not missing:
            return None
        names, needed = ", ".join(missing), (*target.unique_with, *missing)
        problem = f"{target.table} is partitioned by {names}, which each of its unique indexes must contain"
        try:
            key = {self.folded(name) for name in self.read_primary_key()}
        except NoSuchTableError:
            key = set[str]()
        if key and key <= {self.folded(name) for name in needed}:
            return Obstacle("partitioned", problem, f"{instead}, because unique_with may not contain the primary key")
        return Obstacle("partitioned", problem, f"declare the ids with unique_with={needed!r}, or {instead}")

    def folded(self, name: str) -> str:
        """Return *name* in the form in which the database compares the names of columns and indexes."""
        return name.lower() if self.ignores_case else name

    @abstractmethod
    def obstacle_of_a_temporary_table(self) -> Obstacle | None:
        """Return an obstacle if the name stands for a temporary table of this connection, which hides the table."""

    def hidden_by(self, kind: str, drop: str) -> Obstacle:
        """Return the obstacle of a temporary *kind* that hides the table, and that the statement *drop* drops."""
        problem = f"a temporary {kind} of this connection hides {self.target.table}"
        return Obstacle("temporary", problem, f"{drop}, or use another connection")

    def obstacle_of_hidden_rows(self) -> Obstacle | None:
        """Return an obstacle if the role may not see all rows."""
        return None  # only PostgreSQL hides any

    # --- what the table demands of new ids

    @abstractmethod
    def read_constraints(self) -> Iterator[Demand]:
        """Yield what the table demands of the values of the column, and perhaps of other columns only."""

    @abstractmethod
    def read_references(self) -> Sequence[tuple[str | None, str, str]]:
        """Return schema, table and column of each foreign key to the column."""

    def trying(self) -> AbstractContextManager[None]:
        """Evaluate an expression that may fail, inside or outside of a transaction."""
        return nullcontext()

    def read_full_name(self) -> str:
        """Return the quoted name, by which :meth:`trying` finds the table."""
        return self.name

    def read_other_columns(self) -> list[str]:
        """Return the names of the columns besides the one of public ids."""
        columns = columns_of(inspect(self.connection), self.target.table, self.target.schema)
        return [name for name in columns if self.folded(name) != self.folded(self.target.column)]

    def generated_columns(self, length: str | None = None, table: str | None = None) -> Iterator[Demand]:
        """Yield a demand for each generated column, whose expression must have a value.

        :param length: the function that measures a text; ``None`` if the database enforces no lengths.
        :param table: the name of the table in its own case, if the reflection does not find another one.
        """
        for name, each in columns_of(inspect(self.connection), table or self.target.table, self.target.schema).items():
            computed, longest = each.get("computed"), getattr(each["type"], "length", None)
            if computed is None:
                continue
            expression = computed["sqltext"]
            is_text = length is not None and isinstance(longest, int) and isinstance(each["type"], String)
            condition = f"{length}({expression}) <= {longest}" if is_text else f"({expression}) IS NULL OR 1 = 1"
            yield Demand(f"the generated column {name}", condition)

    def demands_of_triggers(self, names: Iterable[str]) -> Iterator[Demand]:
        """Yield a demand for each trigger for new rows that names the column, which a SELECT cannot try."""
        for name in names:
            yield Demand(f"the trigger {name}", None, why_not="only an INSERT runs it")

    # --- the rows

    def has_few_rows(self) -> bool:
        """Return True if the table has at most :data:`FEW_ROWS` rows, so that a strong lock lasts milliseconds."""
        rows = select(literal(1)).select_from(self._rows).limit(FEW_ROWS + 1).subquery()
        return (self.connection.scalar(select(func.count()).select_from(rows)) or 0) <= FEW_ROWS

    def has_rows_to_fill(self, state: State) -> bool:
        """Return True if a row has no id, or if there are rows and no column yet."""
        return self.has_rows(self._rows.c[self.target.column].is_(None)) if state.exists else self.has_rows()

    def has_rows(self, *conditions: ColumnElement[bool]) -> bool:
        """Return True if there is a row, or one that meets the *conditions*."""
        query = select(literal(1)).select_from(self._rows).where(*conditions).limit(1)
        return self.connection.execute(query).first() is not None

    def read_some_ids(self, limit: int = 100) -> list[str]:
        """Return some of the ids, if the column stores text."""
        query = select(self._rows.c[self.target.column]).where(self._rows.c[self.target.column].is_not(None))
        return [id for id in self.connection.scalars(query.limit(limit)) if isinstance(id, str)]

    def count_missing(self) -> int:
        """Return how many rows have no id."""
        missing = self._rows.c[self.target.column].is_(None)
        return self.connection.scalar(select(func.count()).select_from(self._rows).where(missing)) or 0

    def are_few_missing(self) -> bool:
        """Return True if a backfill has run, and has left at most one row in a hundred, or 1000 rows, without an id."""
        # not count(column), which another role may have created on PostgreSQL
        is_filled = case((self._rows.c[self.target.column].is_(None), 0), else_=1)
        query = select(func.count(), func.coalesce(func.sum(is_filled), 0)).select_from(self._rows)
        total, filled = self.connection.execute(query).one()
        return bool(filled > 0 and total - filled <= max(1000, total // 100))


_BOOLEANS = {field.name for field in fields(IndexFacts) if isinstance(field.default, bool)} | {"unique"}


def indexes_from(rows: Iterable[Mapping[Any, Any]]) -> tuple[IndexFacts, ...]:
    """Return the indexes that the *rows* of a catalog describe."""
    indexes: list[IndexFacts] = []
    for row in rows:
        # MySQL and SQLite return 0 and 1
        facts: dict[str, Any] = {name: bool(value) if name in _BOOLEANS else value for name, value in row.items()}
        columns = facts.get("columns") or ()
        facts["columns"] = () if None in columns else tuple(columns)  # a part without a name is an expression
        indexes.append(IndexFacts(**facts))
    return tuple(indexes)


# --- what SQLAlchemy reflects


def columns_of(inspector: Inspector, table: str, schema: str | None) -> dict[str, ReflectedColumn]:
    """Return the columns of *table* by name. A column of a type unknown to SQLAlchemy has ``NullType``.

    :raises ConfigurationError: if the names in SHOW CREATE TABLE, which SQLAlchemy parses on MySQL and MariaDB, have
        other quotes than it expects: it leaves out these columns, with a warning.
    """
    with _reflecting(inspector):
        columns = inspector.get_columns(table, schema=schema)
    return {_unescaped(column["name"], inspector.dialect): column for column in columns}


def largest_number(type_: Integer) -> int:
    """Return the largest number of an integer *type_*; a type that is not known has 32 bits."""
    bits = _BITS.get(type(type_).__name__, 32)
    return (1 << bits if getattr(type_, "unsigned", False) else 1 << bits - 1) - 1


@contextmanager
def _reflecting(inspector: Inspector) -> Generator[None]:
    """Hide SQLAlchemy's warnings about types that it does not recognize: only other columns have them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SAWarning)
        yield
    if any("Unknown schema content" in str(each.message) for each in caught):
        _check_quotes(inspector)


def _check_quotes(inspector: Inspector) -> None:
    bind, quote = inspector.bind, inspector.dialect.identifier_preparer.initial_quote
    query = "SHOW VARIABLES WHERE Variable_name IN ('sql_mode', 'sql_quote_show_create')"
    with nullcontext(bind) if isinstance(bind, Connection) else bind.connect() as connection:
        settings = {row.Variable_name: str(row.Value) for row in connection.exec_driver_sql(query)}
    if settings.get("sql_quote_show_create") == "OFF":
        raise ConfigurationError("SQLAlchemy cannot read tables while sql_quote_show_create is OFF: set it to 1")
    if ("ANSI_QUOTES" in settings["sql_mode"]) != (quote == '"'):
        raise ConfigurationError(
            "SQLAlchemy cannot read tables, because ANSI_QUOTES in sql_mode was changed after the engine had read it: "
            'set it by connect_args={"init_command": ...}, or by a "connect" listener with insert=True'
        )


def _unescaped(name: str, dialect: Dialect) -> str:
    # on MySQL and MariaDB, SQLAlchemy parses SHOW CREATE TABLE, and leaves a quote inside a name doubled
    quote: str = dialect.identifier_preparer.initial_quote
    return name.replace(quote * 2, quote) if traits_for(dialect).escapes_reflected_names else name
