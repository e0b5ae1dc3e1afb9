"""Request and response models. A response model refuses a field that would show a key when it is declared."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, Field

from examples.fastapi_shop.models import Customer, CustomerId, Line, LineId, Order, OrderId, Product, ProductId
from sqlalchemy_public_id.ext.pydantic import PublicModel

T = TypeVar("T")

NO_NUL = r"^[^\x00]*$"  # PostgreSQL stores no such character
Name = Annotated[str, Field(min_length=1, max_length=100, pattern=NO_NUL)]
Note = Annotated[str, Field(max_length=200, pattern=NO_NUL)]
Quantity = Annotated[int, Field(ge=1, le=1000)]


class CustomerIn(BaseModel):
    name: Name


class CustomerOut(PublicModel, model=Customer):
    public_id: CustomerId
    name: str


class ProductOut(PublicModel, model=Product):
    public_id: ProductId
    name: str
    price: Decimal


class OrderIn(BaseModel):
    customer_public_id: CustomerId
    note: Note = ""


class OrderOut(PublicModel, model=Order):
    public_id: OrderId
    customer_public_id: CustomerId
    note: str


class LineIn(BaseModel):
    product_public_id: ProductId
    quantity: Quantity


class LineOut(PublicModel, model=Line):
    public_id: LineId
    order_public_id: OrderId
    product_public_id: ProductId
    quantity: int


class Page(BaseModel, Generic[T]):
    """Rows, and the public ids for the next request: ``after=next`` or ``before=previous``."""

    items: list[T]
    next: str | None
    previous: str | None
