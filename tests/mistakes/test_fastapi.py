"""Mistakes with FastAPI and Pydantic."""
# annotations are not postponed: FastAPI evaluates those of endpoints

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI
from mistakes.models import Base, Customer, CustomerId, Order, OrderId
from mistakes.table import mistake
from pydantic import BaseModel
from sqlalchemy import Engine
from sqlalchemy.orm import Session
from support.web_requests import asked

from sqlalchemy_public_id import PublicIdNotFound, lookup
from sqlalchemy_public_id.ext.fastapi import Page, by_public_id, install, lint_app, page_of
from sqlalchemy_public_id.ext.pydantic import PublicModel


class OrderOut(PublicModel, model=Order):
    public_id: OrderId
    customer_public_id: CustomerId | None


@pytest.fixture
def database_session(engine: Engine) -> Callable[[], Iterator[Session]]:
    """The dependency that opens a session for a request."""

    def get_session() -> Iterator[Session]:
        with Session(engine) as session:
            yield session

    return get_session


@pytest.fixture
def app() -> FastAPI:
    """An application that answers the errors of the library."""
    app = FastAPI()
    install(app)
    return app


def linted(app: FastAPI) -> str:
    """Return the leaks that a test of the application reports."""
    return "\n".join(str(finding) for finding in lint_app(app, bases=[Base]) if finding.is_leak)


# --- what is shown


@mistake("return order, without a response model", says=r"public_id|response model")
def test_row_is_returned(app: FastAPI, database_session: Any, order: Order) -> str:
    """The public values of the order should be shown; FastAPI shows all columns."""

    @app.get("/orders/{order_id}")
    def show(order: Annotated[Order, Depends(by_public_id(Order, session=database_session))]):
        return order

    return linted(app)


@mistake("class OrderOut(BaseModel): id: int", says=r"response 200 id is .*; show public_id")
def test_key_in_a_response(app: FastAPI) -> str:
    """The id of the order is meant, as in FastAPI's tutorial."""

    class Out(BaseModel):
        id: int

    @app.get("/orders")
    def show() -> Out: ...

    return linted(app)


@mistake("class OrderOut(PublicModel, model=Order): id: int", says=r"Out\.id would show order\.id, .*show public_id")
def test_key_in_a_public_model() -> None:
    """The id of the order is meant."""

    class Out(PublicModel, model=Order):
        id: int


@mistake("class OrderOut(PublicModel, model=Order): customer_id: int", says=r"show customer_public_id")
def test_foreign_key_in_a_public_model() -> None:
    """The id of the customer is meant."""

    class Out(PublicModel, model=Order):
        customer_id: int


@mistake(
    "class OrderOut(PublicModel, model=Order): public_id: CustomerId",
    says=r"the prefix is 'mkord' \(expected mkcus_|each public_id of Order, which is mkord_",
)
def test_id_type_of_another_model(session: Session, order: Order) -> None:
    """The line was copied from the model of customers."""

    class Out(PublicModel, model=Order):
        public_id: CustomerId

    Out.of(session, order)


@mistake("customer_public_id: CustomerId, of a foreign key that may be NULL", says=r"customer_public_id")
def test_reference_that_may_be_none(session: Session, ada: Customer) -> None:
    """The customer should be shown if there is one."""

    class Out(PublicModel, model=Order):
        customer_public_id: CustomerId

    order = Order()
    session.add(order)
    session.flush()
    Out.of(session, order)


@mistake(
    "return OrderOut.of(async_session, order), without await",
    documented=("guides/pydantic-and-fastapi#the-row-in-a-path", r"write `return await OrderOut\.of"),
)
def test_public_model_that_is_not_awaited(order: Order) -> None:
    """The order should be shown; FastAPI says that a coroutine is no OrderOut."""
    from sqlalchemy.ext.asyncio import AsyncSession

    coroutine = OrderOut.of(AsyncSession(), order)
    coroutine.close()


# --- what is taken


@mistake("/orders/{id} with by_public_id(Order)", says=r"order_id")
def test_other_name_in_the_path(app: FastAPI, database_session: Any, order: Order) -> str:
    """The row of the path is meant, whose parameter is named after the model."""

    @app.get("/orders/{id}")
    def show(order: Annotated[Order, Depends(by_public_id(Order, session=database_session))]) -> OrderOut: ...

    return "\n".join(map(str, lint_app(app, bases=[Base])))


