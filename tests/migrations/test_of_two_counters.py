"""Two counters, defaults or triggers exist at once: which one a migration or an audit takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Connection, MetaData, inspect
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import DeclarativeBase, Mapped
from support.marks import SERVERS
from support.of_two import MYSQL, NAMESAKE, OfTwo, answer, of_two, other_name
from support.people import People, send
from support.refusals import refused

from sqlalchemy_public_id import NanoId, audit
from sqlalchemy_public_id.formats import Uuid7
from sqlalchemy_public_id.keys import BlockAllocator, block_key
from sqlalchemy_public_id.keys.blocks.lease import COUNTERS
from sqlalchemy_public_id.keys.cluster.catalog import read_config, read_key_range, read_next, read_upcoming
from sqlalchemy_public_id.keys.cluster.ddl import CONFIG
from sqlalchemy_public_id.keys.ranges import range_of
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import database_of, live_table, rows_of
from sqlalchemy_public_id.migrations.postgresql.server_defaults import PostgreSQLDefaults
from sqlalchemy_public_id.migrations.table import columns_of
from sqlalchemy_public_id.naming import cluster_name

pytestmark = pytest.mark.backend

POSTGRESQL = ("postgresql",)
FUNCTION = "CREATE FUNCTION {other}.same() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; /* public_id */ END'"
OTHER_FUNCTION = "CREATE FUNCTION {other}.none() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'"


def trigger(name: str, when: str, function: str = "same", table: str = "person") -> str:
    """Return the statement for a trigger of PostgreSQL."""
    return f"CREATE TRIGGER {name} {when} ON {table} FOR EACH ROW EXECUTE FUNCTION {{other}}.{function}()"


def plain_trigger(name: str, when: str, table: str = "person") -> str:
    """Return the statement for a trigger of MySQL or MariaDB."""
    return f"CREATE TRIGGER {name} {when} ON {table} FOR EACH ROW SET NEW.name = NEW.name"


def sqlite_trigger(name: str, when: str) -> str:
    return f"CREATE TRIGGER {name} {when} ON person BEGIN SELECT 1; END"


# --- questions


def asked(question: Callable[[Connection], object]) -> Callable[[People], object]:
    """Ask a *question* of a connection."""

    def ask(people: People) -> object:
        with people.engine.connect() as connection:
            return question(connection)

    return ask


def counter_of_the_key(connection: Connection) -> object:
    """Ask which number the counter of the key generates next; ``None`` if it has no counter."""
    found = read_next(connection, "person", None, "id")
    return None if found is None else found.number


def limit_of_the_key(connection: Connection) -> object:
    """Ask for the largest key."""
    live = live_table(connection, PublicIdColumn.of("person"))
    return live.read_largest_key("id", columns_of(inspect(connection), "person", None)["id"]["type"])


def limited_sequences(people: People) -> object:
    """Ask which sequences a cluster limits."""
    with people.migrating() as op:
        op.set_cluster("person", "id", cluster=7, keep_outside=True)
    with people.engine.connect() as connection:
        query = f"SELECT sequencename FROM pg_sequences WHERE min_value = {range_of(7).start}"
        return send(connection, query).scalars().all()


def default_after_an_upgrade(people: People) -> object:
    """Ask whether the default is the library's own for PostgreSQL 18, which has a shorter one."""
    defaults = PostgreSQLDefaults(people.engine.dialect)
    defaults.version = (18, 1)
    default = str(people.state().default)
    assert defaults.expression(Uuid7()) not in default
    return defaults.is_generated(default, Uuid7())


def form_of_the_default(people: People) -> object:
    """Ask for which of two accepted formats the default generates ids."""
    with people.engine.connect() as connection:
        defaults = database_of(connection.dialect).plan.defaults_of(connection.dialect)
    return defaults.form_of(str(people.state().default), NanoId(16).accepting(NanoId()))


def obstacles_of_two_lengths(people: People) -> object:
    """Ask which obstacles there are to ids of 16 characters beside those of 12, which PostgreSQL would pad."""
    return [*refused(people, "contract_public_id", format=NanoId(16).accepting(NanoId()))]


def position(connection: Connection) -> object:
    """Ask for the columns by which a backfill finds rows."""
    live = live_table(connection, PublicIdColumn.of("person"))
    return [*rows_of(live, live.read_state()).read_position_columns(live)]


