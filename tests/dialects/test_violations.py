"""What the drivers' errors say of a refused duplicate."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from sqlalchemy_public_id.dialects.mysql import MySQL
from sqlalchemy_public_id.dialects.postgresql import PostgreSQL


class Refused(Exception):
    """As psycopg reports it."""

    def __init__(self, detail: str | None, state: str = "23505") -> None:
        super().__init__()
        self.sqlstate = state
        self.diag = SimpleNamespace(constraint_name="uq_user_public_id", message_detail=detail)


@pytest.mark.parametrize(
    ("detail", "entry"),
    [
        ("Key (public_id)=(a1b2c3) already exists.", ("public_id", "a1b2c3")),
        ("Schlüssel »(public_id)=(a1b2c3)« existiert bereits.", ("public_id", "a1b2c3")),
        ('键值"(public_id)=(a1b2c3)" 已经存在', ("public_id", "a1b2c3")),
        ('Key ("The ""code"", (short)")=(a1b2c3) already exists.', ('The "code", (short)', "a1b2c3")),
        ("Key (public_id)=(a)b(c) already exists.", ("public_id", "a)b(c")),
        ("Key (public_id)=(a\nb) already exists.", ("public_id", "a\nb")),
        ("Key (public_id)=() already exists.", ("public_id", "")),
        ("Key (tenant, public_id)=(me, a1b2c3) already exists.", None),
        ("Key (lower(public_id::text))=(a1b2c3) already exists.", None),
        ("Key (public_id)=(a)=(b) already exists.", None),
        ("something else", None),
        (None, None),
    ],
)
def test_entry_of_postgresql(detail: str | None, entry: tuple[str, str] | None) -> None:
    """Column and value are read from the detail in whatever language, if there is one way to read it."""
    violation = PostgreSQL().violation(Refused(detail))

    assert violation is not None
    assert (violation.constraint, violation.entry) == ("uq_user_public_id", entry)


def test_entry_of_asyncpg() -> None:
    """SQLAlchemy's adapter wraps the driver's own error, which has the detail."""
    error: Any = Exception()
    error.sqlstate = "23505"
    error.__cause__ = cause = Exception()
    cause.constraint_name, cause.detail = "uq", "Key (public_id)=(a1b2c3) already exists."  # type: ignore[attr-defined]
    violation = PostgreSQL().violation(error)

    assert violation is not None
    assert (violation.constraint, violation.entry) == ("uq", ("public_id", "a1b2c3"))


MYSQL = "Duplicate entry 'a1b2c3' for key 'user.uq_user_public_id'"


@pytest.mark.parametrize(
    "error",
    [
        Exception(1062, MYSQL),
        type("OfMariaDBConnector", (Exception,), {"errno": 1062})(MYSQL),
        type("OfMySQLConnector", (Exception,), {"errno": 1062, "msg": MYSQL})(1062, f"1062 (23000): {MYSQL}", "23000"),
    ],
    ids=["PyMySQL, mysqlclient, asyncmy", "MariaDB Connector", "MySQL Connector"],
)
def test_index_of_mysql(error: Exception) -> None:
    """The index is read from the message, wherever the driver keeps it."""
    violation = MySQL().violation(error)

    assert violation is not None
    assert violation.constraint == "user.uq_user_public_id"


def test_another_error_is_no_violation() -> None:
    """A foreign key that points nowhere is none, whatever its detail looks like."""
    assert PostgreSQL().violation(Refused("Key (user_id)=(7) is not present.", state="23503")) is None


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("a1b2c3", "a1b2c3"),
        (UUID(int=11), "00000000-0000-0000-0000-00000000000b"),
        (b"\x00\xff", r"\x00ff"),
        (-7, "-7"),
    ],
)
def test_values_as_postgresql_writes_them(value: object, written: str) -> None:
    """What is stored is compared with the entry as the server shows it."""
    assert PostgreSQL().format_in_error(value) == written


def test_missing_rights() -> None:
    """A role that may not read is told from other errors."""
    assert PostgreSQL().is_permission_error(Refused(None, state="42501"))
    assert not PostgreSQL().is_permission_error(Refused(None))
    assert not PostgreSQL().is_permission_error(None)
    assert MySQL().is_permission_error(Exception(1142, "SELECT command denied to user"))
    assert not MySQL().is_permission_error(Exception(1213, "Deadlock found"))
    assert not MySQL().is_permission_error(Exception())
    assert not MySQL().is_permission_error(None)
