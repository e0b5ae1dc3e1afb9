"""The events of a mapper with public ids, and of its attributes.

* **When a flush is about to insert** an object without an id (``before_insert``), its id is drawn. It waits outside the
  object until the INSERT, in which the column default hands it over; the guard replaces it if it is taken.
* **On first access** of an object that is not flushed yet (``init_scalar``), it gets its id at once, so that
  ``User().public_id`` has a value before the flush. From then on, it is an attribute like any other: the flush sends
  it, and nothing replaces it.
* **On assignment** (``set``), the id is validated. The id of a stored row cannot change (:class:`ImmutablePublicId`).
  If the stored id is not loaded, the assignment does not load it: the flush compares the two (``before_update``).
* **When attributes are copied** to a stored row from a *patch*, an object without a row that has the same key, the id
  that the patch got because it was read is ignored.
"""

from __future__ import annotations

import warnings
from typing import Any, cast
from weakref import WeakValueDictionary, ref

from sqlalchemy import Column, FromClause, Integer, Subquery, Table, event, inspect, select
from sqlalchemy.engine import Connection
from sqlalchemy.orm import (
    AttributeState,
    ColumnProperty,
    InstanceState,
    InstrumentedAttribute,
    Mapper,
    QueryableAttribute,
)
from sqlalchemy.orm.attributes import AttributeEventToken, set_committed_value

from sqlalchemy_public_id import guard, registry
from sqlalchemy_public_id._private import make_sentinel
from sqlalchemy_public_id.columns import is_copy, is_public_id, is_unique, public_id_type, unique_with
from sqlalchemy_public_id.errors import ConfigurationError, ImmutablePublicId, PublicIdWarning
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.guard.default import IdDefault
from sqlalchemy_public_id.guard.drawing import discard, draw_on_access, drawing_listener
from sqlalchemy_public_id.key_types import BigIntegerKey
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.mixed_formats import differing, formats_in
from sqlalchemy_public_id.orm import listen_unwrapped
from sqlalchemy_public_id.orm.annotations import MIXINS, names_of_mixins, typed_ids_of_mixins, wrong_annotation
from sqlalchemy_public_id.orm.equal_ids import separate_rows
from sqlalchemy_public_id.orm.inspection import MIXED_IN, id_attributes, ids_of_union, refuse_second_column
from sqlalchemy_public_id.typed import TypedId
from sqlalchemy_public_id.types import IdColumnType, is_expression
from sqlalchemy_public_id.unique_index import check_unique_with
from sqlalchemy_public_id.weak import RefDict

# --- mappers


def after_mapper_constructed(mapper: Mapper[Any], model: type[Any]) -> None:
    """Refuse a model that declares an id or a key twice, its format under another name, or an id as another type.

    Runs when a class is mapped.

    :raises ConfigurationError: if the model is refused. Neither its mapper nor its table remains.
    """
    registry.models(mapper.registry)  # bases are searched in the order of declaration, not in that of configuration
    try:
        _refuse_other_settings(model)
        if _is_declared_here(mapper, model):
            _refuse_two_declarations(mapper, model)
        refuse_second_column(mapper)
        _refuse_other_types(mapper, model)
    except ConfigurationError:
        table = cast("Table", mapper.local_table)
        is_own = mapper.inherits is None or table is not mapper.inherits.local_table
        if is_own and hasattr(model, "__tablename__"):
            table.metadata.remove(table)
        raise


_SETTINGS = {"__public_id__", "__public_id_unique_with__", "__public_id_sql_type__", "__public_id_refs__"}
"""The names that a class may have: three settings of its ids, and a cache."""


def _refuse_other_settings(model: type[Any]) -> None:
    for base in model.__mro__:
        for name, value in vars(base).items():
            if name in _SETTINGS or "__" not in name:
                continue
            is_format = isinstance(value, Format) or (isinstance(value, type) and issubclass(value, TypedId))
            mangled = f"_{base.__name__.lstrip('_')}__public_id"  # of __public_id, in the body of a class
            if (
                name.startswith("__public_id")
                or (is_format and name == mangled)
                or (is_format and name.startswith("__") and hasattr(model, "__public_id__"))
            ):
                written = "__public_id" if name == mangled else name
                raise ConfigurationError(
                    f"{model.__name__}: {written} has no effect; the format of the ids is __public_id__"
                )


