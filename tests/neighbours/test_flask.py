"""Flask-SQLAlchemy and wtforms-sqlalchemy, as the guide uses them."""

from __future__ import annotations

from operator import attrgetter

import pytest
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from neighbours.models import ADA, NOBODY, Customer
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session
from werkzeug.exceptions import NotFound
from wtforms import Form
from wtforms_sqlalchemy.fields import QuerySelectField

from sqlalchemy_public_id.ext.flask import get_or_404


def test_session_of_flask_sqlalchemy(engine: Engine, tmp_path: object) -> None:
    """``get_or_404`` takes ``db.session``."""
    app = Flask("shop")
    app.config["SQLALCHEMY_DATABASE_URI"] = f"sqlite:///{tmp_path}/shop.db"
    db = SQLAlchemy()
    db.init_app(app)
    with app.app_context():
        Customer.metadata.create_all(db.engine)
        db.session.add(Customer(public_id=ADA, name="Ada"))
        db.session.commit()
        assert get_or_404(db.session, Customer, ADA).name == "Ada"
        with pytest.raises(NotFound):
            get_or_404(db.session, Customer, NOBODY)
        db.session.remove()
        db.engine.dispose()


@pytest.mark.parametrize("is_public", [True, False])
def test_options_of_a_form(session: Session, is_public: bool) -> None:
    """The options of a field have keys, and with ``get_pk`` public ids."""
    options = {"get_pk": attrgetter("public_id")} if is_public else {}

    class OrderForm(Form):
        customer = QuerySelectField(
            query_factory=lambda: session.scalars(select(Customer)), get_label="name", **options
        )

    assert (f'value="{ADA}"' in str(OrderForm().customer())) == is_public
    assert ('value="1"' in str(OrderForm().customer())) != is_public
