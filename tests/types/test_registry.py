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
from sqlalchemy_public_id.registry import Prefixes, _Claim, model_of, models, models_of, remember_model


def owner(name: str) -> type[Any]:
    """A new class of this name."""
    return type(name, (), {})


class Scope:
    """What a declarative base's registry is to the models."""


@pytest.fixture
def prefixes() -> Prefixes:
    return Prefixes()


def test_owner_of(prefixes: Prefixes) -> None:
    """A text leads to the owner of its prefix."""
    customer, order = owner("Customer"), owner("Order")
    prefixes.claim(customer, NanoId(prefix="cus"))
    prefixes.claim(order, NanoId(prefix="ord", separator="."))

    assert prefixes.owner_of("cus_000000000000") is customer
    assert prefixes.owner_of("ord.000000000000") is order


def test_split_at_the_last_separator(prefixes: Prefixes) -> None:
    """Of two prefixes that begin alike, the text tells which by its last separator."""
    line, item = owner("Line"), owner("Item")
    prefixes.claim(line, NanoId(prefix="line"))
    prefixes.claim(item, NanoId(prefix="line_item"))

    assert prefixes.owner_of("line_item_000000000000") is item
    assert prefixes.owner_of("line_000000000000") is line


@pytest.mark.parametrize(
    "text",
    ["cus_00000", "cus.000000000000", "CUS_000000000000", "_000000000000", "", "\ud800", "c" * 10**7, None, 5, b"cus_"],
)
def test_owner_of_anything_else(prefixes: Prefixes, text: object) -> None:
    """A text that no format accepts leads nowhere, and neither does any other object."""
    holder = owner("Customer")
    prefixes.claim(holder, NanoId(prefix="cus"))

    assert prefixes.owner_of(text) is None


def test_no_prefixes(prefixes: Prefixes) -> None:
    """Formats without a prefix reserve nothing, and their ids lead nowhere."""
    first, second = owner("First"), owner("Second")
    prefixes.claim(first, NanoId())
    prefixes.claim(second, NanoId())

    assert prefixes.owner_of("000000000000") is None


def test_older_prefixes(prefixes: Prefixes) -> None:
    """Prefixes that a format still accepts belong to its owner too."""
    holder, newcomer = owner("Customer"), owner("Newcomer")
    prefixes.claim(holder, NanoId(prefix="cus").accepting(NanoId(prefix="client", length=5)))

    assert prefixes.owner_of("client_00000") is holder
    with pytest.raises(DuplicatePrefix, match=r"'client' of .*Newcomer belongs to .*Customer"):
        prefixes.claim(newcomer, NanoId(prefix="client"))


def test_one_separator_tells_prefixes_apart(prefixes: Prefixes) -> None:
    """Prefixes with the same separator are told apart by its last occurrence, whether they have one owner or two."""
    short, long = NanoId(prefix="a", separator="__"), NanoId(prefix="a_", separator="__")
    first, second = owner("First"), owner("Second")
    prefixes.claim(first, short)
    prefixes.claim(second, long)

    assert [prefixes.owner_of(format.generate()) for format in (short, long)] == [first, second]
    Prefixes().claim(first, short, long)


def test_older_separators(prefixes: Prefixes) -> None:
    """One prefix with two separators, the new one and the old one: both lead to the owner."""
    holder = owner("Customer")
    prefixes.claim(holder, NanoId(prefix="cus", separator=".").accepting(NanoId(prefix="cus", separator="_")))

    assert prefixes.owner_of("cus.000000000000") is holder
    assert prefixes.owner_of("cus_000000000000") is holder


@pytest.mark.parametrize(
    ("held", "wanted", "why"),
    [
        (NanoId(prefix="cus"), NanoId(prefix="cus"), r"'cus' of .*Newcomer belongs to .*Holder"),
        (NanoId(prefix="cus"), NanoId(5, prefix="cus"), "belongs to"),
        (NanoId(prefix="cus"), NanoId(prefix="cus", separator="."), "belongs to"),
        (NanoId(prefix="cus"), NanoId(prefix="CUS"), "differs only in case from 'cus' of"),
        (NanoId(prefix="a_b", separator="."), NanoId(prefix="a"), "cannot be told from 'a_b' of"),
        (NanoId(prefix="a"), NanoId(prefix="a_b", separator="."), "cannot be told from 'a' of"),
    ],
)
def test_confusion(prefixes: Prefixes, held: Format, wanted: Format, why: str) -> None:
    """A prefix that is taken, or could be taken for another, is refused; the error names both owners."""
    holder, newcomer = owner("Holder"), owner("Newcomer")
    prefixes.claim(holder, held)
    with pytest.raises(DuplicatePrefix, match=why) as raised:
        prefixes.claim(newcomer, wanted)

    assert raised.value.prefix == wanted.prefix
    assert (raised.value.holder, raised.value.newcomer) == (f"{__name__}.Holder", f"{__name__}.Newcomer")


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        (NanoId(prefix="a"), NanoId(prefix="b")),
        (NanoId(prefix="a"), NanoId(prefix="ab")),
        (NanoId(prefix="a"), NanoId(prefix="a_b")),
        (NanoId(prefix="a_b"), NanoId(prefix="a")),
        (NanoId(prefix="a", separator="."), NanoId(prefix="ab")),
    ],
)
def test_no_confusion(prefixes: Prefixes, held: Format, wanted: Format) -> None:
    """Prefixes that can be told apart live beside each other."""
    holder, newcomer = owner("Holder"), owner("Newcomer")
    prefixes.claim(holder, held)
    prefixes.claim(newcomer, wanted)

    assert prefixes.owner_of(held.generate()) is holder
    assert prefixes.owner_of(wanted.generate()) is newcomer


