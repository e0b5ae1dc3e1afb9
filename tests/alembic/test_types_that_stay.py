"""Columns that hold the ids already keep their types: ids, primary keys, foreign keys to both, and ids of any model."""

from __future__ import annotations

import itertools
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Column, Engine, Executable, ForeignKey, Index, Integer, MetaData, Table, inspect, text
from support.attached_databases import OTHER, attach
from support.marks import before_sqlalchemy, on
from support.projects import Project, upgrade_of

from sqlalchemy_public_id import NanoId, PublicIdType, Uuid4, public_id_column
from sqlalchemy_public_id.errors import MigrationRefused
from sqlalchemy_public_id.formats import URLSAFE64, Format
from sqlalchemy_public_id.references import AnyPublicIdType

pytestmark = pytest.mark.backend

NANOID = NanoId(length=21, alphabet=URLSAFE64)
LONGER = NanoId(length=21, alphabet=URLSAFE64, prefix="prj", separator=".").accepting(NANOID)
OF_TEXT, OF_NUMBERS = Uuid4(encoding="hyphenated", storage="text"), Uuid4(encoding="hyphenated")

TYPES: dict[str, dict[str, tuple[str, Format]]] = {
    "sqlite": {
        "text": ("text", NANOID),
        "varchar": ("varchar(21)", NANOID),
        "wider": ("varchar(36)", NANOID),
        "char": ("char(21)", NANOID),
        "wider char": ("char(30)", NANOID),
        "uuid": ("char(36)", OF_TEXT),
        "bytes": ("blob", OF_NUMBERS),
    },
    "postgresql": {
        "text": ("text", NANOID),
        "text of bytes": ('text COLLATE "C"', NANOID),
        "varchar": ("varchar(21)", NANOID),
        "wider": ("varchar(36)", NANOID),
        "without length": ("varchar", NANOID),
        "char": ("char(21)", NANOID),
        "uuid": ("uuid", OF_NUMBERS),
        "uuid as text": ("text", OF_TEXT),
    },
    "mysql": {
        "varchar": ("varchar(21) COLLATE utf8mb4_bin", NANOID),
        "wider": ("varchar(36) CHARACTER SET ascii COLLATE ascii_bin", NANOID),
        "char": ("char(21) COLLATE utf8mb4_bin", NANOID),
        "wider char": ("char(30) COLLATE utf8mb4_bin", NANOID),
        "bytes": ("binary(16)", OF_NUMBERS),
        "bytes without padding": ("varbinary(16)", OF_NUMBERS),
    },
}
TYPES["mariadb"] = {**TYPES["mysql"], **({} if before_sqlalchemy(2, 1) else {"uuid": ("uuid", OF_TEXT)})}
"""Database → name of the case → type of a column that holds the ids of a format."""
CASES = [(database, name) for database, types in TYPES.items() for name in types]

LONGEST = 10.0
"""Seconds that a transaction of a writer may take: a change of the type of a large table takes longer."""
OWNER = "SELECT owner.id FROM {table} JOIN owner ON owner.public_id = {table}.owner_public_id WHERE {table}.id = 3"
PARCEL = "SELECT parcel.id FROM {table} JOIN parcel ON parcel.id = {table}.parcel_id WHERE {table}.id = 3"


