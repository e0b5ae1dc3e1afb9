"""Read a query: the relations after FROM, the values after SELECT, and the parts of a UNION."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy_public_id.migrations.stored_code.scope import Path, Scope, is_alias, is_sorted_alias, parts_of, path_at
from sqlalchemy_public_id.migrations.stored_code.shapes import UNKNOWN, Shape, joined
from sqlalchemy_public_id.migrations.stored_code.tokens import Level, SqlToken

_COMPOUND = ("union", "intersect", "except", "minus")
_CLAUSES = ("from", "where", "group", "having", "window", "order", "limit", "offset", "fetch", "for", "procedure")
_ENDS = (*_COMPOUND, "loop", "returning")
_BEFORE_VALUES = ("all", "distinct", "distinctrow", "high_priority", "straight_join", "sql_calc_found_rows", "strict")
_NO_ALIAS = (
    *_CLAUSES, *_ENDS, "join", "inner", "left", "right", "full", "cross", "natural", "on", "using", "straight_join",
    "tablesample", "partition", "force", "use", "ignore", "set", "values", "select", "default", "into", "as", "with",
    "when", "then", "do",
)  # fmt: skip
_JOINS = ("join", "straight_join")


@dataclass(frozen=True)
class RowSource:
    """A relation after FROM."""

    name: str
    shape: Shape
    merged: tuple[str, ...] = ()
    """The columns that ``USING`` merges with those of earlier relations."""
    is_natural: bool = False


@dataclass
class Select:
    """A query without UNION."""

    start: SqlToken
    shape: Shape = UNKNOWN
    sources: Sequence[RowSource] = ()
    targets: list[Path] = field(default_factory=list[Path])
    """The variables after INTO."""
    end: int = 0


def read_sources(scope: Scope, tokens: Level) -> list[RowSource]:
    """Return the relations that *tokens*, which follow FROM or UPDATE, name in their order."""
    sources: list[RowSource] = []
    at, is_expected, is_natural = 0, True, False
    while at < len(tokens):
        token = tokens[at]
        if token.is_word("natural"):
            is_natural = True
        if token.is_mark(",") or token.is_word(*_JOINS):
            is_expected, at = True, at + 1
        elif token.is_word("using") and at + 1 < len(tokens) and tokens[at + 1].kind == "group" and sources:
            names = tuple(part.text for part in scope.inside(tokens[at + 1]) if part.is_name)
            sources[-1] = replace(sources[-1], merged=names)
            at += 2
        elif is_expected and (token.is_name or token.kind == "group"):
            if token.is_word("only", "lateral", "rows", "from") and at + 1 < len(tokens):
                at += 1
                continue
            found, at = _read_source(scope, tokens, at)
            sources += [replace(found[0], is_natural=is_natural), *found[1:]] if found else []
            is_expected = is_natural = False
        else:
            at += 1
    return sources


def _read_source(scope: Scope, tokens: Level, at: int) -> tuple[list[RowSource], int]:
    token, name, inner = tokens[at], "", list[RowSource]()
    if token.kind == "group":
        shape = scope.shapes[token.level]
        if shape is None:  # a join in parentheses
            inner = read_sources(scope, scope.inside(token))
            shape = UNKNOWN
        at += 1
    else:
        path, at = path_at(tokens, at)
        name = path[-1] if path else ""
        if at < len(tokens) and tokens[at].kind == "group":
            shape, at = composite(scope, tokens, at, name), at + 1
        else:
            shape = scope.relation(path)
    if at < len(tokens) and tokens[at].is_word("as"):
        at += 1
    if at < len(tokens) and tokens[at].is_name and not tokens[at].is_word(*_NO_ALIAS):
        name, at = tokens[at].text, at + 1
    if at < len(tokens) and tokens[at].kind == "group" and not inner:
        shape, at = renamed(scope, shape, tokens[at]), at + 1
    return inner or [RowSource(name, shape)], at


def renamed(scope: Scope, shape: Shape, names: SqlToken) -> Shape:
    """Return *shape* with the *names* in parentheses, of which PostgreSQL allows fewer than there are columns."""
    columns = [part[0].text for part in parts_of(scope.inside(names)) if part and part[0].is_name]
    if scope.language.inserts == "equal" and shape.changes and not shape.is_open:
        problem = f"{len(shape.after)} columns would meet {len(columns)} names"
        scope.find(names, problem if len(shape.after) != len(columns) else None)
    new = dict(zip(shape.before, columns, strict=False))
    return replace(
        shape,
        before=tuple(new.get(name, name) for name in shape.before),
        after=tuple(new.get(name, name) for name in shape.after),
    )


def composite(scope: Scope, tokens: Level, at: int, function: str = "") -> Shape:
    """Return the columns of the value in the group at a place: of a variable, of a cast, or of a function's result."""
    inside = scope.inside(tokens[at])
    if function in scope.returned_by:
        return scope.returned_by[function]
    if not function and len(inside) == 1 and inside[0].kind in ("word", "name", "variable"):
        return scope.row(inside[0].text) or (scope.table if scope.is_ours((inside[0].text,)) else UNKNOWN)
    if not function and len(inside) > 1 and inside[-1].kind == "group" and inside[-2].is_name:
        return composite(scope, inside, len(inside) - 1, inside[-2].text)  # the call of a function in parentheses
    for place, token in enumerate(inside):
        # such as json_populate_record(NULL::invoice, …)
        if token.is_mark("::") or token.is_word("as"):
            path, end = path_at(inside, place + 1)
            if path and scope.is_ours(path) and not (end < len(inside) and inside[end].kind == "index"):
                return scope.table
    if len(inside) > 1 and inside[0].is_name and inside[1].is_mark(",") and function.endswith(("record", "recordset")):
        return scope.row(inside[0].text) or UNKNOWN  # such as jsonb_populate_record(NEW, …)
    return UNKNOWN


