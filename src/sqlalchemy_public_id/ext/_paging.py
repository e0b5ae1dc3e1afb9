"""A FastAPI dependency that returns a page of rows, sorted and filtered by the query parameters of the request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, Signature, getattr_static
from typing import Annotated, Any, Literal, TypeVar, cast, get_args, get_origin

from fastapi import Depends, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, SkipValidation, ValidationError
from pydantic.fields import FieldInfo
from sqlalchemy import SQLColumnExpression, select
from sqlalchemy.orm import RelationshipProperty, Session
from sqlalchemy.orm.interfaces import ORMOption

from sqlalchemy_public_id import lookup, references
from sqlalchemy_public_id.errors import ConfigurationError, InvalidCursor
from sqlalchemy_public_id.ext import _fields, _mapped, _sessions
from sqlalchemy_public_id.lookup import ordering
from sqlalchemy_public_id.lookup.paging import checked_count, checked_cursor_options
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.orm.inspection import checked_condition

M = TypeVar("M")  # a model

_OWN = ("after", "before", "limit", "sort")
"""Parameters of every page, whose names a filter cannot use."""
_SEVERAL = (list, tuple, set, frozenset)


@dataclass(frozen=True)
class Matches:
    """A condition of your own for a field of a filter: a function that takes the value and returns the condition.

    ``since: Annotated[datetime | None, Matches(lambda since: Ticket.created_at >= since)] = None``
    """

    condition: Callable[[Any], SQLColumnExpression[bool]]


def page_of(
    model: type[M],
    *,
    session: Callable[..., Any],
    sort: Sequence[str] | Mapping[str, Any] = (),
    default: Sequence[str] = (),
    newest_first: bool = False,
    filter: type[BaseModel] | None = None,
    scope: Callable[..., Any] | None = None,
    options: Sequence[ORMOption] = (),
    cursor_execution_options: Mapping[str, Any] | None = None,
    limit: int = 20,
    max_limit: int = 100,
    count: bool | int = False,
    attribute: str | None = None,
) -> Callable[..., Awaitable[lookup.Page[M]]]:
    """Build a dependency that returns a page of the rows of *model*: ``?limit=50&sort=-priority&after=…``.

    The page comes from :func:`sqlalchemy_public_id.lookup.page`, and the public ids of references are loaded with it.
    An invalid limit, cursor, name or filter is answered with 422, in the shape of FastAPI's own answers.

    :param session: a dependency that returns a ``Session`` or an ``AsyncSession``, as for :func:`by_public_id`.
    :param sort: what clients may sort by: names of attributes, or a mapping of names to expressions, such as
        ``{"city": Address.city}``. Clients put a minus sign before a name for descending order, and can repeat the
        parameter.
    :param default: the order if the client sends none, such as ``["-priority"]``. By default, rows are sorted by key.
    :param newest_first: sort by key in descending order where rows are otherwise equal.
    :param filter: a Pydantic model whose fields become parameters, under all the names that it accepts. If a client
        sets a field, the attribute of *model* with its name must equal the value, or one of the values in a list.
        For any other condition, use :class:`Matches`. The model validates the query, so ``extra="forbid"`` refuses
        unknown parameters.
    :param scope: a dependency that returns a condition. Rows outside the condition are left out, and their ids are
        refused as cursors.
    :param options: loader options, such as ``selectinload(Ticket.tags)``.
    :param cursor_execution_options: as for :func:`sqlalchemy_public_id.lookup.page`: execution options by which a
        listener of the session leaves out criteria, such as those that hide deleted rows, for the row of the cursor.
    :param limit: the number of rows on a page if the client sends none, at most *max_limit*.
    :param max_limit: the largest number of rows that a client can request.
    :param count: count the rows of all pages, or up to a number of them
        (:attr:`~sqlalchemy_public_id.lookup.Page.total`).
    :param attribute: the name of the public id if the model has several; ``public_id`` by default.
    :raises ConfigurationError: if *model* has no such public id, if a name is not one of its attributes, or if
        *session* is not a dependency, such as a ``sessionmaker``.
    """
    _mapped.public_id(model, attribute)
    _sessions.require_dependency("session", session)
    if scope is not None:
        _sessions.require_dependency("scope", scope)
    for what, names in (("sort", sort), ("default", default)):
        if isinstance(names, str):
            raise ConfigurationError(f"{what} is the string {safe_repr(names)}, expected a list: [{safe_repr(names)}]")
    for what, most in (("limit", limit), ("max_limit", max_limit)):
        if not isinstance(most, int) or most < 1:
            raise ConfigurationError(f"{what} is {safe_repr(most)}, expected a whole number from 1")
    checked_cursor_options(cursor_execution_options)
    checked_count(count)
    orders = _orders(model, sort)
    unknown = [name for name in default if name not in orders]
    if unknown:
        known = f"some of {', '.join(orders)}" if orders else "names of sort=, which is empty"
        raise ConfigurationError(f"default has {safe_repr(unknown[0])}, expected {known}")

    async def page(
        session: Any,
        limit: int,
        after: str | None,
        before: str | None,
        sort: Sequence[str] = (),
        condition: Any = None,
        chosen: Sequence[Any] = (),
    ) -> lookup.Page[M]:
        if after is not None and before is not None:
            raise _unprocessable("before", "page_ambiguous", "pass either after or before, not both")
        query = select(model).where(*chosen).options(*options)
        where = None
        if scope is not None:
            where = checked_condition(f"the scope of {model.__name__} returned", condition, model)

        def find(sync: Session) -> lookup.Page[M]:
            page = lookup.page(
                sync,
                query,
                limit=limit,
                after=after,
                before=before,
                newest_first=newest_first,
                order_by=[orders[name]() for name in sort] or None,
                attribute=attribute,
                where=where,
                cursor_execution_options=cursor_execution_options,
                references=[getattr(model, name) for name in references.public_refs(model)],
                count=count,
            )
            references.load(sync, page)  # of subclasses, and of foreign keys that differ from the row
            return page

        try:
            return await _sessions.run(session, find)
        except InvalidCursor as error:
            raise _unprocessable(str(error.field), "cursor_invalid", f"not a cursor: {error.reason}") from error

    number: Any = Annotated[int, Query(ge=1, le=max_limit, description=_LIMIT)]
    parameters = {
        "session": _parameter("session", Annotated[Any, Depends(session)]),
        "limit": _parameter("limit", number, min(limit, max_limit)),
        "after": _parameter("after", Annotated[str | None, Query(description=_AFTER)], None),
        "before": _parameter("before", Annotated[str | None, Query(description=_BEFORE)], None),
    }
    if orders:
        choice: Any = Literal[tuple(orders)]
        by: Any = Annotated[list[choice], Query(description=_SORT, max_length=len(orders) // 2)]
        parameters["sort"] = _parameter("sort", by, list(default))
    if scope is not None:
        parameters["condition"] = _parameter("condition", Annotated[Any, Depends(scope)])
    if filter is not None:
        parameters["chosen"] = _parameter("chosen", Annotated[Any, Depends(_filter_by(model, filter))])
    # FastAPI reads the signature, because the parameters depend on the model; lint_app() reads what it returns
    page.__signature__ = Signature([*parameters.values()], return_annotation=lookup.Page[model])  # type: ignore[attr-defined,valid-type]
    return page


_LIMIT = "The largest number of rows."
_AFTER = "The `next` of a page, or the public id of the row that these rows follow."
_BEFORE = "The `previous` of a page, or the public id of the row that these rows precede."
_SORT = "What the rows are sorted by, the first name first. A minus sign reverses the order."


def _parameter(name: str, annotation: Any, default: Any = Parameter.empty) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _unprocessable(name: str, kind: str, message: str) -> RequestValidationError:
    return RequestValidationError([{"type": kind, "loc": ("query", name), "msg": message}])


def _check_attribute(what: str, model: type[Any], name: str) -> None:
    # look up the attribute without its value: a reference has none before mappers are configured
    if getattr_static(model, name, None) is None:
        raise ConfigurationError(f"{what} has {safe_repr(name)}, which is not an attribute of {model.__name__}")
    mapper = _mapped.mapper_of(model)
    if mapper and mapper.has_property(name) and isinstance(mapper.get_property(name), RelationshipProperty):
        raise ConfigurationError(f"{what} has {safe_repr(name)}, a relationship, which has no value to compare")


# --- the order


def _orders(model: type[Any], sort: Sequence[str] | Mapping[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return name → function that returns the expression, for each name and for its reverse."""
    given: Mapping[str, Any] = sort if isinstance(sort, Mapping) else dict.fromkeys(sort)
    orders: dict[str, Callable[[], Any]] = {}
    for name, expression in given.items():
        if expression is None:
            _check_attribute("sort", model, name)
            forwards: Callable[[], Any] = partial(getattr, model, name)
        else:
            ordering.terms_of(expression)
            forwards = partial(_same, expression)
        orders[name] = forwards
        orders[f"-{name}"] = partial(_reversed, forwards)
    return orders


