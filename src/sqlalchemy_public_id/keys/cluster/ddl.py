"""The DDL of cluster keys: what each database is told, in full, as text.

Everything here can be run again: what is there already is left as it is, and a counter never goes back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy.engine import Dialect

from sqlalchemy_public_id.dialects.quoting import delimited, dollar_quoted
from sqlalchemy_public_id.keys.cluster.config import CONFIG, FUNCTION, MYSQL, POSTGRESQL, TAG, Config, Quoting, as_ddl
from sqlalchemy_public_id.keys.ranges import LAST_CLUSTER, LAST_SEQUENCE, SEQUENCE_BITS, Range
from sqlalchemy_public_id.naming import cluster_name

__all__ = ["CONFIG", "FUNCTION", "ClusterColumn", "Config", "as_ddl", "in_script", "sequence_name"]


@dataclass(frozen=True)
class _Place:
    table: str
    column: str
    schema: str | None


class ClusterColumn(Quoting):
    """A column of cluster keys.

    :param sequence: what its own counter is called, where it is not the table.
    """

    def __init__(
        self,
        dialect: Dialect,
        table: str,
        column: str,
        *,
        schema: str | None = None,
        sequence: str | None = None,
        config: Config | None = None,
    ) -> None:
        super().__init__(dialect)
        self.place = _Place(table, column, schema)
        self.config = config or Config(dialect, schema=schema)
        self.quoted_table, self.quoted_column = self.name(table, schema), self.column(column)
        self.sequence_name = sequence_name(sequence or table)
        self.sequence = self.name(self.sequence_name, schema)
        self.trigger = self.name(cluster_name("key", table), schema)
        self.guard = self.name(cluster_name("range", table), schema)
        self.guard_of_given = self.name(cluster_name("given", table), schema)

    # --- a counter inside a range

    def begin(self, keys: Range) -> list[str]:
        """Let the counter of a table that is new count within *keys*."""
        if self.dialect.name not in POSTGRESQL:
            return self.limit(keys)
        limits = f"SET MINVALUE {keys.start} SET MAXVALUE {keys.last} SET START {keys.start} RESTART"
        return [f"ALTER TABLE {self.quoted_table} ALTER COLUMN {self.quoted_column} {limits}"]

    def limit(self, keys: Range) -> list[str]:
        """Let the counter that is there count within *keys*, from where it is, or from the first one on."""
        table, column = self.quoted_table, self.quoted_column
        first, last = keys.start, keys.last
        taken = f"(SELECT max({column}) FROM {table} WHERE {column} BETWEEN {first} AND {last})"
        if self.dialect.name in POSTGRESQL:
            return [self._do(f"MINVALUE {first} MAXVALUE {last} START {first} RESTART {first} NO CYCLE", keys, taken)]
        if self.dialect.name in MYSQL:
            return [f"ALTER TABLE {table} AUTO_INCREMENT = {first}"]  # where larger keys are there: after them
        named = self.text(self.place.table)
        sequences = self.name("sqlite_sequence", self.place.schema)
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
        """Let the counter go on without limits."""
        if self.dialect.name in POSTGRESQL:
            return [self._do("NO MINVALUE NO MAXVALUE START 1", None, "")]
        return self.drop_guard()

    def _do(self, options: str, keys: Range | None, taken: str) -> str:
        """PostgreSQL: ALTER the sequence of the column, whatever it is called, be it of IDENTITY or serial."""
        changed = [f"EXECUTE 'ALTER SEQUENCE ' || counter || ' {options}';"]
        if keys is not None:
            changed = [
                "EXECUTE 'SELECT last_value::numeric + is_called::int FROM ' || counter INTO upcoming;",
                f"IF upcoming NOT BETWEEN {keys.start} AND {keys.stop} THEN upcoming := {keys.start}; END IF;",
                f"upcoming := greatest(upcoming, {taken}::numeric + 1);",
                f"EXECUTE 'ALTER SEQUENCE ' || counter || ' AS bigint {options}';",
                f"PERFORM setval(counter::regclass, (upcoming - 1)::bigint, true) WHERE upcoming > {keys.start};",
            ]
        relation, named, name = self.text(self.quoted_table), self.text(self.place.column), self._full_name
        missing = self.text(f"{name} is neither IDENTITY nor serial")
        computed = self.text(f"{name} has a counter of its own: run op.drop_cluster_sequence() first")
        lines = [
            # who writes may still draw a key: nothing is read before they are done
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
    def _full_name(self) -> str:
        return f"{self.place.table}.{self.place.column}"

    @property
    def _serial(self) -> str:
        """PostgreSQL: the sequence that belongs to the column."""
        return f"pg_get_serial_sequence({self.text(self.quoted_table)}, {self.text(self.place.column)})"

    @staticmethod
    def _block(declared: Iterable[str], lines: Iterable[str]) -> str:
        """PostgreSQL: one statement, so one transaction, also with AUTOCOMMIT."""
        written = ["DECLARE", *(f"    {line}" for line in declared), "BEGIN", *(f"    {line}" for line in lines), "END"]
        return "DO " + dollar_quoted("\n".join(["#variable_conflict use_column", *written]), TAG)

    def create_guard(self, keys: Range) -> list[str]:
        """Triggers that refuse keys outside of *keys*, where the counter has no limits of its own.

        On MySQL and MariaDB, what AUTO_INCREMENT made is known afterwards only; but then the counter has moved, so a
        key that is given has to be refused before.
        """
        message = f"the key of {self.place.table} is outside of its range, {keys.start} to {keys.last}"[:127]
        outside = f"NEW.{self.quoted_column} NOT BETWEEN {keys.start} AND {keys.last}"
        if self.dialect.name in MYSQL:
            refused = (
                f"{outside} AND @any_cluster IS NULL THEN "
                f"SIGNAL SQLSTATE '22003' SET MESSAGE_TEXT = {self.text(message)}; END IF"
            )
            on = f"INSERT ON {self.quoted_table} FOR EACH ROW IF"
            return [
                *self.drop_guard(),
                f"CREATE TRIGGER {self.guard_of_given} BEFORE {on} NEW.{self.quoted_column} <> 0 AND {refused}",
                f"CREATE TRIGGER {self.guard} AFTER {on} {refused}",
            ]
        if self.dialect.name == "sqlite":
            on = self.column(self.place.table)
            return [
                *self.drop_guard(),
                (
                    f"CREATE TRIGGER {self.guard} AFTER INSERT ON {on} WHEN {outside} "
                    f"BEGIN SELECT RAISE(ABORT, {self.text(message)}); END"
                ),
            ]
        return []

    def drop_guard(self) -> list[str]:
        if self.dialect.name in POSTGRESQL:
            return []
        given = [f"DROP TRIGGER IF EXISTS {self.guard_of_given}"] if self.dialect.name in MYSQL else []
        return [*given, f"DROP TRIGGER IF EXISTS {self.guard}"]

    # --- a counter of its own, and the number of the cluster looked up for each key

    def create_sequence(self, *, existing: bool = True) -> list[str]:
        """The counter, and what makes a key of it and of the cluster; *existing* rows are counted over.

        :raises ConfigurationError: on a database that has no functions.
        """
        dialect, table, column = self.dialect.name, self.quoted_table, self.quoted_column
        taken = f"(SELECT max({column} & {LAST_SEQUENCE}) AS number FROM {table}) AS taken"
        if dialect in POSTGRESQL:
            default = f"({self.config.function}() << {SEQUENCE_BITS}) + nextval({self.text(self.sequence)}::regclass)"
            changed = [
                f"ALTER TABLE {table} ALTER COLUMN {column} DROP IDENTITY IF EXISTS",
                f"ALTER TABLE {table} ALTER COLUMN {column} SET DEFAULT {default}",
            ]
            counted_over = [
                f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE;",
                f"largest := (SELECT number FROM {taken});",
                "IF counter IS NOT NULL THEN",  # keys that were made and deleted do not come again
                f"    EXECUTE 'SELECT CASE WHEN is_called THEN last_value & {LAST_SEQUENCE} END FROM ' || counter",
                "        INTO issued;",
                "END IF;",
                f"PERFORM setval({self.text(self.sequence)}::regclass, greatest(largest, issued))",
                f"    WHERE greatest(largest, issued) >= (SELECT last_value FROM {self.sequence});",
                *(f"{statement};" for statement in changed),
                f"IF to_regclass(counter) <> {self.text(self.sequence)}::regclass THEN",  # of a serial
                "    EXECUTE 'ALTER SEQUENCE ' || counter || ' OWNED BY NONE';",
                "END IF;",
            ]
            declared = ["counter text := " + self._serial + ";", "largest bigint;", "issued bigint;"]
            return [
                f"CREATE SEQUENCE IF NOT EXISTS {self.sequence} MINVALUE 1 MAXVALUE {LAST_SEQUENCE} NO CYCLE",
                *([self._block(declared, counted_over)] if existing else changed),
                f"ALTER SEQUENCE {self.sequence} OWNED BY {table}.{column}",
            ]
        if dialect not in MYSQL:
            raise self.refuse()
        if dialect == "mariadb":
            counter = [f"CREATE SEQUENCE IF NOT EXISTS {self.sequence} MINVALUE 1 MAXVALUE {LAST_SEQUENCE} NOCYCLE"]
            over = [  # SETVAL takes numbers as they stand only, and never goes back
                (
                    f"SET @cluster_do = (SELECT IF(number > 0, CONCAT({self.text(f'SELECT SETVAL({self.sequence}, ')}, "
                    f"number, ')'), 'DO 0') FROM {taken})"
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
            # an AUTO_INCREMENT is not rolled back and waits for nobody; a row to count in would be locked until COMMIT
            over = [
                f"INSERT INTO {self.sequence} SELECT number FROM {taken} WHERE number > 0",
                f"DELETE FROM {self.sequence}",
            ]
            draw = (
                f"INSERT INTO {self.sequence} () VALUES (); SET number = LAST_INSERT_ID(); "
                f"DELETE FROM {self.sequence} WHERE {self.sequence}.number = LAST_INSERT_ID(); "
                f"IF number > {LAST_SEQUENCE} THEN SIGNAL SQLSTATE '22003' "
                f"SET MESSAGE_TEXT = {self.text(f'the keys of {self.place.table} are used up'[:127])}; END IF; "
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
                f"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = {self.text(self.config.wrong[:127])}; END IF; "
                f"{draw}"
                f"SET NEW.{column} = (of_cluster << {SEQUENCE_BITS}) + number; "
                f"END IF; END"
            ),
        ]

    def drop_sequence(self) -> list[str]:
        """Let the key count up by itself again."""
        table, column = self.quoted_table, self.quoted_column
        if self.dialect.name in POSTGRESQL:
            relation, named = self.text(table), self.text(self.place.column)
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
            return [f"DO {dollar_quoted(block, TAG)}"]
        if self.dialect.name not in MYSQL:
            raise self.refuse()
        return [f"DROP TRIGGER IF EXISTS {self.trigger}", *self.drop_counter()]

    def drop_counter(self) -> list[str]:
        """Remove what is left when the table is gone: a trigger goes with it, on PostgreSQL the sequence too."""
        kind = "TABLE" if self.dialect.name == "mysql" else "SEQUENCE"
        return [f"DROP {kind} IF EXISTS {self.sequence}"]


def sequence_name(name: str) -> str:
    """What the counter of the table *name* is called; on MySQL, it is a table."""
    return cluster_name("sequence", name)


def in_script(statements: Iterable[str], dialect: Dialect) -> list[str]:
    """*statements* for the client of the database, which would cut a trigger of MySQL at its first ``;``."""
    written: list[str] = []
    for statement in statements:
        has_body = dialect.name in MYSQL and statement.startswith("CREATE TRIGGER")
        written += delimited(statement) if has_body else [f"{statement};"]
    return written
