"""Read a stored program, and find the statements that a migration of a table breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy_public_id.migrations.stored_code.naming import find_names
from sqlalchemy_public_id.migrations.stored_code.scope import BrokenStatement, Language, Path, Program, Scope, parts_of
from sqlalchemy_public_id.migrations.stored_code.shapes import Change, Shape
from sqlalchemy_public_id.migrations.stored_code.statements import (
    check_returned,
    read_ctes,
    read_declaration,
    read_statement,
)
from sqlalchemy_public_id.migrations.stored_code.tokens import Level

_BEGINS_QUERY = ("select", "values", "with", "table", "insert", "update", "delete")


@dataclass(frozen=True)
class StoredCode:
    """What was found in the code that a database stores."""

    by_position: tuple[BrokenStatement, ...] = ()
    """The statements that would fail, or store values in other columns."""
    by_name: tuple[str, ...] = ()
    """The programs that name the column that is dropped."""
    not_examined: tuple[str, ...] = ()
    """What could not be read, each with the reason."""
    elsewhere: tuple[str, ...] = ()
    """What is never read on this kind of server, which a plan says, but not each operation."""


@dataclass(frozen=True)
class Reader:
    """Reads the programs of one database for one change of a table."""

    language: Language
    change: Change
    table: Shape
    is_ours: Callable[[Path], bool]
    columns_of: Callable[[Path], Sequence[str] | None]
    returned_by: Mapping[str, Shape]

    def read(self, programs: Iterable[Program]) -> StoredCode:
        """Return what the *programs* have."""
        by_position: list[BrokenStatement] = []
        by_name: list[str] = []
        not_examined: list[str] = []
        left = [*programs]
        while left:
            program = left.pop(0)
            scope = self.scope(program)
            for number, level in enumerate(scope.levels):
                scope.shapes.append(_read_level(scope, level))
                read_ctes(scope, number)
            by_position += [finding for finding in scope.findings if finding not in by_position]
            if not self.change.adds and program.name not in by_name and find_names(scope):
                by_name.append(program.name)
            for sentence in self._sentences(scope):
                if sentence is not None:
                    left.insert(0, sentence)
                elif program.name not in not_examined:
                    not_examined.append(program.name)
        reasons = tuple(f"{name}, which executes SQL that it builds as a string" for name in not_examined)
        return StoredCode(tuple(by_position), tuple(by_name), reasons)

    def scope(self, program: Program) -> Scope:
        """Return what is known at the beginning of a *program*."""
        return Scope(
            program,
            self.language,
            self.change,
            self.table,
            lambda path: bool(path) and self.is_ours(path),
            self.columns_of,
            self.returned_by,
        )

    def _sentences(self, scope: Scope) -> Iterable[Program | None]:
        """Yield a program for each constant that is executed as SQL, and None for any other string."""
        for level in scope.levels:
            for statement in parts_of(level, ";"):
                for at, _token in enumerate(statement):
                    if not _executes(statement, at):
                        continue
                    rest = statement[at + 1 :]
                    if rest and rest[0].kind == "text" and (len(rest) == 1 or rest[1].is_word("using", "into")):
                        given = _arguments(scope, rest)
                        program = scope.program
                        yield replace(
                            program, text=rest[0].text, variables={**given}, returns=None, ends_with_query=False
                        )
                    else:
                        yield None


def _executes(statement: Level, at: int) -> bool:
    token, following = statement[at], statement[at + 1] if at + 1 < len(statement) else None
    if following is None or (at and statement[at - 1].is_mark(".")):
        return False
    if token.is_word("prepare"):
        return True
    return token.is_word("execute") and following.kind in ("text", "name", "word", "group", "variable")


def _arguments(scope: Scope, rest: Level) -> dict[str, Shape]:
    """Return the rows after USING, by the names ``$1`` and so on."""
    place = next((at for at, token in enumerate(rest) if token.is_word("using")), None)
    if place is None:
        return {}
    parts = [part[0] for part in parts_of(rest[place + 1 :]) if part]
    rows = {f"${number}": scope.row(token.text) for number, token in enumerate(parts, 1)}
    return {name: row for name, row in rows.items() if row is not None}


def _read_level(scope: Scope, level: Level) -> Shape | None:
    """Read all statements of a level, and return its shape if it is one query."""
    found: Shape | None = None
    last: Level = level
    declares = False
    for statement in parts_of(level, ";"):
        if not statement:
            continue
        last = statement
        starts = next((at for at, token in enumerate(statement[:4]) if token.is_word("declare")), None)
        declares = starts is not None or (declares and not statement[0].is_word("begin"))
        if declares:
            read_declaration(scope, statement[starts or 0 :])
        found = read_statement(scope, statement)
    if found is None:
        return None
    if scope.program.ends_with_query and level is scope.levels[-1]:
        check_returned(scope, last[0], found)
    return found if level[0].is_word(*_BEGINS_QUERY) or level[0].kind == "group" else None