def _same(expression: Any) -> Any:
    return expression


def _reversed(forwards: Callable[[], Any]) -> Any:
    """Return the expression in the other direction. An explicit NULLS FIRST or NULLS LAST does not change."""
    (term,) = ordering.terms_of(forwards())
    expression = term.expression.asc() if term.descending else term.expression.desc()
    if term.nulls_first is None:
        return expression
    return expression.nulls_first() if term.nulls_first else expression.nulls_last()


# --- the filter


def _filter_by(model: type[Any], filter: type[BaseModel]) -> Callable[..., Awaitable[list[Any]]]:
    """Build a dependency that takes the fields of *filter*, and returns the conditions of those that are set.

    It is separate from ``page()``, so that a field can have the name of a parameter of that function.
    """
    fields = filter.model_fields
    paths = {name: list(_fields.read_paths(filter, name, field)) for name, field in fields.items()}
    for path in (path for each in paths.values() for path in each):
        if path[0] in _OWN:
            raise ConfigurationError(
                f"{filter.__name__}.{path[0]} is also a parameter of every page; choose another name"
            )
    conditions = {name: _condition(model, filter, name, field) for name, field in fields.items()}
    lists = [name for name, field in fields.items() if _takes_several(field.annotation)]
    several = {path[0] for name, each in paths.items() for path in each if name in lists or len(path) > 1}

    # asynchronous: FastAPI calls others in a thread with arguments of its own, whose names a field may have
    async def conditions_of(_request: Request, **_: Any) -> list[Any]:
        query = _request.query_params
        given = {key: query.getlist(key) if key in several else query[key] for key in query if key not in _OWN}
        try:
            chosen = filter.model_validate(given)  # as it is declared, with its own names, validators and defaults
        except ValidationError as error:
            details = error.errors(include_url=False)
            raise RequestValidationError([{**one, "loc": ("query", *one["loc"])} for one in details]) from error
        return list(_chosen(chosen, conditions))

    # no field of Pydantic begins with an underscore
    parameters = [_parameter("_request", Request)]
    parameters += [_filter_parameter(name, field, paths[name]) for name, field in fields.items()]
    # FastAPI reads the signature: the parameters are those of the filter
    conditions_of.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return conditions_of


