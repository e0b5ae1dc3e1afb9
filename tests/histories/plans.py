"""Plan the operations and the troubles of a history. Both depend only on the seed, a number.

Each operation has a ticket, 0, 1, 2, … Workers take tickets in this order, so that operations with close numbers run at
about the same time, and use the same rows.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache

from histories.checking import Touch

KINDS = {
    "send": 27,
    "look": 28,
    "remove": 10,
    "take": 11,
    "add": 7,
    "read": 5,
    "give": 4,
    "drop": 4,
    "move": 3,
    "walk": 1,
}
"""Kind of operation → its weight.

* send: ``insert_once`` of a payment. give: flush payments with given ids.
* add: flush parcels, with generated ids, keys from blocks and references.
* remove: delete a payment. drop: delete a parcel. move: write the reference of a parcel.
* look: read a payment by its id. read: read a parcel with its reference.
* take: keys from blocks. walk: all parcels of a shelf, page by page.
"""

CUSTOMERS = [f"customer{number:04d}" for number in range(20)]
"""The public ids of the customers, which exist from the beginning."""

IDS_EACH = 12
"""The number of tickets that use the same payment."""
SHELF = 300
"""The number of tickets that use the same shelf."""
BLOCK = 20


@dataclass(frozen=True)
class Plan:
    """One operation, before it is performed."""

    ticket: int
    kind: str
    names: tuple[str, ...] = ()
    """The rows that it uses; for payments, their ids."""
    reference: str | None = None
    count: int = 0
    shelf: int = 0
    order: str = "key"
    repeatable: bool = False
    """True for another isolation level than the default: REPEATABLE READ, or READ COMMITTED if that is the default."""
    repeats: bool = False
    """True if the transaction is retried after the database rolled it back."""
    pause: float = 0.0
    """Seconds to wait before the COMMIT, while other operations may use the row."""
    limit: float | None = None
    """Seconds after which a signal ends the operation, in the main thread of a process."""

    @property
    def verb(self) -> str:
        """The verb of :attr:`touches`."""
        verbs = {"send": "once", "remove": "remove", "drop": "remove", "move": "point", "look": "read", "read": "read"}
        return verbs.get(self.kind, "insert")

    @property
    def touches(self) -> tuple[Touch, ...]:
        """The effects on its rows, without results."""
        return tuple(Touch(name, self.verb, reference=self.reference) for name in self.names)


@lru_cache(maxsize=4096)
def kind_of(seed: int, ticket: int) -> str:
    """Return the kind of the operation."""
    return random.Random(f"{seed} kind {ticket}").choices(list(KINDS), list(KINDS.values()))[0]


def count_of(seed: int, ticket: int) -> int:
    """Return the number of rows that the operation inserts."""
    return random.Random(f"{seed} count {ticket}").choice([1, 1, 2, 5])


def plan_of(seed: int, ticket: int) -> Plan:
    """Return the operation with this *ticket*."""
    chance = random.Random(f"{seed} {ticket}")
    kind = kind_of(seed, ticket)
    near = max(0, ticket // IDS_EACH + chance.choice([-40, -2, -1, 0, 0, 0, 0, 1]))
    about: dict[str, object] = {}
    if kind in ("send", "remove", "look"):
        about["names"] = (f"once{near:08d}",)
    elif kind == "give":
        about["names"] = tuple(f"g{ticket:010d}{number}" for number in range(count_of(seed, ticket)))
    elif kind == "add":
        count = count_of(seed, ticket)
        about.update(names=tuple(f"p{ticket}.{number}" for number in range(count)), reference=chance.choice(CUSTOMERS))
    elif kind in ("drop", "move", "read"):
        about["names"] = (_parcel(seed, ticket, chance),)
        if kind == "move":
            about["reference"] = chance.choice(CUSTOMERS)
    elif kind == "take":
        about["count"] = chance.choice([1, 3, BLOCK + 7])
    about["shelf"] = shelf_of(ticket)
    if kind == "walk":
        about["shelf"] = max(0, shelf_of(ticket) - chance.choice([0, 0, 1]))
        about["order"] = chance.choice(["key", "newest", "weight"])
    return Plan(
        ticket,
        kind,
        repeatable=chance.random() < (0.55 if kind == "send" else 0.3),
        repeats=kind in ("add", "give", "move", "drop") and chance.random() < 0.5,
        pause=chance.choice([0, 0, 0.001, 0.003, 0.003, 0.02]) if kind in ("send", "remove", "add") else 0,
        limit=chance.uniform(0.0005, 0.02) if chance.random() < 0.12 else None,
        **about,
    )


def shelf_of(ticket: int) -> int:
    """Return the shelf of the parcels that the operation inserts."""
    return ticket // SHELF


def weight_of(name: str) -> int:
    """Return the weight of a parcel; several parcels have the same weight."""
    return sum(map(ord, name)) % 7


def _parcel(seed: int, ticket: int, chance: random.Random) -> str:
    """Return the name of a parcel that an earlier operation added."""
    at = ticket - chance.choice([5, 20, 40, 100, 200])
    while at > 0 and kind_of(seed, at) != "add":
        at -= 1
    return f"p{max(at, 0)}.{chance.randrange(count_of(seed, max(at, 0)))}"


# --- troubles

SHARES = {
    "end a session": 0.008,
    "kill a worker": 0.0006,
    "rebuild an index": 0.012,
    "change a table": 0.003,
    "crash": 0.0002,
    "fill the disk": 0.0002,
    "fail over": 0.0001,
}
"""Trouble → its number per operation."""


def troubles_of(seed: int, operations: int, possible: set[str]) -> list[tuple[int, str, float]]:
    """Return the troubles of a history: the ticket after which each begins, its name, and a number for its choices."""
    chance = random.Random(f"{seed} troubles")
    planned = []
    for trouble, share in SHARES.items():
        wanted = max(1, round(share * operations))
        places = [(chance.uniform(0.03, 0.95), chance.random()) for _ in range(wanted)]
        if trouble in possible:
            planned += [(int(place * operations), trouble, number) for place, number in places]
    return sorted(planned)
