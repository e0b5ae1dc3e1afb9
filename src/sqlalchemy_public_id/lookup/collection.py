"""A collection of a model: which rows belong to which parent."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

from sqlalchemy import BindParameter, BooleanClauseList, ColumnElement, Table, and_, bindparam, inspect, literal, select
from sqlalchemy.orm import (
    AppenderQuery,
    Mapper,
    QueryableAttribute,
    RelationshipProperty,
    WriteOnlyCollection,
    with_parent,
)
from sqlalchemy.sql import operators, visitors
from sqlalchemy.sql.selectable import Join

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.lookup.ordering import tables_in
from sqlalchemy_public_id.messages import safe_repr

M = TypeVar("M")  # the model of the rows

CollectionOf: TypeAlias = (
    QueryableAttribute[Sequence[M]]
    | QueryableAttribute[AbstractSet[M]]
    | QueryableAttribute[Mapping[Any, M]]
    | QueryableAttribute[WriteOnlyCollection[M]]
    | QueryableAttribute[AppenderQuery[M]]
)
"""The attribute of a relationship to several rows, such as ``Issue.comments``."""


@dataclass(frozen=True)
class Collection:
    """The rows of *child* that the *attribute* of a *parent*, such as ``Issue.comments``, stands for."""

    attribute: Any
    relationship: RelationshipProperty[Any]
    parent: Mapper[Any]
    child: type[Any]

    def is_of(self, parent: object, number: int = 0) -> ColumnElement[bool]:
        """Return the condition for the rows of *parent*.

        :param number: the number of the condition among those of one statement.
        """
        # SQLAlchemy names a parameter after the address of an object, which another one may have once a copy of the
        # parameter has taken its place: a statement of many parents would find the rows of one of them twice
        names = (f"sqlalchemy_public_id_parent_{number}_{at}" for at in itertools.count())

        def named(element: Any, **_: Any) -> Any:
            given: Any = element
            is_parameter = isinstance(given, BindParameter)
            return bindparam(next(names), element.effective_value, type_=element.type) if is_parameter else None

        condition: Any = with_parent(parent, self.attribute)
        return self._without_repetition(cast("Any", visitors).replacement_traverse(condition, {}, named))

    @property
    def is_of_row(self) -> ColumnElement[bool]:
        """The condition for the rows of a row of :attr:`parent_table`."""
        joins = (self.relationship.primaryjoin, self.relationship.secondaryjoin)
        return self._without_repetition(and_(*(each for each in joins if each is not None)))

    @property
    def foreign_key(self) -> list[Any]:
        """The columns of the rows that are equal to those of their parent; none with an association table."""
        if self.relationship.secondary is not None:
            return []
        condition: Any = self.relationship.primaryjoin
        is_and = isinstance(condition, BooleanClauseList) and condition.operator is operators.and_
        clauses: Sequence[Any] = condition.clauses if is_and else [condition]
        pairs: Iterable[tuple[Any, Any]] = self.relationship.local_remote_pairs or ()
        return [remote for local, remote in pairs if any((local == remote).compare(each) for each in clauses)]

    def _without_repetition(self, is_of: ColumnElement[bool]) -> ColumnElement[bool]:
        """Return a condition without the association table in its FROM, which may repeat a row."""
        if self.relationship.secondary is None:
            return is_of
        outer = [*self.relationship.mapper.tables, *self._tables_of_parent]
        return select(literal(1)).where(is_of).correlate(*outer).exists()

    @property
    def _tables_of_parent(self) -> set[Any]:
        return {column.table for column in self.relationship.local_columns}

    @property
    def parent_table(self) -> Table | None:
        """The table with the columns of the parents that the rows refer to, if a statement can select from it.

        It has to contain the keys of the parents, and must not be a table of the rows, whose columns in a subquery
        would be those of the subquery.
        """
        relationship, tables = self.relationship, self._tables_of_parent
        table: Any = next(iter(tables))
        joins = (each for each in (relationship.primaryjoin, relationship.secondaryjoin) if each is not None)
        between: Iterable[Any] = [] if relationship.secondary is None else _tables_of(relationship.secondary)
        known: set[Any] = {*relationship.mapper.tables, *between}
        is_one = (
            len(tables) == 1
            and isinstance(table, Table)
            and isinstance(relationship.mapper.selectable, (Table, Join))
            and table not in known
            and {each for join in joins for each in tables_in(join)} <= {table, *known}
            and all(column.table is table for column in self.parent.primary_key)
        )
        return cast("Table", table) if is_one else None


def _tables_of(source: Any) -> Iterator[Any]:
    if isinstance(source, Join):
        yield from _tables_of(source.left)
        yield from _tables_of(source.right)
    else:
        yield source


def collection_of(relationship: Any) -> Collection:
    """Return the collection that *relationship*, an attribute of a class, stands for.

    :raises ConfigurationError: if it is anything else, such as a scalar relationship, or one with conditions.
    """
    prop, cls = getattr(relationship, "property", None), getattr(relationship, "class_", None)
    name = prop.key if isinstance(prop, RelationshipProperty) and isinstance(cls, type) else ""  # an alias is no type
    if not isinstance(prop, RelationshipProperty) or getattr(cls, name, None) is not relationship:
        raise ConfigurationError(
            f"pages() got {safe_repr(relationship)}, expected the attribute of a relationship, such as Issue.comments, "
            f"without of_type(), and_() or an alias: conditions belong in where="
        )
    name = f"{cast('type[Any]', cls).__name__}.{prop.key}"
    if not prop.uselist:
        raise ConfigurationError(f"{name} is no collection, but one object: read the attribute, with selectinload()")
    entity: Any = cast("Any", prop).entity
    if not entity.is_mapper:
        raise ConfigurationError(
            f"{name} refers to an alias of {entity.mapper.class_.__name__}; pages() expects a relationship to the model"
        )
    return Collection(relationship, cast("Any", prop), inspect(cast("type[Any]", cls)), entity.class_)


def checked_parents(collection: Collection, of: Any) -> dict[Any, None]:
    """Return the parents, each once.

    :raises ConfigurationError: if one of them is no stored object of the class, or cannot be the key of a dictionary.
    """
    model = collection.parent.class_
    if isinstance(of, model) or not isinstance(of, Iterable):
        raise TypeError(f"of={safe_repr(of)}: expected a list of {model.__name__} objects")
    parents: list[Any] = list(cast("Any", of))
    for parent in parents:
        if not isinstance(parent, model):
            raise ConfigurationError(f"of=… has {safe_repr(parent)}, expected objects of {model.__name__}")
        if not inspect(parent).has_identity:
            raise ConfigurationError(
                f"of=… has a {model.__name__} that is not stored, so that no row refers to it; flush the session first"
            )
        if parent.__hash__ is None:
            raise ConfigurationError(
                f"{model.__name__} objects cannot be the keys of a dictionary; a dataclass can with "
                f"dataclass(eq=False) or unsafe_hash=True"
            )
    return dict.fromkeys(parents)
