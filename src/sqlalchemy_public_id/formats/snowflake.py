"""Ids of a time and a counter: Snowflakes, which fit into a ``BIGINT``, and MongoDB's ObjectIds.

>>> Snowflake(machine_id=5).timestamp("0000000004194324480").isoformat()
'2020-01-01T00:00:01+00:00'
>>> ObjectId().timestamp("507f1f77bcf86cd799439011").isoformat()
'2012-10-17T21:13:27+00:00'
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, ClassVar

from sqlalchemy_public_id.errors import ClockMovedBack, ConfigurationError, KeySpaceExhausted
from sqlalchemy_public_id.formats import clock
from sqlalchemy_public_id.formats._base import Format
from sqlalchemy_public_id.formats._bits import Classes, PrefixedBits, TimedFormat
from sqlalchemy_public_id.formats._settings import named_settings
from sqlalchemy_public_id.formats.budget import Budget
from sqlalchemy_public_id.messages import safe_repr

__all__ = ["EPOCH", "ObjectId", "Snowflake", "TOLERANCE", "no_machine"]

EPOCH = 1_577_836_800_000
"""The default epoch, 2020-01-01 UTC, in milliseconds since 1970."""
TOLERANCE = 0.1
"""How many seconds the clock may be behind the last id before :class:`ClockMovedBack` is raised."""

_TIME, _MACHINE, _COUNT = 41, 10, 12
"""The bits of a Snowflake."""
_PROCESS, _OBJECTS = 40, 24
"""The bits of an ObjectId, after 32 of the time."""

_owners: dict[int, int] = {}
"""Machine id → the process that declared it as a number, which a forked child inherits."""


@named_settings
@dataclass(frozen=True, eq=False, repr=False)
class Snowflake(TimedFormat):
    """Snowflakes, which are unique as long as no two processes use one *machine_id* at the same time.

    A machine generates up to 4,096 ids a millisecond, then waits for the next one. A forked child needs another
    *machine_id*: a function is called again, and a number raises :class:`ConfigurationError` at the child's first id.
    The 41 bits of the time last for 69 years, until 2089 with the default *epoch*, and then raise
    :class:`KeySpaceExhausted`. If the clock moves back by up to 0.1 s, ids continue from the last time, and wait if its
    counter is full. If it moves back further, :class:`ClockMovedBack` is raised.

    **An id reveals** when its row was created, to the millisecond; on which machine; and how many ids this machine
    generated before in the same millisecond. Nothing in it is random, so other ids can be guessed from it.

    An accepted older Snowflake needs the same *epoch*, which is not part of the number, or, if ids are stored as text,
    another prefix.

    :raises ConfigurationError: for invalid settings.
    """

    machine_id: int | Callable[[], int]
    """A number from 0 to 1023, or a function that returns one, for example leased from the database. Each process calls
    the function once, for its first id, even with many threads. ``repr()`` shows the import path of the function,
    ``machine_id=app.machines.take``, which ``eval()`` evaluates if the module is imported. A function without such a
    path, such as a lambda, is shown by its own ``repr()``, which cannot be evaluated."""
    _: KW_ONLY
    epoch: int | datetime = EPOCH
    """The start of the time: a ``datetime`` with a time zone, or milliseconds since 1970, to which a ``datetime`` is
    converted. It must never change."""
    prefix: str | None = None
    separator: str = "_"
    encoding: str = "decimal"
    """One of ``"decimal"`` (19 characters), ``"base36"`` (13), ``"hex"`` (16), ``"base58"`` (11), ``"crockford32"``
    (13)."""
    storage: str = "native"
    _accepted: tuple[Format, ...] = field(default=(), init=False)

    collision_cause: ClassVar[str | None] = (
        "another process generates ids with the machine id of this one, or the clock was set back between two runs"
    )
    _bits: ClassVar[int] = 64
    _used: ClassVar[int] = _TIME + _MACHINE + _COUNT
    _encodings: ClassVar[tuple[str, ...]] = ("decimal", "base36", "hex", "base58", "crockford32")
    _random_bits: ClassVar[int] = 0
    _kind: ClassVar[str] = "a Snowflake"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epoch", _since_1970(self.epoch))
        if not callable(self.machine_id):
            _owners.setdefault(_checked(self.machine_id), os.getpid())
        super().__post_init__()
        for older in self._chain():
            if not isinstance(older, Snowflake) or older.epoch == self.epoch:
                continue
            if self.is_native:
                raise ConfigurationError(
                    f"{self.forms[0]!r} stores numbers without their epoch, so ids of {older!r} would have wrong "
                    f'times; keep the epoch, or write storage="text" and another prefix'
                )
            if (older._lead, older.encoding) == (self._lead, self.encoding):
                raise ConfigurationError(
                    f"{self.forms[0]!r} and {older!r} write ids alike, but count from different epochs, so old ids "
                    f"would have wrong times, and new ids could repeat them; keep the epoch, or write another prefix"
                )

    def budget(self) -> Budget:
        """Raise an error: Snowflakes are counted, so they do not collide by chance.

        :raises ConfigurationError: always.
        """
        raise ConfigurationError(
            "Snowflakes are not random, so there is no chance of a collision to compute; give each process its own "
            "machine id, and they never collide"
        )

    def _shown(self, value: object) -> str:
        return ".".join(import_name(value) or ()) or super()._shown(value)

    def _number(self) -> int:
        return clock.current.sequence(_SnowflakeSequence, self.machine_id, self.epoch)()

    def _milliseconds(self, number: int) -> int:
        return _since_1970(self.epoch) + (number >> _MACHINE + _COUNT)


class _SnowflakeSequence(clock.Sequence):
    def __init__(self, clock: clock.Clock, machine_id: int | Callable[[], int], epoch: int) -> None:
        super().__init__(clock)
        if callable(machine_id):
            machine_id = _checked(machine_id())
        elif _owners[machine_id] != os.getpid():
            raise ConfigurationError(
                f"machine_id={machine_id} belongs to process {_owners[machine_id]}, from which this one was forked: "
                f"both would generate the same ids; pass a function that returns one for the process that calls it, or "
                f"create the format with another machine_id after the fork"
            )
        self._machine = machine_id << _COUNT
        self._epoch = epoch

    def _after(self, last: int) -> int:
        time, count = last >> _MACHINE + _COUNT, (last + 1) % (1 << _COUNT)
        now = self._since_epoch(time)
        if now <= time:
            now = time if count else self._wait(time)
        else:
            count = 0
        return now << _MACHINE + _COUNT | self._machine | count

    def _wait(self, time: int) -> int:
        """Wait until the clock is after *time*, and return its time."""
        while (now := self._since_epoch(time)) <= time:
            self._clock.sleep((time + 1 - now) / 1000)
        return now

    def _since_epoch(self, last: int) -> int:
        """Return the milliseconds since the epoch, which may be earlier than *last* by up to the tolerance."""
        now = self._clock.milliseconds() - self._epoch
        behind = (last - now) / 1000
        if last >= 0 and behind > TOLERANCE:
            raise ClockMovedBack(behind=behind, tolerance=TOLERANCE)
        if now < 0:
            raise ConfigurationError(
                f"the clock of this machine is {-now} ms before the epoch; set the clock, or pass an earlier epoch"
            )
        if now >> _TIME:
            end = datetime.fromtimestamp((self._epoch + 2**_TIME) / 1000, timezone.utc)
            raise KeySpaceExhausted(f"the 41 bits for the time of a Snowflake are used up since {end:%Y-%m-%d}")
        return now


def no_machine() -> int:
    """Raise an error: for a Snowflake that only validates ids, as in a migration of a table without rows.

    :raises ConfigurationError: always.
    """
    raise ConfigurationError(
        "this Snowflake cannot generate ids because it has no machine id; pass machine_id=<int unique to this "
        "process>, or a function that returns one"
    )


def import_name(function: object) -> tuple[str, str] | None:
    """Return the module and the qualified name of *function*; ``None`` if they cannot be used to import it."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    value: Any = sys.modules.get(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    importable = value is function and all(map(str.isidentifier, module.split(".")))
    return (module, name) if importable else None


