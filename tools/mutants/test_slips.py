"""The list of slips for ``python -m tools.mutants slips``: each one meets the source as it is now."""

from __future__ import annotations

from pathlib import Path

import pytest

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
