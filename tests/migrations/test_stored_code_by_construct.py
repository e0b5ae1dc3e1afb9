"""Each construct of a stored program that names columns by position, or the dropped column by its name, is read."""

from __future__ import annotations

import pytest
from support.stored_programs import problems, read

from sqlalchemy_public_id.migrations.mysql import stored_code as mysql
from sqlalchemy_public_id.migrations.postgresql import stored_code as postgresql
from sqlalchemy_public_id.migrations.stored_code.scope import BrokenStatement, Language
from sqlalchemy_public_id.migrations.stored_code.shapes import Change, Shape
from sqlalchemy_public_id.migrations.stored_code.tokens import Lexis

BOTH = pytest.mark.parametrize("language", [postgresql.LANGUAGE, mysql.LANGUAGE], ids=["pl/pgsql", "sql/psm"])
COPIED = "public_id would be copied, or NULL, and not generated"
OTHER_PARTS = "its parts would have different numbers of columns"
ROW_IS_NULL = "public_id of the row would be NULL"
TO_CHANGED_BY = "public_id would be stored in changed_by"
TO_ID = "public_id 1 would be stored in id"
TO_TOTAL = "public_id would be stored in total"
TOO_FEW = "2 values would meet 3 columns"
TOO_MANY = "3 values would meet 2 columns"
UNKNOWN_TABLE = "it stores all columns by position in x, whose columns are not known"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM ONLY invoice",
        "SELECT i.* FROM other o, LATERAL (SELECT * FROM invoice) i",
        "SELECT * FROM invoice JOIN archive USING (id, total)",
        "SELECT * FROM invoice AS x (a, b)",
        "SELECT * FROM invoices()",
        "SELECT (invoices()).*",
        "SELECT i.* FROM invoices() i",
        "SELECT * FROM json_populate_record(NULL::invoice, j)",
        "SELECT * FROM jsonb_populate_record(NEW, j)",
        "SELECT * FROM jsonb_populate_recordset(NEW, j)",
        "SELECT (CAST(x AS invoice)).*",
        "SELECT (x::s.invoice).*",
        "VALUES (1, 2), (NEW.*)",
        "SELECT * FROM invoice ON CONFLICT DO NOTHING",
        "SELECT x.* FROM (WITH c AS (SELECT * FROM invoice) SELECT * FROM c) x",
        "SELECT * FROM (TABLE invoice) x",
        "(TABLE invoice)",
        "WITH a AS (TABLE invoice) TABLE a",
        "WITH a AS (TABLE invoice), m AS (WITH b AS (TABLE a) TABLE b) SELECT m.* FROM m",
        "SELECT * FROM (VALUES (NEW.*)) x",
        "(SELECT * FROM invoice)",
        "OVERRIDING USER VALUE SELECT * FROM invoice",
        "AS a SELECT * FROM invoice",
        "WITH a AS (SELECT * FROM invoice), m AS (SELECT * FROM a) SELECT m.* FROM m",
        "WITH RECURSIVE a AS NOT MATERIALIZED (SELECT * FROM invoice), m AS (SELECT * FROM a) SELECT * FROM m",
        "WITH x (a, b) AS (SELECT * FROM invoice) SELECT * FROM x",
        "WITH s AS (SELECT 1, 2) SELECT * FROM s.invoice",
        "SELECT 1, i.* FROM invoice AS i LIMIT 1",
        "SELECT (i).* FROM invoice i",
        "SELECT id IS DISTINCT FROM 1, i.* FROM invoice i",
        "SELECT CASE WHEN extract(x FROM y) IS DISTINCT FROM 1 THEN 1 END, i.* FROM invoice i",
        "SELECT DISTINCT ON (id) * FROM invoice",
        "SELECT ALL * FROM invoice",
    ],
)
@pytest.mark.parametrize("before", ["INSERT INTO archive ", "WITH moved AS (SELECT 1) INSERT INTO s.archive "])
def test_inserted_query(text: str, before: str) -> None:
    """An INSERT by position is found, whatever kind of query its rows come from."""
    (problem,) = problems(before + text)

    assert problem in (TOO_MANY, "4 values would meet 2 columns")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM unnest(NULL::invoice[])",
        "WITH x (a, b) AS (SELECT * FROM invoice), y AS (SELECT a, b FROM x) SELECT * FROM y",
        "WITH new AS (SELECT id, total FROM invoice) SELECT * FROM new",
        "WITH invoice AS (SELECT 1 AS a, 2 AS b) SELECT * FROM invoice",
        "WITH audit AS (SELECT * FROM invoice) SELECT a, b FROM s.audit",
        "SELECT CASE WHEN a IS DISTINCT FROM b THEN 1 END, total FROM invoice",
        "SELECT * FROM archive UNION SELECT id, total FROM invoice",
        "SELECT count(*), max(total) FROM invoice",
        "SELECT o.* FROM archive o, invoice i",
    ],
)
def test_inserted_query_that_goes_on(text: str) -> None:
    """An INSERT of as many values as before is not found, although the table is read."""
    assert problems(f"INSERT INTO archive {text}") == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("INSERT INTO prepared TABLE archive UNION ALL SELECT * FROM invoice", "its parts would have 2 and 3 columns"),
        ("SELECT * FROM invoice UNION DISTINCT SELECT * FROM archive", "its parts would have 3 and 2 columns"),
        ("PERFORM * FROM invoice EXCEPT SELECT * FROM archive", "its parts would have 3 and 2 columns"),
        ("SELECT * FROM x UNION SELECT * FROM invoice UNION SELECT 1, 2", OTHER_PARTS),
        ("SELECT * FROM x UNION SELECT * FROM invoice", None),
        ("SELECT * INTO x FROM other NATURAL JOIN invoice", "NATURAL JOIN would also compare public_id"),
        ("SELECT * INTO x FROM invoice NATURAL JOIN other", "NATURAL JOIN would also compare public_id"),
        ("SELECT * INTO x FROM y NATURAL JOIN invoice", "NATURAL JOIN would also compare public_id"),
        ("SELECT * INTO x FROM invoice NATURAL JOIN y", "NATURAL JOIN would also compare public_id"),
        ("SELECT * INTO x FROM invoice NATURAL JOIN archive", None),
        ("SELECT * INTO x FROM archive NATURAL JOIN other", None),
        ("SELECT public_id(id) INTO x FROM invoice", None),
        ("SELECT public_id FROM other", None),
        ("PERFORM public_id FROM invoice i, other o", "public_id would be ambiguous"),
        ("TABLE invoice UNION ALL TABLE archive", "its parts would have 3 and 2 columns"),
        ("RETURN QUERY TABLE archive UNION TABLE invoice", "its parts would have 2 and 3 columns"),
        ("FOR r IN TABLE invoice LOOP INSERT INTO archive SELECT r.*; END LOOP", TOO_MANY),
        ("LOCK TABLE invoice; ALTER TABLE invoice RENAME TO x; CREATE TEMP TABLE archive AS TABLE invoice", None),
        ("SELECT id AS public_id FROM invoice GROUP BY total, public_id", "public_id would be ambiguous"),
        ("SELECT id AS public_id INTO x FROM invoice HAVING public_id > 1", "public_id would be ambiguous"),
        ("SELECT id AS public_id FROM invoice GROUP BY id ORDER BY public_id FOR UPDATE", None),
        ("FOR r IN SELECT id AS public_id FROM invoice ORDER BY public_id LOOP NULL; END LOOP", None),
        ("INSERT INTO archive SELECT * FROM invoice, x", "by position"),
        ("INSERT INTO archive SELECT x.*, i.* FROM x, invoice i", "by position"),
        ("INSERT INTO audit SELECT NEW.id, i.* FROM invoice i", "public_id would be stored in id"),
        ("INSERT INTO audit SELECT * FROM other JOIN invoice USING (id) JOIN archive USING (id)", TO_ID),
        ("WITH x (a, b) AS (SELECT * FROM invoice) INSERT INTO signed SELECT * FROM x", TO_CHANGED_BY),
        ("INSERT INTO archive SELECT i.*, i.* FROM invoice i", "6 values would meet 2 columns"),
        ("INSERT INTO signed SELECT 1, i.* FROM (SELECT id AS total FROM other) x, archive i", None),
    ],
)  # fmt: skip
def test_query(text: str, problem: str | None) -> None:
    """The parts of a UNION, the columns of a NATURAL JOIN, and names that become ambiguous are found."""
    assert problems(text)[:1] == [problem] * (problem is not None)


