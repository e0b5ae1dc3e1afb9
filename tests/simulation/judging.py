"""The rules: what a session has a right to expect of each row, each object and each error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from simulation.histories import DUPLICATE, History, Op, Violation
from simulation.stage import INTERRUPTIONS, RAISED, Incident, Stage
from simulation.storage import Kind
from sqlalchemy.exc import DBAPIError, IntegrityError, PendingRollbackError

from sqlalchemy_public_id.errors import IdempotencyConflict

GIVEN = "fe"
"""The id that listeners give."""
ONCE = 5_000
"""Markers from here belong to rows of ``insert_once``, whose ids decide on them: every repetition is alike."""


GIVES = frozenset({"gives early", "gives late"})
"""Listeners that give an id to every second object."""
WRITES = frozenset({"core", "core, given", "session", "session, given", "session, orm", "session, bulk"})
"""Listeners that write a row for each row of a flush."""
WRITES_GIVEN = frozenset({"core, given", "core, twice", "session, given"})
"""Those that write it with an id of their own."""
FLUSHES = frozenset({"flush", "merge", "bulk", "again"})
"""Steps whose rows listeners see."""


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
    """Compares what comes of each step of a session with the rules."""

    stage: Stage
    history: History
    number: int
    op: Op
    wishes: list[Wish]
    levels: list[tuple[Any, list[Wish]]]

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self._taken: set[str] = set()
        """The ids that were stored before the step."""

    def report(self, rule: str, detail: str) -> None:
        self.violations.append(Violation(rule, self.op.name, detail))

    def judge_success(self, incidents: list[Incident], wishes: list[Wish]) -> None:
        for incident in incidents:
            if incident.fault is not None and not self._may_be_hidden(incident):
                self.report(f"an error is swallowed{_while(incident)}", f"{incident.fault} at {incident.call}")
        is_twice = self.history.listener == "core, twice" and self.op.name in FLUSHES and wishes
        if is_twice or (self.op.name != "skipping" and any(wish.word.endswith(DUPLICATE) for wish in wishes)):
            self.report("a duplicate is accepted", repr(self.op))
        self.wishes += wishes
        self.levels[-1][1].extend(wish for wish in wishes if wish.fate == "open")
        for _, rows in self.levels:
            for wish in rows:
                self.check_object(wish)

    def _may_be_hidden(self, incident: Incident) -> bool:
        assert incident.fault is not None
        if incident.is_cleanup and (
            incident.fault.trouble not in RAISED or incident.call.kind in {"rollback", "close"}
        ):
            return True
        if incident.fault.trouble == "unique":
            return True  # the row gets another id, or insert_once() finds that there is none
        # it repeats its transaction, and looks for the row if any unique index has refused it
        return self.op.name == "once" and incident.fault.trouble in {"deadlock", "serialization", "other unique"}

    def judge_error(self, error: BaseException, incidents: list[Incident], wishes: list[Wish]) -> None:
        made_up = [incident for incident in incidents if incident.fault is not None]
        if made_up:
            errors = [incident.error for incident in made_up]
            if len(made_up) > 1 and (error in errors or getattr(error, "orig", None) in errors):
                return  # the later one takes the place of the earlier one, in SQLAlchemy itself, too
            for incident in made_up:
                if not self._may_be_hidden(incident) and not self._is_explained(incident, error, incidents, wishes):
                    self._judge_made_up(incident, error)
        elif not any(self._explains(incident, error, wishes) for incident in incidents) and not self._is_expected(
            error, wishes
        ):
            self.report(f"{type(error).__name__} without a reason", str(error)[:200])

    def _is_explained(
        self, incident: Incident, error: BaseException, incidents: list[Incident], wishes: list[Wish]
    ) -> bool:
        """Return True if *error* may be raised in the place of what was made up."""
        if self._is_expected(error, wishes):
            return True  # the id is found to be there as well
        raised = list(_chain(error))
        if isinstance(incident.error, INTERRUPTIONS):
            # the ROLLBACK that follows fails on a connection that was lost before
            lost = [other for other in incidents if other.fault is not None and other.fault.trouble == "lost"]
            return bool(lost) and incident.error in raised
        is_undoing = incident.call.kind == "savepoint" or incident.call.text.startswith("DO RELEASE_LOCK")
        return is_undoing and any(other.error in raised for other in incidents)  # the error before it

    def _judge_made_up(self, incident: Incident, error: BaseException) -> None:
        if incident.error not in _chain(error):
            self.report(f"an error is masked{_while(incident)}", f"{error!r} instead of {incident.error!r}")
        elif isinstance(incident.error, INTERRUPTIONS) and not self._is_passed_on(incident.error, error):
            self.report(f"an interruption is masked{_while(incident)}", f"{error!r} for {incident.error!r}")

    def _is_passed_on(self, interruption: BaseException, error: BaseException) -> bool:
        raised = [incident.error for incident in self.stage.incidents if incident.actor == self.number]
        if error in raised or getattr(error, "orig", None) is interruption:  # a column default has raised it
            return True
        # the block of the application's second session ends with an error of its own
        return isinstance(error, PendingRollbackError) and (self.history.listener or "").startswith("session")

    def _explains(self, incident: Incident, error: BaseException, wishes: list[Wish]) -> bool:
        """Return True if what the database has refused is a reason for *error*."""
        refusal = incident.refusal
        if refusal is None or not isinstance(error, DBAPIError):
            return False
        if refusal.kind is Kind.UNIQUE and refusal.index is not None:
            if self.op.name == "or_rollback":  # it has ended the transaction, whose earlier rows are gone
                return isinstance(error, IntegrityError)
            if refusal.index.column == "code":
                return any(wish.word.endswith(DUPLICATE) for wish in wishes)
            given = list(self._given(wishes))
            is_taken = len(set(given)) < len(given) or any(map(self._is_taken, given))
            return isinstance(error, IntegrityError) and (is_taken or refusal.values[0] in given)
        return refusal.kind in {Kind.DEADLOCK, Kind.SERIALIZATION, Kind.TIMEOUT}

    def stored_ids(self) -> set[str]:
        return {row.values["public_id"] for row in self.stage.database.tables["item"].rows}

    def _is_taken(self, public_id: str) -> bool:
        """Return True if another row had the id when the step began, or has it now that it has failed."""
        return public_id in self._taken or public_id in self.stored_ids()

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

    def check_object(self, wish: Wish) -> None:
        """Compare an object with its row."""
        if wish.instance is None or wish.fate not in {"open", "stored"}:
            return
        shown, key = wish.instance.__dict__.get("public_id"), wish.instance.__dict__.get("id")
        rows = [row for row in self.rows_of(wish.marker) if key is None or row["id"] == key]
        if self.history.model == "refreshed" and self.op.name in FLUSHES and "is_refreshed" not in vars(wish.instance):
            self.report("an object is not refreshed", f"{wish}")
        if shown is None:
            return
        if shown not in [row["public_id"] for row in rows]:
            self.report("an object shows an id that is not its row's", f"{shown}, {wish}, {rows}")
        if wish.shown is not None and wish.shown != shown:
            self.report("an object shows another id than before", f"{shown}, {wish}")
        wish.shown = shown

    def rows_of(self, marker: int) -> list[dict[str, Any]]:
        """Return what the tables have for *marker*, in whatever transaction."""
        tables = self.stage.database.tables
        return [
            row.values for name in ("item", "elsewhere") for row in tables[name].rows if row.values["marker"] == marker
        ]


def _while(incident: Incident) -> str:
    return " while a statement is freed" if incident.frees else ""


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, the one of the driver in it, and those that it was raised for."""
    seen: list[BaseException] = []
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if each is None or each in seen:
            continue
        seen.append(each)
        yield each
        waiting += [each.__cause__, each.__context__, getattr(each, "orig", None)]
