"""Split SQL, and the languages of stored programs, into tokens. Nothing is parsed by recursion, however deep it is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["word", "name", "text", "number", "variable", "mark", "group", "index"]


@dataclass(frozen=True)
class Lexis:
    """How a database writes names, strings and comments."""

    folds_quoted: bool = False
    """True if quoted names are the same in capitals."""
    has_dollar_quotes: bool = False
    nests_comments: bool = False
    has_backslashes: bool = False
    """True if a backslash escapes a quote inside a string."""
    has_hash_comments: bool = False
    quotes_text: str = "'"
    """The quotes of strings; double quotes that are not among them enclose names."""


@dataclass(frozen=True)
class SqlToken:
    """A word or name (in the form in which names are compared), a string (its content), or a group in parentheses."""

    kind: Kind
    text: str
    start: int
    level: int = -1
    """The number of the level with the content of a group."""

    def is_word(self, *words: str) -> bool:
        """Return True for one of these key words, which are never quoted."""
        return self.kind == "word" and self.text in words

    def is_mark(self, *marks: str) -> bool:
        return self.kind == "mark" and self.text in marks

    @property
    def is_name(self) -> bool:
        """True for what may be a name."""
        return self.kind in ("word", "name")


Level: TypeAlias = Sequence[SqlToken]

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
    | (?P<comment>/\*)
    | (?P<dollar>\$(?:[A-Za-z_\u0080-\uffff][\w\u0080-\uffff]*)?\$)
    | (?P<prefixed>(?:[EeBbXxNn]|[Uu]&)(?='))
    | (?P<quote>['"`])
    | (?P<variable>@@?[\w$.]*|\$\d+)
    | (?P<number>\d+(?:\.(?!\.)\d*)?(?:[eE][+-]?\d+)?)
    | (?P<word>[\w$\u0080-\uffff]+)
    | (?P<mark>::|:=|\.\.\.|\.\.|.)""",
    re.VERBOSE | re.DOTALL,
)
_EXECUTABLE = re.compile(r"/\*M?!\d*")
"""The beginning of a comment that MySQL and MariaDB execute."""
_COMMENT = re.compile(r"/\*|\*/")


def split_levels(text: str, lexis: Lexis) -> list[Level]:
    """Return the levels of *text*: the content of each pair of parentheses, inner ones first, and at last the rest."""
    levels: list[Level] = []
    open_: list[tuple[SqlToken, list[SqlToken]]] = []
    current: list[SqlToken] = []
    for token in _tokens(text, lexis):
        if token.kind == "mark" and token.text in "([":
            open_.append((token, current))
            current = []
        elif token.kind == "mark" and token.text in ")]" and open_:
            levels.append(current)
            opening, outer = open_.pop()
            kind: Kind = "group" if opening.text == "(" else "index"
            outer.append(SqlToken(kind, opening.text, opening.start, len(levels) - 1))
            current = outer
        else:
            current.append(token)
    while open_:  # an unfinished text
        levels.append(current)
        opening, outer = open_.pop()
        outer.append(SqlToken("group", opening.text, opening.start, len(levels) - 1))
        current = outer
    return [*levels, current]


def _tokens(text: str, lexis: Lexis) -> Iterator[SqlToken]:
    at, end = 0, len(text)
    escapes = False
    while at < end:
        match = _TOKEN.match(text, at)
        assert match is not None  # the last alternative matches any character
        kind, found = match.lastgroup, match.group()
        start, at = at, match.end()
        if kind == "prefixed":
            escapes = found in "eE"
        elif kind == "comment":
            executable = _EXECUTABLE.match(text, start) if lexis.has_hash_comments else None
            at = executable.end() if executable else _end_of_comment(text, at, lexis.nests_comments)
        elif kind == "dollar" and lexis.has_dollar_quotes:
            closing = text.find(found, at)
            closing = end if closing < 0 else closing
            yield SqlToken("text", text[at:closing], start)
            at = min(end, closing + len(found))
        elif kind == "dollar":
            at = start + 1
        elif kind == "quote":
            is_text = found in lexis.quotes_text
            content, at = _quoted(text, at, found, is_text and (escapes or lexis.has_backslashes))
            escapes = False
            if is_text:
                yield SqlToken("text", content, start)
            else:
                yield SqlToken("name", content.lower() if lexis.folds_quoted else content, start)
        elif kind == "mark" and found == "#" and lexis.has_hash_comments:
            line = text.find("\n", at)
            at = end if line < 0 else line
        elif kind == "mark" and found == "*" and lexis.has_hash_comments and text.startswith("*/", start):
            at = start + 2  # the end of a comment that is executed
        elif kind == "word":
            yield SqlToken("word", found.lower(), start)
        elif kind == "number":
            yield SqlToken("number", found, start)
        elif kind == "variable":
            yield SqlToken("variable", found.lower(), start)
        elif kind == "mark":
            yield SqlToken("mark", found, start)


def _quoted(text: str, at: int, quote: str, has_backslashes: bool) -> tuple[str, int]:
    """Return the content of a quoted part that begins at *at*, and where it ends; two quotes in it are one."""
    parts: list[str] = []
    stops = re.compile(r"[\\" + quote + "]" if has_backslashes else quote)
    while (match := stops.search(text, at)) is not None:
        parts.append(text[at : match.start()])
        at = match.end()
        if match.group() == "\\" or text.startswith(quote, at):
            parts.append(text[at : at + 1])
            at += 1
        else:
            return "".join(parts), at
    return "".join(parts) + text[at:], len(text)


def _end_of_comment(text: str, at: int, nests: bool) -> int:
    depth = 1
    for match in _COMMENT.finditer(text, at):
        if match.group() == "*/":
            depth -= 1
        elif nests:
            depth += 1
        if depth == 0:
            return match.end()
    return len(text)


def text_at(text: str, start: int, length: int = 70) -> str:
    """Return the statement that begins at *start* in one line, shortened."""
    line = " ".join(text[start : start + 4 * length].partition(";")[0].split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"
