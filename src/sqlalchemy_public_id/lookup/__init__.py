"""Find rows by public id.

>>> from sqlalchemy_public_id import lookup
>>> user = lookup.get_one(session, User, "izkpm55j334u")
>>> lookup.get(session, User, "no such id") is None
True

Input that cannot be an id of the model (malformed, another type's prefix, an integer, ``None``) is rejected without a
query: :func:`get` returns ``None``, :func:`get_one` and :func:`page` raise
:class:`~sqlalchemy_public_id.PublicIdNotFound`, and the other functions leave it out. Integer keys are never accepted;
the functions that raise nothing warn of them, and of bytes, a row or a list in place of an id
(:class:`~sqlalchemy_public_id.errors.PublicIdWarning`).
All spellings of an id that its format has are accepted. Rows show the canonical one; a dict has the ids as passed.

``sqlalchemy_public_id.asyncio.lookup`` has these functions for an ``AsyncSession``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, select
from sqlalchemy.exc import MultipleResultsFound
from typing_extensions import Unpack

from sqlalchemy_public_id.columns import public_id_type
from sqlalchemy_public_id.errors import ConfigurationError, PublicIdNotFound
from sqlalchemy_public_id.lookup.beside import ambiguous, columns_beside, requiring_columns
from sqlalchemy_public_id.lookup.by_value import (
    PARAMETER,
    LoadOptions,
    apply_load_options,
    as_passed,
    in_order,
    key_as_stored,
    mapper_of_entity,
    query_of_one,
    rows_by,
)
from sqlalchemy_public_id.lookup.mistakes import mistaken_for_id, warn_of_mistakes
from sqlalchemy_public_id.lookup.nested_pages import pages
from sqlalchemy_public_id.lookup.paging import Page, page
from sqlalchemy_public_id.lookup.routing import Routes, configure
from sqlalchemy_public_id.lookup.selecting import Rows, Where, model_of_rows, selected
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
    "pages",
    "public_ids_of",
    "resolve",
    "resolve_many",
]

M = TypeVar("M")  # a model


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
    if load:
        check_options("get", load)
    key, type_ = _public_id(session, model, attribute)
    text = type_.id_format.canonical(public_id)
    # a shard is chosen by the values in the statement; what is wrong with the others is said of a malformed id, too
    row: M | None
    if load or isinstance(model, Select) or (text is not None and is_sharded(session)):
        row = _get_selected(session, model, key, text, public_id, load, attribute)
        return row
    if text is None:
        warn_of_mistakes([public_id])
        return None
    query = query_of_one(model, key)
    if query is None:  # the id is unique only with other columns
        row = _get_selected(session, model, key, text, public_id, load, attribute)
        return row
    try:
        row = session.scalars(query, {PARAMETER: text}).unique().one_or_none()
    except MultipleResultsFound:
        raise ambiguous(mapper_of_entity(model), key, [text]) from None
    return row


def _get_selected(
    session: AnySession, model: Any, key: str, text: str | None, given: object, load: LoadOptions, attribute: str | None
) -> Any:
    """Return the row of *model* with the id *text*, which is *given* in its canonical spelling, or ``None``."""
    where = load.pop("where", None)
    statement, entity, condition = selected("get", model, where, attribute)
    if text is None:
        warn_of_mistakes([given], level=4)
        return None
    query, mapper = statement.where(getattr(entity, key) == text), mapper_of_entity(entity)
    columns = columns_beside(mapper, key)
    with requiring_columns("get", session, entity, columns, condition, statement.whereclause) as options:
        try:
            return _one_row(session, query.execution_options(**options) if options else query, load)
        except MultipleResultsFound:
            raise ambiguous(mapper, key, [text]) from None


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
    query, execution_options = apply_load_options(query, load)
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
    # the error shows what was given, so there is no warning
    given = public_id if isinstance(public_id, str) or mistaken_for_id(type(public_id)) is None else None
    row = get(session, model, given, attribute=attribute, **load)
    if row is None:
        raise _not_found(model, public_id, field)
    return row


def _not_found(model: Any, public_id: object, field: str | None) -> PublicIdNotFound:
    own = model_of_rows(model)
    return PublicIdNotFound(public_id, model=own.__name__, field=field, may_be_token=has_tokens(mapper_of_entity(own)))


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
    :raises ConfigurationError: if both are given, if *base* is none, or if one of *models* is no model with a prefix.
    """
    require_session(session)
    routes = Routes(base, models)
    configure([public_id])
    for model, name, text in routes.candidates_of(public_id):
        row = get(session, model, text, attribute=name, **load)
        if row is not None:
            return row
    warn_of_mistakes([public_id])
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
    places = [(public_id, each) for public_id in wanted for each in routes.candidates_of(public_id)]
    if len(places) < len(wanted):
        warn_of_mistakes(wanted)
    rows: dict[str, Any] = {}
    for model, name in dict.fromkeys(each[:2] for _, each in places):
        texts = [each.text for _, each in places if each[:2] == (model, name)]
        rows.update(get_many(session, model, texts, attribute=name, **load))
    return in_order({as_passed(public_id, each.text): each.text for public_id, each in places}, rows)


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
    if load:
        check_options("get_many", load)
    key, type_ = _public_id(session, model, attribute)
    public_ids = public_ids if field is None else list(public_ids)
    wanted = _well_formed(type_, public_ids, is_checked=field is not None)
    rows: dict[Any, Any] = {}
    for found in rows_by("get_many", session, model, attribute, key, wanted.values(), (), load):
        rows.update(found)
    if field is not None:
        for public_id in public_ids:
            if type_.canonical(public_id) not in rows:
                raise _not_found(model, public_id, field)
    return in_order(wanted, rows)


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
    load = _load_options(where, execution_options)
    keys: dict[str, Any] = {}
    parts = _primary_key(model_of_rows(model))
    for found in rows_by("keys_of", session, model, attribute, name, wanted.values(), parts, load):
        keys.update((public_id, key[0] if len(key) == 1 else tuple(key)) for public_id, *key in found)
    return in_order(wanted, keys)


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
    own = model_of_rows(model)
    primary_key = _primary_key(own)
    if len(primary_key) != 1:
        raise ConfigurationError(f"{own.__name__} has a composite key; select its rows with an ordinary statement")
    _refuse_string(keys, "expected a list of keys, not the string {}: write [key]")
    wanted = {key: key_as_stored(key, getattr(own, primary_key[0])) for key in keys}
    load = _load_options(where, execution_options)
    public_ids: dict[Any, str] = {}
    for found in rows_by("public_ids_of", session, model, attribute, primary_key[0], wanted.values(), (name,), load):
        for key, public_id in found:
            if public_ids.setdefault(key, public_id) != public_id:
                raise ConfigurationError(
                    f"several shards have a row of {own.__name__} with the key {key}, so the key has "
                    f"several public ids; select the row with bind_arguments={{'shard_id': …}}"
                )
    return in_order(wanted, public_ids)