def all_columns(scope: Scope, sources: Sequence[RowSource], star: SqlToken) -> Shape:
    """Return what ``*`` stands for."""
    shapes: list[Shape] = []
    for place, source in enumerate(sources):
        merged = set(source.merged)
        if source.is_natural:
            others = joined(it.shape for it in sources[:place])
            _compare_naturally(scope, source.shape, others, star)
            merged = {*source.shape.before} & {*others.before}
        shapes.append(
            Shape(
                tuple(name for name in source.shape.before if name not in merged),
                tuple(name for name in source.shape.after if name not in merged),
                source.shape.is_open,
            )
        )
    return joined(shapes) if sources else UNKNOWN


def _compare_naturally(scope: Scope, one: Shape, other: Shape, token: SqlToken) -> None:
    column = scope.change.column
    is_in_both = column in one.after and column in other.after
    may_be_in_both = column in (*one.after, *other.after) and (one.is_open or other.is_open)
    if (one.changes or other.changes) and scope.change.adds and (is_in_both or may_be_in_both):
        scope.find(token, f"NATURAL JOIN would also compare {column}")


def row_of(scope: Scope, items: Sequence[Level], sources: Sequence[RowSource] = ()) -> Shape:
    """Return the shape of the *items* of a list after SELECT, VALUES or ROW."""
    shapes: list[Shape] = []
    for number, item in enumerate(items):
        if item and item[-1].is_mark("*") and (len(item) == 1 or item[-2].is_mark(".")):
            shapes.append(_star(scope, item, sources))
        elif item and item[-1].is_mark("..."):  # the statistics of MySQL shorten a list
            shapes.append(UNKNOWN)
        elif item:
            label = item[-1].text if item[-1].is_name and (len(item) == 1 or item[-2].is_mark(".")) else f"#{number}"
            shapes.append(Shape.fixed([label]))
    if len(shapes) == 1:
        return shapes[0]
    return joined(shapes)


def _star(scope: Scope, item: Level, sources: Sequence[RowSource]) -> Shape:
    if len(item) == 1:
        return all_columns(scope, sources, item[0])
    if item[0].kind == "group":
        inside = scope.inside(item[0])
        named = [source for source in sources if len(inside) == 1 and inside[0].text == source.name]
        return named[0].shape if named else composite(scope, item, 0)
    if len(item) > 3 and item[-3].kind == "group":
        return composite(scope, item, len(item) - 3, item[-4].text)
    if item[0].kind == "variable":
        return scope.row(item[0].text) or UNKNOWN
    path, _ = path_at(item, 0)
    for source in sources:
        if path and source.name == path[-1]:
            return source.shape
    if len(path) == 1 and (row := scope.row(path[0])) is not None:
        return row
    # an alias of another part of the statement, such as MERGE
    paths = [path, *scope.relations.get(path[-1], ())] if path else []
    return scope.table if any(map(scope.is_ours, paths)) else UNKNOWN


