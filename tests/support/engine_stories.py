"""Steps that every engine with partitions or shards is taken through, by a program that uses each part of the library.

``tests/nodes/test_partitions_and_shards.py`` starts the engines, and says which steps each of them cannot do, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy import (
    Connection,
    Engine,
    ForeignKeyConstraint,
    MetaData,
    String,
    Table,
    event,
    func,
    insert,
    select,
    true,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from sqlalchemy_public_id import ImmutablePublicId, NanoId, PublicIdColumnMixin, bigint_key, bulk, lookup, references
from sqlalchemy_public_id.errors import AmbiguousPublicId, IdempotencyConflict, PublicIdNotFound
from sqlalchemy_public_id.idempotency import insert_once
from sqlalchemy_public_id.references import public_ref

__all__ = ["STEPS", "TENANTS", "Place", "take"]

TENANTS = range(1, 5)
"""Each has rows in another partition or shard than its neighbor."""


class Base(DeclarativeBase):
    metadata = MetaData()


class Buyer(PublicIdColumnMixin, Base):
    """A model whose keys and ids belong to a tenant."""

    __tablename__ = "buyer_in_parts"
    __public_id__ = NanoId(prefix="byp")
    __public_id_unique_with__ = ("tenant_id",)
    id: Mapped[int] = bigint_key()
    tenant_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str | None] = mapped_column(String(40))


class Purchase(PublicIdColumnMixin, Base):
    """A model that refers to a buyer of its tenant."""

    __tablename__ = "purchase_in_parts"
    __public_id__ = NanoId(prefix="pup")
    __public_id_unique_with__ = ("tenant_id",)
    id: Mapped[int] = bigint_key()
    tenant_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    buyer_id: Mapped[int | None] = mapped_column(Buyer.__table__.c.id.type)
    buyer: Mapped[Buyer | None] = relationship()
    buyer_public_id: Mapped[str | None] = public_ref("buyer")
    __table_args__ = (
        ForeignKeyConstraint(["buyer_id", "tenant_id"], ["buyer_in_parts.id", "buyer_in_parts.tenant_id"]),
    )


class Seat(PublicIdColumnMixin, Base):
    """A model with ten possible ids, so that they collide."""

    __tablename__ = "seat_in_parts"
    __public_id__ = NanoId(1, alphabet="0123456789", prefix="sep")
    __public_id_unique_with__ = ("tenant_id",)
    id: Mapped[int] = bigint_key()
    tenant_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


@dataclass(frozen=True)
class Place:
    """An engine, and the DDL that divides its tables."""

    engine: Engine
    count_in_parts: Callable[[], list[int]]
    """Counts the buyers in each partition or shard."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of each table; ``{table}`` is its name."""
    after_create: Callable[[str], list[str]] = lambda table: []
    """The statements that follow the CREATE TABLE of this table."""
    has_foreign_keys: bool = True

    shards: Sequence[Engine] = ()
    """The servers that store the rows, if they can also be written directly."""

    @property
    def tables(self) -> MetaData:
        """The tables of all models, as they are created there."""
        return self.divided(Base.metadata)

    def divided(self, models: MetaData) -> MetaData:
        """Return a copy of the tables; those with a tenant are created with the options, and divided afterwards."""
        copied = MetaData()
        for table in models.sorted_tables:
            copy = table.to_metadata(copied)
            if "tenant_id" in copy.c:
                for name, value in self.options.items():
                    copy.dialect_kwargs[name] = value.format(table=table.name)
                event.listen(copy, "after_create", self._divide)
            if not self.has_foreign_keys:
                copy.constraints -= copy.foreign_key_constraints
        return copied

    def _divide(self, table: Table, connection: Connection, **_: Any) -> None:
        """Run after a CREATE TABLE."""
        for statement in self.after_create(table.name):
            connection.exec_driver_sql(statement)


# --- the steps


def buyers(session: Session, tenant: int, count: int = 3) -> list[Buyer]:
    """Return new buyers, who are stored."""
    made = [Buyer(tenant_id=tenant, name=f"{tenant}: {number}") for number in range(count)]
    for each in made:  # one by one: another step tells whether a flush of many gets the right keys
        session.add(each)
        session.flush()
    return made