def _public_id(session: object, model: Any, attribute: str | None) -> tuple[str, IdColumnType]:
    require_session(session)
    name, column = public_id_attribute(model_of_rows(model), attribute)
    return name, public_id_type(column)


def _load_options(where: Where | None, execution_options: Mapping[str, Any] | None) -> LoadOptions:
    load: LoadOptions = {}
    if where is not None:
        load["where"] = where
    if execution_options:
        load["execution_options"] = execution_options
    return load


def _refuse_string(values: object, message: str) -> None:
    if isinstance(values, (str, bytes)):
        raise TypeError(message.format(safe_repr(values)))


def _well_formed(type_: IdColumnType, public_ids: Iterable[object], *, is_checked: bool = False) -> dict[str, str]:
    """Return the ids as they were passed → their canonical spelling, without those that no row can have."""
    _refuse_string(public_ids, "expected a list of ids, not the string {}: write [public_id], or use lookup.get()")
    texts: list[Any] = list(public_ids)
    if {str}.issuperset(map(type, texts)) and all(map(type_.id_format.quick_check, texts)):
        return dict(zip(texts, texts, strict=True))  # the usual case, without a Python loop
    if not is_checked:
        warn_of_mistakes(texts, level=4)
    canonical = map(type_.id_format.canonical, texts)
    return {as_passed(each, text): text for each, text in zip(texts, canonical, strict=True) if text is not None}


def _primary_key(model: Any) -> list[str]:
    """Return the names of the attributes that hold the primary key of *model*."""
    mapper = mapper_of_entity(model)
    return [mapper.get_property_by_column(column).key for column in mapper.primary_key]
