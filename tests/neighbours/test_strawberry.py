"""Strawberry: types generated from models, and public ids as the global ids of Relay."""
# Strawberry evaluates the annotations of fields, which use names that are local to a test

from collections.abc import Callable, Iterable
from typing import Any

import strawberry
from sqlalchemy import select
from sqlalchemy.orm import Session
from strawberry import relay
from strawberry_sqlalchemy_mapper import StrawberrySQLAlchemyMapper
from support.neighbour_models import ADA, FIRST, MALFORMED, NOBODY, Base, Customer, Order

from sqlalchemy_public_id import PublicIdType, lookup


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
