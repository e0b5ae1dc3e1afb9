"""Rows by public id, and the way between public ids and keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, inspect, select
from sqlalchemy.orm import InstrumentedAttribute, Mapper, Session, configure_mappers
from sqlalchemy.orm.interfaces import ORMOption
from typing_extensions import TypedDict, Unpack

from sqlalchemy_public_id import registry
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError, DuplicatePrefix, PublicIdNotFound, shown
from sqlalchemy_public_id.orm.inspection import id_attributes, ids_of_union, public_id_attribute, require_session
from sqlalchemy_public_id.types import PublicIdType, public_id_type

__all__ = ["How", "get", "get_many", "get_one", "keys_of", "public_ids_of", "resolve"]

M = TypeVar("M")
"""A model."""


class How(TypedDict, total=False):
    """The keyword arguments of :func:`get` that say how the row is loaded."""

    options: Sequence[ORMOption]
    with_for_update: bool | Mapping[str, Any] | None
    populate_existing: bool
    execution_options: Mapping[str, Any] | None


def get(
    session: Session,
    model: type[M],
    public_id: object,
    *,
    attribute: str | None = None,
    options: Sequence[ORMOption] = (),
    with_for_update: bool | Mapping[str, Any] | None = None,
    populate_existing: bool = False,
    execution_options: Mapping[str, Any] | None = None,
) -> M | None:
    """The row of *model* with this public id, or ``None``.

    :param attribute: which public id, where a model has several; ``public_id`` by default.
    :param options: loader options, such as ``selectinload(User.orders)``.
    :param with_for_update: ``True``, or the arguments of :meth:`sqlalchemy.Select.with_for_update`.
    :param populate_existing: whether an object that is in the session already is loaded anew.
    :param execution_options: for the statement.
    """
    key, type_ = _identifier(session, model, attribute)
    if not type_.id_format.is_valid(public_id):
        return None
    return one_row(
        session,
        model,
        getattr(model, key) == public_id,
        options=options,
        with_for_update=with_for_update,
        populate_existing=populate_existing,
        execution_options=execution_options,
    )


def one_row(session: Session, model: type[M], condition: ColumnElement[bool], **how: Unpack[How]) -> M | None:
    """The one row of *model* that meets *condition*, loaded as :func:`get` is told to."""
    query, chosen = _loading(select(model).where(condition), how)
    found: M | None = session.scalars(query, execution_options=chosen).unique().one_or_none()
    return found


def get_one(
    session: Session, model: type[M], public_id: object, *, attribute: str | None = None, **how: Unpack[How]
) -> M:
    """The row of *model* with this public id; takes what :func:`get` takes.

    :raises PublicIdNotFound: where there is none, and where the text cannot be an id of the model.
    """
    found = get(session, model, public_id, attribute=attribute, **how)
    if found is None:
        raise PublicIdNotFound(public_id, model=model.__name__)
    return found


def resolve(session: Session, public_id: object, *, base: Any = None, **how: Unpack[How]) -> Any | None:
    """The row with this public id, of whichever model its prefix tells; takes what :func:`get` takes.

    :param base: the declarative base to search, where several have a model with this prefix.
    :raises DuplicatePrefix: where several bases do and none is named.
    """
    require_session(session)
    configure_mappers()  # prefixes are claimed when mappers are configured
    mapped = [model for model in registry.models_of(public_id) if inspect(model, raiseerr=False) is not None]
    models = list(
        {(model.__module__, model.__qualname__): model for model in mapped}.values()
    )  # reloaded: the last one
    if base is not None:
        wanted = getattr(base, "registry", base)
        models = [model for model in models if _mapper(model).registry is wanted]
    found = [
        (model, key, public_id_type(column).id_format)
        for model in models
        for key, column in (id_attributes(_mapper(model)) or ids_of_union(_mapper(model))).items()
        if public_id_type(column).id_format.is_valid(public_id)
    ]
    if len(models) > 1:
        first, second, *_ = (f"{model.__module__}.{model.__qualname__}" for model in models)
        prefix = str(found[0][2].prefix)
        raise DuplicatePrefix(prefix, holder=first, newcomer=second, why="is, in another declarative base, that of")
    for model, key, _ in found:
        return get(session, model, public_id, attribute=key, **how)
    return None


def get_many(
    session: Session,
    model: type[M],
    public_ids: Iterable[object],
    *,
    attribute: str | None = None,
    options: Sequence[ORMOption] = (),
    with_for_update: bool | Mapping[str, Any] | None = None,
    populate_existing: bool = False,
    execution_options: Mapping[str, Any] | None = None,
) -> dict[str, M]:
    """The rows of *model* with these public ids, by id, in the order of *public_ids*; unknown ones are left out.

    One statement; more only where the database limits the number of parameters (SQLite: 32 766). Takes what
    :func:`get` takes.
    """
    key, type_ = _identifier(session, model, attribute)
    how: How = {
        "options": options,
        "with_for_update": with_for_update,
        "populate_existing": populate_existing,
        "execution_options": execution_options,
    }
    wanted = _well_formed(type_, public_ids)
    found: dict[str, M] = {}
    for condition in _any_of(session, model, getattr(model, key), wanted):
        query, chosen = _loading(select(model, getattr(model, key)).where(condition), how)
        rows: Any = session.execute(query, execution_options=chosen).unique()
        for row, public_id in rows:
            found[public_id] = row
    return {public_id: found[public_id] for public_id in wanted if public_id in found}


def keys_of(
    session: Session,
    model: type[Any],
    public_ids: Iterable[object],
    *,
    attribute: str | None = None,
    execution_options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Public id → key, without loading the rows; unknown ids are left out. One statement, as with :func:`get_many`.

    A composite key comes as a tuple.

    :param execution_options: for the statement.
    """
    key, type_ = _identifier(session, model, attribute)
    wanted = _well_formed(type_, public_ids)
    shown: InstrumentedAttribute[str] = getattr(model, key)
    found: dict[str, Any] = {}
    for condition in _any_of(session, model, shown, wanted):
        query = select(shown, *_primary(model)).where(condition)
        for public_id, *primary in session.execute(query, execution_options=dict(execution_options or {})):
            found[public_id] = primary[0] if len(primary) == 1 else tuple(primary)
    return {public_id: found[public_id] for public_id in wanted if public_id in found}


