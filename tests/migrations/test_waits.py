"""Reasons for a backfill to wait: at which value a wait begins and ends, and what is logged about it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from sqlalchemy import Connection, Engine
from support.marks import SERVERS, on

from sqlalchemy_public_id import ConfigurationError
from sqlalchemy_public_id.backfill import MaxLag, MaxLoad, PauseFile


class _Lag(MaxLag):
    """A replica that is behind by each of these times, one after the other."""

    def __init__(self, replica: Engine, seconds: float, *lags: float | None) -> None:
        super().__init__(replica, seconds)
        self.lags = iter(lags)

    def lag(self, connection: Connection) -> float | None:
        return next(self.lags)


class _Load(MaxLoad):
    """A server with each of these numbers of statements, one after the other."""

    def __init__(self, statements: int, *running: int) -> None:
        super().__init__(statements)
        self.numbers = iter(running)

    def running(self, connection: Connection) -> int:
        return next(self.numbers)


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    """A connection of which the waits of this module ask nothing."""
    with engine.connect() as connection:
        yield connection


def test_lag(connection: Connection, caplog: pytest.LogCaptureFixture) -> None:
    """A backfill waits while a replica is further behind than the limit, or by an unknown time; each wait is logged
    once, with its reason, and so is its end.
    """
    caplog.set_level(logging.INFO, "sqlalchemy_public_id")
    wait = _Lag(connection.engine, 10, 10.0, 10.06, 50.0, None, 9.99, 0.0, None, 11.0, 10)

    assert [wait(connection) for _ in range(9)] == [False, True, True, True, False, False, True, True, False]
    assert caplog.messages == [
        "waiting: the replica is 10.1 s behind",
        "continuing",
        "waiting: the replica is an unknown time behind",
        "continuing",
    ]


def test_load(connection: Connection, caplog: pytest.LogCaptureFixture) -> None:
    """A backfill waits while other sessions execute more statements than the limit; the log has their number."""
    caplog.set_level(logging.INFO, "sqlalchemy_public_id")
    wait = _Load(2, 2, 3, 9, 2, 0, 4)

    assert [wait(connection) for _ in range(6)] == [False, True, True, False, False, True]
    assert caplog.messages == [
        "waiting: other sessions execute 3 statements",
        "continuing",
        "waiting: other sessions execute 4 statements",
    ]


def test_file(connection: Connection, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A backfill waits while a file exists, or a folder of that name."""
    caplog.set_level(logging.INFO, "sqlalchemy_public_id")
    path = tmp_path / "pause"
    wait = PauseFile(str(path))

    assert not wait(connection)
    path.mkdir()
    assert wait(connection)
    path.rmdir()
    assert not wait(connection)
    assert caplog.messages == [f"waiting: the file {path} exists", "continuing"]


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda engine: MaxLoad(-1), "statements is -1, expected a number of 0 or more"),
        (lambda engine: MaxLoad(cast("int", float("nan"))), "statements is nan, expected a number of 0 or more"),
        (lambda engine: MaxLag(engine, 0), "seconds is 0, expected a time above 0"),
        (lambda engine: MaxLag(engine, -0.5), "seconds is -0.5, expected a time above 0"),
        (lambda engine: MaxLag(engine, float("nan")), "seconds is nan, expected a time above 0"),
    ],
    ids=["load", "load that is no number", "no time", "negative time", "not a number"],
)
def test_limit_that_is_impossible(engine: Engine, make: Callable[[Engine], object], error: str) -> None:
    """A limit below which nothing can be is refused, because the backfill would wait for ever, or never."""
    with pytest.raises(ConfigurationError) as caught:
        make(engine)

    assert str(caught.value) == error
    assert (MaxLoad(0).statements, MaxLag(engine, 0.001).seconds, MaxLag(engine).seconds) == (0, 0.001, 10.0)


@pytest.mark.backend
@on(*SERVERS)
def test_server_that_is_no_replica(engine: Engine, new_engine: Callable[..., Engine]) -> None:
    """The error for a server that is not a replica has its URL, without its password and its options."""
    shown, (args, options) = engine.url.set(password="secret"), engine.dialect.create_connect_args(engine.url)
    url = shown.set(query={"connect_timeout": "77"})
    server = new_engine(engine.name, url, creator=lambda: engine.dialect.connect(*args, **options))
    with engine.connect() as connection, pytest.raises(ConfigurationError) as caught:
        MaxLag(server).lag(connection)

    assert str(caught.value) == (
        f"{shown.render_as_string(hide_password=True)} is not a replica; "
        f"pass the URL of a server that replicates the primary"
    )
    assert "secret" not in str(caught.value)
