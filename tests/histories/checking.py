"""Check a recorded history, and the rows at its end. Nothing here talks to a database.

The rules about stored rows and transactions are those of ``support.judge``. What each row should be is not known in
advance, as it is for programs and faults, because several processes have written it at once: the search is here.

An operation is *ok* (it was acknowledged), *failed* (an error occurred before its COMMIT was sent, so it must have had
no effect) or *unknown* (its process was killed, or an error occurred during its COMMIT or after it: it may have taken
effect at any time since it began, or not at all). Each row is checked for linearizability: there must be an order of
the operations on the row, each between its begin and its end, that explains all results. The search is the algorithm
of Wing and Gong, with Lowe's cache of visited states.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any

from support.judge import Finding, Row, Stored, combine, find_halves, find_strangers, group_rows

NEVER = float("inf")


@dataclass(frozen=True)
class Touch:
    """The effect of an operation on one row."""

    name: str
    """Identifies the row independently of its id and key."""
    verb: str
    """"insert", "once" (insert_once), "remove", "point" (write its reference) or "read"."""
    told: Any = None
    """The result: a :class:`Row`; for "once", True if it is new, and the row; for "remove" and "point", True if the
    row existed; for "read", the row or None."""
    reference: str | None = None
    """The reference that is written."""


@dataclass(frozen=True)
class Walk:
    """The rows of all pages, from the first to the last."""

    shelf: int
    order: str
    """"key", "newest" or "weight"."""
    seen: tuple[tuple[str, int, int], ...] = ()
    """The name, the key and the weight of each row."""


@dataclass(frozen=True)
class Failure:
    """The error that an operation ended with."""

    name: str
    code: str = ""
    lost: bool = False
    """True if the connection was lost."""
    text: str = ""
    where: str = ""
    """The functions in which it was raised, the innermost last, without those of the driver."""


@dataclass(frozen=True)
class Operation:
    """An operation as its worker recorded it."""

    ticket: int
    kind: str
    begin: float
    end: float = NEVER
    outcome: str = "ok"
    touches: tuple[Touch, ...] = ()
    keys: tuple[int, ...] = ()
    """The keys that an allocator issued to it."""
    shelf: int | None = None
    """The shelf of its rows."""
    walk: Walk | None = None
    failure: Failure | None = None
    worker: str = ""

    def __str__(self) -> str:
        told = {touch.name: touch.told for touch in self.touches}
        result = self.failure or self.walk or told or self.keys
        if self.failure is not None:
            result = f"{sorted(told)} {self.failure.name} {self.failure.code}: {self.failure.text}"
            result += f" [{self.failure.where}]"
        times = f"{self.begin / 1e6:.2f}–{self.end / 1e6:.2f} ms" if self.end < NEVER else f"{self.begin / 1e6:.2f}– ms"
        return f"#{self.ticket} {self.kind} by {self.worker or '-'}, {times}, {self.outcome}: {result}"


# --- errors that may occur

_BUSY = {"40001", "40P01", "55P03", "1205", "1213", "1020", "1412", "database is locked", "database table is locked"}
"""The database favored another transaction, or changes the table."""
_FULL = {"53100", "1114", "1021", "1026", "3", "28", "database or disk is full", "disk I/O error"}
"""The disk is full."""
_DOWN = {"57P01", "57P02", "57P03", "57014", "2003", "2006", "2013", "1053", "1927", "1317", "connection failed"}
_DOWN |= {"cannot exit pipeline mode while busy", "sending query failed: cannot exit pipeline mode while busy"}
"""The server stops, starts or is down, or it has ended the session or the statement.

