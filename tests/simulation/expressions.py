"""Expressions of SQL: values, comparisons, functions; each becomes a function of a :class:`Scope`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from simulation.storage import Transaction

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')|(?P<name>"[^"]+"|`[^`]+`)|(?P<named>%\(\w+\)s)|(?P<placed>%s|\?)"""
    r"""|(?P<number>\d+)|(?P<word>@@\w+|[A-Za-z_][\w$]*)|(?P<sign><=|>=|<>|!=|::|\|\||[-(),.=<>*+\[\]]))"""
)


@dataclass
class Scope:
    """What an expression is evaluated in."""

    transaction: Transaction
    parameters: Any
    row: dict[str, Any] | None = None

    def with_row(self, row: dict[str, Any]) -> Scope:
        return replace(self, row=row)


Expression: TypeAlias = Callable[[Scope], Any]


class Unknown(Exception):
    """SQL that this module does not know. It is no error of a database, so that nobody handles it as one."""


class ExpressionParser:
    """Reads expressions from the tokens of a statement."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str]] = []
        self.at = 0
        self.places = 0
        position, end = 0, len(text.rstrip().rstrip(";"))
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                raise Unknown(f"{text[position : position + 30]!r} in {text}")
            kind = str(match.lastgroup)
            self.tokens.append((kind, match[kind]))
            position = match.end()
            if not text[position:].strip():
                break

    # --- tokens

    def peek(self, ahead: int = 0) -> str:
        if self.at + ahead >= len(self.tokens):
            return ""
        kind, token = self.tokens[self.at + ahead]
        return token.upper() if kind == "word" else token

    def take(self) -> tuple[str, str]:
        self.at += 1
        return self.tokens[self.at - 1]

    def has(self, *words: str) -> bool:
        """Take *words* if they come next."""
        if all(self.peek(ahead) == word for ahead, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def expect(self, *words: str) -> None:
        if not self.has(*words):
            raise Unknown(f"{self.peek()!r} instead of {' '.join(words)} in {self.text}")

    def name(self) -> str:
        """Take a name, and return the last part of it."""
        name = self.take()[1].strip('"`')
        while self.has("."):
            name = self.take()[1].strip('"`')
        return name

    def names(self) -> list[str]:
        self.expect("(")
        names = [self.name()]
        while self.has(","):
            names.append(self.name())
        self.expect(")")
        return names

    def list_of(self, parse_one: Callable[[], Any]) -> list[Any]:
        items = [parse_one()]
        while self.has(","):
            items.append(parse_one())
        return items

    def query(self) -> Callable[[Scope], tuple[list[str], list[tuple[Any, ...]]]]:
        """Take a query, which an expression may contain."""
        raise NotImplementedError

    # --- expressions

    def expression(self) -> Expression:
        value = self.conjunction()
        while self.has("OR"):
            value = _either(value, self.conjunction())
        return value

    def conjunction(self) -> Expression:
        value = self.comparison()
        while self.has("AND"):
            value = _both(value, self.comparison())
        return value

    def comparison(self) -> Expression:
        if self.has("NOT"):
            operand = self.comparison()
            return lambda scope: not operand(scope)
        left = self.operand()
        if self.has("IS", "NOT", "NULL"):
            return lambda scope: left(scope) is not None
        if self.has("IS", "NULL"):
            return lambda scope: left(scope) is None
        if self.has("BETWEEN"):
            low = self.operand()
            self.expect("AND")
            high = self.operand()
            return lambda scope: _is_between(left(scope), low(scope), high(scope))
        if self.has("IN", "("):
            if self.peek() == "SELECT":
                query = self.query()
                self.expect(")")
                return lambda scope: left(scope) in [row[0] for row in query(scope)[1]]
            items = self.list_of(self.expression)
            self.expect(")")
            return lambda scope: left(scope) in [item(scope) for item in items]
        if self.has("=", "ANY", "("):
            array = self.expression()
            self.expect(")")
            return lambda scope: left(scope) in (array(scope) or ())
        operator = self.peek()
        if operator not in _OPERATORS:
            return left
        self.at += 1
        right, compare = self.operand(), _OPERATORS[operator]
        return lambda scope: _compared(compare, left(scope), right(scope))

    def operand(self) -> Expression:
        value = self.primary()
        while True:
            if self.has("::"):
                self.type()
            elif self.has("COLLATE"):
                self.name()
            elif self.has("+"):
                value = _sum(value, self.primary(), 1)
            elif self.has("-"):
                value = _sum(value, self.primary(), -1)
            else:
                return value

    def type(self) -> None:
        self.name()
        for word in ("VARYING", "PRECISION", "INTEGER"):
            self.has(word)
        if self.has("("):
            self.list_of(self.take)
            self.expect(")")
        if self.has("["):
            self.expect("]")

    def primary(self) -> Expression:
        if self.has("("):
            if self.peek() == "SELECT":
                query = self.query()
                self.expect(")")
                return lambda scope: next((row[0] for row in query(scope)[1]), None)
            value = self.expression()
            self.expect(")")
            return value
        kind, token = self.take()
        if kind == "text":
            text = token[1:-1].replace("''", "'")
            return lambda scope: text
        if kind == "number":
            number = int(token)
            return lambda scope: number
        if kind == "named":
            key = token[2:-2]
            return lambda scope: scope.parameters[key]
        if kind == "placed":
            place = self.places
            self.places += 1
            return lambda scope: scope.parameters[place]
        if kind == "sign":
            raise Unknown(f"{token!r} in {self.text}")
        return self.word(token)

    def word(self, token: str) -> Expression:
        word = token.upper()
        if word == "NULL":
            return lambda scope: None
        if word in {"TRUE", "FALSE"}:
            return lambda scope: word == "TRUE"
        if word.startswith("@@"):
            return lambda scope: 50
        if word == "CASE":
            return self.case()
        if word == "CAST":
            self.expect("(")
            value = self.expression()
            self.expect("AS")
            self.type()
            self.expect(")")
            return value
        if self.peek() == "(":
            return self.function(word)
        name = token.strip('"`')
        while self.has("."):
            name = self.take()[1].strip('"`')
        return lambda scope: (scope.row or {})[name]

    def case(self) -> Expression:
        branches = []
        while self.has("WHEN"):
            condition = self.expression()
            self.expect("THEN")
            branches.append((condition, self.expression()))
        otherwise = self.expression() if self.has("ELSE") else _null
        self.expect("END")
        return lambda scope: next((value for condition, value in branches if condition(scope)), otherwise)(scope)

    def function(self, word: str) -> Expression:
        self.expect("(")
        if word == "COUNT":
            self.expect("*", ")")

            def count(scope: Scope) -> int:
                return 0

            count.counts = True  # type: ignore[attr-defined]
            return count
        arguments = [] if self.peek() == ")" else self.list_of(self.expression)
        self.expect(")")
        if word not in _FUNCTIONS:
            raise Unknown(f"{word}() in {self.text}")
        call = _FUNCTIONS[word]
        return lambda scope: call(scope, *(argument(scope) for argument in arguments))


# --- what they do

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _compared(compare: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
    return left is not None and right is not None and compare(left, right)


def _is_between(value: Any, low: Any, high: Any) -> bool:
    return value is not None and low is not None and high is not None and low <= value <= high


def _either(left: Expression, right: Expression) -> Expression:
    return lambda scope: left(scope) or right(scope)


def _both(left: Expression, right: Expression) -> Expression:
    return lambda scope: left(scope) and right(scope)


def _sum(left: Expression, right: Expression, sign: int) -> Expression:
    return lambda scope: left(scope) + sign * right(scope)


def _null(scope: Scope) -> None:
    return None


def _get_lock(scope: Scope, name: str, seconds: int) -> int:
    locks, owner = scope.transaction.database.advisory_locks, scope.transaction.owner
    if locks.setdefault(name, owner) is owner:
        return 1
    scope.transaction.database.wait_for_lock(scope.transaction, name)
    locks[name] = owner
    return 1


def _release_lock(scope: Scope, name: str) -> int | None:
    locks, owner = scope.transaction.database.advisory_locks, scope.transaction.owner
    if locks.get(name) is not owner:
        return None
    del locks[name]
    return 1


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "COALESCE": lambda scope, *values: next((value for value in values if value is not None), None),
    "STRING_TO_ARRAY": lambda scope, text, separator: text.split(separator),
    "NEXTVAL": lambda scope, name: scope.transaction.database.next_value(),
    "GET_LOCK": _get_lock,
    "RELEASE_LOCK": _release_lock,
}
