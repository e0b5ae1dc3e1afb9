"""Random tables, with every feature that a database has for tables."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from sqlalchemy.engine import Dialect

NAMES = ["person", "Order", 'it\'s 100% "odd"', "co::lon :x $1", "ä b", "n" * 40, "back`tick", "a.b"]

KEYS = {
    "sqlite": [
        "id INTEGER PRIMARY KEY",
        "id INTEGER PRIMARY KEY AUTOINCREMENT",
        "id INT DEFAULT 1, part INT DEFAULT 2, PRIMARY KEY (part, id)",
        "id TEXT DEFAULT 'k' PRIMARY KEY",
        "id INT NOT NULL DEFAULT 1 UNIQUE",
    ],
    "postgresql": [
        "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        "id serial PRIMARY KEY",
        "id uuid DEFAULT gen_random_uuid() PRIMARY KEY",
        "id int DEFAULT 1, part text DEFAULT 'p', PRIMARY KEY (part, id) INCLUDE (id)",
        "id int NOT NULL DEFAULT 1 UNIQUE DEFERRABLE",
    ],
    "mysql": [
        "id bigint unsigned AUTO_INCREMENT PRIMARY KEY",
        "id varchar(9) DEFAULT 'k' PRIMARY KEY",
        "id int DEFAULT 1, part date DEFAULT '2001-01-01', PRIMARY KEY (part, id)",
        "id int NOT NULL DEFAULT 1 UNIQUE",
    ],
}

COLUMNS = {
    "sqlite": [
        "{c} TEXT DEFAULT 'a, (b' CHECK ({c} <> 'x''y')",
        "{c} NUMERIC(10, 2) NOT NULL DEFAULT -1.5 /* of , money */",
        "{c} TEXT COLLATE NOCASE UNIQUE -- a comment, (\n",
        "{c} INT GENERATED ALWAYS AS (length(id) + 1) STORED",
        "{c} AS (id || 'x')",
        "{c} BLOB DEFAULT x'00ff'",
        "{c} INT REFERENCES {t} (id) ON DELETE SET DEFAULT DEFERRABLE INITIALLY DEFERRED",
        "{c} INT CONSTRAINT {c} NOT NULL ON CONFLICT IGNORE DEFAULT (1 + (2))",
    ],
    "postgresql": [
        "{c} text DEFAULT 'a, (b' CHECK ({c} <> 'x''y')",
        "{c} numeric(10, 2) NOT NULL DEFAULT -1.5",
        '{c} text COLLATE "C" UNIQUE',
        "{c} text GENERATED ALWAYS AS (upper('x')) STORED",
        "{c} int[] DEFAULT '{{1,2}}'",
        "{c} timestamptz DEFAULT now()",
        "{c} jsonb, EXCLUDE USING btree ({c} WITH =)",
        "{c} int CHECK ({c} > 0) NO INHERIT",
    ],
    "mysql": [
        "{c} varchar(9) DEFAULT 'a, (b' CHECK ({c} <> 'x''y')",
        "{c} decimal(10, 2) NOT NULL DEFAULT -1.5 COMMENT 'of, (money) it''s'",
        "{c} varchar(20) COLLATE utf8mb4_bin UNIQUE",
        "{c} int AS (length('x') + 1) STORED",
        "{c} varchar(20) AS (concat('x', 'y')) VIRTUAL",
        "{c} varchar(20) AS (concat('x', 'y')) VIRTUAL, INDEX ({c})",
        "{c} timestamp DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP",
        "{c} datetime DEFAULT '0000-00-00 00:00:00'",
        "{c} enum('a', 'b,c') DEFAULT 'b,c'",
        "{c} text, FULLTEXT ({c})",
        "{c} int INVISIBLE DEFAULT 3",
    ],
}

IDS = {
    "sqlite": [
        "public_id VARCHAR(12)",
        "public_id TEXT COLLATE NOCASE UNIQUE",
        "public_id VARCHAR(36) NOT NULL DEFAULT 'x'",
        "public_id TEXT DEFAULT NULL CHECK (public_id <> 'aaaaaaaaaaaa')",
        "public_id INT",
    ],
    "postgresql": [
        "public_id varchar(12)",
        "public_id text COLLATE \"C\" CHECK (public_id <> 'x')",
        "public_id varchar(8)",
        "public_id uuid",
        "public_id text UNIQUE",
        "public_id text, upper_id text GENERATED ALWAYS AS (upper(public_id)) STORED",
    ],
    "mysql": [
        "public_id varchar(12)",
        "public_id varchar(36) CHARACTER SET ascii COLLATE ascii_bin COMMENT 'shown' CHECK (public_id <> 'x')",
        "public_id varchar(12) CHARACTER SET ascii COLLATE ascii_bin INVISIBLE",
        "public_id char(12) CHARACTER SET latin1 UNIQUE",
        "public_id text",
        "public_id varchar(20) COLLATE utf8mb4_bin, upper_id varchar(20) AS (upper(public_id)) VIRTUAL",
    ],
}

OPTIONS = {
    "sqlite": ["WITHOUT ROWID"],
    "postgresql": ["WITH (fillfactor = 70)", "PARTITION BY HASH (id)", "USING heap"],
    "mysql": [
        "ROW_FORMAT = COMPRESSED",
        "CHARACTER SET latin1 COMMENT 'of, (people)'",
        "ENGINE = MyISAM",
        "ENGINE = MEMORY",
        "PARTITION BY HASH (id) PARTITIONS 2",
        "WITH SYSTEM VERSIONING",
    ],
}

BESIDE = {
    "sqlite": [
        "CREATE INDEX {s}{n} ON {bare} (id DESC) WHERE id IS NOT NULL",
        "CREATE UNIQUE INDEX {s}{n} ON {bare} (id, lower(id))",
        "CREATE VIEW {s}{n} AS SELECT id FROM {bare}",
        "CREATE TRIGGER {s}{n} AFTER INSERT ON {bare} BEGIN SELECT ';', 1; END",
        "CREATE TRIGGER {s}{n} AFTER UPDATE ON {bare} BEGIN SELECT 1; END",
        "CREATE TABLE {s}{n} (of INT REFERENCES {bare} (id) ON DELETE CASCADE)",
    ],
    "postgresql": [
        "CREATE INDEX {n} ON {t} (id DESC) WHERE id IS NOT NULL",
        "CREATE INDEX {n} ON {t} ((id::text || 'x')) WITH (fillfactor = 70)",
        "CREATE VIEW {s}{n} AS SELECT * FROM {t}",
        "CREATE MATERIALIZED VIEW {s}{n} AS SELECT id FROM {t}",
        "CREATE TRIGGER {n} BEFORE UPDATE ON {t} FOR EACH ROW {call}",
        "CREATE TRIGGER {n} BEFORE UPDATE OF id ON {t} FOR EACH ROW {call}",
        "CREATE RULE {n} AS ON DELETE TO {t} DO INSTEAD NOTHING",
        "CREATE TABLE {s}{n} () INHERITS ({t})",
        "CREATE STATISTICS {s}{n} ON id, (id::text) FROM {t}",
        "CREATE POLICY {n} ON {t} USING (id IS NOT NULL)",
        "ALTER TABLE {t} ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE {t} REPLICA IDENTITY FULL",
        "COMMENT ON TABLE {t} IS 'it''s, (a table)'",
        "COMMENT ON COLUMN {t}.id IS 'it''s, (a key)'",
        "ALTER TABLE {t} ALTER COLUMN id SET STATISTICS 7",
        "GRANT SELECT (id) ON {t} TO PUBLIC",
        "CREATE TYPE {s}{n} AS (a {t})",
        "CREATE FUNCTION {s}{n}() RETURNS SETOF {t} LANGUAGE sql AS 'SELECT * FROM {escaped}'",
    ],
    "mysql": [
        "CREATE INDEX {n} ON {t} (id DESC)",
        "CREATE VIEW {s}{n} AS SELECT id FROM {t}",
        "CREATE TRIGGER {s}{n} BEFORE INSERT ON {t} FOR EACH ROW SET @x = 'a;b'",
        "CREATE TRIGGER {s}{n} BEFORE UPDATE ON {t} FOR EACH ROW SET @x = 1",
        "CREATE TABLE {s}{n} (of_id bigint unsigned, FOREIGN KEY (of_id) REFERENCES {t} (id) ON DELETE CASCADE)",
    ],
}
OF_IDS = {
    "sqlite": ["CREATE VIEW {s}{n} AS SELECT public_id FROM {bare}"],
    "postgresql": [
        "CREATE VIEW {s}{n} AS SELECT public_id FROM {t}",
        "CREATE POLICY {n} ON {t} USING (public_id IS NOT NULL)",
        "CREATE INDEX {n} ON {t} (public_id, id)",
        "CREATE INDEX uq_{plain}_public_id ON {t} (public_id)",
    ],
    "mysql": [
        "CREATE VIEW {s}{n} AS SELECT public_id FROM {t}",
        "CREATE INDEX {n} ON {t} (public_id(4), id)",
        "CREATE INDEX uq_{plain}_public_id ON {t} (public_id)",
    ],
}


@dataclass(frozen=True)
class RandomTable:
    """A table, the statements that create it, and options of ``op.add_public_id()``."""

    schema: str
    name: str
    statements: list[str] = field(default_factory=list)
    """The database may refuse some of them, because of its version or because of the others."""
    options: dict[str, object] = field(default_factory=dict)
    has_ids: bool = False
    """True if the table has the column before the migration."""


def random_table(seed: int, dialect: Dialect, schema: str) -> RandomTable:
    """Return the table of this *seed*, in an existing *schema*."""
    draw = random.Random(f"{dialect.name} {seed}")
    kind = "mysql" if dialect.name == "mariadb" else dialect.name
    preparer = type(dialect)(paramstyle="named").identifier_preparer  # does not double percent signs
    quote = preparer.quote_identifier
    name = draw.choice(NAMES)
    s = f"{quote(schema)}."
    words = {"t": s + quote(name), "bare": quote(name), "s": s, "plain": "person"}
    words["call"] = "EXECUTE FUNCTION suppress_redundant_updates_trigger()"
    words["escaped"] = words["t"].replace("'", "''")
    if kind == "sqlite":
        words["t"] = words["bare"]  # a foreign key has no schema

    def fill(template: str, at: int) -> str:
        return template.format(**words, c=quote(f"{draw.choice(NAMES)[:20]}{at}"), n=quote(f"{draw.choice(NAMES)}{at}"))

    parts = [draw.choice(KEYS[kind])]
    parts += [fill(column, at) for at, column in enumerate(draw.sample(COLUMNS[kind], draw.randrange(5)))]
    has_ids = draw.random() < 0.4
    if has_ids:
        ids = draw.choice(IDS[kind])
        if any("FULLTEXT" in part for part in parts):
            ids = ids.partition(",")[0]  # MySQL cannot make a temporary copy, and the plan sees no generated columns
        parts.insert(draw.randrange(1, len(parts) + 1), ids)
    parts.sort(key=lambda part: "PRIMARY KEY (" in part)  # SQLite accepts constraints only at the end
    options = draw.choice(OPTIONS[kind]) if draw.random() < 0.3 else ""
    table = RandomTable(schema, name, has_ids=has_ids)
    create = f"CREATE TABLE {s}{quote(name)} ({', '.join(parts)}) {options}"
    table.statements.append(create)
    beside = BESIDE[kind] + (OF_IDS[kind] if has_ids else [])
    for at, statement in enumerate(draw.sample(beside, draw.randrange(5)), 10):
        table.statements.append(fill(statement, at))
    insert = f"INSERT INTO {s}{quote(name)} " + ("() VALUES ()" if kind == "mysql" else "DEFAULT VALUES")
    table.statements.extend([insert] * draw.randrange(3))
    table.options["server_default"] = draw.choice(["keep", "keep", "drop", "none"])
    table.options["update_triggers"] = draw.choice(["refuse", "fire"])
    table.options["collation"] = draw.choice([None, "bytes"]) if kind != "sqlite" else None
    table.options["allow_lock"] = draw.random() < 0.7
    return table
