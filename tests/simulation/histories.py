"""Histories as data: what sessions do, who goes on at each call, and which call fails."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, fields
from typing import Any

from simulation.stage import Fault

NEITHER, READ, DUPLICATE = "-", "?", "!"
"""How a row gets its id: made by the library, or made by it and read before the flush; and a code that is taken."""


@dataclass(frozen=True)
class Op:
    """A step of a program: its name, and a word for each of its rows.

    A word is an id that the program gives, ``-`` for none, or ``?`` for one that it reads from the new object. With a
    ``!`` behind it, the row has a code that another row has already, so that it must be refused.
    """

    name: str
    rows: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(self.rows)})" if self.rows else self.name


@dataclass(frozen=True)
class History:
    """All that a run depends on."""

    family: str
    programs: tuple[tuple[Op, ...], ...]
    draws: tuple[str, ...]
    """The ids that the library draws, in their order."""
    isolation: str | None = None
    model: str = "plain"
    listener: str | None = None
    """What listeners of the application do: a key of ``players.LISTENERS``."""
    trigger: str | None = None
    routed: bool = False
    """True if sessions read from a follower."""
    expires: bool = False
    """True if a commit expires the objects."""
    choices: tuple[int, ...] = ()
    faults: tuple[Fault, ...] = field(default=())

    def __repr__(self) -> str:
        parts = [
            f"{each.name}={getattr(self, each.name)!r}"
            for each in fields(self)
            if each.name != "draws" and getattr(self, each.name) != each.default
        ]
        return f"History({', '.join(parts)})"

    def to_text(self) -> str:
        """Return a line that :meth:`from_text` reads, to run the history again."""
        return repr(
            {
                **{each.name: getattr(self, each.name) for each in fields(self)},
                "programs": [[(op.name, op.rows) for op in program] for program in self.programs],
                "faults": [(fault.call, fault.trouble, fault.after) for fault in self.faults],
            }
        )

    @classmethod
    def from_text(cls, text: str) -> History:
        values: dict[str, Any] = ast.literal_eval(text)
        values["programs"] = tuple(tuple(Op(*op) for op in program) for program in values["programs"])
        values["faults"] = tuple(Fault(*fault) for fault in values["faults"])
        return cls(**values)


@dataclass(frozen=True, order=True)
class Violation:
    """A rule that a history breaks."""

    rule: str
    place: str
    """The step that breaks it, without its rows; or the end."""
    detail: str = field(compare=False, default="")

    def __str__(self) -> str:
        return f"{self.rule} ({self.place}): {self.detail}"


def program(*steps: str) -> tuple[Op, ...]:
    """Return steps from their short form: ``"flush - fe"``, ``"commit"``."""
    return tuple(Op(words[0], tuple(words[1:])) for step in steps if (words := step.split()))
