"""Runs a history, and compares what is stored in the end with what the programs have a right to."""

from __future__ import annotations

import gc
import logging
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from simulation.driver import Connection, Driver
from simulation.histories import History, Violation, program
from simulation.judging import GIVES, WRITES, Wish
from simulation.models import FORMAT, NEVER, tables
from simulation.players import Player
from simulation.stage import Stage, Stuck
from simulation.storage import FAMILIES
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import QueuePool

from sqlalchemy_public_id import testing


@dataclass
class Result:
    """What a history has led to."""

    history: History
    violations: list[Violation]
    stage: Stage
    players: list[Player]

    @property
    def kinds(self) -> frozenset[str]:
        """What goes wrong, and in which kind of history."""
        return frozenset(kind_of(self.history, violation) for violation in self.violations)


_ANYWHERE = (
    "while a statement is freed",
    "in the pool with a lock",
    "an id that was read is replaced",
    "an id that an object has kept is replaced",
)


def kind_of(history: History, violation: Violation) -> str:
    """Return what tells one kind of defect from another."""
    if violation.rule.endswith(_ANYWHERE):
        return violation.rule
    steps = {op.name for steps in history.programs for op in steps}
    under = [
        history.listener and f"a listener: {history.listener}",
        history.trigger and f"a trigger: {history.trigger}",
        history.model not in {"plain", "heard"} and f"a model: {history.model}",
        history.routed and "a follower",
        *({"or_rollback", "skipping"} & steps),
    ]
    named = ", ".join(filter(None, under))
    return f"{violation.rule} ({named})" if named else violation.rule


_engines: dict[tuple[str, str | None, bool], tuple[Engine, Driver]] = {}


_COLLIDING: dict[str, Any] = {
    "programs": (program("flush -", "core - -"),),
    "draws": ("00", "01", "00", "02", "03", "04"),
    "model": "plain",
    "listener": None,
    "routed": False,
    "choices": (),
    "faults": (),
}


def engine_for(history: History, stage: Stage, *, follower: bool = False) -> Engine:
    """Return the engine of a history. Its dialect keeps what it has compiled for the next one."""
    key = history.family, history.isolation, follower
    # what the library has learned of the triggers of an engine is not for the next history
    known = None if history.trigger else _engines.get(key)
    if known is None:
        driver = Driver(FAMILIES[history.family], stage, is_follower=follower)
        options: dict[str, Any] = {"isolation_level": history.isolation} if history.isolation else {}
        engine = create_engine(
            f"{history.family}+simulated://", module=driver, creator=driver.connect, poolclass=QueuePool, **options
        )
        known = engine, driver
        if not history.trigger:
            _engines[key] = known
            # the library looks once for the triggers of an engine: before all histories, so that each can be repeated
            if not follower:
                run(replace(history, **_COLLIDING))
    engine, driver = known
    driver.stage, stage.error = stage, driver.error
    return engine


def run(history: History) -> Result:
    """Run *history*. Each run makes the same calls."""
    stage = Stage(FAMILIES[history.family], tables(history.trigger), history.choices, history.faults)
    engine = engine_for(history, stage)
    follower = engine_for(history, stage, follower=True) if history.routed else engine
    fill(stage)
    for each in dict.fromkeys((engine, follower)):
        _connect_first(each)
    stage.calls.clear()
    stage.connections.clear()
    # the pool logs a traceback for each ROLLBACK that fails
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL + 1)
    with warnings.catch_warnings(), testing.fixed_ids(FORMAT, *history.draws):
        warnings.simplefilter("ignore")
        players = [Player(stage, engine, follower, history, number) for number in range(len(history.programs))]
        try:
            stage.play([player.play for player in players])
            violations = [violation for player in players for violation in player.violations]
            violations += _check(history, stage, players)
        except Stuck:
            violations = [Violation("the history does not end", "end")]
        finally:
            stage.is_over = True
            engine.dispose()
            follower.dispose()
    return Result(history, violations, stage, players)


def _connect_first(engine: Engine) -> None:
    """Make the first connection of a pool, which happens under a lock that sessions in one thread must not wait for."""
    with engine.connect() as connection:
        connection.invalidate()


def fill(stage: Stage) -> None:
    """Store the row that others run into: id 00, code 1."""
    transaction = stage.database.begin(None, None)
    item = stage.database.tables["item"]
    triggers, item.before_insert = item.before_insert, {}
    transaction.insert(item, {"public_id": "00", "code": 1, "marker": 0})
    item.before_insert = triggers
    transaction.commit()


