"""Two indexes, names, columns or schemas exist at once: which one a migration or an audit takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from sqlalchemy import Column, Index, MetaData, String, Table, column, create_engine, inspect
from sqlalchemy.pool import NullPool
from support.marks import SERVERS
from support.of_two import MYSQL, OWN, PARTIAL, OfTwo, answer, of_two, other_name, unique
from support.people import People

from sqlalchemy_public_id import NanoId, PublicIdType
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import live_table, plan_for
from sqlalchemy_public_id.migrations.from_models import name_in_models, read_declared
from sqlalchemy_public_id.migrations.obstacles import find_obstacles
from sqlalchemy_public_id.migrations.plan import Migration
from sqlalchemy_public_id.migrations.postgresql.partitions import PartitionedIndex

pytestmark = pytest.mark.backend


def invalid(*names: str) -> str:
    """Return the statement that leaves indexes as an interrupted build leaves them."""
    oids = ", ".join(f"'{name}'::regclass" for name in names)
    return f"UPDATE pg_index SET indisvalid = false WHERE indexrelid IN ({oids})"


# --- questions


def index_of_the_ids(*others: str, schema: str | None = None) -> Callable[[People], object]:
    """Ask for the name of the index that makes the ids unique, alone or with the columns *others*."""

    def ask(people: People) -> object:
        target = PublicIdColumn.of("person", unique_with=others, schema=schema)
        with people.engine.connect() as connection:
            found = live_table(connection, target).read_state().unique
        return None if found is None else found.name

    return ask


def indexes_after_loosening(people: People) -> object:
    """Ask which indexes the table has after ``op.loosen_public_id()``."""
    people.run("loosen_public_id")
    return sorted(str(index["name"]) for index in inspect(people.engine).get_indexes("person"))


def obstacles(*phases: Any) -> Callable[[People], object]:
    """Ask which obstacles to *phases* the catalogs show."""

    def ask(people: People) -> object:
        with people.engine.connect() as connection:
            live = live_table(connection, people.target)
            migration = Migration(live, plan_for(people.target, connection.dialect), phases, live.read_state())
            return [obstacle.code for obstacle in find_obstacles(migration, catalogs_only=True)]

    return ask


def references(people: People) -> object:
    """Ask which columns refer to the ids."""
    with people.engine.connect() as connection:
        return [column for _, _, column in live_table(connection, people.target).read_references()]


def type_of_the_column(people: People) -> object:
    return people.state().type


def is_checked(people: People) -> object:
    return people.state().check


def on_the_path(people: People) -> object:
    """Ask which of the tables is loosened if the other schema is the first one of the search path."""
    other = other_name(people.engine)
    options = {"options": f"-csearch_path={other},public"}
    People(create_engine(people.engine.url, connect_args=options, poolclass=NullPool)).run("loosen_public_id")
    indexes = {each: inspect(people.engine).get_indexes("person", schema=each) for each in ("public", other)}
    return [len(found) for found in indexes.values()]


def statements_for_partitions(people: People) -> object:
    """Ask what is left to do for the partitions of the table."""
    target = PublicIdColumn.of("person", unique_with=("tenant",))
    with people.engine.connect() as connection:
        state = live_table(connection, target).read_state()
    steps = PartitionedIndex(target, people.engine.dialect).build()
    return [statement.partition(" (")[0] for step in steps for statement in step.statements(state)]


def declared_index(*names: str, **of_first: Any) -> Callable[[People], object]:
    """Ask for the index of a model that declares several, which SQLAlchemy keeps in a set."""

    def ask(people: People) -> object:
        ids, first = Column("public_id", PublicIdType(NanoId())), names[0]
        indexes = [Index(name, "public_id", unique=True, **(of_first if name == first else {})) for name in names]
        Table("person", MetaData(), ids, *indexes)
        declared = read_declared(ids, people.engine.dialect)
        return None if declared is None else declared.unique_name

    return ask


def index_of_models(*names: str) -> Callable[[People], object]:
    """Ask for the index of several models that declare one table."""

    def ask(people: People) -> object:
        models: Sequence[MetaData] = [MetaData() for _ in names]
        for metadata, name in zip(models, names, strict=True):
            Table("person", metadata, Column("public_id", String(12)), Index(name, "public_id", unique=True))
        return name_in_models(models, people.target, people.engine.dialect)

    return ask


# --- cases

INDEXES = {
    "named, and an earlier one": OfTwo((unique(OWN), unique("a_own")), indexes_after_loosening, ["a_own"]),
    "named, and a later one": OfTwo((unique(OWN), unique("zz_own")), indexes_after_loosening, ["zz_own"]),
    "named in capitals, and another one": OfTwo(
        (unique(OWN.upper()), unique("a_own")), indexes_after_loosening, ["a_own"], (*MYSQL, "sqlite")
    ),
    "unique and plain": OfTwo(
        (f"CREATE INDEX {OWN} ON person (public_id)", unique("zz_own")), index_of_the_ids(), "zz_own"
    ),
    "of all rows and of some": OfTwo(
        (unique(OWN, rest=" WHERE id > 1"), unique("zz_own")), index_of_the_ids(), "zz_own", PARTIAL
    ),
    "of whole ids and of prefixes": OfTwo(
        (unique(OWN, "public_id(4)"), unique("zz_own")), index_of_the_ids(), "zz_own", MYSQL
    ),
    "of ids and of an expression": OfTwo(
        (unique(OWN, "(lower(public_id))"), unique("zz_own")),
        index_of_the_ids(),
        "zz_own",
        ("sqlite", "postgresql", "mysql"),
    ),
    "of ids together with an expression": OfTwo(
        (unique(OWN, "public_id, (lower(name))"), unique("zz_own")),
        index_of_the_ids(),
        "zz_own",
        ("sqlite", "postgresql", "mysql"),
    ),
    "of ids after an expression": OfTwo(
        (unique(OWN, "(lower(name)), public_id"),), index_of_the_ids(), None, ("sqlite", "postgresql", "mysql")
    ),
    "of the id alone and of two columns": OfTwo(
        (unique(OWN, "public_id, tenant"), unique("zz_own")), index_of_the_ids(), "zz_own"
    ),
    "of the declared columns and of the id alone": OfTwo(
        (unique(OWN), unique("zz_wide", "public_id, tenant")), index_of_the_ids("tenant"), "zz_wide"
    ),
    "in two orders of the columns": OfTwo(
        (unique("zz_wide", "public_id, tenant"), unique("a_wide", "tenant, public_id")),
        index_of_the_ids("tenant"),
        "zz_wide",
    ),
    "by another collation, NOCASE": OfTwo(
        (unique(OWN, "public_id COLLATE nocase"), unique("zz_own")), index_of_the_ids(), "zz_own", ("sqlite",)
    ),
    "by another collation, POSIX": OfTwo(
        (unique(OWN, 'public_id COLLATE "POSIX"'), unique("zz_own")),
        index_of_the_ids(),
        "zz_own",
        ("postgresql",),
    ),
    "valid and INVALID": OfTwo(
        (unique(OWN), unique("zz_own"), invalid(OWN)), index_of_the_ids(), "zz_own", ("postgresql",)
    ),
    "two that are INVALID": OfTwo(
        (unique("a_own"), unique(OWN), invalid("a_own", OWN)), index_of_the_ids(), OWN, ("postgresql",)
    ),
    "INVALID and plain": OfTwo(
        (unique("a_own"), invalid("a_own"), "CREATE INDEX zz_plain ON person (public_id)"),
        index_of_the_ids(),
        None,
        ("postgresql",),
    ),
    "deferrable and not": OfTwo(
        (f"ALTER TABLE person ADD CONSTRAINT {OWN} UNIQUE (public_id) DEFERRABLE", unique("zz_own")),
        index_of_the_ids(),
        "zz_own",
        ("postgresql",),
    ),
    "the primary key and another one": OfTwo(
        (
            "UPDATE person SET public_id = CAST(id AS text)",
            "ALTER TABLE person DROP CONSTRAINT person_pkey, ADD CONSTRAINT a_key PRIMARY KEY (public_id)",
            unique("zz_own"),
        ),
        index_of_the_ids(),
        "zz_own",
        ("postgresql",),
    ),
    "of a partition, attached and not": OfTwo(
        (
            "DROP TABLE person",
            "CREATE TABLE person (id int, tenant int NOT NULL, public_id varchar(12)) PARTITION BY LIST (tenant)",
            "CREATE TABLE person_1 PARTITION OF person FOR VALUES IN (1)",
            "CREATE TABLE person_2 PARTITION OF person FOR VALUES IN (2)",
            f"CREATE UNIQUE INDEX {OWN} ON ONLY person (public_id, tenant)",
            unique("zz_attached", "public_id, tenant", table="person_1"),
            unique("uq_person_1_public_id", "public_id, tenant", table="person_1"),
            f"ALTER INDEX {OWN} ATTACH PARTITION zz_attached",
        ),
        statements_for_partitions,
        [
            "CREATE UNIQUE INDEX CONCURRENTLY uq_person_2_public_id ON public.person_2",
            f"ALTER INDEX public.{OWN} ATTACH PARTITION public.uq_person_2_public_id",
        ],
        ("postgresql",),
    ),
    "of a model, usual and not": OfTwo(
        (),
        declared_index(OWN, *(f"a_{at}" for at in range(9))),
        OWN,
        ("sqlite",),
    ),
    "of a model, of all rows and of some": OfTwo(
        (),
        declared_index("a_some", "zz_own", sqlite_where=column("public_id") != ""),
        "zz_own",
        ("sqlite",),
    ),
    "of two models": OfTwo((), index_of_models("zz_first", "a_second"), "zz_first", ("sqlite",)),
}

NAMES = {
    "an index of another table": OfTwo(
        (f"CREATE INDEX {OWN} ON visit (person)",), obstacles("contract"), ["name-taken"], PARTIAL
    ),
    "an index of another schema": OfTwo(
        ("CREATE TABLE {other}.visit (person int)", f"CREATE INDEX {OWN} ON {{other}}.visit (person)"),
        obstacles("contract"),
        [],
        ("postgresql",),
    ),
    "an index in capitals": OfTwo(
        (f"CREATE INDEX {OWN.upper()} ON person (name)",), obstacles("contract"), ["wrong-index"], (*MYSQL, "sqlite")
    ),
    "an index in quoted capitals": OfTwo(
        (f'CREATE INDEX "{OWN.upper()}" ON person (name)',), obstacles("contract"), [], ("postgresql",)
    ),
    "a column in capitals": OfTwo(
        ('ALTER TABLE person RENAME public_id TO "Public_Id"', "ALTER TABLE person ADD public_id varchar(30)"),
        type_of_the_column,
        "character varying(30)",
        ("postgresql",),
    ),
    "a column in capitals, of another type": OfTwo(
        ('ALTER TABLE person RENAME name TO "PUBLIC_ID"', 'ALTER TABLE person ALTER "PUBLIC_ID" TYPE char(3)'),
        obstacles("contract"),
        [],
        ("postgresql",),
    ),
    "a table of another schema": OfTwo(
        (
            "CREATE TABLE {other}.person (public_id varchar(12))",
            f"CREATE UNIQUE INDEX {OWN} ON {{other}}.person (public_id)",
        ),
        index_of_the_ids(),
        None,
        SERVERS,
    ),
    "a table of the first schema on the path": OfTwo(
        (
            "CREATE TABLE {other}.person (id int PRIMARY KEY, public_id varchar(12))",
            unique(OWN, table="{other}.person"),
            unique(OWN),
        ),
        on_the_path,
        [1, 0],
        ("postgresql",),
    ),
    "a CHECK of a table of another schema": OfTwo(
        (
            "CREATE TABLE {other}.person (public_id varchar(12))",
            "ALTER TABLE {other}.person ADD CONSTRAINT ck_person_public_id_not_null CHECK (public_id IS NOT NULL)",
        ),
        is_checked,
        False,
        ("postgresql",),
    ),
    "two foreign keys of a table": OfTwo(
        (
            unique(OWN),
            "ALTER TABLE visit ADD of_id varchar(12) REFERENCES person (public_id)",
            "ALTER TABLE visit ADD FOREIGN KEY (person) REFERENCES person (id)",
        ),
        references,
        ["of_id"],
        ("postgresql",),
    ),
    "two columns of a foreign key": OfTwo(
        (
            unique("a_wide", "tenant, public_id"),
            "ALTER TABLE visit ADD of_id varchar(12)",
            "ALTER TABLE visit ADD FOREIGN KEY (person, of_id) REFERENCES person (tenant, public_id)",
        ),
        references,
        ["of_id"],
        ("postgresql",),
    ),
    "a foreign key to another index": OfTwo(
        (unique("a_own"), "ALTER TABLE visit ADD of_id varchar(12) REFERENCES person (public_id)", unique(OWN)),
        indexes_after_loosening,
        ["a_own"],
        PARTIAL,
    ),
    "a foreign key that two indexes serve": OfTwo(
        (
            unique(OWN),
            unique("a_own"),
            "ALTER TABLE visit ADD of_id varchar(12) CHARACTER SET ascii COLLATE ascii_bin",
            "ALTER TABLE visit ADD FOREIGN KEY (of_id) REFERENCES person (public_id)",
        ),
        indexes_after_loosening,
        ["a_own"],
        MYSQL,
    ),
    "a foreign key, and an index that only begins with the ids": OfTwo(
        (
            unique(OWN),
            unique("a_wide", "public_id, tenant"),
            "ALTER TABLE visit ADD of_id varchar(12) CHARACTER SET ascii COLLATE ascii_bin",
            "ALTER TABLE visit ADD FOREIGN KEY (of_id) REFERENCES person (public_id)",
        ),
        obstacles("loosen"),
        ["dependants"],
        MYSQL,
    ),
    "a foreign key to the index that is dropped": OfTwo(
        (unique(OWN), "ALTER TABLE visit ADD of_id varchar(12) REFERENCES person (public_id)", unique("a_own")),
        obstacles("loosen"),
        ["dependants"],
        ("postgresql",),
    ),
    "a foreign key, and the column": OfTwo(
        (unique("a_own"), "ALTER TABLE visit ADD of_id varchar(12) REFERENCES person (public_id)", unique(OWN)),
        obstacles("drop"),
        ["dependants"],
        ("postgresql",),
    ),
}


@of_two(
    {f"index {name}": case for name, case in INDEXES.items()} | {f"beside {name}": case for name, case in NAMES.items()}
)
def test_which_one_is_taken(new_people: Callable[..., People], case: OfTwo) -> None:
    """Of two things that exist at once, the library takes the right one."""
    assert answer(case, new_people) == case.taken
