"""The texts of all pieces of advice, in the order of a migration."""

from __future__ import annotations

from functools import partial

from sqlalchemy_public_id.advice.piece import ALL, Advice, Database

_SERVERS: tuple[Database, ...] = ("postgresql", "mysql", "mariadb")
_MYSQL: tuple[Database, ...] = ("mysql", "mariadb")

_sql = partial(Advice, language="sql")

_ANY_TIMEOUT = "SET lock_timeout = '1s';  -- MySQL and MariaDB: SET SESSION lock_wait_timeout = 1\n"
_POSTGRESQL_TIMEOUT = "SET lock_timeout = '1s';\n"
_POSTGRESQL_RESET = "\nRESET lock_timeout;"
"""``CREATE INDEX CONCURRENTLY`` in the same session has to wait longer."""
_MYSQL_TIMEOUT = "SET SESSION lock_wait_timeout = 1;\n"
_MYSQL_STRICT = "SET SESSION lock_wait_timeout = 1, sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES');\n"

PIECES = (
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
        f"{_ANY_TIMEOUT}"
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
        f"{_MYSQL_TIMEOUT}ALTER TABLE {{table}} ADD UNIQUE INDEX {{index}} ({{column}}), ALGORITHM=INPLACE, LOCK=NONE;",
        _MYSQL,
    ),
    _sql(
        "prefix-index",
        "A unique index on the first characters only",
        "Two ids that begin alike are duplicates to the index, and the second row is refused. If all ids have the same "
        "prefix, the table holds one row. The index cannot be the unique index that a lookup needs.",
        "INPLACE with LOCK=NONE builds the index beside readers and writers. It needs a brief exclusive metadata lock "
        "at the start and at the end.",
        "ALTER TABLE {table} ADD UNIQUE INDEX {replaced} ({column}(4));",
        f"{_MYSQL_TIMEOUT}"
        "ALTER TABLE {table} ADD UNIQUE INDEX {index} ({column}), DROP INDEX {replaced}, ALGORITHM=INPLACE, LOCK=NONE;",
        _MYSQL,
    ),
    _sql(
        "deferrable-constraint",
        "A UNIQUE constraint that is DEFERRABLE",
        "ON CONFLICT cannot use the constraint. If it is deferred, a duplicate is an error of COMMIT: by then, no "
        "collision can be retried.",
        "CONCURRENTLY takes SHARE UPDATE EXCLUSIVE, beside readers and writers, and cannot run inside a transaction. "
        "DROP CONSTRAINT takes ACCESS EXCLUSIVE for milliseconds.",
        "ALTER TABLE {table} ADD CONSTRAINT {replaced} UNIQUE ({column}) DEFERRABLE INITIALLY DEFERRED;",
        "CREATE UNIQUE INDEX CONCURRENTLY {index} ON {table} ({column});\n"
        f"{_POSTGRESQL_TIMEOUT}"
        "ALTER TABLE {table} DROP CONSTRAINT {replaced};"
        f"{_POSTGRESQL_RESET}",
        ("postgresql",),
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
        "during VALIDATE. If one of them fails, stop, and run that one again.",
        "ALTER TABLE {table} ALTER COLUMN {column} SET NOT NULL;",
        f"{_POSTGRESQL_TIMEOUT}"
        "ALTER TABLE {table} ADD CONSTRAINT {check} CHECK ({column} IS NOT NULL) NOT VALID;\n"
        "ALTER TABLE {table} VALIDATE CONSTRAINT {check};\n"
        "ALTER TABLE {table} ALTER COLUMN {column} SET NOT NULL;\n"
        "ALTER TABLE {table} DROP CONSTRAINT {check};"
        f"{_POSTGRESQL_RESET}",
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
        f"{_MYSQL_STRICT}ALTER TABLE {{table}} MODIFY {{column}} {{type}} NOT NULL, ALGORITHM=INPLACE, LOCK=NONE;",
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
        f"{_MYSQL_TIMEOUT}"
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
        ALL,
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
        f"{_MYSQL_STRICT}"
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
        f"{_POSTGRESQL_TIMEOUT}"
        'ALTER TABLE {table} ALTER COLUMN {column} TYPE varchar({length}) COLLATE "C";'
        f"{_POSTGRESQL_RESET}",
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
        "DROP INDEX CONCURRENTLY {dropped};\nCREATE UNIQUE INDEX CONCURRENTLY {index} ON {table} ({column});",
        ("postgresql",),
    ),
    _sql(
        "left-over-check",
        "A CHECK constraint left over",
        "The constraint was there to make SET NOT NULL fast. It now adds a small cost to each write, and Alembic may "
        "report it.",
        "ACCESS EXCLUSIVE for milliseconds.",
        "ALTER TABLE {table} ADD CONSTRAINT {check} CHECK ({column} IS NOT NULL);",
        f"{_POSTGRESQL_TIMEOUT}ALTER TABLE {{table}} DROP CONSTRAINT {{check}};{_POSTGRESQL_RESET}",
        ("postgresql",),
    ),
    _sql(
        "left-over-check-mysql",
        "A CHECK constraint left over on MySQL or MariaDB",
        "No migration of this library needs the constraint there. It adds a small cost to each write, and Alembic may "
        "report it.",
        "An exclusive metadata lock for milliseconds.",
        "ALTER TABLE {table} ADD CONSTRAINT {check} CHECK ({column} IS NOT NULL);",
        f"{_MYSQL_TIMEOUT}ALTER TABLE {{table}} DROP CONSTRAINT {{check}};",
        _MYSQL,
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
        'mysql -e "SET SESSION lock_wait_timeout = 1; '
        'ALTER TABLE {table} ADD UNIQUE INDEX {index} ({column}), ALGORITHM=INPLACE, LOCK=NONE"',
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
        "column-type",
        "A column that cannot store public ids",
        "An integer column stores no id with letters, and a number loses its leading zeros. INT is also too small for "
        "the numbers of Snowflake. Outside strict mode, MySQL and MariaDB store another number instead, without an "
        "error.",
        "Another type rewrites the table under ACCESS EXCLUSIVE, or with ALGORITHM=COPY. Add a second column with "
        "op.add_public_id(), deploy a model with that column, and drop this one afterwards.",
        "{column}: Mapped[int] = mapped_column(unique=True)",
        "{column}: Mapped[str] = public_id_column()",
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
