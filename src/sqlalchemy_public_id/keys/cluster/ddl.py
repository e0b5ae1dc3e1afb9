"""The DDL of cluster keys, as strings: the table with the number of the cluster, and the counter of a column.

Every statement can run again: existing objects stay as they are, and a counter never goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sqlalchemy import DDL, CheckConstraint, Column, MetaData, SmallInteger, Table
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateTable, ExecutableDDLElement, conv

from sqlalchemy_public_id.dialects.quoting import dollar_quoted, literal, quoted_table
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.keys.ranges import LAST_CLUSTER, LAST_SEQUENCE, SEQUENCE_BITS, Range
from sqlalchemy_public_id.naming import cluster_name

CONFIG = "cluster_config"
"""The table with the number of the cluster, in one row."""
FUNCTION = "this_cluster"
"""The function of PostgreSQL that reads the number."""

_TAG = "cluster"
_MYSQL = {"mysql", "mariadb"}
_POSTGRESQL = {"postgresql", "cockroachdb"}


def as_ddl(statement: str) -> ExecutableDDLElement:
    """Return *statement* as a :class:`~sqlalchemy.DDL`, which fills in what follows a ``%``."""
    make: Callable[[str], ExecutableDDLElement] = DDL
    return make(statement.replace("%", "%%"))


def sequence_name(name: str) -> str:
    """Return the name of the counter of the table *name*; on MySQL, the counter is a table."""
    return cluster_name("sequence", name)


def config_table(metadata: MetaData, schema: str | None) -> Table:
    """Return the table with the number of the cluster. Its constraint allows one row, and a valid number."""
    return Table(
        CONFIG,
        metadata,
        Column("singleton", SmallInteger, primary_key=True, autoincrement=False, server_default="1"),
        Column("cluster", SmallInteger, nullable=False),
        # conv(): no naming convention changes the name
        CheckConstraint(f"singleton = 1 AND cluster BETWEEN 0 AND {LAST_CLUSTER}", name=conv("ck_cluster_config")),
        schema=schema,
    )


class _Statements:
    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.is_postgresql: bool = dialect.name in _POSTGRESQL
        self.is_mysql: bool = dialect.name in _MYSQL

    def _name(self, name: str, schema: str | None = None) -> str:
        return quoted_table(name, schema, self.dialect)

    def _quote(self, value: str) -> str:
        return literal(value, self.dialect)

    def no_functions(self) -> ConfigurationError:
        return ConfigurationError(
            f"{self.dialect.name} has no functions, so it cannot look up its cluster for each key; "
            f'use strategy="identity", with the number of the cluster'
        )


class Config(_Statements):
    """The table with the number of the cluster, and the function of PostgreSQL that reads it."""

    def __init__(self, dialect: Dialect, name: str = CONFIG, schema: str | None = None) -> None:
        super().__init__(dialect)
        self.schema = schema
        self.table: str = self._name(name, schema)
        self.function: str = self._name(FUNCTION, schema)
        self.wrong: str = f"{name} must have one row with a cluster from 0 to {LAST_CLUSTER}"

    def create(self) -> list[str]:
        """Create the table.

        :raises ConfigurationError: on SQLite.
        """
        if self.dialect.name == "sqlite":
            raise self.no_functions()
        table = CreateTable(config_table(MetaData(), self.schema), if_not_exists=True)
        return [str(table.compile(dialect=self.dialect)).strip()]

    def drop(self) -> list[str]:
        return [f"DROP TABLE IF EXISTS {self.table}"]

    def begin(self, cluster: int) -> list[str]:
        """Insert the row unless there is one."""
        row = f"SELECT 1, {cluster} WHERE NOT EXISTS (SELECT 1 FROM {self.table})"
        return [f"INSERT INTO {self.table} (singleton, cluster) {row}"]

    def set(self, cluster: int) -> list[str]:
        """Insert or update the row."""
        return [*self.begin(cluster), f"UPDATE {self.table} SET cluster = {cluster} WHERE singleton = 1"]

    def get(self) -> str:
        """Return the query for the number."""
        return f"SELECT cluster FROM {self.table}"

    def create_function(self) -> list[str]:
        """Create the function that a DEFAULT of PostgreSQL calls; nothing elsewhere."""
        # STABLE: all rows of a statement are of one cluster, also if another transaction changes the number meanwhile.
        # SQLAlchemy relies on it: it assigns the rows of a flush to its objects by the order of their keys.
        if not self.is_postgresql:
            return []
        hint = f"INSERT INTO {self.table} (cluster) VALUES (10);"
        body = (
            f"DECLARE\n"
            f"    of_cluster bigint;\n"
            f"    many bigint;\n"
            f"BEGIN\n"
            f"    SELECT min(cluster), count(*) INTO of_cluster, many FROM {self.table};\n"
            f"    IF many <> 1 OR of_cluster IS NULL OR of_cluster NOT BETWEEN 0 AND {LAST_CLUSTER} THEN\n"
            f"        RAISE EXCEPTION USING ERRCODE = '55000',\n"
            f"            MESSAGE = {self._quote(self.wrong)}, HINT = {self._quote(hint)};\n"
            f"    END IF;\n"
            f"    RETURN of_cluster;\n"
            f"END"
        )
        head = f"CREATE OR REPLACE FUNCTION {self.function}() RETURNS bigint\nLANGUAGE plpgsql STABLE AS "
        return [head + dollar_quoted(body, _TAG)]

    def drop_function(self) -> list[str]:
        if not self.is_postgresql:
            return []
        return [f"DROP FUNCTION IF EXISTS {self.function}()"]


class ClusterColumn(_Statements):
    """A column of cluster keys. The name of its counter comes from *sequence*, by default from the table."""

    def __init__(
        self,
        dialect: Dialect,
        table: str,
        column: str,
        *,
        schema: str | None = None,
        sequence: str | None = None,
    ) -> None:
        super().__init__(dialect)
        self.table: str = table
        self.column: str = column
        self.schema: str | None = schema
        self.config: Config = Config(dialect, schema=schema)
        self.quoted_table: str = self._name(table, schema)
        self.quoted_column: str = self._name(column)
        self.sequence: str = self._name(sequence_name(sequence or table), schema)
        self.trigger: str = self._name(cluster_name("key", table), schema)
        self.guard: str = self._name(cluster_name("range", table), schema)
        self.guard_of_given: str = self._name(cluster_name("given", table), schema)

    # --- a counter inside a range

    def begin(self, keys: Range) -> list[str]:
        """Let the counter of a new table count within *keys*."""
        if not self.is_postgresql:
            return self.limit(keys)
        limits = f"SET MINVALUE {keys.start} SET MAXVALUE {keys.last} SET START {keys.start} RESTART"
        return [f"ALTER TABLE {self.quoted_table} ALTER COLUMN {self.quoted_column} {limits}"]

    def limit(self, keys: Range) -> list[str]:
        """Let an existing counter count within *keys*, from its value, or from the first key on."""
        table, column = self.quoted_table, self.quoted_column
        first, last = keys.start, keys.last
        taken = f"(SELECT max({column}) FROM {table} WHERE {column} BETWEEN {first} AND {last})"
        if self.is_postgresql:
            return [self._do(f"MINVALUE {first} MAXVALUE {last} START {first} RESTART {first} NO CYCLE", keys, taken)]
        if self.is_mysql:
            return [f"ALTER TABLE {table} AUTO_INCREMENT = {first}"]  # after larger keys, if there are any
        named = self._quote(self.table)
        sequences = self._name("sqlite_sequence", self.schema)
        return [
            (
                f"INSERT INTO {sequences} (name, seq) SELECT {named}, 0 "
                f"WHERE NOT EXISTS (SELECT 1 FROM {sequences} WHERE name = {named})"
            ),
            (
                f"UPDATE {sequences} SET seq = max({first - 1}, CASE WHEN seq <= {last} THEN seq ELSE 0 END, "
                f"coalesce({taken}, 0)) WHERE name = {named}"
            ),
        ]

    def free(self) -> list[str]:
        """Remove the limits of the counter."""
        if self.is_postgresql:
            return [self._do("NO MINVALUE NO MAXVALUE START 1", None, "")]
        return self.drop_guard()

    def _do(self, options: str, keys: Range | None, taken: str) -> str:
        """PostgreSQL: alter the sequence of an IDENTITY or serial column, whose name may be any."""
        changed = [f"EXECUTE 'ALTER SEQUENCE ' || counter || ' {options}';"]
        if keys is not None:
            changed = [
                "EXECUTE 'SELECT last_value::numeric + is_called::int FROM ' || counter INTO upcoming;",
                f"IF upcoming NOT BETWEEN {keys.start} AND {keys.stop} THEN upcoming := {keys.start}; END IF;",
                f"upcoming := greatest(upcoming, {taken}::numeric + 1);",
                f"EXECUTE 'ALTER SEQUENCE ' || counter || ' AS bigint {options}';",
                f"PERFORM setval(counter::regclass, (upcoming - 1)::bigint, true) WHERE upcoming > {keys.start};",
            ]
        relation, named, name = (
            self._quote(self.quoted_table),
            self._quote(self.column),
            f"{self.table}.{self.column}",
        )
        missing = self._quote(f"{name} is neither IDENTITY nor serial")
        computed = self._quote(f"{name} has a counter of its own: run op.drop_cluster_sequence() first")
        lines = [
            # writers may still draw keys: the lock waits for their end before anything is read
            f"LOCK TABLE {self.quoted_table} IN SHARE ROW EXCLUSIVE MODE;",
            "IF counter IS NULL THEN",
            f"    RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = {missing};",
            "END IF;",
            "IF NOT EXISTS (SELECT FROM pg_attribute a LEFT JOIN pg_attrdef d ON adrelid = attrelid AND adnum = attnum",
            f"    WHERE attrelid = {relation}::regclass AND attname = {named}",
            "    AND (attidentity <> '' OR strpos(pg_get_expr(adbin, adrelid), 'nextval(') = 1)) THEN",
            f"    RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = {computed};",
            "END IF;",
            *changed,
        ]
        return self._block(["counter text := " + self._serial + ";", "upcoming numeric;"], lines)

    @property
    def _serial(self) -> str:
        return f"pg_get_serial_sequence({self._quote(self.quoted_table)}, {self._quote(self.column)})"

    @staticmethod
    def _block(declared: Iterable[str], lines: Iterable[str]) -> str:
        # one statement of PostgreSQL, so one transaction, also with AUTOCOMMIT
        body = ["DECLARE", *(f"    {line}" for line in declared), "BEGIN", *(f"    {line}" for line in lines), "END"]
        return "DO " + dollar_quoted("\n".join(["#variable_conflict use_column", *body]), _TAG)

    def create_guard(self, keys: Range) -> list[str]:
        """Create triggers that refuse keys outside of *keys*, unless the counter has limits of its own."""
        message = f"the key of {self.table} is outside of its range, {keys.start} to {keys.last}"[:127]
        outside = f"NEW.{self.quoted_column} NOT BETWEEN {keys.start} AND {keys.last}"
        if self.is_mysql:
            refused = (
                f"{outside} AND @any_cluster IS NULL THEN "
                f"SIGNAL SQLSTATE '22003' SET MESSAGE_TEXT = {self._quote(message)}; END IF"
            )
            on = f"INSERT ON {self.quoted_table} FOR EACH ROW IF"
            # The value of AUTO_INCREMENT is known after the INSERT only. A given key has moved the counter by then, so
            # it is refused before.
            return [
                *self.drop_guard(),
                f"CREATE TRIGGER {self.guard_of_given} BEFORE {on} NEW.{self.quoted_column} <> 0 AND {refused}",
                f"CREATE TRIGGER {self.guard} AFTER {on} {refused}",
            ]
        if self.dialect.name == "sqlite":
            on = self._name(self.table)
            refused = f"BEGIN SELECT RAISE(ABORT, {self._quote(message)}); END"
            return [*self.drop_guard(), f"CREATE TRIGGER {self.guard} AFTER INSERT ON {on} WHEN {outside} {refused}"]
        return []

    def drop_guard(self) -> list[str]:
        if self.is_postgresql:
            return []
        given = [f"DROP TRIGGER IF EXISTS {self.guard_of_given}"] if self.is_mysql else []
        return [*given, f"DROP TRIGGER IF EXISTS {self.guard}"]

    # --- a counter of its own, and the number of the cluster looked up for each key

    def create_sequence(self, *, existing: bool = True) -> list[str]:
        """Create the counter, and the default or trigger that builds a key. It goes on after *existing* rows.

        :raises ConfigurationError: on a database without functions.
        """
        table, column = self.quoted_table, self.quoted_column
        taken = f"(SELECT max({column} & {LAST_SEQUENCE}) AS number FROM {table}) AS taken"
        if self.is_postgresql:
            default = f"({self.config.function}() << {SEQUENCE_BITS}) + nextval({self._quote(self.sequence)}::regclass)"
            changed = [
                f"ALTER TABLE {table} ALTER COLUMN {column} DROP IDENTITY IF EXISTS",
                f"ALTER TABLE {table} ALTER COLUMN {column} SET DEFAULT {default}",
            ]
            counted_over = [
                f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE;",
                f"largest := (SELECT number FROM {taken});",
                "IF counter IS NOT NULL THEN",  # deleted keys do not come again
                f"    EXECUTE 'SELECT CASE WHEN is_called THEN last_value & {LAST_SEQUENCE} END FROM ' || counter",
                "        INTO issued;",
                "END IF;",
                f"PERFORM setval({self._quote(self.sequence)}::regclass, greatest(largest, issued))",
                f"    WHERE greatest(largest, issued) >= (SELECT last_value FROM {self.sequence});",
                *(f"{statement};" for statement in changed),
                f"IF to_regclass(counter) <> {self._quote(self.sequence)}::regclass THEN",  # of a serial
                "    EXECUTE 'ALTER SEQUENCE ' || counter || ' OWNED BY NONE';",
                "END IF;",
            ]
            declared = ["counter text := " + self._serial + ";", "largest bigint;", "issued bigint;"]
            return [
                f"CREATE SEQUENCE IF NOT EXISTS {self.sequence} MINVALUE 1 MAXVALUE {LAST_SEQUENCE} NO CYCLE",
                *([self._block(declared, counted_over)] if existing else changed),
                f"ALTER SEQUENCE {self.sequence} OWNED BY {table}.{column}",
            ]
        if not self.is_mysql:
            raise self.no_functions()
        if self.dialect.name == "mariadb":
            counter = [f"CREATE SEQUENCE IF NOT EXISTS {self.sequence} MINVALUE 1 MAXVALUE {LAST_SEQUENCE} NOCYCLE"]
            over = [  # SETVAL takes numbers as they stand only, and never goes back
                (
                    f"SET @cluster_do = (SELECT IF(number > 0, "
                    f"CONCAT({self._quote(f'SELECT SETVAL({self.sequence}, ')}, number, ')'), 'DO 0') FROM {taken})"
                ),
                "PREPARE cluster_do FROM @cluster_do",
                "EXECUTE cluster_do",
                "DEALLOCATE PREPARE cluster_do",
            ]
            draw = f"SET number = NEXTVAL({self.sequence}); "
        else:
            counter = [
                f"CREATE TABLE IF NOT EXISTS {self.sequence} (number BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY)"
            ]
            # AUTO_INCREMENT is not rolled back and waits for no lock; a row to count in would be locked until COMMIT
            over = [
                f"INSERT INTO {self.sequence} SELECT number FROM {taken} WHERE number > 0",
                f"DELETE FROM {self.sequence}",
            ]
            draw = (
                f"INSERT INTO {self.sequence} () VALUES (); SET number = LAST_INSERT_ID(); "
                f"DELETE FROM {self.sequence} WHERE {self.sequence}.number = LAST_INSERT_ID(); "
                f"IF number > {LAST_SEQUENCE} THEN SIGNAL SQLSTATE '22003' "
                f"SET MESSAGE_TEXT = {self._quote(f'the keys of {self.table} are used up'[:127])}; END IF; "
            )
        return [
            *counter,
            *(over if existing else []),
            f"DROP TRIGGER IF EXISTS {self.trigger}",
            (
                f"CREATE TRIGGER {self.trigger} BEFORE INSERT ON {table} FOR EACH ROW BEGIN "
                f"DECLARE of_cluster, many, number BIGINT; "
                f"IF NEW.{column} = 0 OR NEW.{column} IS NULL THEN "
                f"SELECT MIN(cluster), COUNT(*) INTO of_cluster, many FROM {self.config.table}; "
                f"IF many <> 1 OR of_cluster IS NULL OR of_cluster NOT BETWEEN 0 AND {LAST_CLUSTER} THEN "
                f"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = {self._quote(self.config.wrong[:127])}; END IF; "
                f"{draw}"
                f"SET NEW.{column} = (of_cluster << {SEQUENCE_BITS}) + number; "
                f"END IF; END"
            ),
        ]

    def drop_sequence(self) -> list[str]:
        """Return to a plain IDENTITY or AUTO_INCREMENT."""
        table, column = self.quoted_table, self.quoted_column
        if self.is_postgresql:
            relation, named = self._quote(table), self._quote(self.column)
            block = (
                f"BEGIN\n"
                f"    IF EXISTS (SELECT FROM pg_attribute WHERE attrelid = {relation}::regclass "
                f"AND attname = {named} AND attidentity = '') THEN\n"
                f"        ALTER TABLE {table} ALTER COLUMN {column} DROP DEFAULT;\n"
                f"        DROP SEQUENCE IF EXISTS {self.sequence};\n"
                f"        ALTER TABLE {table} ALTER COLUMN {column} ADD GENERATED BY DEFAULT AS IDENTITY;\n"
                f"        PERFORM setval(pg_get_serial_sequence({relation}, {named}), taken) "
                f"FROM (SELECT max({column}) AS taken FROM {table}) AS keys WHERE taken >= 1;\n"
                f"    END IF;\n"
                f"END"
            )
            return [f"DO {dollar_quoted(block, _TAG)}"]
        if not self.is_mysql:
            raise self.no_functions()
        return [f"DROP TRIGGER IF EXISTS {self.trigger}", *self.drop_counter()]

    def drop_counter(self) -> list[str]:
        """Drop what is left of a dropped table, which took its trigger along, on PostgreSQL also the sequence."""
        kind = "TABLE" if self.dialect.name == "mysql" else "SEQUENCE"
        return [f"DROP {kind} IF EXISTS {self.sequence}"]
