"""A session that runs the steps of a program."""

from __future__ import annotations

from contextlib import closing, suppress
from itertools import groupby
from typing import Any

from faults.driver import Driver, Incident
from faults.histories import DUPLICATE, NEITHER, READ, History, Op
from faults.judging import FLUSHES, Judge, Row, Wish
from faults.models import GIVEN, GIVES, LISTENERS, Heard, Item, gets_id
from sqlalchemy import insert, inspect
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import PendingRollbackError
from sqlalchemy.orm import Session

from sqlalchemy_public_id import bulk, idempotency

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

    def rows(self) -> list[Row]:
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
        self.taken = {row.public_id for row in self.rows()}
        wishes = [self._wish(word) for word in op.rows]
        try:
            getattr(self, f"_{op.name}")(wishes)
        except BaseException as error:
            self._had_error = True
            self.judge_error(error, self.driver.incidents[before:], wishes)
            self._recover(error, wishes)
        else:
            self.judge_success(self.driver.incidents[before:], wishes)

    def _wish(self, word: str) -> Wish:
        given = None if word[0] in {NEITHER, READ} else word.removesuffix(DUPLICATE)
        is_flushed = self.op.name in {*FLUSHES, "once"}
        if self.op.name == "once":
            return Wish(ONCE + int(word, 16), given, word, is_flushed=is_flushed)
        self._next_marker += 1
        if self._is_given_by_listener(self._next_marker):
            given = GIVEN
        return Wish(self._next_marker, given, word, is_flushed=is_flushed)

    def _is_given_by_listener(self, marker: int) -> bool:
        return self.history.listener in GIVES and self.op.name in FLUSHES and gets_id(marker)

    # --- steps

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

    def _orm(self, wishes: list[Wish]) -> None:
        self._execute_many(insert(self.model), wishes)

    def _execute_many(self, statement: Any, wishes: list[Wish]) -> None:
        stored = sum(not (wish.word.endswith(DUPLICATE) and self.op.name == "skipping") for wish in wishes)
        count = 0
        for alike in _alike([self._values(wish) for wish in wishes]):
            result: Any = self.session.execute(statement, alike, execution_options={"preserve_rowcount": True})
            count += getattr(result, "rowcount", len(alike))  # a result of the ORM has no rowcount
        if count != stored:
            self.report("a row count is wrong", f"{count} instead of {stored}")

    def _skipping(self, wishes: list[Wish]) -> None:
        """Insert rows, and skip those whose code is taken, by the application's own ON CONFLICT."""
        own: Any = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[self.driver.engine.name]
        self._execute_many(own(self.model.__table__).on_conflict_do_nothing(index_elements=["code"]), wishes)
        for wish in wishes:
            if wish.word.endswith(DUPLICATE):
                wish.fate = "gone"

    def _or_rollback(self, wishes: list[Wish]) -> None:
        """Insert with a statement that rolls the transaction back if it fails."""
        for wish in wishes:
            self.session.execute(insert(self.model.__table__).prefix_with("OR ROLLBACK"), self._values(wish))

    def _values_clause(self, wishes: list[Wish]) -> None:
        for alike in _alike([self._values(wish) for wish in wishes]):
            self.session.execute(insert(self.model).values(alike))

    def _returning(self, wishes: list[Wish]) -> None:
        statement: Any = insert(self.model).returning(self.model, sort_by_parameter_order=True)
        instances: list[Any] = []
        for alike in _alike([self._values(wish) for wish in wishes]):
            instances += self.session.scalars(statement, alike).all()
        for wish, instance in zip(wishes, instances, strict=True):
            wish.instance = instance

    def _bulk(self, wishes: list[Wish]) -> None:
        bulk.insert(self.session, [self._object(wish) for wish in wishes])

    def _once(self, wishes: list[Wish]) -> None:
        for wish in wishes:
            wish.instance, _ = idempotency.insert_once(self.session, self.model(**self._values(wish)))

    def _merge(self, wishes: list[Wish]) -> None:
        for wish in wishes:
            wish.instance = self.session.merge(self._object(wish))
        self.session.flush()

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


def read(connection: Any) -> list[Row]:
    """Return the rows of the table, read with a *connection* of the driver."""
    with closing(connection.cursor()) as cursor:
        cursor.execute("SELECT id, public_id, marker FROM item")
        return [Row(*row) for row in cursor.fetchall()]


def _alike(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the rows in groups that have the same columns, each for one INSERT."""
    return [list(group) for _, group in groupby(rows, key=dict.keys)]
