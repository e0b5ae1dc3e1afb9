"""One side of the suite ``instructions``: a process that valgrind watches, and that does one thing between two marks.

``python -m tools.benchmarks.counted SIDE URL MARKS WHAT:COUNT ...``, with the library ``MARKS`` of
:mod:`~tools.benchmarks.instructions`. The sides ``default`` and ``sentinel`` are models by
hand, in a process that does not import the library.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Identity, Integer, String, create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

__all__ = ["OURS", "SIDES", "WAYS", "Work"]

SIDES = {
    "library": "PublicIdMixin",
    "references": "PublicIdMixin, public_ref() in another model",
    "default": "default=fastnanoid",
    "sentinel": "the same, insert_sentinel=True",
}
"""The models that are compared."""

OURS = {"library", "references"}
"""The sides with the library."""

_ROWS = 1000
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"


class Base(DeclarativeBase):
    """The base of both sides."""


def declared(side: str) -> tuple[type[Any], type[Any]]:
    """Declare a model of *side*, and one that refers to it."""
    if side in OURS:
        from sqlalchemy_public_id import PublicIdMixin as Mixin
    else:
        import fastnanoid

        options: dict[str, Any] = {"insert_sentinel": True} if side == "sentinel" else {}

        class Mixin:  # type: ignore[no-redef]
            id: Mapped[int] = mapped_column(
                BigInteger().with_variant(Integer(), "sqlite"), Identity(), primary_key=True, sort_order=-10
            )
            public_id: Mapped[str] = mapped_column(
                String(12), default=lambda: fastnanoid.generate(_BASE36, 12), unique=True, sort_order=-9, **options
            )

    class User(Mixin, Base):
        __tablename__ = "counted_user"
        name: Mapped[str] = mapped_column(String(255))
        email: Mapped[str] = mapped_column(String(255))

    class Order(Mixin, Base):
        __tablename__ = "counted_order"
        number: Mapped[int]
        user_id: Mapped[int] = mapped_column(ForeignKey(User.id))
        user: Mapped[User] = relationship()
        if side == "references":
            from sqlalchemy_public_id import public_ref

            user_public_id: Mapped[str] = public_ref("user")

    return User, Order


class Work:
    """What is counted. The methods prepare, and return the function to count and the check of its result."""

    def __init__(self, side: str, url: str) -> None:
        self.is_ours = side in OURS
        self.user, self.order = declared(side)
        if self.is_ours:
            from sqlalchemy_public_id import lookup

            self.lookup = lookup
        self.engine = create_engine(url)
        Base.metadata.drop_all(self.engine)
        Base.metadata.create_all(self.engine)
        self.session = Session(self.engine)
        self.ids: list[str] = []

    def close(self) -> None:
        """Drop the tables."""
        self.session.close()
        Base.metadata.drop_all(self.engine)
        self.engine.dispose()

    def stored(self) -> None:
        """Store rows, once, and begin without objects."""
        if not self.ids:
            users = self.users(_ROWS)
            self.session.add_all(users)
            self.session.add_all(self.order(number=number, user=user) for number, user in enumerate(users[:100]))
            self.session.commit()
            self.ids = list(self.session.scalars(select(self.user.public_id).order_by(self.user.id)))
        self.session.expunge_all()
        self.session.connection()

    def users(self, count: int) -> list[Any]:
        """Return *count* new objects."""
        return [self.user(name="Ada", email="ada@example.org") for _ in range(count)]

    # --- ways

    def flush(self, count: int) -> Callable[[], object]:
        """Flush *count* objects."""
        session, objects = Session(self.engine), self.users(count)
        session.connection()
        session.add_all(objects)
        self.session = session  # the caller rolls it back
        return session.flush

    def get(self, count: int) -> Callable[[], object]:
        """Find a row."""
        self.stored()
        session, user, text = self.session, self.user, self.ids[7]
        if self.is_ours:
            return lambda: self.lookup.get(session, user, text)
        return lambda: session.scalars(select(user).where(user.public_id == text)).one_or_none()

    def malformed(self, count: int) -> Callable[[], object]:
        """Look up a text that is no id."""
        self.stored()
        session, user = self.session, self.user
        if self.is_ours:
            return lambda: self.lookup.get(session, user, "nonsense!")
        return lambda: session.scalars(select(user).where(user.public_id == "nonsense!")).one_or_none()

    def get_many(self, count: int) -> Callable[[], object]:
        """Find *count* rows."""
        self.stored()
        session, user, wanted = self.session, self.user, self.ids[:count]
        if self.is_ours:
            return lambda: self.lookup.get_many(session, user, wanted)

        def by_hand() -> dict[str, Any]:
            found = {row.public_id: row for row in session.scalars(select(user).where(user.public_id.in_(wanted)))}
            return {public_id: found[public_id] for public_id in wanted if public_id in found}

        return by_hand

    def page(self, count: int) -> Callable[[], object]:
        """Read a page of *count* rows after a cursor."""
        self.stored()
        session, user, after = self.session, self.user, self.ids[100]
        if self.is_ours:
            return lambda: self.lookup.page(session, user, limit=count, after=after).next

        def by_hand() -> str:
            key = select(user.id).where(user.public_id == after).scalar_subquery()
            rows = session.scalars(select(user).where(user.id > key).order_by(user.id).limit(count + 1)).all()
            return rows[:count][-1].public_id

        return by_hand

    def page_with_reference(self, count: int) -> Callable[[], object]:
        """Read a page of *count* rows, each with the public id that its foreign key stands for."""
        self.stored()
        session, order, user = self.session, self.order, self.user
        after = session.scalars(select(order.public_id).order_by(order.id)).all()[20]
        session.expunge_all()
        if self.is_ours:

            def ours() -> list[Any]:
                page = self.lookup.page(session, order, limit=count, after=after, references=[order.user_public_id])
                return [(row.public_id, row.user_public_id) for row in page]

            return ours

        def by_hand() -> list[Any]:
            key = select(order.id).where(order.public_id == after).scalar_subquery()
            query = select(order, user.public_id).join(user, user.id == order.user_id).where(order.id > key)
            rows = session.execute(query.order_by(order.id).limit(count + 1)).all()
            return [(row.public_id, public_id) for row, public_id in rows[:count]]

        return by_hand

    def load(self, count: int) -> Callable[[], object]:
        """Load *count* rows by a SELECT."""
        self.stored()
        session, user = self.session, self.user
        return lambda: session.scalars(select(user).limit(count)).all()


WAYS: dict[str, Callable[[Work, int], Callable[[], object]]] = {
    "flush": Work.flush,
    "get": Work.get,
    "malformed": Work.malformed,
    "get_many": Work.get_many,
    "page": Work.page,
    "page_with_reference": Work.page_with_reference,
    "load": Work.load,
}


def main() -> None:
    """Do each thing twice, so that everything is cached, and the third time between the marks; then nothing, too."""
    side, url, library, *wanted = sys.argv[1:]
    marks = ctypes.CDLL(library)
    begin, end = marks.begin, marks.end
    work = Work(side, url)
    for each in [*wanted, None]:
        name, _, count = (each or "").partition(":")
        for turn in range(3):
            call = WAYS[name](work, int(count)) if each else lambda: None
            gc.collect()
            gc.disable()
            if turn == 2:
                begin()
            call()
            if turn == 2:
                end()
            gc.enable()
            work.session.rollback()
    work.close()


if __name__ == "__main__":
    main()
