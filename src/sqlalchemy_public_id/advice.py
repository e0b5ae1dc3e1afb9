"""What goes wrong with public ids in a database, why, and the lines to paste instead: each said in one place.

Errors, :mod:`sqlalchemy_public_id.audit` and the page "Dangerous migrations" of the documentation show these texts.

>>> piece = about("invalid-index", table="invoice")
>>> piece.title
'An INVALID index left behind'
>>> print(piece.good)
DROP INDEX CONCURRENTLY uq_invoice_public_id;
CREATE UNIQUE INDEX CONCURRENTLY uq_invoice_public_id ON invoice (public_id);
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, TypeAlias

__all__ = ["ADVICE", "Advice", "Database", "about", "as_markdown"]

Database: TypeAlias = Literal["postgresql", "mysql", "mariadb", "sqlite"]

_ALL: tuple[Database, ...] = ("postgresql", "mysql", "mariadb", "sqlite")
_SERVERS: tuple[Database, ...] = ("postgresql", "mysql", "mariadb")
_MYSQL: tuple[Database, ...] = ("mysql", "mariadb")
_NAMES = {"postgresql": "PostgreSQL", "mysql": "MySQL", "mariadb": "MariaDB", "sqlite": "SQLite"}


@dataclass(frozen=True)
class Advice:
    """One danger, and the way around it."""

    slug: str
    """The name of the piece, for programs and for links."""
    title: str
    """The danger in a few words."""
    danger: str
    """What happens."""
    lock: str
    """Which lock is taken, and for how long."""
    bad: str
    """The lines that people write."""
    good: str
    """The lines to paste instead, or afterwards to mend it."""
    databases: tuple[Database, ...] = _ALL
    """The databases it is about."""
    language: Literal["sql", "sh", "text"] = "text"
    """What the lines are: SQL, a shell, or ``text``: Python in a migration or a model."""

    def as_markdown(self) -> str:
        """The piece as a section of a page."""
        where = ", ".join(_NAMES[database] for database in self.databases)
        return (
            f"({self.slug})=\n## {self.title}\n\n*{where}*\n\n{self.danger}\n\n**Lock:** {self.lock}\n\n"
            f"Bad:\n\n```{self.language}\n{self.bad}\n```\n\nGood:\n\n```{self.language}\n{self.good}\n```\n"
        )


def about(
    slug: str, *, table: str = "customer", column: str = "public_id", key: str = "id", length: int = 12, **names: str
) -> Advice:
    """The piece called *slug*, its lines filled with your names, which are put in as they are: quote them yourself.

    :param key: the column of the integer key.
    :param length: how many characters the column takes.
    :param names: ``index`` and ``check``, where they are called otherwise than ``uq_<table>_<column>`` and
        ``ck_<table>_<column>_not_null``; ``new`` and ``old``, two formats; ``type``, the column type, where it is no
        text.
    :raises KeyError: where there is no such piece.

    >>> about("one-update", table="invoice").good
    'public-id backfill "$DATABASE_URL" invoice'
    """
    piece = _TEXTS[slug]
    derived = {"index": f"uq_{table}_{column}", "check": f"ck_{table}_{column}_not_null"}
    derived |= {"new": "NanoId(length=16)", "old": f"NanoId(length={length})"}
    derived |= {"type": f"varchar({length}) CHARACTER SET ascii COLLATE ascii_bin"}
    filled = {**derived, **names, "table": table, "column": column, "key": key, "length": str(length)}
    return replace(piece, bad=piece.bad.format_map(filled), good=piece.good.format_map(filled))


def as_markdown() -> str:
    """All pieces, as the page of the documentation."""
    head = (
        "# Dangerous migrations\n\n"
        "What goes wrong when a table gains public ids, which lock it takes, and what to write instead.\n"
        "`op.add_public_id()` and its three phases do all this the good way; `public-id audit` finds what was left.\n"
        "The page shows what `sqlalchemy_public_id.advice` holds, so that errors and reports can say the same.\n"
    )
    return "\n".join([head, *(piece.as_markdown() for piece in ADVICE.values())])


_PIECES = (
    Advice(
        "not-null-at-once",
        "A NOT NULL column added at once",
        "The rows that are there have no public id, so PostgreSQL and SQLite refuse the column. A default that is "
        "the same for all rows is refused by the unique index instead. And from this moment on, old code that does "
        "not know the column cannot insert.",
        "ACCESS EXCLUSIVE on PostgreSQL, and an exclusive metadata lock on MySQL and MariaDB: nobody reads or "
        "writes meanwhile.",
        'op.add_column("{table}", sa.Column("{column}", sa.String({length}), nullable=False))\n'
        'op.create_unique_constraint("{index}", "{table}", ["{column}"])',
        'op.add_public_id("{table}", "{column}")',
    ),
    Advice(
        "volatile-default",
        "A column added together with a default that makes ids",
        "Each row needs another value, so the whole table is written anew before anyone may use it again. SQLite "
        "refuses it.",
        "ACCESS EXCLUSIVE on PostgreSQL, ALGORITHM=COPY on MySQL and MariaDB: writers wait until the last row is "
        "written, minutes for a hundred million rows. A default that is set afterwards holds for new rows only, and"
        " takes milliseconds.",
        "ALTER TABLE {table} ADD COLUMN {column} varchar({length}) DEFAULT make_public_id();",
        "ALTER TABLE {table} ADD COLUMN {column} varchar({length});\n"
        "ALTER TABLE {table} ALTER COLUMN {column} SET DEFAULT make_public_id();",
        _SERVERS,
        "sql",
    ),
    Advice(
        "unique-constraint",
        "A unique constraint or index without CONCURRENTLY",
        "The index is built while writers wait. It looks harmless on a small table and stops the service on a large"
        " one.",
        "ACCESS EXCLUSIVE (constraint) or SHARE (index) on the table for as long as the build takes; CONCURRENTLY "
        "takes SHARE UPDATE EXCLUSIVE, beside readers and writers. It cannot run inside a transaction.",
        "ALTER TABLE {table} ADD CONSTRAINT {index} UNIQUE ({column});",
        "CREATE UNIQUE INDEX CONCURRENTLY {index} ON {table} ({column});",
        ("postgresql",),
        "sql",
    ),
    Advice(
        "unique-index-algorithm",
        "A unique index whose algorithm is left to the server",
        "Where the server cannot build the index beside writers, it copies the table and says nothing. With the "
        "algorithm named, it refuses instead.",
        "With ALGORITHM=COPY, writers wait until the copy is done. INPLACE with LOCK=NONE needs an exclusive "
        "metadata lock for a moment at the start and at the end.",
        "ALTER TABLE {table} ADD UNIQUE INDEX {index} ({column});",
        "ALTER TABLE {table} ADD UNIQUE INDEX {index} ({column}), ALGORITHM=INPLACE, LOCK=NONE;",
        _MYSQL,
        "sql",
    ),
    Advice(
        "unique-missing",
        "No unique index",
        "Two rows can have one public id, and a lookup then answers with either. Nothing else guards against it: a "
        "SELECT before the INSERT is a race. Collisions cannot be retried, and every lookup reads the whole table.",
        "None on SQLite but the one of every write: the index is built in one transaction.",
        "CREATE INDEX ix_{table}_{column} ON {table} ({column});",
        "CREATE UNIQUE INDEX {index} ON {table} ({column});",
        ("sqlite",),
        "sql",
    ),
    Advice(
        "set-not-null",
        "SET NOT NULL without a validated CHECK",
        "PostgreSQL reads the whole table to see that there is no NULL, and nobody may use it meanwhile. A CHECK "
        "constraint that was validated before, beside readers and writers, spares it the reading.",
        "ACCESS EXCLUSIVE for as long as the reading takes; in the good lines for milliseconds each, and SHARE UPDATE "
        "EXCLUSIVE while VALIDATE reads.",
        "ALTER TABLE {table} ALTER COLUMN {column} SET NOT NULL;",
        "ALTER TABLE {table} ADD CONSTRAINT {check} CHECK ({column} IS NOT NULL) NOT VALID;\n"
        "ALTER TABLE {table} VALIDATE CONSTRAINT {check};\n"
        "ALTER TABLE {table} ALTER COLUMN {column} SET NOT NULL;\n"
        "ALTER TABLE {table} DROP CONSTRAINT {check};",
        ("postgresql",),
        "sql",
    ),
    Advice(
        "modify-not-null",
        "MODIFY that says half of the definition",
        "What MODIFY does not repeat is lost: without the character set, the column goes back to the collation of "
        "the table, and the default is gone. Outside strict mode, rows without an id silently get the empty text.",
        "INPLACE with LOCK=NONE writes the table anew beside readers and writers, with an exclusive metadata lock "
        "for a moment at the start and at the end.",
        "ALTER TABLE {table} MODIFY {column} varchar({length}) NOT NULL;",
        "SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES');\n"
        "ALTER TABLE {table} MODIFY {column} {type} NOT NULL, ALGORITHM=INPLACE, LOCK=NONE;",
        _MYSQL,
        "sql",
    ),
    Advice(
        "half-done",
        "A migration finished by hand",
        "A migration that stopped between two steps leaves a column that may be NULL, or no index, or another "
        "collation. What one dialect finishes in a line, another forgets half of: a MODIFY of MySQL loses the default "
        "and the comment that it does not repeat. The operation looks at what is there, and goes on from it.",
        "Those of each step that is left, with a short timeout.",
        'op.alter_column("{table}", "{column}", existing_type=sa.String({length}), nullable=False)',
        'op.contract_public_id("{table}", "{column}")  # with the format= of the model',
    ),
    Advice(
        "empty-text",
        "ADD COLUMN … NOT NULL fills in the empty text",
        "Neither MySQL nor MariaDB refuses the column, not even in strict mode: every row gets the empty text as "
        "its id, and the unique index fails at the second row.",
        "None that matters (ALGORITHM=INSTANT); the damage is in the rows.",
        "ALTER TABLE {table} ADD COLUMN {column} varchar({length}) NOT NULL;",
        "ALTER TABLE {table} ADD COLUMN {column} varchar({length}) CHARACTER SET ascii COLLATE ascii_bin NULL,"
        " ALGORITHM=INSTANT;",
        _MYSQL,
        "sql",
    ),
    Advice(
        "one-update",
        "A backfill in one UPDATE",
        "One transaction changes every row: the table doubles, replicas fall behind, nothing that was deleted can "
        "be cleaned up, and an error near the end undoes all of it.",
        "A row lock on each row, kept until the last one is written: whoever updates or deletes one waits as long. "
        "The backfill keeps those of one batch, for half a second, and can be stopped and run again at any time.",
        'psql "$DATABASE_URL" -c "UPDATE {table} SET {column} = make_public_id() WHERE {column} IS NULL"',
        'public-id backfill "$DATABASE_URL" {table}',
        _ALL,
        "sh",
    ),
    Advice(
        "no-lock-timeout",
        "ALTER TABLE that waits for its lock",
        "The statement itself takes milliseconds. But while it waits behind one long SELECT, everybody else waits "
        "behind it: the service stands still for as long as a report takes.",
        "A strong lock is only asked for, and that is enough. With a short timeout the statement gives up, others "
        "go on, and it is tried again.",
        "ALTER TABLE {table} ADD COLUMN {column} varchar({length});",
        "BEGIN;\n"
        "SET LOCAL lock_timeout = '1s';  -- MySQL and MariaDB: SET SESSION lock_wait_timeout = 1\n"
        "ALTER TABLE {table} ADD COLUMN {column} varchar({length});\n"
        "COMMIT;",
        _SERVERS,
        "sql",
    ),
    Advice(
        "no-default",
        "No default in the database while old code writes",
        "Programs that do not know the column go on inserting NULL behind the backfill. Then SET NOT NULL fails, or"
        " it succeeds and these programs fail.",
        "None: setting a default takes milliseconds, and no row is written.",
        'op.expand_public_id("{table}", "{column}", server_default="none")',
        'op.expand_public_id("{table}", "{column}")  # sets a default that makes ids of the same format',
    ),
    Advice(
        "default-collation",
        "Public ids with the default collation",
        "The default collations of MySQL and MariaDB ignore case: aB and Ab are one id to the unique index and to "
        "every lookup, and each character may take four bytes.",
        "Another character set means a copy of the table (ALGORITHM=COPY): writers wait until it is done. Do it "
        "while the table is small, or in a quiet hour.",
        "ALTER TABLE {table} ADD COLUMN {column} varchar({length}) NULL;",
        "ALTER TABLE {table} MODIFY {column} varchar({length}) CHARACTER SET ascii COLLATE ascii_bin NOT NULL;",
        _MYSQL,
        "sql",
    ),
    Advice(
        "linguistic-collation",
        "Public ids sorted as words of a language",
        "Each comparison in the index asks the rules of a language. An upgrade of the C library or of ICU can "
        "change the rules: the index is then out of order, lookups miss rows that are there, and duplicates get in.",
        "ACCESS EXCLUSIVE while the indexes of the column are built anew; no row is written.",
        "ALTER TABLE {table} ADD COLUMN {column} varchar({length});",
        'ALTER TABLE {table} ALTER COLUMN {column} TYPE varchar({length}) COLLATE "C";',
        ("postgresql",),
        "sql",
    ),
    Advice(
        "nocase-collation",
        "Public ids compared without regard to case",
        "With COLLATE NOCASE, aB and Ab are one id to the unique index and to every lookup.",
        "The one of every write: SQLite copies the table in one transaction.",
        "ALTER TABLE {table} ADD COLUMN {column} VARCHAR({length}) COLLATE NOCASE;",
        "ALTER TABLE {table} ADD COLUMN {column} VARCHAR({length});",
        ("sqlite",),
        "sql",
    ),
    Advice(
        "invalid-index",
        "An INVALID index left behind",
        "CREATE UNIQUE INDEX CONCURRENTLY that fails, at a duplicate or a timeout, leaves an index that no query "
        "uses and that guarantees nothing. With IF NOT EXISTS, the next attempt finds it there and reports success.",
        "SHARE UPDATE EXCLUSIVE, beside readers and writers, for both good lines.",
        "CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS {index} ON {table} ({column});",
        "DROP INDEX CONCURRENTLY {index};\nCREATE UNIQUE INDEX CONCURRENTLY {index} ON {table} ({column});",
        ("postgresql",),
        "sql",
    ),
    Advice(
        "left-over-check",
        "A CHECK constraint left over",
        "The constraint was there to make SET NOT NULL quick. Now it costs a little at each write, and Alembic may "
        "find it.",
        "ACCESS EXCLUSIVE for milliseconds.",
        "ALTER TABLE {table} ADD CONSTRAINT {check} CHECK ({column} IS NOT NULL);",
        "ALTER TABLE {table} DROP CONSTRAINT {check};",
        _SERVERS,
        "sql",
    ),
    Advice(
        "copying-tools",
        "A UNIQUE key added through gh-ost or pt-online-schema-change",
        "Both copy the rows with INSERT IGNORE. A row whose id is a duplicate is dropped without a word, and so is "
        "every row but one that has the empty text. Only the nullable column may come that way; the index is built "
        "by the server, which reports duplicates.",
        "ALGORITHM=INPLACE, LOCK=NONE: an exclusive metadata lock for a moment at the start and at the end.",
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
        "SQLite changes a column by copying the table and dropping the old one. With PRAGMA foreign_keys=ON, the "
        "drop deletes the rows first: with ON DELETE CASCADE, the rows of other tables go with them, without an "
        "error. The pragma does nothing inside a transaction, so it has to come first. Batch mode also loses "
        "triggers and indexes on expressions.",
        "The one of every write, until the copy is done.",
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
        "When the key reaches the largest number of its type, every INSERT fails at once, and so do those of all "
        "tables that refer to it. Foreign keys have to grow first, each with its index.",
        "A wider type writes the table anew under ACCESS EXCLUSIVE, or by ALGORITHM=COPY: plan it before it is "
        "urgent, by way of a second column that is filled in batches.",
        "{key}: Mapped[int] = mapped_column(primary_key=True)",
        "{key}: Mapped[int] = bigint_key()",
        _SERVERS,
    ),
    Advice(
        "redundant-index",
        "A second index on the same column",
        "The unique index serves every lookup. Another one on the column alone is never used, and costs space and "
        "time at each write.",
        "DROP INDEX takes a strong lock for milliseconds; CONCURRENTLY (PostgreSQL) does not let others wait behind"
        " it.",
        "{column}: Mapped[str] = mapped_column(String({length}), unique=True, index=True)",
        "{column}: Mapped[str] = public_id_column()",
    ),
    Advice(
        "mixed-formats",
        "Ids of several forms in one column",
        "The format of the model refuses the older ids: lookups answer that there is no such row, and the old links"
        " are dead. Ids that were issued once have to stay valid.",
        "None: only the model changes.",
        "__public_id__ = {new}",
        "__public_id__ = {new}.accepting({old})",
    ),
)

_TEXTS: Mapping[str, Advice] = MappingProxyType({piece.slug: piece for piece in _PIECES})

ADVICE: Mapping[str, Advice] = MappingProxyType({slug: about(slug) for slug in _TEXTS})
"""All pieces by slug, in the order of a migration, with ``customer`` for the table."""

if __name__ == "__main__":
    sys.stdout.write(as_markdown())
