"""The bodies of stored programs are read: which statements name the columns of a table by position."""

from __future__ import annotations

import pytest
from support.stored_programs import problems, read

from sqlalchemy_public_id.migrations.mysql import stored_code as mysql
from sqlalchemy_public_id.migrations.postgresql import stored_code as postgresql
from sqlalchemy_public_id.migrations.stored_code.programs import StoredCode
from sqlalchemy_public_id.migrations.stored_code.scope import Language
from sqlalchemy_public_id.migrations.stored_code.shapes import Change, Shape

TOO_MANY = "3 values would meet 2 columns"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("INSERT INTO audit SELECT 'I', now(), current_user, NEW.*", "6 values would meet 5 columns"),
        ("INSERT INTO audit SELECT 'I', now(), current_user, n.* FROM new_table n", "6 values would meet 5 columns"),
        ("INSERT INTO archive VALUES ((NEW).*)", TOO_MANY),
        ("INSERT INTO archive (id, total) SELECT NEW.*", TOO_MANY),
        ('INSERT INTO "archive" SELECT "i".* FROM s."invoice" AS "i"', TOO_MANY),
        ("INSERT INTO archive TABLE invoice", TOO_MANY),
        ("INSERT INTO signed VALUES (NEW.*)", "public_id would be stored in changed_by"),
        ("INSERT INTO signed SELECT NEW.*, 'me'", "4 values would meet 3 columns"),
        ("INSERT INTO x SELECT NEW.*", "it stores all columns by position in x, whose columns are not known"),
        ("WITH m AS (DELETE FROM invoice RETURNING *) INSERT INTO archive SELECT * FROM m", TOO_MANY),
        ("INSERT INTO archive WITH m AS (SELECT * FROM invoice) SELECT m.* FROM m", TOO_MANY),
        ("INSERT INTO archive SELECT x.* FROM (SELECT * FROM invoice) x", TOO_MANY),
        ("INSERT INTO archive SELECT a.* FROM (invoice a JOIN other b ON true)", TOO_MANY),
        ("IF OLD.* IS DISTINCT FROM NEW.* THEN INSERT INTO archive SELECT OLD.*; END IF", TOO_MANY),
        ("FOR r IN SELECT * FROM invoice LOOP INSERT INTO archive SELECT r.*; END LOOP", TOO_MANY),
        ("x := NEW; INSERT INTO archive VALUES (x.*)", TOO_MANY),
        ("SELECT * INTO x FROM invoice; INSERT INTO archive VALUES (x.*)", TOO_MANY),
        ("DECLARE x invoice%ROWTYPE; BEGIN INSERT INTO archive SELECT x.*; END", TOO_MANY),
        ("DECLARE x invoice; BEGIN INSERT INTO archive SELECT (x).*; END", TOO_MANY),
        ("DECLARE x signed; BEGIN x := NEW; END", "public_id would be stored in changed_by"),
        ("DECLARE x invoice; BEGIN SELECT 1, 2 INTO x; END", "public_id of the row would be NULL"),
        ("UPDATE archive SET (id, total) = (SELECT NEW.*)", TOO_MANY),
        ("UPDATE archive SET (id, total) = ROW(NEW.*)", TOO_MANY),
        ("x := ROW(1, 2)::invoice", "2 values would meet 3 columns"),
        ("x := CAST(ROW(NEW.*) AS archive)", TOO_MANY),
        ("INSERT INTO invoice SELECT (f(NULL::invoice)).*", "public_id would be copied, or NULL, and not generated"),
        ("INSERT INTO archive SELECT * FROM jsonb_populate_recordset(NULL::invoice, j)", TOO_MANY),
        ("MERGE INTO archive USING invoice i ON true WHEN NOT MATCHED THEN INSERT VALUES (i.*)", TOO_MANY),
        ("COPY invoice FROM '/tmp/x'", "the rows that it reads have other columns"),
        ("SELECT * INTO r FROM invoice UNION SELECT * FROM archive", "its parts would have 3 and 2 columns"),
        ("PERFORM 1 FROM (SELECT * FROM archive UNION TABLE invoice) x", "its parts would have 2 and 3 columns"),
        ("SELECT i.id, public_id INTO x FROM invoice i JOIN other USING (id)", "public_id would be ambiguous"),
        ("SELECT * INTO x FROM invoice NATURAL JOIN other", "NATURAL JOIN would also compare public_id"),
        ("EXECUTE 'INSERT INTO archive SELECT $1.*' USING NEW", TOO_MANY),
        ("x := E'it\\'s'; y := 'C:\\'; INSERT INTO archive SELECT NEW.*; y := 'D:\\'", TOO_MANY),
    ],
)  # fmt: skip
def test_new_column(text: str, problem: str) -> None:
    """A statement that a new column would break on PostgreSQL is found, with the reason."""
    assert problems(text)[-1:] == [problem]


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO prepared SELECT NEW.*",
        "INSERT INTO archive (id, total) VALUES (NEW.id, NEW.total)",
        "INSERT INTO audit VALUES (to_jsonb(NEW), row(NEW.*)::text, count(*), 2 * 3)",
        "INSERT INTO invoice VALUES (1, 2)",
        "INSERT INTO invoice SELECT * FROM archive",
        "INSERT INTO invoice DEFAULT VALUES",
        "INSERT INTO archive SELECT * FROM prepared",
        "CREATE TEMP TABLE x AS SELECT * FROM invoice; INSERT INTO x SELECT * FROM invoice",
        "IF EXISTS (SELECT * FROM invoice) THEN RAISE 'INSERT INTO archive SELECT NEW.*'; END IF",
        "-- INSERT INTO archive SELECT NEW.*\n/* INSERT /* nested */ INTO archive SELECT NEW.* */ NULL",
        "SELECT * INTO a, b FROM invoice",
        "DECLARE x signed; BEGIN x := NEW; x.changed_by := 'me'; INSERT INTO signed SELECT x.*; END",
        "DECLARE x invoice; BEGIN SELECT * INTO x FROM invoice; RETURN x; END",
        "PERFORM 1 FROM (SELECT * FROM invoice UNION SELECT * FROM invoice) x",
        "IF (NEW.*) = (OLD.*) THEN NULL; END IF",
        "NEW := jsonb_populate_record(NEW, j)",
        "SELECT o.public_id INTO x FROM invoice i JOIN other o USING (id)",
        "EXECUTE 'SELECT 1'",
    ],
)
def test_what_goes_on(text: str) -> None:
    """A statement that names its columns, or takes rows as a whole, is not found."""
    assert read(text) == StoredCode()


