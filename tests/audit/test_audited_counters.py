"""An audit of counters: those that will generate what rows have already, and those that nothing was compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import BigInteger, Engine, Integer, MetaData, create_engine, event, insert, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import NullPool
from support.applied_remedies import paste
from support.attached_databases import OTHER, attach
from support.cluster_models import models
from support.marks import on

from sqlalchemy_public_id import NanoId, PublicIdMixin, audit, bigint_key
from sqlalchemy_public_id.formats import BASE36
from sqlalchemy_public_id.keys import BlockAllocator, ClusterKey, CoprimeKey, CoprimeStep, KeyedStep, Range, block_key

pytestmark = pytest.mark.backend


# --- IDENTITY and AUTO_INCREMENT


def ticket_of(key: Any, *more: Any) -> Any:
    """Return a model with this key."""

    class Base(DeclarativeBase):
        metadata = MetaData()

    class Ticket(Base):
        __tablename__ = "ticket"
        id: Mapped[int] = key
        what: Mapped[int | None]
        if more:
            tenant_id: Mapped[int] = more[0]

    return Ticket


def ticket_of_a_tenant() -> Any:
    """Return a model whose primary key is a counted key and the tenant."""
    return ticket_of(
        mapped_column(BigInteger, primary_key=True, autoincrement=True),
        mapped_column(BigInteger, primary_key=True, autoincrement=False),
    )


def load(engine: Engine, model: Any, *keys: int) -> None:
    """Store rows with these keys."""
    rest = {"tenant_id": 1} if "tenant_id" in model.__table__.c else {}
    with engine.begin() as connection:
        connection.execute(insert(model.__table__), [{"id": key, **rest} for key in keys])


def problem_of(engine: Engine, **options: Any) -> Any:
    """Return the only finding on the tickets; ``None`` if there is none."""
    found = audit.run(engine, tables=["ticket"], **options).findings
    assert len(found) <= 1
    return found[0] if found else None


KEYS: dict[str, Callable[[], Any]] = {
    "identity": lambda: mapped_column(BigInteger, primary_key=True),
    "serial": lambda: mapped_column(Integer, primary_key=True),
    "mixin": bigint_key,
}


@on("postgresql")
@pytest.mark.parametrize("key", KEYS)
def test_a_counter_behind_its_rows(engine: Engine, create: Callable[[MetaData], None], key: str) -> None:
    """The finding has the next number and the taken keys, and its statement mends it; a second audit finds nothing."""
    Ticket = ticket_of(KEYS[key]())
    create(Ticket.metadata)
    assert problem_of(engine) is None
    load(engine, Ticket, *range(501, 801))

    finding = problem_of(engine)

    assert (finding.problem, finding.severity, finding.column) == ("key-counter-behind", "error", "id")
    assert finding.message == (
        "the counter of id continues at 1, but rows have keys from 501 to 800, so an INSERT will fail as a duplicate"
    )
    assert finding.facts == {"upcoming": 1, "first": 501, "value": 800}
    for _ in range(2):  # it can be run again
        paste(engine, finding.remedy)
    assert problem_of(engine) is None
    with Session(engine) as session:
        session.add(ticket := Ticket())
        session.flush()
        assert ticket.id == 801


@on("postgresql")
def test_the_error_that_it_prevents(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """Without the statement, an INSERT fails as a duplicate."""
    Ticket = ticket_of(bigint_key())
    create(Ticket.metadata)
    load(engine, Ticket, 3)

    assert problem_of(engine).severity == "error"
    with Session(engine) as session, pytest.raises(IntegrityError):
        for _ in range(5):
            session.add(Ticket())
            session.flush()


def test_a_counter_that_is_right(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """Rows that the database has numbered, and deleted rows, are no finding."""
    Ticket = ticket_of(bigint_key())
    create(Ticket.metadata)
    with Session(engine) as session:
        session.add_all([Ticket() for _ in range(20)])
        session.flush()
        session.delete(session.get(Ticket, 20))
        session.commit()
    assert problem_of(engine) is None


RESTARTED = {
    "postgresql": "ALTER SEQUENCE ticket_id_seq RESTART {}",
    "mysql": "ALTER TABLE ticket AUTO_INCREMENT = {}",
    "mariadb": "ALTER TABLE ticket AUTO_INCREMENT = {}",
}


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize(
    ("following", "severity"), [(2**30, None), (2**30 + 2, "warning"), (2**31 - 2, "error"), (2**31 - 1, "error")]
)
def test_a_counter_that_is_used_up_without_rows(
    engine: Engine, create: Callable[[MetaData], None], following: int, severity: str | None
) -> None:
    """A key is as full as its counter says, also after its rows were deleted."""
    create(ticket_of(mapped_column(Integer, primary_key=True)).metadata)
    with engine.begin() as connection:
        connection.exec_driver_sql(RESTARTED[engine.name].format(following))

    finding = problem_of(engine)

    if severity is None:
        assert finding is None
    else:
        assert (finding.problem, finding.severity) == ("key-nearly-full", severity)
        assert finding.facts["value"] == following - 1
        assert "of the keys so far" in finding.message


@on("mysql", "mariadb", "sqlite")
def test_counters_that_follow_the_rows(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """A counter of these databases is above the rows, also after keys of the program's own and changed keys."""
    Ticket = ticket_of(bigint_key())
    create(Ticket.metadata)
    load(engine, Ticket, 3, 500)
    with Session(engine) as session:
        session.execute(update(Ticket).where(Ticket.id == 500).values(id=700))
        session.commit()
        assert problem_of(engine) is None
        session.add(ticket := Ticket())
        session.flush()
        assert ticket.id == 701


