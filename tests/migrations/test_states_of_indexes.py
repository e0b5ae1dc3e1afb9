"""Which of the indexes of a table makes the ids unique, in whatever order a catalog lists them, without a database."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.state import IndexFacts, State

OURS = "uq_person_public_id"
ALONE, PAIR = ("public_id",), ("public_id", "tenant_id")


def index(name: str = "other", columns: tuple[str, ...] = ALONE, **facts: Any) -> IndexFacts:
    return IndexFacts(name, **{"unique": True, "columns": columns, **facts})


TAKEN: dict[str, tuple[list[IndexFacts], str | None, bool]] = {
    "none": ([], None, False),
    "another name": ([index()], "other", False),
    "our name": ([index(), index(OURS)], OURS, False),
    "our name in capitals": ([index(), index(OURS.upper())], OURS.upper(), False),
    "our name in both cases": ([index(OURS.upper()), index(OURS)], OURS, False),
    "a constraint beside it": ([index("of_constraint", constraint=True), index(OURS)], OURS, True),
    "a constraint": ([index(constraint=True)], "other", True),
    "not unique": ([index(unique=False)], None, False),
    "partial": ([index(partial=True)], None, False),
    "deferrable": ([index(deferrable=True, constraint=True)], None, False),
    "by another collation": ([index(by_other_collation=True)], None, False),
    "prefix": ([index(columns=(), prefix_of="public_id", prefix=4)], None, False),
    "primary key": ([index("PRIMARY", primary=True, constraint=True)], None, False),
    "other columns": ([index(columns=PAIR), index("name", columns=("name",))], None, False),
    "unfinished, ours": ([index(OURS, valid=False)], OURS, False),
    "unfinished, of others": ([index(valid=False)], None, False),
    "unfinished, in capitals": ([index(OURS.upper(), valid=False)], None, False),
    "a finished one beside it": ([index(OURS, valid=False), index()], "other", False),
}
WITH_OTHERS: dict[str, tuple[list[IndexFacts], str | None, bool]] = {
    "alone": ([index()], None, False),
    "in this order": ([index(columns=PAIR)], "other", False),
    "in another order": ([index(columns=PAIR[::-1])], "other", False),
    "both orders": ([index("a", columns=PAIR[::-1]), index("b", columns=PAIR)], "b", False),
    "ours in another order": ([index(OURS, columns=PAIR[::-1]), index("b", columns=PAIR)], OURS, False),
    "more": ([index(columns=(*PAIR, "name"))], None, False),
}


@pytest.mark.parametrize(
    ("case", "others"), [*((each, ()) for each in TAKEN), *((each, PAIR[1:]) for each in WITH_OTHERS)]
)
def test_index_that_is_taken(case: str, others: tuple[str, ...]) -> None:
    """The unique index is one that is on these columns, serves look-ups, and is finished or ours; then the name counts,
    first in its own case, and then the order of the columns.
    """
    indexes, name, is_constrained = (WITH_OTHERS if others else TAKEN)[case]
    target = PublicIdColumn.of("person", unique_with=others)
    for each in permutations(indexes):
        state = State(exists=True, nullable=False).with_indexes(each, target)
        assert (state.unique and state.unique.name, state.constrained) == (name, is_constrained)
        assert state.indexes == each
        assert state.index == (name is not None)
        assert state.valid == state.complete == (name is not None and "unfinished" not in case)
        assert state.constraint == (case == "a constraint")


def test_complete() -> None:
    """A column is complete if it exists, is unique, forbids NULL, and finds an id by its own spelling only."""
    whole: dict[str, Any] = {"exists": True, "nullable": False, "exact": True, "unique": index()}
    lacking = {"exists": False, "nullable": True, "exact": False, "unique": None}

    assert State(**whole).complete
    assert [State(**{**whole, name: value}).complete for name, value in lacking.items()] == [False] * 4
    assert not State(**{**whole, "unique": index(OURS, valid=False)}).complete


def test_what_an_index_is_good_for() -> None:
    """An index keeps duplicates out if it is unique, finished and whole; it may be on the column or on a prefix."""
    of_prefix = index(columns=(), prefix_of="public_id", prefix=4)
    for weak in ({"unique": False}, {"valid": False}, {"partial": True}, {"by_other_collation": True}):
        assert not index(**weak).guards
    assert [each.guards for each in (index(), index(deferrable=True), of_prefix)] == [True, True, False]
    assert [each.is_on("public_id") for each in (index(), of_prefix, index(columns=PAIR))] == [True, True, False]
    assert not index().is_on("name")
