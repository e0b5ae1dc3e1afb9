"""Triggers, functions, rules and views of real projects, beside a table of invoices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Animal:
    """One program of a database, with the tables that it writes."""

    ddl: Sequence[str]
    calls: Sequence[str] = ()
    """Other statements of the old application, which only must not fail."""
    after: Sequence[str] = ()
    """What the new application adds when the table has ids."""
    hidden: bool = False
    """True if nobody can read what it does."""


def function(
    body: str, language: str = "plpgsql", returns: str = "trigger", arguments: str = "", name: str = "f"
) -> str:
    """Return the DDL of a function of PostgreSQL."""
    return f"CREATE FUNCTION {name}({arguments}) RETURNS {returns} LANGUAGE {language} AS $f$ {body} $f$"


def row_trigger(when: str = "AFTER INSERT OR UPDATE OR DELETE", more: str = "FOR EACH ROW", call: str = "f()") -> str:
    """Return the DDL of a trigger of PostgreSQL."""
    return f"CREATE TRIGGER t {when} ON invoice {more} EXECUTE FUNCTION {call}"


_AUDIT = "CREATE TABLE h (op char(1), at timestamptz, who text, id bigint, total int)"
_HISTORY = "CREATE TABLE h (id bigint, total int)"
_LOG = "CREATE TABLE h (what text)"
_MANUAL = """BEGIN
    IF (TG_OP = 'DELETE') THEN INSERT INTO h SELECT 'D', now(), current_user, OLD.*;
    ELSIF (TG_OP = 'UPDATE') THEN INSERT INTO h SELECT 'U', now(), current_user, NEW.*;
    ELSIF (TG_OP = 'INSERT') THEN INSERT INTO h SELECT 'I', now(), current_user, NEW.*;
    END IF;
    RETURN NULL;
END"""
_TRANSITION = """BEGIN
    IF (TG_OP = 'INSERT') THEN INSERT INTO h SELECT 'I', now(), current_user, n.* FROM new_table n; END IF;
    RETURN NULL;
END"""
_ON_TABLES = "REFERENCING NEW TABLE AS new_table FOR EACH STATEMENT"
_UPDATED_AT = "BEGIN NEW.changed := clock_timestamp(); RETURN NEW; END"
_IF_CHANGED = """DECLARE doc jsonb; excluded text[] := ARRAY[]::text[];
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.* IS NOT DISTINCT FROM OLD.* THEN RETURN NULL; END IF;
    doc := to_jsonb(COALESCE(NEW, OLD)) - excluded; -- as audit-trigger 91plus does
    INSERT INTO h VALUES (TG_OP, doc);
    RETURN NULL;