def _refuse_other_types(mapper: Mapper[Any], model: type[Any]) -> None:
    for name, column in mapper.columns.items():  # mapper.column_attrs would configure all mappers
        if not is_public_id(column) or is_copy(column):
            continue
        type_ = public_id_type(column)
        wrong = wrong_annotation(model, name, type_.python_type)
        if wrong is None:
            continue
        typed, format = issubclass(wrong, TypedId), getattr(type_.format, "__name__", type_.format)
        mixin = next((base.__name__ for base in _mixins_of(model)), None) if name == "public_id" else None
        if not typed:
            remedy = f"write Mapped[{type_.python_type.__name__}]"
        elif mixin is None:
            remedy = f"write public_id_column({wrong.__name__})"
        else:
            remedy = f"write {mixin}[{wrong.__name__}] and leave the annotation out"
        raise ConfigurationError(
            f"{model.__name__}: {name} is annotated as {wrong.__name__}, but the ids are those of {format}; {remedy}"
        )


def _refuse_ids_as_keys(mapper: Mapper[Any], model: type[Any]) -> None:
    for name, column in mapper.columns.items():
        is_key = bool(column.primary_key or column.foreign_keys)
        if not is_key or not isinstance(column.type, Integer):
            continue
        wrong = wrong_annotation(model, name, int)
        if wrong is None or not issubclass(wrong, TypedId):
            continue
        attribute = f"{name.removesuffix('_id')}_public_id"
        shown = f'the id is shown by {attribute}: Mapped[{wrong.__name__}] = public_ref("name of the relationship")'
        raise ConfigurationError(
            f"{model.__name__}: {name} is annotated as {wrong.__name__}, but is an integer key; write Mapped[int]; "
            f"{'the public id is a column of its own' if column.primary_key else shown}"
        )


def before_mapper_configured(mapper: Mapper[Any], model: type[Any]) -> None:
    """Refuse a model that has the prefix of another one, declares a key as an id, or reads two formats as one column.

    Runs each time that SQLAlchemy configures mappers, until it has succeeded once.

    :raises ConfigurationError: if the model is refused.
    """
    attributes = id_attributes(mapper)
    if attributes:
        _register(mapper, model, attributes)
    _refuse_ids_as_keys(mapper, model)
    _join_formats_of_union(mapper, model)


def mapper_configured(mapper: Mapper[Any], model: type[Any]) -> None:
    """Set up a mapper with public ids. Runs once, when SQLAlchemy configures it."""
    attributes = id_attributes(mapper)
    if not attributes:
        return
    _listen_to_rows(mapper, attributes)
    for key, column in attributes.items():
        _add_attribute(mapper, mapper.class_manager[key], column)


_drawn: RefDict[Mapper[Any], dict[str, Column[Any]]] = RefDict()
"""Mapper → attribute → column, for the ids that the library draws: not those from a default of the application."""


def _listen_to_rows(mapper: Mapper[Any], attributes: dict[str, Column[Any]]) -> None:
    def before_update(_: Mapper[Any], connection: Connection, state: InstanceState[Any]) -> None:
        _refuse_another_id(state, attributes, connection)

    listen_unwrapped(mapper, "before_insert", drawing_listener(_drawn.keep(mapper, {}), guard.guard_connection))
    event.listen(mapper, "before_update", before_update, raw=True)


def _add_attribute(mapper: Mapper[Any], attribute: QueryableAttribute[Any], column: Column[Any]) -> None:
    check_unique_with(column)
    _listen_to_attribute(mapper, attribute, column)
    if isinstance(getattr(column.default, "arg", None), IdDefault):
        _drawn[ref(mapper)][attribute.key] = column
        # the ids of an SQL expression are unknown before the INSERT, and another function may return an id twice
        if is_unique(column) and not column.nullable:
            make_sentinel(column)
            if unique_with(column):
                separate_rows(mapper, attribute.key, column)


def attribute_instrument(model: type[Any], key: str, attribute: QueryableAttribute[Any]) -> None:
    """Set up a public id that is added to a model after its mapper was configured.

    Runs whenever SQLAlchemy adds an attribute to any class, mostly before its mapper is configured, and then returns at
    once. There is no narrower event: when a column is attached to a table, its attribute does not exist yet, and the
    table does not know its mappers; a mapper has no event for an added property; and no class can be excluded, because
    it may not have a public id yet, or may have been configured before the library was first used.
    """
    mapper: Mapper[Any] | None = inspect(model, raiseerr=False)
    if mapper is None or not mapper.configured or not isinstance(attribute, InstrumentedAttribute):
        return
    prop: object = attribute.property
    column = prop.columns[0] if isinstance(prop, ColumnProperty) else None
    if column is not None and is_public_id(column):
        attributes = id_attributes(mapper)
        if not attributes:
            _listen_to_rows(mapper, attributes)
        attributes[key] = column  # the mapper's listeners use this dictionary
        _add_attribute(mapper, attribute, column)
        _register(mapper, model, attributes)


