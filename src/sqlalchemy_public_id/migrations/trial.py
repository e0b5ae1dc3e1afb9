"""Try new ids against what a table demands of its columns: CHECKs, domains, generated columns, and copies of the id.

The database evaluates each condition for ids of the format, in a SELECT that reads no row of the table; nothing is
parsed here. What needs other columns or code of another role is not tried, and the report says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from sqlalchemy import inspect
from sqlalchemy.exc import DBAPIError

from sqlalchemy_public_id.dialects import message_of, traits_for
from sqlalchemy_public_id.dialects.quoting import literal, quoted
from sqlalchemy_public_id.errors import ConfigurationError, Obstacle
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.migrations.databases import database_of, live_table
from sqlalchemy_public_id.migrations.session import send
from sqlalchemy_public_id.migrations.state import Demand
from sqlalchemy_public_id.migrations.stored_types import StoredIds, fit_of
from sqlalchemy_public_id.migrations.table import LiveTable, columns_of
from sqlalchemy_public_id.stored_ids import to_database

_TRIED = 3
"""How many new ids are tried."""


@dataclass(frozen=True)
class TrialResult:
    """A demand that refuses new ids, or that was not tried."""

    table: str
    column: str
    demand: str
    """What the table demands, such as ``the CHECK constraint id_length``."""
    refused: str | None = None
    """The id that is refused; ``None`` if the demand was not tried."""
    reason: str = ""
    """Why it was not tried, or what the database says."""

    def __str__(self) -> str:
        where = f"{self.demand} of {self.table}"
        if self.refused is None:
            return f"{where} was not tried with new ids of {self.column}: {self.reason}"
        said = f": {self.reason}" if self.reason else ""
        return f"{where} refuses new ids of {self.column}, such as {safe_repr(self.refused)}{said}"

    def as_obstacle(self) -> Obstacle:
        """Return the obstacle for ids that are refused."""
        remedy = "drop or change it in an earlier revision, or take a format whose ids it accepts"
        return Obstacle("ids-refused", str(self), remedy)


def try_ids(live: LiveTable) -> list[TrialResult]:
    """Return what refuses new ids in the column of *live*, or in foreign keys to it, and what was not tried."""
    ids = _new_ids(live.target.format)
    outcomes = [*_of_column(live, ids)]
    for schema, table, column in live.read_references():
        target = replace(live.target, table=table, column=column, schema=schema, unique_with=())
        copy = live_table(live.connection, target)
        outcomes += [*_of_length(copy, ids), *_of_column(copy, ids)]
    return outcomes


def _new_ids(format: Format) -> list[str]:
    """Return ids that may be generated one day, without taking numbers from a counter, which a plan must not move."""
    try:
        return list(dict.fromkeys(format.example() for _ in range(_TRIED)))
    except ConfigurationError:  # such as a Snowflake without a machine id
        return []


def _of_length(live: LiveTable, ids: list[str]) -> Iterator[TrialResult]:
    """Yield an outcome if a foreign key is too short for the ids that its target gets."""
    target, dialect = live.target, live.connection.dialect
    column = columns_of(inspect(live.connection), target.table, target.schema).get(target.column)
    stored = StoredIds.of(target.format)
    if column is None or stored is None or database_of(dialect).plan.stores_any_type:
        return
    fit = fit_of(column["type"], stored, dialect)
    if fit.code == "too-short" and ids:
        shown = f"the type {column['type'].compile(dialect)}"
        yield TrialResult(target.table, target.column, shown, ids[0], fit.why.removeprefix(", but "))


def _of_column(live: LiveTable, ids: list[str]) -> Iterator[TrialResult]:
    trial = _Trial(live, ids)
    for demand in live.read_constraints():
        found = trial.of(demand)
        if found is not None:
            yield TrialResult(live.target.table, live.target.column, demand.name, *found)


class _Trial:
    """The trial of new *ids* in the column of *live*."""

    def __init__(self, live: LiveTable, ids: list[str]) -> None:
        self.live, self.ids = live, ids
        self.dialect = live.connection.dialect

    @cached_property
    def others(self) -> list[str]:
        return [quoted(name, self.dialect) for name in self.live.read_other_columns()]

    @cached_property
    def name(self) -> str:
        return self.live.read_full_name()

    def of(self, demand: Demand) -> tuple[str | None, str] | None:
        """Return the refused id with what the database says, or why nothing was tried; ``None`` if ids are accepted."""
        sql = demand.expression
        if sql is None:
            return None, demand.why_not
        if not demand.is_ours and not isinstance(self.value(sql, with_ours=False), DBAPIError):
            return None  # it has a value without the column
        if demand.why_not:
            return None, demand.why_not
        if isinstance(error := self.value(sql), DBAPIError):
            return None, _said(error)
        if isinstance(self.value(sql, with_others=False), DBAPIError):
            return None, "it also needs other columns"
        if not self.ids:
            return None, "the format generates no ids here"
        for id in self.ids:
            value = self.value(sql, id)
            if isinstance(value, DBAPIError):
                return id, _said(value)
            if value is False:
                return id, ""
        return None

    def value(
        self, expression: str, id: str | None = None, *, with_ours: bool = True, with_others: bool = True
    ) -> bool | DBAPIError | None:
        """Return the value of *expression* for a row with the *id*, and NULL in the other columns, or its error.

        :param id: ``None`` for no row at all, which shows whether the expression can be evaluated.
        """
        others = self.others if with_others else []
        columns = [*([quoted(self.live.target.column, self.dialect)] if with_ours else []), *others]
        # the first SELECT gives the columns their types and collations
        rows = f"SELECT {', '.join(columns or ['1 AS nothing'])} FROM {self.name} WHERE 1 = 0"
        if id is not None:
            rows += f" UNION ALL SELECT {', '.join([self.literal(id), *(['NULL'] * len(others))])}"
        query = f"SELECT {expression} FROM ({rows}) AS {quoted(self.live.target.table, self.dialect)}"
        try:
            with self.live.trying():
                value = send(self.live.connection, query).scalar()
        except DBAPIError as error:
            if error.connection_invalidated:
                raise
            return error
        return None if value is None else bool(value)

    def literal(self, id: str) -> str:
        format = self.live.target.format
        if format.is_native:
            return traits_for(self.dialect).literal(to_database(format, id, self.dialect))
        return literal(id, self.dialect)


def _said(error: DBAPIError) -> str:
    return message_of(error).partition("\n")[0]
