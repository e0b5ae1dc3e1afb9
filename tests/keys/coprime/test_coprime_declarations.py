"""Ids that are counted: the format, with a counter in memory in place of the database."""

from __future__ import annotations

import copy
import math
import pickle
import threading
from typing import Any

import pytest

from sqlalchemy_public_id import ConfigurationError, InvalidPublicId, NanoId, PublicIdType, TypedId, formats
from sqlalchemy_public_id.errors import KeySpaceExhausted
from sqlalchemy_public_id.formats import BASE36, URLSAFE64
from sqlalchemy_public_id.keys.coprime.format import CoprimeKey
from sqlalchemy_public_id.keys.coprime.keyed import KeyedStep
from sqlalchemy_public_id.keys.coprime.step import CoprimeStep
from sqlalchemy_public_id.migrating.server_defaults import can_generate

STEP = CoprimeStep(BASE36, 6)
SECRET = bytes(range(16))


class Counter:
    """Counts from *start*, and gives several numbers in ranges of at most three."""

    def __init__(self, start: int = 0, name: str = "order") -> None:
        self.name = name
        self.at = start
        self._lock = threading.Lock()

    def next(self) -> int:
        return self.take(1)[0].start

    def take(self, count: int) -> list[range]:
        with self._lock:
            begin = self.at
            self.at += count
        return [range(at, min(at + 3, begin + count)) for at in range(begin, begin + count, 3)]


class InvoiceId(TypedId, prefix="cpinv", format=CoprimeKey(Counter(name="invoice"), STEP)): ...


# --- declaring


def test_other_orders_of_the_same_keys() -> None:
    """An older format whose keys would come again in another order is refused; a shorter one, and its own, are not."""
    old = CoprimeKey(Counter(), STEP, prefix="ord")

    with pytest.raises(ConfigurationError, match="keys of 6 characters in different orders"):
        CoprimeKey(Counter(), CoprimeStep(BASE36, 6, step=7), prefix="ord").accepting(old)
    for step in (CoprimeStep(BASE36, 7), STEP):
        assert CoprimeKey(Counter(), step, prefix="ord").accepting(old).is_valid("ord_8hxzjy")
    assert CoprimeKey(Counter(), CoprimeStep(BASE36, 6, step=7), prefix="old").accepting(old).is_valid("ord_8hxzjy")


# --- making


def test_counted() -> None:
    """Each id is the key of the next number, alone and together, and no number is left out."""
    counter = Counter()
    format = CoprimeKey(counter, STEP)
    ids = [format.generate(), format.generate(), *format.generate_many(7), format.generate(), *format.generate_many(0)]
    prefixed = CoprimeKey(counter, prefix="ord", separator=".").generate_many(2)
    last = CoprimeKey(Counter(), CoprimeStep("01", 2)).generate_many(4)

    assert [*ids, *prefixed] == [*STEP.keys(0, 10), *("ord." + key for key in STEP.keys(10, 2))]
    assert counter.at == 12
    assert sorted(last) == ["00", "01", "10", "11"]


def test_number() -> None:
    """An id leads back to its number; one of an older format has none."""
    format = CoprimeKey(Counter(41), STEP, prefix="ord").accepting(NanoId())

    assert format.number(format.generate()) == 41
    with pytest.raises(InvalidPublicId, match="it does not begin with 'ord_'"):
        format.number("izkpm55j334u")
    with pytest.raises(InvalidPublicId, match=r"^code: 'x' is not a public id"):
        format.number("x", field="code")


def test_keyed() -> None:
    """With a secret, ids are in the order that the secret gives them."""
    pytest.importorskip("ffx")
    step = KeyedStep(BASE36, 6, SECRET)
    format = CoprimeKey(Counter(), step, prefix="ord")

    assert format.generate_many(4) == ["ord_" + step.key(index) for index in range(4)]
    assert format.entropy_bits == pytest.approx(6 * math.log2(36))
    assert not format.ordered


def test_exhausted() -> None:
    """When all ids have been issued, the error says how many there were, and what to do."""
    step = CoprimeStep("abc", 2)
    format = CoprimeKey(Counter(8), step)
    assert format.generate() == step.key(8)
    with pytest.raises(KeySpaceExhausted) as raised:
        format.generate_many(2)

    assert f"{step!r} has 9 keys, so there is none with the index" in str(raised.value)
    assert "continue with keys of 3 characters, in a format that accepts these" in str(raised.value)
    longer = CoprimeKey(Counter(9), CoprimeStep("abc", 3)).accepting(format)
    assert longer.generate() == CoprimeStep("abc", 3).key(9)
    assert longer.is_valid(step.key(8))


