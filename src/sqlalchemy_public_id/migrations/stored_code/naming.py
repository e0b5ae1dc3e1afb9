"""Find where a program names the column that is dropped."""

from __future__ import annotations

from sqlalchemy_public_id.migrations.stored_code.scope import Path, Scope, is_alias, is_sorted_alias, parts_of, path_at
from sqlalchemy_public_id.migrations.stored_code.tokens import Level


def find_names(scope: Scope) -> bool:
    """Return True if the program names the column of the table, and not a column of another relation."""
    is_inside = _levels_inside(scope)
    for number, level in enumerate(scope.levels):
        for statement in parts_of(level, ";"):
            is_near = is_inside[number] or _mentions(scope, statement)
            for at, token in enumerate(statement):
                if not token.is_name or token.text != scope.change.column or _is_other(scope, statement, at):
                    continue
                qualifier = _qualifier(scope, statement, at)
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


def _qualifier(scope: Scope, tokens: Level, at: int) -> str | None:
    """Return what stands before the name, as in ``NEW.id``, ``(x).id`` or ``$1.id``: "" for any other expression."""
    if at < 2 or not tokens[at - 1].is_mark("."):
        return None
    inside = tokens[at - 2 : at - 1]
    if inside[0].kind == "group":
        inside = scope.inside(inside[0])
    return inside[0].text if len(inside) == 1 and inside[0].kind in ("word", "name", "variable") else ""


def _is_other(scope: Scope, tokens: Level, at: int) -> bool:
    """Return True if the name is not that of a column: of a function, an alias, or what qualifies another name."""
    following = tokens[at + 1] if at + 1 < len(tokens) else None
    is_call = following is not None and (following.kind == "group" or following.is_mark("."))
    return is_call or is_alias(tokens, at) or is_sorted_alias(tokens, at)


def _mentions(scope: Scope, tokens: Level) -> bool:
    """Return True if *tokens* name the table as a relation."""
    for at, token in enumerate(tokens):
        if token.is_name and not (at and tokens[at - 1].is_mark(".")):
            path, _ = path_at(tokens, at)
            if scope.is_ours(path) or scope.is_ours(path[:-1] or path):
                return True
    return False


def _levels_inside(scope: Scope) -> list[bool]:
    """Return, for each level, whether it is inside of a statement that names the table as a relation."""
    # level → the level around it, or -1 if it has other statements as well; whether the statement names the table there
    around: dict[int, tuple[int, bool]] = {}
    for number, level in enumerate(scope.levels):
        statements = parts_of(level, ";")
        outer = number if len(statements) == 1 else -1
        for statement in statements:
            groups = [token.level for token in statement if token.level >= 0]
            if groups:
                around |= dict.fromkeys(groups, (outer, _mentions(scope, statement)))
    found = [False] * len(scope.levels)
    for number in reversed(range(len(scope.levels))):  # inner levels come first
        outer, is_named = around.get(number, (-1, False))
        found[number] = is_named or (outer >= 0 and found[outer])
    return found


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