def _takes_several(annotation: Any) -> bool:
    """Return True if a parameter with this annotation may be repeated."""
    return (get_origin(annotation) or annotation) in _SEVERAL or any(map(_takes_several, get_args(annotation)))


def _condition(model: type[Any], filter: type[BaseModel], name: str, field: FieldInfo) -> Callable[[Any], Any]:
    """Return a function that returns the condition for a value of *field*."""
    own = [each.condition for each in field.metadata if isinstance(each, Matches)]
    if own:
        return own[0]
    _check_attribute(filter.__name__, model, name)
    return partial(_is_equal, model, name)


def _is_equal(model: type[Any], name: str, value: Any) -> Any:
    attribute = getattr(model, name)
    return attribute.in_(value) if isinstance(value, _SEVERAL) else attribute == value


def _chosen(chosen: BaseModel, conditions: Mapping[str, Callable[[Any], Any]]) -> Iterator[Any]:
    """Yield the conditions of the fields that are set."""
    values = dict(chosen)  # reading the attribute of a field that is deprecated would warn the service, not its client
    for name, condition in conditions.items():
        value = values[name]
        if value is not None and not (isinstance(value, _SEVERAL) and not value):
            yield condition(value)


def _filter_parameter(name: str, field: FieldInfo, paths: Sequence[_fields.Path]) -> Parameter:
    """Return the parameter that describes *field*; the filter itself validates it."""
    about = Query(
        alias=str(paths[0][0]),
        title=field.title,
        description=field.description,
        deprecated=field.deprecated,
        examples=field.examples,
        json_schema_extra=field.json_schema_extra,
    )
    parts = (field.annotation, *field.metadata, SkipValidation, about)
    annotation: Any = cast("Any", Annotated)[parts]  # Annotated[first, *more] needs Python 3.11
    is_required = field.is_required() and len(paths) == 1  # FastAPI knows only one name
    default = None if field.is_required() or field.default_factory else field.get_default()
    return _parameter(name, annotation, Parameter.empty if is_required else default)
