"""Edit one column of a CREATE TABLE statement of SQLite clause by clause, and leave every other character as it is.

SQLite stores the statement, and a copy of the table is created from it. So CHECKs, foreign keys, collations, generated
columns and comments survive, which reflection would lose.

>>> sql = 'CREATE TABLE t (id INTEGER PRIMARY KEY, b TEXT UNIQUE CHECK (b > 0), c)'
>>> with_clause(sql, 'b', 'NOT NULL')
'CREATE TABLE t (id INTEGER PRIMARY KEY, b TEXT UNIQUE CHECK (b > 0) NOT NULL, c)'
>>> without_unique(sql, 'b')
'CREATE TABLE t (id INTEGER PRIMARY KEY, b TEXT CHECK (b > 0), c)'
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Literal, NamedTuple

_TOKEN = re.compile(
    r"""--[^\n]*|/\*.*?\*/|x?'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]"""
    r"""|[a-z_\u0080-\U0010ffff][\w$]*|\.?\d(?:e[+-]|[\w.])*|\s+|.""",
    re.DOTALL | re.IGNORECASE,
)
_EVENTS = {"delete", "insert", "update"}
_CONSTRAINTS = {"constraint", "primary", "unique", "check", "foreign"}


class _Term(NamedTuple):
    """A word, a literal, or everything between two parentheses."""

    text: str
    start: int
    end: int

    @property
    def name(self) -> str:
        """The term as a name, without quotes and in lower case."""
        quote = self.text[0]
        if quote in "\"'`":
            return self.text[1:-1].replace(quote * 2, quote).lower()
        return self.text.strip("[]").lower()


def with_column(sql: str, definition: str) -> str:
    """Return the statement with the *definition* of one more column, where ALTER TABLE would add it."""
    columns = [terms for terms in _definitions(sql) if terms[0].text.lower() not in _CONSTRAINTS]
    end = columns[-1][-1].end
    return f"{sql[:end]}, {definition}{sql[end:]}"


def with_clause(sql: str, column: str, clause: str) -> str:
    """Return the statement with *clause* appended to the definition of *column*."""
    end = _definition(sql, column)[-1].end
    return f"{sql[:end]} {clause}{sql[end:]}"


def without_clause(sql: str, column: str, kind: Literal["NOT NULL", "DEFAULT"]) -> str:
    """Return the statement without the clause of this *kind* in the definition of *column*, if there is one."""
    clause = _clause(_definition(sql, column), kind)
    return sql[: clause[0].start].rstrip(" ") + sql[clause[-1].end :] if clause else sql


def without_unique(sql: str, *columns: str) -> str:
    """Return the statement without the UNIQUE constraints of exactly these *columns*, whatever their names are."""
    definitions = [*_definitions(sql)]
    for before, terms in reversed([*zip([[], *definitions], definitions, strict=False)]):
        clause = _clause(terms, "UNIQUE")
        if not clause or not _is_of(sql, clause, terms, columns):
            continue
        start, end = clause[0].start, clause[-1].end
        if len(clause) == len(terms):
            (comma,) = _terms(sql, before[-1].end, start)
            start = comma.start
        sql = sql[:start].rstrip(" ") + sql[end:]
    return sql


def settles_duplicates(sql: str, *columns: str) -> bool:
    """Return True if a UNIQUE of exactly these *columns* has ON CONFLICT REPLACE or IGNORE, and so never fails."""
    for terms in _definitions(sql):
        clause = _clause(terms, "UNIQUE")
        if clause and clause[-1].text.lower() in {"replace", "ignore"} and _is_of(sql, clause, terms, columns):
            return True
    return False


def read_event(trigger: str) -> tuple[str, list[str]]:
    """Return the event of a CREATE TRIGGER statement, and the columns that it names; the name of its table follows.

    >>> read_event('CREATE TRIGGER t AFTER UPDATE OF "a", B /* both */ ON x BEGIN SELECT 1; END')
    ('update', ['a', 'b'])
    """
    terms = _terms(trigger, 0, len(trigger))
    event = next(term.text.lower() for term in terms if term.text.lower() in _EVENTS)
    listed = [*takewhile(lambda term: term.text.lower() != "on", terms)]  # OF, and the names between commas
    return event, [term.name for term in listed[1::2]]


def _is_of(sql: str, unique: list[_Term], definition: list[_Term], columns: Sequence[str]) -> bool:
    """Return True if a UNIQUE clause, of the table or in the *definition* of a column, is on exactly *columns*."""
    listed = next((term for term in unique if term.text.startswith("(")), None)
    wanted = {column.lower() for column in columns}
    if listed is None:
        return {definition[0].name} == wanted
    names, is_next = set[str](), True  # each name may be followed by a collation and an order
    for term in _terms(sql, listed.start + 1, listed.end - 1):
        names |= {term.name} if is_next else set[str]()
        is_next = term.text == ","
    return names == wanted


def _clause(terms: list[_Term], kind: str) -> list[_Term]:
    """Return the terms of the clause of this *kind*, including its name; none if there is no such clause."""
    words = [term.text.lower() for term in terms]
    wanted = kind.lower().split()
    for at in range(len(words)):
        if words[at : at + len(wanted)] != wanted or (at and words[at - 1] == "set"):  # ON DELETE SET DEFAULT
            continue
        end = at + len(wanted)
        if kind == "DEFAULT":
            end += 2 if words[end] in {"+", "-"} else 1
        elif kind == "UNIQUE" and words[end : end + 1] and words[end].startswith("("):
            end += 1
        if words[end : end + 2] == ["on", "conflict"]:
            end += 3
        return terms[at - 2 if at >= 2 and words[at - 2] == "constraint" else at : end]
    return []


def _definition(sql: str, column: str) -> list[_Term]:
    """Return the terms of the definition of *column*; columns precede constraints."""
    return next(terms for terms in _definitions(sql) if terms[0].name == column.lower())


def _definitions(sql: str) -> Iterator[list[_Term]]:
    """Yield the terms of each column definition, and of each part between commas among the constraints."""
    body = next(term for term in _terms(sql, 0, len(sql)) if term.text.startswith("("))
    terms: list[_Term] = []
    for term in _terms(sql, body.start + 1, body.end - 1):
        if term.text == ",":
            yield terms
            terms = []
        else:
            terms.append(term)
    yield terms


def _terms(sql: str, start: int, end: int) -> Iterator[_Term]:
    """Yield the terms between two positions, without blanks and comments."""
    depth, opened = 0, start
    for match in _TOKEN.finditer(sql, start, end):
        token = match[0]
        if token == "(":
            opened = opened if depth else match.start()
            depth += 1
        elif token == ")":
            depth -= 1
            if not depth:
                yield _Term(sql[opened : match.end()], opened, match.end())
        elif not depth and not token.isspace() and not token.startswith(("--", "/*")):
            yield _Term(token, match.start(), match.end())
