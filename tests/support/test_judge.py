"""The judge of simulations finds each broken rule, and nothing in what is right."""

from __future__ import annotations

import pytest
from support.judge import Expected, Row, Shown, Stored, find_halves, find_wrong_objects, find_wrong_rows, group_rows

A = Row(7, "a", "box")
GIVEN = Expected(Row(public_id="a"))


@pytest.mark.parametrize(
    ("expected", "stored", "kinds"),
    [
        ({1: GIVEN}, [Stored(1, A)], []),
        ({1: Expected(fate="gone"), 2: Expected(fate="unknown"), 3: Expected(A, "unknown")}, [Stored(3, A)], []),
        ({1: GIVEN}, [Stored(1, A), Stored(1, A._replace(key=8))], ["twice"]),
        ({}, [Stored(1, A)], ["stranger"]),
        ({1: GIVEN}, [], ["lost"]),
        ({1: Expected(fate="gone")}, [Stored(1, A)], ["back"]),
        ({1: GIVEN}, [Stored(1, A._replace(public_id="b"))], ["replaced"]),
        ({1: Expected(A, "unknown")}, [Stored(1, A._replace(public_id="b"))], ["replaced"]),
        ({1: Expected(A)}, [Stored(1, A._replace(reference="other"))], ["replaced"]),
    ],
)
def test_rows(expected: dict[int | str, Expected], stored: list[Stored], kinds: list[str]) -> None:
    """A row that is lost, came back, is there twice, was written by nobody, or has another id is found."""
    assert kinds == [finding.kind for finding in find_wrong_rows(expected, group_rows(stored))]


@pytest.mark.parametrize(
    ("shown", "is_right"),
    [
        (Shown(1, A), True),
        (Shown(1, Row(public_id="a"), before="a"), True),
        (Shown(1, Row(), before=None), True),
        (Shown(1, Row(public_id="b")), False),
        (Shown(1, Row(8, "a")), False),
        (Shown(2, A), False),
        (Shown(1, A, before="b"), False),
    ],
)
def test_objects(shown: Shown, is_right: bool) -> None:
    """An object whose row is not there, or that shows another id than its row or than before, is found."""
    assert bool([*find_wrong_objects([shown], {1: [A]})]) is not is_right


def test_halves() -> None:
    """A transaction that has stored only some of its rows is found."""
    assert [finding.name for finding in find_halves([[1, 2], [3], [4, 5]], {1, 2, 4})] == [4]