def _mixins_of(model: type[Any]) -> list[type[Any]]:
    return [base for base in model.__mro__ if base.__module__ == MIXINS]


def _is_declared_here(mapper: Mapper[Any], model: type[Any]) -> bool:
    """Return True if *model* has a mixin and its own table, which is not a copy, a query or a union."""
    table: FromClause = mapper.local_table
    if not (hasattr(model, "__public_id__") and isinstance(table, Table)):
        return False
    return not any(map(is_copy, cast("Table", table).columns))


def _refuse_two_declarations(mapper: Mapper[Any], model: type[Any]) -> None:
    has_id = any(map(is_public_id, cast("Any", mapper.persist_selectable).columns))
    if not has_id and not _mixins_of(model):
        raise ConfigurationError(
            f"{model.__name__} has __public_id__, and no mixin that adds the column: write "
            f"class {model.__name__}(PublicIdMixin, …), or PublicIdColumnMixin if it has a key of its own"
        )
    if not has_id:
        raise ConfigurationError(
            f"{model.__name__} declares public_id itself, beside the mixin that adds it; "
            f"remove it, or write public_id_column() instead of the mixin"
        )
    keys = [key for key in mapper.primary_key if isinstance(key, Column)]
    others = [key.name for key in keys if MIXED_IN not in key.info]
    mixin, without_key = names_of_mixins(model)
    if others and len(others) < len(keys):
        raise ConfigurationError(
            f"{model.__name__} has a key of its own, {', '.join(others)}, and {mixin} adds another one; "
            f"use {without_key}"
        )
    unchecked = [key for key in keys if isinstance(key.type, Integer) and not isinstance(key.type, BigIntegerKey)]
    if unchecked and any("id" in vars(base) for base in _mixins_of(model)):
        warnings.warn(
            f"{model.__name__} declares its key {unchecked[0].name} itself, in place of one that refuses public ids "
            f"(MySQL reads '7abc' as 7); leave it out, or write bigint_key(), or use {without_key} to keep it",
            PublicIdWarning,
            stacklevel=2,
        )


def _register(mapper: Mapper[Any], model: type[Any], attributes: dict[str, Column[Any]]) -> None:
    inherited = id_attributes(mapper.inherits).values() if mapper.inherits is not None else ()
    own = [column for column in attributes.values() if not any(column is other for other in inherited)]
    others = ["__public_id__"] if "__public_id__" in vars(model) else []
    types = {public_id_type(column).python_type for column in attributes.values()}
    others += [written for written, typed in typed_ids_of_mixins(model).items() if typed not in types]
    if others and not own:
        raise ConfigurationError(
            f"{model.__name__} inherits its public id, and cannot have another format for it; remove {others[0]}"
        )
    for column in own:
        registry.remember_model(column.table, column.key, model)
    originals = [column for column in own if not is_copy(column)]
    if originals:
        formats = (public_id_type(column).id_format for column in originals)
        registry.models(mapper.registry).claim(_owner(mapper), *formats)


def _owner(mapper: Mapper[Any]) -> type[Any]:
    """Return the model that claims the prefixes: the topmost one whose ids are those of its concrete subclasses."""
    owner = mapper
    while owner.concrete and owner.inherits is not None and _has_equal_ids(owner, owner.inherits):
        owner = owner.inherits
    return owner.class_


def _has_equal_ids(mapper: Mapper[Any], above: Mapper[Any]) -> bool:
    columns = cast("Any", above.selectable).c
    return hasattr(above.class_, "__public_id__") and all(
        column.key in columns and {*formats_in(columns[column.key])} == {public_id_type(column).id_format}
        for column in id_attributes(mapper).values()
    )


def _join_formats_of_union(mapper: Mapper[Any], model: type[Any]) -> None:
    """Let the ids of a union of concrete tables be those of every table; refuse a union that cannot be read so."""
    union = mapper.selectable
    if not isinstance(union, Subquery):
        return
    for column in union.c:
        formats = sorted({*formats_in(column)}, key=repr)
        # a base with a table of its own compares ids of that table, and would find no others
        has_others = mapper.local_table is not union and column.key in mapper.local_table.c and len(formats) > 1
        pair = formats[:2] if has_others else differing(formats)
        if pair:
            remedy = "" if has_others else ', or store the ids as text, with storage="text"'
            raise ConfigurationError(
                f"{model.__name__} reads tables with ids of two formats, {pair[0]!r} and {pair[1]!r}, as one column, "
                f"so rows would not be found, or show ids that no row has; declare one format for all of them{remedy}"
            )
    for column in ids_of_union(mapper).values():
        newest, *others = sorted({*formats_in(column)}, key=repr)
        if others:
            column.type = IdColumnType(newest.accepting(*others))


