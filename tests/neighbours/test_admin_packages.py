"""sqladmin, starlette-admin and Flask-Admin: rows with public ids are listed, searched for and created."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import flask_admin
import flask_admin.contrib.sqla
import pytest
import sqladmin
import starlette_admin.contrib.sqla
from flask import Flask
from flask_admin.contrib.sqla.filters import FilterEqual
from neighbours.models import ADA, FIRST, MALFORMED, Base, Customer, Order
from sqlalchemy import Engine, String, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker
from sqlalchemy.pool import StaticPool
from starlette.applications import Starlette
from starlette.testclient import TestClient

from sqlalchemy_public_id import PublicIdMixin, Uuid7
from sqlalchemy_public_id.errors import InvalidKey
from sqlalchemy_public_id.testing import assert_no_keys_in


class StoredBase(DeclarativeBase): ...


class Stored(PublicIdMixin, StoredBase):
    """A model whose ids are stored as numbers."""

    __tablename__ = "stored"
    __public_id__ = Uuid7(prefix="nbsto")
    name: Mapped[str] = mapped_column(String(50))


def id_of(session: Session, name: str) -> Any:
    return session.scalars(select(Customer.public_id).where(Customer.name == name)).one()


def test_sqladmin(engine: Engine, session: Session) -> None:
    """sqladmin lists, searches and shows public ids, and new rows get theirs."""

    class Customers(sqladmin.ModelView, model=Customer):
        column_list = [Customer.public_id, Customer.name]  # noqa: RUF012  # as its documentation writes it
        column_searchable_list = [Customer.public_id]  # noqa: RUF012
        form_excluded_columns = [Customer.public_id]  # noqa: RUF012

    class Orders(sqladmin.ModelView, model=Order): ...

    app = Starlette()
    admin = sqladmin.Admin(app, engine)
    admin.add_view(Customers)
    admin.add_view(Orders)
    client = TestClient(app)
    key = session.scalars(select(Customer.id)).one()
    paths = ["list", f"list?search={ADA}", f"details/{key}"]
    assert [path for path in paths if ADA not in client.get(f"/admin/customer/{path}").text] == []
    assert ADA not in client.get("/admin/customer/list?search=other").text
    assert client.get("/admin/order/create").status_code == 200
    assert client.post("/admin/customer/create", data={"name": "Grace"}).status_code == 200
    assert id_of(session, "Grace").startswith("nbcus_")


def test_starlette_admin(engine: Engine, session: Session) -> None:
    """starlette-admin lists and shows public ids, and new rows get theirs."""

    class Customers(starlette_admin.contrib.sqla.ModelView):
        exclude_fields_from_create = ["public_id"]  # noqa: RUF012  # as its documentation writes it

    app = Starlette()
    admin = starlette_admin.contrib.sqla.Admin(engine)
    admin.add_view(Customers(Customer))
    admin.add_view(starlette_admin.contrib.sqla.ModelView(Order))
    admin.mount_to(app)
    client = TestClient(app)
    assert ADA in client.get("/admin/customer/list").text
    form = client.get("/admin/customer/create")
    assert form.status_code == 200
    token = re.search(r'name="(csrf\w*|_csrf\w*)"[^>]*value="([^"]+)"', form.text)
    values = {"name": "Grace"} | ({} if token is None else {token[1]: token[2]})
    client.post("/admin/customer/create", data=values)
    assert id_of(session, "Grace").startswith("nbcus_")


def test_flask_admin(engine: Engine, session: Session) -> None:
    """Flask-Admin lists, searches and shows public ids, and new rows get theirs; a malformed key can be a 404."""

    class Customers(flask_admin.contrib.sqla.ModelView):
        form_excluded_columns = ("public_id",)
        column_list = ("public_id", "name")
        column_searchable_list = ("public_id",)

    app = Flask(__name__)
    app.secret_key = "of this test"
    app.register_error_handler(InvalidKey, lambda error: ("not found", 404))
    admin = flask_admin.Admin(app)
    sessions = scoped_session(sessionmaker(engine))
    admin.add_view(Customers(Customer, sessions))
    client = app.test_client()
    assert [path for path in ("", f"?search={ADA}") if ADA not in client.get(f"/admin/customer/{path}").text] == []
    assert ADA not in client.get("/admin/customer/?search=other").text
    assert client.get(f"/admin/customer/edit/?id={MALFORMED}").status_code == 404
    assert client.post("/admin/customer/new/", data={"name": "Grace"}).status_code == 302
    sessions.remove()
    assert id_of(session, "Grace").startswith("nbcus_")


@pytest.mark.parametrize("model", [Customer, Stored])
def test_filters_of_flask_admin(engine: Engine, session: Session, model: Any) -> None:
    """A filter of public ids is named; the search finds ids, or the beginning of one, if they are stored as text."""
    StoredBase.metadata.create_all(engine)
    session.add(Stored(name="Ada"))
    session.commit()
    ada = session.scalars(select(model.public_id)).one()
    sessions = scoped_session(sessionmaker(engine))

    class Unnamed(flask_admin.contrib.sqla.ModelView):
        column_filters = ("public_id",)

    with pytest.raises(Exception, match="Unsupported filter type"):
        Unnamed(model, sessions)

    class Rows(flask_admin.contrib.sqla.ModelView):
        column_list = ("public_id",)
        column_searchable_list = ("public_id",)
        column_filters = (FilterEqual(model.public_id, "id"),)

    app = Flask(__name__)
    flask_admin.Admin(app).add_view(Rows(model, sessions, endpoint="rows"))
    queries = {name: f"/admin/rows/?{name}={ada}" for name in ("flt0_0", "search")}
    queries |= {"other": "/admin/rows/?flt0_0=nonsense", "beginning": f"/admin/rows/?search={ada[:9]}"}
    texts = {name: "".join(app.test_client().get(path).text.split()) for name, path in queries.items()}
    sessions.remove()
    is_text = model is Customer
    found = {name: f">{ada}<" in text for name, text in texts.items()}
    assert found == {"flt0_0": True, "search": is_text, "other": False, "beginning": is_text}


@pytest.mark.parametrize("model", [Customer, Stored])
def test_search_of_sqladmin(engine: Engine, session: Session, model: Any) -> None:
    """The search finds ids that are stored as text, and none that are stored as numbers."""
    StoredBase.metadata.create_all(engine)
    session.add(Stored(name="Ada"))
    session.commit()
    ada = session.scalars(select(model.public_id)).one()

    class Rows(sqladmin.ModelView, model=model):
        column_list = [model.public_id]  # noqa: RUF012  # sqladmin reads it
        column_searchable_list = [model.public_id]  # noqa: RUF012  # sqladmin reads it

    app = Starlette()
    sqladmin.Admin(app, engine).add_view(Rows)
    listed = f"/admin/{model.__name__.lower()}/list"
    texts = [TestClient(app).get(path).text for path in (listed, f"{listed}?search={ada}")]
    found = [ada in text.partition("<tbody")[2].partition("</tbody>")[0] for text in texts]
    assert found == [True, model is Customer]


# --- keys in the pages


@pytest.fixture
def rows() -> Iterator[list[Any]]:
    """Yield a customer and an order with keys that stand for nothing else, in a database of their own."""
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    Base.metadata.create_all(engine)
    with Session(engine, expire_on_commit=False) as session:
        rows = [Customer(id=777001, public_id=ADA, name="Ada"), Order(id=777002, public_id=FIRST, total=950)]
        rows[1].customer = rows[0]
        session.add_all(rows)
        session.commit()
        yield rows
    engine.dispose()


def with_keys(rows: list[Any], texts: dict[str, str]) -> list[str]:
    """Return the names of the texts in which the keys of *rows* stand."""
    found = []
    for name, text in texts.items():
        try:
            assert_no_keys_in(text, rows)
        except AssertionError:
            found.append(name)
    return found


class PublicView(starlette_admin.contrib.sqla.ModelView):
    """The view of the guide: addresses and forms have the public id instead of the key."""

    def _setup_primary_key(self) -> None:
        self._pk_column, self._pk_coerce = self.model.public_id, str
        self.pk_field = starlette_admin.StringField("public_id", read_only=True)
        self.pk_attr = "public_id"


def pages_of_starlette_admin(rows: list[Any], view: Any) -> dict[str, str]:
    """Return the pages of an admin whose views are of the class *view*, by their paths; each must be a success."""

    class Customers(view):  # type: ignore[misc]
        exclude_fields_from_create = ["public_id"]  # noqa: RUF012
        fields = ["public_id", "name"]  # noqa: RUF012

    class Orders(view):  # type: ignore[misc]
        exclude_fields_from_create = ["public_id"]  # noqa: RUF012
        fields = ["public_id", "total", "customer"]  # noqa: RUF012

    app = Starlette()
    admin = starlette_admin.contrib.sqla.Admin(Session.object_session(rows[0]).get_bind())
    admin.add_view(Customers(Customer))
    admin.add_view(Orders(Order))
    admin.mount_to(app)
    client = TestClient(app)
    names = {"customer": ADA, "order": FIRST} if view is PublicView else {"customer": 777001, "order": 777002}
    paths = [f"{name}/{page}" for name in names for page in ("list", "create")]
    paths += [f"{name}/{page}?pk={id}" for name, id in names.items() for page in ("detail", "edit")]
    paths += ["_api/order/relation-lookup?name=customer&field=customer"]
    answers = {path: client.get(f"/admin/{path}") for path in paths}
    assert {path: answer.status_code for path, answer in answers.items()} == dict.fromkeys(answers, 200)
    assert "Ada" in answers[f"customer/detail?pk={names['customer']}"].text
    return {path: f"{answer.url} {answer.text}" for path, answer in answers.items()}


def test_keys_of_starlette_admin(rows: list[Any]) -> None:
    """The pages of starlette-admin show keys; with four lines, none does."""
    assert with_keys(rows, pages_of_starlette_admin(rows, starlette_admin.contrib.sqla.ModelView))
    assert with_keys(rows, pages_of_starlette_admin(rows, PublicView)) == []


def test_forms_of_starlette_admin(engine: Engine, session: Session) -> None:
    """With these four lines, a form finds the row of a relationship by its public id, and changes a row."""

    class Orders(PublicView):
        exclude_fields_from_create = ["public_id"]  # noqa: RUF012
        fields = ["public_id", "total", "customer"]  # noqa: RUF012

    app = Starlette()
    admin = starlette_admin.contrib.sqla.Admin(engine)
    admin.add_view(PublicView(Customer))
    admin.add_view(Orders(Order))
    admin.mount_to(app)
    client = TestClient(app)
    for path, total in (("create", 7), (f"edit?pk={FIRST}", 8)):
        form = client.get(f"/admin/order/{path}").text
        token = re.search(r'name="(csrf\w*|_csrf\w*)"[^>]*value="([^"]+)"', form)
        values = {"total": total, "customer": ADA} | ({} if token is None else {token[1]: token[2]})
        assert client.post(f"/admin/order/{path}", data=values).status_code == 200
    orders = session.scalars(select(Order).order_by(Order.total)).all()
    assert [(order.total, order.public_id == FIRST, order.customer.public_id) for order in orders] == [
        (7, False, ADA),
        (8, True, ADA),
    ]


def test_keys_of_other_admins(rows: list[Any]) -> None:
    """The lists of sqladmin and Flask-Admin contain keys, even if they show only public ids."""
    engine = Session.object_session(rows[0]).get_bind()

    class Customers(sqladmin.ModelView, model=Customer):
        column_list = [Customer.public_id]  # noqa: RUF012

    class Others(flask_admin.contrib.sqla.ModelView):
        column_list = ("public_id",)

    app, flask = Starlette(), Flask(__name__)
    sqladmin.Admin(app, engine).add_view(Customers)
    sessions = scoped_session(sessionmaker(engine))
    flask_admin.Admin(flask).add_view(Others(Customer, sessions))
    texts = {
        "sqladmin": TestClient(app).get("/admin/customer/list").text,
        "Flask-Admin": flask.test_client().get("/admin/customer/").text,
    }
    sessions.remove()
    assert with_keys(rows, texts) == ["sqladmin", "Flask-Admin"]
