"""Inspection of models and sessions: the public ids of a model, and the kind of a session."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, TypeAlias, cast
from weakref import ref

from sqlalchemy import Column, Connection, FromClause, MetaData, SQLColumnExpression, Table, Update, inspect, update
from sqlalchemy.exc import MissingGreenlet
from sqlalchemy.orm import (
    InstanceState,
    Mapper,
    QueryableAttribute,
    RelationshipProperty,
    Session,
    registry,
    scoped_session,
)
from sqlalchemy.orm.exc import UnmappedClassError
from sqlalchemy.sql import visitors
from sqlalchemy.types import TypeDecorator, TypeEngine
from sqlalchemy.util import await_only

from sqlalchemy_public_id.columns import is_public_id
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.weak import RefDict

BIGINT_KEY = "sqlalchemy_public_id.bigint_key"
"""Key in ``Column.info``: the column was declared by :func:`~sqlalchemy_public_id.bigint_key`."""

MIXED_IN = "sqlalchemy_public_id.mixed_in"
"""Key in ``Column.info``: the column is the primary key that a mixin adds."""

# --- models

_attributes: RefDict[Mapper[Any], dict[str, Column[Any]]] = RefDict()


def id_attributes(mapper: Mapper[Any]) -> dict[str, Column[Any]]:
    """Return attribute → column for the public ids of *mapper*, including inherited ones."""
    attributes = _attributes.get(ref(mapper))
    if attributes is None:
        # a joined table whose key refers to the public ids of its base has two columns for one attribute
        columns = [(prop.key, column) for prop in mapper.column_attrs for column in reversed(prop.columns)]
        attributes = {key: column for key, column in columns if is_public_id(column)}
        if mapper.configured:  # until then, attributes can be added to it
            _attributes.keep(mapper, attributes)
    return attributes


def refuse_second_column(mapper: Mapper[Any]) -> None:
    """Refuse a subclass that declares a public id of its base again, in its own table.

    SQLAlchemy would combine the two columns in one attribute, and each would get another id.
    """
    above = mapper.inherits
    if above is None or mapper.concrete:
        return
    for name, column in mapper.columns.items():
        inherited = above.columns.get(name)
        if inherited is not None and inherited is not column and is_public_id(inherited) and is_public_id(column):
            raise ConfigurationError(
                f"{mapper.class_.__name__} declares {name} again, which {above.class_.__name__} has: the two columns "
                f"would have different ids; leave it out, or give the attribute another name"
            )


def public_id_attribute(model: Any, attribute: str | None = None) -> tuple[str, Column[Any]]:
    """Return the name and the column of a public id of *model*: *attribute*, the only one, or ``public_id``.

    :raises ConfigurationError: if there is none, or if there are several and none is named.
    """
    mapper: Mapper[Any] | InstanceState[Any] | None = inspect(model, raiseerr=False)
    if not isinstance(mapper, Mapper) or mapper is model:
        raise ConfigurationError(f"{safe_repr(model)} is not a mapped class{_hint(model, mapper)}")
    attributes = id_attributes(mapper) or ids_of_union(mapper)
    if not attributes:
        remedy = "add PublicIdMixin or public_id_column()"
        if "public_id" in mapper.columns:
            remedy = "declare the column with public_id_column()"
        raise ConfigurationError(f"{mapper.class_.__name__} has no public id; {remedy}")
    if attribute is None:
        attribute = next(iter(attributes)) if len(attributes) == 1 else "public_id"
    if attribute not in attributes:
        raise ConfigurationError(
            f"{mapper.class_.__name__} has no public id {safe_repr(attribute)}; name one of {', '.join(attributes)} "
            f"with attribute=…"
        )
    return attribute, attributes[attribute]


def _hint(given: Any, inspected: object) -> str:
    """Return the end of the error: what to pass instead of *given*, which is not a model."""
    if isinstance(inspected, Mapper):
        return ", but the mapper of one: pass the class"
    if isinstance(inspected, InstanceState):
        return f", but an object of one: pass {type(given).__name__}"
    if isinstance(given, QueryableAttribute):
        return f", but an attribute of one: pass {cast('type[Any]', given.class_).__name__}"
    if isinstance(given, FromClause):
        return ", but a table: pass the model that is mapped to it"
    if isinstance(given, type) and hasattr(given, "__public_id__"):
        return f": write class {given.__name__}(PublicIdMixin, Base), with a declarative base"
    return ": pass the class, not its name" if isinstance(given, str) else "; expected a model"


def ids_of_union(mapper: Mapper[Any]) -> dict[str, Column[Any]]:
    """Return the public ids that all concrete subclasses of *mapper* have, if it selects from their union."""
    below = [other for other in mapper.self_and_descendants if other is not mapper]
    columns = {prop.key: prop.columns[0] for prop in mapper.column_attrs}
    return {
        name: column
        for name, column in columns.items()
        if isinstance(column, Column) and below and all(name in id_attributes(other) for other in below)
    }


def has_tokens(mapper: Mapper[Any]) -> bool:
    """Return True if the model has tokens, which programs may confuse with its public ids."""
    return any(getattr(column.type, "is_of_tokens", False) for column in mapper.columns)


def mapped_classes(registry: registry) -> list[Mapper[Any]]:
    """Return the mappers of *registry*, sorted by class name, without those of declarations that failed.

    ``registry.mappers`` raises an error if any declaration failed before its class had a mapper. Then all classes of
    the program are searched for mappers, which takes some milliseconds.
    """
    try:
        mappers: Iterable[Any] = registry.mappers
    except UnmappedClassError:
        mappers = {
            each for each in map(_mapper_of, _subclasses(object)) if each is not None and each.registry is registry
        }
    whole = [mapper for mapper in mappers if hasattr(mapper, "primary_key")]
    return sorted(whole, key=lambda mapper: (mapper.class_.__name__, mapper.class_.__module__))


def registry_of(base: Any, what: str) -> registry:
    """Return the registry of *base*: a declarative base, a mapped class or a registry.

    :param what: what the caller calls *base*, for the error.
    :raises ConfigurationError: if it is none of these. A base that shows no registry, as that of SQLModel, must have
        models of one.
    """
    if isinstance(base, registry):
        return base
    if isinstance(base, type):
        found = getattr(base, "registry", None)
        if isinstance(found, registry):
            return found
        mappers = map(_mapper_of, (base, *_subclasses(base)))
        several = {mapper.registry for mapper in mappers if mapper is not None}
        if len(several) == 1:
            return several.pop()
        if several:
            raise ConfigurationError(
                f"{what} {safe_repr(base)}, whose models have several registries; pass one of them"
            )
    hint = "expected a declarative base, a registry or a model"
    if isinstance(base, type) and isinstance(getattr(base, "metadata", None), MetaData):
        hint = "which has no models; import the modules that declare them first"
    if isinstance(getattr(getattr(base, "Model", None), "registry", None), registry):  # the `db` of Flask-SQLAlchemy
        hint = "which is no declarative base; pass its attribute Model"
    raise ConfigurationError(f"{what} {safe_repr(base)}, {hint}")


def _mapper_of(class_: type[Any]) -> Mapper[Any] | None:
    try:
        found: Mapper[Any] | InstanceState[Any] | None = inspect(class_, raiseerr=False)
    except UnmappedClassError:  # an AbstractConcreteBase that waits for its subclasses, in another part of the program
        return None
    return found if isinstance(found, Mapper) else None


def _subclasses(class_: type[Any]) -> Iterable[type[Any]]:
    """Return all direct and indirect subclasses of *class_*."""
    below: dict[int, type[Any]] = {}  # by identity: a metaclass of another package may refuse to compare or hash
    left = [class_]
    while left:
        new = [each for each in type.__subclasses__(left.pop()) if id(each) not in below]
        below.update((id(each), each) for each in new)
        left += new
    return below.values()


def condition_of(what: str, where: Any, entity: Any) -> SQLColumnExpression[bool]:
    """Return the condition *where*, or what the function *where* returns for *entity*.

    :param what: where the condition comes from, for errors.
    :raises ConfigurationError: if the result is not an SQL condition, such as the True or False of Python's ``is``.
    """
    if callable(where) and not isinstance(where, (SQLColumnExpression, type)):
        where = where(entity)
    return checked_condition(f"{what} is", where, entity)


def checked_condition(what: str, condition: Any, entity: Any) -> SQLColumnExpression[bool]:
    """Return *condition* if it is an SQL condition; otherwise raise an error that begins with *what*."""
    is_relationship = isinstance(getattr(condition, "property", None), RelationshipProperty)
    if not isinstance(condition, SQLColumnExpression) or is_relationship:
        model = cast("Mapper[Any]", inspect(entity).mapper).class_.__name__
        raise ConfigurationError(
            f"{what} {safe_repr(cast('object', condition))}, expected a condition such as {model}.owner_id == user.id, "
            f"or sqlalchemy.true()"
            + ("; join several by sqlalchemy.and_()" if isinstance(condition, list | tuple) else "")
        )
    return cast("SQLColumnExpression[bool]", condition)


def undecorated(type_: TypeEngine[Any]) -> TypeEngine[Any]:
    """Return the type that *type_* stores its values in: that inside a ``TypeDecorator``, which may be in another."""
    while isinstance(type_, TypeDecorator):
        type_ = type_.impl_instance
    return type_


# --- sessions

AnySession: TypeAlias = Session | scoped_session[Any]


def require_session(session: object) -> None:
    """Raise TypeError unless *session* is synchronous. A connection would run the query, too, but return a key."""
    if not isinstance(session, (Session, scoped_session)):
        kind = f"the class {session.__name__}" if isinstance(session, type) else type(session).__name__
        hint = "pass a Session first"
        if hasattr(session, "run_sync"):
            hint = "use the function of this name in sqlalchemy_public_id.asyncio"
        raise TypeError(f"expected a Session, not {kind}: {hint}")


def session_of(session: Session | scoped_session[Session]) -> Session:
    """Return *session*, or the current session of a ``scoped_session``; raise as :func:`require_session` does."""
    require_session(session)
    return cast("Session", unscoped(session))


def unscoped(session: Any) -> Any:
    """Return the session of a ``scoped_session`` or an ``async_scoped_session``, and any other object as it is."""
    # not by isinstance(): the module of async_scoped_session cannot be imported without greenlet
    return session() if callable(session) and hasattr(session, "registry") else session


def connection_to_write(session: Session, mapper: Mapper[Any]) -> Connection:
    """Return the connection on which *session* inserts rows of *mapper*."""
    return session.connection(bind_arguments={"mapper": mapper, "clause": clause_of_writes(mapper)})


def clause_of_writes(mapper: Mapper[Any]) -> Update | None:
    """Return a statement for which ``get_bind()`` chooses the database of writes; ``None`` if *mapper* has no table.

    It is an UPDATE, because sessions that choose a primary server by the statement may not look for an INSERT: that of
    SQLAlchemy's documentation asks for an UPDATE, a DELETE, or a flush, which is what sends most INSERTs. A flush asks
    for the database of the base, whose table may be the only one that a session has an engine for.
    """
    within = visitors.iterate(mapper.base_mapper.local_table)  # it may be a query, which has no UPDATE, of tables
    return next((update(cast("Table", each)) for each in within if isinstance(each, Table)), None)


@contextmanager
def reading_where_it_writes(session: Session) -> Generator[None]:
    """Send the SELECTs of *session* to the database that it inserts into, because replicas lag behind.

    A sharded session asks each shard that it has chosen, and its ``shard_chooser`` gets no UPDATE.
    """
    if is_sharded(session):
        yield
        return
    own, choose = vars(session), session.get_bind
    before = {name: own[name] for name in ["get_bind"] if name in own}

    def get_bind(mapper: Any = None, **options: Any) -> Any:
        clause = None if mapper is None else clause_of_writes(inspect(mapper))
        if clause is not None:
            options["clause"] = clause
        return choose(mapper, **options)

    own["get_bind"] = get_bind
    try:
        yield
    finally:
        del own["get_bind"]
        own.update(before)


def is_sharded(session: Session | scoped_session[Session]) -> bool:
    """Return True if *session* is a ``ShardedSession``, which may use several databases."""
    session = session_of(session)
    # not imported: if the module is not loaded, no session is an instance of its class
    module = sys.modules.get("sqlalchemy.ext.horizontal_shard")
    return module is not None and isinstance(session, module.ShardedSession)


def is_in_greenlet() -> bool:
    """Return True inside SQLAlchemy's greenlet, where the calls of an asynchronous driver can be awaited.

    The function awaits a coroutine that does nothing, which raises an error elsewhere. No other task runs meanwhile.
    """
    try:
        await_only(_do_nothing())
    except MissingGreenlet:
        return False
    return True


async def _do_nothing() -> None: ...
