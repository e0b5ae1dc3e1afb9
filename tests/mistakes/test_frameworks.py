"""Mistakes with Flask, Litestar, SQLModel and forms."""
# annotations are not postponed: Litestar and SQLModel evaluate those of handlers and fields

from collections.abc import AsyncIterator, Callable
from typing import Any, Optional
from uuid import UUID

import pytest
from fastapi import FastAPI
from flask import Blueprint, Flask
from mistakes.models import Customer, CustomerId
from mistakes.table import mistake
from sqlalchemy import Engine, MetaData, inspect, select
from sqlalchemy.orm import Session, registry
from sqlalchemy.types import NullType
from sqlmodel import Field, Relationship, SQLModel

from sqlalchemy_public_id import NanoId, PublicIdMixin, lookup, public_ref
from sqlalchemy_public_id.ext.fastapi import lint_app
from sqlalchemy_public_id.ext.flask import get_or_404, register
from sqlalchemy_public_id.ext.sqlmodel import PublicIdSQLModel

# --- Flask


def flask_app(engine: Engine, show: Callable[[Session, Any], Any], rule: str = "/customers/<customer_id:id>") -> Flask:
    """Return an application with one view."""
    app = Flask("shop")
    app.testing = True
    register(app, Customer, name="customer_id")

    @app.get(rule)
    def view(id: Any) -> Any:
        with Session(engine) as session:
            return show(session, id)

    return app


@mistake("Customer.query.filter_by(public_id=a malformed text).first()")
def test_malformed_text_in_a_filter(session: Session, ada: Customer) -> None:
    """The customer of the path is meant; a malformed text finds nothing, as any other value."""
    assert session.scalars(select(Customer).filter_by(public_id="nonsense")).first() is None


@mistake("session.get(Customer, id), after the converter", says=r"write lookup\.get\(session, Model, public_id\)")
def test_get_in_a_view(engine: Engine, ada: Customer) -> None:
    """The customer of the path is meant."""
    app = flask_app(engine, lambda session, key: session.get(Customer, key).name)
    app.test_client().get(f"/customers/{ada.public_id}")


@mistake(
    "register() after the rules",
    says=r"the converter 'customer_id' does not exist",
    documented=("guides/integrations#flask", r"Call `register` before you add rules"),
)
def test_converter_after_the_rules() -> None:
    """The rule should take the id of a customer."""
    app = Flask("shop")
    app.add_url_rule("/customers/<customer_id:id>", view_func=print, endpoint="show")


@mistake("register(blueprint, …)", says=r"expected a Flask application, .*converters belong to the application")
def test_converter_of_a_blueprint() -> None:
    """The rules of the blueprint should take the id of a customer."""
    register(Blueprint("shop", "shop"), Customer, name="customer_id")


@mistake("lookup.get_one() in a view")
def test_get_one_in_a_view(engine: Engine, ada: Customer) -> None:
    """An unknown id in the path should be answered with 404, as FastAPI does."""
    from sqlalchemy_public_id.ext.flask import install

    app = flask_app(engine, lambda session, text: lookup.get_one(session, Customer, text).name)
    install(app)
    assert app.test_client().get(f"/customers/{CustomerId()}").status_code == 404


@mistake("url_for('view', id=customer.id)", says=r"it is of type int \(expected mkcus_")
def test_key_in_url_for(engine: Engine, ada: Customer) -> None:
    """The link to the customer is meant."""
    app = flask_app(engine, lambda session, text: text)
    with app.test_request_context():
        app.url_for("view", id=ada.id)


@mistake("get_or_404(Customer, id)", says=r"missing 1 required positional argument: 'public_id'")
def test_get_or_404_of_flask_sqlalchemy(ada: Customer) -> None:
    """The customer is meant, with the arguments of Flask-SQLAlchemy's function of this name."""
    get_or_404(Customer, ada.public_id)


@mistake(
    "QuerySelectField of wtforms-sqlalchemy",
    documented=("guides/integrations#flask", r"`QuerySelectField` have keys, unless you pass `get_pk="),
)
def test_keys_in_a_form(ada: Customer) -> None:
    """The form should offer customers; by default, its options have the identities that SQLAlchemy tells: keys."""
    assert inspect(ada).identity == (ada.id,)


# --- Litestar


def litestar_client(*handlers: Any, engine: Engine | None = None, plugin: bool = True) -> Any:
    """Return a client of an application."""
    pytest.importorskip("litestar")
    from litestar import Litestar
    from litestar.di import Provide
    from litestar.testing import TestClient

    from sqlalchemy_public_id.ext.litestar import PublicIdPlugin

    async def provide_session() -> AsyncIterator[Session]:
        with Session(engine) as session:
            yield session

    plugins = [PublicIdPlugin()] if plugin else []
    app = Litestar(
        handlers, plugins=plugins, dependencies={"db_session": Provide(provide_session)}, logging_config=None
    )
    return TestClient(app)


