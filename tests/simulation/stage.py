"""The order of the calls of several sessions, and the call that fails.

Each session is a greenlet. It pauses before a call that others could notice, and the stage resumes one of those that
can go on. Choices and faults are data, so that a history can be repeated call by call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from greenlet import greenlet
from simulation.storage import Database, Family, Kind, Refusal, Table, Transaction

if TYPE_CHECKING:
    from simulation.driver import Connection

T = TypeVar("T")


class TimeLimit(Exception):
    """Raised by a signal handler, as task queues do when a task takes too long."""


class Stuck(BaseException):
    """A history does not end."""


MOST_CALLS = 2_000
"""The number of calls after which a history is given up."""

REFUSED = {
    "unique": Kind.UNIQUE,
    "other unique": Kind.UNIQUE,
    "deadlock": Kind.DEADLOCK,
    "serialization": Kind.SERIALIZATION,
    "timeout": Kind.TIMEOUT,
    "lost": Kind.LOST,
}
"""Trouble that a server reports → the reason."""

RAISED: dict[str, type[BaseException]] = {"interrupt": KeyboardInterrupt, "limit": TimeLimit}
"""Trouble that a signal makes → the exception."""

INTERRUPTIONS = tuple(RAISED.values())

TROUBLES = {
    "connect": ("lost", "interrupt", "limit"),
    "execute": ("deadlock", "serialization", "timeout", "lost", "interrupt", "limit"),
    "insert": ("unique", "other unique", "deadlock", "serialization", "timeout", "lost", "interrupt", "limit"),
    "savepoint": ("lost", "interrupt", "limit"),
    "fetch": ("lost", "interrupt", "limit"),
    "commit": ("deadlock", "serialization", "timeout", "lost", "interrupt", "limit"),
    "rollback": ("lost", "interrupt", "limit"),
    "close": ("lost", "interrupt", "limit"),
}
"""Kind of call → what can go wrong with it."""

AFTERWARDS = frozenset({"lost", "interrupt", "limit"})
"""Trouble that can come when the call has had its effect already."""


@dataclass(frozen=True, order=True)
class Fault:
    """A call that fails: its number in the history, what happens, and whether the call has had its effect."""

    call: int
    trouble: str
    after: bool = False


@dataclass
class Call:
    """A call of the driver that was made."""

    actor: int
    kind: str
    text: str
    outcome: str = ""

    @property
    def sort(self) -> str:
        """The key of the call in :data:`TROUBLES`."""
        if self.kind in {"execute", "executemany"}:
            if "LOCK(" in self.text.upper():  # an advisory one
                return "savepoint"
            return "insert" if self.text.startswith("INSERT") else "execute"
        return self.kind


@dataclass
class Actor:
    """A session that takes part."""

    number: int
    greenlet: Any
    goes_on: Callable[[], bool] | None = None
    """Returns True as soon as the actor need not wait any longer."""
    refusal: Refusal | None = None
    """What the actor gets instead of what it has waited for."""


@dataclass
class Incident:
    """An error that the driver has raised, and whether the stage has made it up."""

    actor: int
    error: BaseException
    refusal: Refusal | None
    fault: Fault | None
    call: Call

    @property
    def is_cleanup(self) -> bool:
        """True for a call that only undoes or frees: its error may be hidden by the one before it."""
        return self.call.kind in {"rollback", "close"} or "ROLLBACK TO" in self.call.text or self.frees

    @property
    def frees(self) -> bool:
        """True for the empty statement, which frees the one before it on SQLite."""
        return self.call.kind == "execute" and not self.call.text


class Stage:
    """One history: a database, the sessions that use it, the calls that they have made.

    :param choices: the number of the actor that goes on, each time that several can; the first ones of all.
    """

    def __init__(
        self, family: Family, tables: Iterable[Table], choices: Sequence[int] = (), faults: Iterable[Fault] = ()
    ) -> None:
        self.database = Database(family, {table.name: table for table in tables}, self._wait)
        self.choices = choices
        self.faults = {fault.call: fault for fault in faults}
        self.degrees: list[int] = []
        """The number of actors between which each choice was."""
        self.calls: list[Call] = []
        self.incidents: list[Incident] = []
        self.connections: list[Connection] = []
        self.error: Callable[[Refusal], Exception]
        """Makes the error of the driver; the driver sets it."""
        self.written_on_followers: list[str] = []
        self.is_over = False
        self._actors: list[Actor] = []
        self._current: Actor | None = None
        self._director: Any = None

    # --- actors

    def play(self, programs: Sequence[Callable[[], None]]) -> None:
        """Run *programs* to their ends, each as an actor."""
        self._director = greenlet.getcurrent()
        self._actors = [Actor(number, greenlet(program)) for number, program in enumerate(programs)]
        while alive := [actor for actor in self._actors if not actor.greenlet.dead]:
            self._current = self._choose(alive)
            self._current.goes_on = None
            self._current.greenlet.switch()
        self.is_over = True
        self._current = None

    def _choose(self, alive: list[Actor]) -> Actor:
        able = [actor for actor in alive if actor.goes_on is None or actor.goes_on()]
        if not able:  # each waits for another one: who came last to wait is refused
            victim = self._current if self._current in alive else alive[-1]
            assert victim is not None
            one_writer = self.database.family.one_writer
            victim.refusal = Refusal(Kind.TIMEOUT if one_writer else Kind.DEADLOCK)
            return victim
        able.sort(key=lambda actor: actor is not self._current)
        if len(able) == 1:
            return able[0]
        at = len(self.degrees)
        self.degrees.append(len(able))
        return able[self.choices[at] % len(able)] if at < len(self.choices) else able[0]

    @property
    def actor(self) -> int:
        return -1 if self._current is None else self._current.number

    def _pause(self) -> None:
        if len(self._actors) > 1 and greenlet.getcurrent() is not self._director:
            self._director.switch()

    def _wait(self, transaction: Transaction, owner: Any, goes_on: Callable[[], bool]) -> None:
        actor = self._current
        if actor is None or getattr(owner, "actor", None) == actor.number:
            raise Refusal(Kind.TIMEOUT)  # the program waits for itself
        actor.goes_on = goes_on
        self._director.switch()
        if actor.refusal is not None:
            refusal, actor.refusal = actor.refusal, None
            raise refusal

    # --- calls

    def call(
        self,
        connection: Connection | None,
        kind: str,
        text: str,
        effect: Callable[[], T],
        begin: Callable[[], object] | None = None,
    ) -> T:
        """Make one call of the driver.

        :param begin: what the driver has done before a server can refuse the call.
        """
        if kind in _NOTICED:
            self._pause()
        if connection is not None:
            connection.actor = self.actor
        number = len(self.calls)
        if number > MOST_CALLS and not self.is_over:
            raise Stuck
        made = Call(self.actor, kind, text)
        self.calls.append(made)
        fault = self.faults.get(number) if self._current is not None else None
        if fault is not None and fault.trouble not in TROUBLES[made.sort]:
            fault = None
        if fault is not None and not fault.after:
            if begin is not None and fault.trouble in REFUSED:
                begin()
            raise self._incident(connection, made, None, fault)
        try:
            result = effect()
        except Refusal as refusal:
            raise self._incident(connection, made, refusal, None) from None
        if connection is None:  # the call has made it
            connection = self.connections[-1]
            connection.actor = self.actor
        if fault is not None:
            raise self._incident(connection, made, None, fault)
        return result

    def _incident(
        self, connection: Connection | None, made: Call, refusal: Refusal | None, fault: Fault | None
    ) -> BaseException:
        """Note that *made* fails, and return what the driver raises."""
        error: BaseException
        if fault is not None and fault.trouble in RAISED:
            error = RAISED[fault.trouble](fault.trouble)
        else:
            if fault is not None:
                refusal = self._refusal(fault)
            assert refusal is not None
            error = self.error(refusal) if connection is None else connection.suffer(refusal, made.kind)
        made.outcome = f"{type(error).__name__}: {error}" + (" (made up)" if fault else "")
        self.incidents.append(Incident(made.actor, error, refusal, fault, made))
        return error

    def _refusal(self, fault: Fault) -> Refusal:
        kind, indexes = REFUSED[fault.trouble], self.database.tables["item"].indexes
        if kind is Kind.UNIQUE:
            return Refusal(kind, indexes[fault.trouble == "other unique"], ())
        return Refusal(kind)

    def __str__(self) -> str:
        return "\n".join(
            f"{number:3} {'AB'[call.actor] if call.actor >= 0 else '-'} {call.kind:10} "
            f"{' '.join(call.text.split())[:100]} {call.outcome}"
            for number, call in enumerate(self.calls)
        )


_NOTICED = frozenset({"execute", "executemany", "commit", "rollback"})
"""Calls that another session can notice."""
