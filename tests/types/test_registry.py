"""The registry of prefixes and models."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from typing import Any

import pytest
from support.marks import classes_die

from sqlalchemy_public_id import Format, NanoId
from sqlalchemy_public_id.errors import DuplicatePrefix
from sqlalchemy_public_id.registry import Prefixes, _Claim, model_of, models, remember_model


def owner(name: str) -> type[Any]:
    """Return a new class called *name*."""
    return type(name, (), {})


class Scope:
    """A stand-in for the registry of a declarative base."""


@pytest.fixture
def prefixes() -> Prefixes:
    return Prefixes()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (NanoId(prefix="cus"), NanoId(prefix="ord", separator=".")),
        (NanoId(prefix="a"), NanoId(prefix="ab")),
        (NanoId(prefix="line"), NanoId(prefix="line_item")),
        (NanoId(prefix="a", separator="."), NanoId(prefix="ab")),
        (NanoId(prefix="a"), NanoId(prefix="a_b_c", separator=".")),
        (NanoId(prefix="a", separator="__"), NanoId(prefix="a_", separator="__")),
    ],
)
@pytest.mark.parametrize("is_swapped", [False, True], ids=["", "swapped"])
def test_prefixes_that_are_told_apart(one: Format, other: Format, is_swapped: bool) -> None:
    """A text belongs to the owner of its prefix, which ends at the last separator, even if prefixes overlap."""
    first, second = (other, one) if is_swapped else (one, other)
    prefixes, holder, newcomer = Prefixes(), owner("Holder"), owner("Newcomer")
    prefixes.claim(holder, first)
    prefixes.claim(newcomer, second)

    assert prefixes.owner_of(first.generate()) is holder
    assert prefixes.owner_of(second.generate()) is newcomer
    Prefixes().claim(holder, first, second)


@pytest.mark.parametrize("prefix", ["cus", "Cus"])
def test_prefixes_in_another_case(prefixes: Prefixes, prefix: str) -> None:
    """A text belongs to the owner of its prefix in either case if the format ignores case, and to nobody otherwise."""
    holder, exact = owner("Customer"), owner("Order")
    prefixes.claim(holder, NanoId(prefix=prefix, ignore_case=True))
    prefixes.claim(exact, NanoId(prefix="ord"))

    for text in ("cus_izkpm55j334u", "CUS_IZKPM55J334U", "Cus_Izkpm55j334u"):
        assert prefixes.owner_of(text) is holder
    assert prefixes.owner_of("cus.izkpm55j334u") is prefixes.owner_of("ORD_izkpm55j334u") is None


def test_older_prefixes(prefixes: Prefixes) -> None:
    """Older prefixes and separators that a format accepts belong to its owner, too."""
    holder, newcomer = owner("Customer"), owner("Newcomer")
    older = NanoId(prefix="client", length=5), NanoId(prefix="cus", separator="_")
    prefixes.claim(holder, NanoId(prefix="cus", separator=".").accepting(*older))

    texts = "cus.000000000000", "cus_000000000000", "client_00000"
    assert [*map(prefixes.owner_of, texts)] == [holder] * 3
    with pytest.raises(DuplicatePrefix, match=r"'client' of .*Newcomer belongs to .*Customer"):
        prefixes.claim(newcomer, NanoId(prefix="client"))


@pytest.mark.parametrize(
    ("held", "wanted", "why"),
    [
        (NanoId(prefix="cus"), NanoId(5, prefix="cus"), r"'cus' of .*Newcomer belongs to .*Holder"),
        (NanoId(prefix="cus"), NanoId(prefix="cus", separator="."), "belongs to"),
        (NanoId(prefix="cus"), NanoId(prefix="CUS"), "differs only in case from 'cus' of"),
        (NanoId(prefix="a_b", separator="."), NanoId(prefix="a"), "cannot be told from 'a_b' of"),
        (NanoId(prefix="a"), NanoId(prefix="a_b", separator="."), "cannot be told from 'a' of"),
    ],
)
def test_confusion(prefixes: Prefixes, held: Format, wanted: Format, why: str) -> None:
    """A prefix that is taken or easily confused with another is refused, and the error names both owners."""
    holder, newcomer = owner("Holder"), owner("Newcomer")
    prefixes.claim(holder, held)
    with pytest.raises(DuplicatePrefix, match=why) as raised:
        prefixes.claim(newcomer, wanted)
    with pytest.raises(DuplicatePrefix, match="another public id of"):
        Prefixes().claim(holder, held, wanted)

    assert raised.value.prefix == wanted.prefix
    assert (raised.value.holder, raised.value.newcomer) == (f"{__name__}.Holder", f"{__name__}.Newcomer")


def test_all_or_nothing(prefixes: Prefixes) -> None:
    """If one prefix of an owner is refused, it gets none of its prefixes."""
    holder, greedy, third = owner("Holder"), owner("Greedy"), owner("Third")
    prefixes.claim(holder, NanoId(prefix="taken"))
    with pytest.raises(DuplicatePrefix):
        prefixes.claim(greedy, NanoId(prefix="free"), NanoId(prefix="taken"))
    prefixes.claim(third, NanoId(prefix="free"))

    assert prefixes.owner_of("free_000000000000") is third
    assert prefixes.owner_of("taken_000000000000") is holder


def test_declared_again(prefixes: Prefixes) -> None:
    """An owner that is declared again under its name replaces its predecessor and releases unused prefixes."""
    first, second, third = owner("Model"), owner("Model"), owner("Third")
    prefixes.claim(first, NanoId(prefix="old"), NanoId(prefix="kept"))
    prefixes.claim(second, NanoId(prefix="new"), NanoId(prefix="kept"))
    prefixes.claim(third, NanoId(prefix="old"))

    owners = [prefixes.owner_of(f"{prefix}_000000000000") for prefix in ("new", "kept", "old")]
    assert owners == [second, second, third]


@classes_die
def test_dead_owner(prefixes: Prefixes) -> None:
    """The registry does not keep owners alive; the prefixes of a deleted owner are free."""
    mortal, heir, other = owner("Mortal"), owner("Heir"), owner("Other")
    prefixes.claim(mortal, NanoId(prefix="cus"), NanoId(prefix="old"))
    gone = weakref.ref(mortal)
    del mortal
    gc.collect()

    assert gone() is None
    assert prefixes.owner_of("cus_000000000000") is prefixes.format_of("cus_000000000000") is None
    prefixes.claim(heir, NanoId(prefix="cus"))
    prefixes.claim(other, NanoId(prefix="old"))
    assert prefixes.owner_of("cus_000000000000") is heir
    assert prefixes.owner_of("old_000000000000") is other


def test_owner_that_is_not_freed_yet(prefixes: Prefixes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deleted class holds its prefix until Python frees it; the registry never runs the garbage collector."""
    monkeypatch.setattr(gc, "collect", lambda *args: pytest.fail("the collector runs"))
    mortal, heir = owner("Mortal"), owner("Heir")
    prefixes.claim(mortal, NanoId(prefix="cus"))
    gone = weakref.ref(mortal)
    gc.disable()
    try:
        del mortal
        with pytest.raises(DuplicatePrefix, match="Mortal"):
            prefixes.claim(heir, NanoId(prefix="cus"))
        assert gone() is not None
    finally:
        gc.enable()