@pytest.mark.parametrize(
    "text",
    [
        "x := NEW; y := x; INSERT INTO archive VALUES (y.*)",
        "DECLARE x CONSTANT invoice := NEW; BEGIN INSERT INTO archive SELECT x.*; END",
        "DECLARE x invoice NOT NULL := NEW; BEGIN INSERT INTO archive SELECT x.*; END",
        "DECLARE x ALIAS FOR new; BEGIN INSERT INTO archive SELECT x.*; END",
        "DECLARE x s.invoice%ROWTYPE; BEGIN INSERT INTO archive SELECT x.*; END",
        "DECLARE x CONSTANT invoice%ROWTYPE := NEW; BEGIN INSERT INTO archive SELECT x.*; END",
        "OPEN c FOR SELECT * FROM invoice; FETCH c INTO x; INSERT INTO archive SELECT x.*",
        "SELECT * INTO STRICT x FROM invoice; INSERT INTO archive SELECT x.*",
        "SELECT INTO x * FROM invoice; INSERT INTO archive SELECT x.*",
        "SELECT INTO STRICT x * FROM invoice; INSERT INTO archive SELECT x.*",
        "IF true THEN x := NEW; INSERT INTO archive SELECT x.*; END IF",
        "IF true THEN NULL; ELSE x = NEW; END IF; INSERT INTO archive SELECT x.*",
        "LOOP x = NEW; INSERT INTO archive SELECT x.*; END LOOP",
        "DELETE FROM invoice RETURNING * INTO x; INSERT INTO archive SELECT x.*",
        "DELETE FROM ONLY invoice WHERE id = 1 RETURNING * INTO STRICT x; INSERT INTO archive SELECT x.*",
        "UPDATE invoice SET total = 1 RETURNING * INTO x; INSERT INTO archive SELECT x.*",
        "UPDATE other SET id = 1 FROM invoice i RETURNING i.* INTO x; INSERT INTO archive SELECT x.*",
        "DELETE FROM other USING invoice i WHERE true RETURNING i.* INTO x; INSERT INTO archive SELECT x.*",
        "UPDATE invoice SET total = 1 FROM other RETURNING invoice.* INTO x; INSERT INTO archive SELECT x.*",
        "INSERT INTO invoice (id) VALUES (1) RETURNING * INTO x; INSERT INTO archive SELECT x.*",
        "EXECUTE 'INSERT INTO archive SELECT * FROM invoice' INTO x",
        "EXECUTE 'INSERT INTO archive SELECT $2.*' USING 1, NEW",
        "EXECUTE $sql$INSERT INTO archive SELECT $1.*$sql$ USING NEW",
        "PREPARE x AS INSERT INTO archive SELECT * FROM invoice",
        "MERGE INTO s.archive a USING other o, invoice i ON true WHEN NOT MATCHED THEN INSERT VALUES (i.*)",
        "MERGE INTO archive a USING invoice i ON true WHEN NOT MATCHED THEN INSERT (id, total) VALUES (i.*)",
        "MERGE INTO archive USING invoice i ON x WHEN MATCHED THEN UPDATE SET a = 1 WHEN true THEN INSERT VALUES (i.*)",
        "MERGE INTO archive USING invoice i ON true WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (i.*)",
        "MERGE INTO archive USING invoice i ON true WHEN MATCHED THEN UPDATE SET (id, total) = ROW(i.*)",
        "IF (1, 2) IN (SELECT * FROM invoice) THEN NULL; END IF",
        "IF (1, 2) NOT IN (SELECT * FROM invoice) THEN NULL; END IF",
        "IF (1, 2) = ANY (SELECT * FROM invoice) THEN NULL; END IF",
        "IF (1, 2) = ROW(NEW.*) THEN NULL; END IF",
    ],
)
def test_variables_and_statements(text: str) -> None:
    """Rows that pass through variables, cursors and other statements are followed to where they are stored."""
    assert TOO_MANY in problems(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x := (1, 2)::invoice", [TOO_FEW]),
        ("x := CAST((1, 2) AS s.invoice)", [TOO_FEW]),
        ("x := (1, 2)::invoice[]", []),
        ("x := (1, 2)::text", []),
        ("x := (1, 2, 3, 4)::invoice", []),
        ("x := ROW(NEW.*)::x", []),
        ("DECLARE x invoice; BEGIN x := (1, 2); END", [ROW_IS_NULL]),
        ("DECLARE x invoice; BEGIN x := ROW(1, 2); END", [ROW_IS_NULL]),
        ("DECLARE x invoice; BEGIN SELECT * INTO x FROM archive; END", [ROW_IS_NULL]),
        ("DECLARE x text := 'a'; BEGIN x := ROW(1, 2); END", []),
        ("DECLARE x signed; BEGIN x.changed_by := 'me'; x := NEW; END", [TO_CHANGED_BY]),
        ("DECLARE c CURSOR FOR SELECT * FROM invoice; x signed; BEGIN FETCH c INTO x; END", [TO_CHANGED_BY]),
        ("DECLARE c CURSOR IS SELECT * FROM invoice; x signed; BEGIN FETCH NEXT FROM c INTO x; END", [TO_CHANGED_BY]),
        ("DECLARE c SCROLL CURSOR FOR SELECT * FROM invoice; x signed; BEGIN FETCH c INTO x; END", [TO_CHANGED_BY]),
        (
            "DECLARE c CURSOR FOR SELECT * FROM invoice; x signed; BEGIN FOR x IN c LOOP NULL; END LOOP; END",
            [TO_CHANGED_BY],
        ),
        ("DECLARE x signed; BEGIN UPDATE invoice SET total = 1 RETURNING * INTO x; END", [TO_CHANGED_BY]),
        ("DECLARE invoice text; x signed%ROWTYPE; BEGIN x := NEW; END", [TO_CHANGED_BY]),
        ("SELECT * INTO a[1], b FROM invoice", []),
        ("DELETE FROM archive USING invoice RETURNING * INTO x; INSERT INTO audit SELECT x.*", [TO_TOTAL]),
        ("UPDATE archive SET id = 1 FROM invoice RETURNING * INTO x; INSERT INTO audit SELECT x.*", [TO_TOTAL]),
        ("EXECUTE 'INSERT INTO archive SELECT $1.*, ''a''' USING NEW", ["4 values would meet 2 columns"]),
        ("FOR a, b IN SELECT * FROM invoice LOOP NULL; END LOOP", []),
        ("IF 1 IN (SELECT id FROM invoice) THEN NULL; END IF", []),
        ("IF (NEW.id, NEW.total) = (SELECT total, id FROM invoice) THEN NULL; END IF", []),
        ("IF (1, 2, 3, 4) = (SELECT * FROM invoice) THEN NULL; END IF", []),
        ("IF ROW(NEW.*) = (SELECT * FROM invoice) THEN NULL; END IF", []),
        ("CREATE TEMPORARY TABLE IF NOT EXISTS x (a int); INSERT INTO x SELECT * FROM invoice", []),
        ("CREATE UNLOGGED TABLE x (a int); INSERT INTO x SELECT * FROM invoice", []),
        ("TRUNCATE TABLE x; INSERT INTO x SELECT * FROM invoice", [UNKNOWN_TABLE]),
        ("INSERT INTO x SELECT id FROM invoice", []),
        ("INSERT INTO s.x SELECT * FROM invoice", [UNKNOWN_TABLE.replace(" x,", " s.x,")]),
        ("INSERT INTO prepared (id, total, public_id) SELECT * FROM invoice", []),
        ("INSERT INTO invoice SELECT i.* FROM invoice i", [COPIED]),
        ("INSERT INTO invoice SELECT * FROM x", []),
        ("COPY invoice TO '/tmp/x'", []),
        ("COPY invoice (id, total) FROM '/tmp/x'", []),
        ("COPY s.invoice FROM STDIN", ["the rows that it reads have other columns"]),
        ("COPY archive FROM STDIN", []),
        ("INSERT INTO archive SELECT NEW.*; INSERT INTO archive SELECT NEW.*", [TOO_MANY]),
    ],
)
def test_findings(text: str, found: list[str]) -> None:
    """Each statement is found once, with its own reason, and a statement that goes on as before is not found."""
    assert problems(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("INSERT INTO invoice SELECT * FROM x", ["by position"]),
        ("INSERT INTO archive SELECT * FROM x", []),
        ("INSERT INTO invoice SELECT i.* FROM invoice i", []),
        ("INSERT INTO invoice VALUES (1, 2, 3)", [TOO_MANY]),
        ("INSERT INTO invoice VALUES (1, 2)", []),
        ("INSERT INTO prepared SELECT i.* FROM invoice i", []),
        ("INSERT INTO audit SELECT 1, 2, NEW.*", ["public_id would no longer be stored in total"]),
        ("SELECT * INTO x FROM other NATURAL JOIN invoice", []),
        ("SELECT public_id INTO x FROM invoice", []),
        ("DECLARE x invoice; BEGIN SELECT 1, 2, 3 INTO x; END", []),
    ],
)
def test_drop(text: str, found: list[str]) -> None:
    """A statement that stores rows by position is judged by the columns that are left after a drop."""
    assert problems(text, adds=False)[:1] == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("INSERT INTO archive SELECT * FROM other o STRAIGHT_JOIN invoice i", ["5 values would meet 2 columns"]),
        ("SELECT * FROM invoice UNION SELECT * FROM invoice INTO @a, @b", [TOO_MANY]),
        ("INSERT INTO other (id, public_id) SELECT id, total FROM invoice ON DUPLICATE KEY UPDATE public_id = 'x'", []),
        ("SELECT 1 AS $$; INSERT INTO archive SELECT * FROM invoice", [TOO_MANY]),
        ("INSERT INTO archive SELECT * FROM invoice ON DUPLICATE KEY UPDATE total = 1", [TOO_MANY]),
        ("INSERT INTO archive PARTITION (p) SELECT * FROM invoice", [TOO_MANY]),
        ("INSERT LOW_PRIORITY IGNORE archive SELECT * FROM invoice", [TOO_MANY]),
        ("INSERT HIGH_PRIORITY INTO archive SELECT * FROM invoice", [TOO_MANY]),
        ("INSERT HIGH_PRIORITY IGNORE INTO archive (id, total) SELECT * FROM invoice", [TOO_MANY]),
        ("INSERT DELAYED archive SELECT * FROM invoice", [TOO_MANY]),
        ("INSERT OVERWRITE archive SELECT * FROM invoice", [TOO_MANY]),
        ("REPLACE LOW_PRIORITY archive SELECT * FROM invoice", [TOO_MANY]),
        ("REPLACE DELAYED INTO archive SELECT * FROM invoice", [TOO_MANY]),
        ("IF (SELECT 1 FROM invoice) THEN INSERT INTO archive SELECT * FROM invoice; END IF", [TOO_MANY]),
        ("INSERT INTO invoice VALUES ROW(1, 2), ROW(3, 4)", [TOO_FEW]),
        ("INSERT invoice VALUE (1, 2)", [TOO_FEW]),
        ("INSERT INTO invoice SELECT * FROM x", ["values for 2 columns are given by position"]),
        ("INSERT INTO archive SELECT * FROM x", []),
        ("FOR a, b IN SELECT * FROM invoice DO NULL; END FOR", [TOO_MANY]),
        ("SELECT * INTO @a FROM invoice", ["3 values would meet 1 columns"]),
        ("SELECT * INTO a FROM invoice", ["3 values would meet 1 columns"]),
        ("DECLARE x ROW TYPE OF invoice; SELECT * INTO x FROM archive", [ROW_IS_NULL]),
        ("# x\nINSERT INTO archive SELECT * FROM invoice", [TOO_MANY]),
        ("/*! INSERT INTO archive SELECT * FROM invoice */", [TOO_MANY]),
        ("/*M!100100 INSERT INTO archive SELECT * FROM invoice */", [TOO_MANY]),
        ("/* /* */ INSERT INTO archive SELECT * FROM invoice", [TOO_MANY]),
        ("SET @x = 'a\\'b'; INSERT INTO archive SELECT * FROM invoice", [TOO_MANY]),
        ('SET @x = "a\\"b"; INSERT INTO archive SELECT * FROM invoice', [TOO_MANY]),
        ("SET @x = `a\\`; INSERT INTO archive SELECT * FROM invoice", [TOO_MANY]),
    ],
)
def test_mysql(text: str, found: list[str]) -> None:
    """The statements, comments and strings that only MySQL and MariaDB have are read as they read them."""
    assert problems(text, mysql.LANGUAGE) == found


