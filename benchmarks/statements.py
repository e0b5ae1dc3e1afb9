"""The number of statements that reach the driver in a flush, with the library and without.

They are counted at the driver, below SQLAlchemy's events: statements that the library sends by itself count, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from benchmarks.databases import ALL, Bench
from benchmarks.measure import Comparison
from benchmarks.models import PlainUser, User
from sqlalchemy_public_id import NanoId

__all__ = ["recorded", "run"]


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare the statements of one transaction with one flush: begin, insert, commit."""
    make = NanoId().generate
    for rows in (1, 1000):
        for database in bench.on(*ALL):
            with database.engines() as (guarded, plain):
                ours, rival = recorded(guarded), recorded(plain)
                for _ in range(2):  # the first connection asks for the server's version and the like
                    ours.clear()
                    rival.clear()
                    _commit(guarded, [User(name="Ada", email="a@example.org") for _ in range(rows)])
                    _commit(
                        plain, [PlainUser(name="Ada", email="a@example.org", public_id=make()) for _ in range(rows)]
                    )
            yield Comparison(
                f"flush of {rows} row{'s' if rows > 1 else ''}, {database.name}",
                *("PublicIdMixin", "no library", "sent"),
                *([float(len(ours))], [float(len(rival))]),
                goal=0 if rows == 1 else None,
                difference=True,
            )


def _commit(engine: Engine, users: list[Any]) -> None:
    with Session(engine) as session, session.begin():
        session.add_all(users)


def recorded(engine: Engine) -> list[str]:
    """Collect the statements that reach the driver from now on."""
    sent: list[str] = []

    def sqlite(connection: Any) -> None:
        connection.set_trace_callback(sent.append)

    def pymysql(connection: Any) -> None:
        query = connection.query

        def recording(sql: Any, *rest: Any) -> Any:
            sent.append(str(sql))
            return query(sql, *rest)

        connection.query = recording

    def psycopg(connection: Any) -> None:
        class Recording(connection.cursor_factory):  # type: ignore[misc]
            def execute(self, query: Any, *rest: Any, **options: Any) -> Any:
                sent.append(str(query))
                return super().execute(query, *rest, **options)

            def executemany(self, query: Any, rows: Any, **options: Any) -> Any:
                rows = list(rows)
                sent.extend([str(query)] * len(rows))
                return super().executemany(query, rows, **options)

        connection.cursor_factory = Recording

    listen = {"sqlite": sqlite, "psycopg": psycopg}.get(engine.driver if engine.name != "sqlite" else "sqlite", pymysql)
    engine.dispose()
    event.listen(engine, "connect", lambda connection, record: listen(connection))
    return sent
