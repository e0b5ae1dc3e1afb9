"""The types that the methods and attributes of a format return."""

from __future__ import annotations

from typing_extensions import assert_type

from sqlalchemy_public_id import Format, NanoId
from sqlalchemy_public_id.formats import BASE58, Budget

format = NanoId(length=16, alphabet=BASE58, prefix="cus", separator=".")
assert_type(format.generate(), str)
assert_type(format.generate_many(3), list[str])
assert_type(format.validate(format.generate(), field="customer"), str)
assert_type(format.is_valid(None), bool)
assert_type(format.pattern, str)
assert_type(format.max_length, int)
assert_type(format.capacity, int)
assert_type(format.entropy_bits, float)
assert_type(format.ordered, bool)
assert_type(format.accepting(NanoId()), NanoId)
assert_type(format.prefixed("ord"), NanoId)
assert_type(format.length, int)
assert_type(format.prefix, str | None)

assert_type(format.budget(), Budget)
assert_type(format.budget().probability(1_000_000), float)
assert_type(format.budget().ids_at(0.01), int)
assert_type(format.budget().years_at(0.01, per_hour=1000), float)


def renewed(older: Format) -> Format:
    newer = older.prefixed(None)
    assert_type(newer, Format)
    return newer.accepting(older)


renewed(format)
