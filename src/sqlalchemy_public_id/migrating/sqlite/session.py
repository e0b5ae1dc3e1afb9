"""The session of a migration of SQLite, which has one writer: no turn is needed, and no limit."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from sqlalchemy_public_id.migrating.plan import Lock
from sqlalchemy_public_id.migrating.session import Session, restore, send, transaction


class SQLiteSession(Session):
    """The session of a connection to SQLite."""

    lock_setting = "busy_timeout"
    is_exclusive = True
    has_turns = False

    def read_settings(self) -> dict[str, str]:
        return {}

    def wanted_settings(self, current: Mapping[str, str]) -> dict[str, object]:
        return {}

    @contextmanager
    def begin_step(self, lock: Lock, seconds: float) -> Generator[None]:
        legacy = send(self.connection, "PRAGMA legacy_alter_table").scalar()
        with transaction(self.connection, "BEGIN IMMEDIATE"):
            try:
                yield
            except BaseException:
                restore(self.connection, f"PRAGMA legacy_alter_table={legacy}")  # is not rolled back
                raise

    def try_turn(self, table: str | None, schema: str | None) -> None:
        return None

    def read_holder(self) -> None:
        return None

    def end_turn(self) -> None:
        return None
