"""What a ``public_ref()`` is about, once the mappers are configured: a key here, a public id there."""

from __future__ import annotations

import operator
import weakref
from dataclasses import dataclass, field
from typing import Any, cast

from sqlalchemy import BinaryExpression, Column, inspect
from sqlalchemy.orm import InstanceState, Mapper, QueryableAttribute, RelationshipDirection, RelationshipProperty
from sqlalchemy.orm.exc import UnmappedColumnError

from sqlalchemy_public_id.errors import ConfigurationError, shown
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.orm.inspection import public_id_attribute
from sqlalchemy_public_id.typed import TypedId
from sqlalchemy_public_id.types import PublicIdType, public_id_type

__all__ = ["Declared", "PublicRef", "has_relationships", "public_refs", "refs_of"]


class Declared:
    """What ``public_ref()`` was called with. It may stand in a mixin, and so become a reference of several models."""

    relationship: str
    id_attribute: str | None


@dataclass(frozen=True)
class PublicRef:
    """A foreign key of a model that is seen as a public id."""

    attribute: str
    """The name of the attribute that shows the public id: ``customer_public_id``."""
    relationship: str
    """The name of the relationship: ``customer``."""
    key: str
    """The name of the attribute that holds the foreign key: ``customer_id``."""
    target: type[Any]
    """The model that the foreign key points to."""
    target_key: str
    """The name of the attribute of :attr:`target` that the foreign key holds, most often its primary key: ``id``."""
    target_id: str
    """The name of the public id of :attr:`target`: ``public_id``."""
    nullable: bool
    """Whether the foreign key may be null."""
    id_type: PublicIdType = field(repr=False, compare=False)
    """The column type of the public ids."""

    @property
    def id_format(self) -> Format:
        """The format of the public ids."""
        return self.id_type.id_format

    @property
    def typed(self) -> type[TypedId] | None:
        """The typed id that the attribute shows, if there is one."""
        python_type = self.id_type.python_type
        return python_type if issubclass(python_type, TypedId) else None

    @property
    def source(self) -> Source:
        """Where the public ids are found. References with the same source are looked up together."""
        return Source(self.target, self.target_key, self.target_id)


@dataclass(frozen=True)
class Source:
    """The table in which keys and public ids stand side by side."""

    model: type[Any]
    key: str
    public_id: str

    def columns(self, entity: Any = None) -> tuple[QueryableAttribute[Any], QueryableAttribute[str]]:
        """The two attributes, of the model or of an alias of it."""
        entity = self.model if entity is None else entity
        return getattr(entity, self.key), getattr(entity, self.public_id)

    @property
    def is_primary(self) -> bool:
        """Whether the key is the primary key, by which the objects of a session are known."""
        mapper = _mapper(self.model)
        return [mapper.get_property_by_column(column).key for column in mapper.primary_key] == [self.key]


_refs: weakref.WeakKeyDictionary[Mapper[Any], dict[str, PublicRef]] = weakref.WeakKeyDictionary()


def public_refs(model: type[Any]) -> dict[str, PublicRef]:
    """The references of *model*, by the name of their attributes; those of the models it inherits from included.

    :raises ConfigurationError: where it is no model, or one of them cannot work.
    """
    mapper = cast("Mapper[Any] | InstanceState[Any] | None", inspect(model, raiseerr=False))
    if not isinstance(mapper, Mapper):
        raise ConfigurationError(f"{shown(model)} is not a mapped class")
    return dict(refs_of(mapper))


def refs_of(mapper: Mapper[Any]) -> dict[str, PublicRef]:
    """The same, of a mapper, and remembered."""
    found = _refs.get(mapper)
    if found is None:
        found = {name: _ref(mapper, name, each) for name, each in _declared(mapper).items()}
        if mapper.configured:
            _refs[mapper] = found
    return found


def has_relationships(mapper: Mapper[Any]) -> bool:
    """Whether the relationships of all references of *mapper* are there; a ``backref`` of another model comes late."""
    return all(each.relationship in mapper.relationships for each in _declared(mapper).values())


def _declared(mapper: Mapper[Any]) -> dict[str, Declared]:
    return {str(name): each for name, each in mapper.all_orm_descriptors.items() if isinstance(each, Declared)}


def _ref(mapper: Mapper[Any], name: str, declared: Declared) -> PublicRef:
    where = f"{mapper.class_.__name__}.{name}"
    relationship = mapper.relationships.get(declared.relationship)
    if relationship is None:
        known = ", ".join(mapper.relationships.keys()) or "none"
        raise ConfigurationError(
            f"{where}: {mapper.class_.__name__} has no relationship {declared.relationship!r}; it has {known}"
        )
    local, remote = _pair(where, relationship)
    target = relationship.mapper
    try:
        target_id, column = public_id_attribute(target.class_, declared.id_attribute)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None
    return PublicRef(
        attribute=name,
        relationship=declared.relationship,
        key=_key(where, mapper, local),
        target=target.class_,
        target_key=_key(where, target, remote),
        target_id=target_id,
        nullable=bool(local.nullable),
        id_type=public_id_type(column),
    )


def _pair(where: str, relationship: RelationshipProperty[Any]) -> tuple[Column[Any], Column[Any]]:
    """The foreign key and the column it points to; refuses what is not one of each."""
    name = relationship.key
    if relationship.direction is not RelationshipDirection.MANYTOONE:
        kind = relationship.direction.name.lower()
        raise ConfigurationError(
            f"{where}: the relationship {name!r} is {kind}, so there is no foreign key here to be seen as a public id; "
            f"name a relationship that is many-to-one"
        )
    if relationship.viewonly:
        raise ConfigurationError(
            f"{where}: the relationship {name!r} is viewonly, so a flush would not follow it; name the one that is not"
        )
    if len(relationship.local_remote_pairs) != 1:
        columns = ", ".join(local.name for local, _ in relationship.local_remote_pairs)
        raise ConfigurationError(
            f"{where}: the relationship {name!r} has a composite foreign key ({columns}), which cannot be told by one "
            f"public id; add a foreign key of one column"
        )
    condition = relationship.primaryjoin
    if not (isinstance(condition, BinaryExpression) and condition.operator is operator.eq):
        raise ConfigurationError(
            f"{where}: the relationship {name!r} has a condition of its own, which a public id would pass by; "
            f"name a relationship that only compares the foreign key"
        )
    local, remote = relationship.local_remote_pairs[0]
    return cast("Column[Any]", local), cast("Column[Any]", remote)


def _key(where: str, mapper: Mapper[Any], column: Column[Any]) -> str:
    try:
        return mapper.get_property_by_column(column).key
    except UnmappedColumnError:
        raise ConfigurationError(f"{where}: {column} is no attribute of {mapper.class_.__name__}; map it") from None


def _mapper(model: type[Any]) -> Mapper[Any]:
    mapper: Mapper[Any] = inspect(model)
    return mapper