def read_select(scope: Scope, tokens: Level, at: int) -> Select:
    """Read the SELECT at a place, until the next part of a UNION or the end of the statement."""
    select = Select(tokens[at])
    at += 1
    if at < len(tokens) and tokens[at].is_word("into"):
        select.targets, at = _read_targets(tokens, at + 1)
    while at < len(tokens) and tokens[at].is_word(*_BEFORE_VALUES):
        at += 1
    if at + 1 < len(tokens) and tokens[at].is_word("on") and tokens[at + 1].kind == "group":
        at += 2  # DISTINCT ON (…)
    start, clause, places, cases = at, "select", {}, 0
    places = {"select": [start, start]}
    while at < len(tokens) and not _is_end(tokens, at, cases):
        token = tokens[at]
        cases += 1 if token.is_word("case") else -1 if token.is_word("end") and cases else 0
        is_compared = token.is_word("from") and tokens[at - 1].is_word("distinct") and at - 1 > start
        if token.is_word("into"):
            select.targets, after = _read_targets(tokens, at + 1)
            if clause == "select":
                clause = "into"
            at = after
            continue
        if token.is_word(*_CLAUSES) and not is_compared and not cases:
            clause = token.text
            places.setdefault(clause, [at + 1, at + 1])
        elif clause in places:
            places[clause][1] = at + 1
        at += 1
    first, last = places.get("from", [0, 0])
    select.sources = read_sources(scope, tokens[first:last])
    first, last = places["select"]
    select.shape = row_of(scope, parts_of(tokens[first:last]), select.sources)
    select.end = at
    _check_names(scope, select, tokens[start:at])
    return select


def _is_end(tokens: Level, at: int, cases: int) -> bool:
    token = tokens[at]
    is_conflict = token.is_word("on") and at + 1 < len(tokens) and tokens[at + 1].is_word("conflict", "duplicate")
    return token.is_word(*_ENDS) or token.is_mark(";") or is_conflict or (not cases and token.is_word("then", "do"))


def _read_targets(tokens: Level, at: int) -> tuple[list[Path], int]:
    targets: list[Path] = []
    path: Path
    if at < len(tokens) and tokens[at].is_word("strict"):
        at += 1
    while at < len(tokens):
        if tokens[at].kind == "variable":
            path, at = (tokens[at].text,), at + 1
        else:
            path, at = path_at(tokens, at)
        if path:
            targets.append(path)
        while at < len(tokens) and tokens[at].kind == "index":
            at += 1
        if not path or at >= len(tokens) or not tokens[at].is_mark(","):
            break
        at += 1
    return targets, at


def _check_names(scope: Scope, select: Select, tokens: Level) -> None:
    """Find a name that is that of a column of the table from now on, and was that of something else."""
    if not scope.change.adds or not any(source.shape.changes for source in select.sources):
        return
    for at, token in enumerate(tokens):
        before, after = tokens[at - 1] if at else None, tokens[at + 1] if at + 1 < len(tokens) else None
        if not token.is_name or token.text != scope.change.column:
            continue
        is_qualified = before is not None and before.is_mark(".")
        if is_qualified or is_alias(tokens, at) or is_sorted_alias(tokens, at):
            continue
        if not (after is not None and (after.is_mark(".") or after.kind == "group")):
            scope.find(select.start, f"{token.text} would be ambiguous")
            return


def read_query(scope: Scope, tokens: Level, at: int) -> Select:
    """Read the query at a place with all parts of a UNION, and compare their numbers of columns."""
    first = _read_part(scope, tokens, at)
    parts = [first]
    while first.end < len(tokens) and tokens[first.end].is_word(*_COMPOUND):
        at = first.end + 1
        while at < len(tokens) and tokens[at].is_word("all", "distinct"):
            at += 1
        part = _read_part(scope, tokens, at)
        if part.end <= first.end:
            break
        first.end = part.end
        first.targets = first.targets or part.targets
        parts.append(part)
    shapes = [part.shape for part in parts]
    if any(shape.changes for shape in shapes) and len(parts) > 1:
        if any(shape.is_open for shape in shapes):
            if not all(shape.changes for shape in shapes if not shape.is_open):
                scope.find(first.start, "its parts would have different numbers of columns")
        elif len({len(shape.after) for shape in shapes}) > 1:
            numbers = " and ".join(str(len(shape.after)) for shape in shapes)
            scope.find(first.start, f"its parts would have {numbers} columns")
    return first


def _read_part(scope: Scope, tokens: Level, at: int) -> Select:
    if at >= len(tokens):
        return Select(tokens[-1], end=at)
    token = tokens[at]
    if token.kind == "group":
        return Select(token, scope.shapes[token.level] or UNKNOWN, end=at + 1)
    if token.is_word("select", "perform"):
        return read_select(scope, tokens, at)
    if token.is_word("table"):
        path, end = path_at(tokens, at + 1)
        return Select(token, scope.relation(path), end=end)
    if token.is_word("values", "value"):
        at += 1
        rows: list[Shape] = []
        while at < len(tokens) and (tokens[at].kind == "group" or tokens[at].is_mark(",") or tokens[at].is_word("row")):
            if tokens[at].kind == "group":
                rows.append(row_of(scope, parts_of(scope.inside(tokens[at]))))
            at += 1
        changed = next((row for row in rows if row.changes), None)
        return Select(token, changed or (rows[0] if rows else UNKNOWN), end=at)
    return Select(token, end=at + 1)
