"""Find where a program names the column that is dropped."""

from __future__ import annotations

from sqlalchemy_public_id.migrations.stored_code.scope import Path, Scope, parts_of, path_at
from sqlalchemy_public_id.migrations.stored_code.tokens import Level


def find_names(scope: Scope) -> bool:
    """Return True if the program names the column of the table, and not a column of another relation."""
    mentioned = [_mentions(scope, level) for level in scope.levels]
    outer = _outer_levels(scope)
    for number, level in enumerate(scope.levels):
        for statement in parts_of(level, ";"):
            is_near = _mentions(scope, statement) or any(mentioned[each] for each in outer[number])
            for at, token in enumerate(statement):
                if not token.is_name or token.text != scope.change.column or _is_other(scope, statement, at):
                    continue
                qualifier = _qualifier(statement, at)
                if qualifier is None:
                    owner = _list_of(scope, number)
                    is_column = scope.change.column not in scope.names or owner is not None or _is_set(statement, at)
                    if is_near and is_column and (owner is None or scope.is_ours(owner)):
                        return True
                elif qualifier in scope.relations:
                    if any(map(scope.is_ours, scope.relations[qualifier])):
                        return True
                elif (row := scope.row(qualifier)) is not None:
                    if row.changes:
                        return True
                elif scope.is_ours((qualifier,)) or qualifier in ("excluded",):
                    return True
    return False


def _qualifier(tokens: Level, at: int) -> str | None:
    if at > 1 and tokens[at - 1].is_mark("."):
        inside = tokens[at - 2]
        return inside.text if inside.is_name else ""
    return None


def _is_other(scope: Scope, tokens: Level, at: int) -> bool:
    """Return True if the name is not that of a column: of a function, an alias, or what qualifies another name."""
    following = tokens[at + 1] if at + 1 < len(tokens) else None
    is_call = following is not None and (following.kind == "group" or following.is_mark("."))
    return is_call or (at > 0 and tokens[at - 1].is_word("as"))


def _mentions(scope: Scope, tokens: Level) -> bool:
    """Return True if *tokens* name the table as a relation."""
    for at, token in enumerate(tokens):
        if token.is_name and not (at and tokens[at - 1].is_mark(".")):
            path, _ = path_at(tokens, at)
            if scope.is_ours(path) or scope.is_ours(path[:-1] or path):
                return True
    return False


def _outer_levels(scope: Scope) -> list[list[int]]:
    """Return, for each level, the levels around it that are part of the same statement."""
    parent: dict[int, int] = {}
    for number, level in enumerate(scope.levels):
        for token in level:
            if token.level >= 0:
                parent[token.level] = number
    outer: list[list[int]] = []
    for number in range(len(scope.levels)):
        around: list[int] = []
        place: int | None = parent.get(number)
        while place is not None and len(around) < 20:
            if any(token.is_mark(";") for token in scope.levels[place]):
                break
            around.append(place)
            place = parent.get(place)
        outer.append(around)
    return outer


def _is_set(tokens: Level, at: int) -> bool:
    """Return True if an UPDATE sets the name, which cannot be that of a variable."""
    return (
        0 < at < len(tokens) - 1
        and tokens[at + 1].is_mark("=")
        and (tokens[at - 1].is_word("set") or tokens[at - 1].is_mark(","))
    )


def _list_of(scope: Scope, number: int) -> Path | None:
    """Return the relation of the INSERT whose list of columns the level is, if it is one."""
    for level in scope.levels:
        for at, token in enumerate(level):
            if token.level == number and at > 1:
                back = at - 1
                while back > 0 and (level[back - 1].is_mark(".") or level[back].is_mark(".")):
                    back -= 1
                path, _ = path_at(level, back)
                return path if level[back - 1].is_word("into") and path else None
    return None
