"""What the catalogs show about the counter of a cluster key: its name, its limits, and the keys that come next."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, Inspector, column, func, inspect, select, table, text

from sqlalchemy_public_id.dialects import KeyCounter, key_counter_of
from sqlalchemy_public_id.dialects.postgresql import key_sequence
from sqlalchemy_public_id.dialects.quoting import quoted_table
from sqlalchemy_public_id.keys.cluster.ddl import CONFIG, PREFIX, Config
from sqlalchemy_public_id.keys.ranges import LAST_KEY, SEQUENCE_BITS, Range, range_of
from sqlalchemy_public_id.naming import cluster_name

_BETWEEN = re.compile(r"NOT BETWEEN (\d+) AND (\d+)")
_NAME = r"""(?:`(?:[^`]|``)+`|"(?:[^"]|"")+"|[^\s`".()]+)"""
_DRAW = re.compile(rf"INSERT INTO (?:{_NAME}\.)?({_NAME}) \(\) VALUES")
"""The statement of the library's trigger that takes a number from the counter; the group is the counter's name."""
_COUNTER = re.compile(r"\bAUTO_INCREMENT=(\d+)")
_QUOTED = re.compile(r"""(`(?:[^`]|``)*`|"(?:[^"]|"")*")|'(?:[^'\\]|\\.|'')*'""")
"""A name, which is the group, or a text: a comment, a default, a value of a partition."""


def read_counter(connection: Connection, name: str, schema: str | None, key: str) -> str | None:
    """Return the name of the counter of ``strategy="function"`` that the table *name* has, or ``None``."""
    if key_counter_of(connection.dialect) is KeyCounter.SEQUENCE:
        counter = str(_sequence(connection, name, schema, key)[0])
    else:
        drawn = _DRAW.search(_trigger(connection, cluster_name("key", name), schema))
        quote, counter = ("", "") if drawn is None else (drawn[1][0], drawn[1])
        counter = counter[1:-1].replace(quote * 2, quote) if quote in {'"', "`"} else counter
    return counter if counter.startswith(PREFIX) else None


def read_key_range(connection: Connection, name: str, schema: str | None, key: str) -> Range | None:
    """Return the range of a sequence of PostgreSQL, or elsewhere of a trigger; ``None`` if there is no range."""
    if key_counter_of(connection.dialect) is not KeyCounter.SEQUENCE:
        match = _BETWEEN.search(_trigger(connection, cluster_name("range", name), schema))
        return None if match is None else Range(int(match[1]), int(match[2]) + 1)
    _, first, last = _sequence(connection, name, schema, key)
    is_default = first == 1 and last in {2**31 - 1, 2**15 - 1, LAST_KEY}  # PostgreSQL's defaults
    return None if is_default or first < 1 else Range(first, last + 1)


class Counter(NamedTuple):
    """The keys that the ``IDENTITY`` or ``AUTO_INCREMENT`` of a table generates from now on."""

    first: int
    last: int
    """The last key if the counter has limits; otherwise the next key, which is also the first one."""

    def stays_in(self, keys: Range) -> bool:
        """Return True if the next key is one of *keys*, or follows the last one, which the database refuses."""
        return keys.start <= self.first <= keys.stop and self.last <= max(self.first, keys.last)

    def __str__(self) -> str:
        if self.first == self.last:
            return f"continues at {self.first}{_cluster(self.first)}"
        keys = Range(self.first, self.last + 1) if self.first > 0 else None
        if keys is not None and keys.cluster is not None:
            return f"counts for cluster {keys.cluster}"
        return f"counts from {self.first} to {self.last}"


def _cluster(key: int) -> str:
    return f", a key of cluster {key >> SEQUENCE_BITS}" if key >> SEQUENCE_BITS else ""


def read_upcoming(connection: Connection, name: str, schema: str | None, key: str) -> Counter | None:
    """Return what the counter of the table *name* generates from now on; ``None`` if the key has no counter."""
    dialect = connection.dialect
    counted_by, source = key_counter_of(dialect), quoted_table(name, schema, dialect)
    if counted_by is KeyCounter.SEQUENCE:
        sequence, first, last = _sequence(connection, name, schema, key)
        return Counter(first, last) if sequence else None
    if counted_by is KeyCounter.AUTO_INCREMENT:
        continues_at = _auto_increment(connection, source, key)
        return None if continues_at is None else Counter(continues_at or 1, continues_at or 1)
    number = connection.scalar(select(func.max(table(name, column(key), schema=schema).c[key]))) or 0
    master = quoted_table("sqlite_master", schema, dialect)
    if connection.exec_driver_sql(f"SELECT 1 FROM {master} WHERE name = 'sqlite_sequence'").first():
        counters = quoted_table("sqlite_sequence", schema, dialect)
        # SQLite ignores the case of a table's name, but stores it as it was written with the counter
        query = f"SELECT seq FROM {counters} WHERE name = ? COLLATE NOCASE"
        number = max(number, connection.exec_driver_sql(query, (name,)).scalar() or 0)
    return Counter(number + 1, number + 1)