def _check(history: History, stage: Stage, players: list[Player]) -> list[Violation]:
    found: list[Violation] = []

    def report(rule: str, place: str, detail: str) -> None:
        found.append(Violation(rule, place, detail))

    stored: dict[int, list[dict[str, Any]]] = {}
    for name in ("item", "elsewhere"):
        for row in stage.database.committed(name):
            stored.setdefault(row["marker"], []).append(row)
    wishes: dict[int, list[Wish]] = {}
    for player in players:
        for wish in player.wishes:
            wishes.setdefault(wish.marker, []).append(wish)
    for marker, rows in stored.items():
        if len(rows) > 1:
            report("a row is stored twice", "end", f"{rows}")
        if marker not in wishes and 0 < marker < NEVER:
            report("a row is stored that nobody wanted", "end", f"{rows}")
    for marker, own in wishes.items():
        _check_marker(history, marker, own, stored, report)
    for player in players:
        _check_groups(player, stored, report)
        player.op = type(player.op)("end")
        before = len(player.violations)
        for wish in player.wishes:
            if wish.fate == "stored":
                player.check_object(wish)
        found += player.violations[before:]
    for player in players:
        for other in player.made:
            shown = other.__dict__.get("public_id")
            rows = [row for row in stored.get(other.marker, []) if row["id"] == other.id]
            if rows and shown not in (None, rows[0]["public_id"]):
                report("an object of a listener shows an id that is not its row's", "end", f"{shown} {rows}")
    _check_audit(history, stage, stored, report)
    # a program that is interrupted while it gives the connection back has nobody left to do so
    gave_back = not any(incident.fault and incident.call.kind in {"rollback", "close"} for incident in stage.incidents)
    if gave_back and any(_is_left_open(connection) for connection in stage.connections):
        # SQLAlchemy has let go of some: they are reset when nothing refers to them any more, nor the frames of an error
        for incident in stage.incidents:
            incident.error.__traceback__ = incident.error.__context__ = None
        gc.collect()
        if any(_is_left_open(connection) for connection in stage.connections):
            report("a connection is back in the pool inside a transaction", "end", "")
    if stage.written_on_followers:
        report("a follower is written to", "end", stage.written_on_followers[0])
    if stage.database.advisory_locks:
        report("a connection is back in the pool with a lock", "end", f"{[*stage.database.advisory_locks]}")
    return found


def _is_left_open(connection: Connection) -> bool:
    return not connection.closed and (connection.transaction is not None or connection.autocommit)


def _check_marker(
    history: History, marker: int, wishes: list[Wish], stored: dict[int, list[dict[str, Any]]], report: Any
) -> None:
    """Check the row of *marker*, which the wishes of a repetition share."""
    rows, fates = stored.get(marker, []), {wish.fate for wish in wishes}
    if not rows and "stored" in fates:
        report("a row is lost", "end", f"{wishes}")
    if rows and not fates & {"stored", "unknown"}:
        report("a row is stored that was rolled back", "end", f"{rows}")
    if not rows:
        return
    last = next((wish for wish in reversed(wishes) if wish.fate in {"stored", "unknown"}), None)
    if last is not None and last.given not in (None, rows[0]["public_id"]):
        rule = "an id that was read is replaced" if last.word.startswith("?") else "a given id is replaced"
        if last.word.startswith("-") and history.listener not in GIVES:
            rule = "an id that an object has kept is replaced"
        report(rule, "end", f"{last}, {rows}")
    if history.listener in WRITES and last is not None and last.is_flushed and marker < NEVER:
        of_listener = stored.get(marker + NEVER, [])
        if len(of_listener) != 1:
            report("a row of a listener is lost", "end", f"{last} {of_listener}")


def _check_groups(player: Player, stored: dict[int, list[dict[str, Any]]], report: Any) -> None:
    """The rows of a transaction with an unknown end are all there, or none."""
    groups: dict[int, set[bool]] = {}
    for wish in player.wishes:
        if wish.fate == "unknown":
            groups.setdefault(wish.group, set()).add(wish.marker in stored)
    for there in groups.values():
        if len(there) > 1:
            report("a part of a transaction is stored", "end", "")


def _check_audit(history: History, stage: Stage, stored: dict[int, list[dict[str, Any]]], report: Any) -> None:
    if history.trigger != "audit":
        return
    trail = Counter(row["marker"] for row in stage.database.committed("trail"))
    for marker in stored:
        if marker and trail[marker] != 1:
            report("a trigger has run twice for a row", "end", f"{marker}: {trail[marker]}")
    for marker in trail.keys() - stored.keys():
        report("a trigger has run for a row that is not there", "end", f"{marker}")
