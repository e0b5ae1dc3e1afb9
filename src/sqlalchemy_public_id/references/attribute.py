"""``public_ref()``, the attribute of a class body."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, MutableMapping
from typing import Any, NoReturn, cast

from sqlalchemy import event, inspect
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import InstanceState, Mapped, Mapper, QueryableAttribute, Session
from sqlalchemy.orm.attributes import instance_state

from sqlalchemy_public_id.errors import ConfigurationError, shown
from sqlalchemy_public_id.events.flush import before_bulk_insert
from sqlalchemy_public_id.orm import Listeners
from sqlalchemy_public_id.references import reading, writing
from sqlalchemy_public_id.references.comparing import RefExpression
from sqlalchemy_public_id.references.reference import Declared, PublicRef, has_relationships, refs_of

__all__ = ["public_ref"]

_incomplete: weakref.WeakSet[Mapper[Any]] = weakref.WeakSet()
"""Mappers that are configured, but lack the relationship of a reference."""


def public_ref(relationship: str, *, attribute: str | None = None) -> Mapped[Any]:
    """An attribute that shows, takes and compares the public id of the row that a many-to-one *relationship* points to.

    Its type is that of the public ids of the other model: ``Mapped[str]``, or ``Mapped[CustomerId]`` where they are
    typed; with ``| None`` where the foreign key may be null.

    :param relationship: the name of the relationship, whose foreign key is one column.
    :param attribute: which public id of the other model, where it has several; ``public_id`` by default.
    :raises ConfigurationError: when the mappers are configured, where the relationship is missing, is not many-to-one,
        has a composite foreign key, or points to a model without a public id.
    """
    if not isinstance(relationship, str):
        raise ConfigurationError(
            f"public_ref({shown(relationship)}): expected the name of the relationship, as a text: "
            f'public_ref("customer")'
        )
    _LISTENERS.install()
    return cast("Mapped[Any]", _RefAttribute(relationship, attribute))


class _RefAttribute(Declared, hybrid_property[Any]):
    def __init__(self, relationship: str, id_attribute: str | None) -> None:
        self.relationship = relationship
        self.id_attribute = id_attribute
        super().__init__(self._read, self._write, expr=self._expression, update_expr=self._in_values)
        self.bulk_dml_setter = cast("Any", self._in_row)  # SQLAlchemy 2.1
        self.__doc__ = f"The public id that the relationship ``{relationship}`` points to."

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.__name__ = name

    def _read(self, instance: object) -> str | None:
        return reading.read(refs_of(instance_state(instance).mapper)[self.__name__], instance)

    def _write(self, instance: object, value: object) -> None:
        if isinstance(value, QueryableAttribute):
            return  # the constructor of a dataclass was given nothing: this is what stands in the class
        writing.write(refs_of(instance_state(instance).mapper)[self.__name__], instance, value)

    def _expression(self, owner: Any) -> Any:
        return RefExpression(owner, self.__name__)

    def _in_values(self, cls: Any, value: object) -> NoReturn:
        name = self.__name__
        raise ConfigurationError(
            f"{name} = {shown(value)} cannot stand in values(): pass it as a row, session.execute(insert(Model), "
            f"[{{{name!r}: ...}}]), or set the foreign key to what lookup.keys_of() finds"
        )

    def _in_row(self, cls: Any, row: MutableMapping[str, Any], value: object) -> None:
        """A row of a bulk statement; ``session.execute()`` has translated it already."""
        if refs_of(inspect(cls).mapper)[self.__name__].key not in row:
            self._in_values(cls, value)


def _on_mapper_configured(mapper: Mapper[Any], model: type[Any]) -> None:
    if has_relationships(mapper):
        _listen(mapper)
    else:
        _incomplete.add(mapper)


def _after_configured() -> None:
    """Look at those again to which a ``backref`` of another model may have brought the relationship."""
    found: list[Mapper[Any]] = []
    for mapper in list(_incomplete):
        if has_relationships(mapper) or all(other.configured for other in mapper.registry.mappers):
            _incomplete.discard(mapper)
            found.append(mapper)
    for mapper in found:
        _listen(mapper)


def _listen(mapper: Mapper[Any]) -> None:
    refs = refs_of(mapper)
    if refs:
        event.listen(mapper.class_, "expire", reading.forget, raw=True)
        event.listen(mapper.class_, "refresh", _on_refresh, raw=True)
    for ref in refs.values():
        _listen_to_relationship(mapper.class_manager[ref.relationship], ref)


def _on_refresh(state: InstanceState[Any], context: object, attributes: Iterable[str] | None) -> None:
    reading.forget(state, attributes)


def _listen_to_relationship(relationship: QueryableAttribute[Any], ref: PublicRef) -> None:
    def on_set(state: InstanceState[Any], value: object, old: object, initiator: object) -> None:
        writing.follow(state, ref, value)

    event.listen(relationship, "set", on_set, raw=True)


_LISTENERS = Listeners(
    (Mapper, "mapper_configured", _on_mapper_configured),
    (Mapper, "after_configured", _after_configured),
    (Session, "before_flush", writing.before_flush),
    (Session, "do_orm_execute", writing.do_orm_execute),
)
before_bulk_insert.append(writing.resolve)
