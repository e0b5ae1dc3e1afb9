"""Changing a clause of a CREATE TABLE of SQLite leaves every other character alone; SQLite itself is the oracle."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sqlalchemy_public_id.migrations.sqlite.create_table import (
    settles_duplicates,
    with_clause,
    with_column,
    without_clause,
    without_unique,
)

names = st.text(st.sampled_from("aB_ é1'\"`[(,)-;/*"), min_size=1, max_size=6).filter(
    lambda name: not name.lower().startswith("sqlite_") and name.strip() == name
)
comments = st.sampled_from(
    ["", " ", "\n", "\t", " -- a, (comment' \"\n", " /* a, ) ' \" */ ", "/**/", " --)\n", "/* -- */"]
)


@st.composite
def quoted(draw: st.DrawFn, name: str) -> str:
    """Draw one of the ways to write a name."""
    ways = ['"{}"'.format(name.replace('"', '""')), "`{}`".format(name.replace("`", "``"))]
    if "]" not in name:
        ways.append(f"[{name}]")
    if name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit():
        ways.append(f"{name}_x")
    return draw(st.sampled_from(ways))


types = st.sampled_from(
    [
        "",
        " INT",
        " VARCHAR(10)",
        " NUMERIC(10, 2)",
        " TEXT COLLATE NOCASE",
        " INT DEFAULT (1 + (2))",
        " TEXT DEFAULT 'it''s, ('",
        " INT NOT NULL DEFAULT 1",
        ' TEXT CHECK (length("x") < 9)',
        " INT CHECK (1 IN (1, 2))",
        " DEFAULT ')' UNIQUE",
        " VARCHAR(12) /* , ( */ CONSTRAINT one UNIQUE ON CONFLICT IGNORE",
        " TEXT CONSTRAINT given NOT NULL ON CONFLICT FAIL -- NOT NULL\n",
        " TEXT NULL DEFAULT -1.5e-3 CHECK (1 NOT NULL)",
        " BLOB DEFAULT x'00ff' NOT NULL",
        " INT DEFAULT NULL REFERENCES other (id) ON DELETE SET DEFAULT ON UPDATE SET NULL NOT DEFERRABLE",
        " INT REFERENCES other (id) NOT DEFERRABLE INITIALLY IMMEDIATE NOT NULL DEFAULT CURRENT_TIMESTAMP",
    ]
)
constraints = st.sampled_from(
    [
        "CHECK (1 < 2)",
        "CONSTRAINT \"a,(b\" CHECK ('(' <> ')')",
        "UNIQUE (first)",
        "constraint x unique(first)",
        "UNIQUE ( -- (\n [Public_Id] COLLATE NOCASE DESC ) ON CONFLICT REPLACE",
        "UNIQUE (public_id, first)",
        "FOREIGN KEY (first) REFERENCES other (id) ON DELETE CASCADE",
        "CONSTRAINT [y z] CHECK(1)",
        "Primary Key (first)",
    ]
)


@st.composite
def tables(draw: st.DrawFn, column: str | None = None) -> str:
    """Draw the text of a CREATE TABLE, with *column* if it is given."""

    def space() -> str:
        return draw(comments)

    columns = ["first INT"]
    seen = {"first", "public_id"}
    for name in draw(st.lists(names, max_size=4)):
        written = draw(quoted(name))
        meant = (written if written[0] not in '"`[' else name).lower()
        if meant not in seen:
            seen.add(meant)
            columns.append(written + draw(types).replace('"x"', "first"))
    if column is not None:
        columns.insert(draw(st.integers(1, len(columns))), column + draw(types).replace('"x"', "first"))
    parts = columns + draw(st.lists(constraints, max_size=3, unique_by=lambda text: text[:9]))
    body = ",".join(f"{space()} {part}{space()}" for part in parts)
    name = draw(st.sampled_from(["t", '"a (b"', "[t, u]", "`(`", "main.t", '"main"."t"']))
    create = draw(st.sampled_from(["CREATE TABLE ", "create table\n", "CREATE TABLE IF NOT EXISTS "]))
    return f"{create}{name}{space()}({body}){space()}"


OF_TABLE = "FROM sqlite_master WHERE type = 'table'"


def asked(sql: str, query: str) -> list[Any]:
    """Return what SQLite answers to *query* after it has created the table of *sql*."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(sql)
        return connection.execute(query).fetchall()


