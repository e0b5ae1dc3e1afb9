"""A server of MariaDB that was started without its privileges, as to repair it; MySQL has no network then."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from histories import places
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import NullPool
from support.people import People
from support.private_servers import Keeper


class _OpenServer(places.MariaDB):
    def _command(self) -> list[str]:
        return [*super()._command(), "--skip-grant-tables"]


@pytest.fixture
def open_server(programs: dict[str, str]) -> Iterator[Engine]:
    """An engine for a server on which everybody may do everything."""
    for name in _OpenServer.needs:
        programs[name]  # raises, skips or fails if it is missing
    keeper = Keeper("open-mariadb")
    try:
        folder = keeper.folder / "data"
        folder.mkdir()
        yield create_engine(_OpenServer(programs, keeper, folder).url, poolclass=NullPool)
    finally:
        keeper.close()


def test_migration(open_server: Engine) -> None:
    """A migration runs where the server refuses to list the privileges of a user."""
    people = People(open_server)
    people.create(3)
    people.run("add_public_id")

    people.check_complete(3)