END"""

POSTGRESQL: Mapping[str, Animal] = {
    "the audit trigger of the manual": Animal([_AUDIT, function(_MANUAL), row_trigger()]),
    "the audit trigger of the manual, with transition tables": Animal(
        [_AUDIT, function(_TRANSITION), row_trigger("AFTER INSERT", _ON_TABLES)]
    ),
    "the audit trigger, whose table has the column already": Animal(
        [_AUDIT.replace("int)", "int, public_id text)"), function(_MANUAL), row_trigger()]
    ),
    "a history table with its own column last": Animal(
        [
            "CREATE TABLE h (id bigint, total int, changed_by text DEFAULT current_user)",
            function("BEGIN INSERT INTO h VALUES (NEW.*); RETURN NULL; END"),
            row_trigger("AFTER INSERT"),
        ]
    ),
    "a history table with a mark after the row": Animal(
        [
            "CREATE TABLE h (id bigint, total int, op text, more text)",
            function("BEGIN INSERT INTO h SELECT OLD.*, 'D'; RETURN OLD; END"),
            row_trigger("BEFORE DELETE"),
        ]
    ),
    "a history that names its columns": Animal(
        [
            _HISTORY,
            function("BEGIN INSERT INTO h (id, total) VALUES (OLD.id, OLD.total); RETURN NULL; END"),
            row_trigger("AFTER UPDATE OR DELETE"),
        ]
    ),
    "a history of a row in parentheses": Animal(
        [_HISTORY, function("BEGIN INSERT INTO h VALUES ((OLD).*); RETURN NULL; END"), row_trigger("AFTER UPDATE")]
    ),
    "a history by a variable of the type of the history": Animal(
        [
            "CREATE TABLE h (id bigint, total int, changed_by text)",
            function(
                "DECLARE r h%ROWTYPE; BEGIN SELECT OLD.* INTO r; r.changed_by := 'me'; INSERT INTO h VALUES (r.*);"
                " RETURN NULL; END"
            ),
            row_trigger("AFTER UPDATE"),
        ]
    ),
    "a history by a variable of the type of the table": Animal(
        [
            _HISTORY,
            function(
                "DECLARE r invoice; BEGIN FOR r IN SELECT * FROM invoice WHERE id = NEW.id LOOP"
                " INSERT INTO h SELECT r.*; END LOOP; RETURN NULL; END"
            ),
            row_trigger("AFTER INSERT"),
        ]
    ),
    "a row that is moved to an archive": Animal(
        [
            _HISTORY,
            function(
                "WITH moved AS (DELETE FROM invoice WHERE total < 0 RETURNING *) INSERT INTO h SELECT * FROM moved",
                "sql",
                "void",
            ),
        ],
        calls=["SELECT f()"],
    ),
    "an UPDATE by a list": Animal(
        [
            _HISTORY,
            function("BEGIN UPDATE h SET (id, total) = (SELECT NEW.*) WHERE id = OLD.id; RETURN NULL; END"),
            row_trigger("AFTER UPDATE"),
        ]
    ),
    "a JSON document": Animal(["CREATE TABLE h (op text, doc jsonb)", function(_IF_CHANGED), row_trigger()]),
    "a function of all tables that takes any row": Animal(
        [
            _HISTORY,
            function("BEGIN INSERT INTO h SELECT r.*; END", returns="void", arguments="r anyelement", name="keep"),
            function("BEGIN PERFORM keep(NEW); RETURN NULL; END"),
            row_trigger("AFTER INSERT"),
        ]
    ),
    "updated_at": Animal(
        [
            "ALTER TABLE invoice ADD changed timestamptz",
            function(_UPDATED_AT),
            row_trigger("BEFORE UPDATE", "FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*)"),
        ]
    ),
    "a vector for full text": Animal(
        [
            "ALTER TABLE invoice ADD note text, ADD words tsvector",
            row_trigger(
                "BEFORE INSERT OR UPDATE",
                call="tsvector_update_trigger(words, 'pg_catalog.english', note)",
            ),
        ]
    ),
    "a vector for full text, with the id": Animal(
        ["ALTER TABLE invoice ADD words tsvector"],
        after=[row_trigger("BEFORE INSERT", call="tsvector_update_trigger(words, 'pg_catalog.english', public_id)")],
    ),
    "a counter": Animal(
        [
            "CREATE TABLE h (number int)",
            "INSERT INTO h VALUES (0)",
            function("BEGIN UPDATE h SET number = number + 1; RETURN NULL; END"),
            row_trigger("AFTER INSERT"),
        ]
    ),
    "a notification": Animal(
        [
            function("BEGIN PERFORM pg_notify('invoice', row_to_json(NEW)::text); RETURN NEW; END"),
            row_trigger("AFTER INSERT"),
        ]
    ),
    "a check": Animal(
        [
            function("BEGIN IF NEW.total > 1000 THEN RAISE EXCEPTION 'too much: %', NEW; END IF; RETURN NEW; END"),
            row_trigger("BEFORE INSERT OR UPDATE"),
        ]
    ),
    "a row made anew": Animal(
        [
            function("BEGIN RETURN ROW(NEW.id, NEW.total); END"),
            row_trigger("BEFORE INSERT"),
        ]
    ),
    "a row changed by jsonb_populate_record": Animal(
        [
            function("BEGIN NEW := jsonb_populate_record(NEW, '{\"total\": 7}'); RETURN NEW; END"),
            row_trigger("BEFORE INSERT"),
        ]
    ),
    "rows from JSON": Animal(
        [
            function(
                "BEGIN INSERT INTO invoice SELECT * FROM jsonb_populate_recordset(NULL::invoice, $1); END",
                returns="void",
                arguments="jsonb",
            )
        ],
        calls=["""SELECT f('[{"id": 77, "total": 1}]')"""],
    ),
    "INSTEAD OF on a view": Animal(
        [
            "CREATE VIEW v AS SELECT * FROM invoice",
            function("BEGIN INSERT INTO invoice VALUES (NEW.*); RETURN NEW; END"),
            "CREATE TRIGGER t INSTEAD OF INSERT ON v FOR EACH ROW EXECUTE FUNCTION f()",
        ],
        calls=["INSERT INTO v VALUES (78, 1)"],
    ),
    "a rule with NEW.*": Animal([_HISTORY, "CREATE RULE r AS ON INSERT TO invoice DO ALSO INSERT INTO h SELECT NEW.*"]),
    "a report with a list of columns": Animal(
        [function("BEGIN RETURN QUERY SELECT * FROM invoice; END", returns="TABLE (invoice_id bigint, amount int)")],
        calls=["SELECT * FROM f()"],
    ),
    "a report with a list of columns, in SQL": Animal(
        [function("SELECT * FROM invoice", "sql", "TABLE (invoice_id bigint, amount int)")],
        calls=["SELECT * FROM f()"],
    ),
    "rows of the table": Animal(
        [function("BEGIN RETURN QUERY SELECT * FROM invoice WHERE total > 0; END", returns="SETOF invoice")],
        calls=["SELECT id, total FROM f()"],
    ),
    "rows of the table from named columns": Animal(
        [function("SELECT id, total FROM invoice", "sql", "SETOF invoice")], calls=["SELECT id, total FROM f()"]
    ),
    "rows of the table and of an archive": Animal(
        [_HISTORY, function("SELECT * FROM invoice UNION ALL SELECT * FROM h", "sql", "SETOF invoice")],
        calls=["SELECT id, total FROM f()"],
    ),
    "a view of the table and of an archive": Animal(
        [_HISTORY, "CREATE VIEW v AS SELECT * FROM invoice UNION ALL SELECT * FROM h"], calls=["SELECT * FROM v"]
    ),
    "a function that names a variable like the id": Animal(
        [
            function(
                "DECLARE public_id text := 'x'; n int; BEGIN SELECT count(*) INTO n FROM invoice i"
                " WHERE public_id = 'x'; RETURN NULL; END"
            ),
            row_trigger("AFTER INSERT"),
        ]
    ),
    "a table whose trigger writes into the invoices": Animal(
        [
            "CREATE TABLE h (id bigint, total int)",
            function("BEGIN INSERT INTO invoice VALUES (NEW.id, NEW.total); RETURN NEW; END"),
            "CREATE TRIGGER t AFTER INSERT ON h FOR EACH ROW EXECUTE FUNCTION f()",
        ],
        calls=["INSERT INTO h VALUES (79, 1)"],
    ),
    "a constant that is executed": Animal(
        [
            _HISTORY,
            function("BEGIN EXECUTE 'INSERT INTO h SELECT $1.*' USING NEW; RETURN NULL; END"),
            row_trigger("AFTER INSERT"),
        ]
    ),
    "a string that is executed": Animal(
        [
            _HISTORY,
            function("BEGIN EXECUTE format('INSERT INTO %I SELECT $1.*', TG_ARGV[0]) USING NEW; RETURN NULL; END"),
            row_trigger("AFTER INSERT", call="f('h')"),
        ],
        hidden=True,
    ),
    "a function in C": Animal(
        [
            "CREATE EXTENSION IF NOT EXISTS moddatetime SCHEMA public",
            "ALTER TABLE invoice ADD changed timestamptz",
            row_trigger("BEFORE UPDATE", call="public.moddatetime(changed)"),
        ],
        hidden=True,
    ),
    "a trigger that sends the id": Animal(
        [_LOG],
        after=[
            function("BEGIN INSERT INTO h VALUES (NEW.public_id); RETURN NULL; END"),
            row_trigger("AFTER INSERT"),
        ],
    ),
    "a function that finds by the id": Animal(
        [],
        after=[
            function("SELECT i.total FROM invoice i WHERE i.public_id = $1", "sql", "int", "text"),
            function("BEGIN PERFORM f('x'); RETURN NULL; END", name="g"),
            row_trigger("AFTER INSERT", call="g()"),
        ],
    ),
    "a view of the id": Animal([], after=["CREATE VIEW v AS SELECT public_id FROM invoice"]),
}

_MYSQL_COPY = "CREATE TRIGGER t AFTER INSERT ON invoice FOR EACH ROW"
MYSQL: Mapping[str, Animal] = {
    "a history by a SELECT of the row": Animal(
        [_HISTORY, f"{_MYSQL_COPY} INSERT INTO h SELECT * FROM invoice WHERE id = NEW.id"]
    ),
    "a history with columns of its own": Animal(
        [
            "CREATE TABLE h (op char(1), id bigint, total int)",
            f"{_MYSQL_COPY} BEGIN INSERT INTO h SELECT 'I', i.* FROM invoice i WHERE i.id = NEW.id; END",
        ]
    ),
    "a history that names its columns": Animal(
        [_HISTORY, f"{_MYSQL_COPY} INSERT INTO h (id, total) VALUES (NEW.id, NEW.total)"]
    ),
    "a JSON document": Animal(
        ["CREATE TABLE h (doc text)", f"{_MYSQL_COPY} INSERT INTO h VALUES (JSON_OBJECT('id', NEW.id))"]
    ),
    "a counter": Animal(
        [
            "CREATE TABLE h (number int)",
            "INSERT INTO h VALUES (0)",
            f"{_MYSQL_COPY} UPDATE h SET number = number + 1",
        ]
    ),
    "updated_at": Animal(
        [
            "ALTER TABLE invoice ADD changed datetime",
            "CREATE TRIGGER t BEFORE UPDATE ON invoice FOR EACH ROW SET NEW.changed = NOW()",
        ]
    ),
    "a check": Animal(
        [
            (
                "CREATE TRIGGER t BEFORE INSERT ON invoice FOR EACH ROW BEGIN /* invoice */ IF NEW.total > 1000 THEN "
                "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'INSERT INTO invoice VALUES (1)'; END IF; END"
            )
        ]
    ),
    "a table whose trigger writes into the invoices": Animal(
        [_HISTORY, "CREATE TRIGGER t AFTER INSERT ON h FOR EACH ROW INSERT INTO invoice VALUES (NEW.id, NEW.total)"],
        calls=["INSERT INTO h VALUES (79, 1)"],
    ),
    "a procedure that writes by position": Animal(
        ["CREATE PROCEDURE p(n int) BEGIN REPLACE INTO `invoice` VALUES (n, 1); END"], calls=["CALL p(80)"]
    ),
    "a procedure with a cursor": Animal(
        [
            (
                "CREATE PROCEDURE p() BEGIN DECLARE a, b bigint; DECLARE c CURSOR FOR SELECT * FROM invoice;"
                " OPEN c; FETCH c INTO a, b; CLOSE c; END"
            )
        ],
        calls=["CALL p()"],
    ),
    "a procedure that selects into variables": Animal(
        ["CREATE PROCEDURE p() BEGIN DECLARE a, b bigint; SELECT i.* INTO a, b FROM invoice i LIMIT 1; END"],
        calls=["CALL p()"],
    ),
    "a procedure that counts": Animal(
        ["CREATE FUNCTION p() RETURNS int READS SQL DATA RETURN (SELECT COUNT(*) FROM invoice)"],
        calls=["SELECT p()"],
    ),
    "a view of the table and of an archive": Animal(
        [_HISTORY, "CREATE VIEW v AS SELECT * FROM invoice UNION ALL SELECT * FROM h"], calls=["SELECT * FROM v"]
    ),
    "a statement that is prepared": Animal(
        ["CREATE PROCEDURE p() BEGIN SET @s = 'INSERT INTO invoice VALUES (81, 1)'; PREPARE s FROM @s; EXECUTE s; END"],
        calls=["CALL p()"],
        hidden=True,
    ),
    "a trigger that sends the id": Animal(
        ["CREATE TABLE h (what varchar(99))"], after=[f"{_MYSQL_COPY} INSERT INTO h VALUES (NEW.`public_id`)"]
    ),
}

SQLITE: Mapping[str, Animal] = {
    "a history by a SELECT of the row": MYSQL["a history by a SELECT of the row"],
    "a history that names its columns": Animal(
        [
            _HISTORY,
            "CREATE TRIGGER t AFTER DELETE ON invoice BEGIN INSERT INTO h (id, total) VALUES (OLD.id, OLD.total); END",
        ]
    ),
    "updated_at": Animal(
        [
            "ALTER TABLE invoice ADD changed text",
            (
                "CREATE TRIGGER t AFTER UPDATE OF total ON invoice BEGIN "
                "UPDATE invoice SET changed = 1 WHERE id = NEW.id; END"
            ),
        ]
    ),
    "full text": Animal(
        [
            "CREATE VIRTUAL TABLE words USING fts5(total, content='invoice', content_rowid='id')",
            (
                "CREATE TRIGGER t AFTER INSERT ON invoice BEGIN"
                " INSERT INTO words (rowid, total) VALUES (NEW.id, NEW.total); END"
            ),
        ]
    ),
    "a table whose trigger writes into the invoices": Animal(
        [
            _HISTORY,
            "CREATE TRIGGER t AFTER INSERT ON h BEGIN INSERT INTO invoice VALUES (NEW.id, NEW.total); END",
        ],
        calls=["INSERT INTO h VALUES (79, 1)"],
    ),
    "INSTEAD OF on a view": Animal(
        [
            "CREATE VIEW v AS SELECT id, total FROM invoice",
            (
                "CREATE TRIGGER t INSTEAD OF INSERT ON v BEGIN "
                "INSERT INTO invoice (id, total) VALUES (NEW.id, NEW.total); END"
            ),
        ],
        calls=["INSERT INTO v VALUES (78, 1)"],
    ),
    "INSTEAD OF on a view, by position": Animal(
        [
            "CREATE VIEW v AS SELECT id, total FROM invoice",
            "CREATE TRIGGER t INSTEAD OF INSERT ON v BEGIN INSERT INTO invoice VALUES (NEW.id, NEW.total); END",
        ],
        calls=["INSERT INTO v VALUES (78, 1)"],
    ),
    **{
        f"a history {how} of {event} {when}": Animal(
            [_HISTORY, f"CREATE TRIGGER t {when} {event} ON invoice BEGIN INSERT INTO h {values}; END"]
        )
        for when in ("BEFORE", "AFTER")
        for event, row in (
            ("INSERT", "NEW"),
            ("UPDATE", "OLD"),
            ("UPDATE OF total", "NEW"),
            ("UPDATE OF id, total", "OLD"),
            ("DELETE", "OLD"),
        )
        for how, values in {
            "by position": f"SELECT * FROM invoice WHERE id = {row}.id",
            "by name": f"(id, total) SELECT id, total FROM invoice WHERE id = {row}.id",
        }.items()
    },
    **{
        f"INSTEAD OF {event} on a view, by position": Animal(
            [
                _HISTORY,
                "CREATE VIEW v AS SELECT id, total FROM invoice",
                f"CREATE TRIGGER t INSTEAD OF {event} ON v BEGIN INSERT INTO h SELECT * FROM invoice; END",
            ],
            calls=[call],
        )
        for event, call in {
            "UPDATE": "UPDATE v SET total = 1 WHERE id = 1",
            "DELETE": "DELETE FROM v WHERE id = 1",
        }.items()
    },
    "a view of the table and of an archive": MYSQL["a view of the table and of an archive"],
    "a view with a list of columns": Animal(
        ["CREATE VIEW v (a, b) AS SELECT * FROM invoice"], calls=["SELECT * FROM v"]
    ),
    "a view of all columns": Animal(["CREATE VIEW v AS SELECT * FROM invoice"], calls=["SELECT id, total FROM v"]),
    "a trigger that sends the id": Animal(
        ["CREATE TABLE h (what text)"],
        after=["CREATE TRIGGER t AFTER INSERT ON invoice BEGIN INSERT INTO h VALUES (NEW.public_id); END"],
    ),
}
SQLITE = {
    name: Animal(
        [sql.replace("FOR EACH ROW INSERT", "FOR EACH ROW BEGIN INSERT") + "; END" * ("FOR EACH ROW INSERT" in sql)
         for sql in it.ddl],
        it.calls, it.after, it.hidden,
    )
    for name, it in SQLITE.items()
}  # fmt: skip