def described(sql: str) -> dict[str, Any]:
    """Return what SQLite says about each column, by name and in order."""
    found = asked(sql, f"SELECT x.* FROM (SELECT name {OF_TABLE}) t, pragma_table_xinfo(t.name) x")
    return {row[1]: row[2:] for row in found}


def kept(sql: str) -> str:
    """Return the text that SQLite stores for a statement."""
    return str(asked(sql, f"SELECT sql {OF_TABLE}")[0][0])


def is_taken(sql: str) -> bool:
    try:
        described(sql)
    except sqlite3.Error:
        return False
    return True


existing = (
    st.sampled_from(["public_id", '"public_id"', "[public_id]", "`Public_ID`"])
    .flatmap(tables)
    .filter(is_taken)
    .map(kept)
)


def others(sql: str) -> list[tuple[str, Any]]:
    """Return what SQLite says about the other columns."""
    return [item for item in described(sql).items() if item[0].lower() != "public_id"]


def ours(sql: str) -> tuple[str, int, str | None]:
    """Return type, NOT NULL and default of the column."""
    found = {name.lower(): row for name, row in described(sql).items()}["public_id"]
    return found[:3]


def unique_indexes(sql: str) -> list[list[str]]:
    """Return the columns of each UNIQUE constraint."""
    indexes = f"(SELECT name {OF_TABLE}) t, pragma_index_list(t.name) l, pragma_index_info(l.name) i"
    query = f"SELECT json_group_array(lower(i.name)) FROM {indexes} WHERE l.origin = 'u' GROUP BY l.name"
    return [json.loads(row[0]) for row in asked(sql, query)]


@given(tables().filter(is_taken))
@example('CREATE TABLE t ("check" TEXT)')
def test_column_is_added(sql: str) -> None:
    """A column is added as ALTER TABLE would add it."""
    sql = kept(sql)
    definition = '"public_id" VARCHAR(12)'
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(sql)
        ((table,),) = connection.execute(f"SELECT name {OF_TABLE}")
        connection.execute('ALTER TABLE "{}" ADD COLUMN {}'.format(table.replace('"', '""'), definition))
        ((altered,),) = connection.execute(f"SELECT sql {OF_TABLE}")

    assert described(with_column(sql, definition)) == described(altered)


@given(existing)
def test_not_null(sql: str) -> None:
    """NOT NULL is removed from a column and added again; nothing else changes."""
    type_, _, default = ours(sql)

    without = without_clause(sql, "public_id", "NOT NULL")
    again = with_clause(without, "public_id", "NOT NULL")

    assert ours(without) == (type_, 0, default)
    assert ours(again) == (type_, 1, default)
    assert others(without) == others(again) == others(sql)
    assert unique_indexes(again) == unique_indexes(sql)
    assert without_clause(without, "public_id", "NOT NULL") == without
    assert without_clause(again, "public_id", "NOT NULL") == without


@given(existing)
@example("CREATE TABLE t (first INT, public_id TEXT NULL DEFAULT -1.5e-3 CHECK (1 NOT NULL))")
def test_default(sql: str) -> None:
    """A new default replaces the one of the column; nothing else changes."""
    type_, not_null, default = ours(sql)

    without = without_clause(sql, "public_id", "DEFAULT")
    again = with_clause(without, "public_id", "DEFAULT ('x,(' || 1)")

    assert ours(without) == (type_, not_null, None)
    assert ours(again) == (type_, not_null, "'x,(' || 1")
    assert others(without) == others(again) == others(sql)
    assert (without == sql) == (default is None)
    assert without_clause(again, "public_id", "DEFAULT") == without