@dataclass
class Store:
    """Tables with columns of one type in each role."""

    engine: Engine
    type: str
    format: Format

    def create(self, check: str = "", rows: int = 400) -> None:
        """Create the tables, with rows that refer to each other."""
        self.execute(
            f"CREATE TABLE owner (id integer NOT NULL PRIMARY KEY, public_id {self.type} NOT NULL UNIQUE{check})",
            f"CREATE TABLE note (id integer NOT NULL PRIMARY KEY, owner_public_id {self.type} NOT NULL,"
            f" FOREIGN KEY (owner_public_id) REFERENCES owner (public_id))",
            "CREATE INDEX ix_note_owner_public_id ON note (owner_public_id)",
            f"CREATE TABLE parcel (id {self.type} NOT NULL PRIMARY KEY)",
            f"CREATE TABLE stop (id integer NOT NULL PRIMARY KEY, parcel_id {self.type} NOT NULL,"
            f" FOREIGN KEY (parcel_id) REFERENCES parcel (id))",
            "CREATE INDEX ix_stop_parcel_id ON stop (parcel_id)",
        )
        ids = PublicIdType(self.format)
        owner = Table("owner", MetaData(), Column("id", Integer), Column("public_id", ids))
        note = Table("note", MetaData(), Column("id", Integer), Column("owner_public_id", ids))
        parcel = Table("parcel", MetaData(), Column("id", ids))
        stop = Table("stop", MetaData(), Column("id", Integer), Column("parcel_id", ids))
        made = [self.format.generate() for _ in range(rows)]
        if not rows:
            return
        with self.engine.begin() as connection:
            connection.execute(owner.insert(), [{"id": n, "public_id": id} for n, id in enumerate(made, 1)])
            connection.execute(note.insert(), [{"id": n, "owner_public_id": id} for n, id in enumerate(made, 1)])
            connection.execute(parcel.insert(), [{"id": id} for id in made])
            connection.execute(stop.insert(), [{"id": n, "parcel_id": id} for n, id in enumerate(made, 1)])

    def models(self, format: Format | None = None, *, later: bool = False) -> MetaData:
        """Return the tables as a program declares them; *later*, two more tables refer to them."""
        metadata, format = MetaData(), format or self.format
        ids = public_id_column(format).column
        ids.name = ids.key = "public_id"
        key: Any = PublicIdType(format)
        Table("owner", metadata, Column("id", Integer, primary_key=True), ids)
        Table("parcel", metadata, Column("id", key, primary_key=True, default=format.generate))
        refers = [("note", "owner_public_id", "owner.public_id"), ("stop", "parcel_id", "parcel.id")]
        if later:
            refers += [("memo", "owner_public_id", "owner.public_id"), ("detour", "parcel_id", "parcel.id")]
        for name, column, target in refers:
            type_ = [PublicIdType(format)] if target == "parcel.id" else []  # otherwise, that of the target
            reference: Any = Column(column, *type_, ForeignKey(target), nullable=False)
            index = Index(f"ix_{name}_{column}", reference)
            Table(name, metadata, Column("id", Integer, primary_key=True), reference, index)
        return metadata

    def execute(self, *statements: str) -> None:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))

    def types(self) -> dict[str, str]:
        """Return table.column → its type, with its collation."""
        inspector = inspect(self.engine)
        return {
            f"{table}.{column['name']}": repr(column["type"])
            for table in inspector.get_table_names()
            for column in inspector.get_columns(table)
        }

    def uses_index(self, query: str, table: str) -> bool:
        """Return True if the plan of *query* finds the row of *table* by an index on what it is joined by."""
        name = self.engine.name
        explain = {"sqlite": "EXPLAIN QUERY PLAN ", "mysql": "EXPLAIN FORMAT=TRADITIONAL "}.get(name, "EXPLAIN ")
        with self.engine.connect() as connection:
            if name == "postgresql":
                for way in ("seqscan", "hashjoin", "mergejoin"):
                    connection.execute(text(f"SET LOCAL enable_{way} = off"))
            lines = connection.execute(text(explain + query)).mappings().all()
        if name == "postgresql":
            plan = "\n".join(each["QUERY PLAN"] for each in lines)
            column = "id" if table == "parcel" else "public_id"
            return f" on {table} " in plan and bool(re.search(rf"Index Cond: \(+{column}\b", plan))
        if name == "sqlite":
            return any(str(each["detail"]).startswith(f"SEARCH {table} ") for each in lines)
        return all(each["key"] is not None for each in lines if each["table"] == table)


class Writer:
    """A program that writes all the time. ``times`` are those of its transactions, which are failed or stored."""

    def __init__(self, engine: Engine, statement: Executable, new: Callable[[], dict[str, Any]]) -> None:
        self.engine, self.statement, self.new = engine, statement, new
        self.failed, self.times, self.stop = list[str](), list[float](), threading.Event()

    def write(self) -> None:
        while not self.stop.is_set():
            began = time.monotonic()
            try:
                with self.engine.begin() as connection:
                    connection.execute(self.statement, self.new())
            except Exception as error:
                self.failed.append(str(error))
            self.times.append(time.monotonic() - began)

    def __enter__(self) -> Writer:
        self.thread = threading.Thread(target=self.write)
        self.thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop.set()
        self.thread.join()


@pytest.fixture
def new_store(engine: Engine, new_project: Callable[..., Project]) -> Callable[[str, Format], Store]:
    """Make tables with columns of a type, in a database that is emptied after the test."""
    return lambda type_, ids: Store(engine, type_, ids)


