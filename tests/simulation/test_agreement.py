"""A sample of the simulated histories has the same outcome on the databases themselves.

Two sessions take turns, step by step, in one thread: a statement that has to wait for the other session fails. On
InnoDB the second session begins when the first one has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import pytest
from simulation.exploring import random_history
from simulation.histories import History, Op
from simulation.judging import Wish
from simulation.models import FORMAT, Item, tables
from simulation.players import Player
from simulation.running import engine_for, fill
from simulation.stage import Stage
from simulation.storage import FAMILIES
from sqlalchemy import Engine, MetaData, event, insert, select
from sqlalchemy.exc import SQLAlchemyError

from sqlalchemy_public_id import PublicIdError, testing

SEEDS = range(60)

INNODB = frozenset({"mysql", "mariadb"})
LEVEL = dict.fromkeys(("sqlite", "postgresql")) | dict.fromkeys(INNODB, "READ COMMITTED")
"""InnoDB locks the gaps between rows above this level, which is not simulated: more statements wait there."""


class TurnTaker(Player):
    """A session that notes what comes of each step, and judges nothing: the outcomes are compared."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.outcomes: list[str] = []

    def step(self, op: Op) -> None:
        self.op = op
        wishes = [self._wish(word) for word in op.rows]
        try:
            self._run(op, wishes)
        except (SQLAlchemyError, PublicIdError) as error:
            self.outcomes.append(f"{op}: {type(error).__name__}")
            self._recover(error, wishes)
        else:
            self.outcomes.append(f"{op}: done")
            self.wishes += wishes
            self.levels[-1][1].extend(wish for wish in wishes if wish.fate == "open")

    def check_object(self, wish: Wish) -> None: ...


def sample(database: str) -> Iterator[History]:
    """Yield random histories of sessions that take turns, step by step, and in which no call fails by itself."""
    for seed in SEEDS:
        history = random_history(seed)
        if history.listener is None and history.trigger is None:
            programs = tuple(_for_all(steps, database) for steps in history.programs)
            yield replace(
                history, family=database, programs=programs, isolation=LEVEL[database], faults=(), expires=False
            )


def _for_all(steps: tuple[Op, ...], database: str) -> tuple[Op, ...]:
    few = {"returning": "flush"} if database == "mysql" else {}
    return tuple(Op(few.get(op.name, op.name), op.rows) for op in steps)


def outcome(history: History, stage: Stage, engine: Engine, stored: Callable[[], list[Any]]) -> dict[str, Any]:
    """Run the programs of *history* in turns. Return what came of each step, and the rows with their given ids."""
    with testing.fixed_ids(FORMAT, *history.draws):
        players = [TurnTaker(stage, engine, engine, history, number) for number in range(len(history.programs))]
        programs = [[*steps, Op("commit")] for steps in history.programs]
        if history.family in INNODB:  # a duplicate locks the gaps beside it, also below REPEATABLE READ: not simulated
            turns = [(player, op) for player, steps in zip(players, programs, strict=True) for op in steps]
        else:
            rounds = zip_longest(*programs)
            turns = [(players[number], op) for one in rounds for number, op in enumerate(one) if op is not None]
        for player, op in turns:
            player.step(op)
        shown = {
            wish.marker: wish.instance.__dict__["public_id"]
            for player in players
            for wish in player.wishes
            if wish.fate == "stored" and wish.instance is not None and "public_id" in wish.instance.__dict__
        }
        for player in players:
            player.session.close()
    rows = {row["marker"]: row["public_id"] for row in stored()}
    given = {wish.marker: wish.given for player in players for wish in player.wishes if wish.word not in {"-", "?"}}
    return {
        "steps": [player.outcomes for player in players],
        "rows": {marker: id if marker in given else "made" for marker, id in rows.items()},
        "objects that differ": {marker: id for marker, id in shown.items() if rows.get(marker) != id},
    }


def simulated(history: History) -> dict[str, Any]:
    stage = Stage(FAMILIES[history.family], tables())
    engine = engine_for(history, stage)
    fill(stage)
    try:
        return outcome(history, stage, engine, lambda: stage.database.committed("item"))
    finally:
        engine.dispose()


def real(history: History, engine: Engine) -> dict[str, Any]:
    def stored() -> list[Any]:
        with engine.connect() as connection:
            return list(connection.execute(select(Item.__table__)).mappings())

    with engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM item")
        connection.execute(insert(Item.__table__), {"public_id": "00", "code": 1, "marker": 0})
    return outcome(history, Stage(FAMILIES[history.family], tables()), engine, stored)


def make_impatient(engine: Engine, database: str) -> None:
    """Let a statement that has to wait for the other session fail soon: both are in one thread."""
    settings = {"postgresql": "SET lock_timeout = 100", "sqlite": "PRAGMA busy_timeout = 20"}
    setting = settings.get(database, "SET SESSION innodb_lock_wait_timeout = 1")

    def set_up(connection: Any, record: object) -> None:
        if database == "sqlite":
            connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(setting)
        if database == "sqlite":
            cursor.execute("PRAGMA journal_mode = WAL")
        else:
            connection.commit()
        cursor.close()

    event.listen(engine, "connect", set_up)
    if database == "sqlite":  # transactions that savepoints can be in: SQLAlchemy's recipe
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))


@pytest.mark.slow
@pytest.mark.backend
def test_agreement(
    new_engine: Callable[..., Engine], create_on: Callable[[Engine, MetaData], None], database: str
) -> None:
    """Steps succeed and fail alike, and the same rows are stored, in memory and on a database."""
    engine = new_engine(database, **({"isolation_level": LEVEL[database]} if LEVEL[database] else {}))
    make_impatient(engine, database)
    create_on(engine, Item.metadata)
    for history in sample(database):
        assert simulated(history) == real(history, engine), history.to_text()
