"""The slips of ``python -m tools.mutants``: those of the list meet the source as it is now, others are made of it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools.mutants.generated import generate_slips

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.housekeeping


def test_slips_meet_the_source() -> None:
    """Each slip replaces a text that occurs once in its module; otherwise, its run would try nothing."""
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    slips = tomllib.loads(Path(__file__).with_name("slips.toml").read_text(encoding="utf-8"))["slip"]
    assert len(slips) > 100

    found = {}
    for slip in slips:
        module = ROOT / "src" / "sqlalchemy_public_id" / slip["file"]
        found[slip["id"]] = module.read_text(encoding="utf-8").count(slip["before"]) if module.exists() else None
    assert {id: count for id, count in found.items() if count != 1} == {}


def test_generated_slips_compile() -> None:
    """Each generated slip is a module that Python compiles, and that differs from the one of the library."""
    slips = list(generate_slips(["dialects", "audit/checks.py"], 1000, seed=1))
    assert len(slips) > 300

    sources = {slip.path: ast.dump(ast.parse((ROOT / slip.path).read_text(encoding="utf-8"))) for slip in slips}
    assert [slip.id for slip in slips if ast.dump(ast.parse(slip.code)) == sources[slip.path]] == []


def test_generated_slips_are_chosen_by_the_seed() -> None:
    """A seed chooses the same slips again, and another seed others."""

    def chosen(seed: int) -> list[str]:
        return [slip.id for slip in generate_slips(["cli"], 20, seed)]

    assert chosen(1) == chosen(1) != chosen(2)


def test_place_that_is_missing() -> None:
    """A place that does not exist is an error, and not a run without slips."""
    with pytest.raises(SystemExit, match="there is no clu in "):
        list(generate_slips(["clu"], 20, 1))
