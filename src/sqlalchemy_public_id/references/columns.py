"""References that a statement selects as columns, beside the objects that show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, inspect
from sqlalchemy.orm import Mapper, QueryableAttribute, Session

from sqlalchemy_public_id.errors import ConfigurationError, safe_repr
from sqlalchemy_public_id.orm.inspection import is_sharded
from sqlalchemy_public_id.references.reading import remember_row
from sqlalchemy_public_id.references.reference import PublicRef, refs_of


@dataclass(frozen=True)
class RefColumns:
    """Two columns for each of *refs*: its foreign key and its public id."""

    refs: tuple[PublicRef, ...]
    columns: tuple[ColumnElement[Any], ...]

    def remember(self, rows: Iterable[Sequence[Any]], first: int) -> None:
        """Keep the public ids of *rows*, an object each and, from the column *first*, its columns.

        A row has the foreign keys, too: an object that was in the session before may have others.
        """
        for row in rows:
            remember_row(row[0], self.refs, row[first:])


def names_of(attributes: Iterable[QueryableAttribute[Any]], entity: Any) -> tuple[str, ...]:
    """Return the names of the references *attributes* of *entity*, a model or an alias of one.

    :raises ConfigurationError: if one is no reference of its model.
    """
    mapper = inspect(entity).mapper
    own = refs_of(mapper)
    names: list[str] = []
    if isinstance(attributes, QueryableAttribute) or not isinstance(attributes, Iterable):
        one = f"{mapper.class_.__name__}.{getattr(attributes, 'key', 'owner_public_id')}"
        raise TypeError(f"expected several references, not one: write [{one}]")
    for attribute in attributes:
        parent: Any = getattr(attribute, "parent", None)
        if parent is None or attribute.key not in own or not mapper.isa(parent.mapper):
            references = ", ".join(f"{mapper.class_.__name__}.{name}" for name in own) or "none"
            raise ConfigurationError(
                f"references has {safe_repr(attribute)}, expected references of {mapper.class_.__name__}, which are "
                f"{references}"
            )
        names.append(attribute.key)
    return tuple(names)


def in_database_of(session: Session, mapper: Mapper[Any], names: Sequence[str]) -> tuple[str, ...]:
    """Return those of the references *names* whose rows a statement for *mapper* can select: not those elsewhere."""
    if not names or is_sharded(session):  # a reference stays in its shard
        return tuple(names)
    own = session.get_bind(mapper)
    return tuple(name for name in names if session.get_bind(refs_of(mapper)[name].source.mapper) is own)


def columns_of(names: Sequence[str], entity: Any) -> RefColumns:
    """Return the columns of the references *names* of *entity*, a model or an alias of one."""
    refs = tuple(refs_of(inspect(entity).mapper)[name] for name in names)
    columns = (getattr(entity, name) for ref in refs for name in (ref.key, ref.attribute))
    return RefColumns(refs, tuple(columns))
