"""Assign public ids: the foreign key stays unresolved until the next flush, which looks up all keys together."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, TypeAlias, cast

from sqlalchemy import select
from sqlalchemy.orm import AttributeState, InstanceState, Mapper, ORMExecuteState, Session, load_only
from sqlalchemy.orm.attributes import instance_state, set_committed_value

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError, InvalidPublicId, safe_repr
from sqlalchemy_public_id.orm.inspection import condition_of, is_sharded
from sqlalchemy_public_id.references import scopes
from sqlalchemy_public_id.references.queries import public_ids_by_key, values_of
from sqlalchemy_public_id.references.reading import public_id_without_query, relationship_changed, remember
from sqlalchemy_public_id.references.reference import Condition, PublicRef, Source, UnresolvedKey, refs_of
from sqlalchemy_public_id.references.scopes import Member, Shared, Targets, not_found

_Wanted: TypeAlias = tuple[Source, Condition | None]

_OwnKeys: TypeAlias = dict[tuple[InstanceState[Any], PublicRef], Any]
"""The stored foreign keys of references that an object keeps."""


def write(ref: PublicRef, instance: object, value: object) -> None:
    """Assign *value* to *ref* of *instance*."""
    state = instance_state(instance)
    public_id = _checked(ref, state.class_, value)
    related = state.dict.get(ref.relationship)
    if related is not None and relationship_changed(state, ref):
        if public_id == getattr(related, ref.target_id):
            return
        model = state.class_.__name__
        raise ConfigurationError(
            f"{model}.{ref.attribute} cannot become {safe_repr(public_id)}: {model}.{ref.relationship} was just set to "
            f"{safe_repr(getattr(related, ref.target_id))}, and is not flushed; set only one of the two"
        )
    if ref.relationship in state.dict and relationship_changed(state, ref):  # to None
        _unload_relationship(state, ref)
    if public_id is None:
        setattr(instance, ref.key, None)
        _unload_relationship(state, ref)
    # the key of an object without a row may be that of a row that was rolled back with it
    elif ref.key not in state.dict or not state.has_identity or public_id_without_query(state, ref, None) != public_id:
        has_scope = bool(ref.shared) or ref.condition is not None
        setattr(instance, ref.key, UnresolvedKey(ref.attribute, public_id, ref.source, has_scope))


def _checked(ref: PublicRef, model: type[Any], value: object) -> str | None:
    where = f"{model.__name__}.{ref.attribute}"
    if value is not None:
        return ref.id_type.checked(value, field=where)
    if not ref.nullable:
        raise InvalidPublicId(value, expected=ref.id_format.expected, reason="it is never null", field=where)
    return None


def _unload_relationship(state: InstanceState[Any], ref: PublicRef) -> None:
    """Remove the relationship and its history, so that a flush takes the foreign key."""
    if ref.relationship in state.dict:
        set_committed_value(state.obj(), ref.relationship, None)
        del state.dict[ref.relationship]


def on_relationship_set(
    ref: PublicRef, state: InstanceState[Any], value: object, old: object, initiator: object
) -> None:
    """Discard a public id assigned earlier: the relationship was set after it.

    ``None`` does not count for an object without a row, as in :func:`relationship_changed`.
    """
    if isinstance(state.dict.get(ref.key), UnresolvedKey) and (value is not None or state.has_identity):
        before = cast("Sequence[Any]", AttributeState(state, ref.key).history.deleted)
        setattr(state.obj(), ref.key, before[0] if before else getattr(value, ref.target_key, None))


# --- the flush


def before_flush(session: Session, context: object, instances: object) -> None:
    """Find the keys for all objects of *session*."""
    scopes.forget(session)  # of a flush that has failed
    resolve(session, chain(session.new, session.dirty), in_flush=True)


def after_flush(session: Session, context: object) -> None:
    """Check scopes by what was written."""
    scopes.check_again(session)


def resolve(session: Session, objects: Iterable[object], *, in_flush: bool = False) -> None:
    """Replace the unresolved foreign keys of *objects*: one SELECT for each model that has some.

    :raises PublicIdNotFound: if a public id belongs to no row, and to no new object of the session. Nothing is changed
        then.
    """
    unresolved: dict[_Wanted, list[Member]] = {}
    for state, refs in _with_refs(objects):
        for ref in refs:
            value = state.dict.get(ref.key)
            if isinstance(value, UnresolvedKey) and value.attribute == ref.attribute:
                unresolved.setdefault((ref.source, ref.condition), []).append((state, ref, value.public_id))
    targets = {wanted: _targets(session, *wanted, members) for wanted, members in unresolved.items()}
    # a row outside of the scope is like none, in the number of statements, too
    refused = scopes.refused(session, unresolved, targets)
    kept: _OwnKeys = {}
    for wanted, members in unresolved.items():
        new, keys, _ = targets[wanted]
        missing = [
            member for member in members if member[:2] in refused or (member[2] not in new and member[2] not in keys)
        ]
        own = _own_keys(session, wanted[0], missing)
        for state, ref, public_id in missing:
            if (state, ref) not in own:
                raise not_found(public_id, ref, state.class_)
        kept |= own
    for wanted, members in unresolved.items():
        new, keys, _ = targets[wanted]
        for state, ref, public_id in members:
            _unload_relationship(state, ref)
            if (state, ref) not in kept and public_id in new:
                setattr(state.obj(), ref.key, None)
                setattr(state.obj(), ref.relationship, new[public_id])
            else:
                key = kept[state, ref] if (state, ref) in kept else keys[public_id]
                setattr(state.obj(), ref.key, key)
                remember(state, ref, key, public_id)
    if in_flush:
        scopes.remember(
            session,
            [
                (state, ref, targets[wanted], public_id)
                for wanted, members in unresolved.items()
                for state, ref, public_id in members
                if ref.shared and (state, ref) not in kept
            ],
        )


def _with_refs(objects: Iterable[object]) -> Iterator[tuple[InstanceState[Any], Collection[PublicRef]]]:
    """Yield those of *objects* whose models have references. Most flushes have none, and look at each model once."""
    states = list(map(instance_state, objects))
    models = dict(zip(map(attrgetter("class_"), states), states, strict=True))
    refs = {model: refs_of(state.mapper).values() for model, state in models.items()}
    if any(refs.values()):
        yield from ((state, refs[state.class_]) for state in states)


def _targets(session: Session, source: Source, condition: Condition | None, members: list[Member]) -> Targets:
    """Return the objects that public ids of *members* stand for, and the keys and shared values of other rows."""
    wanted = dict.fromkeys(public_id for _, _, public_id in members)
    pending = {
        instance_state(instance).dict.get(source.public_id): instance
        for instance in session.new
        if isinstance(instance, source.model)
    }
    new = {public_id: pending[public_id] for public_id in wanted if public_id in pending}
    rest = [public_id for public_id in wanted if public_id not in new]
    if is_sharded(session):  # a flush finds the shard of a row by the object that it refers to, not by a key
        new |= _find(session, source, rest, condition, objects=True)[0]
        rest = [public_id for public_id in rest if public_id not in new]
    names = scopes.names_of(ref for _, ref, _ in members)
    keys, shared = _find(session, source, rest, condition, names) if rest else ({}, {})
    return new, keys, shared


def _find(
    session: Session,
    source: Source,
    public_ids: Iterable[str],
    condition: Condition | None = None,
    names: Collection[str] = (),
    *,
    objects: bool = False,
) -> tuple[dict[str, Any], Shared]:
    """Return public id → key, or → object with its key; and key → the values of the attributes *names*.

    A query of the application: conditions that it adds to its session hide rows, so an assigned id reveals none.
    """
    key, column = source.columns()
    query: Any = select(column, key, *(getattr(source.model, name) for name in names))
    if objects:
        query = select(column, source.model).options(load_only(key, column, raiseload=False))
    if condition is not None:
        query = query.where(condition_of("scope", condition(session), source.model))
    with session.no_autoflush:
        conditions = traits_for(session.get_bind(source.mapper).dialect).any_of(
            column, list(public_ids), column.type.as_parameter
        )
        found: dict[str, Any] = {}
        shared: Shared = {}
        for is_one in conditions:
            rows: Any = session.execute(query.where(is_one))
            for text, value, *values in rows:
                found[text] = value
                if names:
                    shared[value] = dict(zip(names, values, strict=True))
        return found, shared


def _own_keys(session: Session, source: Source, members: list[Member]) -> _OwnKeys:
    """Return the stored foreign keys of those *members* that were assigned the id of the row they refer to already.

    An object may keep its reference to a row that conditions of the application hide from queries.
    """
    stored: dict[Any, list[tuple[InstanceState[Any], PublicRef, str, Any]]] = {}
    for state, ref, public_id in members:
        key = _stored_key(session, state, ref)
        if key is not None:
            stored.setdefault(state.identity_token, []).append((state, ref, public_id, key))
    own: _OwnKeys = {}
    for shard, rows in stored.items():
        public_ids = public_ids_by_key(session, source, shard, list(dict.fromkeys(key for *_, key in rows)))
        own |= {(state, ref): key for state, ref, public_id, key in rows if public_ids.get(key) == public_id}
    return own


def _stored_key(session: Session, state: InstanceState[Any], ref: PublicRef) -> Any:
    if not state.persistent:
        return None
    replaced = cast("Sequence[Any]", AttributeState(state, ref.key).history.deleted)
    if replaced:
        return replaced[0]
    # the key was deferred or expired when the id was assigned
    rows = values_of(session, state.mapper, state.identity_token, [state], [ref.key])
    return next((values[ref.key] for _, values in rows), None)


# --- statements


def do_orm_execute(state: ORMExecuteState) -> Any:
    """Translate the references among the parameters of a statement.

    These are the rows of ``session.execute(insert(Model), rows)`` and of an UPDATE. The lazy load of a relationship has
    the foreign key as a parameter, which may be unresolved.
    """
    rows = cast("list[dict[str, Any]]", state.parameters if state.is_executemany else [state.parameters or {}])
    if state.is_relationship_load:
        translated = [
            {name: _key(state.session, value) for name, value in row.items()}
            for row in rows
            if any(isinstance(value, UnresolvedKey) for value in row.values())
        ]
    elif (state.is_insert or state.is_update) and state.bind_mapper is not None:
        refs = refs_of(state.bind_mapper)
        has_references = any(name in row for name in refs for row in rows)
        translated = _translated(state.session, state.bind_mapper, refs, rows) if has_references else []
    else:
        return None
    if not translated:
        return None
    return state.invoke_statement(params=translated if state.is_executemany else translated[0])


def _key(session: Session, value: object) -> object:
    """Return *value*, or the key that it stands for. A pending row is inserted, as before any query."""
    if not isinstance(value, UnresolvedKey):
        return value
    if session.autoflush:
        session.flush()
    if value.has_scope:
        return None  # only a flush can tell whether the row may be seen
    return _find(session, value.source, [value.public_id])[0].get(value.public_id)


def _translated(
    session: Session, mapper: Mapper[Any], refs: dict[str, PublicRef], rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the foreign keys that the references in *rows* stand for, a dictionary for each row."""
    wanted: dict[_Wanted, list[tuple[dict[str, Any], dict[str, Any], PublicRef, str]]] = {}
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
                wanted.setdefault((ref.source, ref.condition), []).append((row, keys, ref, public_id))
    stored: dict[_Wanted, Shared] = {}
    for (source, condition), members in wanted.items():
        names = scopes.names_of(ref for _, _, ref, _ in members)
        public_ids = dict.fromkeys(public_id for *_, public_id in members)
        found, shared = _find(session, source, public_ids, condition, names)
        for _, keys, ref, public_id in members:
            if public_id not in found:
                raise not_found(public_id, ref, mapper.class_)
            keys[ref.key] = found[public_id]
        stored[source, condition] = shared
    for one, members in wanted.items():  # a shared attribute may be a foreign key that was found just now
        for row, keys, ref, _ in members:
            scopes.check_row(mapper.class_, ref, row | keys, stored[one].get(keys[ref.key], {}))
    return translated
