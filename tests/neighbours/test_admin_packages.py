"""sqladmin, starlette-admin and Flask-Admin: rows with public ids are listed, searched for and created."""

from __future__ import annotations

import re
from typing import Any

import flask_admin
import flask_admin.contrib.sqla
import sqladmin
import starlette_admin.contrib.sqla
from flask import Flask
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from starlette.applications import Starlette
from starlette.testclient import TestClient
from support.neighbour_models import ADA, MALFORMED, Customer, Order


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
    """Flask-Admin lists, searches and shows public ids, and new rows get theirs; a malformed key is no error."""

    class Customers(flask_admin.contrib.sqla.ModelView):
        form_excluded_columns = ("public_id",)
        column_list = ("public_id", "name")
        column_searchable_list = ("public_id",)

    app = Flask(__name__)
    app.secret_key = "of this test"
    admin = flask_admin.Admin(app)
    sessions = scoped_session(sessionmaker(engine))
    admin.add_view(Customers(Customer, sessions))
    client = app.test_client()
    assert [path for path in ("", f"?search={ADA}") if ADA not in client.get(f"/admin/customer/{path}").text] == []
    assert ADA not in client.get("/admin/customer/?search=other").text
    assert client.get(f"/admin/customer/edit/?id={MALFORMED}").status_code == 302
    assert client.post("/admin/customer/new/", data={"name": "Grace"}).status_code == 302
    sessions.remove()
    assert id_of(session, "Grace").startswith("nbcus_")