@pytest.mark.parametrize(
    "text",
    [
        "x := U&'it''s'; {}",
        "x := $q$ ' $q$; {}",
        "x := $q$ $$ ' $ $q$; {}",
        "x := $$ ' $$; {}",
        'x := "a""b"; {}',
        "x := B'1\\'; {}",
        "FOR i IN 1..3 LOOP {}; END LOOP",
        "x := a # b; {}",
        "/* /* */ */ {}",
        "x := a[1]; {}",
        "x := 'a;b'; {}",
    ],
)
def test_tokens_before_a_statement(text: str) -> None:
    """A string, a name, a range or a comment does not hide what follows it."""
    assert problems(text.format("INSERT INTO Archive SELECT NEW.*")) == [TOO_MANY]


@pytest.mark.parametrize("text", ["$q$ {}; $q$", "'it''s {}'", "E'\\'{}'", "/* /* */ {}; */", "/*! {}; */", "-- {}"])
def test_tokens_around_a_statement(text: str) -> None:
    """A statement inside of a string or a comment of PostgreSQL is not executed."""
    assert problems("x := 1; " + text.format("INSERT INTO archive SELECT NEW.*")) == []


def test_case_of_quoted_names() -> None:
    """PostgreSQL tells quoted names in other letters apart; MySQL and MariaDB do not."""
    assert problems('INSERT INTO "ARCHIVE" SELECT NEW.*') == [
        "it stores all columns by position in ARCHIVE, whose columns are not known"
    ]
    assert problems("INSERT INTO `ARCHIVE` SELECT * FROM `Invoice`", mysql.LANGUAGE) == [TOO_MANY]
    assert problems("SET @A = 1; SELECT * INTO @a FROM invoice", mysql.LANGUAGE) == ["3 values would meet 1 columns"]


