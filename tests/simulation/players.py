"""A session that runs the steps of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from simulation.expressions import Unknown
from simulation.histories import DUPLICATE, NEITHER, READ, History, Op
from simulation.judging import FLUSHES, GIVEN, GIVES, ONCE, Judge, Wish
from simulation.models import MODELS, RoutedSession, gets_id, give_id, write_by_core, write_by_session
from simulation.stage import Incident, Stage, Stuck
from sqlalchemy import Engine, insert, inspect
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import PendingRollbackError
from sqlalchemy.orm import Session

from sqlalchemy_public_id import bulk, idempotency

TAKEN_CODE = 1

LISTENERS: dict[str, Callable[[Player], dict[str, Any]]] = {
    "core": lambda player: {"after_insert": write_by_core()},
    "core, given": lambda player: {"after_insert": write_by_core(lambda item: GIVEN)},
    "core, twice": lambda player: {"after_insert": write_by_core(lambda item: item.public_id)},
    "session": lambda player: {"after_insert": write_by_session(player.made)},
    "session, given": lambda player: {"after_insert": write_by_session(player.made, own_id=GIVEN)},
    "session, orm": lambda player: {"after_insert": write_by_session(player.made, "orm")},
    "session, bulk": lambda player: {"after_insert": write_by_session(player.made, "bulk")},
    "gives early": lambda player: {"early before_insert": give_id(GIVEN)},
    "gives late": lambda player: {"late before_insert": give_id(GIVEN)},
}
"""What listeners of the application do in each of its flushes."""


class Player(Judge):
    """One session. Its findings are in :attr:`violations`."""

    def __init__(self, stage: Stage, engine: Engine, follower: Engine, history: History, number: int) -> None:
        super().__init__()
        self.stage = stage
        self.engine = engine
        self.follower = follower
        self.history = history
        self.number = number
        self.model = MODELS[history.model]
        self.wishes: list[Wish] = []
        self.levels: list[tuple[Any, list[Wish]]] = [(None, [])]
        """The open savepoints, each with the rows that were written since; the first is the transaction itself."""
        self.made: list[Any] = []
        """Objects that listeners have added."""
        self.group = 0
        self.op = Op("start")
        self._next_marker = 100 * (number + 1)
        self._last_undone: list[Wish] = []
        self._had_error = False
        self.session = self._new_session()

    def _new_session(self) -> Session:
        kind = RoutedSession if self.history.routed else Session
        session = kind(self.engine, expire_on_commit=self.history.expires)
        session.info.update(leader=self.engine, follower=self.follower)
        if self.history.listener is not None:
            session.info.update(LISTENERS[self.history.listener](self))
        return session

    # --- the program

    def play(self) -> None:
        """Run all steps, then close the session."""
        for op in self.history.programs[self.number]:
            self.step(op)
        if self._had_error:  # the session is still of use
            self.step(Op("keyed" if self.history.trigger == "redirect" else "flush", (NEITHER,)))
        self.step(Op("commit"))
        self.op = Op("close")
        before = len(self.stage.incidents)
        try:
            self.session.close()
        except BaseException as error:
            self.judge_error(error, self._incidents(before), [])

    def step(self, op: Op) -> None:
        """Run one step, and judge what comes of it."""
        self.op, before = op, len(self.stage.incidents)
        self._taken = self.stored_ids()
        wishes = [self._wish(word) for word in op.rows]
        for wish in wishes:
            wish.is_flushed = op.name in {*FLUSHES, "once"}
        try:
            self._run(op, wishes)
        except (Unknown, Stuck):
            raise
        except BaseException as error:
            self._had_error = True
            self.judge_error(error, self._incidents(before), wishes)
            self._recover(error, wishes)
        else:
            self.judge_success(self._incidents(before), wishes)

    def _incidents(self, before: int) -> list[Incident]:
        return [incident for incident in self.stage.incidents[before:] if incident.actor == self.number]

    def _wish(self, word: str) -> Wish:
        word, is_duplicate = word.removesuffix(DUPLICATE), word.endswith(DUPLICATE)
        given = None if word in {NEITHER, READ} else word
        if self.op.name == "once":
            assert given is not None
            return Wish(ONCE + int(given, 16), given, word)
        self._next_marker += 1
        wish = Wish(self._next_marker, given, word + DUPLICATE * is_duplicate)
        if self._is_given_by_listener(wish.marker):
            wish.given = GIVEN
        return wish

    def _is_given_by_listener(self, marker: int) -> bool:
        return self.history.listener in GIVES and self.op.name in FLUSHES and gets_id(marker)

    # --- steps

    def _run(self, op: Op, wishes: list[Wish]) -> None:
        getattr(self, f"_{op.name}")(wishes)

    def _values(self, wish: Wish) -> dict[str, Any]:
        code = {"code": TAKEN_CODE} if wish.word.endswith(DUPLICATE) else {}
        if self.op.name == "skipping" and not code:
            code = {"code": wish.marker}
        own = wish.word.removesuffix(DUPLICATE)
        return {"marker": wish.marker, **code, **({} if own in {NEITHER, READ} else {"public_id": own})}

    def _object(self, wish: Wish) -> Any:
        instance = wish.instance = self.model(**self._values(wish))
        if wish.word.startswith(READ):
            read = instance.public_id
            if not self._is_given_by_listener(wish.marker):
                wish.given = read
        return instance

    def _flush(self, wishes: list[Wish]) -> None:
        self.session.add_all([self._object(wish) for wish in wishes])
        self.session.flush()

    def _core(self, wishes: list[Wish]) -> None:
        self._execute_many(insert(self.model.__table__), wishes)

    def _keyed(self, wishes: list[Wish]) -> None:
        """Insert with the key, as programs do whose triggers store rows elsewhere: nothing has to be returned."""
        for wish in wishes:
            self.session.execute(insert(self.model.__table__).values(**self._values(wish), id=wish.marker))

    def _orm(self, wishes: list[Wish]) -> None:
        self._execute_many(insert(self.model), wishes)

    def _execute_many(self, statement: Any, wishes: list[Wish]) -> None:
        stored = sum(not (wish.word.endswith(DUPLICATE) and self.op.name == "skipping") for wish in wishes)
        count = 0
        for alike in _alike([self._values(wish) for wish in wishes]):
            result: Any = self.session.execute(statement, alike)
            count += getattr(result, "rowcount", len(alike))  # one of the ORM has none
        if count != stored and self.history.trigger != "redirect":
            self.report("a row count is wrong", f"{count} instead of {stored}")

    def _skipping(self, wishes: list[Wish]) -> None:
        """Insert rows, and leave out those whose code is taken, by the application's own ON CONFLICT."""
        own = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[self.history.family]
        self._execute_many(own(self.model.__table__).on_conflict_do_nothing(index_elements=["code"]), wishes)
        for wish in wishes:
            if wish.word.endswith(DUPLICATE):
                wish.fate = "gone"

    def _or_rollback(self, wishes: list[Wish]) -> None:
        """Insert by a statement that ends the transaction if it fails."""
        statement = insert(self.model.__table__).prefix_with("OR ROLLBACK")
        for wish in wishes:
            self.session.execute(statement, self._values(wish))

    def _values_clause(self, wishes: list[Wish]) -> None:
        for alike in _alike([self._values(wish) for wish in wishes]):
            self.session.execute(insert(self.model).values(alike))

    def _returning(self, wishes: list[Wish]) -> None:
        statement: Any = insert(self.model).returning(self.model, sort_by_parameter_order=True)
        at = 0
        for alike in _alike([self._values(wish) for wish in wishes]):
            for instance in self.session.scalars(statement, alike).all():
                wishes[at].instance = instance
                at += 1

    def _bulk(self, wishes: list[Wish]) -> None:
        bulk.insert(self.session, [self._object(wish) for wish in wishes])

    def _once(self, wishes: list[Wish]) -> None:
        for wish in wishes:
            values = self._values(wish)
            wish.instance, _ = idempotency.insert_once(self.session, self.model(**values))

    def _merge(self, wishes: list[Wish]) -> None:
        for wish in wishes:
            wish.instance = self.session.merge(self._object(wish))
        self.session.flush()

    def _again(self, wishes: list[Wish]) -> None:
        """Add the objects of the last rollback once more; what they show is what they keep."""
        lost = [wish for wish in self._last_undone if wish.instance is not None and wish.marker < ONCE]
        self._last_undone = []
        for wish in lost:
            if wish.instance in self.session or not inspect(wish.instance).transient:
                continue
            shown = wish.instance.__dict__.get("public_id")
            given = GIVEN if self._is_given_by_listener(wish.marker) else shown
            wishes.append(Wish(wish.marker, given, wish.word, wish.instance, is_flushed=True))
        self.session.add_all([wish.instance for wish in wishes])
        self.session.flush()

    def _savepoint(self, wishes: list[Wish]) -> None:
        self.levels.append((self.session.begin_nested(), []))

    def _release(self, wishes: list[Wish]) -> None:
        if len(self.levels) > 1:
            self.levels[-1][0].commit()
            rows = self.levels.pop()[1]
            self.levels[-1][1].extend(rows)

    def _undo(self, wishes: list[Wish]) -> None:
        if len(self.levels) > 1:
            self.levels[-1][0].rollback()
            self._end(self.levels.pop()[1], "gone")

    def _commit(self, wishes: list[Wish]) -> None:
        self.session.commit()
        self._end_all("stored")

    def _rollback(self, wishes: list[Wish]) -> None:
        self.session.rollback()
        self._end_all("gone")

    # --- the fate of rows

    def _end(self, wishes: list[Wish], fate: str) -> None:
        for wish in wishes:
            wish.fate = fate
        if fate == "gone":
            self._last_undone = list(wishes)

    def _end_all(self, fate: str) -> None:
        rows = [wish for _, level in self.levels for wish in level]
        for wish in rows:
            wish.group = self.group
        self._end(rows, fate)
        self.levels = [(None, [])]
        self.group += 1

    def _recover(self, error: BaseException, wishes: list[Wish]) -> None:
        """Do what programs do after an error: roll back to the savepoint if there is one, else the transaction."""
        self.wishes += wishes
        if self.op.name == "commit":
            fate = "unknown"
        else:
            fate = "gone"
            if self._can_undo_savepoint(error) and self._undo_savepoint(wishes):
                return
        self.levels[-1][1].extend(wishes)
        before = len(self.stage.incidents)
        try:
            self.session.rollback()
        except BaseException as second:
            if not any(incident.fault or incident.refusal for incident in self._incidents(before)):
                self.report("rollback() raises", repr(second))
            with suppress(BaseException):
                self.session.close()
            self.session = self._new_session()
        self._end_all(fate)

    def _can_undo_savepoint(self, error: BaseException) -> bool:
        if len(self.levels) == 1 or not isinstance(error, Exception) or self.op.name in {"undo", "release"}:
            return False
        return not any(each.closed for each in self.stage.connections)

    def _undo_savepoint(self, wishes: list[Wish]) -> bool:
        savepoint, rows = self.levels[-1]
        before = len(self.stage.incidents)
        try:
            if savepoint.is_active:
                savepoint.rollback()
            elif self.session.get_nested_transaction() is savepoint:
                self.session.rollback()
                return False
        except BaseException as error:
            if not self._incidents(before) and not isinstance(error, PendingRollbackError):
                self.report("rollback() to a savepoint raises", repr(error))
            return False
        if not self.session.is_active or self.session.get_nested_transaction() is savepoint:
            return False
        self.levels.pop()
        self._end([*rows, *wishes], "gone")
        return True


def _alike(rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows in groups with the same columns, as one INSERT takes them."""
    at = 0
    while at < len(rows):
        end = at + 1
        while end < len(rows) and rows[end].keys() == rows[at].keys():
            end += 1
        yield rows[at:end]
        at = end
