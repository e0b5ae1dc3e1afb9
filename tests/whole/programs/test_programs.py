"""Random programs: rows and objects keep their ids, whatever is written, refused, interrupted or rolled back."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import pytest
from sqlalchemy import Engine
from support.shard_files import tables_in
from whole.programs.program import Program
from whole.programs.steps import STEPS, plan_of
from whole.programs.worlds import SHARES, World, world_of

pytestmark = pytest.mark.backend

Plan = Sequence[tuple[str, int]]

MOST = 5
"""The number of failures after which a test stops."""


# SQLAlchemy warns if an interrupt ends a session that is inside a savepoint of another one
@pytest.mark.filterwarnings("ignore:.*transaction already deassociated:sqlalchemy.exc.SAWarning")
@pytest.mark.parametrize("name", list(SHARES))
def test_programs(name: str, database: str, new_engine: Callable[..., Engine], request: pytest.FixtureRequest) -> None:
    """Each row keeps the id that it was given or that was generated, and each object shows the id of its row."""
    if name == "loose" and database not in ("mysql", "mariadb"):
        pytest.skip("every table here takes part in transactions")
    chosen: str | None = request.config.getoption("--program")
    count = max(1, round(request.config.getoption("--programs") * SHARES[name]))
    world = world_of(name, database, new_engine)
    failures: list[str] = []
    with ExitStack() as stack:
        stack.enter_context(tables_in(world.engines, world.metadata))
        world.meet_triggers()
        gc.collect()
        gc.freeze()
        stack.callback(gc.unfreeze)
        if chosen is not None and ":" in chosen:
            error, done = failure_of(world, *parsed(chosen))
            assert not error, f"{error!r}\n  {' '.join(done)}"
            return
        for seed in range(count) if chosen is None else [int(chosen)]:
            error, _ = failure_of(world, plan_of(world, seed), seed)
            if error:
                failures.append(report(world, seed, database, error))
            if len(failures) == MOST:
                break
    assert not failures, "\n".join(failures)


def failure_of(world: World, plan: Plan, seed: int) -> tuple[str, list[str]]:
    """Run a program; return its error, or an empty string, and its steps."""
    gc.collect()  # objects and locks of the previous program would change this one
    world.empty()
    program = Program(world, seed)
    failure = ""
    try:
        program.run(plan, STEPS)
    except Exception as error:  # including errors that the library or SQLAlchemy should never raise
        failure = f"{type(error).__name__}: {error!s:.300}"
    return failure, program.done


def report(world: World, seed: int, database: str, error: str) -> str:
    """Return a report of a failed program, with the fewest steps that still fail."""
    plan, fewest = list(plan_of(world, seed)), ""
    at = len(plan)
    while at:
        at -= 1
        fewer = plan[:at] + plan[at + 1 :]
        less, done = failure_of(world, fewer, seed)
        if less:
            plan, error = fewer, less
            steps = " ".join(f"{name}/{chance}" for name, chance in plan)
            fewest = f'\n  enough: {" ".join(done)}\n  again: --program "{seed}: {steps}"'
    return (
        f"program {seed} on {world.name} tables of {database}: {error}\n"
        f'  again: pytest tests/whole/programs -k "{world.name} and {database}" --program {seed}{fewest}'
    )


def parsed(chosen: str) -> tuple[Plan, int]:
    seed, _, steps = chosen.partition(":")
    return [(name, int(chance)) for name, _, chance in (each.partition("/") for each in steps.split())], int(seed)