def _checked(machine_id: object) -> int:
    if not isinstance(machine_id, int) or isinstance(machine_id, bool) or not 0 <= machine_id < 1 << _MACHINE:
        raise ConfigurationError(
            f"machine_id is {safe_repr(machine_id)}, expected a whole number from 0 to {(1 << _MACHINE) - 1}, "
            f"or a function that returns one"
        )
    return machine_id


def _since_1970(epoch: object) -> int:
    if isinstance(epoch, datetime) and epoch.tzinfo is not None:
        epoch = (epoch - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)
    if not isinstance(epoch, int) or isinstance(epoch, bool) or not 0 <= epoch < 2**47:
        raise ConfigurationError(
            f"epoch is {safe_repr(epoch)}, expected a datetime with a time zone, or milliseconds since 1970"
        )
    return epoch


@named_settings
@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ObjectId(PrefixedBits, TimedFormat):
    """ObjectIds as MongoDB's drivers generate them: 4 bytes of seconds, 5 of the process, and 3 of a counter.

    The layout is described in https://github.com/mongodb/specifications, "ObjectID". Hexadecimal digits are accepted in
    both cases.

    Ids of one process sort in the order of generation, in all threads; ids of several processes sort by second. A
    process generates up to 16,777,216 ids a second, then the next second begins early.

    **An id reveals** when its row was created, to the second; which ids come from the same process; and how many ids
    this process generated between two of them. No part of a single id is random, so other ids can be guessed from it.

    :raises ConfigurationError: for invalid settings.
    """

    encoding: str = "hex"
    """One of ``"hex"`` (24 characters), ``"base36"`` (19), ``"base58"`` (17), ``"crockford32"`` (20)."""

    _bits: ClassVar[int] = 96
    _used: ClassVar[int] = 96
    _encodings: ClassVar[tuple[str, ...]] = ("hex", "base36", "base58", "crockford32")
    _random_bits: ClassVar[int] = 0  # all ids of a process have the same five random bytes
    _kind: ClassVar[str] = "an ObjectId"
    _classes: ClassVar[Classes] = (("bson", "ObjectId"),)
    _written: ClassVar[str] = "hex"

    def budget(self) -> Budget:
        """Return the budget *of one second*, in processes that generate one id each.

        The ids of one process never collide.
        """
        return Budget(2 ** (_PROCESS + _OBJECTS))

    def _number(self) -> int:
        return clock.current.sequence(_ObjectIdSequence)()

    def _milliseconds(self, number: int) -> int:
        return (number >> _PROCESS + _OBJECTS) * 1000


class _ObjectIdSequence(clock.Sequence):
    def __init__(self, clock: clock.Clock) -> None:
        process, count = os.urandom(_PROCESS // 8), os.urandom(_OBJECTS // 8)
        self._process = int.from_bytes(process, "big") << _OBJECTS
        super().__init__(clock, -1 << _PROCESS + _OBJECTS | int.from_bytes(count, "big"))

    def _after(self, last: int) -> int:
        time, count = last >> _PROCESS + _OBJECTS, (last + 1) % (1 << _OBJECTS)
        now = self._clock.time_ns() // 1_000_000_000
        if now < 0:
            raise ConfigurationError(
                "the clock of this machine is set before 1970, and ids cannot contain such a time; set the clock"
            )
        if now <= time:
            now = time if count else time + 1  # the counter has wrapped: zero sorts last only in the next second
        if now >> 32:
            raise KeySpaceExhausted("the 32 bits for the time of an ObjectId are used up since 2106-02-07")
        return now << _PROCESS + _OBJECTS | self._process | count