def public_ids_of(
    session: Session,
    model: type[Any],
    keys: Iterable[Any],
    *,
    attribute: str | None = None,
    execution_options: Mapping[str, Any] | None = None,
) -> dict[Any, str]:
    """Key → public id, without loading the rows; unknown keys are left out. One statement, as with :func:`get_many`.

    :param execution_options: for the statement.
    :raises ConfigurationError: for a composite key, and where several shards have rows with one of *keys*.
    """
    name, _ = _identifier(session, model, attribute)
    shown: InstrumentedAttribute[str] = getattr(model, name)
    primary = _primary(model)
    if len(primary) != 1:
        raise ConfigurationError(f"{model.__name__} has a composite key; select its rows with an ordinary statement")
    _refuse_text(keys, "expected several keys, not one text, {}: write [key]")
    wanted = list(dict.fromkeys(keys))
    found: dict[Any, str] = {}
    for condition in _any_of(session, model, primary[0], wanted):
        query = select(primary[0], shown).where(condition)
        for key, public_id in session.execute(query, execution_options=dict(execution_options or {})):
            if found.setdefault(key, public_id) != public_id:
                raise ConfigurationError(
                    f"several shards have a row of {model.__name__} with the key {key}, so it has no one "
                    f"public id; select it with bind_arguments={{'shard_id': …}}"
                )
    return {key: found[key] for key in wanted if key in found}


# --- inside


def _identifier(session: object, model: type[Any], attribute: str | None) -> tuple[str, PublicIdType]:
    """The name and type of the public id of *model* that is meant; refuses what is no session."""
    require_session(session)
    key, column = public_id_attribute(model, attribute)
    return key, public_id_type(column)


def _loading(query: Any, how: How) -> tuple[Any, dict[str, Any]]:
    """*query*, and the execution options for it, so that rows are loaded as *how* says."""
    query = query.options(*how.get("options", ()))
    lock = how.get("with_for_update")
    if lock:
        query = query.with_for_update(**({} if lock is True else lock))
    chosen = dict(how.get("execution_options") or {})
    if how.get("populate_existing"):
        chosen["populate_existing"] = True
    return query, chosen


def _refuse_text(values: object, message: str) -> None:
    if isinstance(values, (str, bytes)):
        raise TypeError(message.format(shown(values)))


def _well_formed(type_: PublicIdType, public_ids: Iterable[object]) -> list[str]:
    _refuse_text(public_ids, "expected several ids, not one text, {}: write [public_id], or use lookup.get()")
    format = type_.id_format
    texts: Iterable[str] = (str.__str__(text) for text in public_ids if isinstance(text, str) and format.is_valid(text))
    if format.bits is not None:  # there may be several ways to write it
        texts = map(format.validate, texts)
    return list(dict.fromkeys(texts))


def _mapper(model: type[Any]) -> Mapper[Any]:
    mapper: Mapper[Any] = inspect(model)
    return mapper


def _primary(model: type[Any]) -> list[Any]:
    mapper = _mapper(model)
    return [mapper.attrs[mapper.get_property_by_column(column).key].class_attribute for column in mapper.primary_key]


def _any_of(session: Session, model: type[Any], column: Any, values: list[Any]) -> Iterator[ColumnElement[bool]]:
    """Conditions that, together, select the rows where *column* is one of *values*."""
    type_ = column.type.as_parameter if isinstance(column.type, PublicIdType) else None
    return traits_for(session.get_bind(_mapper(model)).dialect).any_of(column, values, type_)
