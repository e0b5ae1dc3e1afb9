"""The server defaults of SQLite. Their random bits come from ``random()`` and ``randomblob()``."""

from __future__ import annotations

from sqlalchemy_public_id.formats._bits import BitsFormat
from sqlalchemy_public_id.migrations.server_defaults import ServerDefaults


class SQLiteDefaults(ServerDefaults):
    """The server defaults of SQLite."""

    def random_number(self, limit: int) -> str:
        return f"abs(random() % {limit})"

    def random_digits(self, count: int) -> str:
        drawn = f"hex(randomblob({(count + 1) // 2}))"
        return f"substr({drawn}, 2)" if count % 2 else drawn

    @property
    def milliseconds(self) -> str:
        return "printf('%012x', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))"

    def seconds_since(self, epoch: int) -> str:
        minus = f" - {epoch}" if epoch else ""
        return f"printf('%08x', CAST(strftime('%s', 'now') AS INTEGER){minus})"

    @property
    def variant(self) -> str:
        return "substr('89ab', 1 + abs(random() % 4), 1)"

    def as_number(self, format: BitsFormat, digits: str) -> str:
        raise self.refusal(format, 'it has no function for bytes; storage="text" with encoding="hex" works')

    def hyphenated(self, digits: str) -> str:
        # each piece draws its own digits; the time is the same throughout a statement
        pieces = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
        return " || '-' || ".join(f"substr({digits}, {at}, {length})" for at, length in pieces)
