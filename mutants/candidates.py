"""Places in the source that can be mutated, and a sample of them that is the same for the same seed."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

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


@dataclass(frozen=True)
class Mutant:
    """One change of one line."""

    part: str
    path: str
    """The module, from the root of the repository."""
    line: int
    operator: str
    occurrence: int

    @property
    def name(self) -> str:
        """The mutant in a table: module, line, operator."""
        return f"{self.path}:{self.line} {self.operator.removeprefix('core/')} #{self.occurrence}"

    def code(self, source: str) -> str | None:
        """Return the mutated *source*, or ``None`` if the operator changes nothing there."""
        mutated: str | None = mutate_code(source, get_operator(self.operator)(), self.occurrence)
        return mutated if mutated != source else None


def sample(
    root: Path, parts: Mapping[str, Sequence[Path]], lines: Mapping[str, Iterable[int]], count: int, seed: int
) -> list[Mutant]:
    """Return *count* mutants of covered *lines*, as many of each part; fewer if a part has fewer places."""
    chosen: list[Mutant] = []
    for part, modules in parts.items():
        places: dict[tuple[str, int, str], list[Mutant]] = defaultdict(list)
        for module in modules:
            path = module.relative_to(root).as_posix()
            covered = set(lines.get(path, ()))
            for mutant, family in _mutants(part, module, path):
                if mutant.line in covered:
                    places[mutant.path, mutant.line, family].append(mutant)
        choose = random.Random(f"{seed} {part}")
        drawn = choose.sample(sorted(places), k=min(len(places), -(-count // len(parts))))
        chosen += [choose.choice(places[place]) for place in drawn]
    return chosen[:count]


def _mutants(part: str, module: Path, path: str) -> Iterator[tuple[Mutant, str]]:
    tree = get_ast_from_path(module)
    for name in sorted(operator_names()):
        family = next((family for family in _FAMILIES if name.removeprefix("core/").startswith(family)), None)
        if family is None:
            continue
        operator = get_operator(name)()
        positions = (position for node in ast_nodes(tree) for position in operator.mutation_positions(node))
        for occurrence, (start, _) in enumerate(positions):
            yield Mutant(part, path, start[0], name, occurrence), family
