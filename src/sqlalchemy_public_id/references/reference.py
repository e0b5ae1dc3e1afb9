"""References of configured mappers: foreign keys that are shown as public ids."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn, TypeAlias, cast

from sqlalchemy import BinaryExpression, BooleanClauseList, Column, SQLColumnExpression, inspect
from sqlalchemy.orm import (
    InstanceState,
    Mapper,
    QueryableAttribute,
    RelationshipDirection,
    RelationshipProperty,
    Session,
)
from sqlalchemy.orm.exc import UnmappedColumnError

from sqlalchemy_public_id.columns import public_id_type, unique_with
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.orm.annotations import wrong_annotation
from sqlalchemy_public_id.orm.inspection import public_id_attribute
from sqlalchemy_public_id.typed import TypedId
from sqlalchemy_public_id.types import IdColumnType
from sqlalchemy_public_id.weak import RefDict

Condition: TypeAlias = Callable[[Session], SQLColumnExpression[bool]]
Scope: TypeAlias = str | Sequence[str] | Condition
"""Names of attributes that an object and the row it refers to have in common, or a function that builds a condition."""


class Declared:
    """The arguments of ``public_ref()``. In a mixin they belong to the references of several models."""

    relationship: str
    id_attribute: str | None
    scope: Scope | None


@dataclass(frozen=True)
class PublicRef:
    """A foreign key of a model that is shown as a public id."""

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
    """True if the foreign key may be null."""
    id_type: IdColumnType = field(repr=False, compare=False)
    """The column type of the public ids."""
    shared: tuple[str, ...] = ()
    """The names of attributes that the object and the row have in common (``scope=``)."""
    condition: Condition | None = field(default=None, repr=False)
    """Builds the condition that the row has to meet (``scope=``)."""
    also: tuple[tuple[str, str], ...] = ()
    """The other columns of a composite foreign key: the name of the attribute, and of that of :attr:`target`."""

    @cached_property
    def compared(self) -> tuple[tuple[str, str], ...]:
        """Return the attributes that must be equal: :attr:`shared` of the object, and those of :attr:`target`."""
        return tuple((name, dict(self.also).get(name, name)) for name in self.shared)

    @cached_property
    def beside(self) -> tuple[str, ...]:
        """Return the attributes of :attr:`target` with which its ids are unique; none if they are unique alone."""
        mapper: Mapper[Any] = inspect(self.target)
        _, column = public_id_attribute(self.target, self.target_id)
        return tuple(_key(self.attribute, mapper, other) for other in unique_with(column))

    @property
    def id_format(self) -> Format:
        """Return the format of the public ids."""
        return self.id_type.id_format

    @property
    def typed(self) -> type[TypedId] | None:
        """Return the typed id that the attribute shows, if there is one."""
        python_type = self.id_type.python_type
        return python_type if issubclass(python_type, TypedId) else None

    @cached_property
    def source(self) -> Source:
        """Return the table of the public ids. References with the same source are looked up together."""
        return Source(self.target, self.target_key, self.target_id)


@dataclass(frozen=True)
class Source:
    """The keys and public ids of a model."""

    model: type[Any]
    key: str
    public_id: str

    @property
    def mapper(self) -> Mapper[Any]:
        mapper: Mapper[Any] = inspect(self.model)
        return mapper

    def columns(self) -> tuple[QueryableAttribute[Any], QueryableAttribute[str]]:
        """Return the attributes of key and public id."""
        return getattr(self.model, self.key), getattr(self.model, self.public_id)

    @cached_property
    def is_primary(self) -> bool:
        """Return True if the key is the primary key, by which the identity map finds objects."""
        primary_key = self.mapper.primary_key
        return [self.mapper.get_property_by_column(column).key for column in primary_key] == [self.key]


@dataclass(frozen=True)
class UnresolvedKey:
    """The value of a foreign key between the assignment of a public id and the flush that finds its key.

    It is the value of the attribute itself, so that a later value replaces it, and ``session.merge()`` and ``pickle``
    copy it. No driver accepts it, so ``session.bulk_save_objects()``, which does not flush, raises an error.
    """

    attribute: str
    """The name of the reference."""
    public_id: str

    def __clause_element__(self) -> NoReturn:
        raise self._error()  # used as a value in a statement

    def __str__(self) -> NoReturn:
        raise self._error()  # the drivers of MySQL and MariaDB send the str() of objects they do not support

    def _error(self) -> ConfigurationError:
        return ConfigurationError(
            f"the key of {self.attribute} = {self.public_id!r} is not known before the next flush; flush the session "
            f"before you use the foreign key, and do not assign references during a flush; a before_flush listener "
            f"needs insert=True for that. bulk_save_objects() does not flush, so use add_all() or bulk.insert()"
        )


_KEPT = "__public_id_refs__"
"""The attribute of a model that caches its mapper and its references.

