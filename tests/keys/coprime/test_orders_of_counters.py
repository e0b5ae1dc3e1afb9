"""Programs that would turn the same numbers into ids in another order are refused at their first lease."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, select
from sqlalchemy.pool import NullPool
from support.marks import on
from support.rights import user_with

from sqlalchemy_public_id import ConfigurationError, audit
from sqlalchemy_public_id.formats import BASE36
from sqlalchemy_public_id.keys import BlockAllocator, CoprimeKey, CoprimeStep, KeyedStep

pytestmark = pytest.mark.backend

OTHERS: dict[str, tuple[Any, Any]] = {
    "step": (CoprimeStep(BASE36, 6), CoprimeStep(BASE36, 6, step=7)),
    "start": (CoprimeStep(BASE36, 6), CoprimeStep(BASE36, 6, start=1)),
    "alphabet": (CoprimeStep(BASE36, 6), CoprimeStep(BASE36[::-1], 6)),
    "fewer characters": (CoprimeStep(BASE36, 6), CoprimeStep(BASE36[:20], 6)),
    "secret": (KeyedStep(BASE36, 6, b"a" * 16), KeyedStep(BASE36, 6, b"b" * 16)),
    "tweak": (KeyedStep(BASE36, 6, b"a" * 16), KeyedStep(BASE36, 6, b"a" * 16, tweak=b"t")),
    "kind": (CoprimeStep(BASE36, 6), KeyedStep(BASE36, 6, b"a" * 16)),
}


@pytest.fixture
def start(engine: Engine) -> Iterator[Callable[..., CoprimeKey]]:
    """Return a function that declares a format as a program does that has just started."""
    table = BlockAllocator(engine, "order").table
    table.drop(engine, checkfirst=True)

    def start(step: Any, prefix: str | None = "ord", name: str = "order", bind: Engine | None = None) -> CoprimeKey:
        return CoprimeKey(BlockAllocator(bind or engine, name, block=10, create=True), step=step, prefix=prefix)

    yield start
    table.drop(engine, checkfirst=True)


def rows(engine: Engine) -> dict[str, int]:
    """Return the names in the table of counters, and their numbers."""
    with engine.connect() as connection:
        return {row.name: row.next for row in connection.execute(select(BlockAllocator(engine, "order").table))}


@pytest.mark.parametrize("setting", OTHERS)
def test_another_order(engine: Engine, start: Callable[..., CoprimeKey], setting: str) -> None:
    """The first id with another setting is refused, and takes no number; the error says what to restore."""
    first, second = OTHERS[setting]
    issued = start(first).generate_many(15)
    before = rows(engine)

    with pytest.raises(ConfigurationError) as caught:
        start(second).generate()

    assert str(caught.value).startswith(
        "other settings have made ids ord_****** of the numbers of 'order', so ids would be repeated: restore their "
        "step, start, alphabet or secret, or continue with longer keys, another prefix or another sequence; if no id "
        "was made with them, delete the row ' order: ids ord_****** "
    )
    assert rows(engine) == before
    assert not {*issued} & {*start(first).generate_many(15)}


def test_settings_that_repeat_no_id(engine: Engine, start: Callable[..., CoprimeKey]) -> None:
    """Longer keys, another prefix and another sequence have orders of their own."""
    six, other = CoprimeStep(BASE36, 6), CoprimeStep(BASE36, 6, step=7)
    start(six).generate()
    formats = [start(CoprimeStep(BASE36, 7)), start(other, prefix="inv"), start(other, name="invoice")]

    assert [len(format.generate()) for format in formats] == [11, 10, 10]
    assert sum(name.startswith(" ") for name in rows(engine)) == 4
    longest = start(six, prefix="p" * 30, name="n" * 100)
    assert longest.generate()
    assert start(six, prefix="p" * 30, name="n" * 100).generate()
    with pytest.raises(ConfigurationError, match=r"delete the row ' [0-9a-f]{32} "):
        start(other, prefix="p" * 30, name="n" * 100).generate()


def test_a_counter_from_before(engine: Engine, start: Callable[..., CoprimeKey]) -> None:
    """A counter without an order gets that of the first program, and goes on."""
    with BlockAllocator(engine, "order", block=10, create=True) as allocator:
        assert allocator.next() == 1
    assert start(CoprimeStep(BASE36, 6)).allocator.take(1) == [range(11, 12)]

    with pytest.raises(ConfigurationError, match="other settings"):
        start(CoprimeStep(BASE36, 6, step=7)).generate()


def test_numbers_in_memory(engine: Engine, start: Callable[..., CoprimeKey], statements: list[str]) -> None:
    """reserve() compares the order, so that no id needs a statement afterwards; later leases do not compare again."""
    format = start(CoprimeStep(BASE36, 6))
    format.allocator.reserve(10)
    statements.clear()

    assert len(format.generate_many(10)) == 10
    assert statements == []
    format.generate()
    assert not [each for each in statements if each.startswith("INSERT") or "BETWEEN" in each]


def test_one_program(engine: Engine) -> None:
    """Two formats of one program with one allocator and different orders are refused when the second is declared."""
    orders = BlockAllocator(engine, "order")
    CoprimeKey(orders, step=CoprimeStep(BASE36, 6), prefix="ord")
    CoprimeKey(orders, step=CoprimeStep(BASE36, 6), prefix="ord")

    with pytest.raises(ConfigurationError, match=r"^two formats count ids ord_\*{6} with 'order' in different orders"):
        CoprimeKey(orders, step=CoprimeStep(BASE36, 6, step=7), prefix="ord")


def test_programs_that_start_together(engine: Engine, start: Callable[..., CoprimeKey]) -> None:
    """Of programs with several orders that start at once, those with one order go on."""
    BlockAllocator(engine, "order", create=True).next()
    formats = [start(CoprimeStep(BASE36, 6, step=step)) for step in (5, 7, 11, 5, 7, 11)]
    barrier, went_on = threading.Barrier(len(formats)), set[int]()

    def run(format: CoprimeKey) -> None:
        barrier.wait()
        try:
            format.generate()
        except ConfigurationError:
            return
        went_on.add(format.step.step)  # type: ignore[attr-defined]

    threads = [threading.Thread(target=run, args=(format,)) for format in formats]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(went_on) == 1


@on("postgresql", "mysql", "mariadb")
def test_a_role_that_adds_no_rows(
    engine: Engine, start: Callable[..., CoprimeKey], caplog: pytest.LogCaptureFixture
) -> None:
    """A role that may only move the counter generates ids, and compares them with an order that is there.

    Where no order is there yet, a warning says that nobody compares.
    """
    start(CoprimeStep(BASE36, 6)).generate()
    with user_with(engine, "SELECT, UPDATE", "public_id_block") as url:
        limited = create_engine(url, poolclass=NullPool)
        assert start(CoprimeStep(BASE36, 7), bind=limited).generate()
        assert "this role may not add rows to public_id_block; grant it INSERT there" in caplog.text
        with pytest.raises(ConfigurationError, match="other settings"):
            start(CoprimeStep(BASE36, 6, step=7), bind=limited).generate()


def test_audit(engine: Engine, start: Callable[..., CoprimeKey]) -> None:
    """The rows of orders are no counters, so the audit does not list them."""
    start(CoprimeStep(BASE36, 6)).generate()

    (finding,) = audit.run(engine, tables=["public_id_block"]).findings

    assert finding.facts == {"counters": ["order"]}
