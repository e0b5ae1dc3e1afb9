"""Show a foreign key as the public id of the row it points to.

>>> from sqlalchemy import ForeignKey
>>> from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship
>>> from sqlalchemy_public_id import NanoId, PublicIdMixin
>>> from sqlalchemy_public_id.references import public_ref
>>> class Base(DeclarativeBase): ...
>>> class Customer(PublicIdMixin, Base):
...     __tablename__ = "customer"
...     __public_id__ = NanoId(prefix="cus")
>>> class Order(PublicIdMixin, Base):
...     __tablename__ = "order"
...     customer_id = mapped_column(ForeignKey("customer.id"))
...     customer = relationship(Customer)
...     customer_public_id = public_ref("customer")
>>> Order(customer_public_id="cus_izkpm55j334u").customer_public_id
'cus_izkpm55j334u'

The column stays an integer, and nothing is stored twice. The attribute is

* **read** without loading the row: the first access fetches the ids for all objects of the session in one statement;
  :func:`load` and :func:`eager` do so ahead of time;
* **compared and sorted by** in SQL, through the indexes of the public id and of the foreign key;
* **assigned**: the next flush looks up the keys, in one SELECT for each model, before it writes anything.

An assigned id that belongs to no row raises :class:`~sqlalchemy_public_id.PublicIdNotFound`, with the attribute as
``field``. So does the id of a row outside the *scope* of :func:`public_ref`, or hidden by conditions of the session.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import MutableMapping
from functools import partial
from typing import Any, NoReturn, cast

from sqlalchemy import BindParameter, ColumnElement, FromClause, Join, and_, case, event, inspect, select, tuple_
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import Mapped, Mapper, QueryableAttribute, Session
from sqlalchemy.orm.attributes import instance_state
from sqlalchemy.sql import operators

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.listeners import Listener, Listeners
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.orm.inspection import mapped_classes
from sqlalchemy_public_id.references import reading, statements, writing
from sqlalchemy_public_id.references.polymorphic import AnyPublicIdType
from sqlalchemy_public_id.references.queries import columns_in, key_and_public_id
from sqlalchemy_public_id.references.reading import eager, load
from sqlalchemy_public_id.references.reference import (
    SHOWN,
    WITH_REFS,
    Declared,
    PublicRef,
    Scope,
    declared_refs,
    has_relationships,
    public_refs,
    ref_of,
    refs_of,
)
from sqlalchemy_public_id.weak import RefDict

__all__ = ["AnyPublicIdType", "PublicRef", "Scope", "eager", "load", "public_ref", "public_refs"]

_OF_NULL = {operator.eq, operators.is_, operator.ne, operators.is_not}
_OF_SEVERAL = {operators.in_op, operators.not_in_op}
_OF_IDS = {operator.eq, operator.ne, *_OF_SEVERAL}

_incomplete: weakref.WeakSet[Mapper[Any]] = weakref.WeakSet()
"""Mappers that are configured, but lack the relationship of a reference."""


def public_ref(relationship: str, *, attribute: str | None = None, scope: Scope | None = None) -> Mapped[Any]:
    """Declare an attribute for the public id of the row that a many-to-one *relationship* points to.

    The attribute can be read, assigned, and compared in SQL. Annotate it with ``Mapped[str]``, or with
    ``Mapped[CustomerId]`` for typed ids; add ``| None`` if the foreign key is nullable.

    :param relationship: the name of the relationship, whose foreign key is one column; or several, if the others are
        those with which the id is unique.
    :param attribute: the name of the public id, if the other model has several; ``public_id`` by default.
    :param scope: which rows may be assigned by their ids; ids of other rows are unknown. Pass the names of column
        attributes that must be equal in both models, such as ``"organization_id"``; or a function of the session that
        returns a condition, such as ``lambda session: User.organization_id == session.info["organization_id"]``.
        The flush compares a condition with its new and changed objects by one more SELECT, once they are written.
        Columns with which the id is unique are compared with the attributes of these names, or with those in the
        foreign key, unless you pass a function.
    :raises ConfigurationError: when the mappers are configured, if the relationship is missing, is not many-to-one,
        has a composite foreign key, or points to a model without a public id.
    """
    if not isinstance(relationship, str):
        raise ConfigurationError(
            f"public_ref({safe_repr(relationship)}): expected the name of the relationship, a string: "
            f'public_ref("customer")'
        )
    _LISTENERS.install()
    return cast("Mapped[Any]", _RefAttribute(relationship, attribute, scope))


class _RefAttribute(Declared, hybrid_property[Any]):
    def __init__(self, relationship: str, id_attribute: str | None, scope: Scope | None) -> None:
        self.relationship = relationship
        self.id_attribute = id_attribute
        self.scope = scope
        super().__init__(self._read, self._write, expr=self._expression, update_expr=self._in_values)
        self.bulk_dml_setter = cast("Any", self._in_row)  # SQLAlchemy 2.1
        self.__doc__ = f"The public id that the relationship ``{relationship}`` points to."

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.__name__ = name

    @property
    def prop(self) -> NoReturn:
        """What ``selectinload()``, ``joinedload()``, ``defer()`` and others ask an attribute for."""
        name = self.__name__
        raise ConfigurationError(
            f"{name} is a reference, which this function cannot load or defer: to load it with the objects, write "
            f"references.eager(Model.{name}); to load the rows that it refers to, name {self.relationship}; to defer "
            f"it, name the foreign key"
        )

    def _read(self, instance: object) -> str | None:
        return reading.read(instance, self.__name__, self.relationship, writing.find_id_of_assigned_row)

    # packages that read the annotations of hybrid attributes expect a type, and not its text
    _read.__annotations__["return"] = str | None

    def _write(self, instance: object, value: object) -> None:
        if isinstance(value, QueryableAttribute):
            return  # the default of a dataclass's constructor: the attribute of the class
        writing.write(self._ref(instance_state(instance).mapper), instance, value)

    def _expression(self, owner: Any) -> Any:
        return _RefExpression(owner, self.__name__, self.relationship)

    def _in_values(self, cls: Any, value: object) -> NoReturn:
        name = self.__name__
        raise ConfigurationError(
            f"{name} = {safe_repr(value)} cannot be used in values(): pass it in a row, session.execute(insert(Model), "
            f"[{{{name!r}: ...}}]), or set the foreign key to the key that lookup.keys_of() returns"
        )

    def _ref(self, mapper: Mapper[Any]) -> PublicRef:
        return ref_of(mapper, self.__name__, self.relationship)

    def _in_row(self, cls: Any, row: MutableMapping[str, Any], value: object) -> None:
        # session.execute() has translated the rows of a bulk statement already
        if self._ref(inspect(cls).mapper).key not in row:
            self._in_values(cls, value)


# --- in SQL


class _RefExpression(operators.ColumnOperators):
    """The reference *name* of *owner*, a model or an alias of one, which shows *relationship*."""

    def __init__(self, owner: Any, name: str, relationship: str) -> None:
        self._owner = owner
        self._name = name
        self._relationship = relationship

    def __clause_element__(self) -> ColumnElement[Any]:
        """Return the public id as a subquery. The foreign key beside it adds its own table to the FROM clause."""
        ref, foreign_key = self._ref_and_foreign_key()
        rows, (key, *others), public_id = _rows(ref)
        own = map(operator.eq, others, self._columns_beside(ref))
        subquery = select(public_id).where(key == foreign_key, *own).correlate_except(rows).scalar_subquery()
        return case((foreign_key.is_not(None), subquery))

    def operate(self, op: Any, *other: Any, **kwargs: Any) -> Any:
        value: Any = other[0] if other else ()
        if value is None and op in _OF_NULL:
            return op(self._ref_and_foreign_key()[1], None)
        values: Any = value if op in _OF_SEVERAL and hasattr(value, "__len__") else [value]
        # strings are sent as parameters; other expressions may depend on the row
        if op in _OF_IDS and all(isinstance(each, (str, BindParameter)) for each in values):
            return self._compare_keys(op, value)
        return op(self.__clause_element__(), *other, **kwargs)

    def reverse_operate(self, op: Any, other: Any, **kwargs: Any) -> Any:
        return op(other, self.__clause_element__(), **kwargs)

    def _ref_and_foreign_key(self) -> tuple[PublicRef, Any]:
        entity: Any = inspect(self._owner, raiseerr=False)
        if entity is None:
            raise ConfigurationError(
                f"{self._owner.__name__}.{self._name} belongs to no mapped class: use the attribute of a model"
            )
        ref = ref_of(entity.mapper, self._name, self._relationship)
        return ref, getattr(self._owner, ref.key)

    def _compare_keys(self, op: Any, value: Any) -> Any:
        """Compare the foreign key with the keys of the ids. As with a column, NOT IN is not true for NULL."""
        ref, foreign_key = self._ref_and_foreign_key()
        _, key, public_id = _rows(ref)
        compared = tuple_(foreign_key, *self._columns_beside(ref)) if ref.also else foreign_key
        condition = public_id.in_(value) if op in _OF_SEVERAL else public_id == value
        keys = select(*key).where(condition)
        if ref.source.mapper.local_table in cast("Mapper[Any]", inspect(self._owner).mapper).tables:
            # the table refers to itself: in an UPDATE, MySQL can read it only from a copy, which DISTINCT makes
            keys = select(*keys.distinct().subquery().c)
        if op in (operator.ne, operators.not_in_op):
            return and_(foreign_key.is_not(None), compared.not_in(keys))
        return compared.in_(keys)

    def _columns_beside(self, ref: PublicRef) -> list[Any]:
        """Return the other columns of a composite foreign key."""
        return [getattr(self._owner, name) for name, _ in ref.also]


def _rows(ref: PublicRef) -> tuple[FromClause, list[ColumnElement[Any]], ColumnElement[str]]:
    """Return an alias of the table that *ref* points to, the columns that the foreign key refers to, and its public id.

    It is an alias of the table, not of the entity, so that conditions which the application adds to entities hide no
    rows, just as they hide none when the attribute of an object is read.
    """
    table, key, public_id = key_and_public_id(ref.source)
    named = [key, *(columns_in(table, ref.source.mapper, name) for _, name in ref.also), public_id]
    rows = select(*named).select_from(table).subquery() if isinstance(table, Join) else table.alias()
    *keys, public_ids = [cast("Any", rows.corresponding_column(column)) for column in named]
    return rows, keys, public_ids


# --- listeners


class _Refs(list[PublicRef]):
    """The references that show a relationship; only its listener keeps them, and their models, alive."""


_refs: RefDict[Mapper[Any], weakref.WeakValueDictionary[str, _Refs]] = RefDict()
"""Mapper → relationship → what its listener gets."""


def _listened(mapper: Mapper[Any], relationship: str) -> _Refs:
    """Listen to *relationship* of *mapper*, once, and return the references for which the listener acts."""
    of_mapper = _refs.get(weakref.ref(mapper))
    if of_mapper is None:
        of_mapper = _refs.keep(mapper, weakref.WeakValueDictionary())
    refs = of_mapper.get(relationship)
    if refs is None:
        refs = of_mapper[relationship] = _Refs()
        listener = partial(writing.on_relationship_set, refs)
        event.listen(mapper.class_manager[relationship], "set", listener, raw=True)
    return refs


def _before_mapper_configured(mapper: Mapper[Any], model: type[Any]) -> None:
    """Listen to relationships before SQLAlchemy does, whose listeners raise an AttributeError for a public id.

    It begins to listen to those of subclasses when it configures the superclass.
    """
    for each in mapper.self_and_descendants:
        for declared in declared_refs(each).values():
            if declared.relationship in each.class_manager and not each.configured:
                _listened(each, declared.relationship)


def _on_mapper_configured(mapper: Mapper[Any], model: type[Any]) -> None:
    if has_relationships(mapper):
        _listen(mapper)
    else:
        _incomplete.add(mapper)


def _after_configured() -> None:
    # a ``backref`` of another model may have added a relationship by now
    complete: list[Mapper[Any]] = []
    for mapper in list(_incomplete):
        if inspect(mapper.class_, raiseerr=False) is not mapper:  # it was disposed, and its class is still alive
            _incomplete.discard(mapper)
        elif has_relationships(mapper) or all(other.configured for other in mapped_classes(mapper.registry)):
            _incomplete.discard(mapper)
            complete.append(mapper)
    for mapper in complete:
        _listen(mapper)


def _listen(mapper: Mapper[Any]) -> None:
    refs = refs_of(mapper)
    if refs:
        WITH_REFS.keep(mapper.class_, None)
        event.listen(mapper.class_, "load", reading.queue_for_reading, raw=True)
        event.listen(mapper.class_, "expire", reading.queue_again, raw=True)
        event.listen(mapper.class_, "refresh", reading.queue_again, raw=True)
    for ref in refs.values():
        base = ref.source.mapper.base_mapper.class_
        (SHOWN.get(weakref.ref(base)) or SHOWN.keep(base, set())).add(ref.target_id)
        _listened(mapper, ref.relationship).append(ref)
        event.listen(mapper.class_manager[ref.key], "set", reading.queue_for_reading, raw=True)
        for name, _ in ref.also:
            event.listen(mapper.class_manager[name], "set", reading.forget, raw=True)


_LISTENERS = Listeners(
    Listener(Mapper, "before_mapper_configured", _before_mapper_configured),
    Listener(Mapper, "mapper_configured", _on_mapper_configured),
    Listener(Mapper, "after_configured", _after_configured),
    Listener(Session, "before_flush", writing.before_flush),
    Listener(Session, "after_flush", writing.after_flush),
    Listener(Session, "do_orm_execute", statements.do_orm_execute),
)
