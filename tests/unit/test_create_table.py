"""One column of a CREATE TABLE of SQLite is changed, and every other character stays: SQLite itself is the oracle."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlalchemy_public_id.online.create_table import renamed, with_column, with_constraint, without_constraint

DEFINITION = "\"public_id\" VARCHAR(12) DEFAULT ('x') NOT NULL"

names = st.text(st.sampled_from("aB_ é1'\"`[(,)-;/*"), min_size=1, max_size=6).filter(
    lambda name: not name.lower().startswith("sqlite_") and name.strip() == name
)
comments = st.sampled_from(
    ["", " ", "\n", "\t", " -- a, (comment' \"\n", " /* a, ) ' \" */ ", "/**/", " --)\n", "/* -- */"]
)


@st.composite
def quoted(draw: st.DrawFn, name: str) -> str:
    """A name, as one may write it."""
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
    ]
)
constraints = st.sampled_from(
    [
        "CHECK (1 < 2)",
        "CONSTRAINT \"a,(b\" CHECK ('(' <> ')')",
        "UNIQUE (first)",
        "constraint x unique(first)",
        "FOREIGN KEY (first) REFERENCES other (id) ON DELETE CASCADE",
        "CONSTRAINT [y z] CHECK(1)",
        "Primary Key (first)",
    ]
)


@st.composite
def tables(draw: st.DrawFn, column: str | None = None) -> str:
    """The text of a CREATE TABLE that SQLite takes; with *column*, if it is given."""

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


def described(sql: str) -> dict[str, Any]:
    """Name → what SQLite says about the column, in order."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(sql)
        (table,) = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = connection.execute("SELECT * FROM pragma_table_xinfo(?)", (table,)).fetchall()
        return {row[1]: row[2:] for row in found}


def kept(sql: str) -> str:
    """The text that SQLite keeps of a statement."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(sql)
        return str(connection.execute("SELECT sql FROM sqlite_master WHERE type = 'table'").fetchone()[0])


def is_taken(sql: str) -> bool:
    try:
        described(sql)
    except sqlite3.Error:
        return False
    return True


@given(tables().filter(is_taken))
def test_column_is_added(sql: str) -> None:
    """A column is added, and SQLite describes the others as before."""
    sql = kept(sql)

    after = described(with_column(sql, "public_id", DEFINITION))

    assert after.pop("public_id")[:3] == ("VARCHAR(12)", 1, "'x'")
    assert list(after.items()) == list(described(sql).items())


@given(st.sampled_from(["public_id", '"public_id"', "[public_id]", "`Public_ID`"]).flatmap(tables).filter(is_taken))
def test_column_is_replaced(sql: str) -> None:
    """A column that is there gets the new definition in its place, and SQLite describes the others as before."""
    sql = kept(sql)
    before = described(sql)

    after = described(with_column(sql, "public_id", DEFINITION))

    assert [name.lower() for name in after] == [name.lower() for name in before]
    assert after["public_id"][:3] == ("VARCHAR(12)", 1, "'x'")
    assert [item for item in after.items() if item[0] != "public_id"] == [
        item for item in before.items() if item[0].lower() != "public_id"
    ]


@given(tables().filter(is_taken))
def test_renamed(sql: str) -> None:
    """The table gets another name, and SQLite describes it as before."""
    sql = kept(sql)

    assert described(renamed(sql, '"copy of ""it"""')) == described(sql)


@given(tables().filter(is_taken))
def test_constraint_is_added_and_removed(sql: str) -> None:
    """A constraint is added at the end, works, and is taken away again: the text is the one from before."""
    sql = kept(sql)

    constrained = with_constraint(sql, 'CONSTRAINT "uq (" UNIQUE (first)')

    assert described(constrained) == described(sql)
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(constrained)
        assert connection.execute("SELECT count(*) FROM sqlite_master WHERE type = 'index'").fetchone()[0] > 0
    assert described(without_constraint(constrained, "uq (")) == described(sql)
    assert without_constraint(sql, "uq (") == sql


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("CREATE TABLE t (a)", "CREATE TABLE t (a, b INT)"),
        ("CREATE TABLE t (a) STRICT", "CREATE TABLE t (a, b INT) STRICT"),
        ("CREATE TABLE t (a, CHECK (a > 0)) WITHOUT ROWID", "CREATE TABLE t (a, b INT, CHECK (a > 0)) WITHOUT ROWID"),
        ("CREATE TABLE t (a, b TEXT)", "CREATE TABLE t (a, b INT)"),
        ("CREATE TABLE t (a, [B] TEXT, c)", "CREATE TABLE t (a, b INT, c)"),
        ("CREATE TABLE t (\n  a,\n  c\n)", "CREATE TABLE t (\n  a,\n  c, b INT)"),
        ("CREATE TABLE t (a, \"check\" INT)", "CREATE TABLE t (a, \"check\" INT, b INT)"),
    ],
)  # fmt: skip
def test_text(sql: str, expected: str) -> None:
    """The rest of the text is what it was."""
    result = with_column(sql, "b", "b INT")

    assert result.replace("\n)", ")") == expected.replace("\n)", ")")


def test_comment_behind_the_last_column() -> None:
    """A definition behind a comment to the end of the line does not become part of the comment."""
    assert set(described(with_column("CREATE TABLE t (a -- the last\n)", "b", "b INT"))) == {"a", "b"}


def test_constraint_behind_a_comment() -> None:
    """Nor does a constraint."""
    constrained = with_constraint("CREATE TABLE t (a -- the last\n)", "CONSTRAINT u UNIQUE (a)")
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(constrained)
        assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 2
