"""References that a statement selects as columns, beside the objects that show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, inspect
from sqlalchemy.orm import QueryableAttribute, Session
from sqlalchemy.orm.attributes import instance_state

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.references.reading import remember
from sqlalchemy_public_id.references.reference import PublicRef, refs_of


@dataclass(frozen=True)
class RefColumns:
    """Two columns for each of *refs*: its foreign key and its public id."""

    refs: tuple[PublicRef, ...]
    columns: tuple[ColumnElement[Any], ...]

    def remember(self, rows: Iterable[Sequence[Any]], first: int) -> None:
        """Keep the public ids of *rows*, each an object and, from the column *first* on, the columns of its references.

        A row includes the foreign keys, because an object that the session already holds may have different ones.
        """
        places = [(ref, first + 2 * at) for at, ref in enumerate(self.refs)]
        for row in rows:
            state = instance_state(row[0])
            for ref, at in places:
                if row[at] is not None:
                    remember(state, ref, row[at], row[at + 1])


def refs_in(attributes: Iterable[QueryableAttribute[Any]], entity: Any) -> tuple[PublicRef, ...]:
    """Return the references that *attributes* of *entity*, a model or an alias of one, stand for.

    :raises ConfigurationError: if one of *attributes* is not a reference of the model.
    """
    mapper = inspect(entity).mapper
    own = refs_of(mapper)
    refs: list[PublicRef] = []
    if isinstance(attributes, QueryableAttribute) or not isinstance(attributes, Iterable):
        one = f"{mapper.class_.__name__}.{getattr(attributes, 'key', 'owner_public_id')}"
        raise TypeError(f"expected a list of references, not a single one: write [{one}]")
    for attribute in attributes:
        parent: Any = getattr(attribute, "parent", None)
        if parent is None or attribute.key not in own or not mapper.isa(parent.mapper):
            model = mapper.class_.__name__
            references = ", ".join(f"{model}.{name}" for name in own) or "none"
            raise ConfigurationError(
                f"references has {safe_repr(attribute)}, expected references of {model}, which are {references}"
            )
        refs.append(own[attribute.key])
    return tuple(refs)


def in_same_database(session: Session, bind: object, refs: Sequence[PublicRef]) -> tuple[PublicRef, ...]:
    """Return the *refs* whose rows a statement on *bind* can select, because they are in its database."""
    return tuple(ref for ref in refs if session.get_bind(ref.source.mapper) is bind)


def columns_of_refs(refs: tuple[PublicRef, ...], entity: Any) -> RefColumns:
    """Return the columns of the references *refs* of *entity*, a model or an alias of one."""
    columns = (getattr(entity, name) for ref in refs for name in (ref.key, ref.attribute))
    return RefColumns(refs, tuple(columns))
