"""One prefix, one model: duplicates raise when mappers are configured, and ``lookup.resolve`` finds the model."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import ForeignKey, MetaData, String, text
from sqlalchemy.exc import InvalidRequestError, SAWarning
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, configure_mappers, mapped_column, relationship
from support.marks import on

from sqlalchemy_public_id import NanoId, PublicIdMixin, TypedId, lookup, public_id_column
from sqlalchemy_public_id.errors import DuplicatePrefix

pytestmark = pytest.mark.backend


class Base(DeclarativeBase):
    metadata = MetaData()


class GuestId(TypedId, prefix="pxguest", aliases=("pxvisitor",)): ...


class SharedId(TypedId, prefix="pxshared", aliases=("pxformer",)): ...


class Guest(PublicIdMixin[GuestId], Base):
    __tablename__ = "guest"
    name: Mapped[str | None] = mapped_column(String(50))


class Vehicle(PublicIdMixin, Base):
    __tablename__ = "vehicle"
    __public_id__ = NanoId(prefix="pxcar").accepting(NanoId(length=6, prefix="pxauto"))
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "vehicle"}  # noqa: RUF012
    kind: Mapped[str] = mapped_column(String(10))


class Car(Vehicle):
    """A model with single table inheritance."""

    __mapper_args__ = {"polymorphic_identity": "car"}  # noqa: RUF012


class Tram(Vehicle):
    """A model with joined table inheritance and a second public id."""

    __tablename__ = "tram"
    __mapper_args__ = {"polymorphic_identity": "tram"}  # noqa: RUF012
    id: Mapped[int] = mapped_column(ForeignKey(Vehicle.id), primary_key=True)
    line: Mapped[str] = public_id_column(NanoId(length=5, prefix="pxline"))


class Plain(PublicIdMixin, Base):
    """A model whose ids have no prefix."""

    __tablename__ = "plain"


@pytest.fixture
def new_base() -> Iterator[Callable[[], Any]]:
    """Yield a function that returns declarative bases, whose models are disposed of after the test."""
    made: list[Any] = []

    def make() -> Any:
        made.append(type("Base", (DeclarativeBase,), {}))
        return made[-1]

    yield make
    for base in made:
        base.registry.dispose()


def declare(base: Any, name: str, declared: Any) -> Any:
    """Return a model of *base* with ids of the format *declared*; it lives as long as the base."""
    model = type(name, (PublicIdMixin, base), {"__tablename__": name.lower(), "__public_id__": declared})
    base.kept = [*getattr(base, "kept", ()), model]
    return model


# --- duplicates


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (NanoId(prefix="pxa"), NanoId(prefix="pxa")),
        (NanoId(prefix="pxa"), NanoId(prefix="pxb").accepting(NanoId(prefix="pxa"))),
        (SharedId, SharedId),
        (SharedId, NanoId(prefix="pxformer")),
    ],
    ids=repr,
)
def test_two_models_of_one_base(new_base: Callable[[], Any], first: Any, second: Any) -> None:
    """If two models have the same prefix, or prefixes that are easily confused, the error names both."""
    base = new_base()
    declare(base, "First", first)
    declare(base, "Second", second)
    with pytest.raises(DuplicatePrefix) as caught:
        configure_mappers()

    assert {caught.value.holder, caught.value.newcomer} == {f"{__name__}.First", f"{__name__}.Second"}
    assert caught.value.prefix in {"pxa", "pxshared", "pxformer"}


def test_no_duplicates(new_base: Callable[[], Any]) -> None:
    """Different bases may share prefixes, and several models of one base may have no prefix."""
    for base in (new_base(), new_base()):
        for name, declared in (("First", NanoId(prefix="pxa")), ("Second", NanoId()), ("Third", NanoId())):
            declare(base, name, declared)

    configure_mappers()


# --- reloading


MODELS = """
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy_public_id import NanoId, PublicIdMixin, TypedId
{base}
class LampId(TypedId, prefix="pxlamp"): ...

class Lamp(PublicIdMixin[LampId], Base):
    __tablename__ = "lamp"
    __table_args__ = {{"extend_existing": True}}

class Bulb(PublicIdMixin, Base):
    __tablename__ = "bulb"
    __table_args__ = {{"extend_existing": True}}
    __public_id__ = NanoId(prefix="pxbulb")