def test_finalizer_that_declares(prefixes: Prefixes) -> None:
    """A finalizer that runs while a prefix is claimed may claim another one."""

    class Finalized(str):
        def lower(self) -> str:
            prefixes.claim(late, NanoId(prefix="late"))
            return super().lower()

    late, holder = owner("Late"), owner("Holder")
    prefixes.claim(holder, NanoId(prefix=Finalized("cus")))

    assert prefixes.owner_of("late_000000000000") is late
    assert prefixes.owner_of("cus_000000000000") is holder


class Leisurely(str):
    """A prefix whose claim lets other threads run."""

    def lower(self) -> str:
        time.sleep(0.002)
        return super().lower()


def test_many_threads_claim_one_prefix(prefixes: Prefixes) -> None:
    """If several threads claim a prefix at the same time, one gets it and the others are refused."""
    owners = [owner(f"Owner{number}") for number in range(8)]
    together = threading.Barrier(len(owners))
    refused: list[type[Any]] = []

    def claim(newcomer: type[Any]) -> None:
        together.wait()
        try:
            prefixes.claim(newcomer, NanoId(prefix=Leisurely("cus")))
        except DuplicatePrefix:
            refused.append(newcomer)

    threads = [threading.Thread(target=claim, args=(newcomer,)) for newcomer in owners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(refused) == len(owners) - 1
    assert {prefixes.owner_of("cus_000000000000")} == set(owners) - set(refused)


def test_one_namespace_a_scope() -> None:
    """A scope has one namespace, which does not keep the scope alive."""
    scope = Scope()
    assert models(scope) is models(scope)

    gone = weakref.ref(scope)
    del scope
    gc.collect()
    assert gone() is None


@classes_die
def test_model_of() -> None:
    """A model is found by table and column as long as it is alive."""
    table, first = Scope(), owner("First")
    remember_model(table, "public_id", first)
    remember_model(table, "slug", owner("Mortal"))
    gc.collect()

    assert [model_of(table, name) for name in ("public_id", "slug", "other")] == [first, None, None]
    assert model_of(Scope(), "public_id") is None


def test_few_comparisons(prefixes: Prefixes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prefix is compared only with similar ones, not with all others."""
    compared: list[Any] = []
    compare = _Claim.confusion_with
    monkeypatch.setattr(_Claim, "confusion_with", lambda *pair: compared.append(pair) or compare(*pair))
    owners = [owner(f"Owner{number}") for number in range(100)]
    for number, each in enumerate(owners):
        prefixes.claim(each, NanoId(prefix=f"p{number}"))

    assert compared == []
