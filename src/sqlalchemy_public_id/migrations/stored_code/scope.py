"""What is known while a program is read: the table, other relations, variables, and the shapes of its queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from sqlalchemy_public_id.migrations.stored_code.shapes import UNKNOWN, Change, Rule, Shape
from sqlalchemy_public_id.migrations.stored_code.tokens import Level, Lexis, SqlToken, split_levels, text_at

_BEFORE_RELATION = ("from", "join", "into", "update", "only", "table", "using", "straight_join", "replace")
"""The words before the name of a relation."""
_BEFORE_ORDER = ("from", "where", "group", "having", "window", "set")
_AFTER_ORDER = ("asc", "desc", "nulls", "limit", "offset", "fetch", "for", "into", "loop")
Path: TypeAlias = tuple[str, ...]
"""A name with what qualifies it, such as a schema."""


@dataclass(frozen=True)
class Language:
    """How the programs of a database store rows by position."""

    lexis: Lexis
    inserts: Rule
    """How many values an INSERT without a list of columns takes."""
    selects_into: Rule
    """How many variables a ``SELECT … INTO`` takes."""


@dataclass(frozen=True)
class Program:
    """A stored program, such as a trigger or a function."""

    name: str
    """What it is called in messages, such as ``the function audit()``."""
    text: str
    variables: Mapping[str, Shape] = field(default_factory=dict[str, Shape])
    """The rows that it is given: ``NEW`` and ``OLD``, transition tables and arguments, by their names."""
    names: frozenset[str] = frozenset()
    """The names of its arguments and results."""
    returns: Shape | None = None
    """The rows that it returns, if it returns rows."""
    ends_with_query: bool = False
    """True if it returns the rows of its last statement."""
    lexis: Lexis | None = None
    """How it was written, if not like other programs of the database."""


@dataclass(frozen=True)
class BrokenStatement:
    """A statement of a program that the migration breaks."""

    program: str
    statement: str
    problem: str
    extends: str = ""
    """The table that could get the column first, so that the statement goes on."""

    def __str__(self) -> str:
        return f"{self.program}{f' has {self.statement!r}' if self.statement else ''}: {self.problem}"


@dataclass
class Scope:
    """What is known of a *program* until a token."""

    program: Program
    language: Language
    change: Change
    table: Shape
    """The rows of the table itself."""
    is_ours: Callable[[Path], bool]
    """Return True if a path is that of the table."""
    columns_of: Callable[[Path], Sequence[str] | None]
    """Return the columns of a relation, or None if there is none."""
    returned_by: Mapping[str, Shape] = field(default_factory=dict[str, Shape])
    """The rows that other functions return."""
    levels: Sequence[Level] = ()
    shapes: list[Shape | None] = field(default_factory=list["Shape | None"])
    """The shapes of the levels that were read: None for one that is no query."""
    ctes: dict[str, Shape] = field(default_factory=dict[str, Shape])
    variables: dict[str, Shape] = field(default_factory=dict[str, Shape])
    declared: dict[str, Path] = field(default_factory=dict[str, Path])
    """The variables for a row of a relation, and the relation."""
    names: set[str] = field(default_factory=set[str])
    """The names of all variables."""
    cursors: dict[str, Shape] = field(default_factory=dict[str, Shape])
    findings: list[BrokenStatement] = field(default_factory=list[BrokenStatement])
    creates: set[str] = field(default_factory=set[str])
    """The tables that the program creates itself."""

    def __post_init__(self) -> None:
        self.levels = split_levels(self.program.text, self.program.lexis or self.language.lexis)
        self.variables.update(self.program.variables)
        self.names.update(self.program.names)

    def find(self, token: SqlToken, problem: str | None, extends: str = "") -> None:
        """Note the *problem* of the statement that begins at *token*, if there is one."""
        if problem is not None:
            finding = BrokenStatement(self.program.name, text_at(self.program.text, token.start), problem, extends)
            if finding not in self.findings:
                self.findings.append(finding)

    def relation(self, path: Path) -> Shape:
        """Return the shape of the relation *path*."""
        if len(path) == 1:
            for known in (self.ctes, self.variables):
                if path[0] in known:
                    return known[path[0]]
        if self.is_ours(path):
            return self.table
        columns = self.columns_of(path) if path else None
        return UNKNOWN if columns is None else Shape.fixed(columns)

    @cached_property
    def relations(self) -> dict[str, list[Path]]:
        """Name or alias → the relations of this name that the program reads and writes."""
        found: dict[str, list[Path]] = {}
        for level in self.levels:
            for at, token in enumerate(level):
                if not (token.is_word(*_BEFORE_RELATION) or token.is_mark(",")):
                    continue
                path, end = path_at(level, at + 1)
                if not path or (end < len(level) and level[end].kind == "group" and not token.is_word("into")):
                    continue
                if end < len(level) and level[end].is_word("as"):
                    end += 1
                if not token.is_mark(","):
                    found.setdefault(path[-1], []).append(path)
                if end < len(level) and level[end].is_name:
                    found.setdefault(level[end].text, []).append(path)
        return found

    @cached_property
    def places_of_ctes(self) -> dict[int, tuple[Level, int]]:
        """Level of the query of a common table expression → the level with its name, and the place of the name."""
        found: dict[int, tuple[Level, int]] = {}
        for level in self.levels:
            for at in range(len(level)):
                _, end = cte_at(level, at)
                if end > at:
                    found[level[end].level] = level, at
        return found

    def row(self, name: str) -> Shape | None:
        """Return the shape of the variable *name*, if it is one for rows."""
        if name in self.declared:
            return self.relation(self.declared[name])
        return self.variables.get(name)

    def is_query(self, token: SqlToken) -> bool:
        """Return True if *token* is a query in parentheses."""
        return token.kind == "group" and self.shapes[token.level] is not None

    def inside(self, token: SqlToken) -> Level:
        """Return the tokens of a group."""
        return self.levels[token.level]


def path_at(tokens: Level, at: int) -> tuple[Path, int]:
    """Return the path at a place, and the place after it; an empty path if there is no name."""
    names: list[str] = []
    while at < len(tokens) and tokens[at].is_name:
        names.append(tokens[at].text)
        if not (at + 2 < len(tokens) and tokens[at + 1].is_mark(".") and tokens[at + 2].is_name):
            return tuple(names), at + 1
        at += 2
    return tuple(names), at


def cte_at(tokens: Level, at: int) -> tuple[SqlToken | None, int]:
    """Return the list of columns of the common table expression whose name is at a place, and the place of its query.

    The place is *at* if there is none.
    """
    follows = at == 0 or tokens[at - 1].is_word("with", "recursive") or tokens[at - 1].is_mark(",")
    if not tokens[at].is_name or not follows:
        return None, at
    names, end = None, at + 1
    if end < len(tokens) and tokens[end].kind == "group":
        names, end = tokens[end], end + 1
    if end >= len(tokens) or not tokens[end].is_word("as"):
        return None, at
    end += 1
    while end < len(tokens) and tokens[end].is_word("not", "materialized"):
        end += 1
    is_query = end < len(tokens) and tokens[end].kind == "group"
    return (names, end) if is_query else (None, at)


def is_alias(tokens: Level, at: int) -> bool:
    """Return True if the name at a place is given to what precedes it, with or without AS."""
    before = tokens[at - 1] if at else None
    if before is None:
        return False
    if before.kind == "group":
        return not (at > 2 and tokens[at - 2].is_word("on") and tokens[at - 3].is_word("distinct"))
    is_path = before.is_name and at > 1 and tokens[at - 2].is_mark(".")
    return is_path or before.kind in ("name", "text", "number") or before.is_word("as", "end")


def is_sorted_alias(tokens: Level, at: int) -> bool:
    """Return True if the name at a place stands alone in ORDER BY, where an alias of the same SELECT comes first."""
    before, after = tokens[at - 1] if at else None, tokens[at + 1] if at + 1 < len(tokens) else None
    if before is None or not (before.is_word("by") or before.is_mark(",")):
        return False
    if after is not None and not after.is_mark(",", ";") and not after.is_word(*_AFTER_ORDER):
        return False
    is_ordered = is_found = False
    for place in range(at - 1, -1, -1):
        token = tokens[place]
        if token.is_word("select") or token.is_mark(";") or (token.is_word(*_BEFORE_ORDER) and not is_ordered):
            break
        is_ordered = is_ordered or token.is_word("order")
        if token.is_word("from"):
            is_found = False  # the alias of a relation
        elif is_ordered and token.is_name and token.text == tokens[at].text and is_alias(tokens, place):
            is_found = True
    return is_found


def parts_of(tokens: Level, mark: str = ",") -> list[Level]:
    """Split *tokens* at each *mark*."""
    parts: list[Level] = []
    start = 0
    for at, token in enumerate(tokens):
        if token.is_mark(mark):
            parts.append(tokens[start:at])
            start = at + 1
    return [*parts, tokens[start:]]
