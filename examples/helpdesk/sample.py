"""Create and drop the tables, and build sample rows: two organizations with tickets."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from .models import TOKEN, Base, Comment, Login, Organization, Tag, Ticket, User, now

USERS = {"Analytical Engines": ["Ada", "Grace", "Mary"], "Difference & Sons": ["Eve", "Charles"]}
SUBJECTS = ["The printer is on fire", "Cannot sign in", "Invoice is wrong", "How do I export?", "Bernoulli numbers"]


@asynccontextmanager
async def tables(engine: AsyncEngine, rows: Iterable[Base] = ()) -> AsyncGenerator[None]:
    """Create the tables of the helpdesk with *rows*; drop them and dispose of *engine* at the end."""
    try:
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.drop_all)
            await connection.run_sync(Base.metadata.create_all)
        async with AsyncSession(engine) as session:
            session.add_all(rows)
            await session.commit()
        yield
    finally:
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.drop_all)
        await engine.dispose()


def some_rows(logins: dict[str, str]) -> list[Base]:
    """Return two organizations with 30 and 3 tickets; store the token of each user in *logins*, by name."""
    rows: list[Base] = []
    for (organization_name, names), count in zip(USERS.items(), (30, 3), strict=True):
        organization = Organization(name=organization_name)
        users = [User(organization=organization, name=name) for name in names]
        tags = [Tag(organization=organization, name=name) for name in ("billing", "bug", "question")]
        rows += [organization, *users, *tags]
        for user in users:
            issued = TOKEN.issue()
            logins[user.name] = issued.reveal()
            expires_at = now() + timedelta(days=1)
            rows.append(Login(organization=organization, user=user, token=issued.digest, expires_at=expires_at))
        for number in range(count):
            ticket = Ticket(
                organization=organization,
                author=users[number % len(users)],
                assignee=users[number // 3 % len(users)] if number % 4 else None,
                subject=f"{SUBJECTS[number % 5]}, no. {number + 1}",
                status=("open", "waiting", "closed")[number % 3],
                priority=1 + number % 4,
                created_at=now() - timedelta(hours=count - number),
                tags=tags[: number % 3],
            )
            comment = Comment(organization=organization, ticket=ticket, author=users[0], text="I am looking into it.")
            rows += [ticket, comment]
    return rows
