"""A session that runs the steps of a program."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import Any

from faults.driver import Driver, Incident
from faults.histories import DUPLICATE, NEITHER, READ, History, Op
from faults.judging import FLUSHES, Judge, Wish
from faults.models import GIVEN, GIVES, LISTENERS, Heard, Item, gets_id
from sqlalchemy import inspect
from sqlalchemy.exc import PendingRollbackError
from sqlalchemy.orm import Session
from support.judge import Row, Stored
from support.steps import FLUSHING, OBJECT_STEPS, ROW_STEPS

TAKEN_CODE = 1
ONCE = 5_000
"""Markers from here on belong to rows of ``insert_once``; they follow from the ids, so repetitions share them."""


class Player(Judge):
    """One session. Its findings are in :attr:`violations`."""

    def __init__(self, history: History, driver: Driver, observer: Any) -> None:
        super().__init__(history, driver)
        self.observer = observer
        self.model: Any = Heard if history.listener else Item
        self.made: list[Any] = []
        """Objects that listeners have added."""
        self.group = 0
        self._next_marker = 100
        self._last_undone: list[Wish] = []
        self._had_error = False
        self.session = self._new_session()

    def _new_session(self) -> Session:
        session = Session(self.driver.engine, expire_on_commit=False)
        if self.history.listener:
            session.info.update(LISTENERS[self.history.listener](self.made))
        return session

    def rows(self) -> list[Stored]:
        connection = self.driver.connections[-1:]
        if connection and connection[0].has_transaction():
            with suppress(self.driver.engine.dialect.loaded_dbapi.Error):  # PostgreSQL has aborted the transaction
                return read(connection[0].raw)
        return read(self.observer)

    # --- the program

    def play(self) -> None:
        """Run all steps, then close the session."""
        for op in self.history.steps:
            self.step(op)
        if self._had_error:  # the session has to remain usable
            self.step(Op("flush", (NEITHER,)))
        self.step(Op("commit"))
        self.op = Op("close")
        before = len(self.driver.incidents)
        try:
            self.session.close()
        except BaseException as error:
            self.judge_error(error, self.driver.incidents[before:], [])

    def step(self, op: Op) -> None:
        """Run one step, and judge its result."""
        self.op, before = op, len(self.driver.incidents)
        self.taken = {str(each.row.public_id) for each in self.rows()}
        wishes = [self._wish(word) for word in op.rows]
        try:
            self._run(wishes)
        except BaseException as error:
            self._had_error = True
            self.judge_error(error, self.driver.incidents[before:], wishes)
            self._recover(error, wishes)
        else:
            self.judge_success(self.driver.incidents[before:], wishes)

    def _wish(self, word: str) -> Wish:
        given = None if word[0] in {NEITHER, READ} else word.removesuffix(DUPLICATE)
        is_flushed = self.op.name in FLUSHING
        if self.op.name == "once":
            return Wish(ONCE + int(word, 16), given, word, is_flushed=is_flushed)
        self._next_marker += 1
        if self._is_given_by_listener(self._next_marker):
            given = GIVEN
        return Wish(self._next_marker, given, word, is_flushed=is_flushed)

    def _is_given_by_listener(self, marker: int) -> bool:
        return self.history.listener in GIVES and self.op.name in FLUSHES and gets_id(marker)

    # --- steps

    def _run(self, wishes: list[Wish]) -> None:
        name = self.op.name
        if name in OBJECT_STEPS:
            objects = OBJECT_STEPS[name](self.session, [self._object(wish) for wish in wishes])
        elif name in ROW_STEPS:
            skipped = [wish for wish in wishes if name == "skipping" and wish.word.endswith(DUPLICATE)]
            count, objects = ROW_STEPS[name](self.session, self.model, [self._values(wish) for wish in wishes])
            if count not in (None, len(wishes) - len(skipped)):
                self.report("a row count is wrong", f"{count} instead of {len(wishes) - len(skipped)}")
            for wish in skipped:
                wish.fate = "gone"
        else:
            getattr(self, f"_{name}")(wishes)
            return
        for wish, instance in zip(wishes, objects, strict=bool(objects)):
            wish.instance = instance

    def _values(self, wish: Wish) -> dict[str, Any]:
        code = {"code": TAKEN_CODE} if wish.word.endswith(DUPLICATE) else {}
        if self.op.name in {"skipping", "upsert"} and not code:
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

    def _again(self, wishes: list[Wish]) -> None:
        """Add the objects of the last rollback once more; they have to keep the ids that they show."""
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
        """Do what programs do after an error: roll back to the savepoint if there is one, or else the transaction."""
        self.wishes += wishes
        is_inside = len(self.levels) > 1 and isinstance(error, Exception) and self.op.name not in {"undo", "release"}
        is_lost = any(each.fault is not None and each.fault.trouble == "lost" for each in self.driver.incidents)
        if is_inside and not is_lost and self.op.name != "commit" and self._undo_savepoint(wishes):
            return
        self.levels[-1][1].extend(wishes)
        before = len(self.driver.incidents)
        try:
            self.session.rollback()
        except BaseException as second:
            if before == len(self.driver.incidents) and not is_lost:  # a lost connection raises again
                self.report("rollback() raises", repr(second))
            with suppress(BaseException):
                self.session.close()
            self.session = self._new_session()
        self._end_all("unknown" if self.op.name == "commit" else "gone")

    def _undo_savepoint(self, wishes: list[Wish]) -> bool:
        savepoint, rows = self.levels[-1]
        before: list[Incident] = list(self.driver.incidents)
        try:
            if savepoint.is_active:
                savepoint.rollback()
            elif self.session.get_nested_transaction() is savepoint:
                self.session.rollback()
                return False
        except BaseException as error:
            if before == self.driver.incidents and not isinstance(error, PendingRollbackError):
                self.report("rollback() to a savepoint raises", repr(error))
            return False
        if not self.session.is_active or self.session.get_nested_transaction() is savepoint:
            return False
        self.levels.pop()
        self._end([*rows, *wishes], "gone")
        return True


def read(connection: Any) -> list[Stored]:
    """Return the rows of the table, read with a *connection* of the driver."""
    with closing(connection.cursor()) as cursor:
        cursor.execute("SELECT marker, id, public_id FROM item")
        return [Stored(marker, Row(*row)) for marker, *row in cursor.fetchall()]
