"""Flask: a URL converter for public ids, a function that returns a row or answers 404, and answers to errors.

>>> from flask import Flask
>>> from sqlalchemy_public_id.ext.flask import get_or_404, install, register
>>> app = Flask("shop")
>>> install(app)
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
>>> client.get("/users/000000000000").json
{'detail': 'no such User'}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy.orm import Session, scoped_session
from typing_extensions import Unpack

from sqlalchemy_public_id.columns import public_id_type
from sqlalchemy_public_id.errors import ConfigurationError, InvalidPublicId, PublicIdNotFound, require
from sqlalchemy_public_id.ext import _mapped
from sqlalchemy_public_id.ext._legacy import LegacyKeys
from sqlalchemy_public_id.ext._messages import ANSWERED, answer_to, field_of
from sqlalchemy_public_id.ext._rows import find_row
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.lookup import LoadOptions
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.typed import TypedId
from sqlalchemy_public_id.types import IdColumnType

with require("flask"):
    from flask import Blueprint, Flask, after_this_request, request
    from werkzeug.exceptions import NotFound
    from werkzeug.routing import BaseConverter, ValidationError

__all__ = ["LegacyKeys", "get_or_404", "install", "register"]

M = TypeVar("M")
"""A model."""


def install(app: Flask | Blueprint) -> None:
    """Add error handlers for the errors of this library to *app*, which answer with JSON, as those for FastAPI do.

    A handler of *app* for one of these errors stays, whether it was registered before or is registered afterwards.

    * 404: :class:`~sqlalchemy_public_id.PublicIdNotFound` for the requested row;
    * 422: the same error with a field, for an unknown id in a body;
      :class:`~sqlalchemy_public_id.errors.InvalidCursor`, :class:`~sqlalchemy_public_id.errors.InvalidPage` and
      :class:`~sqlalchemy_public_id.errors.InvalidPublicId`;
    * 409: :class:`~sqlalchemy_public_id.errors.IdempotencyConflict`, and
      :class:`~sqlalchemy_public_id.errors.AmbiguousPublicId`, which is logged.

    The answers are ``{"detail": …}``; a 422 lists ``type``, ``loc`` and ``msg``, and a 409 also has ``differing``.
    ``loc`` is ``body`` or ``query``, by the method of the request, and the attribute of the model, because Flask does
    not know the fields of a body. (If a Pydantic model has parsed a typed id, ``loc`` has the name of its field.)

    The answers name models, fields and formats, but contain no keys, no SQL and no input. An id that did not come with
    the request, such as one in your settings, is answered in the same way.

    :param app: the application, or a blueprint, whose views alone then get these handlers. A handler of the application
        for the status 404 takes precedence for what :func:`get_or_404` does not find, except in such a blueprint.
    """
    for error in ANSWERED:
        if _handler(app, error) is None:
            app.register_error_handler(error, _answer)
    if isinstance(app, Blueprint):  # Flask prefers the application's handler of a status to a blueprint's of an error
        app.register_error_handler(_NoRow, lambda error: (_handler(app, PublicIdNotFound) or _answer)(error))


def register(
    app: Flask,
    source: Format | type[Any],
    *,
    name: str,
    attribute: str | None = None,
    legacy_keys: LegacyKeys | None = None,
) -> None:
    """Add a URL converter to *app*, so that rules can contain ``<name:argument>`` for the public ids of *source*.

    Such a rule matches well-formed ids only, so rules for different prefixes can share a path. The view gets the
    canonical string, or a typed id if *source* has one. ``url_for`` accepts an id or an object of the model. For any
    other value, such as an integer key, it raises :class:`~sqlalchemy_public_id.InvalidPublicId`.

    :param app: the application. Call this before you add rules and blueprints.
    :param source: a format, a :class:`TypedId` class, or a mapped class with a public id.
    :param name: the name of the converter in rules.
    :param attribute: the name of the public id if the mapped class has several; ``public_id`` by default.
    :param legacy_keys: the integer keys in old links that should match, too. Pass them to :func:`get_or_404` as well.
    :raises ConfigurationError: if *source* has no public id, if *name* is not an identifier, or if *app* already has a
        converter of this name.
    :raises TypeError: if *app* is not a Flask application.
    """
    if not isinstance(app, Flask):
        raise TypeError(f"expected a Flask application, not {type(app).__name__}; converters belong to the application")
    if not isinstance(name, str) or not name.isidentifier():
        raise ConfigurationError(
            f"name is {safe_repr(name)}, expected an identifier, for rules such as '/<user_id:id>'"
        )
    if name in app.url_map.converters:
        raise ConfigurationError(f"the application has a converter {name!r} already; choose another name")
    app.url_map.converters[name] = _converter(source, attribute, legacy_keys)


def get_or_404(
    session: Session | scoped_session[Any],
    model: type[M],
    public_id: object,
    *,
    attribute: str | None = None,
    legacy_keys: LegacyKeys | None = None,
    **load: Unpack[LoadOptions],
) -> M:
    """Return the row of *model* with this public id, or abort with 404, with or without :func:`install`.

    It takes the arguments of :func:`sqlalchemy_public_id.lookup.get`. A malformed id aborts with 404 without a query.

    :param legacy_keys: the integer keys in old links to accept until a given day.
    """
    obj, headers = find_row(session, model, public_id, legacy_keys, attribute=attribute, **load)
    if obj is None:
        raise _NoRow(public_id, model=model.__name__)
    if headers:

        @after_this_request
        def add_headers(response: Any) -> Any:
            response.headers.update(headers)
            return response

    return obj


class _NoRow(PublicIdNotFound, NotFound):
    """A :class:`PublicIdNotFound` that Flask answers with 404 without :func:`install`, too."""

    def __init__(self, value: object, *, model: str) -> None:
        NotFound.__init__(self, f"no such {model}")  # which removes the arguments of the error
        PublicIdNotFound.__init__(self, value, model=model)


def _handler(app: Flask | Blueprint, error: type[Exception]) -> Callable[[Any], Any] | None:
    """Return the handler of *app* for *error* itself; ``None`` if there is none."""
    handlers: Any = app.error_handler_spec  # scope → status → error → handler
    found: Callable[[Any], Any] | None = handlers.get(None, {}).get(None, {}).get(error)
    return found


def _answer(error: Exception) -> tuple[dict[str, Any], int]:
    return answer_to(error, request.method, field_of(error))


def _converter(
    source: Format | type[Any], attribute: str | None, legacy_keys: LegacyKeys | None
) -> type[BaseConverter]:
    model, id_attribute = None, ""
    if isinstance(source, Format) or (isinstance(source, type) and issubclass(source, TypedId)):
        type_ = IdColumnType(source)
    else:
        model = source
        id_attribute, column = _mapped.public_id(model, attribute)
        type_ = public_id_type(column)
    patterns = [type_.id_format.pattern, *([] if legacy_keys is None else [legacy_keys.pattern])]

    class PublicIdConverter(BaseConverter):
        # Werkzeug embeds it in the pattern of the rule
        regex = "|".join(pattern.removeprefix("^").removesuffix("$") for pattern in patterns)

        def to_python(self, value: str) -> str:
            if (
                legacy_keys is not None
                and not type_.id_format.is_valid(value)
                and legacy_keys.key_in(value) is not None
            ):
                return value
            try:
                return type_.checked(value)
            except InvalidPublicId as error:  # a wrong check digit: the pattern cannot check it
                raise ValidationError from error

        def to_url(self, value: Any) -> str:
            if model is not None and isinstance(value, model):
                value = getattr(value, id_attribute)
            return super().to_url(type_.checked(value))

    return PublicIdConverter
