"""Steps of a migration: what each does, whether it is still to be done, and what others have to wait for meanwhile."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection
from sqlalchemy.engine import Dialect

from sqlalchemy_public_id.dialects.quoting import literal, quoted, quoted_table
from sqlalchemy_public_id.online.state import State
from sqlalchemy_public_id.online.target import Target

__all__ = ["Lock", "Plan", "Step"]


class Lock(enum.Enum):
    """What others have to wait for while a step runs."""

    NONE = enum.auto()
    """Nothing."""
    STRONG = enum.auto()
    """Everything that touches the table, but not for long once the lock is there: so it must not be waited for long."""
    BUILD = enum.auto()
    """Other changes of the table; reading and writing goes on. It takes its time, and waits for open transactions."""


@dataclass(frozen=True)
class Step:
    """Something that is done as a whole or not at all, and may be done again."""

    name: str
    """What it does, in a few words."""
    sql: Callable[[Connection | None, State], Sequence[str]]
    """The statements, given what is there; without a connection, those for a script."""
    needed: Callable[[State], bool]
    lock: Lock = Lock.STRONG
    instead: Callable[[Connection | None, State], Sequence[str]] | None = None
    """The statements to use where the server refuses the algorithm that the first ones ask for."""


def statements(*sql: str) -> Callable[[Connection | None, State], Sequence[str]]:
    """Statements that are the same whatever is there."""
    return lambda connection, state: sql


class Plan(ABC):
    """The steps for one database. The names in its statements are quoted, and carry the schema."""

    def __init__(self, target: Target, dialect: Dialect, *, online: bool = True) -> None:
        self.target = target
        self.dialect = dialect
        self.online = online
        """``False`` where all steps run inside one transaction that is open already."""
        self.schema = f"{self.quoted(target.schema)}." if target.schema else ""
        self.table = quoted_table(target.table, target.schema, dialect)
        self.column = self.quoted(target.column)
        self.unique = self.quoted(target.unique_name)
        self.check = self.quoted(target.check_name)
        self.helper = self.quoted(target.helper_name)
        self.type = dialect.type_compiler_instance.process(target.type_for(dialect))

    def quoted(self, name: str) -> str:
        """*name* for a statement."""
        return quoted(name, self.dialect)

    def literal(self, text: str) -> str:
        """*text* for a statement."""
        return literal(text, self.dialect)

    @property
    def makes_ids(self) -> bool:
        """Whether the database makes ids, at least while the column is not complete."""
        return self.target.server_default != "none"

    @abstractmethod
    def expand(self) -> list[Step]:
        """To a column that new rows fill and old rows may leave NULL."""

    @abstractmethod
    def contract(self) -> list[Step]:
        """To a column that is unique and NOT NULL."""

    @abstractmethod
    def loosen(self) -> list[Step]:
        """Back to what :meth:`expand` leaves."""

    @abstractmethod
    def drop(self) -> list[Step]:
        """To no column."""

    @abstractmethod
    def fill(self) -> list[str]:
        """The statements that give ids to all rows that have none, for a script."""
