"""The service without the library, on the same tables, as a careful author would write it.

It does not retry collisions, its pages have one order and no way back, and it does not compare a repeated request
with the row.
"""
# annotations are not postponed: FastAPI evaluates those of routes, which use names that are local to a function

import secrets
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, ClassVar, TypeAlias

from fastapi import Body, Depends, FastAPI, Header, HTTPException, Response
from sqlalchemy import BigInteger, Engine, ForeignKey, String, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    contains_eager,
    joinedload,
    mapped_column,
    relationship,
    selectinload,
)

LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


def new_id(prefix: str, length: int = 12) -> str:
    return prefix + "".join(secrets.choice(LETTERS) for _ in range(length))


class Base(DeclarativeBase):
    type_annotation_map: ClassVar[dict[Any, Any]] = {str: String(100)}


def public_id(prefix: str, length: int = 12) -> Any:
    return mapped_column(String(30), unique=True, default=partial(new_id, prefix, length))


class Organization(Base):
    __tablename__ = "iv_organization"
    id: Mapped[int] = mapped_column(primary_key=True)
    public_id: Mapped[str] = public_id("ivorg_")


class OfAnOrganization:
    id: Mapped[int] = mapped_column(primary_key=True)
    organization_id: Mapped[int] = mapped_column(ForeignKey(Organization.id))


class Customer(OfAnOrganization, Base):
    __tablename__ = "iv_customer"
    public_id: Mapped[str] = public_id("ivcus_")
    name: Mapped[str]


class Product(OfAnOrganization, Base):
    __tablename__ = "iv_product"
    public_id: Mapped[str] = public_id("ivpro_")


class Invoice(OfAnOrganization, Base):
    __tablename__ = "iv_invoice"
    public_id: Mapped[str] = public_id("ivinv_")
    note: Mapped[str]
    customer_id: Mapped[int] = mapped_column(ForeignKey(Customer.id))
    customer: Mapped[Customer] = relationship()
    lines: Mapped[list["Line"]] = relationship(order_by="Line.id", cascade="all, delete-orphan")


class Line(OfAnOrganization, Base):
    __tablename__ = "iv_line"
    public_id: Mapped[str] = public_id("", 16)
    invoice_id: Mapped[int] = mapped_column(ForeignKey(Invoice.id))
    product_id: Mapped[int] = mapped_column(ForeignKey(Product.id))
    product: Mapped[Product] = relationship()
    quantity: Mapped[int]


class Payment(OfAnOrganization, Base):
    __tablename__ = "iv_payment"
    public_id: Mapped[str] = public_id("ivpay_")
    invoice_id: Mapped[int] = mapped_column(ForeignKey(Invoice.id))
    invoice: Mapped[Invoice] = relationship()
    cents: Mapped[int] = mapped_column(BigInteger)


def row_of(invoice: Invoice) -> dict[str, Any]:
    return {
        "public_id": invoice.public_id,
        "customer_public_id": invoice.customer.public_id,
        "note": invoice.note,
    }


def whole(invoice: Invoice) -> dict[str, Any]:
    lines = [{"product_public_id": line.product.public_id, "quantity": line.quantity} for line in invoice.lines]
    return {**row_of(invoice), "lines": lines}


