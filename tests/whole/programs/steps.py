"""The steps of random programs: one function for each thing that applications do with objects and rows."""

from __future__ import annotations

import copy
import pickle
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import inspect
from sqlalchemy.orm import make_transient, make_transient_to_detached
from support.steps import FLUSHING, OBJECT_STEPS, ONLY_ON, ROW_STEPS
from whole.programs.program import Planned, Program
from whole.programs.worlds import World

from sqlalchemy_public_id import ConfigurationError, PublicIdNotFound, guard, idempotency, lookup

__all__ = ["STEPS", "plan_of"]


@dataclass(frozen=True)
class Step:
    run: Callable[[Program, random.Random], None]
    weight: int
    worlds: str
    settles: bool
    """True if all waiting objects are flushed before the step."""
    writes: bool
    is_whole: bool
    """True if all effects of the step, or its refusal, occur before the next step."""


STEPS: dict[str, Step] = {}


def step(
    weight: int,
    worlds: str = "plain traced loose spread family",
    settles: bool = True,
    writes: bool = False,
    is_whole: bool = True,
    of_object: bool = False,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a step. One that is *of_object* gets an object with a row, and its marker, if there is one."""

    def register(run: Callable[..., None]) -> Callable[..., None]:
        def choose_and_run(program: Program, chance: random.Random) -> None:
            chosen = program.choose(chance)
            if chosen is not None:
                run(program, chance, *chosen)

        of_program = choose_and_run if of_object else run
        STEPS[run.__name__] = Step(of_program, weight, worlds, settles, writes, is_whole)
        return run

    return register


def plan_of(world: World, seed: int) -> list[tuple[str, int]]:
    """Return the steps of the program *seed*."""
    chance = random.Random(seed)
    names = [name for name, each in STEPS.items() if world.name in each.worlds.split()]
    weights = [STEPS[name].weight for name in names]
    count = chance.randint(6, 20)
    return [(name, chance.randrange(10**6)) for name in chance.choices(names, weights, k=count)]


ORDINARY = "plain traced"
IN_TRANSACTIONS = "plain traced spread family"
ON_ONE_DATABASE = "plain traced family"


def wait(program: Program, instance: Any, marker: int, row: Planned) -> None:
    program.hold(instance, marker)
    program.waiting[marker] = row


# --- new objects


@step(10, settles=False, writes=True, is_whole=False)
def add(program: Program, chance: random.Random) -> None:
    for _ in range(chance.choice([1, 2, 5])):
        instance, marker, row = program.new_object(chance)
        program.session.add(instance)
        wait(program, instance, marker, row)


@step(3, settles=False, writes=True, is_whole=False)
def add_copy(program: Program, chance: random.Random) -> None:
    """Add a copy of a new object instead of the object."""
    instance, marker, row = program.new_object(chance)
    make = chance.choice([copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
    made = make(instance)
    if chance.random() < 0.2:
        row = program.keep(made, row)
    program.session.add(made)
    wait(program, made, marker, row)


@step(2, settles=False, writes=True, is_whole=False)
def add_twins(program: Program, chance: random.Random) -> None:
    """Add two objects with one id, like a message that is delivered twice."""
    instance, marker, row = program.new_object(chance)
    row = program.keep(instance, row)
    second = program.new_marker()
    twin = pickle.loads(pickle.dumps(instance))
    twin.marker = twin.code = second
    program.session.add_all([instance, twin])
    wait(program, instance, marker, row)
    wait(program, twin, second, row)


@step(2, settles=False, is_whole=False)
def draft(program: Program, chance: random.Random) -> None:
    """Read the id of an object that is never stored, and keep the object."""
    program.drafts.append(program.model())
    program.see(program.drafts[-1])


@step(2, worlds="plain", settles=False, writes=True, is_whole=False)
def add_referring(program: Program, chance: random.Random) -> None:
    instance, marker, row = program.new_object(chance)
    box = chance.choice(list(program.world.boxes))
    instance.box_public_id = box
    program.session.add(instance)
    wait(program, instance, marker, replace(row, box=box))


@step(3, worlds=IN_TRANSACTIONS, writes=True, is_whole=False)
def merge_new(program: Program, chance: random.Random) -> None:
    instance, marker, row = program.new_object(chance)
    merged = program.session.merge(instance)
    if "public_id" in vars(instance):
        program.copied.append((instance, marker))
    elif chance.random() < 0.2:
        row = program.keep(merged, row)
    wait(program, merged, marker, row)


@step(2, worlds=ORDINARY, writes=True, is_whole=False)
def merge_twice(program: Program, chance: random.Random) -> None:
    """Merge one new object twice, which stores two rows."""
    instance, marker, row = program.new_object(chance)
    wait(program, program.session.merge(instance), marker, row)
    if program.session.autoflush:  # the second merge would do so
        program.flush(chance)
    instance.marker = instance.code = second = program.new_marker()
    if row.id is not None:
        program.excuse = "two objects have the id"
    wait(program, program.session.merge(instance), second, replace(row, excuse=program.excuse))


@step(2, worlds=ORDINARY, writes=True, is_whole=False)
def add_again(program: Program, chance: random.Random) -> None:
    """Add objects again after the rollback of their rows."""
    for instance, marker in list(program.objects):
        lost = inspect(instance).transient and marker not in program.state.rows and "code" in instance.__dict__
        if not lost:
            continue
        program.drop(instance)
        if chance.random() < 0.5:
            instance.id = None
            instance.marker = instance.code = again = program.new_marker()
            row = Planned()
            if instance.__dict__.get("public_id") is not None:
                row = program.keep(instance, row)
            if program.world.box is not None:
                instance.box_public_id = None
            program.session.add(instance)
            wait(program, instance, again, row)


# --- rows at once


def rows_of(program: Program, chance: random.Random) -> dict[int, tuple[dict[str, Any], Planned]]:
    """Return values for several rows, all of which have a public id or none."""
    gives = chance.choice([0.0, 0.0, 1.0])
    made = [program.new_row(chance, gives) for _ in range(chance.choice([1, 3, 8]))]
    given = [row.id for _, row in made if row.id is not None]
    program.excuse = "; ".join(row.excuse for _, row in made if row.excuse)
    if len(set(given)) < len(given):
        program.excuse += " two rows have one id"
    return {values["marker"]: (values, row) for values, row in made}


def stored(program: Program, made: dict[int, tuple[dict[str, Any], Planned]], is_logged: bool = False) -> None:
    for marker, (_, row) in made.items():
        program.stored(marker, row, is_logged)


def insert_by(name: str) -> Callable[[Program, random.Random], None]:
    """Return the step that inserts several rows by the step *name* of ``ROW_STEPS``."""

    def run(program: Program, chance: random.Random) -> None:
        if program.world.database not in ONLY_ON.get(name, {program.world.database}):
            return
        made = rows_of(program, chance)
        values = [values for values, _ in made.values()]
        if name in UPSERTS:  # a row whose code is taken is no refusal; a given id that is taken would be one
            made = {
                marker: (values, row) for marker, (values, row) in made.items() if row.id is None and not row.excuse
            }
            program.excuse = ""
            there = [{"marker": code, "code": code} for code in list(program.state.rows)[:2]]
            values = [*there, *(values for values, _ in made.values())]
        with program.collisions(chance):
            count, objects = ROW_STEPS[name](program.session, program.model, values)
        assert count in (None, len(made)), f"{count} rows were counted, and {len(made)} inserted"
        if name == "upsert":
            program.session.expire_all()
        for instance, marker in zip(objects, made, strict=bool(objects)):
            program.hold(instance, marker)
        stored(program, made)

    run.__name__ = name
    return run


UPSERTS = frozenset({"skipping", "upsert"})
WORLDS_OF_ROWS = {"orm": "plain traced loose family", "returning": ORDINARY, "skipping": "plain", "upsert": "plain"}
"""Step → its worlds: a model with subclasses or a version has columns that only the ORM fills in."""
for _name in ROW_STEPS:
    if _name != "or_rollback":  # which ends the transaction, and with it all earlier steps
        step(2, worlds=WORLDS_OF_ROWS.get(_name, "plain traced loose"), writes=True)(insert_by(_name))


def save_by(name: str) -> Callable[[Program, random.Random], None]:
    """Return the step that stores several objects by the step *name* of ``OBJECT_STEPS``."""

    def run(program: Program, chance: random.Random) -> None:
        made = rows_of(program, chance)
        models = [program.model, *program.world.children] if name == "second_session" else [program.model]
        objects = [chance.choice(models)(**values) for values, _ in made.values()]
        reads = 0.3 if name.startswith("bulk_save") else chance.choice([0, 0, 0.3])
        for each, (marker, (values, row)) in zip(objects, made.items(), strict=True):
            if chance.random() < reads:
                made[marker] = values, program.keep(each, row)
                program.excuse += " an id that was read may be taken"
        with program.collisions(chance):
            objects = list(OBJECT_STEPS[name](program.session, objects))
        for each, marker in zip(objects, made, strict=True):
            if name == "bulk":
                program.hold(each, marker)
            elif "public_id" in vars(each):  # it belongs to no session
                program.copied.append((each, marker))
        stored(program, made, is_logged=name in FLUSHING)

    run.__name__ = name
    return run


WORLDS_OF_OBJECTS = {"bulk": "plain traced loose spread family", "second_session": ON_ONE_DATABASE}
for _name in OBJECT_STEPS:
    if _name not in {"flush", "merge", "once"}:  # "add", "merge_new" and "insert_once" do more with their objects
        step(3, worlds=WORLDS_OF_OBJECTS.get(_name, "plain traced loose"), writes=True)(save_by(_name))


@step(1, worlds=ON_ONE_DATABASE, is_whole=False, writes=True)
def threads(program: Program, chance: random.Random) -> None:
    """Store rows in several threads at once, each with its own session."""
    program.commit()
    errors: list[BaseException] = []
    markers = [program.new_marker() for _ in range(6)]
    ids: dict[int, str] = {}

    def store(mine: list[int]) -> None:
        for attempt in range(20):
            objects = [program.model(marker=marker, code=marker) for marker in mine]
            try:
                with program.world.session(expire_on_commit=False) as session:
                    session.add_all(objects)
                    session.commit()
            except BaseException as error:
                if attempt < 19 and guard.is_retryable(error):
                    continue  # two colliding INSERTs can deadlock in InnoDB
                errors.append(error)
                return
            ids.update((each.marker, each.public_id) for each in objects)
            return

    running = [threading.Thread(target=store, args=(markers[at::3],)) for at in range(3)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not errors, repr(errors)
    for marker in markers:
        program.stored(marker, Planned(ids[marker]), is_logged=True)
    program.commit()


@step(3, worlds=ORDINARY, writes=True)
def insert_once(program: Program, chance: random.Random) -> None:
    """Insert a row, and repeat the insert once or twice with pickled objects."""
    values, row = program.new_row(chance, gives=1)
    program.excuse = row.excuse
    once, is_new = idempotency.insert_once(program.session, program.model(**values))
    assert is_new, "a new row was taken for a repetition"
    program.hold(once, values["marker"])
    program.stored(values["marker"], row)
    program.excuse = ""
    for _ in range(chance.randint(1, 2)):
        if chance.random() < 0.3:
            program.session.expunge_all()
        repeated = pickle.loads(pickle.dumps(program.model(**values)))
        again, is_new = idempotency.insert_once(program.session, repeated)
        assert not is_new, "a repetition was taken for a new row"
        assert again.public_id == row.id
        program.hold(again, values["marker"])


@step(1, worlds=ORDINARY)
def insert_once_without_id(program: Program, chance: random.Random) -> None:
    """Call ``insert_once()`` with an object without an id, which is refused because it could not be repeated."""
    try:
        idempotency.insert_once(program.session, program.model(public_id=None, marker=0, code=0))
    except ConfigurationError:
        return
    raise AssertionError("insert_once() has stored a row whose id nobody gave")


# --- objects with rows


@step(2, worlds=IN_TRANSACTIONS, of_object=True)
def delete(program: Program, chance: random.Random, instance: Any, marker: int) -> None:
    program.session.delete(instance)
    program.session.flush()
    program.drop(instance)
    del program.state.rows[marker]


@step(2, worlds=IN_TRANSACTIONS, of_object=True)
def delete_and_store_again(program: Program, chance: random.Random, instance: Any, marker: int) -> None:
    """Store the object of a deleted row again, with the same id."""
    old = program.state.rows[marker]
    values = {name: getattr(instance, name) for name in ("public_id", "marker", "code")}
    assert values["public_id"] == old.id
    program.session.delete(instance)
    program.session.flush()
    del program.state.rows[marker]
    make_transient(instance)
    instance.id = None
    program.session.add(instance)
    program.session.flush()
    program.stored(marker, old, is_logged=True)


@step(3, worlds=IN_TRANSACTIONS, writes=True, of_object=True)
def clone(program: Program, chance: random.Random, instance: Any, marker: int) -> None:
    """Make a new object of a stored one: it gets a new id if its id is reset, and is refused with the old id."""
    old = program.state.rows[marker]
    program.session.refresh(instance)
    program.session.expunge(instance)
    program.drop(instance)
    make_transient(instance)
    instance.id = None
    instance.marker = instance.code = new = program.new_marker()
    if chance.random() < 0.5:
        instance.public_id = None
        program.session.add(instance)
        excuse = "" if program.world.router is None else "an id that is taken decides on another shard"
        program.excuse = excuse
        program.session.flush()
        program.hold(instance, new)
        program.stored(new, Planned(box=old.box), is_logged=True)
        return
    if chance.random() < 0.5:
        assert instance.public_id == old.id
    program.session.add(instance)
    program.excuse = "a clone keeps the id"
    program.session.flush()
    raise AssertionError(f"the clone of the row {marker} was stored, as {instance.public_id}")


@step(2, worlds=ORDINARY, of_object=True)
def make_stub(program: Program, chance: random.Random, instance: Any, marker: int) -> None:
    """Make an object from the key of a row. It shows the id of the row."""
    key = instance.id
    program.session.expunge(instance)
    stub = program.model(id=key)
    make_transient_to_detached(stub)
    program.session.add(stub)
    program.hold(stub, marker)
    assert stub.public_id == program.state.rows[marker].id, f"the stub of the row {marker} shows {stub.public_id}"


@step(3, worlds=ORDINARY, of_object=True)
def merge_key(program: Program, chance: random.Random, instance: Any, marker: int) -> None:
    """Merge an object with the key of a row."""
    source = program.model(id=instance.id, note="merged")
    how = chance.choice(["nothing", "shown", "own", "other"])
    own = program.state.rows[marker].id
    if how == "shown":
        program.see(source)
    elif how == "own":
        source.public_id = own
    elif how == "other":
        source.public_id = next(each for each in program.ids if not program.is_there(each))
    is_other = vars(source).get("public_id") not in (None, own)
    if is_other:
        program.excuse = "the id of a row never changes"
    if chance.random() < 0.3:
        program.session.expunge(instance)
    merged = program.session.merge(source)
    program.session.flush()
    assert not is_other, "the id of a row was replaced, or another id was ignored"
    program.hold(merged, marker)
    assert merged.public_id == program.state.rows[marker].id


@step(3, worlds=IN_TRANSACTIONS, of_object=True)
def pickle_stored(program: Program, chance: random.Random, instance: Any, marker: int) -> None:
    """Pickle a stored object, and merge the copy, or add it in place of the object."""
    if chance.random() < 0.3:
        program.session.expire(instance)
    make = chance.choice([copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
    copied = make(instance)
    if make is copy.deepcopy:  # deepcopy() also copies the id of the session
        copied = pickle.loads(pickle.dumps(copied))
    if chance.random() < 0.5:
        program.session.expunge(instance)
        program.session.add(copied)
    else:
        copied = program.session.merge(copied)
    program.session.flush()
    program.hold(copied, marker)
    assert copied.public_id == program.state.rows[marker].id


@step(2, worlds=IN_TRANSACTIONS, of_object=True)
def expunge(program: Program, chance: random.Random, instance: Any, marker: int) -> None:
    if marker in program.committed.rows:
        program.session.expunge(instance)


@step(3, of_object=True)
def assign_own_id(program: Program, chance: random.Random, instance: Any, marker: int) -> None:
    if chance.random() < 0.5:
        program.session.expire(instance)
    instance.public_id = program.state.rows[marker].id
    program.session.flush()
    assert instance.public_id == program.state.rows[marker].id


@step(1, of_object=True)
def assign_other_id(program: Program, chance: random.Random, instance: Any, marker: int) -> None:
    if chance.random() < 0.5:
        program.session.expire(instance)
    other = next(each for each in program.ids if not program.is_there(each))
    program.excuse = "the id of a row never changes"
    instance.public_id = other
    program.session.flush()  # compares the ids if that of the row was not loaded
    raise AssertionError(f"the row {marker} was given the id {other}")


@step(2, worlds="plain", of_object=True)
def refer(program: Program, chance: random.Random, instance: Any, marker: int) -> None:
    """Assign another reference, the current one, none, or an unknown one."""
    row = program.state.rows[marker]
    if chance.random() < 0.3:
        program.session.expire(instance)
    box = chance.choice([*program.world.boxes, row.box, None, "zzzzzzzzzzzz"])
    try:
        instance.box_public_id = box
        program.session.flush()
    except PublicIdNotFound:
        assert box == "zzzzzzzzzzzz"
        program.session.expire(instance)
        return
    program.state.rows[marker] = replace(row, box=box)
    assert instance.box_public_id == box


@step(3, worlds="family", of_object=True)
def touch(program: Program, chance: random.Random, instance: Any, marker: int) -> None:
    """Update a row, which increments its version by one."""
    before = instance.version
    instance.note = f"touched {chance.randrange(10**6)}"
    program.session.flush()
    assert instance.version == before + 1


@step(2)
def find(program: Program, chance: random.Random) -> None:
    if program.state.rows:
        marker, row = chance.choice(list(program.state.rows.items()))
        found = lookup.get(program.session, program.model, row.id)
        assert found is not None, f"a lookup does not find the row {marker}, which has the id {row.id}"
        assert (found.marker, found.public_id) == (marker, row.id)
        program.hold(found, marker)


@step(2)
def expire_all(program: Program, chance: random.Random) -> None:
    program.session.expire_all()


# --- transactions


@step(5, is_whole=False)
def commit(program: Program, chance: random.Random) -> None:
    program.commit()
    program.check_all()


@step(3, is_whole=False)
def rollback(program: Program, chance: random.Random) -> None:
    program.roll_back()


@step(4, worlds=ON_ONE_DATABASE, is_whole=False)
def savepoint(program: Program, chance: random.Random) -> None:
    program.levels.append((program.session.begin_nested(), program.state.copy()))


@step(2, worlds=ON_ONE_DATABASE, is_whole=False)
def release(program: Program, chance: random.Random) -> None:
    if program.levels:
        program.levels.pop()[0].commit()


@step(3, worlds=ON_ONE_DATABASE, is_whole=False)
def undo(program: Program, chance: random.Random) -> None:
    if program.levels:
        program.undo()


@step(1, is_whole=False)
def reopen(program: Program, chance: random.Random) -> None:
    """Replace the session with a new one."""
    program.roll_back()
    program.session.close()
    program.session = program.world.session(**program.options)