def counted_key(connection: Connection, name: str, schema: str | None, primary_key: Sequence[str]) -> str | None:
    """Return the column of a *primary_key* that is counted: the only one, or of several the one that has a counter.

    ``None`` if none of several has one. On SQLite, only a column that is the whole primary key can have one.
    """
    if len(primary_key) == 1:
        return primary_key[0]
    if key_counter_of(connection.dialect) is KeyCounter.SQLITE_SEQUENCE:
        return None
    return next((key for key in primary_key if read_upcoming(connection, name, schema, key) is not None), None)


class NextNumber(NamedTuple):
    """The number that the counter of a column generates next."""

    number: int
    last: int
    """The last number that the counter may generate."""
    counter: str
    """The name of the counter, as SQL writes it: a sequence of PostgreSQL, or the table with the AUTO_INCREMENT."""


class Unreadable(NamedTuple):
    """A counter that the role may not read."""

    counter: str
    """The name of the sequence, as SQL writes it."""


def read_next(connection: Connection, name: str, schema: str | None, key: str) -> NextNumber | Unreadable | None:
    """Return what the counter of a column generates next, without the number of a cluster.

    ``None`` if it has no counter, or if the database does not show it. A counter of SQLite is not read: it is always
    above the rows.
    """
    dialect, source = connection.dialect, quoted_table(name, schema, connection.dialect)
    counted_by = key_counter_of(dialect)
    if counted_by is KeyCounter.SEQUENCE:
        query = (
            "SELECT pg_catalog.format('%I.%I', nspname, relname) AS counter, seqmax, seqincrement, "
            "pg_catalog.has_sequence_privilege(seqrelid, 'SELECT') "
            "AND pg_catalog.has_schema_privilege(n.oid, 'USAGE') AS readable "
            "FROM pg_catalog.pg_sequence JOIN pg_catalog.pg_class c ON c.oid = seqrelid "
            "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE seqrelid = {key_sequence(':name', ':key')}"
        )
        found = connection.execute(text(query), {"name": source, "key": key}).one_or_none()
        if found is None or found.seqincrement < 1:
            return None
        if not found.readable:
            return Unreadable(found.counter)
        options = {"no_parameters": True}
        query = f"SELECT last_value, is_called FROM {found.counter}"
        last_value, is_called = connection.exec_driver_sql(query, execution_options=options).one()
        return NextNumber(last_value + (found.seqincrement if is_called else 0), found.seqmax, found.counter)
    if counted_by is KeyCounter.AUTO_INCREMENT:
        number = _auto_increment(connection, source, key)
        return NextNumber(number, LAST_KEY, source) if number else None
    return None


def _auto_increment(connection: Connection, source: str, key: str) -> int | None:
    """Return where the AUTO_INCREMENT of a column continues; ``None`` if it has none.

    0 if it is unknown: OceanBase shows none. MySQL and MariaDB leave out a 1, of a counter that was never used.
    """
    # information_schema of MySQL caches an old number
    shown = connection.exec_driver_sql(f"SHOW CREATE TABLE {source}", execution_options={"no_parameters": True}).one()
    columns, _, of_table = _QUOTED.sub(r"\1", str(shown[1])).rpartition("\n)")
    quote = connection.dialect.identifier_preparer.initial_quote
    quoted_key = re.escape(f"{quote}{key.replace(quote, quote * 2)}{quote}")
    if not re.search(rf"^ *{quoted_key} .*\bAUTO_INCREMENT\b", columns, re.MULTILINE):
        return None
    number = _COUNTER.search(of_table)
    if number is None:
        return 1 if " ENGINE=" in of_table else 0  # OceanBase has no engines
    return int(number[1])


