"""A role that lacks one right: the operation is refused before anything is changed, or does without the right."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from support.marks import on
from support.people import People, send

from sqlalchemy_public_id import PublicIdError

pytestmark = pytest.mark.slow

ROLE = f"public_id_role_{os.getpid()}"
ROWS = 5

GRANTS = {
    "mysql": ["SELECT", "INSERT", "UPDATE", "ALTER", "CREATE", "TRIGGER"],
    "mariadb": ["SELECT", "INSERT", "UPDATE", "ALTER", "CREATE", "TRIGGER"],
}
"""What the pages of the databases have a migration's user granted on its table."""


@pytest.fixture
def people(engine: Engine) -> Iterator[People]:
    made = People(engine)
    made.create(ROWS)
    yield made
    made.drop()


@pytest.fixture
def user(people: People, new_engine: Callable[..., Engine]) -> Iterator[People]:
    """The table as a user without any right sees it."""
    with people.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        is_postgresql = people.engine.name == "postgresql"
        send(connection, f"CREATE ROLE {ROLE} LOGIN" if is_postgresql else f"CREATE USER {ROLE}@'%'")
        yield People(new_engine(people.engine.name, people.engine.url.set(username=ROLE)))
        if is_postgresql:
            send(connection, f"REASSIGN OWNED BY {ROLE} TO postgres")
            send(connection, f"DROP OWNED BY {ROLE} CASCADE")
            send(connection, f"DROP ROLE {ROLE}")
        else:
            send(connection, f"DROP USER {ROLE}@'%'")


def refused(user: People) -> bool:
    """Run the operation as *user*. Return True if it is refused."""
    try:
        user.add()
    except (PublicIdError, DBAPIError):
        return True
    return False


def check_there_and_back(people: People, user: People, grant: str) -> None:
    """After *grant*, the same operation by the same user reaches its goal, and leads back."""
    if refused(user):
        assert "public_id" not in people.columns(), "something was changed before the refusal"
    people.execute(grant)
    with suppress(DBAPIError):  # a pooled connection may have the rights of before
        user.engine.dispose()
    user.add()
    people.check_complete(ROWS)
    user.run("drop_public_id")
    assert "public_id" not in people.columns()


@on("mysql", "mariadb")
@pytest.mark.parametrize("missing", GRANTS["mysql"])
def test_user_without_a_right(people: People, user: People, missing: str) -> None:
    """A user who lacks one of the rights changes nothing, or needs it not; with it, the operation is done."""
    others = ", ".join(right for right in GRANTS[people.engine.name] if right != missing)
    people.execute(f"GRANT {others} ON person TO {ROLE}@'%'")

    check_there_and_back(people, user, f"GRANT {missing} ON person TO {ROLE}@'%'")


@on("postgresql")
@pytest.mark.parametrize("missing", ["SELECT", "UPDATE", "INSERT", "TRIGGER", "REFERENCES"])
def test_owner_without_a_right(people: People, user: People, missing: str) -> None:
    """An owner who has revoked a right from himself changes nothing, or needs it not; with it, all is done."""
    people.execute(f"GRANT CREATE, USAGE ON SCHEMA public TO {ROLE}")
    people.execute(f"ALTER TABLE person OWNER TO {ROLE}")
    people.execute(f"REVOKE {missing} ON person FROM {ROLE}")

    check_there_and_back(people, user, f"GRANT {missing} ON person TO {ROLE}")


@on("postgresql")
def test_owner_without_a_schema(people: People, user: People) -> None:
    """An owner who may not create anything in the schema is refused at once."""
    people.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    people.execute(f"GRANT USAGE ON SCHEMA public TO {ROLE}")
    people.execute(f"GRANT CREATE ON SCHEMA public TO {ROLE}")
    people.execute(f"ALTER TABLE person OWNER TO {ROLE}")
    people.execute(f"REVOKE CREATE ON SCHEMA public FROM {ROLE}")

    assert refused(user)
    check_there_and_back(people, user, f"GRANT CREATE ON SCHEMA public TO {ROLE}")