@on("postgresql")
def test_keys_that_are_far_away(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """Keys that the counter does not reach soon may be those of another database: a warning, and no statement."""
    Ticket = ticket_of(bigint_key())
    create(Ticket.metadata)
    load(engine, Ticket, 10**12, 10**12 + 1)

    finding = problem_of(engine)

    assert (finding.severity, finding.remedy, finding.facts["first"]) == ("warning", None, 10**12)
    assert "name the range or the cluster of this one: clusters=, or --cluster" in finding.message
    found = audit.run(engine, tables=["ticket"], clusters={"ticket": Range(1, 10**12)}).findings
    assert "key-counter-behind" not in {each.problem for each in found}


@on("postgresql")
def test_keys_of_its_own_range_that_are_far_away(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """All keys of a range are of this counter, so the farthest is an error; the remedy never moves a counter back."""
    Ticket = ticket_of(bigint_key())
    create(Ticket.metadata)
    load(engine, Ticket, 50_000, 50_001)

    found = audit.run(engine, tables=["ticket"], clusters={"ticket": Range(1, 10**6)}).findings
    [finding] = [each for each in found if each.problem == "key-counter-behind"]

    assert finding.severity == "error"
    assert "so an INSERT will fail as a duplicate" in finding.message
    with engine.begin() as connection:
        sequence = "pg_get_serial_sequence('ticket', 'id')"
        connection.exec_driver_sql(f"SELECT setval({sequence}, 60000)")
        paste(engine, finding.remedy)
        assert connection.exec_driver_sql(f"SELECT nextval({sequence})").scalar() == 60_001


@on("postgresql")
def test_keys_with_a_tenant(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """The counter of a key that is the first column of the primary key is compared, too."""
    Ticket = ticket_of_a_tenant()
    create(Ticket.metadata)
    load(engine, Ticket, 3)

    assert problem_of(engine).facts == {"upcoming": 1, "first": 3, "value": 3}


@on("postgresql")
def test_keys_behind_a_tenant(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """If no index begins with the key, the audit says that it has not read all rows to compare the counter."""
    Ticket = ticket_of_a_tenant()
    create(Ticket.metadata)
    load(engine, Ticket, 3)
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE ticket DROP CONSTRAINT ticket_pkey, ADD PRIMARY KEY (tenant_id, id)")

    finding = problem_of(engine)

    assert (finding.problem, finding.severity, finding.column) == ("counter-not-compared", "info", "id")
    assert finding.message == (
        "the counter of id was not compared with the rows, because no index begins with id, so that all of them would "
        "be read"
    )
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE INDEX ticket_of_key ON ticket (id)")
    assert problem_of(engine).facts == {"upcoming": 1, "first": 3, "value": 3}


@on("postgresql", "mysql", "mariadb")
def test_a_full_key_with_a_tenant(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """A key that is one column of the primary key is as full as its counter says, too."""
    own = mapped_column(Integer, primary_key=True, autoincrement=True)
    create(ticket_of(own, mapped_column(BigInteger, primary_key=True, autoincrement=False)).metadata)
    with engine.begin() as connection:
        connection.exec_driver_sql(RESTARTED[engine.name].format(2**31 - 2))

    finding = problem_of(engine)

    assert (finding.problem, finding.severity, finding.column) == ("key-nearly-full", "error", "id")


DRAWS = {
    "of its default": ([], {"upcoming": 1, "first": 1, "value": 3}),
    "of a dropped default": (["ALTER TABLE ticket ALTER id DROP DEFAULT"], None),
    "of another default": (["ALTER TABLE ticket ALTER id SET DEFAULT nextval('free_of_ticket')"], None),
    "of another default, behind": (
        ["ALTER TABLE ticket ALTER id SET DEFAULT nextval('free_of_ticket')", "SELECT setval('free_of_ticket', 2)"],
        {"upcoming": 3, "first": 3, "value": 3},
    ),
    "of another table": (
        ["ALTER SEQUENCE ticket_id_seq OWNED BY NONE", "ALTER SEQUENCE ticket_id_seq OWNED BY other_ticket.id"],
        {"upcoming": 1, "first": 1, "value": 3},
    ),
    "of another column": (
        [
            "ALTER TABLE ticket ALTER id DROP DEFAULT",
            "ALTER TABLE ticket ADD number bigint DEFAULT nextval('free_of_ticket')",
            "SELECT setval('free_of_ticket', 1)",
        ],
        None,
    ),
    "of an expression": (["ALTER TABLE ticket ALTER id SET DEFAULT (random() * 1000)::int"], None),
}


@on("postgresql")
@pytest.mark.parametrize(("statements", "facts"), DRAWS.values(), ids=DRAWS)
def test_the_sequence_that_the_default_draws_from(engine: Engine, statements: list[str], facts: Any) -> None:
    """Only the sequence that the default draws from is compared, whether the column owns it or not."""
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE ticket (id serial PRIMARY KEY)")
        connection.exec_driver_sql("CREATE TABLE other_ticket (id int PRIMARY KEY)")
        connection.exec_driver_sql("CREATE SEQUENCE free_of_ticket START 4")
        connection.exec_driver_sql("INSERT INTO ticket VALUES (1), (2), (3)")
        for statement in statements:
            connection.exec_driver_sql(statement)

        findings = audit.run(connection, tables=["ticket"]).findings

        assert [(each.problem, each.facts) for each in findings] == ([("key-counter-behind", facts)] if facts else [])
        connection.rollback()


GRANTS = {
    "nothing": ([], "counter-not-compared", "public.ticket_id_seq"),
    "the sequence": (["GRANT SELECT ON ticket_id_seq TO reader_of_tickets"], "key-counter-behind", ""),
    "not its schema": (
        [
            "CREATE SCHEMA hidden_numbers",
            "CREATE SEQUENCE hidden_numbers.numbers",
            "ALTER TABLE ticket ALTER id DROP IDENTITY",
            "ALTER TABLE ticket ALTER id SET DEFAULT nextval('hidden_numbers.numbers')",
            "GRANT SELECT ON hidden_numbers.numbers TO reader_of_tickets",
        ],
        "counter-not-compared",
        "hidden_numbers.numbers",
    ),
}


@on("postgresql")
@pytest.mark.parametrize(("statements", "problem", "counter"), GRANTS.values(), ids=GRANTS)
def test_a_sequence_that_may_not_be_read(
    engine: Engine, create: Callable[[MetaData], None], statements: list[str], problem: str, counter: str
) -> None:
    """For a role that may not read the sequence, the finding says that the counter was not compared."""
    Ticket = ticket_of(bigint_key())
    create(Ticket.metadata)
    load(engine, Ticket, 3)
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE ROLE reader_of_tickets")
        connection.exec_driver_sql("GRANT SELECT ON ticket TO reader_of_tickets")
        for statement in statements:
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql("SET ROLE reader_of_tickets")

        [finding] = audit.run(connection, tables=["ticket"]).findings

        assert finding.problem == problem
        if counter:
            assert (finding.severity, finding.facts) == ("info", {"counters": [counter]})
            assert f"GRANT SELECT ON SEQUENCE {counter}, and USAGE on its schema" in finding.message
        connection.rollback()


@pytest.mark.parametrize(
    ("database", "options"),
    [
        ("postgresql", {}),
        ("postgresql", {"strategy": "function"}),
        ("mysql", {"strategy": "function"}),
        ("mariadb", {"strategy": "function"}),
    ],
    indirect=["database"],
)
def test_keys_of_a_cluster(engine: Engine, create: Callable[[MetaData], None], options: Any) -> None:
    """Only keys of its own cluster are compared with the counter, with the number of the cluster in them."""
    metadata, Depot, _ = models(cluster=10, **options)
    create(metadata)
    with Session(engine) as session:
        session.add_all([Depot(), Depot()])
        session.commit()
    with engine.begin() as connection:
        for key in (ClusterKey.of(9, 3), ClusterKey.of(10, 7), ClusterKey.of(11, 900)):
            connection.execute(insert(Depot.__table__), {"id": key})

    [finding] = audit.run(engine, tables=["depot"]).findings

    assert finding.problem == "key-counter-behind"
    assert finding.facts == {
        "upcoming": ClusterKey.of(10, 3),
        "first": ClusterKey.of(10, 7),
        "value": ClusterKey.of(10, 7),
    }
    paste(engine, finding.remedy)
    assert audit.run(engine, tables=["depot"]).findings == []
    with Session(engine) as session:
        session.add(depot := Depot())
        session.flush()
        assert depot.id == ClusterKey.of(10, 8)


@on("postgresql", "mysql", "mariadb")
def test_a_function_that_has_counted_nothing(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """A counter that was never used is compared with the rows that were loaded, also where no catalog shows it."""
    metadata, Depot, _ = models(cluster=10, strategy="function")
    create(metadata)
    assert audit.run(engine, tables=["depot"]).findings == []
    with engine.begin() as connection:
        for key in (ClusterKey.of(9, 3), ClusterKey.of(10, 1), ClusterKey.of(10, 5)):
            connection.execute(insert(Depot.__table__), {"id": key})

    [finding] = audit.run(engine, tables=["depot"]).findings

    assert (finding.problem, finding.severity) == ("key-counter-behind", "error")
    first, last = ClusterKey.of(10, 1), ClusterKey.of(10, 5)
    assert finding.facts == {"upcoming": first, "first": first, "value": last}
    paste(engine, finding.remedy)
    assert audit.run(engine, tables=["depot"]).findings == []
    with Session(engine) as session:
        session.add(depot := Depot())
        session.flush()
        assert depot.id == ClusterKey.of(10, 6)


# --- ids that are counted


@pytest.fixture
def orders(engine: Engine) -> Iterator[BlockAllocator]:
    allocator = BlockAllocator(engine, "order", block=100)
    allocator.table.drop(engine, checkfirst=True)
    allocator.create_table()
    yield allocator
    allocator.table.drop(engine)


def order_of(format: CoprimeKey) -> Any:
    class Base(DeclarativeBase):
        metadata = MetaData()

    class Order(PublicIdMixin, Base):
        __tablename__ = "order_of_counter"
        __public_id__ = format

    return Order


def write(engine: Engine, model: Any, count: int) -> None:
    model.__public_id__.allocator.reserve(count)
    with Session(engine) as session:
        session.add_all([model() for _ in range(count)])
        session.commit()


def counted_problems(engine: Engine, model: Any) -> list[Any]:
    return audit.run(engine, tables=["order_of_counter"], models=model.metadata).findings


@pytest.mark.parametrize(
    ("step", "changed"),
    [
        (CoprimeStep(BASE36, 6), CoprimeStep(BASE36, 6, step=7)),
        (CoprimeStep(BASE36, 6), CoprimeStep(BASE36, 6, start=1)),
        (CoprimeStep(BASE36, 6), CoprimeStep(BASE36[::-1], 6)),
        (KeyedStep(BASE36, 6, b"a" * 16), KeyedStep(BASE36, 6, b"b" * 16)),
    ],
    ids=["step", "start", "alphabet", "secret"],
)
def test_another_order(
    engine: Engine, create: Callable[[MetaData], None], orders: BlockAllocator, step: Any, changed: Any
) -> None:
    """Ids that the configured order has not issued yet are found; the order that has issued them has no finding."""
    Order = order_of(CoprimeKey(orders, step=step))
    create(Order.metadata)
    write(engine, Order, 50)
    assert counted_problems(engine, Order) == []

    Other = order_of(CoprimeKey("order", step=changed))
    [finding] = counted_problems(engine, Other)

    assert (finding.problem, finding.severity) == ("id-counter-behind", "error")
    assert finding.message.startswith(f"{finding.facts['ids']} of 50 ids that were read have numbers from ")
    assert "the counter 'order' continues at 101, so new ids may repeat old ones" in finding.message


def test_a_counter_that_went_back(engine: Engine, create: Callable[[MetaData], None], orders: BlockAllocator) -> None:
    """After a restore of the counter, the finding names the number to start with, also for older, shorter ids."""
    short = CoprimeKey(orders, step=CoprimeStep(BASE36, 4))
    Order = order_of(short)
    create(Order.metadata)
    write(engine, Order, 150)
    with engine.begin() as connection:
        connection.execute(update(orders.table).values(next=20))
    Longer = order_of(CoprimeKey(orders, step=CoprimeStep(BASE36, 6)).accepting(short))

    for model in (Order, Longer):
        [finding] = [each for each in counted_problems(engine, model) if each.problem == "id-counter-behind"]
        assert finding.facts == {"counter": "order", "upcoming": 20, "value": 150, "ids": 131}
        assert finding.message.endswith("then write start=151")


def test_a_counter_of_keys_at_the_last_one(
    engine: Engine, create: Callable[[MetaData], None], orders: BlockAllocator
) -> None:
    """A counter of blocks that continues at the largest key is behind, and one that continues after it is not."""

    Ticket, Raised = (ticket_of(block_key(each)) for each in (orders, BlockAllocator(engine, orders.name, start=4)))
    create(Ticket.metadata)
    with Session(engine) as session:
        session.add_all([Ticket() for _ in range(3)])
        session.commit()

    def found(following: int, model: Any = Ticket) -> list[Any]:
        with engine.begin() as connection:
            connection.execute(update(orders.table).values(next=following))
        return [each.facts for each in audit.run(engine, tables=["ticket"], models=model.metadata).findings]

    assert found(4) == []
    assert found(3) == [{"counter": "order", "upcoming": 3, "value": 3}]
    assert found(3, Raised) == []  # start= is the lowest number


# --- beside a writer


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("kind", ["counter of the table", "blocks of keys", "counted ids"])
def test_rows_that_are_inserted_meanwhile(
    engine: Engine,
    new_engine: Callable[..., Engine],
    create: Callable[[MetaData], None],
    orders: BlockAllocator,
    kind: str,
) -> None:
    """Rows that a program inserts after any statement of the audit are no finding."""
    writer = new_engine(engine.name, engine.url)
    numbers = BlockAllocator(writer, orders.name, block=1)  # each row takes a number from the counter
    if kind == "counted ids":
        Model = order_of(CoprimeKey(numbers, step=CoprimeStep(BASE36, 6)))
    else:
        Model = ticket_of(block_key(numbers) if kind == "blocks of keys" else bigint_key())
    create(Model.metadata)

    def insert_row(*happened: object) -> None:
        with Session(writer) as session:
            session.add(Model())
            session.commit()

    insert_row()
    event.listen(engine, "after_cursor_execute", insert_row)

    report = audit.run(engine, tables=[Model.__tablename__], models=Model.metadata)
    event.remove(engine, "after_cursor_execute", insert_row)

    assert report.at_least("warning") == []


# --- counters that were not compared


def test_counters_that_no_model_names(
    engine: Engine, create: Callable[[MetaData], None], orders: BlockAllocator
) -> None:
    """The audit of the table of counters lists those that were not compared, and why."""
    others = BlockAllocator(engine, "event")
    for allocator in (orders, others):
        allocator.take(1)
    Order = order_of(CoprimeKey(orders, step=CoprimeStep(BASE36, 6)))
    create(Order.metadata)

    def message(models: Any) -> Any:
        found = audit.run(engine, tables=[orders.table.name], models=models).findings
        assert [(each.problem, each.severity) for each in found] == [("counter-not-compared", "info")] * len(found)
        return [(each.message, each.facts["counters"]) for each in found]

    [(said, names)] = message(None)
    assert said.endswith("because no models were passed: models=, or --models: 'event', 'order'")
    assert names == ["event", "order"]
    assert message(Order.metadata) == [
        ("counters were not compared with keys or ids, because no model names them: 'event'", ["event"])
    ]

    class Base(DeclarativeBase):
        metadata = MetaData()

    class Event(Base):
        __tablename__ = "event_of_counter"
        id: Mapped[int] = block_key(others)

    assert message([Order.metadata, Event.metadata]) == []
    older = CoprimeKey(others, step=CoprimeStep(BASE36, 4))
    Longer = order_of(CoprimeKey(orders, step=CoprimeStep(BASE36, 6)).accepting(older))
    assert message(Longer.metadata) == []


@on("sqlite", "postgresql")
def test_counters_of_one_name_in_two_tables(
    engine: Engine, create: Callable[[MetaData], None], orders: BlockAllocator
) -> None:
    """A counter that no model names is listed, although a model names one of the same name in another table."""
    codes = BlockAllocator(engine, "code", table="other_counters")
    codes.table.drop(engine, checkfirst=True)
    codes.create_table()
    for table in (orders.table, codes.table):
        for name in ("code", "order"):
            BlockAllocator(engine, name, table=table.name).take(1)
    models = ticket_of(block_key(orders)), order_of(CoprimeKey(codes, step=CoprimeStep(BASE36, 6)))
    for model in models:
        create(model.metadata)

    tables = [orders.table.name, codes.table.name]
    found = audit.run(engine, tables=tables, models=[model.metadata for model in models]).findings
    codes.table.drop(engine)

    listed = {each.table: each.facts["counters"] for each in found}
    assert listed == {orders.table.name: ["code"], codes.table.name: ["order"]}


@on("sqlite")
@pytest.mark.parametrize("schema", [None, "main", OTHER])
def test_counters_of_one_name_in_two_schemas(
    engine: Engine, orders: BlockAllocator, tmp_path: Path, schema: str | None
) -> None:
    """A counter that no model names is listed, although a model names one of the same name in another schema."""
    attach(engine, tmp_path / "other.db")
    engine.dispose()
    for each in (None, OTHER):
        BlockAllocator(engine, orders.name, schema=each, create=True).take(1)
    named = ticket_of(block_key(BlockAllocator(engine, orders.name, schema=schema))).metadata

    def is_listed(audited: str | None) -> bool:
        return audit.run(engine, tables=[orders.table.name], schema=audited, models=named).findings != []

    assert (is_listed(None), is_listed(OTHER)) == (schema == OTHER, schema == "main")  # None is that of the audit


@on("sqlite")
@pytest.mark.parametrize("audited", [None, OTHER])
@pytest.mark.parametrize("kind", ["blocks of keys", "counted ids"])
def test_counters_of_the_audited_schema(engine: Engine, tmp_path: Path, audited: str | None, kind: str) -> None:
    """Models without a schema are compared with the counter in the schema that is audited."""
    attach(engine, tmp_path / "other.db")
    engine.dispose()
    step = CoprimeStep(BASE36, 6)
    orders = BlockAllocator(engine, "order")
    Model = ticket_of(block_key(orders)) if kind == "blocks of keys" else order_of(CoprimeKey("order", step=step))
    name = Model.__tablename__
    ids = "" if kind == "blocks of keys" else f", public_id varchar(6) NOT NULL UNIQUE DEFAULT '{step.key(3)}'"
    with engine.begin() as connection:
        for schema in ("main", OTHER):
            connection.exec_driver_sql(f"CREATE TABLE {schema}.{name} (id integer PRIMARY KEY, what integer{ids})")
            connection.exec_driver_sql(f"INSERT INTO {schema}.{name} (id) VALUES (3)")
    for schema, following in ((None, 4), (OTHER, 2)):
        counter = BlockAllocator(engine, "order", schema=schema, create=True)
        counter.take(1)
        with engine.begin() as connection:
            connection.execute(update(counter.table).values(next=following))

    findings = audit.run(engine, tables=[name], schema=audited, models=Model.metadata).findings

    behind = [(each.table, each.facts["upcoming"], each.facts["value"]) for each in findings]
    assert behind == ([] if audited is None else [(f"{OTHER}.{name}", 2, 3)])


def test_a_counter_in_another_database(engine: Engine, create: Callable[[MetaData], None], tmp_path: Any) -> None:
    """Keys and ids whose counter is elsewhere are said to be unexamined."""
    elsewhere = create_engine(f"sqlite:///{tmp_path}/counters.db", poolclass=NullPool)

    class Base(DeclarativeBase):
        metadata = MetaData()

    class Event(PublicIdMixin, Base):
        __tablename__ = "event_of_counter"
        __public_id__ = CoprimeKey(BlockAllocator(elsewhere, "code", table="far"), step=CoprimeStep(BASE36, 6))
        id: Mapped[int] = block_key(BlockAllocator(elsewhere, "event", table="far"))

    create(Base.metadata)
    found = audit.run(engine, tables=["event_of_counter"], models=Base.metadata).findings

    assert [(each.problem, each.column, each.message) for each in found] == [
        (
            "counter-not-compared",
            column,
            f"the counter {name!r} was not compared with the rows: this database has no table far",
        )
        for column, name in (("public_id", "code"), ("id", "event"))
    ]


@on("postgresql")
def test_a_schema_for_each_tenant(engine: Engine) -> None:
    """In the schema of a tenant, keys and ids are compared with the counters there, if the models name no schema."""
    schema = "tenant_of_counters"
    with engine.begin() as connection:
        connection.exec_driver_sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        connection.exec_driver_sql(f"CREATE SCHEMA {schema}")
    events = BlockAllocator(engine, "event", schema=schema)
    events.create_table()
    events.take(10)

    class Base(DeclarativeBase):
        metadata = MetaData()

    class Event(PublicIdMixin, Base):
        __tablename__ = "event_of_counter"
        __public_id__ = NanoId(prefix="evt")
        id: Mapped[int] = block_key(events)

    with engine.begin() as connection:
        translated = connection.execution_options(schema_translate_map={None: schema})
        Base.metadata.create_all(translated)
        connection.exec_driver_sql(f"INSERT INTO {schema}.event_of_counter (id, public_id) VALUES (5000, 'short')")

    found = audit.run(engine, schema=schema, models=Base.metadata).findings

    assert [(each.table, each.problem) for each in found] == [
        (f"{schema}.event_of_counter", "malformed-ids"),
        (f"{schema}.event_of_counter", "key-counter-behind"),
    ]
    assert "expected evt_ and" in found[0].message
    with engine.begin() as connection:
        connection.exec_driver_sql(f"DROP SCHEMA {schema} CASCADE")


@on("sqlite")
def test_clusters_replace_those_of_models(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """The cluster that is passed for a table replaces the one that its model has."""
    metadata, Depot, _ = models(cluster=10)
    create(metadata)
    with engine.begin() as connection:
        connection.execute(insert(Depot.__table__), {"id": ClusterKey.of(20, 1)})

    def outside(**options: Any) -> bool:
        report = audit.run(engine, tables=["depot"], models=metadata, **options)
        return bool({"keys-outside", "key-counter-outside"} & {each.problem for each in report.findings})

    assert (outside(), outside(clusters={"depot": 20}), outside(clusters={"depot_parcel": 20})) == (True, False, True)
