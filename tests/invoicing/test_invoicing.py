"""Both services return the same responses, and the library sends no more statements than ``MORE`` allows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest
from fastapi import FastAPI
from invoicing import app as with_the_library
from invoicing import by_hand
from invoicing.models import Base, Customer, Organization, PaymentId, Product
from sqlalchemy import Engine
from sqlalchemy.orm import Session

pytestmark = pytest.mark.backend

PAGE = Path(__file__).parents[2] / "docs/background/how-it-is-fast.md"
"""The page with the table for PostgreSQL."""

MORE = {
    # reads the row that the invoice refers to, because a hidden row may be assigned again
    "a customer of another organization for it": dict.fromkeys(["sqlite", "postgresql", "mysql", "mariadb"], 1),
    # BEGIN IMMEDIATE; a lock that serializes repetitions, and its release
    "a payment": {"sqlite": 1, "mysql": 2, "mariadb": 2},
    # reads the public id of the invoice; the service by hand assumes the one in the request
    "the payment again": {"sqlite": 2, "postgresql": 1, "mysql": 2, "mariadb": 2},
}
"""How many more statements the library sends for a request, and why."""


@dataclass
class Sample:
    """The public ids of an organization and its rows, and of a customer of another organization."""

    ours: str
    customers: list[str]
    products: list[str]
    of_others: str


def sample_of(session: Session) -> Sample:
    ours, others = Organization(name="Ours"), Organization(name="Others")
    session.add_all([ours, others])
    session.flush()
    customers = [Customer(organization_id=ours.id, name=name) for name in ("Ada", "Grace")]
    products = [Product(organization_id=ours.id, name=f"Product {n}", cents=100 * n) for n in range(5)]
    stranger = Customer(organization_id=others.id, name="Eve")
    session.add_all([*customers, *products, stranger])
    session.commit()
    ids = [each.public_id for each in (*customers, *products)]
    return Sample(ours.public_id, ids[:2], ids[2:], stranger.public_id)


Request: TypeAlias = Callable[..., tuple[str, httpx.Response, int]]
"""Sends a request with a description, and returns the description, the response, and the number of statements."""


def story(send: Request, sample: Sample) -> Iterator[tuple[str, httpx.Response, int]]:
    """Yield the description, the response, and the number of statements of each request."""
    ada, grace = sample.customers
    lines = [{"product_public_id": product, "quantity": 2} for product in sample.products]
    invoice = {"customer_public_id": ada, "note": "by noon", "lines": lines}
    yield send("a customer", "GET", f"/customers/{ada}")
    yield send("a customer of another organization", "GET", f"/customers/{sample.of_others}")
    # on PostgreSQL, the first INSERT into a table queries the catalog once for triggers
    old, made, last = [send("an invoice with five lines, posted", "POST", "/invoices", json=invoice) for _ in range(3)]
    yield last
    number = made[1].json()["public_id"]
    yield send("an invoice with five lines", "GET", f"/invoices/{number}")
    first = send("the first page of invoices", "GET", "/invoices", params={"limit": 2})
    yield first
    yield send("the next page", "GET", "/invoices", params={"limit": 2, "after": first[1].json()["next"]})
    yield send("another customer for an invoice", "PATCH", f"/invoices/{number}", json={"customer_public_id": grace})
    stranger = {"customer_public_id": sample.of_others}
    yield send("a customer of another organization for it", "PATCH", f"/invoices/{number}", json=stranger)
    payment = {"invoice_public_id": number, "cents": 500}
    send("a payment", "PUT", f"/payments/{PaymentId()}", json=payment)
    path = f"/payments/{PaymentId()}"
    yield send("a payment", "PUT", path, json=payment)
    yield send("the payment again", "PUT", path, json=payment)
    yield send("an invoice with five lines, deleted", "DELETE", f"/invoices/{old[1].json()['public_id']}")


def shape_of(response: httpx.Response, sample: Sample) -> Any:
    """Return the response with positions instead of ids; for an error, only the status."""
    if response.status_code >= 400 or not response.content:
        return response.status_code
    places = {each: place for place, each in enumerate([*sample.customers, *sample.products])}
    text = re.sub(r"iv\w{3}_\w{12}", lambda match: str(places.get(match[0], match[0][:6])), response.text)
    return response.status_code, text


def test_answers_and_statements(engine: Engine, send: Callable[..., httpx.Response], statements: Any) -> None:
    """The responses are equal, and the library sends no more statements than the other service plus ``MORE``."""

    def sender(app: FastAPI, sample: Sample) -> Request:
        def request(what: str, method: str, path: str, **options: Any) -> tuple[str, httpx.Response, int]:
            statements.clear()
            response = send(app, method, path, headers={"X-Organization": sample.ours}, **options)
            return what, response, len(statements)

        return request

    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    try:
        with Session(engine) as session:
            samples = [sample_of(session), sample_of(session)]
        apps = [with_the_library.create_app(engine), by_hand.create_app(engine)]
        stories = [list(story(sender(app, sample), sample)) for app, sample in zip(apps, samples, strict=True)]
    finally:
        Base.metadata.drop_all(engine)

    shapes = [
        {what: shape_of(answer, sample) for what, answer, _ in told}
        for told, sample in zip(stories, samples, strict=True)
    ]
    assert shapes[0] == shapes[1]
    rows = [(what, count, by_hand) for (what, _, count), (_, _, by_hand) in zip(*stories, strict=True)]
    assert [row for row in rows if row[1] > row[2] + MORE.get(row[0], {}).get(engine.name, 0)] == []
    if engine.name == "postgresql":
        assert "".join(f"| {what} | {count} | {by_hand} |\n" for what, count, by_hand in rows) in PAGE.read_text()
