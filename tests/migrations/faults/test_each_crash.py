"""A server that is killed and started again, and a disk that is full, in the middle of each step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import cycle

import pytest
from histories.places import Place, place, programs
from migrations.faults.faults import EVERY_FAULT, Moment, is_change, meet
from migrations.faults.histories import Table
from sqlalchemy import Engine
from support import servers

pytestmark = [pytest.mark.backend, pytest.mark.slow]

FEW = 4
"""The number of statements that are drawn of each operation, unless all of them are wanted."""
MORE_ROWS = 2000
"""Rows that need some space, so that a full disk refuses to index them."""


@pytest.fixture
def where(database: str) -> Iterator[Place]:
    """A server of its own, on a small disk."""
    with place(database, programs(), servers.servers()[database].url) as made:
        yield made


def crash(where: Place) -> None:
    assert where.server is not None
    where.server.crash()


def start(where: Place) -> None:
    assert where.server is not None
    where.server.start()


def fill(where: Place) -> None:
    assert where.disk is not None
    where.disk.fill()


TROUBLES: dict[str, tuple[Callable[[Place], None], Callable[[Place], None]]] = {
    "crash": (crash, start),
    "full disk": (fill, Place.heal),
}
"""What happens, and what ends it."""


class Trial:
    """An operation that meets a trouble, is repeated afterwards, and is compared with an undisturbed one."""

    def __init__(self, where: Place, table: Table, trouble: str) -> None:
        self.where, self.table, self.trouble = where, table, trouble
        self.failed = 0

    def meet(self, operation: str, number: int, moment: Moment) -> list[str]:
        """Let the trouble happen at a statement, mend it, and repeat the operation; return what is wrong then."""
        table = self.table
        happens, ends = TROUBLES[self.trouble]
        during = meet(table.engine, number, moment, lambda cursor: happens(self.where))
        sent, told = table.try_to(operation, during, attempts=1)
        self.failed += bool(told)
        ends(self.where)
        table.engine.dispose()
        table.write()
        rows, given = table.rows(), table.ids()
        table.run(operation)
        if operation == "add_public_id":
            problems = table.problems_at_goal(given, rows)
        else:
            problems = table.problems_at_beginning(rows)
        if not sent.is_hit:
            problems.append("the operation did not come to it")
        return [f"{operation}, {moment} {number}: {problem}" for problem in problems]


def draw(statements: list[str], drawn: random.Random) -> list[tuple[int, Moment]]:
    """Return the moments before or after changes at which the trouble happens."""
    changes = [number for number, statement in enumerate(statements, 1) if is_change(statement)]
    chosen = changes if EVERY_FAULT else sorted(drawn.sample(changes, min(FEW, len(changes))))
    return [(number, drawn.choice(("before", "after"))) for number in chosen]


@pytest.mark.parametrize("trouble", TROUBLES)
def test_next_run_completes(where: Place, new_engine: Callable[..., Engine], database: str, trouble: str) -> None:
    """Old programs can write afterwards, and the operation, repeated, gives the result of one without trouble."""
    if (where.server if trouble == "crash" else where.disk) is None:
        pytest.skip(f"{database} has no server that can be killed, or this user may not mount a disk")
    table = Table(new_engine(database, where.url))
    table.people.write(MORE_ROWS)
    ups, downs = (table.run(operation, attempts=1).statements for operation in ("add_public_id", "drop_public_id"))
    trial, drawn, problems = Trial(where, table, trouble), random.Random(f"{database} {trouble}"), list[str]()
    for up, down in zip(draw(ups, drawn), cycle(draw(downs, drawn)), strict=False):
        problems += trial.meet("add_public_id", *up)
        problems += trial.meet("drop_public_id", *down)

    assert problems == []
    assert trial.failed > 0