def check_stored(session: Session, objects: list[Any]) -> None:
    """Each object is the only row with its id in its tenant, and has the key and values of this row."""
    session.flush()
    for tenant in {each.tenant_id for each in objects}:
        model = type(objects[0])
        columns = [model.public_id, model.id, *([model.name] if model is Buyer else [])]
        stored = session.execute(select(*columns).where(model.tenant_id == tenant)).all()
        expected = [each for each in objects if each.tenant_id == tenant]
        found = {public_id: tuple(rest) for public_id, *rest in stored}
        assert len(found) == len(stored), f"two rows of tenant {tenant} have one id"
        wrong = [
            (each.public_id, each.id, found.get(each.public_id))
            for each in expected
            if found.get(each.public_id) != ((each.id, each.name) if model is Buyer else (each.id,))
        ]
        assert not wrong, f"{len(wrong)} of {len(expected)} objects have not the key of their row: {wrong[:3]}"


def create_all(session: Session, place: Place) -> None:
    """The tables are created, and a second create_all changes nothing."""
    place.tables.create_all(place.engine)
    assert session.scalar(select(func.count()).select_from(Buyer)) == 0


def flush_one(session: Session, place: Place) -> None:
    """A flush of one row."""
    for tenant in TENANTS:
        ada = Buyer(tenant_id=tenant, name="Ada")
        session.add(ada)
        check_stored(session, [ada])


def flush_many(session: Session, place: Place) -> None:
    """A flush of 200 rows of all tenants."""
    every = [Buyer(tenant_id=TENANTS[number % 4], name=str(number)) for number in range(200)]
    session.add_all(every)
    check_stored(session, every)


def given_ids(session: Session, place: Place) -> None:
    """Ids that the program gives are stored; one that its tenant has is refused."""
    ids = Buyer.__public_id__.generate_many(8)
    every = [Buyer(tenant_id=TENANTS[at % 4], public_id=text, name=text) for at, text in enumerate(ids)]
    session.add_all(every)
    check_stored(session, every)
    assert [each.public_id for each in every] == ids
    session.commit()
    session.add(Buyer(tenant_id=TENANTS[0], public_id=ids[0]))
    with pytest.raises(IntegrityError):
        session.flush()
    session.rollback()


def collide_one_by_one(session: Session, place: Place) -> None:
    """A generated id that the tenant has is replaced, until it has all ten."""
    every = []
    for tenant in TENANTS[:2]:
        for _ in range(10):
            every.append(Seat(tenant_id=tenant))
            session.add(every[-1])
            session.flush()
    check_stored(session, every)


def collide_many(session: Session, place: Place) -> None:
    """Rows of one flush get ids that neither their tenant nor the other rows have, until two tenants have eight."""
    every: list[Seat] = []
    for _ in range(4):
        more = [Seat(tenant_id=tenant) for tenant in TENANTS[:2] for _ in range(2)]
        session.add_all(more)
        session.flush()
        every += more
    check_stored(session, every)


def equal_ids_of_two_tenants(session: Session, place: Place) -> None:
    """Two tenants have rows with one id, in one flush and in one bulk insert."""
    for write in (session.add_all, lambda rows: bulk.insert(session, rows)):
        ids = Buyer.__public_id__.generate_many(3)
        every = [Buyer(tenant_id=tenant, public_id=text, name=text) for text in ids for tenant in TENANTS]
        write(every)
        check_stored(session, every)


def bulk_insert(session: Session, place: Place) -> None:
    """A bulk insert of 5,000 rows fills in the keys of all."""
    every = [Buyer(tenant_id=TENANTS[number % 4], name=str(number)) for number in range(5_000)]
    bulk.insert(session, every)
    check_stored(session, every)


def names_of(session: Session) -> list[str]:
    ids = session.execute(select(Buyer.name, Buyer.tenant_id, Buyer.public_id)).all()
    assert len({tuple(row[1:]) for row in ids}) == len(ids)
    assert all(Buyer.__public_id__.validate(row.public_id) for row in ids)
    return sorted(row.name for row in ids)


