"""Unknown ids in FastAPI: the answer names the place in the request, or is a fault of the server."""
# FastAPI reads the annotations of routes, which name what is local to a function: they must not be put off

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from pydantic import BaseModel
from sqlalchemy import Engine, ForeignKey, MetaData
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from sqlalchemy_public_id import ConfigurationError, PublicIdMixin, PublicIdNotFound, TypedId, lookup, public_ref
from sqlalchemy_public_id.ext.fastapi import install

FORM_LIKE = {"Content-Type": "application/vnd.platform+json"}
UNKNOWN = "nbprod_000000000000"
MALFORMED = "nbprod_x"


class Base(DeclarativeBase):
    metadata = MetaData()


class ProductId(TypedId, prefix="nbprod"): ...


class Product(PublicIdMixin[ProductId], Base):
    __tablename__ = "product"


class Invoice(PublicIdMixin, Base):
    __tablename__ = "invoice"
    lines: Mapped[list["Line"]] = relationship(back_populates="invoice")


class Line(PublicIdMixin, Base):
    __tablename__ = "line"
    invoice_id: Mapped[int] = mapped_column(ForeignKey(Invoice.id))
    invoice: Mapped[Invoice] = relationship(back_populates="lines")
    product_id: Mapped[int] = mapped_column(ForeignKey(Product.id))
    product: Mapped[Product] = relationship()
    product_public_id: Mapped[ProductId] = public_ref("product")


class LineIn(BaseModel):
    product_public_id: ProductId


class InvoiceIn(BaseModel):
    lines: list[LineIn]


@pytest.fixture
def app(engine: Engine, create: Callable[[MetaData], None]) -> FastAPI:
    """An application that takes invoices, and has two routes whose ids come from its own settings."""
    create(Base.metadata)
    app = FastAPI()
    install(app)

    @app.post("/invoices")
    def add_invoice(new: InvoiceIn) -> None:
        with Session(engine) as session:
            session.add(Invoice(lines=[Line(**line.model_dump()) for line in new.lines]))
            session.commit()

    @app.get("/assigns")
    def assign_configured_id() -> None:
        with Session(engine) as session:
            session.add(Invoice(lines=[Line(product_public_id=UNKNOWN)]))
            session.commit()

    @app.get("/looks-up")
    def look_up_configured_id() -> None:
        with Session(engine) as session:
            lookup.get_one(session, Product, UNKNOWN)

    return app


@pytest.mark.parametrize("wrong", [MALFORMED, UNKNOWN])
def test_place_in_a_nested_body(engine: Engine, app: FastAPI, send: Callable[..., httpx.Response], wrong: str) -> None:
    """The answer to a wrong id in the second of two lines names this line, for a malformed and for an unknown id."""
    with Session(engine) as session:
        session.add(product := Product())
        session.commit()
        right = product.public_id

    body = {"lines": [{"product_public_id": right}, {"product_public_id": wrong}]}
    response = send(app, "POST", "/invoices", json=body)

    assert (
        response.status_code,
        response.json()["detail"][0]["loc"],
    ) == (422, ["body", "lines", 1, "product_public_id"])


@pytest.mark.parametrize("path", ["/assigns", "/looks-up"])
@pytest.mark.parametrize("problem_details", [False, True])
def test_wrong_ids_of_the_application(engine: Engine, app: FastAPI, path: str, problem_details: bool) -> None:
    """An unknown id that is not in the request is an error of the server, which its log shows with the cause."""
    install(app, problem_details=problem_details)
    transport = httpx.ASGITransport(app)  # which raises what the server would log

    async def request() -> None:
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            await client.get(path)

    with pytest.raises(ConfigurationError, match=f"no client has sent: .*{UNKNOWN}") as caught:
        asyncio.run(asyncio.wait_for(request(), 30))

    assert isinstance(caught.value.__cause__, PublicIdNotFound)


def test_answer_to_wrong_ids_of_the_application(app: FastAPI, send: Callable[..., httpx.Response]) -> None:
    """The client learns nothing of it."""
    response = send(app, "GET", "/looks-up")

    assert (response.status_code, response.text) == (500, "Internal Server Error")


@pytest.mark.parametrize(
    ("method", "path", "sent", "place"),
    [
        ("POST", "/orders", {"json": {"note": "x", "product": UNKNOWN}}, ["body", "product"]),
        ("POST", "/orders", {"json": {"product": UNKNOWN.upper()}}, ["body", "product"]),
        ("POST", f"/orders/{UNKNOWN}", {"json": {"note": "x"}}, ["path", "product_id"]),
        ("GET", f"/orders?product_public_id={UNKNOWN}", {}, ["query", "product_public_id"]),
        ("GET", "/orders", {"headers": {"X-Product": UNKNOWN}}, ["header", "x-product"]),
        ("GET", f"/orders?x={UNKNOWN}&product_public_id={UNKNOWN}", {}, ["query", "product_public_id"]),
        ("POST", "/orders", {"content": b"[" * 100_000}, ["body", "product_public_id"]),
        ("POST", "/orders", {"content": b"\x81\xa1"}, ["body", "product_public_id"]),
        ("POST", "/orders", {"json": {"products": f"nbprod_abcdefghijkl,{UNKNOWN}"}}, ["body", "products"]),
        ("POST", "/orders", {"content": f'{{"product": "{UNKNOWN}"}}', "headers": FORM_LIKE}, ["body", "product"]),
        ("POST", "/orders", {"json": {UNKNOWN: 2}}, ["body", UNKNOWN]),
        ("POST", "/orders", {"json": {"number": UNKNOWN.partition("_")[2]}}, ["body", "number"]),
        ("GET", "/orders", {"auth": (UNKNOWN, "secret")}, ["header", "authorization"]),
        ("POST", "/orders", {"files": {"list": UNKNOWN.encode()}}, ["body", "product_public_id"]),
        ("POST", "/orders", {"json": {"a": ["a" * 20_000] * 20, "b": [0] * 5000, "c": UNKNOWN}}, ["body", "c"]),
        ("POST", "/orders", {"json": {"product": UNKNOWN.replace("_", "-").replace("0", "O")}}, ["body", "product"]),
    ],
)
def test_places(send: Callable[..., httpx.Response], method: str, path: str, sent: dict[str, Any], place: Any) -> None:
    """The place is that of the request, whatever the attribute of the model is called; without one, the attribute."""
    app = FastAPI()
    install(app)

    @app.api_route("/orders", methods=["GET", "POST"])
    @app.post("/orders/{product_id}")
    async def order(request: Request) -> None:
        raise PublicIdNotFound(ProductId(UNKNOWN), model="Product", field="Line.product_public_id")

    response = send(app, method, path, **sent)

    assert (response.status_code, response.json()["detail"][0]["loc"]) == (422, place)


def test_null(engine: Engine, app: FastAPI, send: Callable[..., httpx.Response]) -> None:
    """A null for a reference that is never null names the field of the request, and not the key column."""

    class LinePatch(BaseModel):
        product: ProductId | None

    @app.patch("/lines")
    def change_line(new: LinePatch) -> None:
        Line().product_public_id = new.product

    response = send(app, "PATCH", "/lines", json={"product": None})
    [detail] = response.json()["detail"]

    assert (response.status_code, detail["loc"]) == (422, ["body", "product"])
    assert detail["msg"].startswith("not a public id: it is never null")
    assert "product_id" not in response.text
