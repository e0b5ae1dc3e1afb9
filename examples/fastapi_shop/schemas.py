"""Request and response models. A response model refuses a field that would show a key when it is declared."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, Field

from sqlalchemy_public_id.ext.pydantic import PublicModel

from .models import Customer, CustomerId, Line, LineId, Order, OrderId, Product, ProductId

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


class OrderChange(BaseModel):
    customer_public_id: CustomerId = Field(default=None)  # only what is set is changed
    note: Note = Field(default=None)


class OrderFilter(BaseModel):
    customer_public_id: CustomerId | None = None


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
