"""Strawberry: types generated from models, and public ids as the global ids of Relay."""
# Strawberry evaluates the annotations of fields, which use names that are local to a test

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import strawberry
from neighbours.models import ADA, FIRST, MALFORMED, NOBODY, Base, Customer, Order
from sqlalchemy import create_engine, select
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool
from strawberry import relay
from strawberry.extensions import MaskErrors
from strawberry_sqlalchemy_mapper import StrawberrySQLAlchemyMapper

from sqlalchemy_public_id import InvalidPublicId, PublicIdNotFound, PublicIdType, lookup
from sqlalchemy_public_id.testing import assert_no_keys_in


def test_types_of_models(sessions: Callable[[], Session]) -> None:
    """The mapper maps a public id to ``ID``; ``lookup.resolve`` implements the query ``node``."""
    mapper: Any = StrawberrySQLAlchemyMapper(extra_sqlalchemy_type_to_strawberry_type_map={PublicIdType: strawberry.ID})

    @mapper.type(Customer)
    class CustomerType:
        __exclude__ = ["id"]  # noqa: RUF012  # as its documentation writes it

    @mapper.type(Order)
    class OrderType:
        __exclude__ = ["id", "customer_id", "customer"]  # noqa: RUF012

        @strawberry.field
        def customer_public_id(self: Any) -> strawberry.ID:
            return self.customer_public_id

    @strawberry.type
    class Query:
        @strawberry.field
        def orders(self) -> list[OrderType]:
            with sessions() as session:
                orders = session.scalars(select(Order)).all()
                assert [order.customer_public_id for order in orders]
                return orders

        @strawberry.field
        def node(self, id: strawberry.ID) -> CustomerType | OrderType | None:
            with sessions() as session:
                return lookup.resolve(session, id, base=Base)

    mapper.finalize()
    schema = strawberry.Schema(Query, types=list(mapper.mapped_types.values()))
    result = schema.execute_sync("{ orders { publicId customerPublicId total } }")
    assert result.data == {"orders": [{"publicId": FIRST, "customerPublicId": ADA, "total": 950}]}
    assert "publicId: ID!" in schema.as_str()
    texts = ADA, FIRST, NOBODY, MALFORMED, "1"
    found = [schema.execute_sync(f'{{ node(id: "{text}") {{ __typename }} }}') for text in texts]
    nodes = [{"__typename": "CustomerType"}, {"__typename": "OrderType"}, None, None, None]
    assert [(each.errors, each.data) for each in found] == [(None, {"node": node}) for node in nodes]


def test_relay(sessions: Callable[[], Session]) -> None:
    """A node of Relay has the public id as its id, and is fetched in one statement."""

    @strawberry.type
    class CustomerNode(relay.Node):
        public_id: relay.NodeID[str]
        name: str

        @classmethod
        def resolve_nodes(cls, *, info: Any, node_ids: Iterable[str], required: bool = False) -> Any:
            with sessions() as session:
                ids = list(node_ids)
                rows = lookup.get_many(session, Customer, ids)
                return [cls(public_id=id, name=rows[id].name) if id in rows else None for id in ids]

    @strawberry.type
    class Query:
        node: relay.Node | None = relay.node()

    schema = strawberry.Schema(Query, types=[CustomerNode])
    query = "query ($id: ID!) { node(id: $id) { id ... on CustomerNode { name } } }"
    ids = [relay.to_base64("CustomerNode", text) for text in (ADA, MALFORMED)]
    data = [schema.execute_sync(query, {"id": id}).data for id in ids]
    assert data == [{"node": {"id": ids[0], "name": "Ada"}}, {"node": None}]


@pytest.mark.parametrize("is_hidden", [False, True])
def test_keys_in_errors(is_hidden: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Strawberry answers with the text of an error, which has keys; masked, only errors about public ids have a text.

    The log has the error as it is, so that keys are missing in it only with ``hide_parameters=True``.
    """
    engine = create_engine(
        "sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False}, hide_parameters=is_hidden
    )
    Base.metadata.create_all(engine)
    session = Session(engine)
    ada = Customer(id=777001, public_id=ADA, name="Ada")
    session.add(ada)
    session.commit()

    @strawberry.type
    class Query:
        @strawberry.field
        def name(self, customer: strawberry.ID) -> str:
            return lookup.get_one(session, Customer, customer).name

    @strawberry.type
    class Mutation:
        @strawberry.mutation
        def order(self, id: strawberry.ID, customer: strawberry.ID) -> strawberry.ID:
            with session.begin_nested():
                order = Order(public_id=id, total=1, customer_public_id=customer)
                session.add(order)
            return order.public_id

    def is_internal(error: Any) -> bool:
        return not isinstance(error.original_error, (InvalidPublicId, PublicIdNotFound))

    taken = f'mutation {{ order(id: "{FIRST}", customer: "{ADA}") }}'
    unknown = f'{{ name(customer: "{NOBODY}") }}'
    plain = strawberry.Schema(Query, Mutation)
    masked = strawberry.Schema(Query, Mutation, extensions=[lambda: MaskErrors(is_internal)])
    assert plain.execute_sync(taken).errors is None
    texts = [str(schema.execute_sync(taken).errors) for schema in (plain, masked)]
    assert ("777001" in texts[0], "INSERT" in texts[0]) == (not is_hidden, True)
    assert "Unexpected error." in texts[1]
    assert_no_keys_in(texts[1], [ada])
    assert "INSERT" not in texts[1]
    assert f"no Customer has the public id '{NOBODY}'" in str(masked.execute_sync(unknown).errors)
    assert ("777001" in caplog.text) == (not is_hidden)
    session.close()
    engine.dispose()
