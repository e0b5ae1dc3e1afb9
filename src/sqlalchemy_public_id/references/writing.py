"""A public id is assigned: it waits in the foreign key, and the next flush finds the keys of all that wait."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, cast

from sqlalchemy.orm import InstanceState, Mapper, ORMExecuteState, Session
from sqlalchemy.orm.attributes import get_history, instance_state, set_committed_value
from sqlalchemy.orm.base import PASSIVE_NO_INITIALIZE

from sqlalchemy_public_id.errors import ConfigurationError, InvalidPublicId, PublicIdNotFound, shown
from sqlalchemy_public_id.orm.inspection import is_sharded
from sqlalchemy_public_id.references.reading import known, lookup_keys, lookup_objects, newly_related, remember
from sqlalchemy_public_id.references.reference import PublicRef, Source, refs_of
from sqlalchemy_public_id.references.stored import public_ids_by_key, values_of
from sqlalchemy_public_id.references.waiting import Waiting

__all__ = ["before_flush", "do_orm_execute", "follow", "resolve", "write"]


def write(ref: PublicRef, instance: object, value: object) -> None:
    """Let *ref* of *instance* be *value* from now on; the next flush finds the key."""
    state = instance_state(instance)
    public_id = _checked(ref, state.class_, value)
    related = state.dict.get(ref.relationship)
    if related is not None and newly_related(state, ref):
        if public_id == getattr(related, ref.target_id):
            return
        where = state.class_.__name__
        raise ConfigurationError(
            f"{where}.{ref.attribute} cannot become {shown(public_id)}: {where}.{ref.relationship} was just set to "
            f"{shown(getattr(related, ref.target_id))}, and is not flushed; set only one of the two"
        )
    if ref.relationship in state.dict and newly_related(state, ref):  # to None
        _forget_relationship(state, ref)
    if public_id is None:
        setattr(instance, ref.key, None)
        _forget_relationship(state, ref)
    elif ref.key not in state.dict or known(state, ref, None) != public_id:
        setattr(instance, ref.key, Waiting(ref.attribute, public_id, ref.source))


def _checked(ref: PublicRef, model: type[Any], value: object) -> str | None:
    where = f"{model.__name__}.{ref.attribute}"
    if value is not None:
        return ref.id_type.checked(value, field=where)
    if not ref.nullable:
        reason = f"{model.__name__}.{ref.key} is never null"
        raise InvalidPublicId(value, expected=ref.id_format.expected, reason=reason, field=where)
    return None


def _forget_relationship(state: InstanceState[Any], ref: PublicRef) -> None:
    """Let the relationship be as if it had not been loaded, nor set: the foreign key decides."""
    if ref.relationship in state.dict:
        set_committed_value(state.obj(), ref.relationship, None)
        del state.dict[ref.relationship]


def follow(state: InstanceState[Any], ref: PublicRef, value: object) -> None:
    """The relationship is set to *value*: an id that was assigned before counts no more.

    ``None`` for an object that is not stored yet says nothing, as in :func:`newly_related`.
    """
    if isinstance(state.dict.get(ref.key), Waiting) and (value is not None or state.has_identity):
        before = cast("Sequence[Any]", get_history(state.obj(), ref.key, PASSIVE_NO_INITIALIZE).deleted)
        setattr(state.obj(), ref.key, before[0] if before else getattr(value, ref.target_key, None))


# --- the flush


def before_flush(session: Session, context: object, instances: object) -> None:
    """Find the keys of all that wait in *session*."""
    resolve(session, chain(session.new, session.dirty))


def resolve(session: Session, objects: Iterable[object]) -> None:
    """Find the keys that foreign keys of *objects* wait for: one SELECT for each model, none where none waits.

    :raises PublicIdNotFound: where a public id belongs to no row, and to no new object of the session. Nothing has
        changed then.
    """
    waiting: dict[Source, list[tuple[InstanceState[Any], PublicRef, str]]] = {}
    for instance in objects:
        state = instance_state(instance)
        for ref in refs_of(state.mapper).values():
            value = state.dict.get(ref.key)
            if isinstance(value, Waiting) and value.attribute == ref.attribute:
                waiting.setdefault(ref.source, []).append((state, ref, value.public_id))
    found = {source: _targets(session, source, members) for source, members in waiting.items()}
    for source, members in waiting.items():
        new, keys, own = found[source]
        for state, ref, public_id in members:
            _forget_relationship(state, ref)
            if public_id in new:
                setattr(state.obj(), ref.key, None)
                setattr(state.obj(), ref.relationship, new[public_id])
            else:
                key = keys[public_id] if public_id in keys else own[state, ref]
                setattr(state.obj(), ref.key, key)
                remember(state, ref, key, public_id)


def _targets(
    session: Session, source: Source, members: list[tuple[InstanceState[Any], PublicRef, str]]
) -> tuple[dict[str, object], dict[str, Any], dict[tuple[InstanceState[Any], PublicRef], Any]]:
    """Return the objects that public ids of *members* stand for, new ones included, and the keys of other rows.

    The last answer is the keys that members have already: an object may keep its reference to a row that the program
    hides from its queries.
    """
    wanted = dict.fromkeys(public_id for _, _, public_id in members)
    unsaved = {
        instance_state(instance).dict.get(source.public_id): instance
        for instance in session.new
        if isinstance(instance, source.model)
    }
    new = {public_id: unsaved[public_id] for public_id in wanted if public_id in unsaved}
    rest = [public_id for public_id in wanted if public_id not in new]
    if is_sharded(session):  # a key alone does not tell the shard of its row; the object does
        new |= lookup_objects(session, source, rest)
        rest = [public_id for public_id in rest if public_id not in new]
    keys = lookup_keys(session, source, rest) if rest else {}
    lacking = [member for member in members if member[2] not in new and member[2] not in keys]
    own = _own_keys(session, source, lacking)
    for state, ref, public_id in lacking:
        if (state, ref) not in own:
            where = f"{state.class_.__name__}.{ref.attribute}"
            raise PublicIdNotFound(public_id, model=source.model.__name__, field=where)
    return new, keys, own


def _own_keys(
    session: Session, source: Source, members: list[tuple[InstanceState[Any], PublicRef, str]]
) -> dict[tuple[InstanceState[Any], PublicRef], Any]:
    """Return the stored foreign keys of those *members* that were assigned the id of the row they refer to already."""
    stored: dict[Any, list[tuple[InstanceState[Any], PublicRef, str, Any]]] = {}
    for state, ref, public_id in members:
        key = _stored_key(session, state, ref)
        if key is not None:
            stored.setdefault(state.identity_token, []).append((state, ref, public_id, key))
    own: dict[tuple[InstanceState[Any], PublicRef], Any] = {}
    for shard, some in stored.items():
        public_ids = public_ids_by_key(session, source, shard, list(dict.fromkeys(key for *_, key in some)))
        own |= {(state, ref): key for state, ref, public_id, key in some if public_ids.get(key) == public_id}
    return own


def _stored_key(session: Session, state: InstanceState[Any], ref: PublicRef) -> Any:
    """Return the foreign key in the row of *state*, which an assignment has replaced, or may have without a look."""
    if not state.persistent:
        return None
    replaced = cast("Sequence[Any]", get_history(state.obj(), ref.key, PASSIVE_NO_INITIALIZE).deleted)
    if replaced:
        return replaced[0]
    rows = values_of(session, state.mapper, state.identity_token, [state], [ref.key])
    return next((values[ref.key] for _, values in rows), None)


# --- statements


def do_orm_execute(state: ORMExecuteState) -> Any:
    """Translate the references among the parameters of a statement.

    Those are the rows of ``session.execute(insert(Model), rows)``, and of an UPDATE; and the foreign key by which a
    relationship is loaded, which may wait for the flush.
    """
    rows = cast("list[dict[str, Any]]", state.parameters if state.is_executemany else [state.parameters or {}])
    if state.is_relationship_load:
        found = [{name: _key(state.session, value) for name, value in row.items()} for row in rows if _waits(row)]
    elif (state.is_insert or state.is_update) and state.bind_mapper is not None:
        refs = refs_of(state.bind_mapper)
        named = any(name in row for name in refs for row in rows)
        found = _translated(state.session, state.bind_mapper, refs, rows) if named else []
    else:
        return None
    return state.invoke_statement(params=found if state.is_executemany else found[0]) if found else None


def _waits(row: dict[str, Any]) -> bool:
    return any(isinstance(value, Waiting) for value in row.values())


def _key(session: Session, value: object) -> object:
    """*value*, or the key that it waits for; a row that is still to be inserted is inserted, as before any query."""
    if not isinstance(value, Waiting):
        return value
    if session.autoflush:
        session.flush()
    return lookup_keys(session, value.source, [value.public_id]).get(value.public_id)


def _translated(
    session: Session, mapper: Mapper[Any], refs: dict[str, PublicRef], rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """For each of *rows*, the foreign keys that its references stand for."""
    wanted: dict[Source, list[tuple[dict[str, Any], PublicRef, str]]] = {}
    translated: list[dict[str, Any]] = []
    for row in rows:
        keys: dict[str, Any] = {}
        translated.append(keys)
        for name in refs.keys() & row.keys():
            ref = refs[name]
            public_id = _checked(ref, mapper.class_, row[name])
            if public_id is None:
                keys[ref.key] = None
            else:
                wanted.setdefault(ref.source, []).append((keys, ref, public_id))
    for source, members in wanted.items():
        found = lookup_keys(session, source, dict.fromkeys(each for _, _, each in members))
        for keys, ref, public_id in members:
            if public_id not in found:
                where = f"{mapper.class_.__name__}.{ref.attribute}"
                raise PublicIdNotFound(public_id, model=source.model.__name__, field=where)
            keys[ref.key] = found[public_id]
    return translated