def execute_many(session: Session, place: Place) -> None:
    """An INSERT with a list of parameters, of the model and of its table."""
    for target in (Buyer, Buyer.__table__):
        session.execute(
            insert(target), [{"tenant_id": TENANTS[number % 4], "name": f"{number}"} for number in range(300)]
        )
    assert names_of(session) == sorted([str(number) for number in range(300)] * 2)


def values(session: Session, place: Place) -> None:
    """An INSERT with several rows in VALUES."""
    rows = [{"tenant_id": TENANTS[number % 4], "name": f"{number}"} for number in range(300)]
    for target in (Buyer, Buyer.__table__):
        session.execute(insert(target).values(rows))
    assert names_of(session) == sorted([str(number) for number in range(300)] * 2)


def get(session: Session, place: Place) -> None:
    """A lookup finds the row of the tenant it names, and only this one."""
    [ada], [other] = buyers(session, 1, 1), buyers(session, 2, 1)
    session.add(Buyer(tenant_id=2, public_id=ada.public_id, name="of the other tenant"))
    session.flush()
    session.expunge_all()
    found = lookup.get(session, Buyer, ada.public_id, where=Buyer.tenant_id == 1)
    assert found is not None
    assert (found.tenant_id, found.name) == (1, ada.name)
    assert lookup.get(session, Buyer, other.public_id, where=Buyer.tenant_id == 1) is None
    with pytest.raises(AmbiguousPublicId):
        lookup.get(session, Buyer, ada.public_id, where=true())


def get_many_and_keys(session: Session, place: Place) -> None:
    """get_many and keys_of answer for the tenant that they are told."""
    ours, theirs = buyers(session, 1, 20), buyers(session, 2, 20)
    session.add(Buyer(tenant_id=2, public_id=ours[0].public_id, name="of the other tenant"))
    session.flush()
    ids = [each.public_id for each in [*ours, *theirs]]
    expected = {each.public_id: each for each in ours}
    assert lookup.get_many(session, Buyer, ids, where=Buyer.tenant_id == 1) == expected
    keys = {public_id: (each.id, 1) for public_id, each in expected.items()}
    assert lookup.keys_of(session, Buyer, ids, where=Buyer.tenant_id == 1) == keys


def resolve(session: Session, place: Place) -> None:
    """An id leads to the row of its model."""
    [ada] = buyers(session, 1, 1)
    session.expunge_all()
    found = lookup.resolve(session, ada.public_id, base=Base, where=Buyer.tenant_id == 1)
    assert isinstance(found, Buyer)
    assert found.id == ada.id
    assert lookup.resolve(session, ada.public_id, base=Base, where=Buyer.tenant_id == 2) is None


def pages(session: Session, place: Place) -> None:
    """Pages, sorted by key and by a column, contain each row of the tenant once."""
    ours = buyers(session, 1, 12)
    session.add_all(Buyer(tenant_id=2, public_id=each.public_id, name=each.name) for each in ours[:6])
    session.flush()
    for order_by in (None, Buyer.name.desc()):
        seen: list[Buyer] = []
        after = None
        for _ in range(3):
            page = lookup.page(session, Buyer, limit=5, after=after, order_by=order_by, where=Buyer.tenant_id == 1)
            seen += page
            after = page.next
        assert after is None
        assert seen == (sorted(ours, key=lambda each: each.name, reverse=True) if order_by is not None else ours)


def refer(session: Session, place: Place) -> None:
    """A reference stores the key of its tenant's row, and shows its id."""
    [ada], [other] = buyers(session, 1, 1), buyers(session, 2, 1)
    purchase = Purchase(tenant_id=1, buyer_public_id=ada.public_id)
    session.add(purchase)
    session.flush()
    assert purchase.buyer_id == ada.id
    session.expunge_all()
    purchases = session.scalars(select(Purchase)).all()
    references.load(session, purchases)
    assert [each.buyer_public_id for each in purchases] == [ada.public_id]
    assert session.scalars(select(Purchase.buyer_public_id)).all() == [ada.public_id]
    session.add(Purchase(tenant_id=1, buyer_public_id=other.public_id))
    with pytest.raises(PublicIdNotFound):
        session.flush()
    session.rollback()


