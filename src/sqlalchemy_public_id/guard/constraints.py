"""Which constraint an INSERT has violated: the unique one of a public id, or another."""

from __future__ import annotations

import enum
from typing import Any

from sqlalchemy import Column, PrimaryKeyConstraint, UniqueConstraint
from sqlalchemy.engine import Dialect

from sqlalchemy_public_id.dialects import Violation


class Match(enum.Enum):
    """An answer that may be unknown: the database's constraints can have other names than the metadata's."""

    YES = enum.auto()
    NO = enum.auto()
    MAYBE = enum.auto()


def match_violation(violation: Violation, column: Column[Any], dialect: Dialect) -> Match:
    """Return YES if *violation* is one of a unique index or constraint on *column* alone."""
    if violation.columns is not None:
        return Match.YES if violation.columns == f"{column.table.name}.{column.name}" else Match.NO
    if violation.constraint is None:
        return Match.MAYBE
    own, others = _constraint_names(column, dialect)
    reported = {violation.constraint, violation.constraint.removeprefix(f"{column.table.name}.")}
    if reported & own:
        return Match.YES
    return Match.NO if reported & others else Match.MAYBE


def _constraint_names(column: Column[Any], dialect: Dialect) -> tuple[set[str], set[str]]:
    """Return the names of the unique constraints and indexes of *column* alone, and of the table's others."""
    table = column.table
    own: set[str] = set()
    others: set[str] = set()
    of_key = own if list(table.primary_key.columns) == [column] else others
    of_key |= {"PRIMARY", f"{table.name}_pkey"}
    prepare = dialect.identifier_preparer
    for constraint in table.constraints:
        name = prepare.format_constraint(constraint) if constraint.name is not None else None
        is_own = isinstance(constraint, (PrimaryKeyConstraint, UniqueConstraint)) and list(constraint.columns) == [
            column
        ]
        if is_own and name is None:  # the names that PostgreSQL, MySQL and MariaDB generate
            own |= {f"{table.name}_{column.name}_key", column.name}
        elif name is not None:
            (own if is_own else others).add(_unquoted(name, prepare))
    for index in table.indexes:
        is_own = bool(index.unique) and list(index.columns) == [column]
        (own if is_own else others).add(_unquoted(prepare.format_index(index), prepare))
    return own, others


def _unquoted(name: str, prepare: Any) -> str:
    # errors have the name without quotes, and without doubled characters
    if name.startswith(prepare.initial_quote):
        name = name[1:-1].replace(prepare.final_quote * 2, prepare.final_quote)
    return name.replace("%%", "%") if "%%" in prepare.quote("%") else name
