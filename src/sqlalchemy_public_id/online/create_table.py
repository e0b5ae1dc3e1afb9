"""Change one column inside a CREATE TABLE statement of SQLite, and leave every other character as it is.

SQLite stores the statement, and a copy of the table is created from it. So unnamed CHECKs, collations, generated
columns and comments survive, which reflection would lose.

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

_TOKEN = re.compile(
    r"""--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\]|[A-Za-z_\u0080-\U0010ffff][\w$]*|\s+|.""",
    re.DOTALL,
)
_HEAD = re.compile(r"\s*CREATE\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?", re.IGNORECASE)
_CONSTRAINTS = {"constraint", "primary", "unique", "check", "foreign"}


def renamed(sql: str, name: str) -> str:
    """Return the statement for a table called *name*, which is quoted."""
    head = _HEAD.match(sql)
    assert head is not None, sql
    return f"CREATE TABLE {name} {sql[_body(sql)[0] :]}"


def with_column(sql: str, column: str, definition: str) -> str:
    """Return the statement with *definition* for *column*: instead of its own one, or after the last column."""
    start, end = _body(sql)
    parts = list(_parts(sql, start + 1, end))
    for first, last in parts:
        if _first_word(sql[first:last]) == column.lower():
            return sql[:first] + _spaced(sql[first:last], definition) + sql[last:]
    constraint = next((part for part in parts if next(_words(sql[slice(*part)]), "").lower() in _CONSTRAINTS), None)
    if constraint is None:
        return with_constraint(sql, definition)
    first, last = constraint
    return sql[:first] + _spaced(sql[first:last], f"{definition},") + " " + sql[first:].lstrip()


def with_constraint(sql: str, definition: str) -> str:
    """Return the statement with one more *definition*, after all others."""
    # before the comments that follow the last one: "--" would hide it
    start, end = _body(sql)
    last = max(
        at + len(token)
        for at, token, _ in _tokens(sql[:end], start)
        if not token.isspace() and not token.startswith(("--", "/*"))
    )
    return f"{sql[:last]}, {definition}{sql[last:]}"


def without_constraint(sql: str, name: str) -> str:
    """Return the statement without the table constraint *name*, if it has one."""
    start, end = _body(sql)
    for first, last in _parts(sql, start + 1, end):
        words = [word for word, _ in zip(_words(sql[first:last]), range(2), strict=False)]
        if words[0].lower() == "constraint" and _first_word(words[1]) == name.lower():
            return sql[: first - 1] + sql[last:]
    return sql


def _body(sql: str) -> tuple[int, int]:
    """Return the positions of the parentheses around the columns."""
    opened = [at for at, token, depth in _tokens(sql, 0) if token == "(" and depth == 0]
    closed = [at for at, token, depth in _tokens(sql, 0) if token == ")" and depth == 1]
    return opened[0], closed[0]


def _parts(sql: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the first and last position of each definition of a column or constraint."""
    first = start
    for at, token, depth in _tokens(sql[:end], start):
        if token == "," and depth == 0:
            yield first, at
            first = at + 1
    yield first, end


def _tokens(sql: str, start: int) -> Iterator[tuple[int, str, int]]:
    """Yield each token with its position, and the number of open parentheses before it."""
    depth = 0
    for match in _TOKEN.finditer(sql, start):
        token = match[0]
        yield match.start(), token, depth
        depth += {"(": 1, ")": -1}.get(token, 0)


def _words(part: str) -> Iterator[str]:
    return (token for _, token, _ in _tokens(part, 0) if not token.isspace() and not token.startswith(("--", "/*")))


def _first_word(part: str) -> str:
    """Return the first name in *part*, without quotes and in lower case."""
    word = next(_words(part), "")
    if word[:1] in "\"'`":
        return word[1:-1].replace(word[0] * 2, word[0]).lower()
    return word.strip("[]").lower()


def _spaced(old: str, new: str) -> str:
    # with the blanks around the old definition
    return old[: len(old) - len(old.lstrip())] + new + old[len(old.rstrip()) :]
