"""Runs a history on a database, and compares the rows that are stored in the end with what the programs may expect."""

from __future__ import annotations

import gc
import logging
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from traceback import clear_frames

from faults.driver import Call, Connection, Driver, Fault
from faults.histories import History
from faults.judging import Wish
from faults.models import FORMAT, NEVER, WRITES, Item
from faults.sessions import Player, read
from sqlalchemy import Engine, event, insert
from support import judge

from sqlalchemy_public_id import testing


@dataclass
class Result:
    """The result of a history: its calls, and the violations of the rules."""

    history: History
    calls: list[Call]
    violations: list[str]

    def __str__(self) -> str:
        calls = (
            f"{number:3} {call.name:9} {' '.join(call.text.split())[:100]} {call.outcome}"
            for number, call in enumerate(self.calls)
        )
        return "\n".join((str(self.history), *calls, *self.violations))


class Place:
    """A database on which histories run, one after the other.

    :param new_engine: makes an engine for the histories.
    :param observing: an engine of the same database, on which the tables exist.
    """

    def __init__(self, new_engine: Callable[[], Engine], observing: Engine) -> None:
        self.name = observing.name
        self._new_engine = new_engine
        self._observer = observing.execution_options(isolation_level="AUTOCOMMIT").connect()
        self._drivers: dict[bool, Driver] = {}
        # the pool logs a traceback for each ROLLBACK that fails
        logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL + 1)

    def close(self) -> None:
        self._observer.close()

    def _driver_for(self, history: History) -> Driver:
        """Return the driver of an engine, which has been used before unless *history* needs a new one."""
        # on SQLite, transactions with savepoints need SQLAlchemy's recipe; without it, the driver begins transactions
        nested = "savepoint" in history.program or "second_session" in history.program
        begins = self.name == "sqlite" and (nested or history.listener.startswith("session"))
        if not history.is_first and begins in self._drivers:
            return self._drivers[begins]
        engine = self._new_engine()
        if begins:
            event.listen(engine, "connect", lambda raw, _: setattr(raw, "isolation_level", None))
            event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
        driver = Driver(engine)
        if not history.is_first:
            self._drivers[begins] = driver
            # the library examines a table once per engine: before all histories, so that each makes the same calls
            self.run(replace(history, program="flush -; core - -", draws=("00", "01", "02", "03", "04"), faults=()))
        return driver

    def run(self, history: History) -> Result:
        """Run *history*. Each run makes the same calls."""
        driver = self._driver_for(history)
        self._observer.exec_driver_sql("DELETE FROM item")
        # the row that other rows collide with
        self._observer.execute(insert(Item.__table__), {"public_id": "00", "code": 1, "marker": 0})
        observer = self._observer.connection.driver_connection
        with warnings.catch_warnings(), testing.fixed_ids(FORMAT, *history.draws):
            warnings.simplefilter("ignore")
            driver.start(history.faults)
            player = Player(history, driver, observer)
            player.play()
            driver.faults, calls = {}, list(driver.calls)
            for incident in driver.incidents:  # the frames hold cursors, whose statements keep locks
                clear_frames(incident.error.__traceback__)
                incident.error.__traceback__ = incident.error.__context__ = None
            violations = [*player.violations, *_check(history, player, read(observer)), *_check_connections(driver)]
            driver.engine.dispose()
        for connection in driver.connections:
            with suppress(Exception):  # the connection is closed
                connection.raw.close()
        return Result(history, calls, violations)

    def with_a_fault(self, result: Result, first: int = 0, until: int | None = None) -> Iterator[History]:
        """Yield the history of *result* with one more fault: each error at each of these calls."""
        for number, call in enumerate(result.calls[:until]):
            for trouble in call.troubles(self.name) if number >= first else ():
                yield replace(result.history, faults=(*result.history.faults, Fault(number, *trouble)))


def _check(history: History, player: Player, stored: list[judge.Stored]) -> Iterator[str]:
    """Yield what is wrong with the *stored* rows."""
    rows = judge.group_rows(stored)
    unknown: dict[int, set[judge.Name]] = defaultdict(set)
    for wish in player.wishes:
        if wish.fate == "unknown":
            unknown[wish.group].add(wish.marker)
    before = len(player.violations)
    player.check_objects(wish for wish in player.wishes if wish.fate == "stored")
    yield from player.violations[before:]
    # an object of a listener may have been rolled back
    others = [each.__dict__ for each in player.made if each.__dict__.get("public_id") is not None]
    shown = [judge.Shown(own["marker"], judge.Row(own.get("id"), own["public_id"])) for own in others]
    stored_objects = (each for each in shown if each.row.key in {row.key for row in rows.get(each.name, ())})
    yield from map(
        str,
        (
            *judge.find_wrong_rows(_expected(history, player.wishes, rows), rows),
            *judge.find_halves(unknown.values(), rows),
            *judge.find_wrong_objects(stored_objects, rows),
        ),
    )


def _expected(history: History, wishes: list[Wish], rows: judge.Rows) -> dict[judge.Name, judge.Expected]:
    """Return what is expected of each row: of the last of its *wishes* if it is repeated."""
    expected: dict[judge.Name, judge.Expected] = {0: judge.Expected(judge.Row(public_id="00"))}
    # whether a listener's row is stored follows from the row of the flush
    expected.update((name, judge.Expected(fate="unknown")) for name in rows if int(name) >= NEVER)
    for wish in wishes:
        if wish.fate in {"stored", "unknown"}:
            known = expected.get(wish.marker)
            fate = "stored" if known is not None and known.fate == "stored" else wish.fate
            expected[wish.marker] = judge.Expected(judge.Row(public_id=wish.given), fate)
            if history.listener in WRITES and wish.is_flushed and wish.marker in rows:
                expected[wish.marker + NEVER] = judge.Expected()
        else:
            expected.setdefault(wish.marker, judge.Expected(fate="gone"))
    return expected


def _check_connections(driver: Driver) -> Iterator[str]:
    # if the return of a connection to the pool is interrupted, nobody is left to reset it
    if any(incident.fault and incident.call.name in {"rollback", "close"} for incident in driver.incidents):
        return
    if any(map(Connection.has_transaction, driver.connections)):
        gc.collect()  # SQLAlchemy has dropped some connections, which are reset when they are garbage-collected
    if any(map(Connection.has_transaction, driver.connections)):
        yield "a connection is back in the pool inside a transaction"
    if any(map(Connection.has_locks, driver.connections)):
        yield "a connection is back in the pool with a lock"