A dictionary of this library would keep models alive forever, even with weak keys: a reference holds its target, whose
mapper holds the model of the reference.
"""


def public_refs(model: type[Any]) -> dict[str, PublicRef]:
    """Return the references of *model* by the names of their attributes, inherited ones included.

    :raises ConfigurationError: if *model* is not mapped, or if one of its references is invalid.
    """
    mapper = cast("Mapper[Any] | InstanceState[Any] | None", inspect(model, raiseerr=False))
    if not isinstance(mapper, Mapper):
        raise ConfigurationError(f"{safe_repr(model)} is not a mapped class")
    return dict(refs_of(mapper))


WITH_REFS: RefDict[Any, None] = RefDict()
"""The classes that have references."""

SHOWN: RefDict[Any, set[str]] = RefDict()
"""The base class of a hierarchy → the attributes of its public ids that references show."""


def objects_with_refs(objects: Sequence[object]) -> Iterable[object]:
    """Return those of *objects* whose models have references, without a call for any other object."""
    models = {model for model in set(map(type, objects)) if weakref.ref(model) in WITH_REFS}
    return (each for each in objects if type(each) in models) if models else ()


def refs_of(mapper: Mapper[Any]) -> dict[str, PublicRef]:
    """Return the references of *mapper*, which are cached once it is configured."""
    kept: tuple[Mapper[Any], dict[str, PublicRef]] | None = mapper.class_.__dict__.get(_KEPT)
    if kept is not None and kept[0] is mapper:  # a class can be mapped again
        return kept[1]
    refs = {name: _ref(mapper, name, declared) for name, declared in declared_refs(mapper).items()}
    if mapper.configured:
        type.__setattr__(mapper.class_, _KEPT, (mapper, refs))  # bypasses the metaclass, which would map the attribute
    return refs


def ref_of(mapper: Mapper[Any], name: str, relationship: str) -> PublicRef:
    """Return the reference *name* of *mapper*, which shows *relationship*.

    :raises ConfigurationError: if a function of the attribute was copied to a class that does not declare it, as some
        packages copy hybrid attributes to version tables.
    """
    ref = refs_of(mapper).get(name)
    if ref is None:
        raise ConfigurationError(
            f"{mapper.class_.__name__}.{name} is a copy of another model's reference, which cannot be used; use the "
            f"public id of {relationship}"
        )
    return ref


def has_relationships(mapper: Mapper[Any]) -> bool:
    """Return True if all references of *mapper* have relationships. A ``backref`` may add a relationship later."""
    return all(declared.relationship in mapper.relationships for declared in declared_refs(mapper).values())


def declared_refs(mapper: Mapper[Any]) -> dict[str, Declared]:
    """Return the declarations of the references of *mapper* by the names of their attributes."""
    descriptors = mapper.all_orm_descriptors.items()
    return {str(name): descriptor for name, descriptor in descriptors if isinstance(descriptor, Declared)}


def _ref(mapper: Mapper[Any], name: str, declared: Declared) -> PublicRef:
    where = f"{mapper.class_.__name__}.{name}"
    relationship = mapper.relationships.get(declared.relationship)
    if relationship is None:
        known = ", ".join(mapper.relationships.keys()) or "none"
        raise ConfigurationError(
            f"{where}: {mapper.class_.__name__} has no relationship {declared.relationship!r}; it has {known}"
        )
    target = relationship.mapper
    try:
        target_id, column = public_id_attribute(target.class_, declared.id_attribute)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None
    (local, remote), *others = _pairs(where, relationship, column)
    also = tuple((_key(where, mapper, own), _key(where, target, other)) for own, other in others)
    id_type = public_id_type(column)
    wrong = wrong_annotation(mapper.class_, name, id_type.python_type)
    if wrong is not None:
        right = f"Mapped[{id_type.python_type.__name__}{' | None' if local.nullable else ''}]"
        raise ConfigurationError(
            f"{where} is annotated as {wrong.__name__}, but shows the ids of {target.class_.__name__}; write {right}"
        )
    shared, condition = _scope(where, mapper, target, declared.scope)
    shared = (*shared, *(name for name, _ in also if name not in shared))
    if condition is None:
        shared = (*shared, *_beside(where, mapper, target, column, [*shared, *(other for _, other in also)]))
    return PublicRef(
        attribute=name,
        relationship=declared.relationship,
        key=_key(where, mapper, local),
        target=target.class_,
        target_key=_key(where, target, remote),
        target_id=target_id,
        nullable=bool(local.nullable),
        id_type=id_type,
        shared=shared,
        also=also,
        condition=condition,
    )


def _scope(
    where: str, mapper: Mapper[Any], target: Mapper[Any], scope: Scope | None
) -> tuple[tuple[str, ...], Condition | None]:
    if scope is None or (callable(scope) and not isinstance(scope, str)):
        return (), scope
    names = (scope,) if isinstance(scope, str) else tuple(scope)
    for name in names:
        for one in (mapper, target):
            if name not in one.column_attrs:
                raise ConfigurationError(
                    f"{where}: scope has {safe_repr(name)}, which is not a column attribute of {one.class_.__name__}; "
                    f"name one that both models have, or pass a function of the session that returns a condition"
                )
    return names, None


def _beside(
    where: str, mapper: Mapper[Any], target: Mapper[Any], column: Column[Any], known: Sequence[str]
) -> list[str]:
    """Return the names of further attributes to share, because the ids in *column* are unique only with them."""
    names = [name for name in (_key(where, target, other) for other in unique_with(column)) if name not in known]
    missing = [name for name in names if name not in mapper.column_attrs]
    if missing:
        raise ConfigurationError(
            f"{where}: an id of {target.class_.__name__} is unique only with {', '.join(names)}, and "
            f"{mapper.class_.__name__} has no attribute {missing[0]!r} to compare; add it, or pass scope=, a function "
            f"of the session that returns a condition"
        )
    return names


def _pairs(
    where: str, relationship: RelationshipProperty[Any], public_id: Column[Any]
) -> list[tuple[Column[Any], Column[Any]]]:
    """Return the foreign key and the column it points to, and then the other columns of a composite foreign key.

    It may only have those with which *public_id* is unique.
    """
    pairs, condition = relationship.local_remote_pairs, relationship.primaryjoin
    if isinstance(condition, BooleanClauseList):  # a subclass that refers to itself has its one condition twice
        first, *others = condition.clauses
        condition = first if all(first.compare(other) for other in others) else condition
    clauses = condition.clauses if isinstance(condition, BooleanClauseList) else [condition]
    beside = unique_with(public_id)
    pairs = sorted(pairs, key=lambda pair: any(pair[1] is other for other in beside))
    problem = ""
    if relationship.direction is not RelationshipDirection.MANYTOONE:
        problem = f"is {relationship.direction.name.lower()}, so there is no foreign key here to show as a public id; "
        problem += "name a relationship that is many-to-one"
    elif relationship.viewonly:
        problem = "is viewonly, so a flush would ignore it; name a relationship that is not viewonly"
    elif any(all(remote is not other for other in beside) for _, remote in pairs[1:]) or pairs[0][1] in [*beside]:
        columns = ", ".join(local.name for local, _ in pairs)
        problem = f"has a composite foreign key ({columns}), which one public id cannot represent; "
        problem += "add a foreign key of one column"
    elif len(clauses) != len(pairs) or not all(map(_is_equality, clauses)):
        problem = "has an additional condition, which a public id would ignore; "
        problem += "name a relationship that only compares the foreign key"
    if problem:
        raise ConfigurationError(f"{where}: the relationship {relationship.key!r} {problem}")
    return cast("list[tuple[Column[Any], Column[Any]]]", pairs)


def _is_equality(condition: Any) -> bool:
    return isinstance(condition, BinaryExpression) and condition.operator is operator.eq


def _key(where: str, mapper: Mapper[Any], column: Column[Any]) -> str:
    try:
        return mapper.get_property_by_column(column).key
    except UnmappedColumnError:
        name = mapper.class_.__name__
        raise ConfigurationError(f"{where}: {column} is not mapped by {name}; map it to an attribute") from None
