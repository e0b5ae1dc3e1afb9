"""Response models that would refuse every row, and paths that would refuse every request, raise errors early."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI
from pydantic import BaseModel, BeforeValidator, Field, field_validator, model_validator
from sqlalchemy import ForeignKey, MetaData, StaticPool, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, configure_mappers, mapped_column, relationship
from support.web_requests import asked

from sqlalchemy_public_id import ConfigurationError, NanoId, PublicIdMixin, TypedId, public_ref
from sqlalchemy_public_id.ext.fastapi import by_public_id, install, lint_app
from sqlalchemy_public_id.ext.pydantic import Page, PublicId, PublicModel


class Base(DeclarativeBase):
    metadata = MetaData()


class BuyerId(TypedId, prefix="wdbuyer"): ...


class SaleId(TypedId, prefix="wdsale"): ...


class ShopId(TypedId, prefix="wdshop", format=NanoId(length=8)): ...


class Buyer(PublicIdMixin[BuyerId], Base):
    __tablename__ = "buyer"


class Shop(PublicIdMixin, Base):
    __tablename__ = "shop"
    __public_id__ = NanoId(length=8, prefix="wdshop")


class Sale(PublicIdMixin[SaleId], Base):
    __tablename__ = "sale"
    buyer_id: Mapped[int | None] = mapped_column(ForeignKey(Buyer.id))
    buyer: Mapped[Buyer | None] = relationship()
    buyer_public_id: Mapped[BuyerId | None] = public_ref("buyer")


def declare(annotation: Any, model: Any, name: str = "public_id", base: Any = PublicModel, **body: Any) -> Any:
    namespace = {"__annotations__": {name: annotation}, "__module__": __name__, **body}
    return type(PublicModel)("Out", (base,), namespace, model=model)


OTHER_IDS: list[Any] = [
    BuyerId,
    BuyerId | None,
    Annotated[str, PublicId(Buyer)],
    Annotated[str, PublicId(Buyer)] | None,
    Annotated[BuyerId, Field(description="the id")],
    BuyerId | ShopId,
]


@pytest.mark.parametrize("annotation", OTHER_IDS)
def test_type_of_other_ids(annotation: Any) -> None:
    """A field with the type of another model's ids, which would refuse each row, is refused."""
    configure_mappers()
    with pytest.raises(
        ConfigurationError, match=r"Out\.public_id has the type of other ids: .* public_id of Sale, .*wdsale_"
    ):
        declare(annotation, Sale)
    with pytest.raises(ConfigurationError, match=r"Out\.number has .* public_id of Sale"):
        declare(annotation, Sale, "number", number=Field(validation_alias="public_id"))


def test_reference_of_other_ids() -> None:
    """A field that shows a reference must not have the type of other ids."""
    configure_mappers()
    for annotation in (SaleId, SaleId | None, Annotated[str, PublicId(Sale)] | None):
        with pytest.raises(ConfigurationError, match=r"each buyer_public_id of Sale, which is wdbuyer_"):
            declare(annotation, Sale, "buyer_public_id")
    declare(BuyerId, Sale, "buyer_public_id")  # all sales that it shows may have a buyer


class Converts(PublicModel):
    @field_validator("*", mode="before", check_fields=False)
    @classmethod
    def convert(cls, value: Any) -> Any:
        return f"wdbuyer_{str(value)[-12:]}"


class ConvertsAll(PublicModel):
    @model_validator(mode="before")
    @classmethod
    def convert(cls, value: Any) -> Any:
        return {"public_id": "wdbuyer_000000000000"}


@pytest.mark.parametrize(
    ("annotation", "model", "base"),
    [
        (SaleId, Sale, PublicModel),
        (str, Sale, PublicModel),
        (BuyerId | SaleId, Sale, PublicModel),
        (BuyerId | str, Sale, PublicModel),
        (ShopId, Shop, PublicModel),
        (Annotated[str, PublicId(NanoId(length=8, prefix="wdshop"))], Shop, PublicModel),
        (Annotated[BuyerId, BeforeValidator(lambda value: "wdbuyer_000000000000")], Sale, PublicModel),
        (BuyerId, Sale, Converts),
        (BuyerId, Sale, ConvertsAll),
    ],
)
def test_type_that_is_not_wrong(annotation: Any, model: Any, base: Any) -> None:
    """A type of these ids among others, of an equal format, and behind a validator that converts them, is accepted."""
    configure_mappers()
    shown = declare(annotation, model, base=base)
    assert shown.model_validate(model()).public_id


def test_a_coroutine() -> None:
    """The coroutine of an asynchronous function that nobody awaited is named, and closed, wherever it is given."""

    class SaleOut(PublicModel, model=Sale):
        public_id: SaleId

    async def show() -> Any: ...

    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    result = r"a coroutine \(.*show\) is given in place of its result: write await"
    with Session(engine) as session:
        given: list[tuple[str, Callable[[], Any]]] = [
            (r"write await SaleOut\.of\(session, obj\)", lambda: SaleOut.model_validate(show())),
            (r"write await Page\[…\]\.of\(session, page\)", lambda: Page[SaleOut].model_validate(show())),
            (result, lambda: SaleOut.of(session, show())),
            (result, lambda: SaleOut.many(session, show())),
            (result, lambda: SaleOut.many(session, [show()])),
            (result, lambda: Page[SaleOut].of(session, show())),
        ]
        for message, call in given:
            with warnings.catch_warnings(), pytest.raises(TypeError, match=message):
                call()
    engine.dispose()


# --- paths


def get_session() -> Iterator[Session]:
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Sale(public_id="wdsale_000000000000"))
        yield session
    engine.dispose()


class Answer(BaseModel):
    number: str


def application(path: str, **options: Any) -> FastAPI:
    app = FastAPI()
    install(app)

    dependency = Depends(by_public_id(Sale, session=get_session, **options))

    @app.get(path)
    def show(sale: Any = dependency, kind: str = "") -> Answer:
        return Answer(number=sale.public_id)

    return app


def test_parameter_that_the_path_has_not() -> None:
    """An endpoint whose path has another parameter raises an error for each request, and in the lint."""
    app = application("/sales/{id}")
    message = r"path /sales/\{id\} has no parameter sale_id, .*write \{sale_id\} in the path, or .* param="
    with pytest.raises(ConfigurationError, match=message):
        asked(app, "/sales/wdsale_000000000000")
    with pytest.raises(ConfigurationError, match=message):
        lint_app(app)
    assert lint_app(app, allow=["/sales/{id}"]) == []


@pytest.mark.parametrize(("path", "options"), [("/sales/{sale_id}", {}), ("/sales/{id}", {"param": "id"})])
def test_parameter_of_the_path(path: str, options: Any) -> None:
    """An endpoint with the parameter in its path answers, and refuses other parameters as before."""
    app = application(path, **options)
    found, unknown = asked(app, "/sales/wdsale_000000000000", "/sales/wdsale_000000000001")
    assert (found.json(), unknown.status_code) == ({"number": "wdsale_000000000000"}, 404)
    assert lint_app(app) == []
