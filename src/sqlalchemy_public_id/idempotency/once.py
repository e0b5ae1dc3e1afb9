"""Insert a row, or find that it is there already.

The row is written by a flush inside a savepoint, as any object is; the unique index says whether it is a repetition. No
SELECT goes before it: that would be a race.
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
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.dialects.locks import begin_immediate, take_turns
from sqlalchemy_public_id.errors import ConfigurationError, PublicIdConflict, shown
from sqlalchemy_public_id.guard.execution import Match, match_violation
from sqlalchemy_public_id.idempotency import contents
from sqlalchemy_public_id.orm.inspection import id_attributes, is_sharded, public_id_attribute, session_of
from sqlalchemy_public_id.orm.marks import marks_of
from sqlalchemy_public_id.types import is_expression

__all__ = ["insert_once"]

M = TypeVar("M")
"""A model."""

_ATTEMPTS = 10
"""How often a transaction is tried that only this call has used."""


def insert_once(session: Session, obj: M, *, attribute: str | None = None) -> tuple[M, bool]:
    """Insert *obj*, or find the row that an earlier call has inserted; the row, and whether it is new.

    What else is pending in *session* is flushed first, and is not undone if *obj* is there already. Objects that *obj*
    brings along in its collections are inserted with it, and not compared on a repetition.

    :param obj: a new object with a public id, not added to a session. Objects that it refers to must be stored or
        pending.
    :param attribute: which public id, where a model has several; ``public_id`` by default.
    :raises PublicIdConflict: where the row is there with other contents. Only what is set on *obj* is compared, as the
        column keeps it; SQL expressions are not.
    :raises ConfigurationError: where *obj* has no public id: one that nobody has seen cannot be sent again; and with a
        sharded session, or under ``AUTOCOMMIT``.
    :raises sqlalchemy.exc.IntegrityError: where the row violates another constraint, or is there but cannot be seen
        because the transaction has an older snapshot (PostgreSQL, ``REPEATABLE READ`` and ``SERIALIZABLE``); then
        repeat the transaction. Where this call is the first in its transaction, it does so itself.
    """
    session = session_of(session)
    state = _state(obj)
    if is_sharded(session):
        raise ConfigurationError(
            "insert_once() needs a savepoint, which a sharded session does not keep: give it a session of the one "
            "shard that a repetition will find again: Session(router.shards[router.shard_of_id(Model, public_id)]) "
            'with by="hash" or by prefix; where that is None, a shard of your own choice, always the same for this id'
        )
    name, _ = public_id_attribute(type(obj), attribute)
    _refuse_what_cannot_be_repeated(state, name)
    _keep(state, name)
    given, foreign_keys = contents.given(state), contents.foreign_keys(state)
    attempts = 1 if session.in_transaction() else _ATTEMPTS
    outside = sys.exc_info()[1]
    for left in reversed(range(attempts)):
        try:
            return _insert_or_find(session, obj, name, given, foreign_keys)
        except DBAPIError as last:
            error = _first(last, outside)
            dialect = session.get_bind(state.mapper).dialect
            if not left or not (_is_lost(dialect, error) or _is_hidden(dialect, state, name, error)):
                raise error from error.orig
            session.rollback()
    raise AssertionError  # the last attempt has returned or raised


# --- before


def _state(instance: object) -> InstanceState[Any]:
    try:
        return instance_state(instance)
    except AttributeError:
        raise TypeError(f"expected a mapped object, not {shown(instance)}") from None


def _refuse_what_cannot_be_repeated(state: InstanceState[Any], name: str) -> None:
    model = state.class_.__name__
    if not state.transient:
        raise ConfigurationError(
            f"this {model} is not new, or was added to a session already; leave session.add() to insert_once()"
        )
    if state.dict.get(name) is None or name in marks_of(state).requested:
        raise ConfigurationError(
            f"this {model} has no {name} that was given or read, so it could not be sent again; give it one that the "
            f"sender keeps, {model}({name}=…), or read {name} and keep it before the call; None is none"
        )
    if is_expression(state.dict[name]):
        raise ConfigurationError(f"the {name} of this {model} is an SQL expression; give the text that is sent again")
    for key, parent in _parents(state).items():
        if instance_state(parent).transient:
            raise ConfigurationError(
                f"{model}.{key} is new itself, and would be inserted again with each repetition; "
                f"add it to the session, or insert it with insert_once() first"
            )


def _parents(state: InstanceState[Any]) -> dict[str, Any]:
    """Attribute → object, for the relationships of *state* to one object each that are set."""
    return {
        relationship.key: state.dict[relationship.key]
        for relationship in state.mapper.relationships
        if relationship.direction is RelationshipDirection.MANYTOONE and state.dict.get(relationship.key) is not None
    }


def _keep(state: InstanceState[Any], name: str) -> None:
    """Make the public id one that the caller gave: no other one is tried if it collides."""
    marks_of(state, create=True).mark_given(name)


# --- the insert


def _insert_or_find(
    session: Session, obj: Any, name: str, given: frozenset[str], foreign_keys: dict[str, Any]
) -> tuple[Any, bool]:
    state = instance_state(obj)
    public_id = state.dict[name]
    connection = session.connection(bind_arguments={"mapper": state.mapper})
    _refuse_autocommit(connection)
    begin_immediate(connection)
    with take_turns(connection, public_id):
        with _apart(state):
            savepoint = session.begin_nested()  # which flushes what else there is
        try:
            with savepoint:
                session.add(obj)
            return obj, True
        except IntegrityError as error:
            refused = error
    given |= contents.references(state, foreign_keys)
    found = _find(session, connection, state.mapper, name, public_id, given)
    if found is None:
        raise refused
    differing = contents.differing(connection, obj, found, given)
    if differing:
        raise PublicIdConflict(public_id, model=type(obj).__name__, differing=differing)
    return found, False


def _refuse_autocommit(connection: Connection) -> None:
    options, driver = connection.get_execution_options(), connection.connection.dbapi_connection
    if options.get("isolation_level") == "AUTOCOMMIT" or traits_for(connection.dialect).in_autocommit(driver):
        raise ConfigurationError(
            "insert_once() needs a savepoint, and under AUTOCOMMIT there is no transaction to have one; "
            "use an engine or a connection without it"
        )


@contextmanager
def _apart(state: InstanceState[Any]) -> Generator[None]:
    """Take an object out of the collections of its parents: a flush warns of new objects there that are not added."""
    instance, parents = state.obj(), _parents(state)
    for key in parents:
        setattr(instance, key, None)
    try:
        yield
    finally:
        for key, parent in parents.items():
            setattr(instance, key, parent)


def _find(
    session: Session, connection: Connection, mapper: Mapper[Any], name: str, public_id: str, given: frozenset[str]
) -> Any | None:
    """The row with *public_id*, as it is stored now."""
    read: Any = {"read": True} if traits_for(connection.dialect).reads_old_snapshot else None
    found = lookup.get(
        session,
        mapper.class_,
        public_id,
        attribute=name,
        options=[undefer(getattr(mapper.class_, key)) for key in sorted(given)],
        with_for_update=read,
        populate_existing=True,
    )
    column = id_attributes(mapper)[name]
    for above in mapper.iterate_to_root():
        if found is None and column in id_attributes(above).values():
            found = lookup.get(session, above.class_, public_id, attribute=name, with_for_update=read)
    return found


# --- what went wrong


def _first(error: DBAPIError, outside: BaseException | None) -> DBAPIError:
    """What led to *error*: a lost transaction has no savepoint left to go back to, so that the way back fails too."""
    found, each = error, error.__context__
    while each not in (None, outside):
        if isinstance(each, DBAPIError):
            found = each
        each = each.__context__
    return found


def _is_lost(dialect: Dialect, error: DBAPIError) -> bool:
    """Whether the database has given up the transaction in favour of another one."""
    traits = traits_for(dialect)
    return traits.error_code(error.orig) in traits.conflict_errors


def _is_hidden(dialect: Dialect, state: InstanceState[Any], name: str, error: DBAPIError) -> bool:
    """Whether the row is there, but the transaction cannot see it."""
    violation = traits_for(dialect).violation(error.orig) if isinstance(error.orig, Exception) else None
    return violation is not None and match_violation(violation, id_attributes(state.mapper)[name], dialect) is Match.YES