@given(existing)
def test_unique(sql: str) -> None:
    """The UNIQUE constraints of a column are removed, and those of other columns stay."""
    without = without_unique(sql, "public_id")

    assert described(without) == described(sql)
    assert sorted(unique_indexes(without)) == sorted(each for each in unique_indexes(sql) if each != ["public_id"])
    assert without_unique(without, "public_id") == without


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("(b TEXT)", "(b TEXT NOT NULL)"),
        ("(a, [B] TEXT, c) STRICT", "(a, [B] TEXT NOT NULL, c) STRICT"),
        ("(a, b TEXT CHECK (b > 0) /* ids */, c)", "(a, b TEXT CHECK (b > 0) NOT NULL /* ids */, c)"),
        ("(a, b -- the last\n)", "(a, b NOT NULL -- the last\n)"),
        ("(\"check\", b, UNIQUE (b)) WITHOUT ROWID", "(\"check\", b NOT NULL, UNIQUE (b)) WITHOUT ROWID"),
    ],
)  # fmt: skip
def test_text(sql: str, expected: str) -> None:
    """A new clause comes after the other clauses, before the comments, and the rest of the text is unchanged."""
    assert with_clause(f"CREATE TABLE t {sql}", "b", "NOT NULL") == f"CREATE TABLE t {expected}"


def test_name_of_a_clause() -> None:
    """A clause is removed together with its name and its conflict clause."""
    sql = "CREATE TABLE t (a, b TEXT CONSTRAINT given NOT NULL ON CONFLICT FAIL CONSTRAINT one UNIQUE)"

    assert without_unique(without_clause(sql, "b", "NOT NULL"), "b") == "CREATE TABLE t (a, b TEXT)"


@pytest.mark.parametrize(
    ("sql", "columns", "expected"),
    [
        ("(a, b TEXT UNIQUE, UNIQUE (b), UNIQUE (a))", ["b"], "(a, b TEXT, UNIQUE (a))"),
        ("(a, b UNIQUE, c, UNIQUE (c, B), UNIQUE (b, c, a))", ["b", "C"], "(a, b UNIQUE, c, UNIQUE (b, c, a))"),
        ("(a, b, UNIQUE (b) ON CONFLICT FAIL, CONSTRAINT x UNIQUE (b), CHECK (a))", ["b"], "(a, b, CHECK (a))"),
        ("(a, b, UNIQUE (a, b COLLATE NOCASE DESC))", ["a", "b"], "(a, b)"),
    ],
)
def test_several_uniques(sql: str, columns: list[str], expected: str) -> None:
    """All UNIQUE constraints of exactly these columns are removed, in any order and case, and no others."""
    assert without_unique(f"CREATE TABLE t {sql}", *columns) == f"CREATE TABLE t {expected}"


@pytest.mark.parametrize(
    ("sql", "kind", "expected"),
    [
        ("(b REFERENCES t ON DELETE SET DEFAULT DEFAULT 1)", "DEFAULT", "(b REFERENCES t ON DELETE SET DEFAULT)"),
        ("(b DEFAULT -1 NOT NULL)", "DEFAULT", "(b NOT NULL)"),
        ("(b CONSTRAINT one DEFAULT (1) CHECK (1))", "DEFAULT", "(b CHECK (1))"),
        ("(b REFERENCES t ON UPDATE SET NULL NOT NULL)", "NOT NULL", "(b REFERENCES t ON UPDATE SET NULL)"),
        ("(a DEFAULT 1, b)", "DEFAULT", "(a DEFAULT 1, b)"),
    ],
)
def test_clause_that_is_removed(sql: str, kind: Literal["DEFAULT", "NOT NULL"], expected: str) -> None:
    """Only the clause of the column itself is removed, with its name, and not what a foreign key does with it."""
    assert without_clause(f"CREATE TABLE t {sql}", "B", kind) == f"CREATE TABLE t {expected}"


@pytest.mark.parametrize(
    ("sql", "settles"),
    [
        ("(a, b UNIQUE ON CONFLICT REPLACE)", True),
        ("(a, b, UNIQUE (B) ON CONFLICT ignore)", True),
        ("(a, b UNIQUE ON CONFLICT FAIL)", False),
        ("(a UNIQUE ON CONFLICT REPLACE, b UNIQUE)", False),
        ("(a, b UNIQUE, UNIQUE (a, b) ON CONFLICT REPLACE)", False),
    ],
)
def test_duplicates_that_are_settled(sql: str, settles: bool) -> None:
    """Only a UNIQUE of the column that deletes or skips rows lets a duplicate pass without an error."""
    assert settles_duplicates(f"CREATE TABLE t {sql}", "b") == settles
