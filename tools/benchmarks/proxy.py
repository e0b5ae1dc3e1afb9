"""Simulate a distant server: a proxy on loopback, which delays all traffic and counts round trips.

    with Proxy(url, milliseconds=10) as proxy, create_engine(proxy.url).connect() as connection:
        before = proxy.trips
        connection.exec_driver_sql("SELECT 1")
        print(proxy.trips - before)  # 2 with psycopg, which begins the transaction first

A round trip begins when the client sends something after everything that it sent before has been answered. What it
sends without waiting for an answer, as psycopg's pipelines do, belongs to the same trip. On MySQL and MariaDB, a client
waits for the answer to each command, so each change of direction counts. On PostgreSQL, the messages are read: a trip
ends with ReadyForQuery, since a server may answer the first commands of a pipeline before the last one has arrived.

Connect before counting: a handshake takes trips too. An encrypted connection to PostgreSQL is refused.

The proxy runs in its own process, so that it costs the measured process no CPU time.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import selectors
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from sqlalchemy import URL

__all__ = ["Proxy"]

_PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306}
_LONGEST_START = 60
"""Seconds within which the process of the proxy must listen."""


class Proxy:
    """A proxy in front of the server of *url*, which delays each round trip by *milliseconds*."""

    def __init__(self, url: URL, milliseconds: float = 0) -> None:
        context = multiprocessing.get_context("spawn")
        backend = url.get_backend_name()
        self._target = url
        self._trips: Any = context.Value("Q", 0)
        self._delay: Any = context.Value("d", milliseconds / 1000)
        self._answer, answer = context.Pipe(duplex=False)
        target = url.host or "127.0.0.1", url.port or _PORTS[backend]
        arguments = target, backend == "postgresql", self._trips, self._delay, answer
        self._process = context.Process(target=_serve, args=arguments, daemon=True)

    def __enter__(self) -> Proxy:
        self._process.start()
        if not self._answer.poll(_LONGEST_START):
            raise TimeoutError("the process of the proxy has not begun to listen")
        self.url = self._target.set(host="127.0.0.1", port=self._answer.recv())
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()

    @property
    def trips(self) -> int:
        """The round trips of all connections since the proxy started."""
        return int(self._trips.value)

    @property
    def milliseconds(self) -> float:
        """The delay of a round trip; half of it is added in each direction."""
        return float(self._delay.value * 1000)

    @milliseconds.setter
    def milliseconds(self, value: float) -> None:
        self._delay.value = value / 1000


# --- the process of the proxy


def _serve(target: tuple[str, int], is_postgresql: bool, trips: Any, delay: Any, answer: Connection) -> None:
    def begin_trip() -> None:
        with trips.get_lock():
            trips.value += 1

    async def accept(client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        server, to_server = await asyncio.open_connection(*target)
        counter = (_Messages if is_postgresql else _Turns)(begin_trip)
        await asyncio.gather(
            _forward(client, to_server, delay, on_arrival=counter.sent),
            _forward(server, to_client, delay, on_delivery=counter.received),
            return_exceptions=True,  # either side may close the connection at any time
        )

    async def serve() -> None:
        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        answer.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    # epoll would round a pause of half a millisecond up to a whole one
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    loop.run_until_complete(serve())


def _ignore(data: bytes) -> None: ...


async def _forward(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    delay: Any,
    on_arrival: Callable[[bytes], None] = _ignore,
    on_delivery: Callable[[bytes], None] = _ignore,
) -> None:
    """Forward each chunk half a delay after its arrival, so that chunks do not wait for each other."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        try:
            while True:
                due, data = await pieces.get()
                if due > loop.time():
                    await asyncio.sleep(due - loop.time())
                if not data:
                    return
                on_delivery(data)
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    delivering = asyncio.create_task(deliver())
    try:
        while data := await reader.read(1 << 18):
            on_arrival(data)
            pieces.put_nowait((loop.time() + delay.value / 2, data))
    finally:
        pieces.put_nowait((loop.time() + delay.value / 2, b""))
        await delivering


class _Turns:
    """Counts the trips of a client that waits for each answer."""

    def __init__(self, begin_trip: Callable[[], None]) -> None:
        self._begin_trip = begin_trip
        self._is_answered = True

    def sent(self, data: bytes) -> None:
        if self._is_answered:
            self._begin_trip()
        self._is_answered = False

    def received(self, data: bytes) -> None:
        self._is_answered = True


class _Messages:
    """Counts the trips of a PostgreSQL client, by the types of its messages and of the answers."""

    _ASKS = b"QSF"
    """Query, Sync and FunctionCall, each of which is answered by ReadyForQuery."""
    _STARTUP = 3
    """The version of the protocol in the first message; requests for encryption have others."""

    def __init__(self, begin_trip: Callable[[], None]) -> None:
        self._begin_trip = begin_trip
        self._sent, self._received = bytearray(), bytearray()
        self._has_begun = False
        self._unanswered = 0
        self._is_open = False
        """True after a message for which no answer was requested yet."""
        self._is_flushed = False
        """True after Flush, which requests answers without ReadyForQuery."""

    def sent(self, data: bytes) -> None:
        self._sent += data
        while message := self._take(self._sent, typed=self._has_begun):
            if not self._has_begun:
                self._has_begun = int.from_bytes(message[4:6], "big") == self._STARTUP
                self._unanswered = int(self._has_begun)
                continue
            kind = message[:1]
            if kind == b"X" or (kind == b"H" and not self._is_open):
                continue
            if not self._unanswered and not self._is_open:
                self._begin_trip()
            asks = kind in self._ASKS
            self._unanswered += asks
            self._is_open, self._is_flushed = not asks, kind == b"H"

    def received(self, data: bytes) -> None:
        if not self._has_begun:
            if data != b"N":
                raise ConnectionRefusedError("the proxy cannot read an encrypted connection")
            return
        self._received += data
        while message := self._take(self._received, typed=True):
            if message[:1] == b"Z":
                self._unanswered -= 1
            elif self._is_flushed or message[:1] == b"G":  # CopyInResponse
                self._is_open = self._is_flushed = False

    @staticmethod
    def _take(buffer: bytearray, *, typed: bool) -> bytes:
        """Remove the first whole message from *buffer*; return b"" if there is none."""
        start = int(typed)
        if len(buffer) < start + 4:
            return b""
        end = start + int.from_bytes(buffer[start : start + 4], "big")
        if len(buffer) < end:
            return b""
        message = bytes(buffer[: min(end, 16)])
        del buffer[:end]
        return message