The texts are of psycopg and its ROLLBACK, if the session ends within ``executemany()``: once in 600 times, also without
this library.
"""

ALLOWED_CODES = frozenset(_BUSY | _FULL | _DOWN)
ALLOWED_NAMES = {
    "TimeLimit": "*",
    "LeaseNotAvailable": ("add", "take"),  # the row of the counter is locked, or the server is down
    "InvalidCursor": ("walk",),  # the row of the cursor was removed
    "StaleDataError": ("move",),  # the row was removed by another transaction after it was read
}


def is_allowed(operation: Operation) -> bool:
    """Return True if the operation may fail with its error."""
    failure = operation.failure
    if failure is None or failure.lost or (failure.code in ALLOWED_CODES and failure.name != "IntegrityError"):
        return True
    return operation.kind in ALLOWED_NAMES.get(failure.name, ()) or ALLOWED_NAMES.get(failure.name) == "*"


def check_errors(operations: Iterable[Operation]) -> Iterator[Finding]:
    """Find operations that ended with an unexpected error."""
    operations = list(operations)
    for operation in operations:
        if operation.failure is not None and not is_allowed(operation):
            names = {touch.name for touch in operation.touches}
            beside = (
                other
                for other in operations
                if other.begin <= operation.end
                and operation.begin <= other.end
                and any(touch.name in names for touch in other.touches)
            )
            what = f"{operation.kind} raised {operation.failure.name}: {operation.failure.text:.140}"
            yield Finding("error", what, tuple(beside))


# --- the order of the operations on one row

_IMPOSSIBLE = object()


def _after(state: Row | None, touch: Touch, is_told: bool) -> Any:
    """Return the row after *touch*; ``None`` if there is none."""
    told = touch.told
    if not is_told:
        if touch.verb in ("insert", "once"):
            return Row(reference=touch.reference) if state is None else _IMPOSSIBLE
        if touch.verb == "remove" or state is None:
            return None
        return state._replace(reference=touch.reference) if touch.verb == "point" else state
    if touch.verb == "once":
        created, told = told
        return (told if state is None else _IMPOSSIBLE) if created else _seen(state, told)
    if touch.verb == "insert":
        return told if state is None else _IMPOSSIBLE
    if touch.verb == "read":
        return _seen(state, told)
    if told != (state is not None):
        return _IMPOSSIBLE
    if state is None or touch.verb == "remove":
        return None
    return state._replace(reference=touch.reference)


def _seen(state: Row | None, told: Row | None) -> Any:
    if state is None or told is None:
        return None if state is told else _IMPOSSIBLE
    return combine(state, told) or _IMPOSSIBLE


Use = tuple[Operation, Touch]


def is_explained(uses: Sequence[Use]) -> bool:
    """Return True if there is an order of *uses* that explains all results."""
    uses = sorted((use for use in uses if use[0].outcome != "failed"), key=lambda use: use[0].begin)
    needed = sum(1 << at for at, (operation, _) in enumerate(uses) if operation.outcome == "ok")
    known: set[tuple[int, Row | None]] = set()
    waiting: list[tuple[int, Row | None]] = [(0, None)]
    while waiting:
        done, state = waiting.pop()
        if done & needed == needed:
            return True
        left = [(at, use) for at, use in enumerate(uses) if not done >> at & 1]
        first_end = min(operation.end for _, (operation, _) in left if operation.outcome == "ok")
        for at, (operation, touch) in left:
            if operation.begin > first_end:
                break
            after = _after(state, touch, operation.outcome != "unknown")
            step = (done | 1 << at, after)
            if after is not _IMPOSSIBLE and step not in known:
                known.add(step)
                waiting.append(step)
    return False


def smallest(uses: Sequence[Use], fails: Callable[[Sequence[Use]], bool]) -> list[Use]:
    """Return those of *uses* whose results contradict each other; the others are dispensable."""
    kept = list(uses)
    for at, (operation, touch) in enumerate(uses):
        if operation.outcome == "ok":
            tried = [*kept]
            tried[at] = (replace(operation, outcome="dispensable"), touch)
            if fails(tried):
                kept = tried
    return [use for use in kept if use[0].outcome == "ok"]


def check_rows(operations: Iterable[Operation], stored: Iterable[Stored]) -> Iterator[Finding]:
    """Find rows that contradict the results of the operations on them, duplicate rows, and rows that nobody wrote.

    A row whose insert was acknowledged must exist, with its id, key and reference, until it is removed. A row whose
    insert failed must not exist. ``insert_once`` must create a row only once.
    """
    uses: dict[str, list[Use]] = defaultdict(list)
    for operation in operations:
        for touch in operation.touches:
            uses[touch.name].append((operation, touch))
    at_end = group_rows(stored)
    for finding in find_strangers(uses, at_end):
        made = [operation for operation, touch in uses.get(finding.name, ()) if touch.verb in ("insert", "once")]
        yield replace(finding, operations=tuple(made))
    for name, touched in uses.items():
        end = Operation(-1, "end", NEVER, NEVER)
        last = (end, Touch(name, "read", at_end[name][0] if name in at_end else None))
        if not is_explained([*touched, last]):
            fewest = smallest([last, *touched], lambda tried: not is_explained(tried))
            # if no result contradicts another one, the row itself is unexplained: by any operation on it
            shown = [operation for operation, _ in (fewest if len(fewest) > 1 else touched) if operation != end]
            what = f"no order of the operations on {name} explains their results"
            if any(operation is end for operation, _ in fewest):
                what += f" and the end: {last[1].told}"
            yield Finding("row", what, tuple(shown))


def check_wholes(operations: Iterable[Operation], stored: Iterable[Stored]) -> Iterator[Finding]:
    """Find operations that stored only some of their rows, although nobody has removed the others."""
    operations = list(operations)
    removed = {
        touch.name
        for operation in operations
        for touch in operation.touches
        if touch.verb == "remove" and operation.outcome != "failed"
    }
    there = {each.name for each in stored}
    for operation in operations:
        names = {touch.name for touch in operation.touches if touch.verb == "insert"} - removed
        yield from (replace(finding, operations=(operation,)) for finding in find_halves([names], there))


# --- keys


def check_keys(operations: Iterable[Operation], stored: Iterable[Stored]) -> Iterator[Finding]:
    """Find keys that were issued twice. For an operation that was cut off, take the keys from the stored rows."""
    owners: dict[int, list[Operation]] = defaultdict(list)
    makers: dict[str, Operation] = {}
    for operation in operations:
        for key in operation.keys:
            owners[key].append(operation)
        makers.update({touch.name: operation for touch in operation.touches if touch.verb == "insert"})
    for each in stored:
        if not each.from_block or each.row.key is None or each.name not in makers:
            continue
        if makers[each.name] not in owners[each.row.key]:
            owners[each.row.key].append(makers[each.name])
    for key, those in owners.items():
        if len(those) > 1:
            yield Finding("key", f"the key {key} was issued {len(those)} times", tuple(those))


# --- pages


def _sort_value(order: str) -> Callable[[tuple[str, int, int]], tuple[int, ...]]:
    return {
        "key": lambda seen: (seen[1],),
        "newest": lambda seen: (-seen[1],),
        "weight": lambda seen: (-seen[2], seen[1]),
    }[order]


def check_walks(operations: Iterable[Operation]) -> Iterator[Finding]:
    """Find walks that returned a row twice, out of order or from another shelf, and walks that missed a row.

    A walk must return a row if its insert was acknowledged before the walk began, and no removal of it began before
    the walk ended.
    """
    operations = list(operations)
    inserts = [
        (operation, touch.name)
        for operation in operations
        if operation.shelf is not None and operation.outcome != "failed"
        for touch in operation.touches
        if touch.verb == "insert"
    ]
    by_shelf: dict[int, list[tuple[Operation, str]]] = defaultdict(list)
    for operation, name in inserts:
        by_shelf[operation.shelf or 0].append((operation, name))
    removals: dict[str, list[Operation]] = defaultdict(list)
    for operation in operations:
        for touch in operation.touches:
            has_removed = touch.told if operation.outcome == "ok" else operation.outcome == "unknown"
            if touch.verb == "remove" and has_removed:
                removals[touch.name].append(operation)
    for operation in operations:
        if operation.walk is not None and operation.outcome == "ok":
            yield from _check_walk(operation, operation.walk, by_shelf[operation.walk.shelf], removals)


def _check_walk(
    operation: Operation, walk: Walk, inserts: list[tuple[Operation, str]], removals: dict[str, list[Operation]]
) -> Iterator[Finding]:
    names = Counter(name for name, _, _ in walk.seen)
    makers = {name: insert for insert, name in inserts}
    for name, times in names.items():
        if times > 1:
            yield Finding("page", f"{name} was shown {times} times", (operation,))
        if name not in makers or makers[name].begin > operation.end:
            yield Finding("page", f"{name} was shown, and was not there", (operation,))
        elif any(removal.outcome == "ok" and removal.end < operation.begin for removal in removals[name]):
            yield Finding("page", f"{name} was shown after it had been removed", (operation, *removals[name]))
    value = _sort_value(walk.order)
    for one, other in pairwise(walk.seen):
        if not value(one) < value(other):
            yield Finding("page", f"{other[0]} was shown after {one[0]}", (operation,))
    for insert, name in inserts:
        is_there = insert.outcome == "ok" and insert.end < operation.begin
        if is_there and name not in names and all(removal.begin > operation.end for removal in removals[name]):
            yield Finding("page", f"{name} was not shown", (insert, operation))


# --- all checks


def check(operations: Sequence[Operation], stored: Sequence[Stored]) -> list[Finding]:
    """Return all findings."""
    return list(
        chain(
            check_errors(operations),
            check_rows(operations, stored),
            check_wholes(operations, stored),
            check_keys(operations, stored),
            check_walks(operations),
        )
    )