"""
BASES = {
    "with its base": "class Base(DeclarativeBase): ...",
    "without its base": "from public_id_reloaded_base import Base",
}


@on("sqlite")
@pytest.mark.parametrize("case", BASES)
def test_reload(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    create: Callable[[MetaData], None],
    session: Session,
    case: str,
) -> None:
    """If a module of models is reloaded while its old classes are in use, ids resolve to the new classes."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "public_id_reloaded_base.py").write_text(f"{MODELS.splitlines()[1]}\nclass Base(DeclarativeBase): ...")
    (tmp_path / "public_id_reloaded.py").write_text(MODELS.format(base=BASES[case]))
    models = importlib.import_module("public_id_reloaded")
    old = models.Base, models.Lamp, models.Bulb
    create(models.Base.metadata)
    objects = [models.Lamp(), models.Bulb()]
    session.add_all(objects)
    session.flush()
    ids = [each.public_id for each in objects]
    session.expunge_all()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SAWarning)  # SQLAlchemy warns of two classes with the same name
            importlib.reload(models)
        found = [lookup.resolve(session, public_id) for public_id in ids]

        assert models.Lamp is not old[1]
        assert [type(each) for each in found] == [models.Lamp, models.Bulb]
        assert type(models.LampId.parse(ids[0])) is models.LampId
    finally:
        old[0].registry.dispose()
        models.Base.registry.dispose()
        del sys.modules["public_id_reloaded"]
        sys.modules.pop("public_id_reloaded_base", None)


@on("sqlite")
@pytest.mark.parametrize("search", ["the prefix alone", "the base", "the model"])
def test_cell_that_runs_again(create: Callable[[MetaData], None], session: Session, search: str) -> None:
    """If a notebook declares its models again before it has used them, ids resolve to the last classes."""
    cells: list[dict[str, Any]] = []
    cell = MODELS.format(base=BASES["with its base"]).replace('prefix="px', 'prefix="pxcell')
    for _ in range(2):
        cells.append({"__name__": "notebook"})
        exec(compile(cell, "<cell>", "exec"), cells[-1])
    last = cells[-1]
    for names in reversed(cells):  # SQLAlchemy configures the bases in the order of a set, so in any order
        names["Base"].registry.configure()
    create(last["Base"].metadata)
    objects = [last["Lamp"](), last["Bulb"]()]
    session.add_all(objects)
    session.flush()
    ways: dict[str, dict[str, Any]] = {
        "the prefix alone": {},
        "the base": {"base": last["Base"]},
        "the model": {"models": [last["Lamp"], last["Bulb"]]},
    }
    try:
        assert [lookup.resolve(session, each.public_id, **ways[search]) for each in objects] == objects
    finally:
        for names in cells:
            names["Base"].registry.dispose()


# --- resolve


GUEST, TRAMS, CARS = "pxguest_000000000000", "pxcar_000000000001", "pxauto_000000"


@pytest.fixture
def db(create: Callable[[MetaData], None], session: Session) -> Session:
    """Return a session with a begun transaction, on a database with one row of each model."""
    create(Base.metadata)
    session.add_all([Guest(public_id=GUEST), Car(public_id=CARS), Tram(public_id=TRAMS, line="pxline_00000")])
    session.commit()
    session.connection()
    return session


def test_resolve(db: Session, statements: list[str]) -> None:
    """One statement finds the row by the prefix, as an object of its subclass."""
    found = [lookup.resolve(db, each) for each in (GUEST, CARS, TRAMS, "pxline_00000", "pxguest_zzzzzzzzzzzz")]

    assert [type(each) for each in found] == [Guest, Car, Tram, Tram, type(None)]
    assert len(statements) == 5


@pytest.mark.filterwarnings("ignore::sqlalchemy_public_id.errors.PublicIdWarning")
def test_resolve_what_no_model_has(db: Session, statements: list[str]) -> None:
    """An id whose prefix no model has, or without a prefix, gives ``None`` without a statement."""
    plain = Plain()
    impossible: list[Any] = [
        *("pxnobody_000000000000", plain.public_id, "", "_", "pxguest_", "pxguest", f"{GUEST} ", GUEST.upper()),
        *("pxguest_00000000000\0", "pxguest_00000000000\ud800", "pxcar_00000\u00e9", "pxcar_" * 10**6, "_" * 10**7),
        *(1, True, None, GUEST.encode(), [GUEST], Guest),
    ]
    assert [value for value in impossible if lookup.resolve(db, value) is not None] == []
    assert not statements


