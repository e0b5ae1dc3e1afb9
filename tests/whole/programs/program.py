"""Run the steps of a random program, and compare the table and the objects with the expected state."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import inspect
from sqlalchemy.exc import IntegrityError, ResourceClosedError, SQLAlchemyError
from sqlalchemy.orm import Session
from support import judge
from support.interrupt import interrupted
from whole.programs.worlds import World

from sqlalchemy_public_id import PublicIdError, lookup, testing

__all__ = ["Planned", "Program"]

FULL = 60
"""The maximum number of rows. With more rows and a hundred possible ids, a row may use up its retries."""

NO_BOX = "no box"
"""The reference of a row that refers to no box."""

REFUSALS = (IntegrityError, PublicIdError)


class Interrupted(KeyboardInterrupt):
    """A simulated Ctrl+C while the driver executes a statement."""


@dataclass(frozen=True)
class Planned:
    """The expected state of a row, or of an object before its INSERT."""

    id: str | None = None
    """The public id that was given, or that was read from the table; ``None`` if it is not known yet."""
    box: str | None = None
    """The public id of the row that it refers to."""
    excuse: str = ""
    """The reason why its INSERT may be refused."""


@dataclass
class State:
    """The expected rows by their markers, and the number of INSERTs and logs of each."""

    rows: dict[int, Planned] = field(default_factory=dict)
    inserts: Counter[int] = field(default_factory=Counter)
    logs: Counter[int] = field(default_factory=Counter)

    def copy(self) -> State:
        return State(dict(self.rows), Counter(self.inserts), Counter(self.logs))


class Program:
    """A session, the state that its program has written, and the checks of both."""

    def __init__(self, world: World, seed: int) -> None:
        chance = random.Random(seed)
        self.world = world
        self.model = world.model
        self.options = {"expire_on_commit": chance.random() < 0.5, "autoflush": chance.random() < 0.5}
        self.session: Session = world.session(**self.options)
        self.state, self.committed = State(), State()
        self.levels: list[tuple[Any, State]] = []
        """The open savepoints, and the state before each."""
        self.waiting: dict[int, Planned] = {}
        """The rows that the next flush should insert."""
        self.objects: list[tuple[Any, int]] = []
        """Objects, each with the marker of its row."""
        self.copied: list[tuple[Any, int]] = []
        """Objects of which a copy was stored: sources of a merge, and arguments of ``bulk_save_objects()``."""
        self.drafts: list[Any] = []
        """Objects whose id was read but that are never stored, like the object of an abandoned form."""
        self.shown: set[str] = set()
        """Ids that were read from objects before they were stored."""
        self.excuse = ""
        """The reason why the step may be refused. A refusal without a reason is a failure."""
        self.markers = 0
        self.done: list[str] = []
        size = self.model.public_id.type.id_format.max_length
        self.ids = [f"{number:0{size}}" for number in range(10**size)]
        self.first_ids = [chance.choice(self.ids) for _ in range(2000)]

    # --- run

    def run(self, plan: Sequence[tuple[str, int]], steps: dict[str, Any]) -> None:
        """Run the steps of *plan*. Each is a name and a number, which seeds its choices."""
        try:
            with testing.fixed_ids(self.model, *self.first_ids):
                for name, number in plan:
                    self.step(name, steps[name], random.Random(number))
                self.settle(random.Random(0))
                self.commit()
                self.check_all()
        finally:
            self.session.close()
            self.objects, self.copied, self.drafts = [], [], []  # they must not affect the next program
        self.world.empty()  # nothing holds a lock anymore

    def step(self, name: str, step: Any, chance: random.Random) -> None:
        self.done.append(name)
        if step.settles:
            self.settle(chance)
            self.check()
        if step.writes and len(self.state.rows) + len(self.waiting) + 12 > FULL:
            return
        self.attempt(lambda: step.run(self, chance), chance, is_whole=step.is_whole)
        self.check()

    def settle(self, chance: random.Random) -> None:
        """Flush the waiting objects, some of which may collide."""
        if self.waiting:
            self.attempt(lambda: self.flush(chance), chance, in_savepoint=False)

    def flush(self, chance: random.Random) -> None:
        excuses = [row.excuse for row in self.waiting.values() if row.excuse]
        if not self.world.rolls_back and any(row.id for row in self.waiting.values()):
            excuses.append("a given id stays in the table, and is taken for the one that collided")
        if len({row.id is None for row in self.waiting.values()}) == 2:
            excuses.append("a given id may have been made for a row before it")
        self.excuse = "; ".join(excuses)
        with self.collisions(chance):
            self.session.flush()
        for marker, row in self.waiting.items():
            self.stored(marker, row, is_logged=True)
        self.waiting.clear()

    def attempt(
        self, action: Callable[[], None], chance: random.Random, in_savepoint: bool = True, is_whole: bool = True
    ) -> None:
        """Run an action that may be refused for a known reason, or interrupted if it *is_whole*, and roll back then."""
        self.excuse, was_interrupted = "", False
        nested = in_savepoint and is_whole and self.world.has_savepoints and chance.random() < 0.3
        if nested:
            self.levels.append((self.session.begin_nested(), self.state.copy()))
        try:
            with ExitStack() as stack:
                if is_whole and chance.random() < 0.06:
                    number, when = chance.randint(1, 4), chance.choice(["before", "after"])
                    for engine in self.world.engines.values():
                        stack.enter_context(interrupted(engine, number, Interrupted, when))
                action()
        except Interrupted:
            self.done.append("(interrupted)")
            self.roll_back()
            was_interrupted = True
        except REFUSALS as error:
            self.done.append(f"({type(error).__name__}: {self.excuse})")
            if not self.excuse and (self.world.rolls_back or isinstance(error, IntegrityError)):
                raise AssertionError(f"refused without a reason: {error}") from error
            self.undo()
        else:
            if nested:
                self.levels.pop()[0].commit()
        if was_interrupted:  # SQLAlchemy itself leaves a cursor of SQLite in a cycle, and with it the lock on the file
            gc.collect()

    # --- transactions

    def commit(self) -> None:
        self.session.commit()
        self.committed, self.levels = self.state.copy(), []

    def undo(self) -> None:
        """Roll back to the last savepoint."""
        if not self.levels:
            self.roll_back()
            return
        savepoint, before = self.levels.pop()
        self.waiting.clear()
        with suppress(ResourceClosedError):  # bulk.insert() has already ended it
            savepoint.rollback()
        self.state = before
        self.forget_loaded()

    def roll_back(self) -> None:
        self.waiting.clear()
        self.levels.clear()
        self.session.rollback()
        if self.world.rolls_back:
            self.state = self.committed.copy()
            self.forget_loaded()
        else:
            self.look_again()

    def forget_loaded(self) -> None:
        """Expunge objects whose rows are gone after the rollback, which SQLAlchemy does not notice.

        A row that was deleted and stored again may have another key than before.
        """
        keys = {row.marker: row.id for _, row in self.world.rows(self.session)}
        for instance, marker in list(self.objects):
            state = inspect(instance)
            if state.persistent and (marker not in self.state.rows or state.identity[0] != keys.get(marker)):
                self.session.expunge(instance)
                self.drop(instance)
        for instance in list(self.session.identity_map.values()):  # rows that insert_once() found, and refused
            if isinstance(instance, self.model) and inspect(instance).identity[0] not in keys.values():
                self.session.expunge(instance)

    def look_again(self) -> None:
        """Add the rows that a failed step has stored without a transaction. Each may be stored only once."""
        there = [row for _, row in self.world.rows(self.session)]
        for row in there:
            self.state.rows.setdefault(row.marker, Planned())
        self.objects = [(each, marker) for each, marker in self.objects if inspect(each).persistent]
        self.copied.clear()

    # --- what steps need

    def new_marker(self) -> int:
        self.markers += 1
        return self.markers

    def new_row(self, chance: random.Random, gives: float = 0.25) -> tuple[dict[str, Any], Planned]:
        """Return values for a new row, and its expected state."""
        marker = self.new_marker()
        values: dict[str, Any] = {"marker": marker, "code": marker}
        row = Planned(excuse="" if self.world.router is None else "an id that is taken decides on another shard")
        if chance.random() < gives:
            row = self.give(chance)
            values["public_id"] = row.id
        if chance.random() < 0.03 and self.state.rows:
            values["code"] = chance.choice(list(self.state.rows))
            row = replace(row, excuse=f"{row.excuse} the code is taken")
        return values, row

    def give(self, chance: random.Random) -> Planned:
        taken = {row.id for row in (*self.state.rows.values(), *self.waiting.values())} - {None}
        if chance.random() < 0.3 and taken:
            return Planned(chance.choice(sorted(map(str, taken))), excuse="the id is taken")
        if chance.random() < 0.3 and self.shown - taken:
            return Planned(chance.choice(sorted(self.shown - taken)), excuse="another object shows the id")
        free = [each for each in self.ids if each not in taken and each not in self.shown]
        return Planned(chance.choice(free))

    def new_object(self, chance: random.Random, gives: float = 0.25) -> tuple[Any, int, Planned]:
        values, row = self.new_row(chance, gives)
        instance = chance.choice([self.model, *self.world.children])(**values)
        if chance.random() < 0.15:
            row = self.keep(instance, row)
        return instance, values["marker"], row

    def keep(self, instance: Any, row: Planned) -> Planned:
        """Return *row* with the id of its object, read before the INSERT. This id is final, but may be taken."""
        return replace(row, id=self.see(instance), excuse=row.excuse or "an id that was read may be taken")

    def see(self, instance: Any) -> str:
        """Return the id of an object that is not stored."""
        public_id: str = instance.public_id
        self.shown.add(public_id)
        return public_id

    def hold(self, instance: Any, marker: int) -> None:
        self.objects.append((instance, marker))

    def drop(self, instance: Any) -> None:
        self.objects = [(each, marker) for each, marker in self.objects if each is not instance]

    def stored(self, marker: int, row: Planned, is_logged: bool = False) -> None:
        """Expect *row* to be stored, and its log if the unit of work inserted an object."""
        self.state.rows[marker] = replace(row, excuse="")
        self.state.inserts[marker] += 1
        self.state.logs[marker] += is_logged

    def choose(self, chance: random.Random, states: str = "persistent") -> tuple[Any, int] | None:
        """Return one of the objects with a row, or ``None``."""
        found = [
            (each, marker)
            for each, marker in self.objects
            if marker in self.state.rows and getattr(inspect(each), states)
        ]
        return chance.choice(found) if found else None

    def is_there(self, public_id: str) -> bool:
        return any(row.id == public_id for row in self.state.rows.values())

    def collisions(self, chance: random.Random) -> Any:
        """Make the next generated ids collide, or none."""
        taken = [row.id for row in self.state.rows.values() if row.id is not None] or [self.ids[0]]
        return testing.collisions(self.model, chance.choice(taken), times=chance.choice([0, 0, 1, 3]))

    # --- checks

    def check(self) -> None:
        """Check that each row is stored once with its id, and that objects show the ids of their rows."""
        rows = judge.group_rows(self.stored_rows())
        expected = {marker: judge.Expected(self.known(row)) for marker, row in self.state.rows.items()}
        shown = [
            judge.Shown(marker, judge.Row(vars(each).get("id"), vars(each).get("public_id")))
            for each, marker in self.objects
            if inspect(each).persistent
        ]
        self.assert_none(*judge.find_wrong_rows(expected, rows), *judge.find_wrong_objects(shown, rows))
        for marker, (row,) in rows.items():
            self.state.rows[int(marker)] = replace(self.state.rows[int(marker)], id=row.public_id)

    def stored_rows(self) -> Iterator[judge.Stored]:
        """Yield the rows that the session sees. Each is in the shard that its id tells."""
        boxes = {key: public_id for public_id, key in self.world.boxes.items()}
        for shard, row in self.world.rows(self.session):
            if self.world.router is not None:
                right = self.world.router.shard_of_id(self.model, row.public_id)
                assert shard == right, f"the row {row.marker} is in {shard}, and its id tells {right}"
            reference = NO_BOX if self.world.box is None or row.box_id is None else boxes[row.box_id]
            yield judge.Stored(row.marker, judge.Row(row.id, row.public_id, reference))

    @staticmethod
    def known(row: Planned) -> judge.Row:
        """Return what the judge may expect of a stored row."""
        return judge.Row(None, row.id, row.box or NO_BOX)

    @staticmethod
    def assert_none(*findings: judge.Finding) -> None:
        assert not findings, "; ".join(map(str, findings))

    def check_all(self) -> None:
        """Check more after a commit: the ids of detached and copied objects, and lookups of all rows."""
        self.check()
        ids = {marker: row.id for marker, row in self.state.rows.items()}
        shown: list[judge.Shown] = []
        for instance, marker in self.objects:
            state = inspect(instance)
            if state.persistent or (state.detached and marker in ids and "public_id" in instance.__dict__):
                shown.append(judge.Shown(marker, judge.Row(public_id=instance.public_id)))
        copied, self.copied = self.copied, []
        for instance, marker in copied:
            if marker in ids:
                with suppress(PublicIdError, SQLAlchemyError):  # the object shows no id
                    shown.append(judge.Shown(marker, judge.Row(public_id=instance.public_id)))
        known = {marker: [self.known(row)] for marker, row in self.state.rows.items()}
        self.assert_none(*judge.find_wrong_objects(shown, known))
        rows = lookup.get_many(self.session, self.model, [str(each) for each in ids.values()])
        assert {row.marker: public_id for public_id, row in rows.items()} == ids, "a lookup misses rows"
        for public_id, row in rows.items():
            assert row.public_id == public_id
            if self.world.box is not None:
                assert row.box_public_id == self.state.rows[row.marker].box
        if self.world.log is not None:
            assert self.world.logged(self.session) == +self.state.logs, "logs are lost, or are there twice"
        if self.world.audit is not None:
            assert self.world.audited(self.session) == +self.state.inserts, (
                "the trigger wrote for rows that are not there"
            )
