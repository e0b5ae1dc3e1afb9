"""fastapi-pagination: its pages of response models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient
from fastapi_pagination import Page, add_pagination
from fastapi_pagination.cursor import CursorPage
from fastapi_pagination.ext.sqlalchemy import paginate
from neighbours.models import ADA, FIRST, CustomerId, Order, OrderId
from sqlalchemy import select
from sqlalchemy.orm import Session

from sqlalchemy_public_id.ext.pydantic import PublicModel


class OrderOut(PublicModel, model=Order):
    public_id: OrderId
    customer_public_id: CustomerId


def test_fastapi_pagination(sessions: Callable[[], Session]) -> None:
    """Pages by number and by cursor show response models with their references."""
    app = FastAPI()

    @app.get("/orders", response_model=Page[OrderOut])
    def orders() -> Any:
        with sessions() as session:
            return paginate(session, select(Order).order_by(Order.id))

    @app.get("/cursor", response_model=CursorPage[OrderOut])
    def cursor() -> Any:
        with sessions() as session:
            return paginate(session, select(Order).order_by(Order.public_id))

    add_pagination(app)
    client = TestClient(app)
    items = [client.get(path).json()["items"] for path in ("/orders", "/cursor")]
    assert items == [[{"public_id": FIRST, "customer_public_id": ADA}]] * 2
