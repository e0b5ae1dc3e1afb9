"""The errors: hierarchy, attributes, messages."""

from __future__ import annotations

import copy
import json
import pickle
import re
import shlex
import sys
import textwrap
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.dialects import sqlite
from sqlalchemy.orm import DeclarativeBase, make_transient_to_detached

from sqlalchemy_public_id import NanoId, PublicIdMixin, PublicIdType, errors
from sqlalchemy_public_id.errors import (
    AmbiguousPublicId,
    BackfillIncomplete,
    ClockMovedBack,
    ConfigurationError,
    DryRun,
    DuplicatePrefix,
    IdempotencyConflict,
    ImmutablePublicId,
    InvalidCursor,
    InvalidKey,
    InvalidPage,
    InvalidPublicId,
    KeySpaceExhausted,
    LeaseNotAvailable,
    LockNotAvailable,
    MigrationRefused,
    MissingExtra,
    Obstacle,
    PublicIdCollision,
    PublicIdError,
    PublicIdNotFound,
    ReferenceNotReadable,
)

FORMAT = NanoId(length=1)
OBSTACLE = Obstacle("no-key", "user has no primary key", "add one")

MISSING = "click is not installed; run: pip install 'sqlalchemy-public-id[cli]'"


def example(make: Callable[..., PublicIdError], *args: Any, **facts: Any) -> tuple[PublicIdError, dict[str, Any]]:
    """Return an error, and the constructor arguments that it has as attributes."""
    return make(*args, **facts), facts


EXAMPLES: list[tuple[PublicIdError, dict[str, Any]]] = [
    example(PublicIdError, "any"),
    example(InvalidPublicId, value="x\ud800", expected="12 of 0-9", reason="it has 2 characters", field="page"),
    example(PublicIdNotFound, value="abc", model="User", field="after"),
    example(InvalidCursor, value="abc~1234", model="User", field="after", reason="it is of another order"),
    (
        InvalidCursor("abc", model="User", field="after"),
        {"value": "abc", "model": "User", "field": "after", "reason": "no User has this public id"},
    ),
    (InvalidPage("limit is 0", field="limit", reason="expected 1"), {"field": "limit", "reason": "expected 1"}),
    example(AmbiguousPublicId, public_ids=("abc", "def"), model="Note", columns=("tenant_id",)),
    example(InvalidKey, value="7abcdefghijk"),
    example(ReferenceNotReadable, field="Order.user_public_id", model="User", key=7),
    example(IdempotencyConflict, public_id="abc", model="User", differing=("name", "age")),
    example(ClockMovedBack, behind=2.5, tolerance=1.0),
    example(PublicIdCollision, model="User", column="public_id", format=FORMAT, attempts=5, capacity=36),
    example(ImmutablePublicId, "no", model="User", attribute="public_id", old="a", new="b"),
    example(ConfigurationError, "write something else"),
    (
        DuplicatePrefix("cus", holder="a.Customer", newcomer="b.Customer", why="belongs to"),
        {"prefix": "cus", "holder": "a.Customer", "newcomer": "b.Customer"},
    ),
    (
        MigrationRefused(target="user.public_id", obstacles=[OBSTACLE]),
        {"target": "user.public_id", "obstacles": (OBSTACLE,)},
    ),
    example(DryRun, report="user.public_id on sqlite"),
    example(BackfillIncomplete, table="user", column="public_id", missing=7, format=FORMAT, schema="shop"),
    example(LockNotAvailable, step="begin", table="user", attempts=1, timeout=1.0, holder=4242, users="connection 7"),
    (
        LeaseNotAvailable("order", timeout=5.0, reason="the database is locked", advice="reserve keys first"),
        {"name": "order", "timeout": 5.0, "reason": "the database is locked"},
    ),
    example(KeySpaceExhausted, "all keys are issued"),
    (MissingExtra("click", extra="cli"), {"name": "click", "extra": "cli", "msg": MISSING}),
]


def test_command_of_an_incomplete_backfill() -> None:
    """Names in the command are quoted for a shell, so it can be pasted whatever the table is called."""
    error = BackfillIncomplete(table="-a $(b) 'c", column="d e", missing=1, format=FORMAT, schema="f;g")

    command = shlex.split(str(error).partition("with: ")[2])

    expected = ["--column", "d e", "--format", repr(FORMAT), "--schema", "f;g", "--", "-a $(b) 'c"]
    assert command == ["public-id", "backfill", *expected]
    assert str(error).startswith("1 row of f;g.-a $(b) 'c has no d e yet")


def test_every_error_has_an_example() -> None:
    """The examples include every error."""
    assert set(errors.__all__) - {"PublicIdWarning"} == {type(error).__name__ for error, _ in EXAMPLES}