def test_lexis_of_a_program() -> None:
    """A program that was written under another sql_mode, where double quotes enclose names, is read by that."""
    text = 'INSERT INTO "archive" SELECT * FROM "invoice"'

    assert problems(text, mysql.LANGUAGE) == []
    assert problems(text, mysql.LANGUAGE, lexis=Lexis(folds_quoted=True)) == [TOO_MANY]


@BOTH
@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("BEGIN UPDATE invoice SET total = 0 WHERE (public_id = 'x'); END", True),
        ("BEGIN UPDATE invoice SET total = 0 WHERE id = 1 AND ((public_id = 'x') OR id = 2); END", True),
        ("BEGIN SELECT coalesce(public_id, 'x') INTO y FROM invoice; END", True),
        ("BEGIN INSERT INTO invoice (id, public_id) VALUES (1, 'x'); END", True),
        ("BEGIN INSERT INTO s.invoice (id, public_id) SELECT id, 'x' FROM archive; END", True),
        ("BEGIN INSERT INTO s.other (id, public_id) SELECT id, 'x' FROM invoice; END", False),
        ("BEGIN UPDATE other SET id = 0 WHERE (public_id = 'x'); SELECT id INTO y FROM invoice; END", False),
        ("SELECT a.public_id FROM invoice a; SELECT a.id FROM other a", True),
        ("SELECT i.public_id FROM other o, invoice i", True),
        ("SELECT o.public_id FROM invoice i, other o", False),
        ("SELECT (i).public_id FROM invoice i", True),
        ("SELECT (o).public_id FROM invoice i, other o", False),
        ("INSERT INTO log VALUES ((NEW).public_id)", True),
        ("INSERT INTO log VALUES ((OLD).public_id, f(1).public_id)", True),
        ("INSERT INTO log VALUES ((f(1)).public_id)", False),
        ("INSERT INTO log VALUES ($1.public_id)", True),
        ("INSERT INTO log VALUES ($2.public_id)", False),
        ("INSERT INTO log VALUES (row.public_id)", False),
        ("DECLARE public_id text; BEGIN UPDATE invoice SET public_id = 'x'; END", True),
        ("DECLARE public_id text; BEGIN UPDATE invoice SET total = 1, public_id = public_id; END", True),
        ("DECLARE public_id text; BEGIN INSERT INTO invoice (id, public_id) VALUES (1, public_id); END", True),
        ("DECLARE public_id text; BEGIN SELECT id FROM invoice WHERE id = public_id; END", False),
    ],
)
def test_name_of_the_dropped_column(text: str, language: Language, is_found: bool) -> None:
    """The dropped column is found in each part of a statement, and told from other columns and variables."""
    row = Change("public_id", adds=False).of(["id", "total", "public_id"])

    assert read(text, language, adds=False, more={"$1": row}).by_name == ("f",) * is_found


