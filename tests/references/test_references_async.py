"""References in an ``AsyncSession``, with every asynchronous driver."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy import ForeignKey, MetaData, event, insert, select
from sqlalchemy.exc import MissingGreenlet
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship
from support.stories import tell

from sqlalchemy_public_id import PublicIdMixin, PublicIdNotFound, TypedId
from sqlalchemy_public_id.asyncio import bulk, references
from sqlalchemy_public_id.references import eager, public_ref

pytestmark = pytest.mark.backend


class Base(DeclarativeBase):
    metadata = MetaData()


class GuestId(TypedId, prefix="raguest"): ...


class Guest(PublicIdMixin[GuestId], Base):
    __tablename__ = "guest"


class Stay(PublicIdMixin, Base):
    __tablename__ = "stay"
    guest_id: Mapped[int | None] = mapped_column(ForeignKey(Guest.id))
    guest: Mapped[Guest | None] = relationship()
    guest_public_id: Mapped[GuestId | None] = public_ref("guest")


GUESTS = [GuestId(f"raguest_{number:012}") for number in range(10)]
UNKNOWN = GuestId("raguest_zzzzzzzzzzzz")
EXPECTED = [GUESTS[number // 10] for number in range(100)]

Story = Callable[[AsyncSession], Awaitable[None]]


@pytest.fixture
def run(async_engine: AsyncEngine) -> Callable[[Story], None]:
    """Run a story with a session, on a database with ten guests of ten stays each."""

    def run(story: Story) -> None:
        async def with_rows(session: AsyncSession) -> None:
            session.add_all(Guest(public_id=each) for each in GUESTS)
            await bulk.insert(session, [Stay(guest_public_id=each) for each in EXPECTED])
            await session.commit()
            session.expunge_all()
            await story(session)

        tell(async_engine, Base.metadata, with_rows)

    return run


@pytest.fixture
def sent(async_engine: AsyncEngine) -> list[str]:
    """The statements that were sent."""
    texts: list[str] = []
    event.listen(async_engine.sync_engine, "before_cursor_execute", lambda *details: texts.append(details[2]))
    return texts


def test_eager(run: Callable[[Story], None], sent: list[str]) -> None:
    """A page with the option: two statements, and the attribute is there."""

    async def story(session: AsyncSession) -> None:
        sent.clear()
        query = select(Stay).order_by(Stay.id).options(eager(Stay.guest_public_id))
        stays = (await session.scalars(query)).all()
        assert [stay.guest_public_id for stay in stays] == EXPECTED
        assert len(sent) == 2

    run(story)


def test_load(run: Callable[[Story], None], sent: list[str]) -> None:
    """``load`` fetches for all objects in one statement, and what was fetched survives a commit."""

    async def story(session: AsyncSession) -> None:
        sent.clear()
        stays = (await session.scalars(select(Stay).order_by(Stay.id))).all()
        await references.load(session, stays)
        assert len(sent) == 2
        await session.commit()
        assert [stay.guest_public_id for stay in stays] == EXPECTED
        assert len(sent) == 2

    run(story)


def test_not_loaded(run: Callable[[Story], None]) -> None:
    """An access that would have to wait says what to write; ``run_sync`` may wait."""

    async def story(session: AsyncSession) -> None:
        stay = (await session.scalars(select(Stay).order_by(Stay.id).limit(1))).one()
        remedies = r"references\.eager.*await sqlalchemy_public_id\.asyncio\.references\.load"
        with pytest.raises(MissingGreenlet, match=rf"Stay\.guest_public_id is not loaded.*{remedies}"):
            stay.guest_public_id  # noqa: B018
        assert await session.run_sync(lambda _: stay.guest_public_id) == GUESTS[0]
        assert stay.guest_public_id == GUESTS[0]

    run(story)


def test_assign(run: Callable[[Story], None], sent: list[str]) -> None:
    """One SELECT finds the keys of all that are flushed; an id that belongs to no row is an error."""

    async def story(session: AsyncSession) -> None:
        sent.clear()
        stays = [Stay(guest_public_id=each) for each in EXPECTED]
        session.add_all(stays)
        await session.flush()
        assert len([statement for statement in sent if statement.startswith("SELECT")]) == 1
        assert [stay.guest_public_id for stay in stays] == EXPECTED
        await session.execute(insert(Stay), [{"guest_public_id": GUESTS[0]}, {"guest_public_id": None}])
        found = await session.scalars(select(Stay.guest_public_id).where(Stay.guest_public_id == GUESTS[0]))
        assert len(found.all()) == 21
        stays[0].guest_public_id = UNKNOWN
        with pytest.raises(PublicIdNotFound) as caught:
            await session.flush()
        assert caught.value.field == "Stay.guest_public_id"

    run(story)
