"""Response models that show the public ids behind foreign keys, a whole page of objects at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from pydantic import ValidationError
from sqlalchemy import ForeignKey, MetaData, String, event, select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, selectinload

from conftest import Statements
from sqlalchemy_public_id import ConfigurationError, PublicIdMixin, TypedId
from sqlalchemy_public_id.ext.pydantic import PublicModel
from sqlalchemy_public_id.references import public_ref


class Base(DeclarativeBase):
    metadata = MetaData()


class GuestId(TypedId, prefix="pmguest"): ...


class StayId(TypedId, prefix="pmstay"): ...


class NightId(TypedId, prefix="pmnight"): ...


class Guest(PublicIdMixin[GuestId], Base):
    __tablename__ = "guest"
    name: Mapped[str] = mapped_column(String(50))


class Stay(PublicIdMixin[StayId], Base):
    __tablename__ = "stay"
    guest_id: Mapped[int] = mapped_column(ForeignKey(Guest.id))
    guest: Mapped[Guest] = relationship()
    guest_public_id: Mapped[GuestId] = public_ref("guest")
    previous_id: Mapped[int | None] = mapped_column(ForeignKey("stay.id"))
    previous: Mapped[Stay | None] = relationship(remote_side="Stay.id")
    previous_public_id: Mapped[StayId | None] = public_ref("previous")
    nights: Mapped[list[Night]] = relationship(order_by="Night.id")


class Night(PublicIdMixin[NightId], Base):
    __tablename__ = "night"
    stay_id: Mapped[int] = mapped_column(ForeignKey(Stay.id))
    payer_id: Mapped[int] = mapped_column(ForeignKey(Guest.id))
    payer: Mapped[Guest] = relationship()
    payer_public_id: Mapped[GuestId] = public_ref("payer")


class NightOut(PublicModel, model=Night):
    payer_public_id: GuestId


class StayOut(PublicModel, model=Stay):
    guest_public_id: GuestId
    previous_public_id: StayId | None


class StayWithNightsOut(StayOut):
    nights: list[NightOut]


GUESTS = [f"pmguest_{number:012}" for number in range(7)]
STAYS = [f"pmstay_{number:012}" for number in range(100)]


def fill(session: Session) -> None:
    """A hundred stays, each but the first after another one, with two nights each."""
    guests = [Guest(public_id=GuestId(text), name=text) for text in GUESTS]
    stays: list[Stay] = []
    for number, text in enumerate(STAYS):
        stay = Stay(public_id=StayId(text), guest=guests[number % 7], previous=stays[-1] if stays else None)
        stay.nights = [Night(payer=guests[(number + 1) % 7]), Night(payer=guests[(number + 2) % 7])]
        stays.append(stay)
    session.add_all(stays)
    session.commit()
    session.expunge_all()


def expected(number: int) -> StayOut:
    return StayOut(
        guest_public_id=GuestId(GUESTS[number % 7]),
        previous_public_id=StayId(STAYS[number - 1]) if number else None,
    )


PAGE = select(Stay).order_by(Stay.id)


@pytest.mark.backend
def test_page(create: Callable[[MetaData], None], session: Session, statements: Statements) -> None:
    """A hundred responses with references take one statement for each model that is referred to."""
    create(Base.metadata)
    fill(session)
    stays = session.scalars(PAGE).all()
    statements.clear()

    found = StayOut.many(session, stays)

    assert found == [expected(number) for number in range(100)]
    assert len(statements) <= 2  # one for guests; stays are in the session, all but none of them


def test_related_objects(create: Callable[[MetaData], None], session: Session, statements: Statements) -> None:
    """References of related objects take one statement for all of them, too."""
    create(Base.metadata)
    fill(session)
    stays = session.scalars(PAGE.options(selectinload(Stay.nights))).all()
    statements.clear()

    found = StayWithNightsOut.many(session, stays)

    assert [night.payer_public_id for night in found[0].nights] == [GUESTS[1], GUESTS[2]]
    assert len(statements) <= 3


def test_one(create: Callable[[MetaData], None], session: Session) -> None:
    """One object is shown with its references, by ``of`` and by Pydantic's own method."""
    create(Base.metadata)
    fill(session)
    stay = session.scalars(PAGE).first()

    assert StayOut.of(session, stay) == StayOut.model_validate(stay) == expected(0)


@pytest.mark.backend
def test_async_session(async_engine: AsyncEngine) -> None:
    """Awaited, ``many`` makes a page of responses in an ``AsyncSession``, with as few statements."""
    sent: list[str] = []

    def listen(connection: object, cursor: object, statement: str, *rest: object) -> None:
        sent.append(statement)

    async def story() -> None:
        try:
            async with async_engine.begin() as connection:
                await connection.run_sync(Base.metadata.drop_all)
                await connection.run_sync(Base.metadata.create_all)
            async with AsyncSession(async_engine) as session:
                await session.run_sync(fill)
                stays = (await session.scalars(PAGE)).all()
                event.listen(async_engine.sync_engine, "before_cursor_execute", listen)
                found = await StayOut.many(session, stays)
                assert await StayOut.of(session, stays[0]) == found[0]
                event.remove(async_engine.sync_engine, "before_cursor_execute", listen)
            assert found == [expected(number) for number in range(100)]
            assert len(sent) <= 2
        finally:
            async with async_engine.begin() as connection:
                await connection.run_sync(Base.metadata.drop_all)
            await async_engine.dispose()

    asyncio.run(story())


def test_foreign_key_beside_its_reference() -> None:
    """A foreign key is refused, with the name of the reference that is there for it."""
    with pytest.raises(
        ConfigurationError, match=r"would show stay\.guest_id, a foreign key of Stay; show guest_public_id"
    ):

        class Leaky(PublicModel, model=Stay):
            guest_id: int


def test_reference_of_another_type() -> None:
    """A reference is of the type of what it refers to."""

    class Wrong(PublicModel, model=Stay):
        guest_public_id: StayId

    with pytest.raises(ValidationError, match="the prefix is 'pmguest'"):
        Wrong.model_validate({"guest_public_id": GUESTS[0]})