@pytest.mark.filterwarnings("ignore::sqlalchemy_public_id.errors.PublicIdWarning")
def test_resolve_many(db: Session, statements: list[str]) -> None:
    """Ids of several models are found in the order of the ids, with one statement for each public id."""
    impossible: list[Any] = ["", "000000000000", "pxnobody_000000000000", "pxguest_zzzzzzzzzzzz", None, 1]

    found = lookup.resolve_many(db, [TRAMS, *impossible, GUEST, "pxline_00000", CARS, GUEST])

    assert [(text, type(row)) for text, row in found.items()] == [
        (TRAMS, Tram),
        (GUEST, Guest),
        ("pxline_00000", Tram),
        (CARS, Car),
    ]
    assert len(statements) == 3  # Guest; Vehicle, for two ids; the second public id of Tram
    assert lookup.resolve_many(db, []) == lookup.resolve_many(db, ["no id", None]) == {}
    assert len(statements) == 3
    with pytest.raises(TypeError, match=r"write \[public_id\], or use lookup.resolve\(\)"):
        lookup.resolve_many(db, GUEST)


def test_resolve_many_with_a_condition(db: Session) -> None:
    """The ``where`` function is called for each model."""

    def is_seen(model: Any) -> Any:
        return model.id < 0 if model is Guest else model.id > 0

    assert [*lookup.resolve_many(db, [GUEST, CARS], where=is_seen)] == [CARS]


@on("sqlite")
def test_resolve_before_anything_else(
    new_base: Callable[[], Any], create: Callable[[MetaData], None], session: Session
) -> None:
    """``resolve`` configures the mappers, so a program may call it before any query."""
    model = declare(new_base(), "First", NanoId(prefix="pxfirst"))
    create(model.metadata)
    session.execute(text("INSERT INTO first (public_id) VALUES ('pxfirst_000000000000')"))

    assert type(lookup.resolve(session, "pxfirst_000000000000")) is model


@on("sqlite")
def test_resolve_beside_a_base_that_cannot_be_mapped(db: Session, new_base: Callable[[], Any]) -> None:
    """A base whose mappers cannot be configured does not affect ids of mapped models."""
    other = new_base()

    class Broken(other):
        __tablename__ = "px_broken"
        id: Mapped[int] = mapped_column(primary_key=True)
        missing: Mapped[Any] = relationship("Missing")

    try:
        with pytest.raises(InvalidRequestError, match="Missing"):
            configure_mappers()
        assert type(lookup.resolve(db, GUEST)) is Guest
        with pytest.raises(InvalidRequestError, match="Missing"):
            lookup.resolve(db, "pxnobody_000000000000")
    finally:
        other.registry.dispose()


@on("sqlite")
def test_resolve_unmapped(new_base: Callable[[], Any], create: Callable[[MetaData], None], session: Session) -> None:
    """After ``registry.dispose()`` or ``clear_mappers()`` the id gives ``None``, even if its class still exists."""
    base = new_base()
    model = declare(base, "Left", NanoId(prefix="pxleft"))
    create(model.metadata)
    session.add(model(public_id="pxleft_000000000000"))
    session.flush()
    base.registry.dispose()

    assert lookup.resolve(session, "pxleft_000000000000") is None


@on("sqlite")
def test_resolve_with_two_bases(
    new_base: Callable[[], Any], create: Callable[[MetaData], None], session: Session
) -> None:
    """If two bases share a prefix, ``resolve`` needs the argument *base*."""
    bases = new_base(), new_base()
    models = [declare(base, name, NanoId(prefix="pxtwin")) for base, name in zip(bases, ("Left", "Right"), strict=True)]
    for model in models:
        create(model.metadata)
        session.add(model(public_id="pxtwin_000000000000"))
    session.flush()

    given = [*bases, *(base.registry for base in bases)]
    assert [type(lookup.resolve(session, "pxtwin_000000000000", base=each)) for each in given] == models * 2
    assert lookup.resolve(session, "pxtwin_000000000000", base=Base) is None
    with pytest.raises(DuplicatePrefix) as caught:
        lookup.resolve(session, "pxtwin_000000000000")
    assert caught.value.prefix == "pxtwin"
    assert {caught.value.holder, caught.value.newcomer} == {f"{__name__}.Left", f"{__name__}.Right"}
