"""The rows that the session of a tenant sees, and what is undone and forgotten after an attempt."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Table, select
from sqlalchemy.orm import Mapper, Session, make_transient
from sqlalchemy.orm.attributes import instance_state

from sqlalchemy_public_id.dialects import begin_to_write, is_autocommit
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.lookup.beside import columns_beside
from sqlalchemy_public_id.orm.inspection import connection_to_write, id_attributes, ids_of_union
from sqlalchemy_public_id.tokens import TokenType

_MOST = 100
"""The most rows of a model that are tried together."""


@dataclass(frozen=True)
class Row:
    """What identifies a row."""

    model: type[Any]
    """Its own class, which may be a subclass of the model that was selected."""
    key: tuple[Any, ...]
    ids: dict[str, str]
    """Attribute → public id."""
    digests: dict[str, bytes]
    """Attribute → digest of a token."""


class Seen:
    """The rows of *mappers* that *session* sees."""

    def __init__(self, session: Session, mappers: Sequence[Mapper[Any]]) -> None:
        self.session = session
        self.rows: dict[Mapper[Any], list[Row]] = {}
        for mapper in mappers:
            with self.forgetting():
                self.rows[mapper] = [_row_of(one) for one in self.objects(mapper)]

    def ids(self, mapper: Mapper[Any], name: str) -> list[str]:
        """Return the public ids *name* of all rows."""
        return [row.ids[name] for row in self.rows[mapper] if name in row.ids]

    def one_id_of_each(self, mapper: Mapper[Any], name: str) -> list[str]:
        """Return one public id *name* of each class."""
        return [row.ids[name] for row in self.one_of_each(mapper) if name in row.ids]

    def one_of_each(self, mapper: Mapper[Any]) -> list[Row]:
        """Return one row of each class."""
        return list({row.model: row for row in self.rows[mapper]}.values())

    def apart_from(self, other: Seen) -> Seen:
        """Return these rows without those whose ids, unique only with other columns, rows of the *other* have, too.

        A row that the other tenant sees itself is not left out.
        """
        seen = copy(self)
        seen.rows = {}
        for mapper, rows in self.rows.items():
            keys = {row.key for row in other.rows[mapper]}
            shared = {name: {*other.ids(mapper, name)} for name in ids_of(mapper) if columns_beside(mapper, name)}
            seen.rows[mapper] = [
                row for row in rows if row.key in keys or not any(row.ids.get(name) in shared[name] for name in shared)
            ]
        return seen

    def objects(self, mapper: Mapper[Any]) -> Sequence[Any]:
        """Load objects of a model."""
        return self.session.scalars(select(mapper.class_).limit(_MOST)).unique().all()

    def has_own(self, mapper: Mapper[Any]) -> bool:
        """Return True if a row is of this very class, and not of a subclass."""
        return any(row.model is mapper.class_ for row in self.rows[mapper])

    def stored(self, mapper: Mapper[Any]) -> Any:
        """Load an object of this very class."""
        return next(one for one in self.objects(mapper) if type(one) is mapper.class_)

    def copy(self, mapper: Mapper[Any]) -> Any:
        """Return a new object with the columns of a row of this very class, without its key and its public ids."""
        # another identity: the object that the program may hold stays as it is
        apart = {"identity_token": "sqlalchemy_public_id.testing"}
        rows = self.session.scalars(select(mapper.class_).limit(_MOST), execution_options=apart).unique()
        one = next(one for one in rows if type(one) is mapper.class_)
        if mapper.relationships:
            self.session.expire(one, mapper.relationships.keys())
        self.session.expunge(one)
        make_transient(one)
        generated = {table.autoincrement_column for table in mapper.tables if isinstance(table, Table)}
        for prop in mapper.column_attrs:
            if prop.key in instance_state(one).dict and (prop.key in ids_of(mapper) or prop.columns[0] in generated):
                delattr(one, prop.key)
        return one

    @contextmanager
    def forgetting(self) -> Generator[None]:
        """Remove the objects that the block loads from the session, where a later attempt would find them."""
        held = {id(one) for one in self.session}  # not a set of objects: a dataclass has no hash
        try:
            yield
        finally:
            for one in list(self.session):
                if id(one) not in held and one in self.session:  # or it went with an object before
                    self.session.expunge(one)

    @contextmanager
    def undoing(self, mapper: Mapper[Any]) -> Generator[None]:
        """Undo what the block writes, and forget what it loads.

        :raises ConfigurationError: if it could not be undone.
        """
        connection = connection_to_write(self.session, mapper)
        if is_autocommit(connection):
            raise ConfigurationError("a session uses AUTOCOMMIT, so what is tried could not be rolled back")
        begin_to_write(connection)
        with self.forgetting():
            savepoint = self.session.begin_nested()
            try:
                yield
            finally:
                savepoint.rollback()


def ids_of(mapper: Mapper[Any]) -> list[str]:
    """Return the names of the public ids of *mapper*."""
    return list(id_attributes(mapper) or ids_of_union(mapper))


def _row_of(one: Any) -> Row:
    state = instance_state(one)
    ids = {name: getattr(one, name) for name in ids_of(state.mapper)}
    types = {prop.key: prop.columns[0].type for prop in state.mapper.column_attrs}
    digests = {name: getattr(one, name) for name, type_ in types.items() if isinstance(type_, TokenType)}
    return Row(
        model=state.class_,
        key=tuple(state.identity or ()),
        ids={name: str.__str__(text) for name, text in ids.items() if text is not None},
        digests={name: digest for name, digest in digests.items() if digest is not None},
    )