def test_names_that_a_program_has() -> None:
    """A name of an argument is not a column; an upsert, a row of another table and a constant are read by their own."""
    assert read("SELECT id FROM invoice WHERE id = public_id", adds=False, names=frozenset({"public_id"})).by_name == ()
    assert read("DECLARE x signed; BEGIN y := x.public_id; END", adds=False).by_name == ()
    assert read("DECLARE x invoice; BEGIN y := x.public_id; END", adds=False).by_name == ("f",)
    upsert = "INSERT INTO invoice (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET total = excluded.public_id"
    assert read(upsert, adds=False).by_name == ("f",)
    assert read("EXECUTE 'SELECT public_id FROM invoice'", adds=False).by_name == ("f",)
    assert read("EXECUTE 'UPDATE log SET x = $1.public_id' USING NEW", adds=False).by_name == ("f",)


@BOTH
@pytest.mark.parametrize("text", ["EXECUTE a; EXECUTE b", "PREPARE s FROM @x", "EXECUTE @x", "EXECUTE IMMEDIATE x"])
def test_sentences_that_are_not_read(text: str, language: Language) -> None:
    """It is said once that a program executes SQL that it builds, and not of a column that is called like this."""
    assert read(text, language).not_examined == ("f, which executes SQL that it builds as a string",)
    assert read("PERFORM x.execute (a), x.prepare", language).not_examined == ()


