"""Which histories there are: all short ones with every error at every call, and random ones, each from its seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from simulation.histories import History, Op, program
from simulation.judging import GIVES
from simulation.models import IDS
from simulation.players import LISTENERS
from simulation.running import Result, run
from simulation.stage import AFTERWARDS, TROUBLES, Fault
from simulation.storage import FAMILIES

FREE = 8
"""The number of calls before each of which either session may go on."""

DRAWS = {
    "taken": ("00", "01", "00", "02", "03", "00", *IDS[4:40]),
    "repeated": ("fe", "fe", "01", "01", "fe", "02", "02", "00", *IDS[4:40]),
}
"""Ids that the library draws: of the row that is there; of rows that have just been written."""

WRITES = {
    "one row": ("flush -",),
    "one row, its id read": ("flush ?",),
    "one row, its id given": ("flush a1",),
    "one row, with a taken id": ("flush 00",),
    "many rows": ("flush - - -",),
    "many rows, some ids given and read": ("flush - ? a1",),
    "many rows, one with a taken id": ("flush - 00 -",),
    "many rows, one with a taken code": ("flush - -! -",),
    "Core, one row": ("core -",),
    "Core, many rows": ("core - -",),
    "Core, an id given": ("core a1 a2",),
    "Core, a taken id": ("core 00 a1",),
    "insert().values([…])": ("values_clause - -",),
    "insert(Model)": ("orm - -",),
    "insert(Model).returning(Model)": ("returning - -",),
    "bulk.insert": ("bulk - - -",),
    "bulk.insert, some ids given and read": ("bulk - ? a1",),
    "insert_once": ("once a1",),
    "insert_once, repeated": ("once a1", "commit", "once a1"),
    "insert_once, a taken id": ("flush fe", "once a1", "once a1"),
    "savepoint": ("savepoint", "flush -", "release"),
    "savepoint, undone": ("flush -", "savepoint", "flush -", "undo", "again"),
    "nested savepoints": ("savepoint", "flush -", "savepoint", "core - -", "undo", "bulk - -", "release"),
    "merge": ("merge -",),
    "merge, its id read": ("merge ?",),
    "merge, its id given": ("merge a1",),
    "rollback and again": ("flush - -", "rollback", "again"),
    "the application's ON CONFLICT": ("skipping - -! -",),
    "INSERT OR ROLLBACK": ("flush -", "or_rollback -"),
}
"""Name → the program of one session."""

_ONLY = {
    "returning": {"sqlite", "postgresql", "mariadb"},
    "skipping": {"sqlite", "postgresql"},
    "or_rollback": {"sqlite"},
}
"""The families that have a statement."""

LISTENED = {
    f"{name}, listener: {listener}": (steps, listener)
    for name, steps in (("one row", ("flush -",)), ("many rows", ("flush - -",)), ("bulk.insert", ("bulk - -",)))
    for listener in LISTENERS
}


def plain_histories(family: str) -> Iterator[tuple[str, History]]:
    """Yield a name and a history without faults for every kind of write of one session."""
    for draws in DRAWS.values():
        for name, steps in WRITES.items():
            if family in _ONLY.get(steps[-1].split()[0], FAMILIES):
                yield name, History(family, (program(*steps),), draws)
        for name, (steps, listener) in LISTENED.items():
            yield name, History(family, (program(*steps),), draws, model="heard", listener=listener)
        for steps in (("flush -",), ("flush - -",), ("bulk - -",)):
            yield "a listener to refresh_flush", History(family, (program(*steps),), draws, model="refreshed")
        for steps in (("flush -",), ("bulk - -",), ("once a1",)):
            yield "a session with a follower", History(family, (program(*steps),), draws, routed=True)
        if family == "postgresql":
            yield "a key from a sequence", History(family, (program("flush -"),), draws, model="sequenced")
    if family == "postgresql":
        for trigger in ("audit", "redirect"):
            for steps in (("flush -",), ("flush - -",), ("core - -",), ("keyed -",), ("bulk - -",)):
                if trigger == "audit" or not steps[0].startswith(("flush", "bulk")):
                    yield f"trigger: {trigger}", History(family, (program(*steps),), DRAWS["taken"], trigger=trigger)


PAIRED = {
    "one row": "flush -",
    "many rows": "flush - -",
    "an id given": "flush a1",
    "Core": "core - -",
    "insert().values([…])": "values_clause - -",
    "bulk.insert": "bulk - -",
    "insert_once": "once a1",
    "a savepoint": "savepoint; flush -; release",
    "merge": "merge -",
    "rollback and again": "flush -; rollback; again",
}
"""What either of two sessions does. Both draw the same ids."""


def pair_histories(family: str) -> Iterator[History]:
    """Yield histories of two sessions without faults: each write beside one row, and beside itself."""
    draws = ("01", "01", "02", "01", "02", *IDS[3:40])
    for steps in PAIRED.values():
        own = program(*steps.split(";"))
        others = {own, program("flush -"), program("once a1")}
        for other in sorted(others, key=str):
            yield History(family, (own, other), draws)
            if FAMILIES[family].aborts or FAMILIES[family].ends_on_deadlock:
                level = "REPEATABLE READ" if FAMILIES[family].isolation == "READ COMMITTED" else "READ COMMITTED"
                yield History(family, (own, other), draws, isolation=level)
    for listener in ("core", "session"):
        own = program("flush -")
        yield History(family, (own, own), draws, model="heard", listener=listener)


def faults_of(result: Result, first: int = 0, until: int | None = None) -> Iterator[Fault]:
    """Yield every fault of every call of a run."""
    for number, call in enumerate(result.stage.calls[:until]):
        if number < first or call.actor < 0:
            continue
        for trouble in TROUBLES[call.sort]:
            yield Fault(number, trouble)
            if trouble in AFTERWARDS:
                yield Fault(number, trouble, after=True)


def with_every_fault(history: History) -> Iterator[Result]:
    """Run *history* as it is, and once for each error at each of its calls."""
    result = run(history)
    yield result
    for fault in faults_of(result):
        yield run(replace(history, faults=(fault,)))


def with_two_faults(history: History, within: int = 4) -> Iterator[Result]:
    """Run *history* with each fault, and another one at each of the next calls, most of which clean up."""
    for fault in faults_of(run(history)):
        first = run(replace(history, faults=(fault,)))
        for second in faults_of(first, fault.call + 1, fault.call + 1 + within):
            yield run(replace(history, faults=(fault, second)))


def with_every_order(history: History, free: int = FREE) -> Iterator[Result]:
    """Run *history* in every order of the first *free* calls that the other session can notice."""
    choices: tuple[int, ...] = ()
    while True:
        result = run(replace(history, choices=choices))
        yield result
        degrees = result.stage.degrees[:free]
        taken = [*choices, *[0] * len(degrees)][: len(degrees)]
        while taken and taken[-1] + 1 >= degrees[len(taken) - 1]:
            taken.pop()
        if not taken:
            return
        taken[-1] += 1
        choices = tuple(taken)


def with_every_order_and_fault(history: History, free: int = FREE) -> Iterator[Result]:
    """Run *history* in every order; and the orders that make a difference with every error at each of these calls."""
    seen: set[object] = set()
    for result in with_every_order(history, free):
        yield result
        observed = observations(result)
        if observed in seen:
            continue
        seen.add(observed)
        for fault in faults_of(result, until=free):
            yield run(replace(result.history, faults=(fault,)))


def observations(result: Result) -> object:
    """Return what each session has observed, and what is stored: orders with equal observations make no difference."""
    sessions: dict[int, list[tuple[str, str, str]]] = {}
    for call in result.stage.calls:
        sessions.setdefault(call.actor, []).append((call.kind, call.text, call.outcome))
    stored = [tuple(sorted(row.items(), key=str)) for row in result.stage.database.committed("item")]
    return str(sessions), str(sorted(stored, key=str))


# --- random ones

_STEPS = (
    ("flush", 8),
    ("core", 3),
    ("values_clause", 2),
    ("orm", 2),
    ("returning", 2),
    ("bulk", 3),
    ("once", 3),
    ("merge", 2),
    ("savepoint", 3),
    ("release", 2),
    ("undo", 2),
    ("commit", 4),
    ("rollback", 2),
    ("again", 2),
)
_ROWLESS = frozenset({"savepoint", "release", "undo", "commit", "rollback", "again"})


def random_history(seed: int) -> History:
    """Return the history of *seed*."""
    chance = random.Random(seed)
    family = chance.choice([*FAMILIES])
    isolations = [None] if FAMILIES[family].one_writer else [None, None, "READ COMMITTED", "REPEATABLE READ"]
    few = chance.sample(IDS, chance.choice([3, 6, 12, 40]))
    listener = chance.choice([None, None, None, None, *LISTENERS])
    programs = tuple(
        tuple(_random_op(chance, family, few, listener) for _ in range(chance.randint(1, 5)))
        for _ in range(chance.choice([1, 2, 2]))
    )
    draws = (*chance.choices(few, k=25), *chance.sample(IDS, 50))
    faults = {
        chance.randrange(40): Fault(0, chance.choice(TROUBLES["insert"]), chance.random() < 0.5)
        for _ in range(chance.choice([0, 1, 1, 2, 3]))
    }
    return History(
        family,
        programs,
        draws,
        isolation=chance.choice(isolations),
        model="heard" if listener else "plain",
        listener=listener,
        trigger="audit" if family == "postgresql" and chance.random() < 0.1 and not listener else None,
        expires=chance.random() < 0.5,
        choices=tuple(chance.choices([0, 0, 1], k=30)),
        faults=tuple(
            Fault(call, fault.trouble, fault.after and fault.trouble in AFTERWARDS) for call, fault in faults.items()
        ),
    )


def _random_op(chance: random.Random, family: str, few: list[str], listener: str | None) -> Op:
    names, weights = zip(*_STEPS, strict=True)
    name = chance.choices(names, weights)[0]
    if family not in _ONLY.get(name, FAMILIES) or (name == "once" and listener in GIVES):
        name = "flush"
    if name in _ROWLESS:
        return Op(name)
    if name == "once":
        return Op(name, (chance.choice(few),))
    count = chance.choice([1, 1, 1, 2, 2, 3, 3, 22] if name in {"flush", "bulk"} else [1, 2, 3])
    words = [chance.choice(["-", "-", "-", "-", "?", chance.choice(few), chance.choice(IDS)]) for _ in range(count)]
    if chance.random() < 0.05:
        words[chance.randrange(count)] += "!"
    return Op(name, tuple(words))


def shrink(history: History, kind: str) -> History:
    """Return a smaller history in which the defect *kind* occurs as well."""
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(history):
            try:
                occurs = kind in run(smaller).kinds
            except Exception:  # a smaller one may make no sense
                continue
            if occurs:
                history, changed = smaller, True
                break
    return history


def _smaller(history: History) -> Iterator[History]:
    for number, steps in enumerate(history.programs):
        if len(history.programs) > 1:
            yield replace(history, programs=(*history.programs[:number], *history.programs[number + 1 :]))
        for at, op in enumerate(steps):
            yield _with_program(history, number, (*steps[:at], *steps[at + 1 :]))
            for row in range(len(op.rows)) if len(op.rows) > 1 else ():
                fewer = Op(op.name, (*op.rows[:row], *op.rows[row + 1 :]))
                yield _with_program(history, number, (*steps[:at], fewer, *steps[at + 1 :]))
            for row, word in enumerate(op.rows):
                if word != "-" and op.name != "once":
                    simpler = Op(op.name, (*op.rows[:row], "-", *op.rows[row + 1 :]))
                    yield _with_program(history, number, (*steps[:at], simpler, *steps[at + 1 :]))
    for at in range(len(history.faults)):
        yield replace(history, faults=(*history.faults[:at], *history.faults[at + 1 :]))
    for at, fault in enumerate(history.faults):
        for call in range(fault.call):
            yield replace(history, faults=(*history.faults[:at], replace(fault, call=call), *history.faults[at + 1 :]))
    for at, choice in enumerate(history.choices):
        if choice:
            yield replace(history, choices=(*history.choices[:at], 0, *history.choices[at + 1 :]))
    if history.choices and not any(history.choices):
        yield replace(history, choices=())
    if history.expires:
        yield replace(history, expires=False)
    if history.isolation is not None:
        yield replace(history, isolation=None)


def _with_program(history: History, number: int, steps: tuple[Op, ...]) -> History:
    return replace(history, programs=(*history.programs[:number], steps, *history.programs[number + 1 :]))
