"""Find rows by public id.

>>> from sqlalchemy_public_id import lookup
>>> user = lookup.get_one(session, User, "izkpm55j334u")
>>> lookup.get(session, User, "no such id") is None
True

Input that cannot be an id of the model (malformed, another type's prefix, an integer, ``None``) is rejected without a
query: :func:`get` returns ``None``, :func:`get_one` and :func:`page` raise
:class:`~sqlalchemy_public_id.PublicIdNotFound`, and the other functions leave it out. Integer keys are never accepted.
If a format has several spellings of an id, all are accepted, and the canonical one is returned.

``sqlalchemy_public_id.asyncio.lookup`` has these functions for an ``AsyncSession``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, bindparam, inspect, select
from sqlalchemy.orm import InstrumentedAttribute, Mapper
from sqlalchemy.orm.interfaces import ORMOption
from typing_extensions import TypedDict, Unpack

from sqlalchemy_public_id.columns import public_id_type
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError, PublicIdNotFound
from sqlalchemy_public_id.lookup.pages import Page, page
from sqlalchemy_public_id.lookup.routing import Routes, configure
from sqlalchemy_public_id.lookup.selecting import Rows, Where, model_of, selected
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.orm.inspection import (
    AnySession,
    condition_of,
    has_tokens,
    is_sharded,
    public_id_attribute,
    require_session,
)
from sqlalchemy_public_id.types import IdColumnType

__all__ = [
    "LoadOptions",
    "Page",
    "Where",
    "get",
    "get_many",
    "get_one",
    "keys_of",
    "page",
    "public_ids_of",
    "resolve",
    "resolve_many",
]

M = TypeVar("M")  # a model


class LoadOptions(TypedDict, total=False):
    """The keyword arguments of :func:`get`, which control how a row is loaded and which rows are visible."""

    options: Sequence[ORMOption]
    with_for_update: bool | Mapping[str, Any] | None
    populate_existing: bool
    execution_options: Mapping[str, Any] | None
    where: Where | None


def get(
    session: AnySession, model: Rows[M], public_id: object, *, attribute: str | None = None, **load: Unpack[LoadOptions]
) -> M | None:
    """Return the row of *model* with this public id, or ``None``.

    :param model: the model, or ``select(Model)`` with conditions, joins and options.
    :param where: a condition on visible rows, or a function that takes the model and returns one. Any other row is
        treated as if it did not exist, down to the number of statements.
    :param attribute: the name of the public id, if a model has several; ``public_id`` by default.
    :param options: loader options, such as ``selectinload(User.orders)``.
    :param with_for_update: ``True``, or the arguments of :meth:`sqlalchemy.Select.with_for_update`.
    :param populate_existing: refresh an object that the session already holds.
    :param execution_options: the execution options of the statement.
    """
    check_options("get", load)
    key, type_ = _public_id(session, model, attribute)
    text = type_.canonical(public_id)
    if load or isinstance(model, Select) or is_sharded(session):  # a shard is chosen by the values in the statement
        statement, entity = selected("get", model, load.pop("where", None), attribute)
        if text is None:
            return None
        found: M | None = _one_row(session, statement.where(getattr(entity, key) == text), load)
        return found
    if text is None:
        return None
    row: M | None = session.scalars(_query(model, key), {_PARAMETER: str.__str__(text)}).unique().one_or_none()
    return row


_PARAMETER = "sqlalchemy_public_id"
_QUERIES = "sqlalchemy_public_id.queries"
"""Key in the ``info`` of a public id's property: model → the SELECT of one row. Building it takes most of the time."""


def _query(model: type[Any], key: str) -> Any:
    queries = _mapper(model).attrs[key].info.setdefault(_QUERIES, {})
    query = queries.get(model)
    if query is None:
        column = getattr(model, key)
        value = bindparam(_PARAMETER, type_=column.type.as_parameter)
        query = queries[model] = select(model).where(column == value)
    return query


def check_options(function: str, load: Mapping[str, object]) -> None:
    """Raise a ``TypeError`` if *function* was called with an unknown argument."""
    unknown = [name for name in load if name not in LoadOptions.__annotations__]
    if unknown:
        expected = ", ".join(LoadOptions.__annotations__)
        raise TypeError(f"{function}() has no option {', '.join(unknown)}; expected {expected}")


def one_row(
    session: AnySession,
    model: type[M],
    condition: ColumnElement[bool],
    *,
    evaluate: Sequence[ColumnElement[Any]] = (),
    **load: Unpack[LoadOptions],
) -> M | None:
    """Return the one row of *model* that meets *condition*, loaded as by :func:`get`.

    :param evaluate: expressions that the database evaluates for the row; their values are dropped.
    """
    where, query = load.pop("where", None), select(model, *evaluate).where(condition)
    if where is not None:
        query = query.where(condition_of("where", where, model))
    row: M | None = _one_row(session, query, load)
    return row


def _one_row(session: AnySession, query: Any, load: LoadOptions) -> Any:
    query, execution_options = _apply_load_options(query, load)
    return session.scalars(query, execution_options=execution_options).unique().one_or_none()


