"""Counted ids: the format with a counter in memory, and rows with the counter of a database."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, String, insert, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.forks import ignore_fork_warning, in_child
from support.people import People
from support.rows import agree

from sqlalchemy_public_id import (
    ConfigurationError,
    Format,
    InvalidPublicId,
    NanoId,
    PublicIdMixin,
    PublicIdType,
    TypedId,
    bulk,
    formats,
    lookup,
)
from sqlalchemy_public_id.errors import KeySpaceExhausted
from sqlalchemy_public_id.formats import BASE36, URLSAFE64
from sqlalchemy_public_id.keys import BlockAllocator, CoprimeKey, CoprimeStep, KeyedStep
from sqlalchemy_public_id.migrations.postgresql.server_defaults import PostgreSQLDefaults

STEP = CoprimeStep(BASE36, 6)
OTHER_STEP = CoprimeStep(BASE36, 6, step=7)
SECRET = bytes(range(32))


class Counter:
    """Counts from *at*, and returns numbers in ranges of at most three."""

    def __init__(self, at: int = 0, name: str = "order") -> None:
        self.at, self.name = at, name

    def take(self, count: int) -> list[range]:
        begin, self.at = self.at, self.at + count
        return [range(at, min(at + 3, self.at)) for at in range(begin, self.at, 3)]


class InvoiceId(TypedId, prefix="cpinv", format=CoprimeKey(Counter(name="invoice"), step=STEP)): ...


# --- the format


def test_counted() -> None:
    """Each id is the key of the next number, singly or in groups, and no number is skipped."""
    counter = Counter()
    format = CoprimeKey(counter, step=STEP)
    ids = [format.generate(), format.generate(), *format.generate_many(7), format.generate(), *format.generate_many(0)]
    prefixed = CoprimeKey(counter, prefix="ord", separator=".").generate_many(2)

    assert [*ids, *prefixed] == [*STEP.keys(0, 10), *("ord." + key for key in STEP.keys(10, 2))]
    assert counter.at == 12


def test_number() -> None:
    """An id leads back to its number; an id of an older format has none."""
    format = CoprimeKey(Counter(41), step=STEP, prefix="ord").accepting(NanoId())

    assert format.number(format.generate()) == 41
    with pytest.raises(InvalidPublicId, match="it does not begin with 'ord_'"):
        format.number("izkpm55j334u")
    with pytest.raises(InvalidPublicId, match=r"^code: 'x' is not a public id"):
        format.number("x", field="code")


def test_ignored_case() -> None:
    """With ``ignore_case=True``, ids in either case lead back to their numbers; the option is shown, and compared."""
    format = CoprimeKey(Counter(41), step=STEP, prefix="ord", ignore_case=True)
    text = format.generate()

    assert (format.canonical(text.upper()), format.number(text.upper())) == (text, 41)
    assert (
        format == format.named() == pickle.loads(pickle.dumps(format)) != CoprimeKey("order", step=STEP, prefix="ord")
    )
    assert repr(format).endswith("prefix='ord', ignore_case=True)")
    assert not CoprimeKey("order", step=STEP, prefix="ord").is_valid(text.upper())


def test_accepting() -> None:
    """Older ids stay valid: of another step, of another format, and of the formats that an older format accepts."""
    older = CoprimeKey("old", step=CoprimeStep("abc", 4))
    format = CoprimeKey(Counter(), step=STEP, prefix="ord").accepting(NanoId(), older)

    formats, texts = (format, NanoId(prefix="x").accepting(format)), ("ord_m8yzrz", "izkpm55j334u", "abca", "abcd")
    assert [[*map(each.is_valid, texts)] for each in formats] == [[True, True, True, False]] * 2
    assert format.generate() == "ord_m8yzrz"


def test_other_orders_of_the_same_keys() -> None:
    """An older format with the same keys in another order is refused, unless its length or prefix differs."""
    old = CoprimeKey(Counter(), step=STEP, prefix="ord")

    with pytest.raises(ConfigurationError, match="keys of 6 characters in different orders"):
        CoprimeKey(Counter(), step=OTHER_STEP, prefix="ord").accepting(old)
    steps = (CoprimeStep(BASE36, 7), "ord"), (STEP, "ord"), (OTHER_STEP, "old")
    formats = [CoprimeKey(Counter(), step=step, prefix=prefix).accepting(old) for step, prefix in steps]
    assert [format.is_valid("ord_8hxzjy") for format in formats] == [True] * 3


SHORT, LONG = CoprimeStep("0123456789", 3), CoprimeStep("0123456789", 4)


def keyed(secret: bytes = SECRET[:16], tweak: bytes = b"") -> KeyedStep:
    return KeyedStep("0123456789", 6, secret, tweak)


REPEATED: dict[str, Callable[[], tuple[CoprimeKey, CoprimeKey]]] = {
    "another step": lambda: (CoprimeKey("o", step=CoprimeStep("0123456789", 3, step=7)), CoprimeKey("o", step=SHORT)),
    "another start": lambda: (CoprimeKey("o", step=CoprimeStep("0123456789", 3, start=0)), CoprimeKey("o", step=SHORT)),
    "another order of digits": lambda: (
        CoprimeKey("o", step=CoprimeStep("9876543210", 3)),
        CoprimeKey("o", step=SHORT),
    ),
    "some of the digits": lambda: (CoprimeKey("o", step=CoprimeStep("012", 3)), CoprimeKey("o", step=SHORT)),
    "another counter": lambda: (CoprimeKey("other", step=SHORT), CoprimeKey("o", step=SHORT)),
    "another secret": lambda: (CoprimeKey("o", step=keyed(SECRET[16:])), CoprimeKey("o", step=keyed())),
    "another tweak": lambda: (CoprimeKey("o", step=keyed(tweak=b"a")), CoprimeKey("o", step=keyed())),
    "another counter of a secret": lambda: (CoprimeKey("other", step=keyed()), CoprimeKey("o", step=keyed())),
    "a secret": lambda: (CoprimeKey("o", step=keyed()), CoprimeKey("o", step=CoprimeStep("0123456789", 6))),
    "a prefix like a key": lambda: (
        CoprimeKey("o", step=SHORT, prefix="a", separator="."),
        CoprimeKey("o", step=CoprimeStep("0123456789.a", 5)),
    ),
    "another case": lambda: (
        CoprimeKey("o", step=CoprimeStep("abc", 3), prefix="x", ignore_case=True),
        CoprimeKey("o", step=CoprimeStep("ABC", 3), prefix="X", ignore_case=True),
    ),
}
BETWEEN: dict[str, Callable[[CoprimeKey], Format]] = {
    "direct": lambda old: old,
    "through longer keys": lambda old: CoprimeKey("o", step=CoprimeStep("0123456789", 9)).accepting(old),
    "through another format": lambda old: NanoId(length=30).accepting("__world__", old),
    "through two": lambda old: NanoId(length=30).accepting(
        CoprimeKey("o", step=CoprimeStep("0123456789", 9)).accepting(NanoId(length=31).accepting(old))
    ),
}


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("case", REPEATED)
def test_ids_that_would_be_repeated(case: str, between: str) -> None:
    """A format that would issue old ids again is refused, however deep the old one is in the chain."""
    new, old = REPEATED[case]()
    older = BETWEEN[between](old)

    with pytest.raises(
        ConfigurationError, match=r"so new ids would repeat old ones; .*longer keys, or .*another prefix"
    ):
        new.accepting(older)
    with pytest.raises(ConfigurationError, match="would repeat old ones"):
        new.accepting(NanoId(length=32)).accepting(NanoId(length=33), older)


def test_another_counter_is_named() -> None:
    """The error for another counter names both, and the one to keep."""
    with pytest.raises(ConfigurationError, match=r"count them separately.*keep the name 'o' of the sequence"):
        CoprimeKey("other", step=SHORT).accepting(CoprimeKey("o", step=SHORT))


@pytest.mark.parametrize("between", BETWEEN)
def test_ids_that_are_not_repeated(between: str) -> None:
    """Longer keys, other prefixes and other letters are accepted, and so are the same keys of the same counter."""
    old = CoprimeKey("o", step=SHORT, prefix="ord")
    others = [
        CoprimeKey(Counter(name="o"), step=SHORT, prefix="ord"),
        CoprimeKey("o", step=SHORT, prefix="ord", ignore_case=True),
        CoprimeKey("other", step=LONG, prefix="ord"),
        CoprimeKey("other", step=SHORT, prefix="new"),
        CoprimeKey("other", step=SHORT, prefix="order"),
        CoprimeKey("other", step=CoprimeStep("abc", 3), prefix="ord"),
    ]
    for new in others:
        accepting = new.accepting(BETWEEN[between](old))
        assert accepting.is_valid("ord_382")
        assert accepting.named() == pickle.loads(pickle.dumps(accepting)) == accepting


def test_facts() -> None:
    """Counted ids have no budget, entropy or server default, and an example that uses no number."""
    counter = Counter()
    format = CoprimeKey(counter, step=STEP, prefix="ord")

    with pytest.raises(ConfigurationError, match=r"step\.remaining\(issued\) returns how many are left"):
        format.budget()
    assert not PostgreSQLDefaults(postgresql.dialect()).can_generate(format)
    assert format.example() == format.named().example()
    assert format.is_valid(format.example())
    assert counter.at == 0
    assert (format.entropy_bits, format.capacity, format.ordered) == (0.0, 36**6, False)


def test_typed_id() -> None:
    """A typed id with counted ids is generated and validated as with any format."""
    made = InvoiceId()

    assert type(made) is InvoiceId
    assert made == "cpinv_" + STEP.key(InvoiceId.id_format.number(made))
    assert TypedId.parse(str(made)) == made
    assert PublicIdType(InvoiceId).next_id() != made


def test_equal() -> None:
    """Formats are equal if the name of the sequence and the settings are equal."""
    format = CoprimeKey(Counter(), step=STEP, prefix="ord")
    twins = [
        CoprimeKey(Counter(5), step=STEP, prefix="ord"),
        CoprimeKey("order", step=STEP, prefix="ord"),
        format.named(),
    ]
    others = [
        CoprimeKey(Counter(name="other"), step=STEP, prefix="ord"),
        CoprimeKey(Counter(), step=CoprimeStep(BASE36, 7), prefix="ord"),
        CoprimeKey(Counter(), step=STEP),
        CoprimeKey(Counter(), step=STEP, prefix="ord", separator="-"),
        format.accepting(NanoId()),
    ]

    assert {format, *twins} == {format}
    assert len({format, *others}) == 6


def test_shown_and_pickled_by_name() -> None:
    """The evaluated ``repr`` and the pickle are equal, validate ids, and say why they generate none."""
    format = CoprimeKey(Counter(), step=STEP, prefix="ord").accepting(NanoId(), CoprimeKey(Counter(), step=STEP))
    names = {**vars(formats), "CoprimeKey": CoprimeKey, "CoprimeStep": CoprimeStep}

    twins = [eval(repr(format), names), pickle.loads(pickle.dumps(format)), format.named()]
    assert [(twin, twin.pattern, twin.allocator) for twin in twins] == [(format, format.pattern, "order")] * 3
    for twin in twins:
        with pytest.raises(ConfigurationError, match=r"'order' .* write CoprimeKey\(BlockAllocator\(engine, 'order'"):
            twin.generate()
    assert copy.deepcopy(format) is copy.copy(format) is format


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
    """Invalid settings raise when the format is declared."""
    with pytest.raises(ConfigurationError, match=message):
        CoprimeKey(arguments[0], **dict(zip(("step", "prefix"), arguments[1:], strict=False)))


# --- rows


@pytest.fixture
def allocator(engine: Engine, create: Callable[[MetaData], None]) -> Iterator[BlockAllocator]:
    """Yield an allocator of a new sequence, whose blocks are large enough to need one lease only."""
    with BlockAllocator(engine, "order", block=1000, start=0, timeout=20) as allocator:
        create(allocator.table.metadata)
        yield allocator


@pytest.fixture
def declare(create: Callable[[MetaData], None]) -> Callable[..., Any]:
    """Return a function that makes a model with these ids, and creates its table unless it exists."""

    def make(declared: Any, *, is_there: bool = False) -> Any:
        class Base(DeclarativeBase):
            metadata = MetaData()

        class Row(PublicIdMixin, Base):
            __tablename__ = "counted_row"
            __public_id__ = declared
            name: Mapped[str | None] = mapped_column(String(50))

        if not is_there:
            create(Base.metadata)
        return Row

    return make


def stored(session: Session, model: Any) -> list[str]:
    return list(session.scalars(select(model.public_id).order_by(model.id)))


@pytest.mark.backend
def test_every_way_to_write(allocator: BlockAllocator, declare: Callable[..., Any], session: Session) -> None:
    """Flush, bulk insert, Core and early ids use consecutive numbers."""
    model = declare(CoprimeKey(allocator, step=STEP, prefix="ord"))
    early = model(name="early")
    assert early.public_id == "ord_" + STEP.key(0)
    session.add_all([early, model(name="flushed"), model(name="flushed")])
    session.flush()
    many = [model(name="many") for _ in range(5)]
    bulk.insert(session, many)
    agree(session, many)
    session.execute(insert(model), [{"name": "core"}, {"name": "core"}])
    session.execute(insert(model).values(name="one"))
    session.execute(insert(model).values([{"name": "several"}, {"name": "several"}]))
    session.commit()

    assert sorted(stored(session, model)) == sorted("ord_" + key for key in STEP.keys(0, 13))
    assert lookup.get_one(session, model, "ord_" + STEP.key(0)).name == "early"
    assert lookup.get(session, model, "ord_" + STEP.key(13)) is None
    assert lookup.get(session, model, "ord_UPPER!") is None


@pytest.mark.backend
def test_rows_that_came_another_way(allocator: BlockAllocator, declare: Callable[..., Any], session: Session) -> None:
    """An id that already has a row is skipped like any collision, which the unique index detects."""
    model = declare(CoprimeKey(allocator, step=STEP))
    allocator.reserve(10)  # on SQLite, a lease is impossible after the first write of this transaction
    session.add_all([model(public_id=STEP.key(index), name="given") for index in (0, 1, 2, 5)])
    session.flush()
    session.add(model(name="made"))
    session.flush()
    session.add_all([model(name="made") for _ in range(3)])
    session.commit()
    made = session.scalars(select(model.public_id).where(model.name == "made"))

    assert sorted(map(STEP.index, made)) == [3, 4, 6, 7]


@pytest.mark.backend
def test_the_end_and_beyond(allocator: BlockAllocator, declare: Callable[..., Any], session: Session) -> None:
    """When the keys are used up, writing raises; a format with longer keys continues, and old rows are found."""
    short, long = CoprimeStep("abc", 2), CoprimeStep("abc", 3)
    # the model with the wider column creates the table
    after = declare(CoprimeKey(allocator, step=long, prefix="o").accepting(CoprimeKey("order", step=short, prefix="o")))
    before = declare(CoprimeKey(allocator, step=short, prefix="o"), is_there=True)
    session.execute(insert(before), [{"name": "short"}] * 9)
    session.commit()
    advice = "continue with keys of 3 characters, in a format that accepts these"
    with pytest.raises(KeySpaceExhausted, match=f"has 9 keys, so there is none with the index 9; {advice}"):
        session.execute(insert(before), [{"name": "none"}])
    session.rollback()
    session.add(before(name="none"))
    with pytest.raises(KeySpaceExhausted, match="none with the index 10"):
        session.flush()
    session.rollback()
    session.add_all([after(name="long") for _ in range(3)])
    session.commit()
    ids = stored(session, after)

    assert sorted(ids[:9]) == sorted("o_" + key for key in short.keys(0, 9))
    assert sorted(ids[9:]) == sorted("o_" + key for key in long.keys(11, 3))
    assert lookup.get_one(session, after, "o_" + short.key(4)).name == "short"
    assert lookup.get_one(session, after, ids[-1]).name == "long"
    assert lookup.get(session, before, ids[-1]) is None


def test_keyed_and_typed(allocator: BlockAllocator, declare: Callable[..., Any], session: Session) -> None:
    """A typed id with a keyed step has the keys of the secret, and is loaded with its type."""
    pytest.importorskip("ffx")
    format = CoprimeKey(allocator, step=KeyedStep(BASE36, 8, SECRET, b"order"))
    typed: Any = type("CountedId", (TypedId,), {}, prefix="cpord", format=format)
    model = declare(typed)
    session.add_all([model() for _ in range(4)])
    session.commit()
    session.expire_all()
    ids = [row.public_id for row in session.scalars(select(model))]

    assert sorted(ids) == sorted("cpord_" + key for key in format.step.keys(0, 4))
    assert {type(id) for id in ids} == {typed}
    assert format.entropy_bits == pytest.approx(8 * math.log2(36))
    assert repr(format.named()).endswith("length=8, tweak=b'order'))")


@pytest.mark.backend
def test_rows_that_were_there_before(allocator: BlockAllocator, new_people: Callable[..., People]) -> None:
    """A migration gives existing rows the next numbers, 2000 per batch; on SQLite they must be reserved."""
    format = CoprimeKey(allocator, step=STEP, prefix="ord")
    allocator.reserve(5_000)
    table = new_people(100, format=format, server_default="none")
    table.add()
    table.check_complete(rows=100)

    assert sorted(map(format.number, table.ids())) == list(range(100))


@ignore_fork_warning
def test_fork(allocator: BlockAllocator) -> None:
    """A forked child does not continue with its parent's numbers."""
    format = CoprimeKey(allocator, step=STEP)
    before = format.generate_many(10)
    of_child = in_child(lambda: [format.generate(), *format.generate_many(19)])
    after = format.generate_many(20)

    assert list(map(STEP.index, before + after)) == list(range(30))
    assert list(map(STEP.index, of_child)) == list(range(1000, 1020))
