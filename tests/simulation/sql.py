"""The SQL of a write path: INSERT and SELECT of one table, parsed once for each text.

A statement becomes a function of a transaction and its parameters. Whatever the parser does not know is an error at
once, so that a new kind of statement cannot pass unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

from simulation.expressions import Expression, ExpressionParser, Scope, Unknown
from simulation.storage import Table, Transaction


@dataclass
class Answer:
    """The outcome of a statement."""

    columns: list[str] | None = None
    rows: Sequence[tuple[Any, ...]] = ()
    count: int = -1
    last_key: int | None = None


Statement: TypeAlias = Callable[[Transaction, Any], Answer]
Source: TypeAlias = Callable[[Scope], Iterator[dict[str, Any]]]


@lru_cache(maxsize=4096)
def parse(text: str) -> Statement:
    """Return the statement *text* as a function of a transaction and parameters."""
    return _Parser(text).statement()


class _Parser(ExpressionParser):
    # --- statements

    def statement(self) -> Statement:
        if self.has("INSERT"):
            return self.insert()
        if self.peek() in {"SELECT", "("}:
            return self.select()
        if self.has("DO"):  # of MySQL: evaluates an expression
            value = self.expression()
            return lambda transaction, parameters: _evaluated(value, Scope(transaction, parameters))
        raise Unknown(self.text)

    def insert(self) -> Statement:
        if self.has("OR"):  # of SQLite; the driver ends the transaction if the statement fails
            self.expect("ROLLBACK")
        self.expect("INTO")
        table, columns = self.name(), self.names()
        if self.has("VALUES"):
            rows = self.list_of(self.values)
            source = _listed(columns, rows)
        else:
            read = self.query()
            source = _renamed(columns, read)
        skips: frozenset[str] | None = frozenset()
        if self.has("ON", "CONFLICT"):
            skips = frozenset(self.names()) if self.peek() == "(" else None
            self.expect("DO", "NOTHING")
        returned = self.selected() if self.has("RETURNING") else None
        self.end()

        def run(transaction: Transaction, parameters: Any) -> Answer:
            scope, into = Scope(transaction, parameters), _table(transaction, table)
            stored = [
                row for values in list(source(scope)) if (row := transaction.insert(into, values, skips)) is not None
            ]
            # the key of the first row, as MySQL reports it; SQLite reports the last one, of statements with one row
            key = stored[0]["id"] if stored else None
            if returned is None:
                return Answer(count=len(stored), last_key=key)
            names, values = returned
            rows = [tuple(value(scope.with_row(row)) for value in values) for row in stored]
            return Answer(names, rows, len(rows), key)

        return run

    def values(self) -> list[Expression]:
        self.expect("(")
        values = self.list_of(self.expression)
        self.expect(")")
        return values

    def select(self) -> Statement:
        read = self.query()
        self.end()

        def run(transaction: Transaction, parameters: Any) -> Answer:
            names, rows = read(Scope(transaction, parameters))
            return Answer(names, rows, len(rows))

        return run

    def end(self) -> None:
        if self.at < len(self.tokens):
            raise Unknown(f"{self.peek()!r} and more in {self.text}")

    # --- queries

    def query(self) -> Callable[[Scope], tuple[list[str], list[tuple[Any, ...]]]]:
        if self.has("("):
            inner = self.query()
            self.expect(")")
            return inner
        self.expect("SELECT")
        names, values = self.selected()
        source = self.source() if self.has("FROM") else _nothing
        condition = self.where()
        order = self.list_of(self.ordering) if self.has("ORDER", "BY") else []
        limit = self.expression() if self.has("LIMIT") else None
        offset = self.expression() if self.has("OFFSET") else None
        lock = self.has("FOR", "SHARE") or self.has("FOR", "UPDATE") or self.has("LOCK", "IN", "SHARE", "MODE")
        counts = any(getattr(value, "counts", False) for value in values)

        def read(scope: Scope) -> tuple[list[str], list[tuple[Any, ...]]]:
            found = [
                within
                for row in source(replace(scope, row={"": lock}))
                if condition(within := scope.with_row({**(scope.row or {}), **row}))
            ]
            for expression, descending in reversed(order):
                found.sort(key=expression, reverse=descending)
            if counts:
                return names, [(len(found),)]
            found = found[offset(scope) :] if offset is not None else found
            found = found[: limit(scope)] if limit is not None else found
            return names, [tuple(value(within) for value in values) for within in found]

        return read

    def ordering(self) -> tuple[Expression, bool]:
        value = self.expression()
        descending = self.has("DESC")
        self.has("ASC")
        return value, descending

    def selected(self) -> tuple[list[str], list[Expression]]:
        names: list[str] = []
        values: list[Expression] = []

        def one() -> None:
            before = self.at
            values.append(self.expression())
            plain = self.tokens[self.at - 1][1].strip('"`')
            names.append(self.name() if self.has("AS") else plain if self.at - before < 4 else "?column?")

        self.list_of(one)
        return names, values

    def source(self) -> Source:
        if self.has("("):
            if self.has("VALUES"):
                rows = self.list_of(self.values)
                self.expect(")", "AS")
                self.name()
                return _listed(self.names(), rows)
            inner = self.query()
            self.expect(")", "AS")
            self.name()
            names = self.names() if self.peek() == "(" else None
            return _renamed(names, inner)
        if self.has("UNNEST", "("):
            arrays = self.list_of(self.expression)
            self.expect(")")
            numbered = self.has("WITH", "ORDINALITY")
            self.expect("AS")
            self.name()
            return _unnested(self.names(), arrays, numbered)
        table = self.name()
        self.has("AS")
        if self.tokens[self.at : self.at + 1] and self.peek() not in _AFTER_A_SOURCE:
            self.name()

        def rows_of(scope: Scope) -> Iterator[dict[str, Any]]:
            lock = bool((scope.row or {}).get(""))
            for row in scope.transaction.scan(_table(scope.transaction, table), lock=lock):
                yield row.values

        return rows_of

    def where(self) -> Expression:
        return self.expression() if self.has("WHERE") else lambda scope: True


# --- what they do

_AFTER_A_SOURCE = {"WHERE", "ORDER", "LIMIT", "OFFSET", "FOR", "LOCK", ")", ",", "ON", "RETURNING", "UNION"}


def _nothing(scope: Scope) -> Iterator[dict[str, Any]]:
    yield {}


def _listed(columns: list[str], rows: list[list[Expression]]) -> Source:
    def read(scope: Scope) -> Iterator[dict[str, Any]]:
        for values in rows:
            yield {column: value(scope) for column, value in zip(columns, values, strict=True)}

    return read


def _renamed(columns: list[str] | None, query: Callable[[Scope], tuple[list[str], list[tuple[Any, ...]]]]) -> Source:
    def read(scope: Scope) -> Iterator[dict[str, Any]]:
        names, rows = query(scope)
        for row in rows:
            yield dict(zip(columns or names, row, strict=True))

    return read


def _unnested(columns: list[str], arrays: list[Expression], numbered: bool) -> Source:
    def read(scope: Scope) -> Iterator[dict[str, Any]]:
        for number, row in enumerate(zip(*(array(scope) for array in arrays), strict=True), start=1):
            yield dict(zip(columns, (*row, number) if numbered else row, strict=True))

    return read


def _table(transaction: Transaction, name: str) -> Table:
    return transaction.database.tables[name]


def _evaluated(value: Expression, scope: Scope) -> Answer:
    value(scope)
    return Answer(count=0)