def keep_foreign_keys(session: Session, place: Place) -> None:
    """The database refuses a key of another tenant's row."""
    [_], [other] = buyers(session, 1, 1), buyers(session, 2, 1)
    with pytest.raises(IntegrityError):
        session.execute(insert(Purchase), [{"tenant_id": 1, "buyer_id": other.id}])
    session.rollback()


def insert_twice(session: Session, place: Place) -> None:
    """Requests that are repeated find the row of their tenant; with another value, they are refused."""
    text = Buyer.__public_id__.generate()
    for tenant in TENANTS[:2]:
        for is_new in (True, False):
            ada, was_new = insert_once(session, Buyer(tenant_id=tenant, public_id=text, name="Ada"))
            assert (ada.tenant_id, was_new) == (tenant, is_new)
            session.commit()
        with pytest.raises(IdempotencyConflict):
            insert_once(session, Buyer(tenant_id=tenant, public_id=text, name="Grace"))
        session.rollback()
    assert sorted(session.scalars(select(Buyer.tenant_id))) == [*TENANTS[:2]]


def insert_twice_at_once(session: Session, place: Place) -> None:
    """One transaction may call insert_once several times, after other statements."""
    buyers(session, 1, 1)
    text = Buyer.__public_id__.generate()
    first, _ = insert_once(session, Buyer(tenant_id=1, public_id=text, name="Ada"))
    assert insert_once(session, Buyer(tenant_id=1, public_id=text, name="Ada")) == (first, False)


def refuse_updates(session: Session, place: Place) -> None:
    """The id of a stored row cannot change."""
    [ada] = buyers(session, 1, 1)
    session.commit()
    with pytest.raises(ImmutablePublicId):
        ada.public_id = Buyer.__public_id__.generate()
        session.flush()
    session.rollback()
    session.add(ada)
    ada.name = "Grace"
    session.commit()
    assert session.scalars(select(Buyer.name)).all() == ["Grace"]


def roll_back(session: Session, place: Place) -> None:
    """What was rolled back is gone; the object keeps its id, and can be stored again."""
    [ada] = buyers(session, 1, 1)
    session.commit()
    session.add(grace := Buyer(tenant_id=2, name="Grace"))
    session.flush()
    text = grace.public_id
    session.rollback()
    assert session.scalars(select(Buyer.name)).all() == [ada.name]
    session.add(grace)
    session.commit()
    assert grace.public_id == text
    assert sorted(session.scalars(select(Buyer.name))) == sorted(["Grace", ada.name])


def roll_back_to_savepoint(session: Session, place: Place) -> None:
    """What a savepoint rolled back is gone, and what came before it is stored."""
    [ada] = buyers(session, 1, 1)
    savepoint = session.begin_nested()
    session.add(Buyer(tenant_id=2, name="Grace"))
    session.flush()
    savepoint.rollback()
    session.commit()
    assert session.scalars(select(Buyer.name)).all() == [ada.name]


STEPS: dict[str, Callable[[Session, Place], None]] = {
    "create_all": create_all,
    "flush of one row": flush_one,
    "flush of many rows": flush_many,
    "given ids": given_ids,
    "collisions one by one": collide_one_by_one,
    "collisions in a flush": collide_many,
    "equal ids of two tenants": equal_ids_of_two_tenants,
    "bulk insert": bulk_insert,
    "executemany": execute_many,
    "VALUES": values,
    "get": get,
    "get_many and keys_of": get_many_and_keys,
    "resolve": resolve,
    "pages": pages,
    "references": refer,
    "insert_once": insert_twice,
    "insert_once later in a transaction": insert_twice_at_once,
    "updates refused": refuse_updates,
    "rollback": roll_back,
    "savepoint": roll_back_to_savepoint,
    "foreign keys": keep_foreign_keys,
}


def take(name: str, place: Place) -> None:
    """Take the step of this name with empty tables."""
    with place.engine.begin() as connection:
        for table in reversed(Base.metadata.sorted_tables):
            connection.execute(table.delete())
    with Session(place.engine) as session:
        STEPS[name](session, place)
        session.commit()
