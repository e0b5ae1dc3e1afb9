"""Notes of two tenants that have half of their ids in common, in a format of 100 ids."""

from __future__ import annotations

from typing import Any

from sqlalchemy import String
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from sqlalchemy_public_id import NanoId, PublicIdMixin

FORMAT = NanoId(2, alphabet="0123456789", prefix="nt")
OURS, THEIRS = 1, 2


def public_id(number: int) -> str:
    """Return one of the 100 ids."""
    return f"nt_{number:02}"


class Base(DeclarativeBase): ...


class Note(PublicIdMixin, Base):
    """A note, whose id is unique only with its tenant."""

    __tablename__ = "shared_note"
    __public_id__ = FORMAT
    __public_id_unique_with__ = ("tenant_id",)
    tenant_id: Mapped[int]
    text: Mapped[str | None] = mapped_column(String(40))


ONLY_OURS, OF_BOTH, ONLY_THEIRS = range(10), range(10, 20), range(20, 30)


def fill(session: Session) -> None:
    """Store 20 notes of each tenant. 10 ids belong to both, and the notes say whose they are."""
    for tenant, numbers in ((THEIRS, [*OF_BOTH, *ONLY_THEIRS]), (OURS, [*ONLY_OURS, *OF_BOTH])):
        for number in numbers:
            session.add(Note(tenant_id=tenant, public_id=public_id(number), text=text_of(tenant, number)))
        session.flush()


def text_of(tenant: int, number: int) -> str:
    return f"{tenant}: {number}"


def expected(tenant: int, number: int) -> str | None:
    """Return the text of the note that *tenant* has under an id; None if it has none."""
    own = {OURS: (ONLY_OURS, OF_BOTH), THEIRS: (OF_BOTH, ONLY_THEIRS)}[tenant]
    return text_of(tenant, number) if any(number in numbers for numbers in own) else None


def is_of(tenant: int) -> Any:
    return Note.tenant_id == tenant
