"""Generating ids in one process, with this library and with the usual alternatives.

Each statement is timed as an application would write it, without a function around it.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterator

import fastnanoid
import nanoid
import uuid_utils
from typeid import TypeID
from ulid import ULID

from sqlalchemy_public_id import JetifyTypeId, NanoId, TypedId, Ulid, Uuid4, Uuid7
from sqlalchemy_public_id.formats import BASE36, URLSAFE64
from tools.benchmarks.databases import Bench
from tools.benchmarks.measure import Comparison, compared, repeated

__all__ = ["run"]


class CustomerId(TypedId, prefix="cus"):
    """A typed id."""


def divmod_loop(number: int) -> str:
    """Return *number* in base 36, one digit at a time."""
    digits = []
    while number > 0:
        number, digit = divmod(number, 36)
        digits.append(BASE36[digit])
    return "".join(reversed(digits))


_NAMES = {
    "BASE36": BASE36,
    "nano": NanoId(),
    "long": NanoId(21, alphabet=URLSAFE64),
    "CustomerId": CustomerId,
    "divmod_loop": divmod_loop,
    "typeid": JetifyTypeId("post"),
    "ulid": Ulid(),
    "uuid4": Uuid4(encoding="hyphenated"),
    "uuid7": Uuid7(),
    "hyphenated": Uuid7(encoding="hyphenated"),
    "TypeID": TypeID,
    "ULID": ULID,
    "fastnanoid": fastnanoid,
    "nanoid": nanoid,
    "secrets": secrets,
    "uuid": uuid,
    "uuid_utils": uuid_utils,
}

_SECRETS = '"".join(secrets.choice(BASE36) for _ in range(12))'
_FAST = "fastnanoid.generate(BASE36, 12)"
_MANY = 1000

_CASES: list[tuple[str, str, str, float | None]] = [
    ("12 of base 36", "nano.generate()", _FAST, 0.25),
    ("12 of base 36", "nano.generate()", "nanoid.generate(BASE36, 12)", 0.07),
    ("12 of base 36", "nano.generate()", _SECRETS, None),
    ("21 of 64 (the rivals' default)", "long.generate()", "fastnanoid.generate()", None),
    ("21 of 64 (the rivals' default)", "long.generate()", "nanoid.generate()", None),
    ("1000 at once", f"nano.generate_many({_MANY})", f"[{_FAST} for _ in range({_MANY})]", None),
    ("typed id / a text", "CustomerId()", f'"cus_" + {_FAST}', None),
    ("UUID 7 in base 36", "uuid7.generate()", "divmod_loop(uuid_utils.uuid7().int)", None),
    ("UUID 4, hyphenated", "uuid4.generate()", "str(uuid.uuid4())", None),
    ("UUID 7, hyphenated", "hyphenated.generate()", "str(uuid_utils.uuid7())", 1.0),
    (
        "1000 UUIDs 7, hyphenated",
        f"hyphenated.generate_many({_MANY})",
        f"[str(uuid_utils.uuid7()) for _ in range({_MANY})]",
        1.0,
    ),
    ("ULID", "ulid.generate()", "str(ULID())", 1.0),
    ("TypeID", "typeid.generate()", 'str(TypeID("post"))', None),
]
"""Name, our statement, the rival's, the goal."""


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare the statements, in µs per id."""
    for what, ours, rival, goal in _CASES:
        each = _MANY if str(_MANY) in what else 1
        number = bench.times(20_000, 1_000) // each
        subjects = {statement: repeated(statement, number, _NAMES) for statement in (ours, rival)}
        for one in compared(what, subjects, [(ours, rival, goal)], bench.times(60, 3), number * each):
            one.ours_name = ours.replace("nano.", "NanoId().")
            one.rival_name = "join(secrets.choice × 12)" if rival == _SECRETS else rival
            yield one
