"""Idempotent inserts: after a timeout, a client can repeat its request without a duplicate row.

>>> from sqlalchemy_public_id import idempotency
>>> user, created = idempotency.insert_once(session, User(public_id="8w0tnq3c5yzd", name="Grace"))
>>> again, created_again = idempotency.insert_once(session, User(public_id="8w0tnq3c5yzd", name="Grace"))
>>> created, created_again, again is user
(True, False, True)

The sender of the row generates the public id, and sends it again with each repetition. So the id takes the place of an
idempotency key, and its unique index replaces a table of such keys.

A flush inside a savepoint writes the row, and the unique index decides whether it is a repetition, because a SELECT
before the INSERT would be a race. If the index refuses the INSERT, the row is looked up by its id.

``sqlalchemy_public_id.asyncio.idempotency`` has this function for an ``AsyncSession``.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, cast

from sqlalchemy import Column, ColumnElement, Connection, and_, inspect, select
from sqlalchemy.exc import DBAPIError, IntegrityError, MultipleResultsFound
from sqlalchemy.orm import InstanceState, Mapper, RelationshipDirection, Session, undefer

from sqlalchemy_public_id import lookup
from sqlalchemy_public_id.dialects import begin_to_write, is_autocommit, sees_commits, traits_for
from sqlalchemy_public_id.errors import ConfigurationError, IdempotencyConflict
from sqlalchemy_public_id.idempotency.backrefs import enter_backrefs, leave_backrefs, related_objects
from sqlalchemy_public_id.idempotency.contents import Contents, differing_attributes
from sqlalchemy_public_id.idempotency.turns import take_turns
from sqlalchemy_public_id.lookup import Where
from sqlalchemy_public_id.lookup.beside import ambiguous, attribute_of, columns_beside, requiring_columns
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.orm.inspection import (
    clause_of_writes,
    condition_of,
    connection_to_write,
    id_attributes,
    is_sharded,
    public_id_attribute,
    reading_where_it_writes,
    session_of,
)
from sqlalchemy_public_id.types import is_expression

__all__ = ["insert_once"]

M = TypeVar("M")  # a model

_ATTEMPTS = {True: 10, None: 2, False: 1}
"""How often a duplicate is tried, because the existing row may be deleted before it is looked up, or hidden by the
snapshot. True if the database reports the id as the duplicate, None if it reports no column, False if another one."""


def insert_once(
    session: Session,
    obj: M,
    *,
    attribute: str | None = None,
    compare: Collection[str] | None = None,
    where: Where | None = None,
) -> tuple[M, bool]:
    """Insert *obj*, or find the row that an earlier call inserted. Return the row, and True if it is new.

    The session is flushed first, even if *obj* turns out to be stored already. Objects in the collections of *obj* are
    inserted with it, and not compared on a repetition.

    :param obj: a transient object with a public id. Objects that it refers to must be persistent or pending.
    :param attribute: the name of the public id, if a model has several; ``public_id`` by default.
    :param compare: the names of the attributes to compare with the stored row, if they are set on *obj*: columns,
        many-to-one relationships and references. By default, all that are set. SQL expressions are not compared.
    :param where: a condition on visible rows, or a function that takes the model and returns one. Columns with which
        the id is unique are compared with those of *obj*, and have to be in *where* only if the database sets them.
    :raises IdempotencyConflict: if the stored row has other contents; or, without the names of attributes, if the row
        does not meet *where* or is hidden by criteria of the session.
    :raises ConfigurationError: if the caller has neither set nor read the public id of *obj*, and so could not send it
        again; with a sharded session; and under ``AUTOCOMMIT``.
    :raises sqlalchemy.exc.IntegrityError: if the row violates another constraint, or if the transaction has an older
        snapshot without the row (PostgreSQL, ``REPEATABLE READ`` and ``SERIALIZABLE``). In the second case, repeat the
        transaction; a call that begins the transaction repeats it by itself.
    """
    session = session_of(session)
    state = _state(obj)
    if is_sharded(session):
        raise ConfigurationError(
            "insert_once() needs a savepoint, which a sharded session does not keep; pass a session of the shard that "
            "a repetition will use again: Session(router.shards[router.shard_of_id(Model, public_id)]) with "
            'by="hash" or by prefix. If shard_of_id() returns None, always use one shard for one id'
        )
    name, _ = public_id_attribute(type(obj), attribute)
    _refuse_what_cannot_be_repeated(state, name)
    if where is not None:
        condition_of("where", where, type(obj))
    row = _Row(state, name, where)
    contents = Contents.given(state, compare)
    is_first = not _in_transaction(session, row.mapper)
    outside = sys.exc_info()[1]
    attempt = 0
    while True:
        attempt += 1
        try:
            return _insert_or_find(session, obj, row, contents)
        except DBAPIError as last:
            error = _first_error(last, outside)
            if not is_first or attempt >= _ATTEMPTS[_is_for_others(session, row, error)]:
                raise error from error.orig
            session.rollback()


@dataclass(frozen=True)
class _Row:
    """The row that a repetition finds."""

    state: InstanceState[Any]
    """The new object."""
    name: str
    """The attribute of the public id."""
    where: Where | None

    @property
    def mapper(self) -> Mapper[Any]:
        return self.state.mapper

    @cached_property
    def public_id(self) -> str:
        return cast("str", self.state.dict[self.name])

    @property
    def unknown(self) -> list[Column[Any]]:
        """The columns with which the id is unique, whose values the object does not have before its INSERT."""
        return [each for each in columns_beside(self.mapper, self.name) if self._value(each) is None]

    def is_same(self, model: Any) -> ColumnElement[bool]:
        """Return the condition for the row of *model*, or of the table, that has the id of the object.

        If an id is unique only with other columns, the row also has the values of the object in them.
        """
        own = [id_attributes(self.mapper)[self.name], *columns_beside(self.mapper, self.name)]
        values = {attribute_of(self.mapper, column): (column, self._value(column)) for column in own}
        return and_(
            *(
                (column if model is None else getattr(model, name)) == value
                for name, (column, value) in values.items()
                if value is not None
            )
        )

    def _value(self, column: Column[Any]) -> Any:
        value = self.state.dict.get(attribute_of(self.mapper, column))
        return None if is_expression(value) else value

    def conflict(self, *differing: str) -> IdempotencyConflict:
        return IdempotencyConflict(self.public_id, model=self.mapper.class_.__name__, differing=differing)


# --- before the insert


def _state(instance: object) -> InstanceState[Any]:
    state = cast("InstanceState[Any] | None", inspect(instance, raiseerr=False))
    if not isinstance(state, InstanceState):
        raise TypeError(f"expected a mapped object, not {safe_repr(instance)}")
    return state


def _refuse_what_cannot_be_repeated(state: InstanceState[Any], name: str) -> None:
    model = state.class_.__name__
    if not state.transient:
        raise ConfigurationError(
            f"this {model} is not new, or was added to a session; pass a new object, which insert_once() adds itself"
        )
    if state.dict.get(name) is None:
        raise ConfigurationError(
            f"this {model} has no {name} yet, so the insert could not be repeated; pass one that the client keeps, "
            f"{model}({name}=…), or read {name} and keep it before the call (None is not an id)"
        )
    if is_expression(state.dict[name]):
        raise ConfigurationError(f"the {name} of this {model} is an SQL expression; set the string that is sent again")
    for relationship in state.mapper.relationships:
        is_parent = relationship.direction is RelationshipDirection.MANYTOONE
        if is_parent and any(parent.transient for parent in related_objects(state, relationship)):
            raise ConfigurationError(
                f"{model}.{relationship.key} is new too, and would be inserted again with each repetition; "
                f"add it to the session, or insert it with insert_once() first"
            )


def _in_transaction(session: Session, mapper: Mapper[Any]) -> bool:
    """Return True if a transaction has begun: that of *session*, or that of a connection which it was made with."""
    if session.in_transaction():
        return True
    bind = session.get_bind(mapper=mapper, clause=clause_of_writes(mapper))
    return isinstance(bind, Connection) and bind.in_transaction()


# --- the insert


def _insert_or_find(session: Session, obj: Any, row: _Row, contents: Contents) -> tuple[Any, bool]:
    connection = connection_to_write(session, row.mapper)
    if is_autocommit(connection):
        raise ConfigurationError(
            "insert_once() needs a savepoint, and AUTOCOMMIT has no transaction that could contain one; "
            "use an engine or a connection without AUTOCOMMIT"
        )
    # a transaction that has read may not get the lock to write
    begin_to_write(connection)
    with take_turns(connection, row.public_id) as turn:
        left = leave_backrefs(session, contents.state)
        session.flush()
        attempt = 0
        while True:
            attempt += 1
            violation = _insert(session, obj)
            if violation is None:
                enter_backrefs(contents.state, left)
                return obj, True
            names = contents.compared()
            with reading_where_it_writes(session):
                stored = _find(session, connection, row, names, turn.release)
                # another class is found by another statement, which does not release the lock
                turn.is_over = turn.is_over or isinstance(stored, row.mapper.class_)
                key = None if stored is not None else _key(connection, row)
                if key is not None:  # it was committed meanwhile, or the session hides it
                    stored = _find(session, connection, row, names, ())
            if stored is not None:
                break
            if key is not None and key == _key(connection, row):
                raise row.conflict()  # naming attributes would reveal what another tenant's row contains
            if not sees_commits(connection) or attempt >= _ATTEMPTS[_is_of_id(connection, row, violation)]:
                raise violation
    differing = differing_attributes(connection, obj, stored, names)
    if differing:
        raise row.conflict(*differing)
    return stored, False


def _insert(session: Session, obj: object) -> IntegrityError | None:
    """Insert *obj* inside a savepoint; return the error of a constraint that refuses it."""
    try:
        with session.begin_nested():
            session.add(obj)
    except IntegrityError as error:
        if error.connection_invalidated:  # psycopg may learn of the loss with the duplicate
            raise
        return error
    return None


def _find(
    session: Session, connection: Connection, row: _Row, names: Collection[str], release: Sequence[ColumnElement[Any]]
) -> Any | None:
    """Return the row as it is stored now, if *session* shows it."""
    model, lock = row.mapper.class_, _lock(connection)
    where = None if row.where is None else condition_of("where", row.where, model)
    with requiring_columns("insert_once", session, model, row.unknown, where, None) as checked:
        try:
            stored: Any = lookup.one_row(
                session,
                model,
                row.is_same(model),
                evaluate=release,
                options=[undefer(getattr(model, name)) for name in sorted(names)],
                with_for_update=lock,
                populate_existing=True,
                execution_options=checked,
                where=where,
            )
        except MultipleResultsFound:
            raise ambiguous(row.mapper, row.name, [row.public_id]) from None
    if stored is None and where is None:
        other = _other_class(session, row, lock)
        if other is not None:
            stored = lookup.one_row(session, other, row.is_same(other), with_for_update=lock)
    return stored


def _other_class(session: Session, row: _Row, lock: Any) -> type[Any] | None:
    """Return the class of the row if it is another subclass of a parent class, or a parent class.

    Only the class is read: criteria may hide a row from a SELECT of its own class, but not from one of a parent class.
    """
    column = id_attributes(row.mapper)[row.name]
    for parent in row.mapper.iterate_to_root():
        if parent is row.mapper or column not in id_attributes(parent).values():
            continue
        query = select(getattr(parent.class_, row.name)).where(row.is_same(parent.class_))
        if parent.polymorphic_on is not None:
            query = query.add_columns(parent.polymorphic_on)
        if lock is not None:
            query = query.with_for_update(**lock)
        found = session.execute(query, bind_arguments={"mapper": parent}).first()
        if found is not None:
            _, *identity = found
            mapper = parent.polymorphic_map.get(identity[0], parent) if identity else parent
            return None if mapper.isa(row.mapper) else mapper.class_
    return None


def _key(connection: Connection, row: _Row) -> Any:
    """Return the id and key of the row, even if the session hides it; None if it is not stored, or not known."""
    if row.unknown:
        return None
    column = id_attributes(row.mapper)[row.name]
    query = select(column, *column.table.primary_key).where(row.is_same(None))
    if _lock(connection) is not None:
        query = query.with_for_update(read=True)
    return connection.execute(query).first()


def _lock(connection: Connection) -> Any:
    # a locking read, if a plain read sees an older snapshot
    return {"read": True} if traits_for(connection.dialect).reads_old_snapshot else None


# --- errors


def _is_of_id(connection: Connection, row: _Row, error: IntegrityError) -> bool | None:
    """Return True if the id is the duplicate; None if the database names only the index, which may have any name."""
    violation = traits_for(connection.dialect).violation(error.orig) if isinstance(error.orig, Exception) else None
    if violation is None:
        return False
    column = id_attributes(row.mapper)[row.name]
    if violation.entry is not None:
        return violation.entry[0] == column.name
    return None if violation.columns is None else f"{column.table.name}.{column.name}" in violation.columns.split(", ")


def _first_error(error: DBAPIError, outside: BaseException | None) -> DBAPIError:
    if error.connection_invalidated:
        return error  # nothing of the transaction is left: the duplicate no longer matters
    # a transaction that was aborted has lost its savepoints, so ROLLBACK TO SAVEPOINT fails and hides the first error
    first, context = error, error.__context__
    while context not in (None, outside):
        if isinstance(context, DBAPIError):
            first = context
        context = context.__context__
    return first


def _is_for_others(session: Session, row: _Row, error: DBAPIError) -> bool | None:
    """Return True if the database aborted the transaction in favor of another one, or if its snapshot hides the row.

    Return None if the snapshot may hide the row.
    """
    traits = traits_for(session.get_bind(row.mapper).dialect)
    if traits.error_code(error.orig) in traits.conflict_errors:
        return True
    if error.connection_invalidated or not isinstance(error, IntegrityError):
        return False
    connection = connection_to_write(session, row.mapper)
    return not sees_commits(connection) and _is_of_id(connection, row, error)