@mistake("order_id: int in a path", says=r"order_id is order\.id; take the public id")
def test_key_in_a_path(app: FastAPI) -> str:
    """The order is meant, by the number that links show."""

    @app.get("/orders/{order_id}")
    def show(order_id: int) -> OrderOut: ...

    return linted(app)


@mistake("customer_id: int in a body", says=r"customer_id")
def test_key_in_a_body(app: FastAPI) -> str:
    """The customer of the new order is meant."""

    class New(BaseModel):
        customer_id: int

    @app.post("/orders")
    def add(new: New) -> OrderOut: ...

    return linted(app)


@mistake(
    "install(app) is forgotten",
    documented=("guides/pydantic-and-fastapi#errors-as-responses", r"`install\(app\)` answers errors of the library"),
)
def test_install_is_forgotten(database_session: Any, ada: Customer) -> None:
    """An unknown customer should be answered with 422; it is a 500, whose traceback names the field."""
    app = FastAPI()

    @app.post("/orders")
    def add(new: OrderOut, session: Annotated[Session, Depends(database_session)]) -> None:
        session.add(Order(customer_public_id=new.customer_public_id))
        session.flush()

    body = {"public_id": OrderId(), "customer_public_id": CustomerId()}
    with pytest.raises(PublicIdNotFound, match=r"Order\.customer_public_id: no Customer"):
        asked(app, "/orders", method="POST", json=body)


@mistake("PATCH with every field of the body", says=r"Customer\.public_id .*cannot become")
def test_patch_with_an_id(ada: Customer) -> None:
    """The fields that the client has sent should be changed, and no link should break."""

    class Changes(BaseModel):
        public_id: CustomerId | None = None
        name: str | None = None

    assert ada.public_id
    for name, value in Changes(public_id=CustomerId(), name="Ada L.").model_dump(exclude_unset=True).items():
        setattr(ada, name, value)


@mistake("class OrderFilter(BaseModel): customer_public_id: OrderId", says=r"the prefix is 'mkcus' \(expected mkord_")
def test_filter_of_another_type(app: FastAPI, database_session: Any, ada: Customer) -> str:
    """The orders of a customer are meant; the type was copied from another field."""

    class Filter(BaseModel):
        customer_public_id: OrderId | None = None

    @app.get("/orders", response_model=Page[OrderOut])
    def show(page: Annotated[Any, Depends(page_of(Order, session=database_session, filter=Filter))]) -> Any: ...

    [answer] = asked(app, f"/orders?customer_public_id={ada.public_id}")
    return str(answer.text)


@mistake('page_of(Order, sort="total")', says=r"expected a list: \['total'\]")
def test_sort_of_a_string(database_session: Any) -> None:
    """Pages should be sorted by this column."""
    page_of(Order, session=database_session, sort="total")


@mistake("by_public_id(Order), without session=", says=r"keyword-only argument: 'session'")
def test_dependency_without_session() -> None:
    """The row is meant, in the session of the application."""
    by_public_id(Order)


@mistake("session.get(Order, order_id) in an endpoint", says=r"write lookup\.get\(session, Model, public_id\)")
def test_get_in_an_endpoint(app: FastAPI, database_session: Any, order: Order) -> None:
    """The order of the path is meant."""

    @app.get("/orders/{order_id}")
    def show(order_id: OrderId, session: Annotated[Session, Depends(database_session)]) -> OrderOut:
        return OrderOut.of(session, session.get_one(Order, order_id))

    asked(app, f"/orders/{order.public_id}")


@mistake("response_model=list[OrderOut] of a page")
def test_list_of_a_page(app: FastAPI, database_session: Any, order: Order) -> None:
    """The rows of the page are meant."""

    @app.get("/orders", response_model=list[OrderOut])
    def show(page: Annotated[lookup.Page[Order], Depends(page_of(Order, session=database_session))]) -> Any:
        return page

    [answer] = asked(app, "/orders")
    assert answer.json()[0]["public_id"] == order.public_id
