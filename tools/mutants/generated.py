"""Make slips by rule: each part of a decision is left out, turned round or moved by one.

Nobody chose these places, so they show what the slips that somebody wrote do not: which parts of a module no test
sees. Some of them change nothing that anybody could see, and survive rightly.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain
from pathlib import Path

from tools.mutants.running import ROOT, Slip

__all__ = ["generate_slips"]

SOURCE = ROOT / "src" / "sqlalchemy_public_id"
_BOUNDS: dict[type[ast.cmpop], str] = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!="}
_PAIRS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list", "reversed": "list"}
_LEFT_OUT = {"lower", "upper", "strip", "casefold", "rstrip", "lstrip"}


def generate_slips(places: Sequence[str], number: int, seed: int) -> Iterator[Slip]:
    """Yield *number* slips in the modules and folders of *places*, which are paths below the package."""
    if missing := [place for place in places if not (SOURCE / place).exists()]:
        raise SystemExit(f"there is no {', '.join(missing)} in {SOURCE}")
    modules = sorted({*chain.from_iterable(_modules(SOURCE / place) for place in places)})
    texts = [_Text(module) for module in modules]
    found = [(text, *change) for text in texts for change in _changes(text)]
    for text, node, after, kind in random.Random(seed).sample(found, min(number, len(found))):
        place = text.path.relative_to(SOURCE)
        name = f"{place.as_posix()}:{node.lineno}:{node.col_offset} {kind}"
        path = text.path.relative_to(ROOT).as_posix()
        yield Slip(name, place.parts[0], path, text.replacing(node, after), "sqlite")


class _Text:
    """The source of a module, and the places of its nodes."""

    def __init__(self, path: Path) -> None:
        self.path, self.source = path, path.read_bytes()
        lines = self.source.splitlines(keepends=True)
        self.starts = [0, *accumulate(map(len, lines))]

    def of(self, node: ast.expr | ast.stmt) -> str:
        return self.source[slice(*self._place_of(node))].decode()

    def replacing(self, node: ast.expr | ast.stmt, after: str) -> str:
        """Return the source with *after* in the place of *node*."""
        first, last = self._place_of(node)
        return (self.source[:first] + after.encode() + self.source[last:]).decode()

    def _place_of(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        last = self.starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        return self.starts[node.lineno - 1] + node.col_offset, last


def _modules(place: Path) -> Iterator[Path]:
    return iter([place]) if place.suffix else place.rglob("*.py")


def _changes(text: _Text) -> Iterator[tuple[ast.expr | ast.stmt, str, str]]:
    """Yield the nodes of *text* that can be changed, with the text that replaces each and what was done."""
    tree = ast.parse(text.source)
    of_types = {part for node in ast.walk(tree) for hint in _annotations(node) for part in ast.walk(hint)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.expr, ast.stmt)) and node not in of_types:
            for after, kind in (*_of_expression(text.of, node), *_of_statement(text.of, node)):
                yield node, after, kind


def _annotations(node: ast.AST) -> Iterator[ast.AST]:
    for name in ("annotation", "returns"):
        hint = getattr(node, name, None)
        if isinstance(hint, ast.AST):
            yield hint
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield from node.decorator_list
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        yield node


def _of_expression(text: Callable[[ast.expr], str], node: ast.expr | ast.stmt) -> Iterator[tuple[str, str]]:
    match node:
        case ast.BoolOp(values=values):
            for left_out in values:
                word = " and " if isinstance(node.op, ast.And) else " or "
                rest = word.join(f"({text(it)})" for it in values if it is not left_out)
                yield f"({rest})", f"without {text(left_out)[:60]!r}"
        case ast.IfExp(test=test, body=body, orelse=other):
            yield f"({text(other)} if {text(test)} else {text(body)})", "turned round"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"bool({text(operand)})", "without not"
        case ast.Compare(ops=[operator], left=left, comparators=[right]):
            if type(operator) in _BOUNDS:
                yield f"({text(left)} {_BOUNDS[type(operator)]} {text(right)})", "another bound"
            elif isinstance(operator, (ast.In, ast.NotIn, ast.Is, ast.IsNot)):
                yield f"(not ({text(node)}))", "turned round"
        case ast.Call(func=function, args=arguments, keywords=keywords):
            passed = [f"{it.arg}={text(it.value)}" if it.arg else f"**{text(it.value)}" for it in keywords]
            for number, keyword in enumerate(keywords):
                if keyword.arg:
                    rest = [*map(text, arguments), *passed[:number], *passed[number + 1 :]]
                    yield f"{text(function)}({', '.join(rest)})", f"without {keyword.arg}="
            match function:
                case ast.Name(id=name) if name in _PAIRS:
                    yield f"{_PAIRS[name]}({', '.join(map(text, arguments))})", f"{_PAIRS[name]} for {name}"
                case ast.Attribute(value=value, attr=name) if name in _LEFT_OUT and not arguments:
                    yield text(value), f"without {name}()"
                case _:
                    pass
        case ast.Subscript(value=value, slice=ast.Constant(value=0)):
            yield f"{text(value)}[-1]", "the last for the first"
        case ast.Constant(value=bool() as value):
            yield str(not value), "the other"
        case ast.Constant(value=int() as value) if value > 1:
            yield str(value + 1), "one more"
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            for test in (test for loop in node.generators for test in loop.ifs):
                yield text(node).replace(f"if {text(test)}", "if True", 1), f"without if {text(test)[:60]!r}"
        case ast.BinOp(op=ast.Sub() | ast.Add(), left=left, right=ast.Constant(value=1)):
            yield text(left), "without the one"
        case _:
            pass


def _of_statement(text: Callable[[ast.expr | ast.stmt], str], node: ast.expr | ast.stmt) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Expr(value=ast.Call() | ast.Await() | ast.YieldFrom() | ast.Yield()):
            yield "pass", f"without {text(node).partition('(')[0]}()"
        case ast.AugAssign(target=target, op=ast.Add(), value=value):
            yield f"{text(target)} = {text(value)}", "not added"
        case ast.Continue() | ast.Break():
            yield "pass", "goes on"
        case ast.If(test=test):
            whole, condition = text(node), text(test)
            if whole.startswith("if ") and "\n" not in condition:
                yield whole.replace(f"if {condition}", f"if not ({condition})", 1), "turned round"
        case _:
            pass