def get_one(
    session: AnySession,
    model: Rows[M],
    public_id: object,
    *,
    attribute: str | None = None,
    field: str | None = None,
    **load: Unpack[LoadOptions],
) -> M:
    """Return the row of *model* with this public id, or raise an error. Accepts the options of :func:`get`.

    :param field: the name of the input that contains the id, for the error. Web services then answer 422, not 404.
    :raises PublicIdNotFound: if there is no such row, or *public_id* cannot be an id of the model.
    """
    row = get(session, model, public_id, attribute=attribute, **load)
    if row is None:
        raise _not_found(model, public_id, field)
    return row


def _not_found(model: Any, public_id: object, field: str | None) -> PublicIdNotFound:
    own = model_of(model)
    return PublicIdNotFound(public_id, model=own.__name__, field=field, may_be_token=has_tokens(_mapper(own)))


def resolve(
    session: AnySession,
    public_id: object,
    *,
    base: Any = None,
    models: Iterable[type[Any]] | None = None,
    **load: Unpack[LoadOptions],
) -> Any | None:
    """Return the row with this public id, of the model with its prefix, or ``None``. Accept the options of :func:`get`.

    :param base: the declarative base to search, if several bases have a model with this prefix.
    :param models: the only models to search, with their subclasses: ``[Issue, Comment]``. An id of any other model is
        treated like an unknown one, without a statement. By default, every model with a prefix can be reached.
    :raises DuplicatePrefix: if several bases have such a model, and neither *base* nor *models* is given.
    :raises ConfigurationError: if *base* and *models* are both given, or if one of *models* is no model with a prefix.
    """
    require_session(session)
    routes = Routes(base, models)
    configure([public_id])
    for model, name, _ in routes.places_of(public_id):
        row = get(session, model, public_id, attribute=name, **load)
        if row is not None:
            return row
    return None


def resolve_many(
    session: AnySession,
    public_ids: Iterable[object],
    *,
    base: Any = None,
    models: Iterable[type[Any]] | None = None,
    **load: Unpack[LoadOptions],
) -> dict[str, Any]:
    """Return a dict of public id → row, of any models, in the order of *public_ids*.

    Unknown ids are left out. Sends one statement for each model, like :func:`get_many`, and accepts the options of
    :func:`resolve`. For several models, ``where`` must be a function of the model.
    """
    require_session(session)
    check_options("resolve_many", load)
    _refuse_string(public_ids, "expected a list of ids, not the string {}: write [public_id], or use lookup.resolve()")
    wanted, routes = list(public_ids), Routes(base, models)
    configure(wanted)
    places = [(public_id, place) for public_id in wanted for place in routes.places_of(public_id)]
    rows: dict[str, Any] = {}
    for model, name in dict.fromkeys(place[:2] for _, place in places):
        of_model = [public_id for public_id, place in places if place[:2] == (model, name)]
        rows.update(get_many(session, model, of_model, attribute=name, **load))
    texts = dict.fromkeys(place.format.validate(public_id) for public_id, place in places)
    return {text: rows[text] for text in texts if text in rows}


def get_many(
    session: AnySession,
    model: Rows[M],
    public_ids: Iterable[object],
    *,
    attribute: str | None = None,
    field: str | None = None,
    **load: Unpack[LoadOptions],
) -> dict[str, M]:
    """Return a dict of public id → row of *model*, in the order of *public_ids*. Unknown ids are left out.

    Sends one statement; on SQLite, one for every 10,000 ids. Accepts the options of :func:`get`.

    :param field: the name of the input that contains the ids. An unknown id then raises an error with this name.
    :raises PublicIdNotFound: with *field*, for the first id without a row.
    """
    check_options("get_many", load)
    key, type_ = _public_id(session, model, attribute)
    if field is not None:
        public_ids = list(public_ids)
    wanted = _well_formed(type_, public_ids)
    statement, entity = selected("get_many", model, load.pop("where", None), attribute)
    rows: dict[Any, Any] = dict.fromkeys(wanted)
    # in the object, the id may be missing (an option defers it), or be older than an UPDATE statement
    column = getattr(entity, key)
    for condition in _any_of(session, entity, column, wanted):
        query, execution_options = _apply_load_options(statement.add_columns(column).where(condition), load)
        result: Any = session.execute(query, execution_options=execution_options)
        rows.update((public_id, row) for row, public_id in result.unique())
    if field is not None:
        for public_id in public_ids:
            if rows.get(type_.canonical(public_id)) is None:
                raise _not_found(model, public_id, field)
    if len(rows) == len(wanted) and type(None) not in {*map(type, rows.values())}:
        return rows  # none is unknown; types are compared, because a model may define __eq__()
    # if the collation is not exact, the database may have sent rows of other ids, which come last
    return {public_id: row for public_id, row in islice(rows.items(), len(wanted)) if row is not None}


