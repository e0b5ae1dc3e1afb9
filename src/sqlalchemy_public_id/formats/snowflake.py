"""Snowflakes: 41 bits of milliseconds, 10 of the machine, 12 that count. They fit into a ``BIGINT``.

>>> format = Snowflake(machine_id=5)
>>> format.timestamp("0000000004194324480").isoformat()
'2020-01-01T00:00:01+00:00'
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, ClassVar

from typing_extensions import Self

from sqlalchemy_public_id.errors import ClockMovedBack, ConfigurationError, KeySpaceExhausted, safe_repr
from sqlalchemy_public_id.formats import clock
from sqlalchemy_public_id.formats._base import Format
from sqlalchemy_public_id.formats._bits import TimedFormat
from sqlalchemy_public_id.formats.budget import Budget

__all__ = ["EPOCH", "MACHINES", "Snowflake", "TOLERANCE", "named", "no_machine"]

EPOCH = 1_577_836_800_000
"""The time at which Snowflakes begin unless told otherwise: 2020-01-01 UTC, in milliseconds since 1970."""
MACHINES = 1024
"""How many machines there can be."""
TOLERANCE = 0.1
"""For how many seconds ids go on in order while the clock is behind; beyond, :class:`ClockMovedBack` is raised."""

_TIME, _MACHINE, _COUNT = 41, 10, 12

_takers: dict[int, int] = {}
"""Which process declared a machine id as a plain number: a forked child has the one of its parent."""


@dataclass(frozen=True, repr=False)
class Snowflake(TimedFormat):
    """Snowflakes of one machine: unique as long as no two processes have the same *machine_id* at the same time.

    A machine makes 4096 ids in a millisecond, and waits for the next one then. A forked child is another machine: where
    *machine_id* is a function, it is asked again there; where it is a number, the child's first id is a
    :class:`ConfigurationError`. The 41 bits last for 69 years, until 2089 with the usual *epoch*;
    then :class:`KeySpaceExhausted` is raised. While the clock is behind the last id, ids go on as if it stood still,
    and wait for it when the count is used up; where it is behind by more than 0.1 s, :class:`ClockMovedBack` is raised.

    **What an id tells:** when its row was made, to the millisecond; on which machine; and how many ids this machine
    made in the same millisecond before. Nothing in it is random: who has one id can guess others.

    :raises ConfigurationError: where the settings cannot work.
    """

    machine_id: int | Callable[[], int]
    """From 0 to 1023; or a function that takes one for the process that calls it, from a lease in the database say. It
    is asked once in each process, at the first id, however many threads make one at once. ``repr()`` names it with its
    module, ``machine_id=app.machines.take``, which ``eval()`` reads where the module was imported; a lambda, and
    whatever else has no name in a module, is shown as Python shows it, and cannot be read back."""
    epoch: int | datetime = EPOCH
    """When the time begins: a ``datetime`` with a time zone, or milliseconds since 1970, as which it is kept. It cannot
    be changed later."""
    prefix: str | None = None
    separator: str = "_"
    encoding: str = "decimal"
    """One of ``"decimal"`` (19 characters), ``"base36"`` (13), ``"hex"`` (16), ``"base58"`` (11), ``"crockford32"``
    (13)."""
    storage: str = "native"
    _accepted: tuple[Format, ...] = field(default=(), init=False)

    _bits: ClassVar[int] = 64
    _used: ClassVar[int] = _TIME + _MACHINE + _COUNT
    _encodings: ClassVar[tuple[str, ...]] = ("decimal", "base36", "hex", "base58", "crockford32")
    _stands_for: ClassVar[str] = "a Snowflake"

    def accepting(self, *older: Format) -> Self:
        """As with every format. Where numbers are stored, those of another *epoch* would tell a wrong time.

        :raises ConfigurationError: where they are of another epoch.
        """
        made = super().accepting(*older)
        for format in made._chain():
            if self.is_native and isinstance(format, Snowflake) and format.epoch != self.epoch:
                raise ConfigurationError(
                    f"{self!r} stores numbers, which do not tell that ids of {format!r} begin at another time: "
                    f'keep the epoch, or write storage="text"'
                )
        return made

    def __post_init__(self) -> None:
        object.__setattr__(self, "epoch", _since_1970(self.epoch))
        if not callable(self.machine_id):
            _takers.setdefault(_checked(self.machine_id), os.getpid())
        self._describe_number()

    @property
    def capacity(self) -> int:
        return 1 << self._used

    @property
    def entropy_bits(self) -> float:
        return 0.0

    def budget(self) -> Budget:
        """There is none: Snowflakes are counted, so they do not collide by chance.

        :raises ConfigurationError: always.
        """
        raise ConfigurationError(
            "Snowflakes are not random, so there is no chance of a collision to compute: there is none while every "
            "process has a machine id of its own, and one for sure where two have the same"
        )

    def _shown(self, value: object) -> str:
        return ".".join(named(value) or ()) or super()._shown(value)

    def _number(self) -> int:
        return clock.current.sequence(_Sequence, self.machine_id, self.epoch)()

    def _milliseconds(self, number: int) -> int:
        return _since_1970(self.epoch) + (number >> _MACHINE + _COUNT)


class _Sequence(clock.Sequence):
    """The ids of one machine in this process."""

    def __init__(self, clock: clock.Clock, machine_id: int | Callable[[], int], epoch: int) -> None:
        super().__init__(clock)
        self._machine = _taken(machine_id) << _COUNT
        self._epoch = epoch

    def _after(self, last: int) -> int:
        time, count = last >> _MACHINE + _COUNT, (last + 1) % (1 << _COUNT)
        now = self._since_epoch(time)
        if now <= time:
            now = time if count else self._later(time)
        else:
            count = 0
        return now << _MACHINE + _COUNT | self._machine | count

    def _later(self, time: int) -> int:
        """The first moment after *time*."""
        while (now := self._since_epoch(time)) <= time:
            self._clock.sleep((time + 1 - now) / 1000)
        return now

    def _since_epoch(self, last: int) -> int:
        """The time in milliseconds, *last* or later, or a little earlier."""
        now = self._clock.milliseconds() - self._epoch
        behind = (last - now) / 1000
        if last >= 0 and behind > TOLERANCE:
            raise ClockMovedBack(behind=behind, tolerance=TOLERANCE)
        if now < 0:
            raise ConfigurationError(
                f"the clock of this machine is before the epoch, by {-now} ms: set the clock, or an earlier epoch"
            )
        if now >> _TIME:
            raise KeySpaceExhausted(f"the 41 bits for the time of a Snowflake are used up since {_ended(self._epoch)}")
        return now


def no_machine() -> int:
    """A *machine_id* for a format that checks ids and makes none, such as a migration has it that finds no rows.

    :raises ConfigurationError: always.
    """
    raise ConfigurationError(
        "this format has no machine id: it checks ids, and makes none; write machine_id=take, a function that takes a "
        "machine id for the process that calls it, or a number that no other process has"
    )


def named(function: object) -> tuple[str, str] | None:
    """Under which module and name *function* can be imported; ``None`` where there is none."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    found: Any = sys.modules.get(module) if isinstance(module, str) and isinstance(name, str) else None
    for part in name.split(".") if found is not None and isinstance(name, str) else ():
        found = getattr(found, part, None)
    found_it = found is function and all(map(str.isidentifier, str(module).split(".")))
    return (str(module), str(name)) if found_it else None


def _taken(machine_id: int | Callable[[], int]) -> int:
    """The machine id of this process."""
    if callable(machine_id):
        return _checked(machine_id())
    if _takers[machine_id] != os.getpid():
        raise ConfigurationError(
            f"machine_id={machine_id} belongs to process {_takers[machine_id]}, which this one was forked from: both "
            f"would make the same ids; write machine_id=take, a function that takes a machine id for the process that "
            f"calls it, or make the format with another one after the fork"
        )
    return machine_id


def _checked(machine_id: object) -> int:
    if not isinstance(machine_id, int) or isinstance(machine_id, bool) or not 0 <= machine_id < MACHINES:
        raise ConfigurationError(
            f"machine_id is {safe_repr(machine_id)}, expected a whole number from 0 to {MACHINES - 1}, "
            f"or a function that takes one"
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


def _ended(epoch: int) -> str:
    return f"{datetime.fromtimestamp((epoch + 2**_TIME) / 1000, timezone.utc):%Y-%m-%d}"
