"""``lookup.pages`` and ids that two tenants share: rows and cursors of the right tenant, or an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import ForeignKey, MetaData, String, true
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, with_loader_criteria

from sqlalchemy_public_id import ConfigurationError, InvalidCursor, NanoId, PublicIdMixin, lookup
from sqlalchemy_public_id._private import IS_FAST
from sqlalchemy_public_id.errors import AmbiguousPublicId

pytestmark = pytest.mark.backend

OURS, THEIRS = 1, 2


class Base(DeclarativeBase): ...


class Tenant(Base):
    __tablename__ = "ps_tenant"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    remarks: Mapped[list[Remark]] = relationship(viewonly=True)


class Topic(PublicIdMixin, Base):
    """Is open to both tenants."""

    __tablename__ = "ps_topic"
    remarks: Mapped[list[Remark]] = relationship(viewonly=True)


class Remark(PublicIdMixin, Base):
    __tablename__ = "ps_remark"
    __public_id__ = NanoId(2, alphabet="0123456789", prefix="rm")
    __public_id_unique_with__ = ("tenant_id",)
    tenant_id: Mapped[int] = mapped_column(ForeignKey(Tenant.id))
    topic_id: Mapped[int] = mapped_column(ForeignKey(Topic.id))
    text: Mapped[str] = mapped_column(String(20))


def public_id(number: int) -> str:
    return f"rm_{number:02}"


@pytest.fixture
def topics(create: Callable[[MetaData], None], session: Session) -> list[Topic]:
    """Return two topics. Ours has the ids 0 to 7, theirs 4 to 11; each topic has every other of both."""
    create(Base.metadata)
    topics = [Topic(), Topic()]
    session.add_all([Tenant(id=OURS), Tenant(id=THEIRS), *topics])
    session.flush()
    for tenant, numbers in ((THEIRS, range(4, 12)), (OURS, range(8))):
        for number in numbers:
            remark = Remark(tenant_id=tenant, public_id=public_id(number), text=f"{tenant}: {number}")
            remark.topic_id = topics[number % 2].id
            session.add(remark)
            session.flush()
    session.commit()
    return topics


def texts(pages: dict[Any, lookup.Page[Remark]]) -> list[list[str]]:
    return [[remark.text for remark in page] for page in pages.values()]


def test_of_tenants(session: Session, topics: list[Topic]) -> None:
    """The collection of a tenant has its rows; a cursor is its own row, although the other tenant has one, too."""
    tenants = [session.get_one(Tenant, tenant) for tenant in (OURS, THEIRS)]

    first = lookup.pages(session, Tenant.remarks, of=tenants, limit=2)
    after = dict.fromkeys(tenants, public_id(5))
    second = lookup.pages(session, Tenant.remarks, of=tenants, limit=2, after=after)

    assert texts(first) == [["1: 0", "1: 1"], ["2: 4", "2: 5"]]
    assert texts(second) == [["1: 6", "1: 7"], ["2: 6", "2: 7"]]
    with pytest.raises(InvalidCursor):
        lookup.pages(session, Tenant.remarks, of=tenants, limit=2, after={tenants[0]: public_id(11)})


@pytest.mark.parametrize("order", [{}, {"order_by": Remark.text}, {"newest_first": True}])
@pytest.mark.parametrize("tenant", [OURS, THEIRS])
def test_of_others(session: Session, topics: list[Topic], tenant: int, order: dict[str, Any]) -> None:
    """With the tenant in where=, the pages of parents of both have the rows of one, and so have those that follow."""
    where = Remark.tenant_id == tenant
    seen: list[str] = []
    after: dict[Any, str | None] = dict.fromkeys(topics)
    while after:
        found = lookup.pages(session, Topic.remarks, of=after, limit=3, after=after, where=where, **order)
        seen += [text for page in texts(found) for text in page]
        after = {topic: page.next for topic, page in found.items() if page.next}

    assert sorted(seen) == sorted(f"{tenant}: {number}" for number in (range(8) if tenant == OURS else range(4, 12)))
    theirs = public_id(11) if tenant == OURS else public_id(1)
    with pytest.raises(InvalidCursor):
        lookup.pages(session, Topic.remarks, of=topics, limit=3, after={topics[1]: theirs}, where=where, **order)


def test_no_tenant(session: Session, topics: list[Topic], statements: list[str]) -> None:
    """A cursor without a tenant is refused before its row is looked up; where=true() reports that two rows have it."""
    statements.clear()
    for after in ({topics[0]: public_id(4)}, None):
        with pytest.raises(ConfigurationError, match=r"pages?\(\) does not name Remark\.tenant_id"):
            lookup.pages(session, Topic.remarks, of=topics[:1], limit=3, after=after)
    assert not [statement for statement in statements if public_id(4) in statement]
    with pytest.raises(AmbiguousPublicId):
        lookup.pages(session, Topic.remarks, of=topics, limit=3, after={topics[0]: public_id(4)}, where=true())


def test_tenant_of_the_session(session: Session, topics: list[Topic], listen: Callable[..., None]) -> None:
    """Criteria that the session adds name the tenant, for first pages and for cursors."""

    def hide(state: Any) -> None:
        if state.is_select:
            ours = with_loader_criteria(Remark, Remark.tenant_id == OURS, include_aliases=True)
            state.statement = state.statement.options(ours)

    listen(session, "do_orm_execute", hide)
    if not IS_FAST:  # nothing public shows the criteria of a statement with a JOIN
        with pytest.raises(ConfigurationError, match=r"does not name Remark\.tenant_id"):
            lookup.pages(session, Topic.remarks, of=topics, limit=2)
        return
    assert texts(lookup.pages(session, Topic.remarks, of=topics, limit=2)) == [["1: 0", "1: 2"], ["1: 1", "1: 3"]]
    after = {topics[0]: public_id(4)}
    assert texts(lookup.pages(session, Topic.remarks, of=topics[:1], limit=2, after=after)) == [["1: 6"]]
    with pytest.raises(InvalidCursor):
        lookup.pages(session, Topic.remarks, of=topics, limit=2, after={topics[0]: public_id(10)})
