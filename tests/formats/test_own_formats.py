"""Formats that a program defines: what they implement, and what they cannot override."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar

import pytest
from hypothesis import given
from sqlalchemy import MetaData, String, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.strategies import any_text, formats, junk

from sqlalchemy_public_id import (
    ConfigurationError,
    Format,
    InvalidPublicId,
    NanoId,
    PublicIdMixin,
    TypedId,
    Uuid7,
    lookup,
)
from sqlalchemy_public_id.formats import BASE36

_numbers = count(1)


@dataclass(frozen=True, repr=False)
class Plate(Format):
    """License plates: ``KA-0007``, typed in any case, with or without the hyphen; number 13 does not exist."""

    prefix: str | None = field(default=None, init=False)
    separator: str = field(default="_", init=False)
    _accepted: tuple[Format, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        self._describe("[A-Za-z]{2}-?[0-9]{4}", 7, "a license plate")

    @property
    def capacity(self) -> int:
        return 26**2 * 10**4

    @property
    def entropy_bits(self) -> float:
        return 0.0

    def _make(self, count: int) -> list[str]:
        return [f"KA-{next(_numbers) * 100:04}" for _ in range(count)]

    def _accepts(self, text: str) -> bool:
        return super()._accepts(text) and not text.endswith("0013")

    def _normalize(self, text: str) -> str:
        return f"{text[:2]}-{text[-4:]}".upper()


@dataclass(frozen=True, repr=False)
class Polite(NanoId):
    """NanoIds without a certain word."""

    word: ClassVar[str] = "rude"

    def _make(self, count: int) -> list[str]:
        return [text for text in super()._make(count + 100) if self.word not in text]

    def _accepts(self, text: str) -> bool:
        return super()._accepts(text) and self.word not in text


PLATES = Plate().accepting(Polite(length=8))


class Base(DeclarativeBase):
    metadata = MetaData()


class Car(PublicIdMixin, Base):
    __tablename__ = "car"
    __public_id__ = PLATES
    name: Mapped[str] = mapped_column(String(50))


class Guest(PublicIdMixin, Base):
    __tablename__ = "guest"
    __public_id__ = Polite()
    name: Mapped[str] = mapped_column(String(50))


@pytest.fixture
def db(create: Callable[[MetaData], None], session: Session) -> Session:
    create(Base.metadata)
    session.add_all([Car(public_id="KA-0007", name="seven"), Car(public_id="abcd1234", name="older"), Guest(name="a")])
    session.commit()
    return session


@pytest.mark.backend
@pytest.mark.parametrize("text", ["KA-0007", "ka-0007", "kA0007"])
def test_spellings_of_an_own_format(db: Session, text: str) -> None:
    """Lookups, comparisons and assignments accept each spelling of an own format; rows have the canonical one."""
    car = lookup.get_one(db, Car, text)
    new = Car(public_id=text.replace("7", "8"))

    assert lookup.get_many(db, Car, [text, "KA-0007", "ka-0013"]) == {text: car, "KA-0007": car}
    assert lookup.keys_of(db, Car, [text]) == {text: car.id}
    assert car.public_id == "KA-0007"
    assert db.scalars(select(Car.name).where(Car.public_id == text)).all() == ["seven"]
    assert db.scalars(select(Car.name).where(Car.public_id.in_([text]))).all() == ["seven"]
    assert [car.name for car in lookup.page(db, Car, limit=1, after=text)] == ["older"]
    assert new.public_id == "KA-0008"


@pytest.mark.backend
def test_older_formats_of_an_own_format(db: Session) -> None:
    """An own format accepts the ids of older formats, in their own spelling."""
    assert lookup.get_one(db, Car, "abcd1234").name == "older"
    assert PLATES.canonical("ABCD1234") is None
    assert PLATES.canonical("rude1234") is None


def test_refused_texts_of_an_own_format(db: Session) -> None:
    """A subclass of a format that refuses more texts is asked for each text, in lookups, parameters and patterns."""
    refused = "rude" + "0" * 8

    assert not Polite().has_exact_pattern
    assert not Polite().quick_check(refused)
    assert NanoId().is_valid(refused)
    assert lookup.get(db, Guest, refused) is None
    assert lookup.get_many(db, Guest, [refused]) == {}
    with pytest.raises(InvalidPublicId):
        Guest(public_id=refused)
    with pytest.raises(InvalidPublicId):
        db.execute(insert(Guest), [{"public_id": refused, "name": "b"}])


@pytest.mark.parametrize("name", ["canonical", "is_valid", "validate"])
def test_what_cannot_be_overridden(name: str) -> None:
    """A format that overrides one of the three judgments is refused at its declaration, also if a mixin has it."""

    def judge(self: object, text: object, field: str | None = None) -> object:
        return text

    own: dict[str, Any] = {name: judge}
    for bases, members in (((NanoId,), own), ((type("Mixin", (), own), Uuid7), {})):
        with pytest.raises(ConfigurationError, match=rf"Own overrides {name}\(\).*_normalize\(\)"):
            type("Own", bases, members)


@given(formats(), any_text | junk)
def test_one_judgment(format: Format, text: object) -> None:
    """``canonical()``, ``is_valid()``, ``validate()`` and the quick check agree about any object."""
    canonical = format.canonical(text)

    assert format.is_valid(text) == (canonical is not None)
    if canonical is None:
        with pytest.raises(InvalidPublicId):
            format.validate(text)
    else:
        assert format.validate(text) == format.canonical(canonical) == canonical
    if isinstance(text, str) and format.quick_check(text):
        assert text == canonical


@given(formats())
def test_own_ids_are_canonical(format: Format) -> None:
    """A generated id is canonical, also for the quick check, for a copy in another class of strings, and when typed."""
    text = format.generate()

    class Text(str): ...

    assert format.canonical(text) == text
    assert type(format.canonical(Text(text))) is str
    assert format.quick_check(text)


def test_a_typed_id_of_an_own_format() -> None:
    """A typed id normalizes like its format."""

    class GuestId(TypedId, prefix="optgst", format=Polite(alphabet=BASE36)): ...

    assert GuestId("optgst_" + "a" * 12) == "optgst_" + "a" * 12
    with pytest.raises(InvalidPublicId):
        GuestId("optgst_rude" + "a" * 8)
