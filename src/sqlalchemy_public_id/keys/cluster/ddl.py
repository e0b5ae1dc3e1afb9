"""The DDL of cluster keys, as strings: the table with the number of the cluster, and the counter of a column.

Every statement can be repeated: existing objects stay as they are, and a counter never moves back.

On PostgreSQL, functions are qualified, and the types of operators match exactly: otherwise, an operator that another
role has created could run as the role that migrates, or that inserts.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import DDL, CheckConstraint, Column, MetaData, SmallInteger, Table
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateTable, ExecutableDDLElement, conv

from sqlalchemy_public_id.dialects import KeyCounter, key_counter_of
from sqlalchemy_public_id.dialects.postgresql import key_sequence
from sqlalchemy_public_id.dialects.quoting import dollar_quoted, literal, quoted_table
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.keys.ranges import LAST_CLUSTER, LAST_SEQUENCE, SEQUENCE_BITS, Range
from sqlalchemy_public_id.naming import cluster_name

CONFIG = "cluster_config"
"""The table with the number of the cluster, in one row."""
PREFIX = "cluster_sequence_"
"""The beginning of the names of all counters of ``strategy="function"``."""

_IS_OURS = f"pg_catalog.strpos(counter, '{PREFIX}') > 0"
_WRONG = f"{CONFIG} must have one row with a cluster from 0 to {LAST_CLUSTER}"


def as_ddl(statement: str) -> ExecutableDDLElement:
    """Return *statement* as a :class:`~sqlalchemy.DDL`, in which each ``%`` has to be doubled."""
    make: Callable[[str], ExecutableDDLElement] = DDL
    return make(statement.replace("%", "%%"))


def sequence_name(name: str) -> str:
    """Return the name of the counter of the table *name*; on MySQL and MariaDB, the counter is a table."""
    return cluster_name("sequence", name)


def config_table(metadata: MetaData, schema: str | None) -> Table:
    """Return the table with the number of the cluster. Its constraint allows one row, with a valid number."""
    return Table(
        CONFIG,
        metadata,
        Column("singleton", SmallInteger, primary_key=True, autoincrement=False, server_default="1"),
        Column("cluster", SmallInteger, nullable=False),
        # conv(): no naming convention changes the name
        CheckConstraint(f"singleton = 1 AND cluster BETWEEN 0 AND {LAST_CLUSTER}", name=conv("ck_cluster_config")),
        schema=schema,
        keep_existing=True,
    )


def is_config(table: Table) -> bool:
    """Return True for the table with the number of the cluster, in a model or in the database."""
    return table.name == CONFIG and set(table.columns.keys()) == {"singleton", "cluster"}


class _Statements:
    """Statements for the database of *dialect*.

    :raises ConfigurationError: if it is unknown how this database counts keys.
    """

    def __init__(self, dialect: Dialect, schema: str | None) -> None:
        self.dialect = dialect
        self.schema = schema
        counter = key_counter_of(dialect)
        self.is_postgresql: bool = counter is KeyCounter.SEQUENCE
        self.is_mysql: bool = counter is KeyCounter.AUTO_INCREMENT

    def _name(self, name: str) -> str:
        return quoted_table(name, self.schema, self.dialect)

    def _quote(self, value: str) -> str:
        return literal(value, self.dialect)


class Config(_Statements):
    """The table with the number of the cluster, and the function of PostgreSQL that reads it.

    :raises ConfigurationError: on SQLite.
    """

    def __init__(self, dialect: Dialect, schema: str | None) -> None:
        super().__init__(dialect, schema)
        if not (self.is_postgresql or self.is_mysql):
            raise ConfigurationError(
                "SQLite has no stored functions, so it cannot look up its cluster for each key; "
                'use strategy="identity", with the number of the cluster'
            )
        self.table: str = self._name(CONFIG)
        self.function: str = f"{self._name('this_cluster')}()"

    def create(self) -> list[str]:
        table = CreateTable(config_table(MetaData(), self.schema), if_not_exists=True)
        return [str(table.compile(dialect=self.dialect)).strip(), *self.create_function()]

    def drop(self) -> list[str]:
        return [*self.drop_function(), f"DROP TABLE IF EXISTS {self.table}"]

    def begin(self, cluster: int) -> list[str]:
        """Insert the row, unless it exists. The primary key refuses a row with another number."""
        row = f"SELECT 1, {cluster} WHERE NOT EXISTS (SELECT 1 FROM {self.table} WHERE cluster = {cluster})"
        return [f"INSERT INTO {self.table} (singleton, cluster) {row}"]

    def set(self, cluster: int) -> list[str]:
        """Update or insert the row."""
        return [f"UPDATE {self.table} SET cluster = {cluster} WHERE singleton = 1", *self.begin(cluster)]

    def create_function(self) -> list[str]:
        """Create the function that a DEFAULT of PostgreSQL calls; nothing elsewhere."""
        # STABLE: all rows of a statement get one cluster, even if another transaction changes the number meanwhile.
        # SQLAlchemy relies on that: it assigns the rows of a flush to its objects by the order of their keys.
        if not self.is_postgresql:
            return []
        before, after = self._body()
        head = f"CREATE OR REPLACE FUNCTION {self.function} RETURNS bigint\nLANGUAGE plpgsql STABLE AS "
        if self.schema:
            return [head + dollar_quoted(before + self.table + after, "cluster")]
        # The function names the schema in which the table is found now: an INSERT may have another search path, such as
        # the empty one of a function with SET search_path = '', or one with the table of another tenant.
        body = (
            f"DECLARE config text := (\n"
            f"    SELECT pg_catalog.format('%I.%I', n.nspname, c.relname) FROM pg_catalog.pg_class c\n"
            f"    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace\n"
            f"    WHERE c.oid = {self._quote(self.table)}::regclass::oid);\n"
            f"BEGIN\n"
            f"    EXECUTE {self._quote(head)}\n"
            f"        || pg_catalog.quote_literal({self._quote(before)} || config || {self._quote(after)});\n"
            f"END"
        )
        return ["DO " + dollar_quoted(body, "cluster")]

    def source_of_function(self, table: str) -> str:
        """Return the source of the function, as ``pg_proc`` shows it, that reads *table*, a qualified name."""
        return table.join(self._body())

    def _body(self) -> tuple[str, str]:
        """Return the source of the function before and after the name of the table."""
        hint = f"INSERT INTO {self.table} (cluster) VALUES (10);"
        return "DECLARE of_cluster bigint := (SELECT cluster FROM ", (
            f");\n"
            f"BEGIN\n"
            f"    IF coalesce(of_cluster, -1) NOT BETWEEN 0 AND {LAST_CLUSTER} THEN\n"
            f"        RAISE EXCEPTION USING ERRCODE = '55000',\n"
            f"            MESSAGE = '{_WRONG}', HINT = {self._quote(hint)};\n"
            f"    END IF;\n"
            f"    RETURN of_cluster;\n"
            f"END"
        )

    def drop_function(self) -> list[str]:
        return [f"DROP FUNCTION IF EXISTS {self.function}"] if self.is_postgresql else []


class ClusterColumn(_Statements):
    """A column of cluster keys. The name of its counter comes from *sequence*, by default from the table."""

    def __init__(
        self, dialect: Dialect, table: str, column: str, *, schema: str | None = None, sequence: str | None = None
    ) -> None:
        super().__init__(dialect, schema)
        self.name: str = table
        self.table: str = self._name(table)
        self.column: str = quoted_table(column, None, dialect)
        self.sequence: str = self._name(sequence_name(sequence or table))
        self.trigger: str = self._name(cluster_name("key", table))
        self.guards: list[str] = [self._name(cluster_name("given", table)), self._name(cluster_name("range", table))]
        self._serial = f"{key_sequence(self._quote(self.table), self._quote(column))}::regclass::text"

    # --- a counter inside a range

    def limit(self, keys: Range | None) -> list[str]:
        """Limit the counter to *keys*: it continues from its value, or begins at the first key. ``None``: no limits."""
        if self.is_postgresql:
            return self._limit_sequence(keys)
        if keys is None:
            return []
        if self.is_mysql:
            return [f"ALTER TABLE {self.table} AUTO_INCREMENT = {keys.start}"]  # after larger keys, if there are any
        # SQLite ignores the case of a table's name, but stores it as it was written with the counter
        named, counters = f"name = {self._quote(self.name)} COLLATE NOCASE", self._name("sqlite_sequence")
        missing = f"NOT EXISTS (SELECT 1 FROM {counters} WHERE {named})"
        begun = f"CASE WHEN seq <= {keys.last} THEN seq ELSE 0 END"
        value = f"max({keys.start - 1}, {begun}, coalesce({self._largest(keys)}, 0))"
        source = f"{self._name('sqlite_master')} WHERE type = 'table' AND {named} AND {missing}"
        return [
            f"INSERT INTO {counters} (name, seq) SELECT name, 0 FROM {source}",
            f"UPDATE {counters} SET seq = {value} WHERE {named}",
        ]

    def _largest(self, keys: Range) -> str:
        return f"(SELECT max({self.column}) FROM {self.table} WHERE {self.column} BETWEEN {keys.start} AND {keys.last})"

    def _limit_sequence(self, keys: Range | None) -> list[str]:
        # the sequence of an IDENTITY or serial column may have any name
        refusal = self._quote(f"the key of {self.name} has a function: run op.drop_cluster_sequence() first")
        add = f"ALTER TABLE {self.table} ALTER COLUMN {self.column} ADD GENERATED BY DEFAULT AS IDENTITY"
        changes = ["EXECUTE 'ALTER SEQUENCE ' || counter || ' NO MINVALUE NO MAXVALUE START 1';"]
        if keys is not None:
            limits = f"MINVALUE {keys.start} MAXVALUE {keys.last} START {keys.start} RESTART {keys.start} NO CYCLE"
            changes = [
                "EXECUTE 'SELECT last_value::numeric + is_called::int::numeric FROM ' || counter INTO upcoming;",
                f"IF upcoming NOT BETWEEN {keys.start}::numeric AND {keys.stop}::numeric THEN",
                f"    upcoming := {keys.start};",
                "END IF;",
                f"upcoming := greatest(upcoming, {self._largest(keys)}::numeric + 1::numeric);",
                f"EXECUTE 'ALTER SEQUENCE ' || counter || ' AS bigint {limits}';",
                "PERFORM pg_catalog.setval(counter::regclass, (upcoming - 1::numeric)::bigint, true)",
                f"    WHERE upcoming > {keys.start}::numeric;",
            ]
        return self._block(
            "upcoming numeric;",
            f"IF {_IS_OURS} THEN RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = {refusal}; END IF;",
            f"IF counter IS NULL THEN {add}; counter := {self._serial}; END IF;",
            *changes,
        )

    def _block(self, declared: str, *lines: str) -> list[str]:
        # one statement of PostgreSQL, so one transaction, even under AUTOCOMMIT
        head = f"DECLARE counter text := {self._serial}; {declared}"
        # other transactions may still draw keys: the lock waits for their end, before anything is read
        lock = f"LOCK TABLE {self.table} IN SHARE ROW EXCLUSIVE MODE;"
        body = "\n".join(["#variable_conflict use_column", head, "BEGIN", lock, *lines, "END"])
        return ["DO " + dollar_quoted(body, "cluster")]

    def guard(self, keys: Range | None) -> list[str]:
        """Replace the triggers by ones that refuse keys outside of *keys*; with ``None``, only drop them.

        PostgreSQL needs none: its counters have limits.
        """
        if self.is_postgresql:
            return []
        given, range_ = self.guards
        statements = [f"DROP TRIGGER IF EXISTS {name}" for name in (self.guards if self.is_mysql else [range_])]
        if keys is None:
            return statements
        message = self._quote(f"the key of {self.name} is outside of its range, {keys.start} to {keys.last}"[:127])
        outside = f"NEW.{self.column} NOT BETWEEN {keys.start} AND {keys.last}"
        if not self.is_mysql:
            on = f"INSERT ON {quoted_table(self.name, None, self.dialect)} WHEN {outside}"
            refusal = f"BEGIN SELECT RAISE(ABORT, {message}); END"
            return [*statements, f"CREATE TRIGGER {range_} AFTER {on} {refusal}"]
        on = f"INSERT ON {self.table} FOR EACH ROW IF"
        refusal = (
            f"{outside} AND @any_cluster IS NULL THEN SIGNAL SQLSTATE '22003' SET MESSAGE_TEXT = {message}; END IF"
        )
        return [
            *statements,
            # The value of AUTO_INCREMENT is known only after the INSERT. By then, an explicit key has moved the
            # counter, so it is refused before the INSERT.
            f"CREATE TRIGGER {given} BEFORE {on} NEW.{self.column} <> 0 AND {refusal}",
            f"CREATE TRIGGER {range_} AFTER {on} {refusal}",
        ]

    # --- a separate counter, and the number of the cluster, looked up for each key

    def create_sequence(self) -> list[str]:
        """Create the counter, and the default or trigger that builds a key. It continues after existing rows."""
        config, sequence = Config(self.dialect, self.schema), self.sequence
        table, column = self.table, self.column
        taken = f"(SELECT max({column} & {LAST_SEQUENCE}) AS number FROM {table}) AS taken"
        if self.is_postgresql:
            regclass = f"{self._quote(sequence)}::regclass"
            default = f"({config.function} << {SEQUENCE_BITS}) + pg_catalog.nextval({regclass})"
            return [
                f"CREATE SEQUENCE IF NOT EXISTS {sequence} MINVALUE 1 MAXVALUE {LAST_SEQUENCE} NO CYCLE",
                *self._block(
                    "issued bigint;",
                    "IF counter IS NOT NULL THEN",  # keys of deleted rows are not issued again
                    f"    EXECUTE 'SELECT CASE WHEN is_called THEN last_value & {LAST_SEQUENCE} END FROM ' || counter",
                    "        INTO issued;",
                    "END IF;",
                    f"issued := greatest(issued, (SELECT number FROM {taken}));",
                    f"PERFORM pg_catalog.setval({regclass}, issued)",
                    f"    WHERE issued >= (SELECT last_value FROM {sequence});",
                    f"ALTER TABLE {table} ALTER COLUMN {column} DROP IDENTITY IF EXISTS;",
                    f"ALTER TABLE {table} ALTER COLUMN {column} SET DEFAULT {default};",
                    # the sequence of a serial column; a default may have drawn from that of another table
                    "IF EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.deptype = 'a'",
                    "    AND d.objid = pg_catalog.to_regclass(counter)::oid",
                    f"    AND d.refobjid = {self._quote(table)}::regclass::oid AND d.objid <> {regclass}::oid) THEN",
                    "    EXECUTE 'ALTER SEQUENCE ' || counter || ' OWNED BY NONE';",
                    "END IF;",
                    f"ALTER SEQUENCE {sequence} OWNED BY {table}.{column};",
                ),
            ]
        used_up = self._quote(f"the keys of {self.name} are used up"[:127])
        return [
            f"CREATE TABLE IF NOT EXISTS {sequence} (number BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY)",
            # AUTO_INCREMENT is not rolled back and waits for no lock; a row with a counter would be locked until COMMIT
            f"INSERT INTO {sequence} SELECT number FROM {taken} WHERE number > 0",
            f"DELETE FROM {sequence}",
            f"DROP TRIGGER IF EXISTS {self.trigger}",
            (
                f"CREATE TRIGGER {self.trigger} BEFORE INSERT ON {table} FOR EACH ROW BEGIN "
                f"DECLARE of_cluster BIGINT; "
                f"IF NEW.{column} = 0 OR NEW.{column} IS NULL THEN "
                f"SELECT cluster INTO of_cluster FROM {config.table}; "
                f"IF COALESCE(of_cluster, -1) NOT BETWEEN 0 AND {LAST_CLUSTER} THEN "
                f"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{_WRONG}'; END IF; "
                f"INSERT INTO {sequence} () VALUES (); "
                f"DELETE FROM {sequence} WHERE number = LAST_INSERT_ID(); "
                f"IF LAST_INSERT_ID() > {LAST_SEQUENCE} THEN "
                f"SIGNAL SQLSTATE '22003' SET MESSAGE_TEXT = {used_up}; END IF; "
                f"SET NEW.{column} = (of_cluster << {SEQUENCE_BITS}) + LAST_INSERT_ID(); "
                f"END IF; END"
            ),
        ]

    def drop_sequence(self) -> list[str]:
        """Return to a plain IDENTITY or AUTO_INCREMENT."""
        table, column = self.table, self.column
        if not self.is_postgresql:
            return [f"DROP TRIGGER IF EXISTS {self.trigger}", *self.drop_counter()]
        return self._block(
            "",
            f"IF {_IS_OURS} THEN",
            f"    ALTER TABLE {table} ALTER COLUMN {column} DROP DEFAULT;",
            "    EXECUTE 'DROP SEQUENCE ' || counter;",
            f"    ALTER TABLE {table} ALTER COLUMN {column} ADD GENERATED BY DEFAULT AS IDENTITY;",
            f"    PERFORM pg_catalog.setval({self._serial}::regclass, number)",
            f"        FROM (SELECT max({column}) AS number FROM {table}) AS taken WHERE number >= 1;",
            "END IF;",
        )

    def drop_counter(self) -> list[str]:
        """Drop the counter of a dropped table. DROP TABLE has dropped its trigger and, on PostgreSQL, the sequence."""
        return [f"DROP {'SEQUENCE' if self.is_postgresql else 'TABLE'} IF EXISTS {self.sequence}"]