@pytest.mark.parametrize(
    ("returns", "text", "found"),
    [
        (["id", "total"], "RETURN QUERY DELETE FROM invoice RETURNING *", [TOO_MANY]),
        (["id", "total"], "RETURN QUERY SELECT 1, i.* FROM invoice i", []),
        (["id", "total"], "RETURN QUERY EXECUTE 'SELECT 1, 2, 3'", []),
        (["id", "total"], "SELECT * INTO x FROM invoice; RETURN QUERY SELECT 1, 2", []),
        (["id", "total"], "RETURN QUERY SELECT a, b FROM (SELECT * FROM invoice) x (a, b)", []),
        (None, "RETURN NEXT (1, 2)", [TOO_FEW]),
        (None, "RETURN ROW(1, 2)", [TOO_FEW]),
        (None, "RETURN (1, 2)", [TOO_FEW]),
        (None, "RETURN (1)", []),
        (None, "RETURN (1, 2, 3)", []),
        (None, "RETURN QUERY SELECT i FROM invoice i", []),
        (None, "RETURN QUERY SELECT 1, 2, 3", []),
    ],
)
def test_returned_rows(returns: list[str] | None, text: str, found: list[str]) -> None:
    """Rows that a function returns are compared with its declaration, which without one is the type of the table."""
    shape = Shape.fixed(returns) if returns else Change("public_id", adds=True).of(["id", "total"])

    assert problems(text, returns=shape) == found


