"""An invoicing service with tenants. ``by_hand`` is the same service without the library."""
# annotations are not postponed: FastAPI evaluates those of routes, which use names that are local to a function

from collections.abc import Iterator
from typing import Annotated, Any, TypeAlias

from fastapi import Depends, FastAPI, Header, HTTPException, Response
from invoicing.models import Customer, CustomerId, Invoice, InvoiceId, Line, Organization, Payment, PaymentId
from invoicing.models import ProductId as ProductId
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Engine
from sqlalchemy.orm import Session, joinedload, selectinload

from sqlalchemy_public_id import idempotency, lookup
from sqlalchemy_public_id.ext.fastapi import by_public_id, install, page_of
from sqlalchemy_public_id.ext.pydantic import PublicModel


class LineIn(BaseModel):
    product_public_id: ProductId
    quantity: int = Field(ge=1, le=1000)


class InvoiceIn(BaseModel):
    customer_public_id: CustomerId
    note: str = ""
    lines: list[LineIn]


class InvoicePatch(BaseModel):
    customer_public_id: CustomerId


class PaymentIn(BaseModel):
    invoice_public_id: InvoiceId
    cents: int


class CustomerOut(PublicModel, model=Customer):
    public_id: CustomerId
    name: str


class InvoiceRow(PublicModel, model=Invoice):
    public_id: InvoiceId
    customer_public_id: CustomerId
    note: str


class InvoicePage(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    items: list[InvoiceRow]
    next: str | None


class LineOut(PublicModel, model=Line):
    product_public_id: ProductId
    quantity: int


class InvoiceOut(InvoiceRow, model=Invoice):
    lines: list[LineOut]


class PaymentOut(PublicModel, model=Payment):
    public_id: PaymentId
    invoice_public_id: InvoiceId
    cents: int


def create_app(engine: Engine) -> FastAPI:
    """Return the application. A header names the organization; authentication is out of scope here."""
    app = FastAPI()
    install(app)

    def get_session() -> Iterator[Session]:
        with Session(engine, expire_on_commit=False) as session:
            yield session

    Database: TypeAlias = Annotated[Session, Depends(get_session)]

    def get_organization(session: Database, x_organization: Annotated[str, Header()]) -> Organization:
        organization = lookup.get(session, Organization, x_organization)
        if organization is None:
            raise HTTPException(401)
        return organization

    Ours: TypeAlias = Annotated[Organization, Depends(get_organization)]

    def its_own(model: Any) -> Any:
        return lambda organization: model.organization_id == organization.id

    def condition_of(model: Any) -> Any:
        def condition(organization: Ours) -> Any:
            return model.organization_id == organization.id

        return condition

    whole = [joinedload(Invoice.customer), selectinload(Invoice.lines).joinedload(Line.product)]
    one_customer = by_public_id(Customer, session=get_session, scope=condition_of(Customer))
    one_invoice = by_public_id(Invoice, session=get_session, scope=condition_of(Invoice))
    whole_invoice = by_public_id(Invoice, session=get_session, scope=condition_of(Invoice), options=whole)
    invoices = page_of(Invoice, session=get_session, scope=condition_of(Invoice), newest_first=True)

    @app.get("/customers/{customer_id}")
    def show_customer(customer: Annotated[Customer, Depends(one_customer)]) -> CustomerOut:
        return CustomerOut.model_validate(customer)

    @app.get("/invoices/{invoice_id}")
    def show_invoice(invoice: Annotated[Invoice, Depends(whole_invoice)]) -> InvoiceOut:
        return InvoiceOut.model_validate(invoice)

    @app.get("/invoices")
    def list_invoices(page: Annotated[Any, Depends(invoices)]) -> InvoicePage:
        return InvoicePage.model_validate(page)

    @app.post("/invoices", status_code=201)
    def add_invoice(session: Database, organization: Ours, new: InvoiceIn) -> InvoiceOut:
        lines = [Line(organization_id=organization.id, **line.model_dump()) for line in new.lines]
        invoice = Invoice(organization_id=organization.id, **new.model_dump(exclude={"lines"}), lines=lines)
        session.add(invoice)
        session.commit()
        return InvoiceOut.of(session, invoice)

    @app.patch("/invoices/{invoice_id}")
    def change_invoice(
        session: Database, invoice: Annotated[Invoice, Depends(one_invoice)], change: InvoicePatch
    ) -> InvoiceRow:
        invoice.customer_public_id = change.customer_public_id
        session.commit()
        return InvoiceRow.of(session, invoice)

    @app.delete("/invoices/{invoice_id}", status_code=204)
    def remove_invoice(session: Database, invoice: Annotated[Invoice, Depends(one_invoice)]) -> None:
        session.delete(invoice)
        session.commit()

    @app.put("/payments/{payment_id}", status_code=201)
    def pay(
        session: Database, organization: Ours, payment_id: PaymentId, new: PaymentIn, response: Response
    ) -> PaymentOut:
        payment = Payment(public_id=payment_id, organization_id=organization.id, **new.model_dump())
        payment, created = idempotency.insert_once(session, payment, where=its_own(Payment)(organization))
        session.commit()
        response.status_code = 201 if created else 200
        return PaymentOut.of(session, payment)

    return app
