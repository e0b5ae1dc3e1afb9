"""The checker of histories finds each kind of violation, and reports none in a valid history."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from histories.checking import NEVER, Failure, Operation, Touch, Walk, check
from support.judge import Finding, Row, Stored

A = Row(1, "a", None)
B = Row(2, "a", None)
PARCEL = Row(7, "p", "customer")
DUPLICATE = Failure("IntegrityError", "23505")

_tickets = iter(range(10**6))


def operation(begin: float, end: float, *touches: Touch, kind: str = "send", **values: Any) -> Operation:
    return Operation(next(_tickets), kind, begin, end, touches=touches, **values)


def once(begin: float, end: float, created: bool, row: Row = A, **values: Any) -> Operation:
    return operation(begin, end, Touch("a", "once", (created, row)), **values)


def cut_off(begin: float, verb: str, name: str = "a") -> Operation:
    return operation(begin, NEVER, Touch(name, verb), outcome="unknown")


def removal(begin: float, end: float, was_there: bool) -> Operation:
    return operation(begin, end, Touch("a", "remove", was_there), kind="remove")


def look(begin: float, end: float, row: Row | None) -> Operation:
    return operation(begin, end, Touch("a", "read", row), kind="look")


def added(begin: float, end: float, *names: str, shelf: int = 1, key: int = 7, **values: Any) -> Operation:
    touches = (Touch(name, "insert", PARCEL._replace(key=key, public_id=name), reference="customer") for name in names)
    return operation(begin, end, *touches, kind="add", shelf=shelf, **values)


def parcel(name: str, key: int = 7, reference: str = "customer") -> Stored:
    return Stored(name, Row(key, name, reference), from_block=True)


def walk(begin: float, end: float, *seen: tuple[str, int, int], order: str = "key") -> Operation:
    return operation(begin, end, kind="walk", shelf=1, walk=Walk(1, order, seen))


def kinds(findings: list[Finding]) -> list[str]:
    return [finding.kind for finding in findings]


GOOD: dict[str, tuple[list[Operation], list[Stored]]] = {
    "nothing": ([], []),
    "one makes the row and others find it": (
        [once(0, 5, True), once(3, 9, False), once(8, 9, False)],
        [Stored("a", A)],
    ),
    "who finds it was faster than who makes it": ([once(0, 9, True), once(2, 5, False)], [Stored("a", A)]),
    "it is made again after a removal": (
        [once(0, 1, True), removal(2, 3, True), once(4, 5, True, B)],
        [Stored("a", B)],
    ),
    "two removals, of which one finds it": ([once(0, 1, True), removal(2, 9, True), removal(3, 8, False)], []),
    "what was cut off may be there": ([cut_off(0, "once"), once(3, 4, False)], [Stored("a", A)]),
    "or not": ([cut_off(0, "once")], []),
    "and it may come late": ([cut_off(0, "once"), look(2, 3, None), look(4, 5, A)], [Stored("a", A)]),
    "what failed is not there": ([once(0, 1, True, outcome="failed")], []),
    "errors that may be": (
        [
            once(0, 1, True, outcome="failed", failure=Failure("OperationalError", "40P01")),
            once(0, 1, True, outcome="failed", failure=Failure("OperationalError", lost=True)),
            once(0, 1, True, outcome="failed", failure=Failure("TimeLimit")),
            added(0, 1, "p", outcome="failed", failure=Failure("LeaseNotAvailable")),
        ],
        [],
    ),
    "a reference is written, and read": (
        [
            added(0, 1, "p"),
            operation(2, 5, Touch("p", "point", True, "other"), kind="move"),
            operation(3, 4, Touch("p", "read", PARCEL), kind="read"),
            operation(6, 7, Touch("p", "read", PARCEL._replace(reference="other")), kind="read"),
        ],
        [parcel("p", reference="other")],
    ),
    "keys that differ": ([added(0, 1, "p", keys=(7,)), operation(0, 1, kind="take", keys=(8, 9))], [parcel("p")]),
    "pages with what comes and goes meanwhile": (
        [
            added(0, 1, "p", "q", key=7),
            added(3, 9, "r", key=9),
            operation(4, 5, Touch("q", "remove", True), kind="drop"),
            walk(2, 8, ("p", 7, 1), ("r", 9, 1)),
        ],
        [parcel("p"), parcel("r", 9)],
    ),
}

BAD: dict[str, tuple[list[Operation], list[Stored], str]] = {
    "an acknowledged row is lost": ([once(0, 1, True)], [], "row"),
    "it has another id at the end": ([once(0, 1, True)], [Stored("a", A._replace(public_id="b"))], "row"),
    "it has another key at the end": ([once(0, 1, True)], [Stored("a", B)], "row"),
    "what failed is there": ([once(0, 1, True, outcome="failed")], [Stored("a", A)], "row"),
    "two have made it": ([once(0, 5, True), once(2, 6, True, B)], [Stored("a", A)], "row"),
    "nobody has made it": ([once(0, 5, False), once(2, 6, False)], [Stored("a", A)], "row"),
    "it was found with another key": ([once(0, 1, True), once(2, 3, False, B)], [Stored("a", A)], "row"),
    "it was found before it was made": ([once(0, 1, False), once(2, 3, True)], [Stored("a", A)], "row"),
    "it was not found after it was made": ([once(0, 1, True), look(2, 3, None)], [Stored("a", A)], "row"),
    "it is there after its removal": ([once(0, 1, True), removal(2, 3, True)], [Stored("a", A)], "row"),
    "it is gone without a removal": ([once(0, 1, True), removal(2, 3, False)], [], "row"),
    "it was cut off, was there and is gone": ([cut_off(0, "once"), look(2, 3, A)], [], "row"),
    "a row is stored twice": ([added(0, 1, "p")], [parcel("p"), parcel("p", 8)], "twice"),
    "a row is there that nobody wrote": ([], [parcel("p")], "stranger"),
    "half of a transaction": ([replace(added(0, 1, "p", "q"), outcome="unknown")], [parcel("p")], "half"),
    "a forbidden error": ([once(0, 1, True, outcome="failed", failure=DUPLICATE)], [], "error"),
    "a forbidden error of the library": (
        [added(0, 1, "p", outcome="failed", failure=Failure("PublicIdCollision"))],
        [],
        "error",
    ),
    "an error that only others may have": (
        [once(0, 1, True, outcome="failed", failure=Failure("StaleDataError"))],
        [],
        "error",
    ),
    "a key issued twice": (
        [operation(0, 1, kind="take", keys=(7, 8)), operation(0, 1, kind="take", keys=(8, 9))],
        [],
        "key",
    ),
    "a key issued twice, once to what was cut off": (
        [operation(0, 1, kind="take", keys=(7,)), replace(added(0, 1, "p"), outcome="unknown")],
        [parcel("p")],
        "key",
    ),
    "the reference is another one": ([added(0, 1, "p")], [parcel("p", reference="other")], "row"),
    "an old reference is read": (
        [
            added(0, 1, "p"),
            operation(2, 3, Touch("p", "point", True, "other"), kind="move"),
            operation(4, 5, Touch("p", "read", PARCEL), kind="read"),
        ],
        [parcel("p", reference="other")],
        "row",
    ),
    "pages leave a row out": ([added(0, 1, "p"), walk(2, 3)], [parcel("p")], "page"),
    "pages show a row twice": ([added(0, 1, "p"), walk(2, 3, ("p", 7, 1), ("p", 7, 1))], [parcel("p")], "page"),
    "pages show a row that was not there yet": ([walk(0, 1, ("p", 7, 1)), added(2, 3, "p")], [parcel("p")], "page"),
    "pages show a row that was removed": (
        [
            added(0, 1, "p"),
            operation(2, 3, Touch("p", "remove", True), kind="drop"),
            walk(4, 5, ("p", 7, 1)),
        ],
        [],
        "page",
    ),
    "pages show a row of another shelf": ([added(0, 1, "p", shelf=2), walk(2, 3, ("p", 7, 1))], [parcel("p")], "page"),
    **{
        f"pages are out of order by {order}": (
            [added(0, 1, "p", key=1), added(0, 1, "q", key=2), walk(2, 3, *seen, order=order)],
            [parcel("p", 1), parcel("q", 2)],
            "page",
        )
        for order, seen in {
            "key": (("q", 2, 1), ("p", 1, 1)),
            "newest": (("p", 1, 1), ("q", 2, 1)),
            "weight": (("p", 1, 1), ("q", 2, 2)),
        }.items()
    },
}


@pytest.mark.parametrize("name", list(GOOD))
def test_good_history(name: str) -> None:
    """A valid history has no findings."""
    assert check(*GOOD[name]) == []


@pytest.mark.parametrize("name", list(BAD))
def test_bad_history(name: str) -> None:
    """An invalid history has a finding of its kind."""
    operations, stored, kind = BAD[name]
    assert {kind} == set(kinds(check(operations, stored)))


def test_smallest_excerpt() -> None:
    """A finding shows only those operations on the row whose results contradict each other."""
    twice = [once(4, 5, True), once(6, 7, True, B)]
    others = [look(0, 1, None), removal(1, 2, False), once(8, 9, False, B), cut_off(3, "read")]
    [finding] = check([*others, *twice], [Stored("a", B)])
    assert twice == list(finding.operations)


def test_many_operations_at_once() -> None:
    """Twenty operations that were all cut off are checked quickly, whether or not they can be explained."""
    cut = [cut_off(0, verb) for verb in ("once", "remove") for _ in range(10)]
    assert check([*cut, look(1, 2, A), look(3, 4, B)], []) == []
    assert kinds(check([*cut[:1], look(1, 2, A), look(3, 4, B)], [])) == ["row"]