def triggers(people: People) -> object:
    """Ask for the triggers that a backfill fires."""
    with people.engine.connect() as connection:
        return live_table(connection, people.target).update_triggers()


def is_filled(people: People) -> object:
    return people.state().filled


def behind_its_counter(people: People) -> object:
    """Ask for the counter that an audit finds behind the keys, of two in one table of counters."""
    allocators = {name: BlockAllocator(people.engine, name, block=1, create=True) for name in ("a_event", "person")}
    allocators["a_event"].take(500)
    allocators["person"].take(2)

    class Base(DeclarativeBase):
        metadata = MetaData()

    class Person(Base):
        __tablename__ = "person"
        id: Mapped[int] = block_key(allocators["person"])

    findings = audit.run(people.engine, tables=["person"], models=Base.metadata).findings
    for allocator in allocators.values():
        allocator.close()
    return [(each.facts["counter"], each.facts["upcoming"]) for each in findings if "counter" in each.facts]


# --- cases

RANGE_TRIGGER = (
    f"CREATE TRIGGER {{other}}.{cluster_name('range', 'person')} BEFORE INSERT ON {{other}}.person "
    f"FOR EACH ROW SET NEW.id = NEW.id NOT BETWEEN 5 AND 9"
)
UUIDS = PostgreSQLDefaults(postgresql.dialect()).expression(Uuid7())
"""The default that this library writes for a server before PostgreSQL 18."""
TWO_SEQUENCES = (
    "CREATE SEQUENCE zz_seq START 700 OWNED BY person.id",
    "ALTER TABLE person ALTER id SET DEFAULT nextval('zz_seq')",
)

COUNTERS_AND_KEYS = {
    "a short sequence and a long key": OfTwo(
        ("ALTER SEQUENCE person_id_seq AS integer",), asked(limit_of_the_key), 2**31 - 1, POSTGRESQL
    ),
    "a long sequence and a short key": OfTwo(
        ("ALTER TABLE person ALTER id TYPE integer", "ALTER SEQUENCE person_id_seq AS bigint"),
        asked(limit_of_the_key),
        2**31 - 1,
        POSTGRESQL,
    ),
    "the sequence of the default and an old one": OfTwo(TWO_SEQUENCES, asked(counter_of_the_key), 700, POSTGRESQL),
    "the sequence of an IDENTITY and an old one": OfTwo(
        (
            "ALTER TABLE person ALTER id DROP DEFAULT",
            "ALTER TABLE person ALTER id ADD GENERATED BY DEFAULT AS IDENTITY (START 700)",
        ),
        asked(counter_of_the_key),
        700,
        POSTGRESQL,
    ),
    "the limit of two sequences": OfTwo(
        (*TWO_SEQUENCES, "ALTER SEQUENCE zz_seq AS integer"), asked(limit_of_the_key), 2**31 - 1, POSTGRESQL
    ),
    "two sequences and a cluster": OfTwo(TWO_SEQUENCES, limited_sequences, ["zz_seq"], POSTGRESQL),
    "the counter and the rows": OfTwo(
        (
            "INSERT INTO sqlite_sequence VALUES ('visit', 99)",
            "UPDATE sqlite_sequence SET seq = 41 WHERE name = 'person'",
        ),
        asked(lambda connection: str(read_upcoming(connection, "person", None, "id"))),
        "continues at 42",
        ("sqlite",),
    ),
    "two counters of one table": OfTwo(
        (), behind_its_counter, [("person", 3)], undo=(f"DROP TABLE IF EXISTS {COUNTERS}",)
    ),
    "the clusters of two schemas": OfTwo(
        (
            f"CREATE TABLE {CONFIG} (cluster smallint)",
            f"INSERT INTO {CONFIG} VALUES (1)",
            f"CREATE TABLE {{other}}.{CONFIG} (cluster smallint)",
            f"INSERT INTO {{other}}.{CONFIG} VALUES (2)",
        ),
        asked(
            lambda connection: [
                read_config(connection, inspect(connection), schema) for schema in (None, other_name(connection.engine))
            ]
        ),
        [range_of(1), range_of(2)],
        SERVERS,
        undo=(f"DROP TABLE {CONFIG}",),
    ),
    "two clusters": OfTwo(
        (f"CREATE TABLE {CONFIG} (cluster smallint)", f"INSERT INTO {CONFIG} VALUES (1), (2)"),
        asked(lambda connection: read_config(connection, inspect(connection), None)),
        None,
        undo=(f"DROP TABLE {CONFIG}",),
    ),
    "the triggers of two databases": OfTwo(
        (
            NAMESAKE,
            RANGE_TRIGGER,
        ),
        asked(
            lambda connection: [
                str(read_key_range(connection, "person", schema, "id"))
                for schema in (None, other_name(connection.engine))
            ]
        ),
        ["None", "Range(start=5, stop=10)"],
        MYSQL,
    ),
    "a key that may be NULL and one that may not": OfTwo(
        (
            "ALTER TABLE person MODIFY id bigint NOT NULL, DROP PRIMARY KEY",
            "ALTER TABLE person ADD UNIQUE a_name (name), ADD UNIQUE zz_id (id)",
        ),
        asked(position),
        ["id"],
        MYSQL,
    ),
    "the primary key and another one": OfTwo(
        ("ALTER TABLE person ADD UNIQUE A_tenant (tenant, id)",), asked(position), ["id"], MYSQL
    ),
}

