"""Columns of ids that existed before the library: what autogenerate renders for them, and what a migration changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import BigInteger, Column, Engine, Integer, MetaData, String, Table
from support.marks import on
from support.people import People, send
from support.scripts import autogenerate, run, written

from sqlalchemy_public_id import NanoId, PublicIdType, public_id_column

pytestmark = pytest.mark.backend

FORMAT = NanoId(length=8)
CONVENTION = {"uq": "uq_%(table_name)s_%(column_0_name)s"}


CONSTRAINT = "ALTER TABLE person ADD CONSTRAINT of_another_name UNIQUE (public_id)"
CONSTRAINT_WITH_OUR_NAME = "ALTER TABLE person ADD CONSTRAINT uq_person_public_id UNIQUE (public_id)"
INDEX_WITH_OUR_NAME = "CREATE UNIQUE INDEX uq_person_public_id ON person (public_id)"


def create(table: People, unique: str | None, type_: str = "varchar(8)", nulls: str = "NOT NULL") -> None:
    """Create the table with ids that the statement *unique* makes unique; insert one, and NULL where it is allowed."""
    more = ""
    if table.engine.name == "sqlite" and unique is not None and "CONSTRAINT" in unique:
        more, unique = f", {unique.removeprefix('ALTER TABLE person ADD ')}", None
    table.create(0, more=f", public_id {type_} {nulls}{more}")
    if unique is not None:
        table.execute(unique)
    table.execute("INSERT INTO person (name, public_id) VALUES ('Ada', 'abcdefgh')")
    if nulls == "NULL":
        table.execute("INSERT INTO person (name) VALUES ('Eve')")


def models(column: Column[Any], **options: Any) -> MetaData:
    """Return the table as a program declares it."""
    metadata = MetaData(**options)
    key = Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True)
    Table("person", metadata, key, Column("name", String(50)), column)
    return metadata


def public_id() -> Column[Any]:
    """Return the column as the library declares it."""
    column = public_id_column(FORMAT).column
    column.name = column.key = "public_id"
    return column


def declared_with_unique() -> Column[Any]:
    """Return the column as ``PublicIdType`` declares it, with ``unique=True``."""
    return Column("public_id", PublicIdType(FORMAT), default=FORMAT.generate, nullable=False, unique=True)


UNIQUE = {
    "constraint": CONSTRAINT,
    "constraint with our name": CONSTRAINT_WITH_OUR_NAME,
    "index": "CREATE UNIQUE INDEX of_another_name ON person (public_id)",
    "index with our name": INDEX_WITH_OUR_NAME,
}


def exact(engine: Engine) -> str:
    """Return the type of a column that finds each id by its exact spelling, but lacks the library's collation."""
    return "varchar(8) COLLATE utf8mb4_bin" if engine.name in {"mysql", "mariadb"} else "varchar(8)"


@pytest.mark.parametrize("convention", [None, CONVENTION], ids=["", "convention"])
@pytest.mark.parametrize("column", [public_id, declared_with_unique])
@pytest.mark.parametrize("unique", UNIQUE)
@on("postgresql", "mysql", "mariadb")
def test_unique_column_is_adopted_as_it_is(
    table: People, unique: str, column: Callable[[], Column[Any]], convention: Any
) -> None:
    """Whatever makes the ids unique stays: autogenerate finds no difference."""
    create(table, UNIQUE[unique], exact(table.engine))
    before = table.state()

    script = autogenerate(table.engine, models(column(), naming_convention=convention))

    assert "op." not in written(script)
    assert table.state() == before


@pytest.mark.parametrize("nulls", ["NULL", "NOT NULL"])
@pytest.mark.parametrize("unique", [None, *UNIQUE])
@pytest.mark.parametrize(
    ("database", "collation"),
    [
        ("postgresql", ""),
        ("postgresql", 'COLLATE "C"'),
        ("mysql", "COLLATE utf8mb4_0900_ai_ci"),
        ("mysql", "COLLATE utf8mb4_bin"),
        ("mariadb", "COLLATE utf8mb4_general_ci"),
        ("mariadb", "COLLATE ascii_bin"),
        ("sqlite", ""),
    ],
    indirect=["database"],
)
def test_downgrade_of_an_adoption(table: People, unique: str | None, nulls: str, collation: str) -> None:
    """Upgrading and downgrading, each twice, leaves the column unchanged: NULL, uniqueness, collation and default."""
    create(table, unique and UNIQUE[unique], f"varchar(8) {collation}", nulls)
    before = table.state()
    metadata = models(declared_with_unique())
    script = autogenerate(table.engine, metadata)

    run(table.engine, script.upgrade_ops)
    run(table.engine, script.upgrade_ops)
    assert table.state().complete
    assert "op." not in written(autogenerate(table.engine, metadata))
    run(table.engine, script.downgrade_ops)
    run(table.engine, script.downgrade_ops)

    assert table.state() == before