def keys_of(
    session: AnySession,
    model: type[Any] | Select[Any],
    public_ids: Iterable[object],
    *,
    attribute: str | None = None,
    where: Where | None = None,
    execution_options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a dict of public id → key, without loading the rows, in one statement like :func:`get_many`.

    Unknown ids are left out. A composite key is a tuple.

    :param where: as for :func:`get`.
    :param execution_options: the execution options of the statement.
    """
    name, type_ = _public_id(session, model, attribute)
    wanted = _well_formed(type_, public_ids)
    statement, entity = selected("keys_of", model, where, attribute)
    column: InstrumentedAttribute[str] = getattr(entity, name)
    keys: dict[str, Any] = {}
    query = _with_columns(statement, column, *_primary_key(entity))
    for condition in _any_of(session, entity, column, wanted):
        result: Any = session.execute(query.where(condition), execution_options=dict(execution_options or {}))
        for public_id, *key in result:
            keys[public_id] = key[0] if len(key) == 1 else tuple(key)
    return {public_id: keys[public_id] for public_id in wanted if public_id in keys}


def public_ids_of(
    session: AnySession,
    model: type[Any] | Select[Any],
    keys: Iterable[Any],
    *,
    attribute: str | None = None,
    where: Where | None = None,
    execution_options: Mapping[str, Any] | None = None,
) -> dict[Any, str]:
    """Return a dict of key → public id, without unknown keys and without loading rows, like :func:`keys_of`.

    :param where: as for :func:`get`.
    :param execution_options: the execution options of the statement.
    :raises ConfigurationError: for composite keys, and if several shards have rows with one of *keys*.
    """
    name, _ = _public_id(session, model, attribute)
    statement, entity = selected("public_ids_of", model, where, attribute)
    column: InstrumentedAttribute[str] = getattr(entity, name)
    primary_key = _primary_key(entity)
    if len(primary_key) != 1:
        own = model_of(model)
        raise ConfigurationError(f"{own.__name__} has a composite key; select its rows with an ordinary statement")
    _refuse_string(keys, "expected a list of keys, not the string {}: write [key]")
    wanted = list(dict.fromkeys(keys))
    public_ids: dict[Any, str] = {}
    query = _with_columns(statement, primary_key[0], column)
    for condition in _any_of(session, entity, primary_key[0], wanted):
        result: Any = session.execute(query.where(condition), execution_options=dict(execution_options or {}))
        for key, public_id in result:
            if public_ids.setdefault(key, public_id) != public_id:
                raise ConfigurationError(
                    f"several shards have a row of {model_of(model).__name__} with the key {key}, so the key has "
                    f"several public ids; select the row with bind_arguments={{'shard_id': …}}"
                )
    return {key: public_ids[key] for key in wanted if key in public_ids}


def _public_id(session: object, model: Any, attribute: str | None) -> tuple[str, IdColumnType]:
    require_session(session)
    name, column = public_id_attribute(model_of(model), attribute)
    return name, public_id_type(column)


def _with_columns(statement: Any, *columns: Any) -> Any:
    """Return *statement* with these columns instead of its model."""
    return statement.with_only_columns(*columns, maintain_column_froms=True)


def _apply_load_options(query: Any, load: LoadOptions) -> tuple[Any, dict[str, Any]]:
    query = query.options(*load.get("options", ()))
    lock = load.get("with_for_update")
    if lock:
        query = query.with_for_update(**({} if lock is True else lock))
    execution_options = dict(load.get("execution_options") or {})
    if load.get("populate_existing"):
        execution_options["populate_existing"] = True
    return query, execution_options


def _refuse_string(values: object, message: str) -> None:
    if isinstance(values, (str, bytes)):
        raise TypeError(message.format(safe_repr(values)))


def _well_formed(type_: IdColumnType, public_ids: Iterable[object]) -> list[str]:
    _refuse_string(public_ids, "expected a list of ids, not the string {}: write [public_id], or use lookup.get()")
    format = type_.id_format
    if format.bits is not None:  # an id has several spellings; rows are found by the canonical one
        return list(dict.fromkeys(format.validate(text) for text in public_ids if format.is_valid(text)))
    accepts, is_valid = format.quick_check, format.is_valid
    texts: list[Any] = list(public_ids)
    if {str}.issuperset(map(type, texts)) and all(map(accepts, texts)):  # the usual case, without a Python loop
        return list(dict.fromkeys(texts))
    accepted = (text for text in texts if isinstance(text, str) and (accepts(text) or is_valid(text)))
    return list(dict.fromkeys(map(str.__str__, accepted)))


def _mapper(entity: Any) -> Mapper[Any]:
    mapper: Mapper[Any] = inspect(entity).mapper
    return mapper


def _primary_key(entity: Any) -> list[Any]:
    mapper = _mapper(entity)
    return [getattr(entity, mapper.get_property_by_column(column).key) for column in mapper.primary_key]


def _any_of(session: AnySession, entity: Any, column: Any, values: list[Any]) -> Iterator[ColumnElement[bool]]:
    """Yield conditions that together select the rows with one of *values*."""
    type_ = column.type.as_parameter if isinstance(column.type, IdColumnType) else None
    return traits_for(session.get_bind(_mapper(entity)).dialect).any_of(column, values, type_)
