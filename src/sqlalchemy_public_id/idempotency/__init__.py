"""Inserts that can be repeated: after a timeout, send the same again.

>>> from sqlalchemy_public_id import idempotency
>>> user, created = idempotency.insert_once(session, User(public_id="8w0tnq3c5yzd", name="Grace"))
>>> again, created_again = idempotency.insert_once(session, User(public_id="8w0tnq3c5yzd", name="Grace"))
>>> created, created_again, again is user
(True, False, True)

The sender of the row makes the public id, and keeps it for the repetition. The id replaces an idempotency key, and its
unique index a table of such keys.

The row is written by a flush inside a savepoint. The unique index decides whether it is a repetition: a SELECT before
the INSERT would be a race.

``sqlalchemy_public_id.asyncio.idempotency`` has the same function for an ``AsyncSession``.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, Dialect
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import InstanceState, Mapper, RelationshipDirection, Session, undefer
from sqlalchemy.orm.attributes import instance_state

from sqlalchemy_public_id import lookup
from sqlalchemy_public_id.dialects import begin_to_write, is_autocommit, traits_for
from sqlalchemy_public_id.dialects.advisory_locks import Turn, take_turns
from sqlalchemy_public_id.errors import ConfigurationError, PublicIdConflict, safe_repr
from sqlalchemy_public_id.guard.collision import Match, match_violation
from sqlalchemy_public_id.idempotency.contents import (
    changed_attributes,
    flushed_foreign_keys,
    foreign_keys,
    given_attributes,
)
from sqlalchemy_public_id.lookup import Where
from sqlalchemy_public_id.orm.inspection import (
    condition_of,
    connection_to_write,
    id_attributes,
    is_sharded,
    public_id_attribute,
    session_of,
)
from sqlalchemy_public_id.types import is_expression

__all__ = ["insert_once"]

M = TypeVar("M")  # a model

_ATTEMPTS = 10
"""Attempts of a transaction that only this call has used."""


def insert_once(
    session: Session, obj: M, *, attribute: str | None = None, where: Where | None = None
) -> tuple[M, bool]:
    """Insert *obj*, or find the row that an earlier call has inserted; return the row and True if it is new.

    Flushes the session first; this is not undone if *obj* is stored already. Objects in the collections of *obj* are
    inserted with it, and not compared on a repetition.

    :param obj: a transient object with a public id. Objects that it refers to must be persistent or pending.
    :param attribute: the name of the public id, if a model has several; ``public_id`` by default.
    :param where: a condition, or a function of the model that returns one: which stored rows may be seen.
    :raises PublicIdConflict: if the row is stored with other contents. Attributes that are set on *obj* are compared,
        after the conversions of their columns; SQL expressions are not. Nothing is compared with a row that does not
        meet *where*: the error names no attributes.
    :raises ConfigurationError: if *obj* has no public id that the caller has set or read, since it could not be sent
        again; with a sharded session; and under ``AUTOCOMMIT``.
    :raises sqlalchemy.exc.IntegrityError: if the row violates another constraint, or is not visible because the
        transaction has an older snapshot (PostgreSQL, ``REPEATABLE READ`` and ``SERIALIZABLE``). Repeat the transaction
        then. If this call is the first in its transaction, it repeats it itself.
    """
    session = session_of(session)
    state = _state(obj)
    if is_sharded(session):
        raise ConfigurationError(
            "insert_once() needs a savepoint, which a sharded session does not keep; pass a session of the one shard "
            "that a repetition will find again: Session(router.shards[router.shard_of_id(Model, public_id)]) with "
            'by="hash" or by prefix; if that is None, choose a shard, always the same for this id'
        )
    name, _ = public_id_attribute(type(obj), attribute)
    _refuse_what_cannot_be_repeated(state, name)
    if where is not None:
        condition_of("where", where, type(obj))
    given, keys = given_attributes(state), foreign_keys(state)
    attempts = 1 if session.in_transaction() else _ATTEMPTS
    outside = sys.exc_info()[1]
    for left in reversed(range(attempts)):
        try:
            return _insert_or_find(session, obj, name, given, keys, where)
        except DBAPIError as last:
            error = _first_error(last, outside)
            dialect = session.get_bind(state.mapper).dialect
            # it has given up the transaction in favour of another one
            is_lost = traits_for(dialect).error_code(error.orig) in traits_for(dialect).conflict_errors
            if not left or not (is_lost or _is_hidden(dialect, state, name, error)):
                raise error from error.orig
            session.rollback()
    raise AssertionError  # the last attempt has returned or raised


# --- before the insert


def _state(instance: object) -> InstanceState[Any]:
    try:
        return instance_state(instance)
    except AttributeError:
        raise TypeError(f"expected a mapped object, not {safe_repr(instance)}") from None


def _refuse_what_cannot_be_repeated(state: InstanceState[Any], name: str) -> None:
    model = state.class_.__name__
    if not state.transient:
        raise ConfigurationError(
            f"this {model} is not new, or was added to a session already; leave session.add() to insert_once()"
        )
    if state.dict.get(name) is None:
        raise ConfigurationError(
            f"this {model} has no {name} that was set or read, so it could not be sent again; set one that the sender "
            f"keeps, {model}({name}=…), or read {name} and keep it before the call; None is no id"
        )
    if is_expression(state.dict[name]):
        raise ConfigurationError(f"the {name} of this {model} is an SQL expression; set the string that is sent again")
    for key, parent in _parents(state).items():
        if instance_state(parent).transient:
            raise ConfigurationError(
                f"{model}.{key} is new too, and would be inserted again with each repetition; "
                f"add it to the session, or insert it with insert_once() first"
            )


def _parents(state: InstanceState[Any]) -> dict[str, Any]:
    """Return attribute → object, for the many-to-one relationships of *state* that are set."""
    return {
        relationship.key: state.dict[relationship.key]
        for relationship in state.mapper.relationships
        if relationship.direction is RelationshipDirection.MANYTOONE and state.dict.get(relationship.key) is not None
    }


# --- the insert


def _insert_or_find(
    session: Session, obj: Any, name: str, given: frozenset[str], keys: dict[str, Any], where: Where | None
) -> tuple[Any, bool]:
    state = instance_state(obj)
    public_id = state.dict[name]
    connection = connection_to_write(session, state.mapper)
    if is_autocommit(connection):
        raise ConfigurationError(
            "insert_once() needs a savepoint, and under AUTOCOMMIT there is no transaction to have one; "
            "use an engine or a connection without it"
        )
    begin_to_write(connection)
    with take_turns(connection, public_id) as turn:
        with _without_parents(state):
            session.flush()
        with _without_parents(state):
            savepoint = session.begin_nested()
        try:
            with savepoint:
                session.add(obj)
            return obj, True
        except IntegrityError as error:
            violation = error
        given |= flushed_foreign_keys(state, keys)
        stored = _find(session, connection, state.mapper, name, public_id, given, turn)
    if stored is None:
        raise violation
    if where is not None and not _is_met(where, session, connection, state.mapper, name, public_id):
        # which attributes differ would tell what another tenant's row contains
        raise PublicIdConflict(public_id, model=type(obj).__name__)
    changed = changed_attributes(connection, obj, stored, given)
    if changed:
        raise PublicIdConflict(public_id, model=type(obj).__name__, differing=changed)
    return stored, False


@contextmanager
def _without_parents(state: InstanceState[Any]) -> Generator[None]:
    # a flush warns of objects in the collections of their parents that are not in the session
    instance, parents = state.obj(), _parents(state)
    for key in parents:
        setattr(instance, key, None)
    try:
        yield
    finally:
        for key, parent in parents.items():
            setattr(instance, key, parent)


def _find(
    session: Session,
    connection: Connection,
    mapper: Mapper[Any],
    name: str,
    public_id: str,
    given: frozenset[str],
    turn: Turn,
) -> Any | None:
    """Return the row with *public_id* as it is stored now, by a locking read if other reads see an older snapshot."""
    lock = _lock(connection)
    stored = lookup.one_row(
        session,
        mapper.class_,
        getattr(mapper.class_, name) == public_id,
        evaluate=turn.release,
        options=[undefer(getattr(mapper.class_, key)) for key in sorted(given)],
        with_for_update=lock,
        populate_existing=True,
    )
    turn.is_over = turn.is_over or stored is not None
    column = id_attributes(mapper)[name]
    for parent in mapper.iterate_to_root():  # the id may belong to a row of another subclass
        if stored is None and column in id_attributes(parent).values():
            stored = lookup.get(session, parent.class_, public_id, attribute=name, with_for_update=lock)
    return stored


def _is_met(
    where: Where, session: Session, connection: Connection, mapper: Mapper[Any], name: str, public_id: str
) -> bool:
    row = lookup.get(session, mapper.class_, public_id, attribute=name, where=where, with_for_update=_lock(connection))
    return row is not None


def _lock(connection: Connection) -> Any:
    return {"read": True} if traits_for(connection.dialect).reads_old_snapshot else None


# --- errors


def _first_error(error: DBAPIError, outside: BaseException | None) -> DBAPIError:
    # a lost transaction has lost its savepoints too, so ROLLBACK TO SAVEPOINT fails and hides the error before it
    first, context = error, error.__context__
    while context not in (None, outside):
        if isinstance(context, DBAPIError):
            first = context
        context = context.__context__
    return first


def _is_hidden(dialect: Dialect, state: InstanceState[Any], name: str, error: DBAPIError) -> bool:
    """Return True if the row is stored, but not visible to the transaction."""
    violation = traits_for(dialect).violation(error.orig) if isinstance(error.orig, Exception) else None
    return violation is not None and match_violation(violation, id_attributes(state.mapper)[name], dialect) is Match.YES
