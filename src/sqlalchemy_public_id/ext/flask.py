"""Flask: public ids in URLs, and the row of one or a 404.

>>> from flask import Flask
>>> from sqlalchemy_public_id.ext.flask import get_or_404, register
>>> app = Flask("shop")
>>> register(app, User, name="user_id")
>>> @app.get("/users/<user_id:public_id>")
... def show_user(public_id: str) -> dict[str, str]:
...     user = get_or_404(session, User, public_id)
...     return {"id": user.public_id, "name": user.name}
>>> client = app.test_client()
>>> client.get("/users/izkpm55j334u").json
{'id': 'izkpm55j334u', 'name': 'Ada'}
>>> client.get("/users/000000000000").status_code, client.get("/users/1").status_code
(404, 404)
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, TypeVar

from sqlalchemy.orm import Session, scoped_session
from typing_extensions import Unpack

from sqlalchemy_public_id import lookup
from sqlalchemy_public_id.errors import ConfigurationError, InvalidPublicId, MissingExtra, shown
from sqlalchemy_public_id.ext import _mapped
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.lookup import How
from sqlalchemy_public_id.typed import TypedId
from sqlalchemy_public_id.types import PublicIdType, public_id_type

try:
    import_module("flask")
except ModuleNotFoundError as error:
    raise MissingExtra("flask", extra="flask") from error

from flask import Flask, abort
from werkzeug.routing import BaseConverter, ValidationError

__all__ = ["get_or_404", "register"]

M = TypeVar("M")
"""A model."""


def register(app: Flask, source: Format | type[Any], *, name: str, attribute: str | None = None) -> None:
    """Let the rules of *app* say ``<name:argument>`` for the public ids of *source*.

    Such a rule matches well-formed ids and nothing else, so that a view never sees another text, and two rules for
    ids of different prefixes can have the same form. The view gets the canonical text, or a typed id where there is
    one. ``url_for`` takes an id, or an object of the model; anything else, such as an integer key, is an
    :class:`~sqlalchemy_public_id.InvalidPublicId`.

    :param app: the application; call this before its rules and blueprints are added.
    :param source: a format, a :class:`TypedId` class, or a mapped class, whose public id is meant.
    :param name: how rules call the converter.
    :param attribute: which public id, where a mapped class has several; ``public_id`` by default.
    :raises ConfigurationError: where *source* has no public id, or *app* has a converter of this name.
    """
    if not isinstance(app, Flask):
        raise TypeError(f"expected a Flask application, not {type(app).__name__}; converters belong to the application")
    if not isinstance(name, str) or not name.isidentifier():
        raise ConfigurationError(f"name is {shown(name)}, expected an identifier, for rules such as '/<user_id:id>'")
    if name in app.url_map.converters:
        raise ConfigurationError(f"the application has a converter {name!r} already; choose another name")
    app.url_map.converters[name] = _converter(source, attribute)


def get_or_404(
    session: Session | scoped_session[Any],
    model: type[M],
    public_id: object,
    *,
    attribute: str | None = None,
    **how: Unpack[How],
) -> M:
    """The row of *model* with this public id, or Flask's answer 404; takes what
    :func:`sqlalchemy_public_id.lookup.get` takes.

    A malformed id is a 404 as well, and sends no statement.
    """
    found = lookup.get(session, model, public_id, attribute=attribute, **how)  # type: ignore[arg-type]  # scoped_session too
    if found is None:
        abort(404)
    return found


def _converter(source: Format | type[Any], attribute: str | None) -> type[BaseConverter]:
    """The converter class for the public ids of *source*."""
    model, key = None, ""
    if isinstance(source, Format) or (isinstance(source, type) and issubclass(source, TypedId)):
        type_ = PublicIdType(source)
    else:
        model = source
        key, column = _mapped.public_id(model, attribute)
        type_ = public_id_type(column)
    anchored = type_.id_format.pattern

    class PublicIdConverter(BaseConverter):
        regex = anchored.removeprefix("^").removesuffix("$")  # Werkzeug puts it into that of the whole rule

        def to_python(self, value: str) -> str:
            try:
                return type_.checked(value)
            except InvalidPublicId as error:  # a wrong check digit, which no pattern tells
                raise ValidationError from error

        def to_url(self, value: Any) -> str:
            if model is not None and isinstance(value, model):
                value = getattr(value, key)
            return super().to_url(type_.checked(value))

    return PublicIdConverter