def has_own_function(connection: Connection, schema: str | None) -> bool:
    """Return True if the function that reads the config is the present one, or if the database needs none."""
    if key_counter_of(connection.dialect) is not KeyCounter.SEQUENCE:
        return True
    config = Config(connection.dialect, schema)
    query = (
        "SELECT pg_catalog.format('%I.%I', nspname, relname) AS name, prosrc FROM pg_catalog.pg_class c "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "LEFT JOIN pg_catalog.pg_proc p ON p.oid = CAST(pg_catalog.to_regprocedure(CAST(:function AS text)) AS oid) "
        "WHERE c.oid = CAST(pg_catalog.to_regclass(CAST(:config AS text)) AS oid)"
    )
    found = connection.execute(text(query), {"function": config.function, "config": config.table}).one()
    source: str | None = found.prosrc
    return source == config.source_of_function(config.table if schema else found.name)


def find_difference(
    connection: Connection, name: str, schema: str | None, key: str, keys: Range, *, by_function: bool, has_guard: bool
) -> str | None:
    """Return how the counter of a key differs from *keys*, in words; ``None`` if it does not, or if it is unknown.

    :param has_guard: True if triggers may refuse all keys but those of one range, on MySQL, MariaDB and SQLite.
    """
    if not by_function:
        guarded = None
        if has_guard and key_counter_of(connection.dialect) is not KeyCounter.SEQUENCE:
            guarded = read_key_range(connection, name, schema, key)
        if guarded is not None:
            return (
                None if guarded == keys else f"the triggers of {name} accept the keys {guarded.start} to {guarded.last}"
            )
        counter = read_upcoming(connection, name, schema, key)
        if counter is None or counter.stays_in(keys):
            return None
        if read_counter(connection, name, schema, key) is None:
            return f"the counter of {name} {counter}"
    config = read_config(connection, inspect(connection), schema or _schema_of(connection, name))
    return None if config is None or config == keys else f"{CONFIG} has the cluster {config.cluster}"


def _schema_of(connection: Connection, name: str) -> str | None:
    """Return the schema in which PostgreSQL finds the table, which has the config; ``None`` for the default schema."""
    if key_counter_of(connection.dialect) is not KeyCounter.SEQUENCE:
        return None
    query = (
        "SELECT nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.oid = CAST(pg_catalog.to_regclass(CAST(:name AS text)) AS oid)"
    )
    found: str | None = connection.scalar(text(query), {"name": quoted_table(name, None, connection.dialect)})
    return found


def _sequence(connection: Connection, name: str, schema: str | None, key: str) -> tuple[str, int, int]:
    query = (
        "SELECT relname, seqmin, seqmax FROM pg_catalog.pg_sequence JOIN pg_catalog.pg_class ON oid = seqrelid "
        f"WHERE oid = {key_sequence(':name', ':key')}"
    )
    names = {"name": quoted_table(name, schema, connection.dialect), "key": key}
    found = connection.execute(text(query), names).one_or_none()
    return ("", 1, LAST_KEY) if found is None else (found.relname, found.seqmin, found.seqmax)


def _trigger(connection: Connection, name: str, schema: str | None) -> str:
    """Return the body of the trigger *name*; an empty string if there is none."""
    dialect = connection.dialect
    if key_counter_of(dialect) is KeyCounter.SQLITE_SEQUENCE:
        query = f"SELECT sql FROM {quoted_table('sqlite_master', schema, dialect)} WHERE type = 'trigger' AND name = ?"
        return str(connection.exec_driver_sql(query, (name,)).scalar() or "")
    query = (
        "SELECT count(*) FROM information_schema.TRIGGERS "
        "WHERE TRIGGER_SCHEMA = COALESCE(:schema, DATABASE()) AND TRIGGER_NAME = :name"
    )
    if not connection.scalar(text(query), {"name": name, "schema": schema}):
        return ""
    query = f"SHOW CREATE TRIGGER {quoted_table(name, schema, dialect)}"  # information_schema garbles a backquote
    return str(connection.exec_driver_sql(query, execution_options={"no_parameters": True}).one()[2])


def read_config(connection: Connection, inspector: Inspector, schema: str | None) -> Range | None:
    """Return the range of the cluster in the config table; ``None`` if that has no valid row."""
    if not inspector.has_table(CONFIG, schema=schema):
        return None
    if "cluster" not in {each["name"] for each in inspector.get_columns(CONFIG, schema=schema)}:
        return None
    numbers = connection.scalars(select(table(CONFIG, column("cluster"), schema=schema).c.cluster)).all()
    try:
        (number,) = numbers
        return range_of(number)
    except ValueError:  # no row, several rows, or an invalid number
        return None
