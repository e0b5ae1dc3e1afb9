"""Names of tables, columns and schemas that databases accept, but that often break programs."""

from __future__ import annotations

NAMES = {
    "percents and quotes": "{x} {0} %b %%c %(id)s %s we\"ird it's back`tick",
    "dollars and colons": "$public_id$ $cluster$ co::lon :table; /* c */ [Sq] (p, a.b -- d",
    "lines": "new\nline",
    "backslashes": 'back\\slash "\\',
    "bytes": "ü" * 31 + "x",
    "characters": "n" * 63,
    "reserved": "order",
}
"""Oddity → name, of 63 bytes at most, which is the limit of PostgreSQL."""


def beside(name: str) -> str:
    """Return an equally odd name, at most as long, for a column of the table *name*."""
    return f"{name[1:]}_"