def test_last_query() -> None:
    """Only the last query of a function in the language SQL is its result, and not one inside of it."""
    shape = Shape.fixed(["id", "total"])
    text = "SELECT id, total FROM (SELECT * FROM invoice) x"

    assert problems(text, returns=shape, ends_with_query=True) == []
    assert problems("SELECT * FROM invoice", returns=shape, ends_with_query=True) == [TOO_MANY]


def test_words_of_a_finding() -> None:
    """A finding has the start of its statement in one line, and the table that can be extended with its schema."""
    (finding,) = read("x := 1;\nINSERT INTO s.archive\n  SELECT NEW.*; y := 2").by_position
    (longer,) = read(f"INSERT INTO archive SELECT NEW.* FROM {'x' * 80}").by_position

    assert str(finding) == f"f has 'INSERT INTO s.archive SELECT NEW.*': {TOO_MANY}"
    assert finding.extends == "s.archive"
    assert str(BrokenStatement("the trigger t", "", "no such column")) == "the trigger t: no such column"
    assert (len(longer.statement), longer.statement[-2:]) == (70, "x…")


@pytest.mark.parametrize(
    ("text", "extends"),
    [
        ("INSERT INTO archive SELECT * FROM invoice", "archive"),
        ("INSERT INTO archive SELECT 0, i.* FROM invoice i", ""),
        ("INSERT INTO archive SELECT i.*, 0 FROM invoice i", ""),
        ("INSERT INTO invoice SELECT i.* FROM invoice i", ""),
        ("INSERT INTO archive SELECT x.* FROM invoice, x", ""),
    ],
)
def test_table_that_can_be_extended(text: str, extends: str) -> None:
    """A table is named as one that can get the column first only if the ids would be stored there."""
    assert [finding.extends for finding in read(text).by_position][:1] in ([extends], [])
    assert [finding.extends for finding in read(text, mysql.LANGUAGE).by_position][:1] in ([""], [])
    assert [finding.extends for finding in read(text, adds=False).by_position][:1] in ([""], [])


def test_column_in_the_middle() -> None:
    """A dropped column leaves the others in their order, wherever it stands in the table."""
    assert Change("public_id", adds=False).of(["id", "public_id", "total"]).after == ("id", "total")