@pytest.mark.parametrize("language", [postgresql.LANGUAGE, mysql.LANGUAGE], ids=["pl/pgsql", "sql/psm"])
@pytest.mark.parametrize(
    ("text", "is_alias"),
    [
        ("SELECT id AS public_id FROM invoice", True),
        ("SELECT i.id public_id FROM invoice i", True),
        ("SELECT count(*) public_id FROM invoice", True),
        ("SELECT 1 public_id FROM invoice", True),
        ("SELECT 'x' public_id FROM invoice", True),
        ("SELECT CASE WHEN total > 1 THEN 1 END public_id FROM invoice", True),
        ("SELECT 1 FROM invoice AS public_id", True),
        ("SELECT id AS public_id FROM invoice ORDER BY public_id", True),
        ("SELECT id AS public_id FROM invoice WHERE total > 1 ORDER BY total, public_id DESC LIMIT 1", True),
        ("SELECT id AS public_id, total FROM invoice ORDER BY public_id, total", True),
        ("SELECT id AS public_id FROM invoice ORDER BY public_id + 1", False),
        ("SELECT id AS public_id FROM invoice WHERE public_id = 1", False),
        ("SELECT id AS public_id FROM invoice GROUP BY public_id", False),
        ("SELECT id AS public_id FROM invoice WHERE total IN (1, 2) AND public_id = 1 ORDER BY total", False),
        ("SELECT 1 FROM invoice AS public_id ORDER BY public_id", False),
        ("SELECT 1 AS public_id; SELECT id FROM invoice ORDER BY public_id", False),
        ("SELECT id FROM invoice ORDER BY public_id", False),
        ("SELECT DISTINCT ON (id) public_id FROM invoice", False),
        ("SELECT DISTINCT public_id FROM invoice", False),
        ("SELECT NOT public_id FROM invoice", False),
        ("SELECT total, public_id FROM invoice", False),
    ],
)
def test_aliases(text: str, language: Language, is_alias: bool) -> None:
    """An alias never becomes ambiguous, nor does a drop meet it; what only looks like one is found in both."""
    assert problems(text, language) == ["public_id would be ambiguous"] * (not is_alias)
    assert read(text, language, adds=False).by_name == ("f",) * (not is_alias)