@pytest.mark.parametrize(("error", "facts"), EXAMPLES, ids=lambda value: type(value).__name__)
def test_facts(error: PublicIdError, facts: dict[str, Any]) -> None:
    """An error has its facts as attributes, and pickles of any protocol and copies keep all of them."""
    assert facts == {name: getattr(error, name) for name in facts}
    assert facts.keys() >= vars(error).keys()
    clones = [pickle.loads(pickle.dumps(error, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    clones += [copy.copy(error), copy.deepcopy(error)]
    expected = type(error), str(error), error.args
    assert [(type(each), str(each), each.args) for each in clones] == [expected] * len(clones)
    assert [{name: getattr(each, name) for name in facts} for each in clones] == [facts] * len(clones)
    error.hint = "look elsewhere"
    assert pickle.loads(pickle.dumps(error)).hint == "look elsewhere"


class WithAStatus(Exception):
    """An error of a web framework, whose arguments are others."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status:d}")


@pytest.mark.parametrize(
    ("of", "facts"),
    [
        (InvalidPublicId, {"value": "x", "expected": "12 of 0-9", "reason": "it has 1 character"}),
        (PublicIdNotFound, {"value": "abc", "model": "User"}),
        (PublicIdCollision, {"model": "User", "column": "id", "format": FORMAT, "attempts": 5, "capacity": 36}),
    ],
)
def test_subclass_that_is_another_error_as_well(of: type[PublicIdError], facts: dict[str, Any]) -> None:
    """The constructor of an error does not call that of another base, such as the error of a web framework."""
    error: PublicIdError = type("Mixed", (of, WithAStatus), {})(**facts)

    assert error.args == of(**facts).args
    assert facts == {name: getattr(error, name) for name in facts}


class Base(DeclarativeBase): ...


class Note(PublicIdMixin, Base):
    __tablename__ = "note"


def test_pickle_of_errors_that_sqlalchemy_passes_on() -> None:
    """The error raised by a statement can be pickled, too, and has the name of the public class."""
    with pytest.raises(InvalidPublicId) as raised:
        PublicIdType(NanoId()).process_bind_param("malformed", sqlite.dialect())
    loaded = pickle.loads(pickle.dumps(raised.value))

    assert type(loaded) is InvalidPublicId
    assert type(raised.value).__name__ == "InvalidPublicId"
    assert (str(loaded), vars(loaded)) == (str(raised.value), vars(raised.value))


# --- the hierarchy


PAGE = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()
DRAWINGS = {
    "the docstring": textwrap.dedent((errors.__doc__ or "").partition("text\n\n")[2].partition("\n\n")[0]),
    "the page": PAGE.partition("```text\n")[2].partition("```")[0],
}


def drawn(text: str) -> dict[str, tuple[str, ...]]:
    """Return name → bases, as drawn in *text*."""
    tree: dict[str, tuple[str, ...]] = {}
    path: list[str] = []
    for branch, name, other in re.findall(r"^([│ ├└─]*)(\w+)(?: \((\w+)\))?", text, re.MULTILINE):
        depth = len(branch) // 4
        path[depth:] = [name]
        tree[name] = (*path[-2:-1], *([other] if other else []))
    return tree


@pytest.mark.parametrize("text", DRAWINGS.values(), ids=DRAWINGS)
def test_the_drawn_tree(text: str) -> None:
    """The trees in the docstring and in the documentation show the hierarchy of all classes."""
    real = {name: tuple(base.__name__ for base in getattr(errors, name).__bases__) for name in errors.__all__}
    assert real.pop("PublicIdWarning") == ("UserWarning",)

    assert drawn(text) == real | {"PublicIdError": ()}
    assert PublicIdError.__bases__ == (Exception,)


def test_page_and_docstring_agree() -> None:
    """Both trees list the errors in the order of the sections of the page."""
    [order] = {tuple(drawn(text)) for text in DRAWINGS.values()}

    assert list(order) == ["PublicIdError", *re.findall(r"^### (\w+)$", PAGE, re.MULTILINE)]


# --- messages

HOSTILE = ["x" * 10**7, "\ud800\0" * 10**6, "🙈" * 10**6, b"\xff" * 10**7, [0] * 10**5]


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: f"{type(value).__name__}-{len(value)}")
def test_long_input_is_cut(value: Any) -> None:
    """The message truncates a hostile input, and the error holds the whole value."""
    errors = InvalidPublicId(value, expected="…", reason="…"), PublicIdNotFound(value, model="User")
    assert [error.value is value for error in errors] == [True, True]
    assert [str(error) for error in errors if len(str(error)) >= 1000] == []
    assert [f"... ({len(value)} long)" in str(error) for error in errors] == [not isinstance(value, list)] * 2


@pytest.mark.parametrize("text", ["a" * 10**6 + "_x", "cus_" + "b" * 10**7])
def test_long_text_is_cut_in_the_reason(text: str) -> None:
    """The reason truncates a hostile text to the possible length of an id."""
    with pytest.raises(InvalidPublicId) as raised:
        NanoId(prefix="cus").validate(text)

    assert len(str(raised.value)) < 3000
    assert raised.value.value is text


def test_huge_number() -> None:
    """An integer that Python refuses to convert to text raises the usual error."""
    number = 10**5000
    with pytest.raises(InvalidPublicId, match="it is of type int") as raised:
        NanoId().validate(number)

    assert raised.value.value is number


class Unshown:
    def __repr__(self) -> str:
        raise KeyError("no text")


class Rows(list[Any]): ...


NESTED = json.loads("[" * 500 + "]" * 500)
WIDE: list[Any] = [
    [[0] * 1000] * 10**6,
    {"k" * 10**7: {"v" * 10**7: [NESTED] * 10**6}},
    {str(number): 0 for number in range(10**5)},
    {*range(10**5)},
    (frozenset(range(10**5)),) * 10**5,
    Rows([Rows("x" * 10**6)] * 10**6),
    bytearray(10**7),
    [10**5000, -(10**5000)],
    NESTED,
]


@pytest.mark.parametrize("value", WIDE, ids=lambda value: f"{type(value).__name__}-{len(value)}")
def test_message_costs_the_same_for_every_value(value: Any) -> None:
    """The message of a large or nested value takes no memory that grows with the value, and stays short."""
    tracemalloc.start()
    try:
        message = str(PublicIdNotFound(value, model="User"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(message) < 500
    assert peak < 500_000


@pytest.mark.parametrize(
    "value",
    [
        [],
        (),
        {},
        set(),
        frozenset(),
        [1],
        (1,),
        (1, b"2"),
        {"a": [1, (2,)]},
        {1},
        frozenset({"x"}),
        [[[None]]],
        list,
        1.5,
    ],
    ids=repr,
)
def test_small_value_is_shown_as_it_is(value: Any) -> None:
    """The message has the ``repr`` of a small value."""
    assert str(PublicIdNotFound(value, model="User")) == f"no User has the public id {value!r}"


@pytest.mark.parametrize("value", [Unshown(), [Unshown()], {"a": Unshown()}], ids=["alone", "in a list", "in a dict"])
def test_value_whose_repr_fails(value: Any) -> None:
    """The message of a value whose ``repr`` raises an error has its type."""
    name = type(value).__name__

    assert str(PublicIdNotFound(value, model="User")) == f"no User has the public id an object of type {name}"


def test_input_of_every_depth() -> None:
    """A list of any depth that ``json.loads`` reads is rejected as no id, however little of the stack is left."""
    refused = 0
    for depth in range(sys.getrecursionlimit() - 400, sys.getrecursionlimit() + 10):
        try:
            value = json.loads("[" * depth + "]" * depth)
        except RecursionError:
            break
        with pytest.raises(InvalidPublicId, match="it is of type list"):
            NanoId().validate(value)
        refused += 1

    assert refused > 0


def test_long_input_is_cut_when_a_stored_id_would_change() -> None:
    """The message of ImmutablePublicId truncates a hostile text as well."""
    note = Note(id=1, public_id="0" * 12)
    make_transient_to_detached(note)
    text = "x" * 10**7
    with pytest.raises(ImmutablePublicId) as raised:
        note.public_id = text

    assert raised.value.new is text
    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize(
    ("capacity", "words"),
    [(36, "its 36 possible"), (10**9, "about 10**9"), (36**12, "about 10**18"), (36**255, "about 10**396")],
)
def test_collision_names_the_size_of_the_space(capacity: int, words: str) -> None:
    """The message shows the size of the space, however large it is, and names other possible causes."""
    error = PublicIdCollision(model="User", column="slug", format=FORMAT, attempts=9, capacity=capacity)

    assert "User.slug: no free public id in 9 attempts with NanoId(length=1)" in str(error)
    assert words in str(error)
    assert "or its generator is not random" in str(error)


LOCK = {"step": "begin", "table": "user", "attempts": 3, "timeout": 1.5}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (IdempotencyConflict("abc", model="User", differing=("name", "age")), "exists with a different name, age;"),
        (IdempotencyConflict("abc", model="User"), "exists, but does not meet the condition;"),
        (LockNotAvailable(**LOCK), "user: could not begin: no lock within 1.5 s in 3 attempts"),
        (LockNotAvailable(**LOCK, holder=42), "still running after 1.5 s; wait for it, or end its connection 42"),
        (
            LockNotAvailable(**LOCK, users="connection 7 (app, Sleep, 3 s)"),
            "in use by connection 7 (app, Sleep, 3 s): wait",
        ),
    ],
    ids=["other values", "another owner", "lock", "migration", "user"],
)
def test_message_tells_the_case(error: PublicIdError, words: str) -> None:
    """An error with several possible causes names the actual one."""
    assert words in str(error)


def test_missing_module() -> None:
    """The error for a missing module names the extra that installs it."""
    with pytest.raises(MissingExtra, match=re.escape(MISSING)) as raised, errors.require("click", extra="cli"):
        raise ModuleNotFoundError

    assert raised.value.extra == "cli"
