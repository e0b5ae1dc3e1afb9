"""Read the statements of a program that store rows by position: INSERT, SELECT … INTO, assignments and comparisons."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy_public_id.migrations.stored_code.queries import (
    RowSource,
    read_query,
    read_sources,
    renamed,
    row_of,
)
from sqlalchemy_public_id.migrations.stored_code.scope import Path, Scope, cte_at, parts_of, path_at
from sqlalchemy_public_id.migrations.stored_code.shapes import UNKNOWN, Shape, misfit
from sqlalchemy_public_id.migrations.stored_code.tokens import Level, SqlToken

_QUERY = ("select", "values", "value", "table", "perform")
_MODIFIERS = ("ignore", "low_priority", "delayed", "high_priority", "overwrite")
_CONTROL = ("begin", "then", "else", "loop", "declare")
_SCALARS = {
    "int", "integer", "bigint", "smallint", "numeric", "text", "varchar", "boolean", "bool", "record", "date", "uuid",
    "timestamp", "timestamptz", "json", "jsonb", "name", "character", "char", "double", "real", "cursor", "refcursor",
}  # fmt: skip


def read_statement(scope: Scope, tokens: Level) -> Shape | None:
    """Read one statement, and return the shape of its last query."""
    result: Shape | None = None
    at = begin = 0  # begin: after the common table expressions
    while at < len(tokens):
        token, following = tokens[at], tokens[at + 1] if at + 1 < len(tokens) else None
        is_compound = following is not None and following.is_word("union", "intersect", "except", "minus")
        if (after := _read_cte(scope, tokens, at)) > at:
            at = begin = after
        elif token.is_word("insert", "replace") and following is not None and _is_insert(tokens, at):
            result, at = _read_insert(scope, tokens, at)
        elif (
            token.is_word("select", "perform")
            or (token.is_word("values", "table") and at == begin)
            or (token.is_word("table") and tokens[at - 1].is_word("in", "for", "query"))
            or (is_compound and scope.is_query(token))
        ):
            query = read_query(scope, tokens, at)
            _use(scope, tokens, at, query.shape, query.targets)
            result, at = query.shape, query.end
        elif token.is_word("update", "delete") and following is not None and _is_change(tokens, at):
            result, at = _read_change(scope, tokens, at)
        elif token.is_word("fetch"):
            at = _read_fetch(scope, tokens, at)
        elif token.is_word("copy"):
            _read_copy(scope, tokens, at)
            at += 1
        elif token.is_word("return") and following is not None:
            _read_return(scope, tokens, at)
            at += 1
        else:
            _read_small(scope, tokens, at)
            at += 1
    return result


def store(scope: Scope, start: SqlToken, shape: Shape, targets: Sequence[Path]) -> None:
    """Store a row of *shape* in the variables *targets*."""
    name = targets[0][0] if len(targets) == 1 and len(targets[0]) == 1 else None
    if name is not None and (name in scope.declared or name in scope.program.variables):
        row = scope.row(name) or UNKNOWN
        problem = misfit(shape, row, "any", scope.change)
        gained = [place for value, place in zip(shape.after, row.after, strict=False) if value not in shape.before]
        lost = [place for value, place in zip(shape.before, row.before, strict=False) if value not in shape.after]
        if len(gained + lost) == 1 and _is_assigned(scope, (name, *gained, *lost), start):
            problem = None
        is_whole = row.changes and not shape.changes and len(shape.before) == len(row.before) and not shape.is_open
        if problem is None and is_whole and scope.change.adds:
            problem = f"{scope.change.column} of the row would be NULL"
        scope.find(start, problem)
    elif name is not None and (scope.language.selects_into == "any" or len(shape.before) != 1):
        if scope.language.selects_into == "equal" and name not in scope.variables:
            scope.find(start, misfit(shape, Shape.fixed([name]), "equal", scope.change))
        scope.variables[name] = shape
    elif targets:
        names = [".".join(target) for target in targets]
        scope.find(start, misfit(shape, Shape.fixed(names), scope.language.selects_into, scope.change))


def _is_assigned(scope: Scope, field: Path, start: SqlToken) -> bool:
    """Return True if the *field* of a variable gets another value after *start*."""
    for level in scope.levels:
        for at, token in enumerate(level):
            path, end = path_at(level, at)
            if token.start > start.start and path == field:
                return end < len(level) and level[end].is_mark(":=", "=")
    return False


def _use(scope: Scope, tokens: Level, at: int, shape: Shape, targets: Sequence[Path]) -> None:
    """Use the rows of the query at a place as the words before it say, or the INTO inside of it."""
    before = tokens[:at]
    words = [token.text if token.is_name else "" for token in before]
    if targets:
        store(scope, tokens[at], shape, targets)
    elif words[-2:] == ["return", "query"]:
        check_returned(scope, tokens[at], shape)
    elif words and words[-1] == "in" and "for" in words:
        start = len(words) - 1 - words[::-1].index("for")
        names = [path_at(part, 0)[0] for part in parts_of(tokens[start + 1 : at - 1])]
        if all(names):
            store(scope, tokens[at], shape, names)
    elif words and words[-1] in ("for", "is"):
        name = next((word for word in reversed(words) if word not in _AROUND_CURSOR), "")
        scope.cursors[name] = shape


_AROUND_CURSOR = ("for", "is", "cursor", "scroll", "no", "insensitive", "asensitive", "")


def check_returned(scope: Scope, start: SqlToken, shape: Shape) -> None:
    """Compare the rows that a program returns with those that it has declared."""
    returns = scope.program.returns
    if returns is None or (len(shape.after) == 1 and not shape.is_open):
        return  # one value may be a whole row
    if len(shape.before) == len(returns.before) or shape.is_open or returns.is_open:
        scope.find(start, misfit(shape, returns, "equal", scope.change))


# --- INSERT


def _is_insert(tokens: Level, at: int) -> bool:
    following = tokens[at + 1]
    is_merge = at > 0 and tokens[at - 1].is_word("then") and any(token.is_word("merge") for token in tokens[:at])
    is_name = following.is_name and not following.is_word("or", "on", "then", "is", "and")
    return (following.kind == "group" and is_merge) or (is_name and not tokens[at - 1 if at else 0].is_mark("."))


def _read_insert(scope: Scope, tokens: Level, at: int) -> tuple[Shape | None, int]:
    start = tokens[at]
    path: Path = ()
    at += 1
    while at < len(tokens) and tokens[at].is_word(*_MODIFIERS, "into"):
        at += 1
    if at < len(tokens) and not tokens[at].is_word("values") and tokens[at].kind != "group":
        path, at = path_at(tokens, at)
    else:
        merged = next((place for place, token in enumerate(tokens) if token.is_word("merge")), at - 2)
        path, _ = path_at(tokens, merged + 2)
    if at + 1 < len(tokens) and tokens[at].is_word("as") and tokens[at + 1].is_name:
        at += 2
    if at + 1 < len(tokens) and tokens[at].is_word("partition") and tokens[at + 1].kind == "group":
        at += 2
    columns: list[str] | None = None
    if at < len(tokens) and tokens[at].kind == "group" and not scope.is_query(tokens[at]):
        columns = [part[-1].text for part in parts_of(scope.inside(tokens[at])) if part]
        at += 1
    if at < len(tokens) and tokens[at].is_word("overriding"):
        at += 3  # OVERRIDING USER VALUE
    while at < len(tokens) and tokens[at].is_word("with", "recursive"):
        at += 1
    while at < len(tokens) and (after := _read_cte(scope, tokens, at)) > at:
        at = after + 1 if after < len(tokens) and tokens[after].is_mark(",") else after
    target = scope.relation(path)
    if at < len(tokens) and (tokens[at].is_word(*_QUERY) or scope.is_query(tokens[at])):
        query = read_query(scope, tokens, at)
        at = query.end
        if not (path and path[-1] in scope.creates):
            _check_insert(scope, start, path, columns, query.shape, target)
    return _read_returning(scope, tokens, at, [RowSource(path[-1] if path else "", target)])


def _check_insert(
    scope: Scope, start: SqlToken, path: Path, columns: Sequence[str] | None, source: Shape, target: Shape
) -> None:
    if columns is not None:
        scope.find(start, misfit(source, Shape.fixed(columns), "equal", scope.change) if columns else None)
        return
    name = ".".join(path)
    problem = misfit(source, target, scope.language.inserts, scope.change)
    if target.is_open and problem is not None:
        problem = f"it stores all columns by position in {name}, whose columns are not known"
    if problem is None and scope.is_ours(path) and scope.change.adds and source.changes:
        problem = f"{scope.change.column} would be copied, or NULL, and not generated"
    can_extend = (
        scope.change.adds
        and scope.language.inserts == "at most"
        and not target.changes
        and not source.is_open
        and len(source.before) == len(target.before)
        and source.after[:-1] == source.before
    )
    scope.find(start, problem, name if can_extend else "")


# --- UPDATE, DELETE and what they return


def _is_change(tokens: Level, at: int) -> bool:
    following = tokens[at + 1]
    if tokens[at].is_word("delete"):
        return following.is_word("from") or (following.is_name and not following.is_word("or", "then"))
    return following.is_name and any(token.is_word("set") for token in tokens[at + 1 :])


def _read_change(scope: Scope, tokens: Level, at: int) -> tuple[Shape | None, int]:
    is_delete = tokens[at].is_word("delete")
    stops = ("where", "returning", "using") if is_delete else ("set",)
    begin = at + 2 if is_delete and tokens[at + 1].is_word("from") else at + 1
    if any(token.is_word("merge") for token in tokens[:at]):  # whose other parts follow
        tokens = tokens[: next((p for p in range(begin, len(tokens)) if tokens[p].is_word("when")), len(tokens))]
    end = next((p for p in range(begin, len(tokens)) if tokens[p].is_word(*stops)), len(tokens))
    sources = read_sources(scope, tokens[begin:end])
    more = "using" if is_delete else "from"
    if (place := next((p for p in range(end, len(tokens)) if tokens[p].is_word(more)), None)) is not None:
        last = next((p for p in range(place, len(tokens)) if tokens[p].is_word("where", "returning")), len(tokens))
        sources += read_sources(scope, tokens[place + 1 : last])
    returning = next((p for p in range(end, len(tokens)) if tokens[p].is_word("returning")), len(tokens))
    for place in range(end, returning):
        _read_small(scope, tokens, place)
    return _read_returning(scope, tokens, returning, sources)


def _read_returning(scope: Scope, tokens: Level, at: int, sources: Sequence[RowSource]) -> tuple[Shape | None, int]:
    place = next((p for p in range(at, len(tokens)) if tokens[p].is_word("returning", "insert", "select")), None)
    if place is None or not tokens[place].is_word("returning"):
        return None, at
    stop = next((p for p in range(place, len(tokens)) if tokens[p].is_word("into", "loop", "union")), len(tokens))
    shape = row_of(scope, parts_of(tokens[place + 1 : stop]), sources)
    if stop < len(tokens) and tokens[stop].is_word("into"):
        skip = 2 if stop + 1 < len(tokens) and tokens[stop + 1].is_word("strict") else 1
        targets = [path_at(part, 0)[0] for part in parts_of(tokens[stop + skip :])]
        if targets and all(targets):
            store(scope, tokens[at - 1 if at else 0], shape, targets)
    elif any(a.is_word("return") and b.is_word("query") for a, b in itertools.pairwise(tokens)):
        check_returned(scope, tokens[place], shape)
    return shape, stop


# --- other statements


def _read_cte(scope: Scope, tokens: Level, at: int) -> int:
    """Return the place after the common table expression that begins at a place, or the place if there is none."""
    names, end = cte_at(tokens, at)
    if end == at or scope.shapes[tokens[end].level] is None:
        return at
    shape = scope.shapes[tokens[end].level] or UNKNOWN
    scope.ctes[tokens[at].text] = shape if names is None else renamed(scope, shape, names)
    return end + 1


def read_ctes(scope: Scope, level: int) -> None:
    """Note the query in the group *level* if it is a common table expression: those that follow may read it."""
    if level in scope.places_of_ctes:
        _read_cte(scope, *scope.places_of_ctes[level])


def _read_fetch(scope: Scope, tokens: Level, at: int) -> int:
    into = next((place for place in range(at, len(tokens)) if tokens[place].is_word("into")), None)
    if into is None:
        return at + 1
    cursor = scope.cursors.get(tokens[into - 1].text)
    targets = [path_at(part, 0)[0] for part in parts_of(tokens[into + 1 :])]
    if cursor is not None and targets and all(targets):
        store(scope, tokens[at], cursor, targets)
    return len(tokens)


def _read_copy(scope: Scope, tokens: Level, at: int) -> None:
    path, end = path_at(tokens, at + 1)
    if path and scope.is_ours(path) and end < len(tokens) and tokens[end].is_word("from"):
        scope.find(tokens[at], "the rows that it reads have other columns")


def _read_return(scope: Scope, tokens: Level, at: int) -> None:
    place = at + 1
    while place < len(tokens) and tokens[place].is_word("next", "row"):
        place += 1
    if place < len(tokens) and tokens[place].kind == "group" and scope.shapes[tokens[place].level] is None:
        items = parts_of(scope.inside(tokens[place]))
        if len(items) > 1:
            check_returned(scope, tokens[at], row_of(scope, items))


def _read_small(scope: Scope, tokens: Level, at: int) -> None:
    """Read a declaration, an assignment, a comparison of rows or a cast to a row type at a place."""
    token = tokens[at]
    if token.kind == "group":
        _read_comparison(scope, tokens, at)
        _read_cast(scope, tokens, at)
    elif token.is_word("table") and at and tokens[at - 1].is_word("create", "temp", "temporary", "unlogged"):
        place = at + 1
        while place < len(tokens) and tokens[place].is_word("if", "not", "exists"):
            place += 1
        path, _ = path_at(tokens, place)
        scope.creates.update(path[-1:])
    elif token.is_mark("%") and at + 1 < len(tokens) and tokens[at + 1].is_word("rowtype"):
        _declare(scope, tokens[:at])
    elif token.is_word("row") and [it.text for it in tokens[at + 1 : at + 3]] == ["type", "of"] and at:
        path, _ = path_at(tokens, at + 3)
        scope.declared[tokens[at - 1].text] = path
    elif token.is_mark(":=", "=") and _is_assignment(tokens, at):
        _assign(scope, tokens, at)
    elif token.is_word("in") and at > 1 and tokens[at - 2].is_word("for") and at + 1 < len(tokens):
        cursor = scope.cursors.get(tokens[at + 1].text)
        if cursor is not None:
            store(scope, tokens[at - 2], cursor, [(tokens[at - 1].text,)])


def read_declaration(scope: Scope, tokens: Level) -> None:
    """Read a declaration of a variable in the language PL/pgSQL, if it is one for a row of a relation."""
    while tokens and tokens[0].is_word("declare"):
        tokens = tokens[1:]
    place = 2 if len(tokens) > 2 and tokens[1].is_word("constant") else 1
    if not tokens or not tokens[0].is_name or place >= len(tokens):
        return
    name = tokens[0].text
    scope.names.add(name)
    if tokens[place].is_word("alias") and place + 2 < len(tokens):
        if (row := scope.row(tokens[place + 2].text)) is not None:
            scope.variables[name] = row
        return
    path, end = path_at(tokens, place)
    is_row = end >= len(tokens) or tokens[end].is_mark(":=", "=") or tokens[end].is_word("default", "not")
    if path and is_row and path[-1] not in _SCALARS and (scope.is_ours(path) or scope.columns_of(path) is not None):
        scope.declared[name] = path


def _declare(scope: Scope, tokens: Level) -> None:
    begin = len(tokens) - 1
    while begin > 1 and tokens[begin - 1].is_mark("."):
        begin -= 2
    path, _ = path_at(tokens, begin)
    name = begin - 2 if begin > 1 and tokens[begin - 1].is_word("constant") else begin - 1
    if name >= 0:
        scope.declared[tokens[name].text] = path


def _is_assignment(tokens: Level, at: int) -> bool:
    if at == 0 or not tokens[at - 1].is_name or (at > 1 and tokens[at - 2].is_mark(".")):
        return False
    return tokens[at].is_mark(":=") or at == 1 or (at == 2 and tokens[0].is_word(*_CONTROL))


def _assign(scope: Scope, tokens: Level, at: int) -> None:
    name, value = tokens[at - 1].text, tokens[at + 1 :]
    if value and value[0].is_word("row"):
        value = value[1:]
    shape: Shape | None = None
    if len(value) == 1 and value[0].is_name:
        shape = scope.row(value[0].text)
    elif len(value) == 1 and value[0].kind == "group" and len(parts_of(scope.inside(value[0]))) > 1:
        shape = row_of(scope, parts_of(scope.inside(value[0])))
    if shape is not None:
        store(scope, tokens[at - 1], shape, [(name,)])


def _read_comparison(scope: Scope, tokens: Level, at: int) -> None:
    """Compare the numbers of values on both sides, as in ``SET (a, b) = (SELECT …)``."""
    before = at - 2 if tokens[at - 1].is_word("row") else at - 1
    if before < 0 or not (tokens[before].is_mark("=") or tokens[before].is_word("in", "any", "all", "some")):
        return
    query = scope.shapes[tokens[at].level]
    items = parts_of(scope.inside(tokens[at]))
    if query is None and not any(item and item[-1].is_mark("*") for item in items):
        return
    right = row_of(scope, items) if query is None else query
    while before and (tokens[before].is_mark("=") or tokens[before].is_word("in", "any", "all", "some", "not")):
        before -= 1
    left = tokens[before]
    if left.kind == "group":
        if any(token.is_mark("*") for token in scope.inside(left)):
            return  # the columns of both sides change
        size = len(parts_of(scope.inside(left)))
    else:
        size = 1
    if right.changes and not right.is_open and len(right.after) != size and len(right.before) == size:
        scope.find(tokens[before], f"{len(right.after)} values would meet {size} columns")


def _read_cast(scope: Scope, tokens: Level, at: int) -> None:
    if at + 2 > len(tokens) - 1 or not (tokens[at + 1].is_mark("::") or tokens[at + 1].is_word("as")):
        return
    path, end = path_at(tokens, at + 2)
    items = parts_of(scope.inside(tokens[at]))
    is_row = scope.shapes[tokens[at].level] is None and (len(items) > 1 or tokens[at - 1].is_word("row"))
    is_array = end < len(tokens) and tokens[end].kind == "index"
    if not path or not is_row or is_array or path[-1] in _SCALARS:
        return
    source, target = row_of(scope, items), scope.relation(path)
    if len(source.before) == len(target.before) and not target.is_open:
        scope.find(tokens[at], misfit(replace(source), target, "equal", scope.change))
