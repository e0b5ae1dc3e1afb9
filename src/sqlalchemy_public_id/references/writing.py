"""Assign public ids: the foreign key stays unresolved until the next flush, which looks up all keys together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias, cast

from sqlalchemy import select
from sqlalchemy.orm import AttributeState, InstanceState, Mapper, Session, load_only
from sqlalchemy.orm.attributes import instance_state, set_committed_value

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import AmbiguousPublicId, ConfigurationError, InvalidPublicId
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.orm.inspection import condition_of, is_sharded
from sqlalchemy_public_id.references.queries import Beside, public_ids_by_key, values_of
from sqlalchemy_public_id.references.reading import read_loaded, relationship_changed, remember, values_beside
from sqlalchemy_public_id.references.reference import (
    Condition,
    PublicRef,
    Source,
    UnresolvedKey,
    objects_with_refs,
    refs_of,
)
from sqlalchemy_public_id.references.scopes import (
    Found,
    Member,
    Target,
    check_again,
    is_in_scope,
    moves,
    not_found,
    stored_values,
    written_values,
)

_Targets: TypeAlias = dict[tuple[PublicRef, str], list[Target]]
"""Reference and public id → what the id stands for: several rows if it is unique only with shared attributes."""

_OfMembers: TypeAlias = dict[tuple[InstanceState[Any], PublicRef], Target]
"""Object and reference → what the id that was assigned to it stands for."""

_TO_CHECK = "sqlalchemy_public_id.references"
"""Key in the attributes of a flush: the references with a scope that it has resolved."""


def write(ref: PublicRef, instance: object, value: object) -> None:
    """Assign *value* to *ref* of *instance*."""
    state = instance_state(instance)
    public_id = checked(ref, state.class_, value)
    if relationship_changed(state, ref):
        related = state.dict[ref.relationship]
        if related is not None:
            if public_id == getattr(related, ref.target_id):
                return
            model = state.class_.__name__
            raise ConfigurationError(
                f"{model}.{ref.attribute} cannot become {safe_repr(public_id)}: {model}.{ref.relationship} was just "
                f"set to {safe_repr(getattr(related, ref.target_id))}, and is not flushed; set only one of the two"
            )
        _unload_relationship(state, ref)
    if public_id is None:
        setattr(instance, ref.key, None)
        _unload_relationship(state, ref)
    # attributes that the object shares with the row may change before the flush, which compares them; an object without
    # a row may have the key of a row that was rolled back with it; a key that the application has set was not checked
    # against the scope
    elif (
        ref.shared
        or ref.key not in state.dict
        or not state.has_identity
        or AttributeState(state, ref.key).history.added
        or read_loaded(state, ref) != public_id
    ):
        setattr(instance, ref.key, UnresolvedKey(ref.attribute, public_id))


def find_id_of_assigned_row(session: Session, state: InstanceState[Any], ref: PublicRef) -> str:
    """Return the id that *ref* shows of a row that was assigned by another of its ids. The object is not changed.

    :raises PublicIdNotFound: if there is no such row, or if the session may not see it.
    """
    target = resolve_one(session, state, cast("UnresolvedKey", state.dict[ref.key]), also=ref.target_id)
    if target.instance is not None:
        return cast("str", getattr(target.instance, ref.target_id))
    if ref.target_id in target.shared:
        return cast("str", target.shared[ref.target_id])
    stored = public_ids_by_key(session, ref.source, state.identity_token, [target.key], values_beside(state, ref))
    return cast("str", stored[target.key])


def checked(ref: PublicRef, model: type[Any], value: object) -> str | None:
    """Return *value* as the id that *ref* of *model* shows; refuse one that is not an id, or ``None`` for NOT NULL."""
    where = f"{model.__name__}.{ref.attribute}"
    if value is not None:
        return ref.id_type.checked(value, field=where)
    if not ref.nullable:
        raise InvalidPublicId(value, expected=ref.id_format.expected, reason="it is never null", field=where)
    return None


def _unload_relationship(state: InstanceState[Any], ref: PublicRef) -> None:
    """Remove the relationship and its history, so that a flush writes the foreign key."""
    if ref.relationship in state.dict:
        set_committed_value(state.obj(), ref.relationship, None)
        del state.dict[ref.relationship]


def _is_loaded(state: InstanceState[Any], ref: PublicRef, target: Target) -> bool:
    """Return True if the relationship holds the row of *target* already: an id may be assigned that the object has."""
    related = state.dict.get(ref.relationship)
    if related is None or target.instance is not None:
        return False
    loaded, key = instance_state(related).dict, [(ref.target_key, target.key), *values_beside(state, ref)]
    return all(loaded.get(name) == value for name, value in key)


def on_relationship_set(
    refs: list[PublicRef], state: InstanceState[Any], value: object, old: object, initiator: object
) -> None:
    """Discard a public id that was assigned before the relationship was set; refuse one that is assigned to it.

    ``None`` does not count for an object without a row, as in :func:`relationship_changed`.

    :param refs: the references that show the relationship.
    """
    for ref in refs:
        if isinstance(value, (str, int)):
            model, name = state.class_.__name__, ref.relationship
            raise ConfigurationError(
                f"{model}.{name} cannot become {safe_repr(value)}: it holds an object of {ref.target.__name__}; assign "
                f"one, or its public id to {model}.{ref.attribute}, or its key to {model}.{ref.key}"
            )
        if isinstance(state.dict.get(ref.key), UnresolvedKey) and (value is not None or state.has_identity):
            before = cast("Sequence[Any]", AttributeState(state, ref.key).history.deleted)
            setattr(state.obj(), ref.key, before[0] if before else getattr(value, ref.target_key, None))


# --- the flush


def before_flush(session: Session, context: Any, instances: object) -> None:
    """Find the keys for all objects of *session*."""
    context.attributes[_TO_CHECK] = resolve_foreign_keys(session, chain(session.new, session.dirty))


def after_flush(session: Session, context: Any) -> None:
    """Check scopes by what was written."""
    members = context.attributes.pop(_TO_CHECK, ())
    check_again(session, members)
    _check_conditions(session, members)


def resolve_foreign_keys(session: Session, objects: Iterable[object]) -> list[tuple[Member, Target]]:
    """Replace the unresolved foreign keys of *objects*, with one SELECT for each model that they point to.

    :returns: the resolved references that have a scope, except those that keep a row outside it.
    :raises PublicIdNotFound: if a public id belongs to no row, and to no new object of the session. Nothing is changed
        in this case.
    """
    members: list[Member] = []
    for state in map(instance_state, objects_with_refs(list(objects))):
        for ref in refs_of(state.mapper).values():
            value = state.dict.get(ref.key)
            if isinstance(value, UnresolvedKey) and value.attribute == ref.attribute:
                members.append((state, ref, value.public_id))
    if not members:
        return []
    targets, own = _resolve_members(session, members)
    for state, ref, public_id in members:
        target = targets[state, ref]
        if not _is_loaded(state, ref, target):
            _unload_relationship(state, ref)
        if target.instance is not None:  # a new object has no key yet: the unit of work copies it after the INSERT
            setattr(state.obj(), ref.key, None)
            setattr(state.obj(), ref.relationship, target.instance)
        else:
            setattr(state.obj(), ref.key, target.key)
            remember(state, ref, target.key, public_id)
    scoped = [member for member in members if member[1].shared or member[1].condition is not None]
    return [(member, targets[member[:2]]) for member in scoped if member[:2] not in own]


def _check_conditions(session: Session, members: Iterable[tuple[Member, Target]]) -> None:
    """Look for the rows that the flush has written by the condition of their scope, which only SQL can compare.

    :raises PublicIdNotFound: if a new or changed row does not meet the condition; the flush is rolled back.
    """
    by_query: defaultdict[tuple[Source, Condition], list[tuple[Member, Target]]] = defaultdict(list)
    for member, target in members:
        if member[1].condition is not None:
            by_query[member[1].source, member[1].condition].append((member, target))
    for (source, condition), several in by_query.items():
        rows = [one for one in chain(session.new, session.dirty) if isinstance(one, source.model)]
        written = {getattr(one, source.public_id) for one in rows}
        doubtful = [(member, target) for member, target in several if member[2] in written]
        if not doubtful:
            continue
        public_ids = dict.fromkeys(public_id for (_, _, public_id), _ in doubtful)
        found = {(public_id, one.key) for public_id, one in _find(session, source, list(public_ids), condition, ())}
        for (state, ref, public_id), target in doubtful:
            key = target.key if target.instance is None else getattr(target.instance, source.key)
            if (public_id, key) not in found:
                raise not_found(public_id, ref, state.class_)


def _resolve_members(
    session: Session, members: list[Member], also: Mapping[PublicRef, str] | None = None
) -> tuple[_OfMembers, Collection[tuple[InstanceState[Any], PublicRef]]]:
    """Map each of *members* to what its id stands for, and return those that keep a row outside their scope.

    Every assigned id of an object is resolved here, so none leads to a row outside the scope of its reference.

    :param also: reference → the name of another attribute to read.
    :raises PublicIdNotFound: if a public id belongs to no row in the scope, and to no new object of the session.
    """
    targets = find_targets(session, [(ref, public_id) for _, ref, public_id in members], in_flush=True, also=also)
    # a shared attribute may be assigned by its public id, too
    alone = [(ref.source, id, several[0]) for (ref, id), several in targets.items() if len(several) == 1]
    found = {(source, id): one.instance if one.key is None else one.key for source, id, one in alone}
    of_members: _OfMembers = {}
    refused: list[Member] = []
    with session.no_autoflush:  # a shared attribute may be expired
        for state, ref, public_id in members:
            own_rows = [one for one in targets.get((ref, public_id), ()) if is_in_scope(state, ref, one, found)]
            if len(own_rows) > 1:
                raise AmbiguousPublicId([public_id], model=ref.target.__name__, columns=ref.beside)
            # a row outside the scope takes as many statements as a missing one
            if own_rows:
                of_members[state, ref] = own_rows[0]
            else:
                refused.append((state, ref, public_id))
    # it raises for each reference that stays refused, so nothing has been written if one of them is wrong
    own = _find_unchanged_keys(session, refused, found)
    return of_members | own, own


def resolve_one(
    session: Session, state: InstanceState[Any], assigned: UnresolvedKey, also: str | None = None
) -> Target:
    """Return what an id that was assigned to *state* stands for, before a flush; the object is not changed."""
    refs = refs_of(state.mapper)
    by = refs[assigned.attribute]
    members: list[Member] = [(state, by, assigned.public_id)]
    for name in by.shared:  # the organization may be assigned by its public id, too
        value = state.dict.get(name)
        if isinstance(value, UnresolvedKey):
            members.append((state, refs[value.attribute], value.public_id))
    targets, _ = _resolve_members(session, members, {} if also is None else {by: also})
    return targets[state, by]


def find_targets(
    session: Session,
    assigned: Iterable[tuple[PublicRef, str]],
    *,
    in_flush: bool = False,
    also: Mapping[PublicRef, str] | None = None,
) -> _Targets:
    """Map each of *assigned* to what it stands for: a row or, in a flush, a new object."""
    by_query: defaultdict[tuple[Source, Condition | None], list[tuple[PublicRef, str]]] = defaultdict(list)
    for ref, public_id in assigned:
        by_query[ref.source, ref.condition].append((ref, public_id))
    targets: _Targets = {}
    for (source, condition), wanted in by_query.items():
        names = dict.fromkeys(name for ref, _ in wanted for _, name in ref.compared)
        names |= dict.fromkeys(name for ref, name in (also or {}).items() if ref.source == source)
        public_ids = dict.fromkeys(public_id for _, public_id in wanted)
        found: defaultdict[str, list[Target]] = defaultdict(list)
        for one in session.new if in_flush else ():
            values = instance_state(one).dict
            if isinstance(one, source.model) and values.get(source.public_id) in public_ids:
                found[values[source.public_id]].append(Target(values.get(source.key), one))
        # a new object of another tenant may have the id of a row
        is_alone = not wanted[0][0].beside
        rest = [public_id for public_id in public_ids if not (is_alone and public_id in found)]
        if rest:
            # a flush finds the shard of a row by the object that it refers to, not by a key
            rows = _find(session, source, rest, condition, names, objects=in_flush and is_sharded(session))
            for public_id, target in rows:
                found[public_id].append(target)
        targets |= {(ref, public_id): found[public_id] for ref, public_id in wanted if public_id in found}
    return targets


def _find(
    session: Session,
    source: Source,
    public_ids: Collection[str],
    condition: Condition | None,
    names: Iterable[str],
    *,
    objects: bool = False,
) -> list[tuple[str, Target]]:
    """Return public ids, each with its key, or object, and the values of the attributes *names*.

    Conditions that the application adds to its session apply, so an assigned id reveals no hidden row.
    """
    key, column = source.columns()
    shared = {name: getattr(source.model, name) for name in names}
    query: Any = select(column, key, *shared.values())
    if objects:
        query = select(column, source.model).options(load_only(key, column, *shared.values(), raiseload=False))
    if condition is not None:
        query = query.where(condition_of("scope", condition(session), source.model))
    found: list[tuple[str, Target]] = []
    with session.no_autoflush:
        dialect = session.get_bind(source.mapper).dialect
        for is_one in traits_for(dialect).any_of(column, list(public_ids), column.type.as_parameter):
            rows: Any = session.execute(query.where(is_one))
            for text, one, *values in rows:
                if objects:
                    found.append((text, Target(getattr(one, source.key), one)))
                else:
                    found.append((text, Target(one, shared=dict(zip(shared, values, strict=True)))))
    return found


def _find_unchanged_keys(
    session: Session, members: list[Member], found: Found
) -> dict[tuple[InstanceState[Any], PublicRef], Target]:
    """Return the stored foreign keys of *members*, if each was assigned the id of the row that it already refers to.

    An object may keep its reference to a row that conditions of the application hide from queries, but not if it moves
    to another tenant.

    :raises PublicIdNotFound: for a member that was assigned another id, or that moves.
    """
    own: dict[tuple[InstanceState[Any], PublicRef], Target] = {}
    by_query: defaultdict[tuple[PublicRef, Mapper[Any], Any, Beside], dict[InstanceState[Any], str]]
    by_query = defaultdict(dict)
    for state, ref, public_id in members:
        by_query[ref, state.mapper, state.identity_token, values_beside(state, ref)][state] = public_id
    for (ref, mapper, shard, beside), wanted in by_query.items():
        names = [ref.key, *ref.shared]
        stored = [state for state in wanted if state.persistent]
        with session.no_autoflush:
            written = {state: written_values(state, ref, found) for state in stored}
        before = {state: stored_values(state, names) for state in stored}
        # an attribute may have been deferred or expired on assignment
        unread = [state for state in stored if len(before[state]) < len(names)]
        if unread:
            before |= values_of(session, mapper, shard, unread, names)
        keys = {state: values[ref.key] for state, values in before.items() if ref.key in values}
        some = [key for key in dict.fromkeys(keys.values()) if key is not None]
        public_ids = public_ids_by_key(session, ref.source, shard, some, beside) if some else {}
        for state, public_id in wanted.items():
            if public_ids.get(keys.get(state)) != public_id or moves(before[state], written[state]):
                raise not_found(public_id, ref, mapper.class_)
            own[state, ref] = Target(keys[state])
    return own
