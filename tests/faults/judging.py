"""The rules about errors: which error a step may raise, given the calls of the driver that have failed.

The rules about rows and objects are those of ``support.judge``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from faults.driver import RAISED, Driver, Incident
from faults.histories import DUPLICATE, History, Op
from faults.models import GIVEN, WRITES_GIVEN
from sqlalchemy.exc import IntegrityError, PendingRollbackError
from support.judge import Row, Shown, Stored, find_wrong_objects, group_rows
from support.steps import FLUSHING

from sqlalchemy_public_id.errors import IdempotencyConflict

FLUSHES = (FLUSHING | {"again"}) - {"once", "second_session"}
"""Steps whose rows listeners see: they belong to the session of the history."""
INTERRUPTIONS = tuple(RAISED.values())


@dataclass(eq=False)
class Wish:
    """A row that a program wants to be stored."""

    marker: int
    given: str | None
    """The id that the row has to have: given by the program, or read by it."""
    word: str
    instance: Any = None
    fate: str = "open"
    """``open`` in a transaction, then ``stored``, ``gone``, or ``unknown`` if the answer to COMMIT was lost."""
    group: int = 0
    """The transaction."""
    is_flushed: bool = False
    """True if the unit of work writes the row, so that listeners of the mapper run."""
    shown: str | None = None
    """The id that the object has shown after its flush."""


class Judge:
    """Compares the result of each step of a session with the rules."""

    def __init__(self, history: History, driver: Driver) -> None:
        self.history = history
        self.driver = driver
        self.op = Op("start")
        self.violations: list[str] = []
        self.wishes: list[Wish] = []
        self.levels: list[tuple[Any, list[Wish]]] = [(None, [])]
        """The open savepoints, each with the rows that were written since; the first is the transaction itself."""
        self.taken: set[str] = set()
        """The ids that were stored before the step."""

    def rows(self) -> list[Stored]:
        """Return the rows that the session sees."""
        raise NotImplementedError

    def report(self, rule: str, detail: object) -> None:
        self.violations.append(f"{rule} ({self.op}): {detail}")

    def judge_success(self, incidents: list[Incident], wishes: list[Wish]) -> None:
        for incident in incidents:
            if incident.fault is not None and not self._may_be_hidden(incident):
                self.report("an error is swallowed", incident)
        is_twice = self.history.listener == "core, twice" and self.op.name in FLUSHES and wishes
        if is_twice or (self.op.name != "skipping" and any(wish.word.endswith(DUPLICATE) for wish in wishes)):
            self.report("a duplicate is accepted", "")
        self.wishes += wishes
        self.levels[-1][1].extend(wish for wish in wishes if wish.fate == "open")
        self.check_objects(wish for _, level in self.levels for wish in level)

    def _may_be_hidden(self, incident: Incident) -> bool:
        assert incident.fault is not None
        trouble = incident.fault.trouble
        if incident.call.is_cleanup and (trouble not in RAISED or incident.call.name in {"rollback", "close"}):
            return True
        if trouble == "unique":
            return True  # the row gets another id, or insert_once() finds that no row has this one
        # insert_once() repeats its transaction, and looks the row up if any constraint has refused it
        return self.op.name == "once" and trouble in {"deadlock", "serialization", "other unique", "missing value"}

    def judge_error(self, error: BaseException, incidents: list[Incident], wishes: list[Wish]) -> None:
        made_up = [incident for incident in incidents if incident.fault is not None]
        if isinstance(error, PendingRollbackError) and not self._is_in_second_session:
            self.report("PendingRollbackError instead of its reason", error)
        if made_up:
            errors = [incident.error for incident in made_up]
            if len(made_up) > 1 and (error in errors or getattr(error, "orig", None) in errors):
                return  # the later error replaces the earlier one, in SQLAlchemy itself, too
            for incident in made_up:
                if not self._may_be_hidden(incident) and not self._is_explained(incident, error, incidents, wishes):
                    self._judge_made_up(incident, error)
        elif not any(self._explains(incident, error, wishes) for incident in incidents) and not self._is_expected(
            error, wishes
        ):
            self.report(f"{type(error).__name__} without a reason", error)

    def _is_explained(
        self, incident: Incident, error: BaseException, incidents: list[Incident], wishes: list[Wish]
    ) -> bool:
        """Return True if *error* may be raised instead of the error that was made up."""
        if self._is_expected(error, wishes):
            return True  # the id was found to be taken as well
        raised = list(_chain(error))
        if isinstance(incident.error, INTERRUPTIONS):
            # the ROLLBACK that follows fails on a connection that was lost before
            lost = any(other.fault is not None and other.fault.trouble == "lost" for other in incidents)
            return lost and incident.error in raised
        # the guard makes a transaction fail by an INSERT whose error it ignores: what comes next reports the loss,
        # which is a ROLLBACK, or a statement for the savepoint of the program
        is_lost = incident.fault is not None and incident.fault.trouble == "lost"
        by_rollback = any(other.call.name == "rollback" and other.error in raised for other in incidents)
        if is_lost and (by_rollback or getattr(error, "connection_invalidated", False)):
            return True
        # the guard fails a transaction in which an earlier INSERT has to fail: the error of that INSERT is the reason
        if any(other.fault is None and self._explains(other, error, wishes) for other in incidents):
            return True
        return incident.call.undoes and any(other.error in raised for other in incidents)  # an earlier error

    def _judge_made_up(self, incident: Incident, error: BaseException) -> None:
        if incident.error not in _chain(error):
            self.report("an error is masked", f"{error!r} instead of {incident}")
        elif isinstance(incident.error, INTERRUPTIONS) and not self._is_passed_on(incident.error, error):
            self.report("an interruption is masked", f"{error!r} for {incident}")

    def _is_passed_on(self, interruption: BaseException, error: BaseException) -> bool:
        raised = [incident.error for incident in self.driver.incidents]
        if error in raised or getattr(error, "orig", None) is interruption:  # a column default has raised it
            return True
        return isinstance(error, PendingRollbackError) and self._is_in_second_session

    @property
    def _is_in_second_session(self) -> bool:
        """True if the block of the application's second session may end with its own error."""
        return self.history.listener.startswith("session") or self.op.name == "second_session"

    def _explains(self, incident: Incident, error: BaseException, wishes: list[Wish]) -> bool:
        """Return True if the refusal of the database is a reason for *error*."""
        if not isinstance(error, IntegrityError) or error.orig is not incident.error:
            return False
        if self.op.name == "or_rollback":  # the statement has rolled the transaction back, with its earlier rows
            return True
        if not incident.values:
            return any(wish.word.endswith(DUPLICATE) for wish in wishes)
        given = list(self._given(wishes))
        return len(set(given)) < len(given) or any(map(self._is_taken, given)) or bool(incident.values & {*given})

    def _is_taken(self, public_id: str) -> bool:
        """Return True if another row had the id when the step began, or has it after the step has failed."""
        return public_id in self.taken or public_id in {each.row.public_id for each in self.rows()}

    def _given(self, wishes: list[Wish]) -> Iterator[str]:
        for wish in wishes:
            if wish.given is not None:
                yield wish.given
        if self.history.listener in WRITES_GIVEN:
            yield GIVEN
            yield from (wish.instance.__dict__.get("public_id") for wish in wishes if wish.instance is not None)

    def _is_expected(self, error: BaseException, wishes: list[Wish]) -> bool:
        """Return True if ``insert_once()`` has found that the id belongs to another row."""
        return isinstance(error, IdempotencyConflict) and any(
            self._is_taken(wish.given) for wish in wishes if wish.given is not None
        )

    def check_objects(self, wishes: Iterable[Wish]) -> None:
        """Compare objects with their stored rows."""
        shown: list[Shown] = []
        for wish in wishes:
            own = {} if wish.instance is None else wish.instance.__dict__
            if wish.fate in {"open", "stored"} and own.get("public_id") is not None:
                shown.append(Shown(wish.marker, Row(own.get("id"), own["public_id"]), wish.shown))
                wish.shown = own["public_id"]
        for finding in find_wrong_objects(shown, group_rows(self.rows())):
            self.report(finding.kind, finding.what)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, the error of the driver in it, and the errors that led to it."""
    seen: list[BaseException] = []
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if each is None or each in seen:
            continue
        seen.append(each)
        yield each
        waiting += [each.__cause__, each.__context__, getattr(each, "orig", None)]
