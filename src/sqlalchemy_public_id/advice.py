"""Migration advice: what goes wrong with public ids in a database, why, and the lines to paste instead.

Errors, :mod:`sqlalchemy_public_id.audit` and the page "Dangerous migrations" of the documentation share these pieces.

>>> piece = about("invalid-index", table="invoice")
>>> piece.title
'An INVALID index left behind'
>>> print(piece.good)
DROP INDEX CONCURRENTLY uq_invoice_public_id;
CREATE UNIQUE INDEX CONCURRENTLY uq_invoice_public_id ON invoice (public_id);
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Literal, TypeAlias

from sqlalchemy_public_id.naming import not_null_check_name, unique_name

__all__ = ["ADVICE", "Advice", "Database", "about", "as_markdown"]

Database: TypeAlias = Literal["postgresql", "mysql", "mariadb", "sqlite"]

_ALL: tuple[Database, ...] = ("postgresql", "mysql", "mariadb", "sqlite")
_SERVERS: tuple[Database, ...] = ("postgresql", "mysql", "mariadb")
_MYSQL: tuple[Database, ...] = ("mysql", "mariadb")
_NAMES = {"postgresql": "PostgreSQL", "mysql": "MySQL", "mariadb": "MariaDB", "sqlite": "SQLite"}


@dataclass(frozen=True)
class Advice:
    """One danger, and its remedy."""

    slug: str
    """The identifier of the piece, for programs and links."""
    title: str
    """The danger in a few words."""
    danger: str
    """The damage, and its cause."""
    lock: str
    """The lock, and its duration."""
    bad: str
    """The dangerous lines."""
    good: str
    """The lines to paste instead, or to repair the damage."""
    databases: tuple[Database, ...] = _ALL
    """The databases concerned."""
    language: Literal["sql", "sh", "text"] = "text"
    """The language of the lines; ``text`` is Python in a migration or a model."""

    def as_markdown(self) -> str:
        """Return the piece as a section of a Markdown page."""
        databases = ", ".join(_NAMES[database] for database in self.databases)
        return (
            f"({self.slug})=\n## {self.title}\n\n*{databases}*\n\n{self.danger}\n\n**Lock:** {self.lock}\n\n"
            f"Bad:\n\n```{self.language}\n{self.bad}\n```\n\nGood:\n\n```{self.language}\n{self.good}\n```\n"
        )


def about(
    slug: str, *, table: str = "customer", column: str = "public_id", key: str = "id", length: int = 12, **names: str
) -> Advice:
    """Return the piece *slug*, with these names in its lines.

    Names are escaped in Python and for a shell. In SQL they are inserted unquoted.

    :param key: the column of the integer key.
    :param length: the length of the column in characters.
    :param names: ``index`` and ``check``, if they differ from ``uq_<table>_<column>`` and
        ``ck_<table>_<column>_not_null``; ``new`` and ``old``, two formats; ``type``, the column type, if it is not
        a string.
    :raises KeyError: if there is no such piece.

    >>> about("one-update", table="invoice").good
    'public-id backfill "$DATABASE_URL" invoice'
    """
    piece = _TEXTS[slug]
    values = {"index": unique_name(table, column), "check": not_null_check_name(table, column)}
    values |= {"new": "NanoId(length=16)", "old": f"NanoId(length={length})"}
    values |= {"type": f"varchar({length}) CHARACTER SET ascii COLLATE ascii_bin"}
    values |= {**names, "table": table, "column": column, "key": key, "length": str(length)}
    fill = {"sql": str.format_map, "sh": _fill_shell, "text": _fill_python}[piece.language]
    return replace(piece, bad=fill(piece.bad, values), good=fill(piece.good, values))


def _fill_shell(lines: str, values: Mapping[str, str]) -> str:
    quoted = {name: shlex.quote(value) for name, value in values.items()}
    escaped = {name: re.sub(r'[\\"$`]', r"\\\g<0>", value) for name, value in values.items()}
    # every second part is between double quotes, where a shell expands variables and commands
    parts = enumerate(lines.split('"'))
    return '"'.join(part.format_map(escaped if index % 2 else quoted) for index, part in parts)


def _fill_python(lines: str, values: Mapping[str, str]) -> str:
    # names are between double quotes; formats are code
    names = {name: json.dumps(values[name], ensure_ascii=False)[1:-1] for name in values.keys() - {"new", "old"}}
    return lines.format_map({**values, **names})


def as_markdown() -> str:
    """Return all pieces, as the page of the documentation."""
    head = (
        "# Dangerous migrations\n\n"
        "This page lists what goes wrong when a table gains public ids, the lock of each statement, and the remedy.\n"
        "`op.add_public_id()` and its three phases avoid all of these dangers, and `public-id audit` finds old ones.\n"
        "The page is generated from `sqlalchemy_public_id.advice`, which errors and reports use as well.\n"
    )
    return "\n".join([head, *(piece.as_markdown() for piece in ADVICE.values())])


_sql = partial(Advice, language="sql")

_PIECES = (
    Advice(
        "not-null-at-once",
        "A NOT NULL column added at once",
        "Existing rows have no public id, so PostgreSQL and SQLite refuse the column. A default that is the same for "
        "all rows is refused by the unique index instead. From this moment on, every INSERT of code that predates the "
        "column fails.",
        "ACCESS EXCLUSIVE on PostgreSQL, and an exclusive metadata lock on MySQL and MariaDB. Both block readers and "
        "writers.",
        'op.add_column("{table}", sa.Column("{column}", sa.String({length}), nullable=False))\n'
        'op.create_unique_constraint("{index}", "{table}", ["{column}"])',
        'op.add_public_id("{table}", "{column}")',
    ),
    _sql(
        "volatile-default",
        "A column added together with a default that generates ids",
        "Each row needs a different value, so the whole table is rewritten before it can be used again. SQLite "
        "refuses the statement.",
        "ACCESS EXCLUSIVE on PostgreSQL, ALGORITHM=COPY on MySQL and MariaDB. Writers wait until the last row is "
        "written, minutes for a hundred million rows. A default that is set afterwards applies to new rows only, and "
        "takes milliseconds.",
        "ALTER TABLE {table} ADD COLUMN {column} varchar({length}) DEFAULT make_public_id();",
        "ALTER TABLE {table} ADD COLUMN {column} varchar({length});\n"
        "ALTER TABLE {table} ALTER COLUMN {column} SET DEFAULT make_public_id();",
        _SERVERS,
    ),
    _sql(
        "unique-constraint",
        "A unique constraint or index without CONCURRENTLY",
        "Writers wait while the index is built. This is harmless on a small table and stops the service on a large "
        "one.",
        "ACCESS EXCLUSIVE (constraint) or SHARE (index) on the table during the build. CONCURRENTLY takes SHARE "
        "UPDATE EXCLUSIVE, beside readers and writers, and cannot run inside a transaction.",
        "ALTER TABLE {table} ADD CONSTRAINT {index} UNIQUE ({column});",
        "CREATE UNIQUE INDEX CONCURRENTLY {index} ON {table} ({column});",
        ("postgresql",),
    ),
    _sql(
        "unique-index-algorithm",
        "A unique index without an explicit algorithm",
        "If the server cannot build the index beside writers, it silently copies the table. If the statement names "
        "the algorithm, the server refuses instead.",
        "With ALGORITHM=COPY, writers wait until the copy is complete. INPLACE with LOCK=NONE needs a brief exclusive "
        "metadata lock at the start and at the end.",
        "ALTER TABLE {table} ADD UNIQUE INDEX {index} ({column});",
        "ALTER TABLE {table} ADD UNIQUE INDEX {index} ({column}), ALGORITHM=INPLACE, LOCK=NONE;",
        _MYSQL,
    ),
    _sql(
        "unique-missing",
        "No unique index",
        "Two rows can have the same public id, and a lookup returns either of them. Nothing else prevents this: a "
        "SELECT before the INSERT is a race. Collisions cannot be retried, and every lookup scans the whole table.",
        "On SQLite only that of every write: the index is built in one transaction.",
        "CREATE INDEX ix_{table}_{column} ON {table} ({column});",
        "CREATE UNIQUE INDEX {index} ON {table} ({column});",
        ("sqlite",),
    ),
    _sql(
        "set-not-null",
        "SET NOT NULL without a validated CHECK",
        "PostgreSQL scans the whole table for NULL, and blocks all access during the scan. With a CHECK constraint "
        "that was validated before, beside readers and writers, it skips the scan.",
        "ACCESS EXCLUSIVE during the scan. The good lines take it for milliseconds each, and SHARE UPDATE EXCLUSIVE "
        "during VALIDATE.",
        "ALTER TABLE {table} ALTER COLUMN {column} SET NOT NULL;",
        "ALTER TABLE {table} ADD CONSTRAINT {check} CHECK ({column} IS NOT NULL) NOT VALID;\n"
        "ALTER TABLE {table} VALIDATE CONSTRAINT {check};\n"
        "ALTER TABLE {table} ALTER COLUMN {column} SET NOT NULL;\n"
        "ALTER TABLE {table} DROP CONSTRAINT {check};",
        ("postgresql",),
    ),
    _sql(
        "modify-not-null",
        "MODIFY with an incomplete definition",
        "MODIFY drops every attribute that it does not repeat. Without the character set, the column reverts to the "
        "collation of the table, and its default is gone. Outside strict mode, rows without an id silently get the "
        "empty string.",
        "INPLACE with LOCK=NONE rewrites the table beside readers and writers. It needs a brief exclusive metadata "
        "lock at the start and at the end.",
        "ALTER TABLE {table} MODIFY {column} varchar({length}) NOT NULL;",
        "SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES');\n"
        "ALTER TABLE {table} MODIFY {column} {type} NOT NULL, ALGORITHM=INPLACE, LOCK=NONE;",
        _MYSQL,
    ),
    Advice(
        "half-done",
        "A migration finished by hand",
        "A migration that stopped between two steps leaves a nullable column, no index, or another collation. The "
        "missing steps differ by database: on MySQL, a MODIFY loses the default and the comment that it does not "
        "repeat. The operation inspects the current state, and continues from there.",
        "Those of each remaining step, with a short timeout.",
        'op.alter_column("{table}", "{column}", existing_type=sa.String({length}), nullable=False)',
        'op.contract_public_id("{table}", "{column}")  # with the format= of the model',
    ),
    _sql(
        "empty-text",
        "ADD COLUMN … NOT NULL fills in the empty string",
        "Neither MySQL nor MariaDB refuses the column, not even in strict mode. Every row gets the empty string as "
        "its id, and the unique index fails at the second row.",
        "None that matters (ALGORITHM=INSTANT); the damage is in the rows.",
        "ALTER TABLE {table} ADD COLUMN {column} varchar({length}) NOT NULL;",
        "ALTER TABLE {table} ADD COLUMN {column} varchar({length}) CHARACTER SET ascii COLLATE ascii_bin NULL,"
        " ALGORITHM=INSTANT;",
        _MYSQL,
    ),
    Advice(
        "one-update",
        "A backfill in one UPDATE",
        "One transaction changes every row: the table doubles, replicas fall behind, and dead rows cannot be cleaned "
        "up. An error near the end undoes all of it.",
        "A row lock on each row, held until the last row is written: other updates and deletes of these rows wait. "
        "The backfill command holds the locks of one batch, for half a second. It can be stopped and resumed at any "
        "time.",
        'psql "$DATABASE_URL" -c "UPDATE {table} SET {column} = make_public_id() WHERE {column} IS NULL"',
        'public-id backfill "$DATABASE_URL" {table}',
        _ALL,
        "sh",
    ),
    _sql(
        "no-lock-timeout",
        "ALTER TABLE without a lock timeout",
        "The statement itself takes milliseconds. But while it waits behind one long SELECT, all later statements "
        "wait behind it: the service stops for as long as the SELECT takes.",
        "A strong lock blocks others as soon as it is requested. With a short timeout, the statement fails, others "
        "proceed, and the statement is retried.",
        "ALTER TABLE {table} ADD COLUMN {column} varchar({length});",
        "BEGIN;\n"
        "SET LOCAL lock_timeout = '1s';  -- MySQL and MariaDB: SET SESSION lock_wait_timeout = 1\n"
        "ALTER TABLE {table} ADD COLUMN {column} varchar({length});\n"
        "COMMIT;",
        _SERVERS,
    ),
    Advice(
        "no-default",
        "No server default while old code writes",
        "Applications that do not use the column continue to insert NULL behind the backfill. Then either SET NOT "
        "NULL fails, or it succeeds and these applications fail.",
        "None that matters: setting a default takes milliseconds, and no row is written.",
        'op.expand_public_id("{table}", "{column}", server_default="none")',
        'op.expand_public_id("{table}", "{column}")  # sets a default that generates ids of the same format',
    ),
    _sql(
        "default-collation",
        "Public ids with the default collation",
        "The default collations of MySQL and MariaDB ignore case: aB and Ab are one id to the unique index and to "
        "every lookup. Each character may take four bytes.",
        "Another character set requires a copy of the table (ALGORITHM=COPY), and writers wait until it is complete. "
        "Make the change while the table is small, or in a quiet hour.",
        "ALTER TABLE {table} ADD COLUMN {column} varchar({length}) NULL;",
        "ALTER TABLE {table} MODIFY {column} varchar({length}) CHARACTER SET ascii COLLATE ascii_bin NOT NULL;",
        _MYSQL,
    ),
    _sql(
        "linguistic-collation",
        "Public ids with a linguistic collation",
        "Each comparison in the index follows the rules of a language. An upgrade of the C library or of ICU can "
        "change the rules. The index is then out of order: lookups miss existing rows, and duplicates get in.",
        "ACCESS EXCLUSIVE while the indexes of the column are rebuilt; no row is written.",
        "ALTER TABLE {table} ADD COLUMN {column} varchar({length});",
        'ALTER TABLE {table} ALTER COLUMN {column} TYPE varchar({length}) COLLATE "C";',
        ("postgresql",),
    ),
    _sql(
        "nocase-collation",
        "Public ids compared without regard to case",
        "With COLLATE NOCASE, aB and Ab are one id to the unique index and to every lookup.",
        "That of every write: SQLite copies the table in one transaction.",
        "ALTER TABLE {table} ADD COLUMN {column} VARCHAR({length}) COLLATE NOCASE;",
        "ALTER TABLE {table} ADD COLUMN {column} VARCHAR({length});",
        ("sqlite",),
    ),
    _sql(
        "invalid-index",
        "An INVALID index left behind",
        "If CREATE UNIQUE INDEX CONCURRENTLY fails, at a duplicate or a timeout, it leaves an index behind. No query "
        "uses this index, and it guarantees nothing. With IF NOT EXISTS, the next attempt accepts this index and "
        "reports success.",
        "SHARE UPDATE EXCLUSIVE, beside readers and writers, for both good lines.",
        "CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS {index} ON {table} ({column});",
        "DROP INDEX CONCURRENTLY {index};\nCREATE UNIQUE INDEX CONCURRENTLY {index} ON {table} ({column});",
        ("postgresql",),
    ),
    _sql(
        "left-over-check",
        "A CHECK constraint left over",
        "The constraint was there to make SET NOT NULL fast. It now adds a small cost to each write, and Alembic may "
        "report it.",
        "ACCESS EXCLUSIVE for milliseconds.",
        "ALTER TABLE {table} ADD CONSTRAINT {check} CHECK ({column} IS NOT NULL);",
        "ALTER TABLE {table} DROP CONSTRAINT {check};",
        _SERVERS,
    ),
    Advice(
        "copying-tools",
        "A UNIQUE key added through gh-ost or pt-online-schema-change",
        "Both tools copy the rows with INSERT IGNORE. Rows with a duplicate id are silently dropped, and so are all "
        "rows but one that have the empty string. Add only the nullable column this way. The server builds the index, "
        "and reports duplicates.",
        "ALGORITHM=INPLACE, LOCK=NONE: a brief exclusive metadata lock at the start and at the end.",
        "gh-ost --table={table} --execute \\\n"
        '    --alter="ADD COLUMN {column} varchar({length}) NOT NULL, ADD UNIQUE ({column})"',
        "gh-ost --table={table} --execute \\\n"
        '    --alter="ADD COLUMN {column} varchar({length}) CHARACTER SET ascii COLLATE ascii_bin NULL"\n'
        'public-id backfill "$DATABASE_URL" {table}\n'
        'mysql -e "ALTER TABLE {table} ADD UNIQUE INDEX {index} ({column}), ALGORITHM=INPLACE, LOCK=NONE"',
        _MYSQL,
        "sh",
    ),
    Advice(
        "sqlite-copy",
        "A table copied with foreign_keys=ON",
        "SQLite changes a column by copying the table and dropping the old one. With PRAGMA foreign_keys=ON, the drop "
        "first deletes the rows; with ON DELETE CASCADE, it also deletes the rows of other tables, without an error. "
        "The pragma has no effect inside a transaction, so it has to come first. Batch mode also loses triggers and "
        "indexes on expressions.",
        "That of every write, until the copy is complete.",
        'with op.batch_alter_table("{table}") as batch:\n    batch.alter_column("{column}", nullable=False)',
        "# env.py, before context.begin_transaction()\n"
        'connection.exec_driver_sql("PRAGMA foreign_keys=OFF")\n'
        "# the migration\n"
        'op.contract_public_id("{table}", "{column}")',
        ("sqlite",),
    ),
    Advice(
        "key-nearly-full",
        "An integer key that is nearly full",
        "When the key reaches the largest number of its type, every INSERT fails. So does every INSERT into tables "
        "that refer to it. The foreign keys have to be widened first, each with its index.",
        "A wider type rewrites the table under ACCESS EXCLUSIVE, or with ALGORITHM=COPY. Plan the change before it is "
        "urgent, by a second column that is filled in batches.",
        "{key}: Mapped[int] = mapped_column(primary_key=True)",
        "{key}: Mapped[int] = bigint_key()",
        _SERVERS,
    ),
    Advice(
        "redundant-index",
        "A second index on the same column",
        "The unique index serves every lookup. Another index on the column alone is never used, and costs space and "
        "time at each write.",
        "DROP INDEX takes a strong lock for milliseconds. On PostgreSQL, CONCURRENTLY does not block others while it "
        "waits for the lock.",
        "{column}: Mapped[str] = mapped_column(String({length}), unique=True, index=True)",
        "{column}: Mapped[str] = public_id_column()",
    ),
    Advice(
        "mixed-formats",
        "Ids of several formats in one column",
        "The format of the model refuses the older ids: lookups find no row, and the old links are dead. Ids that "
        "were issued once have to stay valid.",
        "None: only the model changes.",
        "__public_id__ = {new}",
        "__public_id__ = {new}.accepting({old})",
    ),
)

_TEXTS = {piece.slug: piece for piece in _PIECES}

ADVICE: Mapping[str, Advice] = MappingProxyType({slug: about(slug) for slug in _TEXTS})
"""All pieces by slug, in the order of a migration, for the table ``customer``."""

if __name__ == "__main__":
    sys.stdout.write(as_markdown())
