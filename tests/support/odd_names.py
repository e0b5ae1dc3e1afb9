"""Names of tables, columns and schemas that their databases take, and that programs stumble over."""

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
"""By what is odd about them. Each is as long as PostgreSQL takes at most: 63 bytes."""


def beside(name: str) -> str:
    """Return a name that is as odd, and as long at most: for a column of the table *name*."""
    return f"{name[1:]}_"
