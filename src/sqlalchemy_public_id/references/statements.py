"""Translate the references among the parameters of a statement into foreign keys."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, cast

from sqlalchemy import Update
from sqlalchemy.orm import Mapper, ORMExecuteState, Session

from sqlalchemy_public_id._private import names_in_values
from sqlalchemy_public_id.errors import AmbiguousPublicId, ConfigurationError, PublicIdNotFound
from sqlalchemy_public_id.references.reading import forget_all
from sqlalchemy_public_id.references.reference import SHOWN, PublicRef, UnresolvedKey, refs_of
from sqlalchemy_public_id.references.scopes import Target, check_row, not_found
from sqlalchemy_public_id.references.writing import checked, find_targets, resolve_one


def do_orm_execute(state: ORMExecuteState) -> Any:
    """Translate the references among the parameters of a statement, and forget ids that an UPDATE replaces.

    The parameters are the rows of ``session.execute(insert(Model), rows)`` and of an UPDATE. The lazy load of a
    relationship has the foreign key as a parameter, which may be unresolved.
    """
    if isinstance(state.parameters, tuple):
        state.parameters = list(state.parameters)  # invoke_statement() reads a tuple as one row
    rows = cast("list[dict[str, Any]]", state.parameters if state.is_executemany else [state.parameters or {}])
    translated: list[dict[str, Any]] = []
    replaces_ids = False
    if state.is_relationship_load:
        if any(isinstance(value, UnresolvedKey) for row in rows for value in row.values()):
            translated = [{name: _key(state, value) for name, value in row.items()} for row in rows]
    elif (state.is_insert or state.is_update) and state.bind_mapper is not None:
        refs = refs_of(state.bind_mapper)
        if any(name in row for name in refs for row in rows):
            translated = _translated(state.session, state.bind_mapper, refs, rows)
        replaces_ids = state.is_update and _replaces_ids(state.bind_mapper, cast("Update", state.statement), rows)
    if not translated and not replaces_ids:
        return None
    params = translated if state.is_executemany else translated[0] if translated else None
    result = state.invoke_statement(params=params or None)
    if replaces_ids:  # a flush before the UPDATE may have fetched ids
        forget_all(state.session)
    return result


def _replaces_ids(mapper: Mapper[Any], update: Update, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if *update* may set public ids that references show: if it sets more than other attributes."""
    shown = SHOWN.get(weakref.ref(mapper.base_mapper.class_))
    if not shown:
        return False
    # without values(), the rows have the values
    names = names_in_values(update) or {name for row in rows for name in row}
    others = [attribute for attribute in mapper.column_attrs if attribute.key not in shown]
    columns = [column for attribute in others for column in attribute.columns]
    known = {attribute.key for attribute in others}
    known |= {str(getattr(column, name, "")) for column in columns for name in ("key", "name")}
    return not names or not names <= known


def _key(state: ORMExecuteState, value: object) -> object:
    """Return *value*, or the key that it stands for. A pending row is flushed first, as before any query."""
    owner = state.lazy_loaded_from
    if not isinstance(value, UnresolvedKey) or owner is None:
        return value
    if state.session.autoflush:
        state.session.flush()
    ref = refs_of(owner.mapper)[value.attribute]
    key = owner.dict.get(ref.key)
    if not isinstance(key, UnresolvedKey):
        return key
    try:
        return resolve_one(state.session, owner, key).key
    except PublicIdNotFound:
        return None


def _translated(
    session: Session, mapper: Mapper[Any], refs: dict[str, PublicRef], rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the foreign keys that the references in *rows* stand for, a dictionary for each row."""
    ids_of_rows = [
        {name: checked(ref, mapper.class_, row[name]) for name, ref in refs.items() if name in row} for row in rows
    ]
    assigned = [(refs[name], id) for row in ids_of_rows for name, id in row.items() if id is not None]
    targets = find_targets(session, assigned)
    translated: list[dict[str, Any]] = []
    for one in assigned:
        if one not in targets:
            raise not_found(one[1], one[0], mapper.class_)
    for row, ids in zip(rows, ids_of_rows, strict=True):
        found = {
            refs[name]: Target() if id is None else _one_of(mapper, refs[name], row, targets[refs[name], id])
            for name, id in ids.items()
        }
        keys: dict[str, Any] = {}
        for ref, target in found.items():
            if keys.setdefault(ref.key, target.key) != target.key:
                raise ConfigurationError(
                    f"a row of the statement has two values for {mapper.class_.__name__}.{ref.key}: {ref.attribute} "
                    f"refers to another row than an earlier reference; pass only one of them"
                )
        for ref, target in found.items():
            if ids[ref.attribute] is not None:  # a shared attribute may be a foreign key that was just found
                check_row(mapper.class_, ref, {**row, **keys}, target)  # row may be a RowMapping
        translated.append(keys)
    return translated


def _one_of(mapper: Mapper[Any], ref: PublicRef, row: Mapping[str, Any], targets: Sequence[Target]) -> Target:
    """Return the one of *targets*, which have one id, that has the values of *row* in the columns beside it."""
    if len(targets) == 1:
        return targets[0]  # its scope is checked later, because the row may lack a foreign key
    beside = [(own, name) for own, name in ref.compared if name in ref.beside]
    if any(own not in row for own, _ in beside):
        raise AmbiguousPublicId([row[ref.attribute]], model=ref.target.__name__, columns=ref.beside)
    own = [one for one in targets if all(one.shared[name] == row[each] for each, name in beside)]
    if not own:
        raise not_found(row[ref.attribute], ref, mapper.class_)
    if len(own) > 1:
        raise AmbiguousPublicId([row[ref.attribute]], model=ref.target.__name__, columns=ref.beside)
    return own[0]