# --- attributes


_patches: WeakValueDictionary[str, InstanceState[Any]] = WeakValueDictionary()
"""Id → the object with a key, but without a row, that got it because it was read: mostly a patch for another object."""


def _is_of_patch(public_id: str | None, state: InstanceState[Any], key: str) -> bool:
    """Return True if reading another object, which stands for the row of *state*, has made *public_id*."""
    patch = _patches.get(public_id) if public_id is not None else None
    if patch is None or not patch.transient or patch.dict.get(key) != public_id:
        return False
    mapper, values, identity_key = patch.mapper, patch.dict, state.identity_key
    names = (mapper.get_property_by_column(column).key for column in mapper.primary_key)
    of_patch = mapper.identity_key_from_primary_key(tuple(values.get(name) for name in names))
    return identity_key is not None and of_patch[:2] == identity_key[:2]


def _listen_to_attribute(mapper: Mapper[Any], attribute: QueryableAttribute[Any], column: Column[Any]) -> None:
    key, type_ = attribute.key, public_id_type(column)
    primary_key = [mapper.get_property_by_column(column).key for column in mapper.primary_key]

    def init_scalar(state: InstanceState[Any], value: Any, values: dict[str, Any]) -> Any:
        if state.has_identity:
            return value
        is_patch = state.transient and None not in map(values.get, primary_key)
        generated = values[key] = draw_on_access(state, column, type_)
        if is_patch:
            _patches[generated] = state
        return generated

    def on_set(state: InstanceState[Any], value: Any, old: Any, initiator: AttributeEventToken) -> Any:
        model = state.class_.__name__
        if state.has_identity and old is not None:  # a row without an id may still get one
            canonical = type_.canonical(value)
            if _is_of_patch(canonical, state, key):
                return old if isinstance(old, str) else getattr(state.obj(), key) or canonical
            history = AttributeState(state, key).history
            if canonical is not None and history.added and not history.deleted:
                return canonical  # assigned again while the stored id is not loaded: the flush compares
            if isinstance(old, str) and old in (value, canonical):
                return old
            if isinstance(old, str) or canonical is None:
                raise _immutable(model, key, old if isinstance(old, str) else None, value)
            return canonical  # the stored id is not loaded: the flush compares
        if value is None:
            # A stored row that has no id, because the column is not backfilled yet, gets one. For a new object, None
            # discards its id, and the INSERT makes another one.
            return type_.next_id() if state.has_identity else None
        if not is_expression(value):
            value = type_.checked(value, field=f"{model}.{key}")
        discard(state, column)
        return value

    def on_remove(state: InstanceState[Any], value: Any, initiator: AttributeEventToken) -> None:
        if state.has_identity:
            raise _immutable(state.class_.__name__, key, value if isinstance(value, str) else None, None)

    event.listen(attribute, "init_scalar", init_scalar, raw=True, retval=True)
    event.listen(attribute, "set", on_set, raw=True, retval=True)
    event.listen(attribute, "remove", on_remove, raw=True)


def _immutable(model: str, key: str, old: object, new: object) -> ImmutablePublicId:
    """Build the error for a stored row; *old* is None if the id of the row is not loaded."""
    remedy = "to give the row another id on purpose, execute an UPDATE statement"
    if new is None:
        remedy = f"leave {key} out of the values that you assign"
    return ImmutablePublicId(
        f"{model}.{key} is {'stored' if old is None else safe_repr(old)} and cannot become {safe_repr(new)}: links to "
        f"the row would break; {remedy}",
        model=model,
        attribute=key,
        old=old,
        new=new,
    )


def _refuse_another_id(state: InstanceState[Any], attributes: dict[str, Column[Any]], connection: Connection) -> None:
    """Refuse an id that was assigned while the stored id was not loaded, unless the two are equal."""
    for key in attributes:
        history = AttributeState(state, key).history
        if not history.added or None in (history.deleted or ()):
            continue  # the id has not changed, or the row had none
        stored, assigned = _stored_id(state, key, connection), state.dict.get(key)
        if stored is not None and stored != assigned:
            raise _immutable(state.class_.__name__, key, stored, assigned)
        if stored is not None:
            set_committed_value(state.obj(), key, stored)


def _stored_id(state: InstanceState[Any], key: str, connection: Connection) -> str | None:
    mapper = state.mapper
    own = mapper.class_manager  # attributes of the class itself: those of a base class may belong to another table
    query = select(own[key])
    for column, value in zip(mapper.primary_key, cast("tuple[Any, ...]", state.identity), strict=True):
        query = query.where(own[mapper.get_property_by_column(column).key] == value)
    return connection.execute(query).scalar()
