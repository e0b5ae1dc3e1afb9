"""Tables, keys, counters and schemas of cluster keys may be called anything that their database takes."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from alembic.autogenerate import produce_migrations
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Engine, MetaData
from sqlalchemy.orm import DeclarativeBase, Mapped
from support.clients import run_script
from support.marks import on
from support.odd_names import NAMES, beside
from support.parcel_table import KEYS
from support.people import send

import sqlalchemy_public_id.alembic  # noqa: F401  Alembic before 1.18 needs to be told
from sqlalchemy_public_id import audit
from sqlalchemy_public_id.alembic import (
    create_cluster_config,
    create_cluster_sequence,
    drop_cluster_config,
    drop_cluster_sequence,
    set_cluster,
    unset_cluster,
)
from sqlalchemy_public_id.keys import ClusterKey, cluster_key

pytestmark = pytest.mark.backend

SERVERS = ("postgresql", "mysql", "mariadb")
ODD = [pytest.param(name, id=what) for what, name in NAMES.items()]


@pytest.fixture(params=ODD)
def name(request: pytest.FixtureRequest, database: str) -> str:
    """Each name, but for those that SQLAlchemy does not reflect."""
    if "\n" in request.param and database in {"mysql", "mariadb"}:
        pytest.skip(f"SQLAlchemy does not reflect it from {database}")
    return str(request.param)


class Crates:
    """A table of one name, with a key that is called as oddly."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine, self.table = engine, name
        self.key = beside(name)
        quote = type(engine.dialect)(paramstyle="named").identifier_preparer.quote_identifier
        self.quoted, self.quoted_key = quote(name), quote(self.key)

    def execute(self, statement: str) -> None:
        with self.engine.begin() as connection:
            send(connection, statement)

    def create(self) -> None:
        self.drop()
        self.execute(f"CREATE TABLE {self.quoted} ({self.quoted_key} {KEYS[self.engine.name]}, name varchar(50))")

    def drop(self) -> None:
        self.execute(f"DROP TABLE IF EXISTS {self.quoted}")

    def run(self, operation: Callable[..., None], *names: str, **options: Any) -> None:
        """Carry out *operation*, with a connection."""
        with self.engine.begin() as connection:
            operation(Operations(MigrationContext.configure(connection)), *names, **options)

    def script(self, operation: Callable[..., None], *names: str, **options: Any) -> None:
        """Carry out *operation* by way of a script."""
        output = io.StringIO()
        opts = {"as_sql": True, "output_buffer": output}
        context = MigrationContext.configure(dialect_name=self.engine.dialect.name, opts=opts)
        operation(Operations(context), *names, **options)
        run_script(self.engine, output.getvalue())

    def add(self) -> str:
        """Insert one, and return its key."""
        with self.engine.begin() as connection:
            send(connection, f"INSERT INTO {self.quoted} (name) VALUES ('new')")
            return ClusterKey(send(connection, f"SELECT max({self.quoted_key}) FROM {self.quoted}").scalar()).hex


@pytest.fixture
def new_crates(engine: Engine) -> Iterator[Callable[[str], Crates]]:
    """Make a table; it is gone after the test, with what operations have left."""
    made: list[Crates] = []

    def make(name: str) -> Crates:
        made.append(Crates(engine, name))
        made[-1].create()
        return made[-1]

    yield make
    for crates in made:
        crates.drop()
        if engine.name != "sqlite":
            crates.run(drop_cluster_config)


@pytest.mark.parametrize("way", ["run", "script"])
def test_set_cluster(new_crates: Callable[[str], Crates], engine: Engine, name: str, way: str) -> None:
    """The counter of any key is given its limits and its guard, and loses them."""
    if way == "script" and engine.name == "sqlite":
        pytest.skip("there is no client")
    crates = new_crates(name)
    carry_out = getattr(crates, way)

    for _ in range(2):
        carry_out(set_cluster, name, crates.key, cluster=10, enforce_range=True)
    keys = [crates.add(), crates.add()]
    found = [each.problem for each in audit.run(engine, tables=[name]).at_least("warning")]
    carry_out(unset_cluster, name, crates.key)

    assert keys == ["a000000000001", "a000000000002"]
    assert found == []
    assert crates.add() == "a000000000003"


@on(*SERVERS)
@pytest.mark.parametrize("way", ["run", "script"])
def test_sequence(new_crates: Callable[[str], Crates], engine: Engine, name: str, way: str) -> None:
    """A counter of any name is made for any key, and is removed."""
    crates = new_crates(name)
    carry_out = getattr(crates, way)
    sequence = f"c {name}"[:40].rstrip()

    carry_out(create_cluster_config, cluster=10)
    for _ in range(2):
        carry_out(create_cluster_sequence, name, crates.key, sequence=sequence)
    keys = [crates.add(), crates.add()]
    found = [each.problem for each in audit.run(engine, tables=[name]).at_least("warning")]
    carry_out(drop_cluster_sequence, name, crates.key, sequence=sequence)

    assert keys == ["a000000000001", "a000000000002"]
    assert found == []
    assert crates.add() == "a000000000003"


@on(*SERVERS)
@pytest.mark.parametrize("sequence", [None, "it's %{x}:y `\"\\"])
def test_model_that_goes(engine: Engine, name: str, sequence: str | None) -> None:
    """Autogenerate finds the counter of a table that is dropped, whatever it is called."""

    class Base(DeclarativeBase):
        metadata = MetaData()

    class Crate(Base):
        __tablename__ = name
        id: Mapped[int] = cluster_key(sequence, strategy="function", cluster=10)

    Base.metadata.create_all(engine)
    try:
        with engine.connect() as connection:
            script = produce_migrations(MigrationContext.configure(connection), MetaData())
        assert script.upgrade_ops is not None
        found = [op.to_diff_tuple()[:3] for op in script.upgrade_ops.ops if hasattr(op, "sequence")]
    finally:
        Base.metadata.drop_all(engine)

    named = () if sequence is None else (sequence,)
    assert found == [("drop_cluster_sequence", name, *named)]