def create_app(engine: Engine) -> FastAPI:
    """Return the application."""
    app = FastAPI()

    def get_session() -> Iterator[Session]:
        with Session(engine, expire_on_commit=False) as session:
            yield session

    Database: TypeAlias = Annotated[Session, Depends(get_session)]

    def get_organization(session: Database, x_organization: Annotated[str, Header()]) -> Organization:
        organization = session.scalar(select(Organization).where(Organization.public_id == x_organization))
        if organization is None:
            raise HTTPException(401)
        return organization

    Ours: TypeAlias = Annotated[Organization, Depends(get_organization)]

    def one(
        session: Session, organization: Organization, model: Any, public_id: str, status: int, *options: Any
    ) -> Any:
        query = select(model).where(model.public_id == public_id, model.organization_id == organization.id)
        row = session.scalars(query.options(*options)).unique().one_or_none()
        if row is None:
            raise HTTPException(status, f"no such {model.__name__}")
        return row

    @app.get("/customers/{customer_id}")
    def show_customer(session: Database, organization: Ours, customer_id: str) -> Any:
        customer = one(session, organization, Customer, customer_id, 404)
        return {"public_id": customer.public_id, "name": customer.name}

    @app.get("/invoices/{invoice_id}")
    def show_invoice(session: Database, organization: Ours, invoice_id: str) -> Any:
        options = [joinedload(Invoice.customer), selectinload(Invoice.lines).joinedload(Line.product)]
        return whole(one(session, organization, Invoice, invoice_id, 404, *options))

    @app.get("/invoices")
    def list_invoices(session: Database, organization: Ours, limit: int = 20, after: str | None = None) -> Any:
        query = select(Invoice).where(Invoice.organization_id == organization.id)
        if after is not None:
            last = select(Invoice.id).where(Invoice.public_id == after).scalar_subquery()
            query = query.where(Invoice.id < last)
        query = query.join(Invoice.customer).options(contains_eager(Invoice.customer))
        invoices = session.scalars(query.order_by(Invoice.id.desc()).limit(limit + 1)).all()
        following = invoices[limit - 1].public_id if len(invoices) > limit else None
        return {"items": list(map(row_of, invoices[:limit])), "next": following}

    @app.post("/invoices", status_code=201)
    def add_invoice(session: Database, organization: Ours, new: Annotated[dict[str, Any], Body()]) -> Any:
        customer = one(session, organization, Customer, new["customer_public_id"], 422)
        wanted = {line["product_public_id"] for line in new["lines"]}
        mine = Product.organization_id == organization.id
        products = session.scalars(select(Product).where(Product.public_id.in_(wanted), mine)).all()
        by_id = {product.public_id: product for product in products}
        if wanted - by_id.keys():
            raise HTTPException(422, "no such Product")
        lines = [
            Line(organization_id=organization.id, product=by_id[line["product_public_id"]], quantity=line["quantity"])
            for line in new["lines"]
        ]
        invoice = Invoice(organization_id=organization.id, customer=customer, note=new.get("note", ""), lines=lines)
        session.add(invoice)
        session.commit()
        return whole(invoice)

    @app.patch("/invoices/{invoice_id}")
    def change_invoice(
        session: Database, organization: Ours, invoice_id: str, change: Annotated[dict[str, str], Body()]
    ) -> Any:
        invoice = one(session, organization, Invoice, invoice_id, 404)
        # without its row, the old customer would be loaded for the history of the attribute
        customer = one(session, organization, Customer, change["customer_public_id"], 422)
        invoice.customer_id = customer.id
        session.commit()
        return {"public_id": invoice.public_id, "customer_public_id": customer.public_id, "note": invoice.note}

    @app.delete("/invoices/{invoice_id}", status_code=204)
    def remove_invoice(session: Database, organization: Ours, invoice_id: str) -> None:
        session.delete(one(session, organization, Invoice, invoice_id, 404))
        session.commit()

    @app.put("/payments/{payment_id}", status_code=201)
    def pay(
        session: Database,
        organization: Ours,
        payment_id: str,
        new: Annotated[dict[str, Any], Body()],
        response: Response,
    ) -> Any:
        invoice = one(session, organization, Invoice, new["invoice_public_id"], 422)
        payment = Payment(
            public_id=payment_id, organization_id=organization.id, invoice_id=invoice.id, cents=new["cents"]
        )
        try:
            with session.begin_nested():
                session.add(payment)
        except IntegrityError:
            payment = one(session, organization, Payment, payment_id, 409)
            response.status_code = 200
        session.commit()
        return {"public_id": payment.public_id, "invoice_public_id": invoice.public_id, "cents": payment.cents}

    return app