def test_all_or_nothing(prefixes: Prefixes) -> None:
    """An owner that is refused one prefix gets none."""
    holder, greedy, third = owner("Holder"), owner("Greedy"), owner("Third")
    prefixes.claim(holder, NanoId(prefix="taken"))
    with pytest.raises(DuplicatePrefix):
        prefixes.claim(greedy, NanoId(prefix="free"), NanoId(prefix="taken"))
    prefixes.claim(third, NanoId(prefix="free"))

    assert prefixes.owner_of("free_000000000000") is third
    assert prefixes.owner_of("taken_000000000000") is holder


def test_declared_again(prefixes: Prefixes) -> None:
    """An owner that is declared again in the same place replaces its predecessor, and frees what it no longer wants."""
    first, second, third = owner("Model"), owner("Model"), owner("Third")
    prefixes.claim(first, NanoId(prefix="old"), NanoId(prefix="kept"))
    prefixes.claim(second, NanoId(prefix="new"), NanoId(prefix="kept"))
    prefixes.claim(third, NanoId(prefix="old"))

    owners = [prefixes.owner_of(f"{prefix}_000000000000") for prefix in ("new", "kept", "old")]
    assert owners == [second, second, third]


@classes_die
def test_dead_owner(prefixes: Prefixes) -> None:
    """Being registered keeps nobody alive, and all prefixes of a dead owner are free."""
    mortal, heir, other = owner("Mortal"), owner("Heir"), owner("Other")
    prefixes.claim(mortal, NanoId(prefix="cus"), NanoId(prefix="old"))
    gone = weakref.ref(mortal)
    del mortal
    gc.collect()
    prefixes.claim(heir, NanoId(prefix="cus"))
    prefixes.claim(other, NanoId(prefix="old"))

    assert gone() is None
    assert prefixes.owner_of("cus_000000000000") is heir
    assert prefixes.owner_of("old_000000000000") is other


def test_owner_that_is_not_freed_yet(prefixes: Prefixes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class that was deleted holds its prefix until Python frees it; the registry never runs the collector."""
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


def test_few_comparisons(prefixes: Prefixes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prefix is compared with those that look like it, not with all others."""
    compared: list[Any] = []
    compare = _Claim.confusion_with
    monkeypatch.setattr(_Claim, "confusion_with", lambda *pair: compared.append(pair) or compare(*pair))
    owners = [owner(f"Owner{number}") for number in range(100)]
    for number, each in enumerate(owners):
        prefixes.claim(each, NanoId(prefix=f"p{number}"))

    assert compared == []


@classes_die
def test_text_of_a_dead_owner(prefixes: Prefixes) -> None:
    """The ids of a dead owner lead nowhere."""
    prefixes.claim(owner("Mortal"), NanoId(prefix="cus"))
    gc.collect()

    assert prefixes.owner_of("cus_000000000000") is None


class Leisurely(str):
    """A prefix that lets other threads run while its claim is looked up."""

    def lower(self) -> str:
        time.sleep(0.002)
        return super().lower()


def test_many_threads_claim_one_prefix(prefixes: Prefixes) -> None:
    """Of threads that claim a prefix at the same time, one gets it and all others are refused."""
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


# --- models


def test_scopes() -> None:
    """Two declarative bases are two applications: both may have a prefix, and a text leads to both models."""
    scopes, classes = [Scope(), Scope()], [owner("Here"), owner("There")]
    for scope, model in zip(scopes, classes, strict=True):
        models(scope).claim(model, NanoId(prefix="scoped"))

    assert [models(scope).owner_of("scoped_000000000000") for scope in scopes] == classes
    assert list(models_of("scoped_000000000000")) == classes


@pytest.mark.parametrize("text", ["nobody_000000000000", "", None, 5])
def test_models_of_anything_else(text: object) -> None:
    """A text that no model's format accepts leads to none."""
    assert list(models_of(text)) == []


def test_one_namespace_a_scope() -> None:
    """A scope keeps its namespace as long as it lives, and is not kept alive by it."""
    scope = Scope()
    assert models(scope) is models(scope)

    gone = weakref.ref(scope)
    del scope
    gc.collect()
    assert gone() is None


def test_model_of() -> None:
    """The model is known by table and column."""
    table, first, second = Scope(), owner("First"), owner("Second")
    remember_model(table, "public_id", first)
    remember_model(table, "slug", second)

    assert [model_of(table, name) for name in ("public_id", "slug", "other")] == [first, second, None]
    assert model_of(Scope(), "public_id") is None


@classes_die
def test_dead_model() -> None:
    """A model that is gone is not known any more."""
    table = Scope()
    remember_model(table, "public_id", owner("Mortal"))
    gc.collect()

    assert model_of(table, "public_id") is None