# --- checking


def test_accepting() -> None:
    """Older ids stay valid: of another step, of another kind, and as the older ones of another."""
    format = CoprimeKey(Counter(), STEP, prefix="ord").accepting(NanoId(), CoprimeKey("old", CoprimeStep("abc", 4)))
    outer = NanoId(prefix="x").accepting(format)

    for each in (format, outer):
        assert all(map(each.is_valid, ("ord_m8yzrz", "izkpm55j334u", "abca")))
        assert not each.is_valid("abcd")
    assert format.generate() == "ord_m8yzrz"


def test_no_budget() -> None:
    """Counted ids do not collide by chance, and can be guessed where the step is plain."""
    format = CoprimeKey("order", STEP)
    with pytest.raises(ConfigurationError, match=r"step\.remaining\(issued\) returns how many are left"):
        format.budget()

    assert format.entropy_bits == 0.0
    assert format.capacity == 36**6


def test_example() -> None:
    """The example for documentation is the same each time, and takes no number."""
    counter = Counter()
    format = CoprimeKey(counter, STEP, prefix="ord")

    assert format.example() == format.named().example()
    assert format.is_valid(format.example())
    assert counter.at == 0


def test_typed_id() -> None:
    """A typed id is made and checked as with any format."""
    made = InvoiceId()

    assert type(made) is InvoiceId
    assert made == "cpinv_" + STEP.key(InvoiceId.id_format.number(made))  # type: ignore[attr-defined]
    assert TypedId.parse(str(made)) == made
    assert PublicIdType(InvoiceId).next_id() != made


def test_no_default_in_the_database() -> None:
    """A database cannot make these ids by itself, and autogenerate knows."""
    assert not can_generate(CoprimeKey("order", STEP), "postgresql")


# --- a value


def test_equal() -> None:
    """Formats are equal where the name of the sequence and the settings are."""
    format = CoprimeKey(Counter(), STEP, "ord")
    twins = [CoprimeKey(Counter(5), STEP, "ord"), CoprimeKey("order", STEP, "ord"), format.named()]
    others = [
        CoprimeKey(Counter(name="other"), STEP, "ord"),
        CoprimeKey(Counter(), CoprimeStep(BASE36, 7), "ord"),
        CoprimeKey(Counter(), STEP),
        CoprimeKey(Counter(), STEP, "ord", "-"),
        format.accepting(NanoId()),
    ]

    assert {format, *twins} == {format}
    assert len({format, *others}) == 6
    assert format != "order"


def test_shown_and_pickled_by_name() -> None:
    """What ``repr`` and a pickle come back as is equal, checks ids, and says why it makes none."""
    pytest.importorskip("ffx")
    format = CoprimeKey(Counter(), STEP, prefix="ord").accepting(NanoId(), CoprimeKey(Counter(), STEP))
    names = {**vars(formats), "CoprimeKey": CoprimeKey, "CoprimeStep": CoprimeStep}

    for twin in (eval(repr(format), names), pickle.loads(pickle.dumps(format)), format.named()):
        assert twin == format
        assert twin.pattern == format.pattern
        assert twin.allocator == "order"
        with pytest.raises(ConfigurationError, match=r"write CoprimeKey\(BlockAllocator\(engine, 'order'\), step\)"):
            twin.generate()
        with pytest.raises(ConfigurationError, match="it has only the name 'order' of its sequence"):
            twin.generate_many(3)
    assert copy.deepcopy(format) is copy.copy(format) is format
    assert repr(CoprimeKey("order", KeyedStep(BASE36, 6, SECRET))).endswith("length=6, tweak=b''))")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Counter(), BASE36), "expected .* CoprimeStep"),
        ((Counter(name=""), STEP), "expected BlockAllocator"),
        (("", STEP), "the allocator is '', .* expected BlockAllocator"),
        ((Counter(), CoprimeStep(URLSAFE64, 6), "ord"), "the alphabet contains the separator '_'"),
        ((Counter(), STEP, "1st"), "the prefix '1st' is not allowed"),
        ((Counter(), CoprimeStep(BASE36, 255), "ord"), "would generate ids of 259 characters"),
    ],
)
def test_refused(arguments: Any, message: str) -> None:
    """Settings that cannot work are refused when they are declared."""
    with pytest.raises(ConfigurationError, match=message):
        CoprimeKey(*arguments)
