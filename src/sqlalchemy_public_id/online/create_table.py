"""Change one column inside the text of a CREATE TABLE statement of SQLite, and leave every other character as it is.

SQLite keeps the statement that made a table, and a copy of the table is made from it: unnamed CHECKs, collations,
generated columns and comments survive, which reflection would lose.

>>> with_column('CREATE TABLE t (id INTEGER PRIMARY KEY, a, CHECK (a > 0))', 'b', '"b" TEXT NOT NULL')
'CREATE TABLE t (id INTEGER PRIMARY KEY, a, "b" TEXT NOT NULL, CHECK (a > 0))'
>>> with_column('CREATE TABLE t (id INTEGER PRIMARY KEY, b TEXT)', 'b', '"b" TEXT NOT NULL')
'CREATE TABLE t (id INTEGER PRIMARY KEY, "b" TEXT NOT NULL)'
>>> renamed('CREATE TABLE t (id)', '"copy"')
'CREATE TABLE "copy" (id)'
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["renamed", "with_column", "with_constraint", "without_constraint"]

_TOKEN = re.compile(
    r"""--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|[A-Za-z_\u0080-\U0010ffff][\w$]*|\s+|.""",
    re.DOTALL,
)
_HEAD = re.compile(r"\s*CREATE\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?", re.IGNORECASE)
_CONSTRAINTS = {"constraint", "primary", "unique", "check", "foreign"}


def renamed(sql: str, name: str) -> str:
    """The statement for a table called *name*, which is quoted."""
    head = _HEAD.match(sql)
    assert head is not None, sql
    return f"CREATE TABLE {name} {sql[_body(sql)[0] :]}"


def with_column(sql: str, column: str, definition: str) -> str:
    """The statement with *definition* for *column*: in the place of the one it has, or behind the last column."""
    start, end = _body(sql)
    parts = list(_parts(sql, start + 1, end))
    for first, last in parts:
        if _first_word(sql[first:last]) == column.lower():
            return sql[:first] + _spaced(sql[first:last], definition) + sql[last:]
    constraint = next((part for part in parts if _starts_constraint(sql[part[0] : part[1]])), None)
    if constraint is None:
        return _at_the_end(sql, definition)
    first, last = constraint
    return sql[:first] + _spaced(sql[first:last], f"{definition},") + " " + sql[first:].lstrip()


def with_constraint(sql: str, definition: str) -> str:
    """The statement with another constraint of the table, the last one."""
    return _at_the_end(sql, definition)


def without_constraint(sql: str, name: str) -> str:
    """The statement without the constraint of the table that is called *name*, if it has it."""
    start, end = _body(sql)
    for first, last in _parts(sql, start + 1, end):
        words = [word for word, _ in zip(_words(sql[first:last]), range(2), strict=False)]
        if words[0].lower() == "constraint" and _first_word(words[1]) == name.lower():
            return sql[: first - 1] + sql[last:]
    return sql


def _at_the_end(sql: str, definition: str) -> str:
    """The statement with *definition* behind the last one, and before comments that follow it."""
    start, end = _body(sql)
    last = max(
        at + len(token)
        for at, token, _ in _tokens(sql[:end], start)
        if not token.isspace() and not token.startswith(("--", "/*"))
    )
    return f"{sql[:last]}, {definition}{sql[last:]}"


def _body(sql: str) -> tuple[int, int]:
    """Where the parentheses around the columns are."""
    opened = [at for at, token, depth in _tokens(sql, 0) if token == "(" and depth == 0]
    closed = [at for at, token, depth in _tokens(sql, 0) if token == ")" and depth == 1]
    return opened[0], closed[0]


def _parts(sql: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where the definitions of columns and constraints begin and end."""
    first = start
    for at, token, depth in _tokens(sql[:end], start):
        if token == "," and depth == 0:
            yield first, at
            first = at + 1
    yield first, end


def _tokens(sql: str, start: int) -> Iterator[tuple[int, str, int]]:
    """Each token, where it is, and how many parentheses are open before it."""
    depth = 0
    for found in _TOKEN.finditer(sql, start):
        token = found[0]
        yield found.start(), token, depth
        depth += {"(": 1, ")": -1}.get(token, 0)


def _words(part: str) -> Iterator[str]:
    return (token for _, token, _ in _tokens(part, 0) if not token.isspace() and not token.startswith(("--", "/*")))


def _first_word(part: str) -> str:
    """The name that *part* begins with, without quotes and in small letters."""
    word = next(_words(part), "")
    if word[:1] in "\"'`":
        return word[1:-1].replace(word[0] * 2, word[0]).lower()
    return word.strip("[]").lower()


def _starts_constraint(part: str) -> bool:
    return next(_words(part), "").lower() in _CONSTRAINTS


def _spaced(old: str, new: str) -> str:
    """*new* with the blanks around *old*."""
    return old[: len(old) - len(old.lstrip())] + new + old[len(old.rstrip()) :]