def said(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [message for message in caplog.messages if words in message]


@pytest.mark.parametrize(("database", "name"), CASES, indirect=["database"])
@pytest.mark.parametrize("check", ["", " CHECK (public_id IS NOT NULL)"], ids=["", "check"])
def test_nothing_is_written(
    new_store: Callable[[str, Format], Store],
    new_project: Callable[..., Project],
    database: str,
    name: str,
    check: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No operation is written for a type that holds the ids, and the log names no change of a type."""
    store = new_store(*TYPES[database][name])
    store.create(check, rows=1)
    before = store.types()
    caplog.set_level(logging.INFO, "alembic")

    project = new_project()

    assert project.differences(store.models()) == []
    assert project.check(store.models()) is None
    assert said(caplog, "type change") == []
    assert store.types().items() >= before.items()


def test_several_columns_of_a_table(
    new_store: Callable[[str, Format], Store], new_project: Callable[..., Project], engine: Engine
) -> None:
    """No operation is written for any of several columns of one table whose types hold the ids."""
    type_, ids = TYPES[engine.name]["wider"]
    names = ["first_id", "second_id", "third_id", "fourth_id"]
    store = new_store(type_, ids)
    store.execute(
        f"CREATE TABLE entry (id integer NOT NULL PRIMARY KEY, {', '.join(f'{name} {type_}' for name in names)})"
    )
    metadata = MetaData()
    columns = [Column(name, PublicIdType(ids)) for name in names]
    Table("entry", metadata, Column("id", Integer, primary_key=True), *columns)

    assert new_project().differences(metadata) == []


@on("sqlite", "postgresql")
def test_new_foreign_key_to_a_short_column(
    new_store: Callable[[str, Format], Store], new_project: Callable[..., Project]
) -> None:
    """A foreign key to a column that becomes wider in the same revision is not made as short as that was."""
    store = new_store("varchar(9)", NanoId(length=9))
    store.create(rows=0)
    project = new_project()
    project.configure("render_as_batch=True,")

    project.migrate(store.models(NanoId(length=15), later=True))

    types = store.types()
    assert "length=9" not in types["memo.owner_public_id"] + types["detour.parcel_id"]


@pytest.mark.parametrize(("database", "name"), CASES, indirect=["database"])
def test_new_foreign_keys(
    new_store: Callable[[str, Format], Store],
    new_project: Callable[..., Project],
    database: str,
    name: str,
    record_property: Callable[[str, object], None],
) -> None:
    """A foreign key that is added later gets the type and collation of its target, so that joins use the index.

    Joins that exist use it before and after, and no statement of a program that writes meanwhile fails.
    """
    store = new_store(*TYPES[database][name])
    store.create()
    before = store.types()
    plans = [
        store.uses_index(OWNER.format(table="note"), "owner"),
        store.uses_index(PARCEL.format(table="stop"), "parcel"),
    ]
    project = new_project()

    owners = Table("owner", MetaData(), Column("id", Integer), Column("public_id", PublicIdType(store.format)))
    numbers = itertools.count(1_000)
    with Writer(
        store.engine, owners.insert(), lambda: {"id": next(numbers), "public_id": store.format.generate()}
    ) as writer:
        project.migrate(store.models(later=True))

    assert writer.failed == []
    record_property("longest time of a writer, in seconds", max(writer.times))
    assert max(writer.times) < LONGEST
    types = store.types()
    assert types.items() >= before.items()
    assert types["memo.owner_public_id"] == types["owner.public_id"]
    assert types["detour.parcel_id"] == types["parcel.id"]
    assert project.check(store.models(later=True)) is None
    store.execute(
        "INSERT INTO memo (id, owner_public_id) SELECT id, owner_public_id FROM note",
        "INSERT INTO detour (id, parcel_id) SELECT id, parcel_id FROM stop",
    )
    assert plans == [True, True]
    assert store.uses_index(OWNER.format(table="note"), "owner")
    assert store.uses_index(PARCEL.format(table="stop"), "parcel")
    assert store.uses_index(OWNER.format(table="memo"), "owner")
    assert store.uses_index(PARCEL.format(table="detour"), "parcel")


@on("postgresql")
def test_new_foreign_key_to_a_column_without_a_collation(
    new_store: Callable[[str, Format], Store], new_project: Callable[..., Project]
) -> None:
    """The revision names no collation if the target has that of the database."""
    store = new_store("varchar(40)", NANOID)
    store.create(rows=1)

    written = new_project().migrate(store.models(later=True))

    assert "VARCHAR(length=40)" in written
    assert "collation" not in written


def test_added_column(
    new_store: Callable[[str, Format], Store], new_project: Callable[..., Project], engine: Engine
) -> None:
    """A foreign key that is added to a table gets the type and collation of its target, too."""
    store = new_store(*TYPES[engine.name]["wider"])
    store.create(rows=1)
    metadata = store.models()
    note = metadata.tables["note"]
    note.append_column(Column("second_id", PublicIdType(NANOID), ForeignKey("owner.public_id", name="second")))
    project = new_project()
    project.configure("render_as_batch=True,")

    project.migrate(metadata)

    assert store.types()["note.second_id"] == store.types()["owner.public_id"]
    assert project.check(metadata) is None


@on("sqlite", "postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("type_", ["text", "varchar(64)", "varchar(100)"])
def test_ids_of_any_model(
    new_store: Callable[[str, Format], Store],
    new_project: Callable[..., Project],
    type_: str,
    database: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A text column of ids of any model keeps its type; one that is too short becomes wider, and nothing else."""
    bytewise = " COLLATE utf8mb4_bin" if database in {"mysql", "mariadb"} else ""
    store = new_store(type_, NANOID)
    store.execute(f"CREATE TABLE entry (id integer NOT NULL PRIMARY KEY, subject {type_}{bytewise})")
    metadata = MetaData()
    subject = Column("subject", AnyPublicIdType())
    Table("entry", metadata, Column("id", Integer, primary_key=True), subject)
    project = new_project()
    project.configure("render_as_batch=True,")
    caplog.set_level(logging.INFO, "alembic")

    assert project.differences(metadata) == []
    assert said(caplog, "change") == []
    subject.type = AnyPublicIdType(80)
    written = project.migrate(metadata)

    assert ("batch_op.alter_column" in written) == (type_ == "varchar(64)")
    assert project.check(metadata) is None


@on("mysql", "mariadb")
@pytest.mark.parametrize("collation", ["utf8mb4_general_ci", "utf8mb4_bin"])
def test_collation_of_a_key(
    new_store: Callable[[str, Format], Store],
    new_project: Callable[..., Project],
    collation: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A key whose collation finds other ids keeps its type, and a warning names the collation."""
    store = new_store(f"varchar(36) COLLATE {collation}", NANOID)
    store.execute(f"CREATE TABLE parcel (id {store.type} NOT NULL PRIMARY KEY)")
    metadata = MetaData()
    Table("parcel", metadata, Column("id", PublicIdType(NANOID), primary_key=True, default=NANOID.generate))

    assert new_project().differences(metadata) == []
    assert bool(said(caplog, f"parcel.id keeps its collation {collation}")) == collation.endswith("_ci")


@on("sqlite")
@pytest.mark.parametrize("schema", ["main", OTHER])
def test_collation_in_a_schema(engine: Engine, tmp_path: Path, schema: str, caplog: pytest.LogCaptureFixture) -> None:
    """The collation of a table is not taken for that of its namesake in another schema."""
    attach(engine, tmp_path / "other.db")
    engine.dispose()
    metadata = MetaData()
    subject = Column("subject", AnyPublicIdType(48))
    Table("parcel", metadata, Column("id", Integer, primary_key=True), subject, schema=OTHER)
    with engine.begin() as connection:
        for each in ("main", OTHER):
            collation = "NOCASE" if each == schema else "BINARY"
            subject_type = f"varchar(48) COLLATE {collation}"
            connection.exec_driver_sql(f"CREATE TABLE {each}.parcel (id integer PRIMARY KEY, subject {subject_type})")

    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_schemas": True})
        compare_metadata(context, metadata)

    assert bool(said(caplog, f"{OTHER}.parcel.subject keeps its collation")) == (schema == OTHER)


WRONG: list[tuple[str, str, Format, Format | None]] = [
    ("sqlite", "varchar(36)", OF_NUMBERS, OF_TEXT),
    ("sqlite", "char(32)", Uuid4(encoding="hyphenated"), Uuid4(encoding="hex", storage="text")),
    ("sqlite", "text", Uuid4(), Uuid4(storage="text")),
    ("sqlite", "blob", OF_TEXT, OF_NUMBERS),
    ("sqlite", "blob", NANOID, None),
    ("postgresql", "varchar(36)", OF_NUMBERS, OF_TEXT),
    ("postgresql", "text", OF_NUMBERS, OF_TEXT),
    ("postgresql", "uuid", OF_TEXT, OF_NUMBERS),
    ("postgresql", "uuid", NANOID, None),
    ("mysql", "varchar(36)", OF_NUMBERS, OF_TEXT),
    ("mysql", "binary(16)", OF_TEXT, OF_NUMBERS),
    ("mariadb", "varchar(36)", OF_NUMBERS, OF_TEXT),
    ("mariadb", "binary(16)", NANOID, None),
    # neither text nor the numbers of the format
    ("postgresql", "bytea", OF_NUMBERS, None),
    ("mysql", "binary(15)", OF_NUMBERS, None),
]


@pytest.mark.parametrize(("database", "type_", "declared", "instead"), WRONG, indirect=["database"])
@pytest.mark.parametrize("role", ["id", "key", "foreign key"])
def test_text_and_numbers(
    new_store: Callable[[str, Format], Store],
    new_project: Callable[..., Project],
    type_: str,
    declared: Format,
    instead: Format | None,
    role: str,
) -> None:
    """Autogenerate never changes text to numbers, or numbers to text: its error names the format that fits."""
    store = new_store(type_, declared)
    column: Column[Any]
    if role == "id":
        store.execute(f"CREATE TABLE t (id integer NOT NULL PRIMARY KEY, public_id {type_} NOT NULL UNIQUE)")
        column = public_id_column(declared).column
    elif role == "key":
        store.execute(f"CREATE TABLE t (id {type_} NOT NULL PRIMARY KEY)")
        column = Column("id", PublicIdType(declared), primary_key=True, default=declared.generate)
    else:
        store.execute(f"CREATE TABLE t (id integer NOT NULL PRIMARY KEY, public_id {type_})")
        column = Column("public_id", PublicIdType(declared))
    column.name = column.key = column.name or "public_id"
    metadata = MetaData()
    Table("t", metadata, *([] if role == "key" else [Column("id", Integer, primary_key=True)]), column)

    with pytest.raises(MigrationRefused) as caught:
        new_project().differences(metadata)

    assert [obstacle.code for obstacle in caught.value.obstacles] == ["wrong-type"]
    assert f"t.{column.name}" in caught.value.target
    assert (f"take the format {instead!r}" in str(caught.value)) == (instead is not None)


# --- where something is written


@on("postgresql", "mysql", "mariadb")
def test_wider_beside_a_writer(
    new_store: Callable[[str, Format], Store], new_project: Callable[..., Project], engine: Engine
) -> None:
    """A column that becomes too short is made wider, keeps its collation, and no statement of others fails."""
    store = new_store(*TYPES[engine.name]["varchar"])
    store.execute(f"CREATE TABLE owner (id integer NOT NULL PRIMARY KEY, public_id {store.type} NOT NULL UNIQUE)")
    store.execute(f"CREATE TABLE parcel (id {store.type} NOT NULL PRIMARY KEY)")
    metadata = MetaData()
    ids = public_id_column(LONGER).column
    ids.name = ids.key = "public_id"
    Table("owner", metadata, Column("id", Integer, primary_key=True), ids)
    Table("parcel", metadata, Column("id", PublicIdType(LONGER), primary_key=True, default=LONGER.generate))
    project = new_project()
    numbers: Iterator[int] = iter(range(1_000_000))

    def row() -> dict[str, Any]:
        return {"id": next(numbers), "public_id": NANOID.generate()}

    with Writer(engine, text("INSERT INTO owner (id, public_id) VALUES (:id, :public_id)"), row) as writer:
        written = project.migrate(metadata)

    assert [statement.partition("(")[0] for statement in upgrade_of(written)] == ["op.alter_column"] * 2
    assert writer.failed == []
    assert writer.times
    assert "25" in store.types()["owner.public_id"]
    assert ("utf8mb4_bin" in store.types()["owner.public_id"]) == (engine.name != "postgresql")
    assert project.check(metadata) is None


@on("postgresql")
@pytest.mark.parametrize(("length", "format"), [(30, NANOID), (25, LONGER)], ids=["wider", "as the longest"])
def test_padded_char(
    new_store: Callable[[str, Format], Store],
    new_project: Callable[..., Project],
    caplog: pytest.LogCaptureFixture,
    length: int,
    format: Format,
) -> None:
    """A CHAR that is longer than some ids becomes a VARCHAR in each role, and a warning says that others may wait."""
    store = new_store(f"char({length})", format)
    store.create(rows=0)
    project = new_project()

    project.migrate(store.models())

    assert {type_ for name, type_ in store.types().items() if "CHAR" in type_ and "version" not in name} == {
        f"VARCHAR(length={length})"
    }
    assert len(said(caplog, "adds blanks")) == 4
    assert project.check(store.models()) is None
