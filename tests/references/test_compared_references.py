"""References in SQL: comparisons, SELECT and ORDER BY, and references of a subclass or to the same table."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine, delete, func, select, text, update
from sqlalchemy.orm import Session, aliased
from support.marks import on
from support.orders import (
    ADDRESSES,
    CUSTOMERS,
    UNKNOWN,
    Address,
    Base,
    Customer,
    CustomerId,
    Node,
    Order,
    Rush,
    fill,
    notes,
    orders_in,
)
from support.shared_tables import filled_engine

from conftest import Statements

MALFORMED = ["", "nonsense", "rford_000000000000", "RFCUS_000000000000", "rfcus_00000000000\0", "a" * 100_000]

engine = filled_engine(Base.metadata, fill)


@pytest.mark.backend
def test_filter(db: Session) -> None:
    """Comparisons with a reference, and their negations, return what they would for a column."""
    everything = [f"{number:02}" for number in range(100)]
    first, rest = everything[:10], everything[10:]
    ref, billing = Order.customer_public_id, Order.billing_public_id

    assert notes(db, ref == CUSTOMERS[0]) == first
    assert notes(db, ref == str(CUSTOMERS[0])) == first
    assert notes(db, ref != CUSTOMERS[0]) == rest
    assert notes(db, ~(ref == CUSTOMERS[0])) == rest
    assert notes(db, ref.in_([CUSTOMERS[0], UNKNOWN])) == first
    assert notes(db, ref.not_in({CUSTOMERS[0], UNKNOWN})) == rest
    assert notes(db, ref.in_([])) == notes(db, ref == UNKNOWN) == []
    assert [text for text in MALFORMED if notes(db, ref == text) + notes(db, ref.in_([text])) != []] == []
    assert notes(db, ref != UNKNOWN) == notes(db, ref.not_in([UNKNOWN])) == everything
    assert notes(db, billing.is_(None)) == notes(db, billing == None) == everything[::3]  # noqa: E711
    assert len(notes(db, billing.is_not(None))) == len(notes(db, billing != UNKNOWN)) == 66
    assert len(notes(db, billing != ADDRESSES[1])) == len(notes(db, billing.not_in([ADDRESSES[1]]))) == 33
    assert len(notes(db, billing.is_distinct_from(ADDRESSES[1]))) == 67
    assert notes(db, ref.like("%3")) == everything[30:40]
    assert notes(db, billing == Order.shipping_public_id) == everything[1::3]
    assert notes(db, billing != Order.shipping_public_id) == []
    fourth = select(Customer.public_id).where(Customer.name == "customer 4").scalar_subquery()
    assert notes(db, ref == fourth) == everything[40:50]


@pytest.mark.backend
def test_select_and_sort(db: Session, statements: list[str]) -> None:
    """A reference can be selected, sorted and grouped like a column, together with the table that it refers to."""
    statements.clear()
    rows = db.execute(
        select(Order.note, Order.customer_public_id).order_by(Order.customer_public_id.desc(), Order.note)
    )
    assert [public_id for _, public_id in rows] == [CUSTOMERS[9 - number // 10] for number in range(100)]
    alone = db.scalars(select(Order.customer_public_id).order_by(Order.note)).all()
    assert alone == [CUSTOMERS[number // 10] for number in range(100)]
    assert {type(public_id) for public_id in alone} == {CustomerId}
    assert list(db.scalars(select(Order.billing_public_id).order_by(Order.note).limit(3))) == [None, *ADDRESSES[1:]]
    joined = select(Customer.public_id, Order.customer_public_id).join(Order.customer)
    assert all(one == other for one, other in db.execute(joined))
    counted = select(Order.customer_public_id.label("customer"), func.count()).group_by("customer")
    assert [tuple(row) for row in db.execute(counted.order_by("customer"))] == [(each, 10) for each in CUSTOMERS]
    sub = select(Order.customer_public_id).distinct().subquery()
    assert set(db.scalars(select(sub.c.customer_public_id))) == set(CUSTOMERS)


def test_subqueries(db: Session) -> None:
    """In a subquery, a reference of the enclosing statement is that of the current row."""
    second = select(Address.id).where(Address.public_id == Order.billing_public_id, Address.public_id == ADDRESSES[2])
    assert len(notes(db, second.exists())) == 33


@pytest.mark.backend
def test_aliases(db: Session) -> None:
    """References of two aliases of one table are kept apart."""
    one, other = aliased(Order), aliased(Order)
    query = select(func.count()).select_from(one).join(other, one.customer_public_id == other.customer_public_id)

    assert db.scalar(query.where(one.customer_public_id == CUSTOMERS[3], other.note == "30")) == 10
    assert db.scalars(select(other.customer_public_id).where(other.note == "55")).all() == [CUSTOMERS[5]]


def test_inheritance(db: Session, statements: list[str]) -> None:
    """A subclass has its own references and those of its superclass, which can be read, compared and assigned."""
    order = orders_in(db)[0]
    rush = Rush(note="rush", customer_public_id=CUSTOMERS[4], replaces_public_id=order.public_id)
    db.add(rush)
    db.flush()
    replaced = order.public_id
    db.expunge_all()
    rush = db.scalars(select(Rush)).one()

    assert (rush.customer_public_id, rush.replaces_public_id) == (CUSTOMERS[4], replaced)
    assert db.scalars(select(Rush.customer_public_id)).all() == [CUSTOMERS[4]]
    assert db.scalars(select(Rush.note).where(Rush.customer_public_id == CUSTOMERS[4])).all() == ["rush"]
    assert db.scalars(select(Rush.note).where(Rush.replaces_public_id == replaced)).all() == ["rush"]
    db.expunge_all()
    assert [order.customer_public_id for order in orders_in(db)][-2:] == [CUSTOMERS[9], CUSTOMERS[4]]


@pytest.mark.backend
def test_self_reference(db: Session, statements: Statements) -> None:
    """New nodes can refer to each other in any order without a SELECT; updates by a reference work on MySQL, too."""
    root = Node()
    child = Node(parent_public_id=root.public_id)
    leaf = Node(parent_public_id=child.public_id)
    statements.clear()
    db.add_all([leaf, child, root])
    db.flush()
    assert statements.starting("SELECT") == []
    assert (leaf.parent, child.parent) == (child, root)
    db.expire_all()

    assert (leaf.parent_public_id, child.parent_public_id) == (child.public_id, root.public_id)
    assert root.parent_public_id is None
    found = select(Node.public_id).where(Node.parent_public_id == root.public_id)
    assert db.scalars(found).all() == [child.public_id]
    assert db.scalars(select(Node.parent_public_id).where(Node.id == leaf.id)).all() == [child.public_id]
    cut = update(Node).where(Node.parent_public_id == child.public_id).values(parent_id=None)
    assert db.execute(cut).rowcount == 1
    assert db.execute(delete(Node).where(Node.parent_public_id == "nonsense")).rowcount == 0


INDEXES = {"postgresql": "Index", "mysql": "ndex lookup", "mariadb": "uq_customer_public_id"}


@pytest.mark.backend
@on(*INDEXES)
def test_a_comparison_uses_the_indexes(db: Session, engine: Engine) -> None:
    """The plan of a query for the orders of one customer uses an index, and scans no table."""
    if engine.dialect.name == "postgresql":
        db.execute(text("SET LOCAL enable_seqscan = off"))  # the tables are tiny
        db.execute(text('CREATE INDEX ON "order" (customer_fk)'))
    query = select(Order.id).where(Order.customer_public_id == CUSTOMERS[3])
    compiled = query.compile(engine, compile_kwargs={"literal_binds": True})
    plan = "\n".join(str(row) for row in db.execute(text(f"EXPLAIN {compiled}".replace(":", r"\:"))))

    assert INDEXES[engine.dialect.name] in plan
    assert "Seq Scan" not in plan
    assert "Table scan" not in plan
    assert "ALL" not in plan.split()