@mistake(
    "a Litestar handler returns the row",
    documented=("guides/integrations#litestar", r"Exclude the keys from DTOs"),
)
def test_row_of_a_litestar_handler(engine: Engine, ada: Customer) -> None:
    """The public values of the row should be shown; without a DTO, Litestar answers 500 and shows nothing."""
    pytest.importorskip("litestar")
    from litestar import get
    from litestar.di import NamedDependency

    from sqlalchemy_public_id.ext.litestar import by_public_id

    @get("/customers/{customer_id:str}", dependencies={"customer": by_public_id(Customer)})
    async def show(customer: NamedDependency[Any]) -> Any:
        return customer

    with litestar_client(show, engine=engine) as client:
        answer = client.get(f"/customers/{ada.public_id}")

    assert answer.status_code == 500
    assert '"customer_id"' not in answer.text


@mistake("data: dict[CustomerId, int] in Litestar", says=r"CustomerId")
def test_ids_as_keys_of_a_body(engine: Engine) -> str:
    """The keys of the object are ids of customers, and wrong ones should be refused."""
    pytest.importorskip("litestar")
    from litestar import post
    from litestar.params import JSONBody

    @post("/points")
    async def add(data: JSONBody[dict[CustomerId, int]]) -> None: ...

    with litestar_client(add, engine=engine) as client:
        answer = client.post("/points", json={"garbage": 1})
    assert answer.status_code == 400
    return str(answer.text)


# --- SQLModel


class Own(SQLModel, registry=registry()): ...


class Team(PublicIdSQLModel, Own, table=True):
    __tablename__ = "mistakes_team"
    name: str = Field(max_length=50)


class Hero(PublicIdSQLModel, Own, table=True):
    __tablename__ = "mistakes_hero"
    name: str = Field(max_length=50)
    team_id: int | None = Field(default=None, foreign_key="mistakes_team.id", sa_type=NullType)
    team: Optional[Team] = Relationship()  # noqa: UP045
    team_public_id = public_ref("team")


@pytest.fixture
def team(create: Callable[[MetaData], None], session: Session) -> Team:
    """A stored team."""
    create(Own.metadata)
    team = Team(name="red")
    session.add(team)
    session.commit()
    return team


@mistake("id: int | None = Field(primary_key=True), as in the tutorial", warns="leave id out, or use PublicIdColumnSQL")
def test_key_of_the_tutorial(create: Callable[[MetaData], None], session: Session) -> None:
    """The model should have its key, and a public id; the key stays inside."""

    class New(SQLModel, registry=registry()): ...

    class Club(PublicIdSQLModel, New, table=True):
        __tablename__ = "mistakes_club"
        id: int | None = Field(default=None, primary_key=True)
        name: str = Field(max_length=50)

    create(New.metadata)
    session.add(club := Club(name="red"))
    session.commit()
    assert club.id == 1
    assert club.model_dump() == {"public_id": club.public_id, "name": "red"}


@mistake(
    "id: UUID = Field(primary_key=True), with PublicIdSQLModel", says="leave id out, or use PublicIdColumnSQLModel"
)
def test_key_of_another_type() -> None:
    """The UUID should be the key of the model."""

    class Club(PublicIdSQLModel, Own, table=True):
        __tablename__ = "mistakes_club"
        id: UUID = Field(primary_key=True)


@mistake("Hero(team_id=team.public_id)", says=r"its public id to a public_ref\(\)")
def test_public_id_in_a_foreign_key_of_sqlmodel(session: Session, team: Team) -> None:
    """The hero should belong to the team, as in the tutorial, where the foreign key is the id."""
    session.add(Hero(name="Ada", team_id=team.public_id))
    session.flush()


@mistake("class HeroPublic(SQLModel): id: int, as in the tutorial", says=r"response 200 id is .*; show public_id")
def test_key_in_a_response_of_sqlmodel() -> str:
    """The id of the hero is meant."""

    class HeroPublic(SQLModel):
        id: int
        name: str

    app = FastAPI()

    @app.get("/heroes/{hero}")
    def show(hero: str) -> HeroPublic: ...

    return "\n".join(str(finding) for finding in lint_app(app, bases=[Hero]) if finding.is_leak)


@mistake("response_model=Hero, the class of the table", says=r"team_id is .*show team_public_id")
def test_table_as_a_response() -> str:
    """The public values of the hero are meant."""
    app = FastAPI()

    @app.get("/heroes/{hero}")
    def show(hero: str) -> Hero: ...

    leaks = [str(finding) for finding in lint_app(app, bases=[Hero]) if finding.is_leak]
    return "\n".join(leaks)


@mistake("class Hero(PublicIdMixin, SQLModel, table=True)")
@pytest.mark.filterwarnings("ignore:Classes should inherit from `BaseModel` before generic classes")
def test_other_mixin_for_sqlmodel() -> None:
    """A table with public ids is meant; the mixin is that of SQLAlchemy's models, of whose order Pydantic warns."""

    class Villain(PublicIdMixin, Own, table=True):
        __tablename__ = "mistakes_villain"
        name: str

    assert NanoId().is_valid(Villain(name="Bob").public_id)