@on("sqlite", "postgresql")
def test_name_of_an_index_that_stays(table: People) -> None:
    """A unique index of another name stays, and no operation gets the name that the models would give it."""
    create(table, UNIQUE["index"], nulls="NULL")
    metadata = models(declared_with_unique(), naming_convention={"uq": "only_one_%(table_name)s"})
    script = autogenerate(table.engine, metadata)

    assert "op.add_public_id('person', format=NanoId(length=8))" in written(script)
    assert "only_one" not in written(script) + written(script, downgrade=True)
    run(table.engine, script.upgrade_ops)
    unique = table.state().unique
    assert unique is not None
    assert unique.name == "of_another_name"


@pytest.mark.parametrize("unique", ["constraint", "index"])
def test_index_that_is_not_unique(table: People, unique: str) -> None:
    """A plain index on the ids, which the model lacks, is dropped; the unique one of another name stays."""
    create(table, UNIQUE[unique], exact(table.engine))
    table.execute("CREATE INDEX ix_more ON person (public_id)")

    text = written(autogenerate(table.engine, models(declared_with_unique())))

    assert re.findall(r"op\.(\w+)\((?:op\.f\()?'(\w+)'", text) == [("drop_index", "ix_more")]


@pytest.mark.parametrize("kind", ["CONSTRAINT one_more UNIQUE (public_id, id)", "INDEX one_more (public_id, id)"])
def test_note_of_what_is_dropped(table: People, kind: str) -> None:
    """A note says what else kept duplicates out and is dropped before: an index or a constraint on more columns."""
    is_constraint, is_sqlite = kind.startswith("CONSTRAINT"), table.engine.name == "sqlite"
    table.create(0, f", public_id varchar(8) NOT NULL{f', {kind}' if is_constraint and is_sqlite else ''}")
    if not is_constraint:
        table.execute("CREATE UNIQUE INDEX one_more ON person (public_id, id)")
    elif not is_sqlite:
        table.execute(f"ALTER TABLE person ADD {kind}")

    text = written(autogenerate(table.engine, models(declared_with_unique()))).replace("\n    # ", " ")

    assert " The ids become unique by public_id, and Alembic drops one_more before: until the new one is" in text


@pytest.mark.parametrize("unique", ["constraint", "index"])
def test_drop(table: People, unique: str) -> None:
    """``op.drop_public_id()`` drops a column whose unique index or constraint has another name."""
    create(table, UNIQUE[unique])

    table.run("drop_public_id")

    assert table.columns() == ["id", "name"]


DEFECTS = {
    "DEFERRABLE": [f"{CONSTRAINT} DEFERRABLE"],
    "INVALID": [
        "CREATE UNIQUE INDEX of_another_name ON person (public_id)",
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'of_another_name'::regclass",
    ],
}


@on("postgresql")
@pytest.mark.parametrize("defect", DEFECTS)
def test_worse_is_replaced(table: People, defect: str) -> None:
    """A DEFERRABLE constraint or an INVALID index is not taken for the unique index, which is built."""
    create(table, DEFECTS[defect][0])
    for statement in DEFECTS[defect][1:]:
        table.execute(statement)
    metadata = models(public_id())

    run(table.engine, autogenerate(table.engine, metadata).upgrade_ops)

    state = table.state()
    assert (state.complete, state.unique and state.unique.name) == (True, "uq_person_public_id")
    assert "op." not in written(autogenerate(table.engine, metadata))


@on("postgresql")
def test_invalid_index_of_others(table: People) -> None:
    """An operation builds its own index beside an INVALID one of another name, which it leaves alone."""
    create(table, None)
    for statement in DEFECTS["INVALID"]:
        table.execute(statement)

    table.run("contract_public_id", format=FORMAT)

    assert {index.name for index in table.state().indexes} >= {"of_another_name", "uq_person_public_id"}


@on("postgresql")
@pytest.mark.parametrize("reference", ["", "REFERENCES person (public_id)"], ids=["text", "foreign key"])
def test_join_of_texts(table: People, reference: str) -> None:
    """A join on a text column of ids uses the index of this column, as it did before the ids were adopted."""
    create(table, CONSTRAINT_WITH_OUR_NAME)
    table.execute(f"CREATE TABLE note (person_public_id varchar(8) {reference})")
    table.execute("CREATE INDEX ix_note ON note (person_public_id)")

    def uses_index() -> bool:
        with table.engine.connect() as connection:
            send(connection, "SET LOCAL enable_seqscan = off")
            join = "note JOIN person ON person.public_id = note.person_public_id"
            plan = send(connection, f"EXPLAIN SELECT FROM {join} WHERE person.id = 1").scalars().all()
        return any("Index Cond" in line and "person_public_id" in line for line in plan)

    try:
        before = uses_index()
        table.run("contract_public_id", format=FORMAT)

        assert (before, uses_index()) == (True, True)
    finally:
        table.execute("DROP TABLE note")