DEFAULTS_AND_TYPES = {
    "from before an upgrade of the server": OfTwo(
        (
            "ALTER TABLE person DROP public_id",
            f"ALTER TABLE person ADD public_id uuid DEFAULT {UUIDS}",
        ),
        default_after_an_upgrade,
        True,
        POSTGRESQL,
    ),
    "of the new format and of an accepted one": OfTwo((), form_of_the_default, NanoId(), SERVERS),
    "and a type that one of two formats fills": OfTwo(
        ("ALTER TABLE person ALTER public_id TYPE char(16)",), obstacles_of_two_lengths, ["wrong-type"], POSTGRESQL
    ),
}

TRIGGERS = {
    "for another column and for the ids": OfTwo(
        (sqlite_trigger("a_name", "UPDATE OF name"), sqlite_trigger("b_ids", "UPDATE OF public_id")),
        triggers,
        ["b_ids"],
        ("sqlite",),
    ),
    "for another column and for the ids, with functions": OfTwo(
        (FUNCTION, trigger("a_name", "BEFORE UPDATE OF name"), trigger("b_ids", "BEFORE UPDATE OF public_id")),
        triggers,
        ["b_ids"],
        POSTGRESQL,
    ),
    "disabled and enabled": OfTwo(
        (
            FUNCTION,
            trigger("a_off", "BEFORE UPDATE"),
            trigger("b_on", "BEFORE UPDATE"),
            "ALTER TABLE person DISABLE TRIGGER a_off",
        ),
        triggers,
        ["b_on"],
        POSTGRESQL,
    ),
    "for INSERT and for UPDATE": OfTwo(
        (plain_trigger("a_new", "BEFORE INSERT"), plain_trigger("b_old", "BEFORE UPDATE")), triggers, ["b_old"], MYSQL
    ),
    "of a table in another database": OfTwo(
        (
            NAMESAKE,
            plain_trigger("{other}.a_other", "BEFORE UPDATE", "{other}.person"),
            plain_trigger("b_own", "BEFORE UPDATE"),
        ),
        triggers,
        ["b_own"],
        MYSQL,
    ),
    "of a table in another schema": OfTwo(
        (
            NAMESAKE,
            FUNCTION,
            trigger("a_other", "BEFORE UPDATE", table="{other}.person"),
            trigger("b_own", "BEFORE UPDATE"),
        ),
        triggers,
        ["b_own"],
        POSTGRESQL,
    ),
    "before and after an INSERT": OfTwo(
        (
            FUNCTION,
            OTHER_FUNCTION,
            trigger("a_after", "AFTER INSERT"),
            trigger("b_before", "BEFORE INSERT", "none"),
        ),
        is_filled,
        False,
        POSTGRESQL,
    ),
    "before an INSERT of another column": OfTwo(
        (
            FUNCTION,
            OTHER_FUNCTION,
            trigger("a_none", "BEFORE INSERT", "none"),
            trigger("b_ids", "BEFORE INSERT"),
        ),
        is_filled,
        True,
        POSTGRESQL,
    ),
}


@of_two(
    {f"key {name}": case for name, case in COUNTERS_AND_KEYS.items()}
    | {f"default {name}": case for name, case in DEFAULTS_AND_TYPES.items()}
    | {f"trigger {name}": case for name, case in TRIGGERS.items()}
)
def test_which_one_is_taken(new_people: Callable[..., People], case: OfTwo) -> None:
    """Of two things that exist at once, the library takes the right one."""
    assert answer(case, new_people) == case.taken
