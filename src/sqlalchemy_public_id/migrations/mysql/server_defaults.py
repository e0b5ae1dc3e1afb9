"""The server defaults of MySQL and MariaDB. Their random bits come from ``RANDOM_BYTES()`` (MariaDB 10.10)."""

from __future__ import annotations

from sqlalchemy_public_id.formats._bits import BitsFormat
from sqlalchemy_public_id.migrations.server_defaults import ServerDefaults


class MySQLDefaults(ServerDefaults):
    """The server defaults of MySQL and MariaDB."""

    def random_number(self, limit: int) -> str:
        return f"CAST(CONV(HEX(RANDOM_BYTES(7)), 16, 10) AS UNSIGNED) MOD {limit}"

    def random_digits(self, count: int) -> str:
        drawn = f"HEX(RANDOM_BYTES({(count + 1) // 2}))"
        return f"substr({drawn}, 2)" if count % 2 else drawn

    @property
    def milliseconds(self) -> str:
        # UTC, because local time repeats an hour when daylight saving time ends
        return "LPAD(HEX(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000), 12, '0')"

    def seconds_since(self, epoch: int) -> str:
        return f"LPAD(HEX(UNIX_TIMESTAMP(){f' - {epoch}' if epoch else ''}), 8, '0')"

    @property
    def variant(self) -> str:
        return "SUBSTR('89AB', 1 + CAST(CONV(HEX(RANDOM_BYTES(1)), 16, 10) AS UNSIGNED) MOD 4, 1)"

    def as_number(self, format: BitsFormat, digits: str) -> str:
        return f"UNHEX({digits})"

    def hyphenated(self, digits: str) -> str:
        for at in (9, 14, 19, 24):
            digits = f"INSERT({digits}, {at}, 0, '-')"
        return digits

    def join(self, strings: list[str]) -> str:
        return f"CONCAT({', '.join(strings)})"
