"""Changes of one place of the library: slips that were written by hand, and a sample of what Cosmic Ray can change."""

from __future__ import annotations

import ast
import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["ROOT", "SLIPS", "Lines", "Mutant", "mutant", "sample", "slips"]

ROOT = Path(__file__).parents[2]
SLIPS = Path(__file__).with_name("slips.toml")
_PACKAGE = "src/sqlalchemy_public_id"
_FAMILIES = (
    "AddNot",
    "ExceptionReplacer",
    "NumberReplacer",
    "RemoveDecorator",
    "ReplaceAndWithOr",
    "ReplaceBinaryOperator",
    "ReplaceBreakWithContinue",
    "ReplaceComparisonOperator",
    "ReplaceContinueWithBreak",
    "ReplaceFalseWithTrue",
    "ReplaceOrWithAnd",
    "ReplaceTrueWithFalse",
    "ReplaceUnaryOperator_Delete_Not",
    "ZeroIterationForLoop",
)
"""Operators of Cosmic Ray, those of one kind together: a sample has one variant of a place, not ten."""

Lines = Mapping[str, Mapping[int, "set[str]"]]
"""Module → line → the tests that execute it."""


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    id: str
    part: str
    """The package or module, for the table."""
    path: str
    """The module, from the root of the repository."""
    code: str | None
    """The module with the change; ``None`` if the place has changed since, or the result is no Python."""


def slips(file: Path = SLIPS) -> Iterator[Mutant]:
    """Yield the slips of *file*: ``before`` stands once in its module, and becomes ``after``."""
    for row in tomllib.loads(file.read_text(encoding="utf-8"))["slip"]:
        path = f"{_PACKAGE}/{row['file']}"
        source = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).exists() else ""
        code = source.replace(row["before"], row["after"]) if source.count(row["before"]) == 1 else None
        yield Mutant(row["id"], row["part"], path, code if code is not None and _is_python(code) else None)


def sample(lines: Lines, count: int, seed: int, only: Iterable[str] = ()) -> list[Mutant]:
    """Return *count* mutants of lines that tests execute, as many of each part; fewer if a part has fewer places."""
    places: dict[str, dict[tuple[str, int, str], list[str]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted((ROOT / _PACKAGE).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        for line, operator, occurrence, family in _changes(path):
            if lines.get(name, {}).get(line) and (not only or _part(name) in only):
                places[_part(name)][name, line, family].append(f"{name}:{line} {operator} #{occurrence}")
    chosen: list[str] = []
    for part, found in places.items():
        choose = random.Random(f"{seed} {part}")
        drawn = choose.sample(sorted(found), k=min(len(found), -(-count // len(places))))
        chosen += [choose.choice(found[place]) for place in drawn]
    return [mutant(id) for id in chosen[:count]]


def mutant(id: str) -> Mutant:
    """Return the mutant of a sample, from its id: module and line, operator, and which of its places."""
    place, operator, occurrence = id.split(" ")
    path = place.partition(":")[0]
    source = (ROOT / path).read_text(encoding="utf-8")
    code: str | None = mutate_code(source, get_operator(operator)(), int(occurrence[1:]))
    return Mutant(id, _part(path), path, code if code != source else None)


def _part(path: str) -> str:
    return path.removeprefix(f"{_PACKAGE}/").partition("/")[0].removesuffix(".py")


def _changes(module: Path) -> Iterator[tuple[int, str, int, str]]:
    """Yield line, operator, number and family of each change of a module."""
    tree = get_ast_from_path(module)
    for name in sorted(operator_names()):
        family = next((family for family in _FAMILIES if name.removeprefix("core/").startswith(family)), None)
        if family is not None:
            operator = get_operator(name)()
            positions = (position for node in ast_nodes(tree) for position in operator.mutation_positions(node))
            for occurrence, (start, _) in enumerate(positions):
                yield start[0], name, occurrence, family


def _is_python(code: str) -> bool:
    try:
        ast.parse(code)
    except SyntaxError:
        return False
    return True