@pytest.mark.parametrize(
    ("returns", "text", "problem"),
    [
        (["a", "b"], "SELECT * FROM invoice", TOO_MANY),
        (["a", "b"], "SELECT id, total FROM invoice", None),
        (None, "SELECT id, total FROM invoice", "2 values would meet 3 columns"),
        (None, "SELECT i.* FROM invoice i", None),
        (None, "SELECT i FROM invoice i", None),
        (None, "INSERT INTO archive VALUES (1, 2) RETURNING *", "2 values would meet 3 columns"),
    ],
)
@pytest.mark.parametrize("form", ["sql", "plpgsql"])
def test_result(returns: list[str] | None, text: str, problem: str | None, form: str) -> None:
    """The rows that a function returns are compared with its declaration; without one here, with the table's rows."""
    shape = Shape.fixed(returns) if returns else Change("public_id", adds=True).of(["id", "total"])
    body = text if form == "sql" else f"BEGIN RETURN QUERY {text}; END"

    assert problems(body, returns=shape, ends_with_query=form == "sql") == [problem] * (problem is not None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("INSERT INTO invoice VALUES (1, 'it''s \\' ;')", "2 values would meet 3 columns"),
        ("REPLACE `invoice` VALUES (3, 4), (4, 5)", "2 values would meet 3 columns"),
        ("REPLACE `Invoice` VALUES (3, 4)", "2 values would meet 3 columns"),
        ("INSERT IGNORE INTO archive SELECT * FROM Invoice", TOO_MANY),
        ("INSERT INTO `invoice` VALUES (...) /* , ... */", "values for 2 columns are given by position"),
        ("DECLARE c CURSOR FOR SELECT * FROM invoice; FETCH c INTO a, b", TOO_MANY),
        ("SELECT * INTO a, b FROM invoice", TOO_MANY),
        ("SELECT * FROM invoice LIMIT 1 INTO @a, @b", TOO_MANY),
        ("/*!50003 INSERT INTO invoice VALUES (1, 2) */", "2 values would meet 3 columns"),
        ("WITH x (a, b) AS (SELECT * FROM invoice) SELECT a FROM x", "3 columns would meet 2 names"),
        ("INSERT INTO invoice SET id = 3", None),
        ("INSERT INTO invoice () VALUES ()", None),
        ("INSERT INTO invoice (id) VALUES (3) # INSERT INTO invoice VALUES (1, 2)", None),
        ("SELECT REPLACE(name, 'a', 'b'), INSERT(name, 1, 2, 'c') INTO a, b FROM invoice", None),
        ('SELECT "INSERT INTO invoice VALUES (1, 2)" INTO a', None),
    ],
)
def test_mysql(text: str, problem: str | None) -> None:
    """MySQL and MariaDB want a value for each column, and a variable for each value."""
    assert problems(text, mysql.LANGUAGE) == [problem] * (problem is not None)


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("INSERT INTO log VALUES (NEW.public_id)", True),
        ('INSERT INTO log VALUES (NEW."public_id")', True),
        ("SELECT public_id FROM invoice", True),
        ("SELECT i.public_id FROM other o JOIN invoice AS i ON true", True),
        ("UPDATE invoice SET public_id = 'x'", True),
        ("INSERT INTO invoice (id, public_id) VALUES (1, 'x')", True),
        ("SELECT 1 FROM other WHERE id IN (SELECT id FROM invoice WHERE public_id = 'x')", True),
        ("x := invoice.public_id", True),
        ("SELECT o.public_id FROM invoice i JOIN other o ON true", False),
        ("INSERT INTO other (id, public_id) SELECT id, 'x' FROM invoice", False),
        ("SELECT id AS public_id FROM invoice", False),
        ("SELECT public_id(id) FROM invoice", False),
        ("SELECT 'public_id' FROM invoice -- public_id", False),
        ("DECLARE public_id text; BEGIN SELECT id INTO public_id FROM invoice; END", False),
        ("SELECT public_id FROM other; SELECT id FROM invoice", False),
    ],
)
def test_dropped_column(text: str, is_found: bool) -> None:
    """A program that names the dropped column is found, and not one that names a column of another relation."""
    assert read(text, adds=False).by_name == ("f",) * is_found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("INSERT INTO prepared SELECT NEW.*", None),
        ("INSERT INTO archive SELECT NEW.*", None),
        ("INSERT INTO signed SELECT NEW.*", "public_id would no longer be stored in changed_by"),
        ("INSERT INTO prepared SELECT 0, NEW.id, NEW.public_id", None),
        ("DECLARE x signed; BEGIN x := NEW; END", "public_id would no longer be stored in changed_by"),
        ("DECLARE x signed; BEGIN x := NEW; x.changed_by := 'me'; END", None),
    ],
)
def test_position_of_a_dropped_column(text: str, problem: str | None) -> None:
    """A drop is judged by where values are stored afterwards."""
    assert problems(text, adds=False) == [problem] * (problem is not None)


@pytest.mark.parametrize(
    "text",
    ["EXECUTE format('INSERT INTO %I SELECT $1.*', t) USING NEW", "EXECUTE 'INSERT INTO ' || t", "EXECUTE sentence"],
)
def test_string_that_is_executed(text: str) -> None:
    """SQL that a program builds as a string is not examined, which is said."""
    assert read(text).not_examined == ("f, which executes SQL that it builds as a string",)


@pytest.mark.parametrize(
    "text",
    ["(" * 20_000 + "1" + ")" * 20_000, "SELECT " + "(SELECT " * 5_000, "'", "$$", "/*", "INSERT INTO", "((", "))"],
)
def test_text_that_nobody_writes(text: str) -> None:
    """Deep nesting and unfinished texts raise no error."""
    for language in (postgresql.LANGUAGE, mysql.LANGUAGE):
        for adds in (True, False):
            assert read(text, language, adds=adds) == StoredCode()


def test_table_that_can_get_the_column_first() -> None:
    """A history whose next column would get the ids is named, and one with other columns behind is not."""
    (finding,) = read("INSERT INTO archive SELECT NEW.*").by_position
    (other,) = read("INSERT INTO signed SELECT NEW.*").by_position

    assert (finding.extends, other.extends) == ("archive", "")
