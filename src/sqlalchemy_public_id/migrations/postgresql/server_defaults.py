"""The server defaults of PostgreSQL. Their random bits come from ``gen_random_uuid()``.

PostgreSQL prefers an operator that another role has created to one of ``pg_catalog`` whose types match less exactly,
and a default runs as everyone who inserts. So functions are qualified, and operators have exactly the types of an
operator of ``pg_catalog``.

The characters of a NanoId come from the base64 form of hashed UUIDs, all of whose 64 characters are equally likely:
those that stand for no character of the alphabet are left out, and the first ones of the rest are the id.
"""

from __future__ import annotations

import math

from sqlalchemy_public_id.formats import Format, JetifyTypeId, NanoId, Uuid4, Uuid7
from sqlalchemy_public_id.formats._bits import BitsFormat
from sqlalchemy_public_id.migrations.server_defaults import ServerDefaults, sql_literal

_TIME = "pg_catalog.floor(extract(epoch FROM pg_catalog.clock_timestamp()){})::bigint"


class PostgreSQLDefaults(ServerDefaults):
    """The server defaults of PostgreSQL."""

    def random_number(self, limit: int) -> str:
        # the last 12 digits of a random UUID are all random; with %, a program that executes it may have to double it
        number = "('x' || pg_catalog.right(pg_catalog.gen_random_uuid()::text, 12))::bit(48)::bigint"
        return f"pg_catalog.mod({number}, {limit}::bigint)::int"

    def random_digits(self, count: int) -> str:
        return _digits_of_uuids(count, "pg_catalog.")

    @property
    def milliseconds(self) -> str:
        return f"pg_catalog.lpad(pg_catalog.to_hex({_TIME.format(' * 1000::numeric')}), 12, '0')"

    def seconds_since(self, epoch: int) -> str:
        return f"pg_catalog.lpad(pg_catalog.to_hex({_TIME.format(f' - {epoch}::numeric' if epoch else '')}), 8, '0')"

    @property
    def variant(self) -> str:
        return "pg_catalog.substr(pg_catalog.gen_random_uuid()::text, 20, 1)"

    def as_number(self, format: BitsFormat, digits: str) -> str:
        return f"({digits})::uuid" if format.bits == 128 else f"pg_catalog.decode({digits}, 'hex')"

    def hyphenated(self, digits: str) -> str:
        return f"({digits})::uuid::text"

    def lowercase(self, string: str) -> str:
        return f"pg_catalog.lower({string})"

    def character(self, alphabet: str, number: str) -> str:
        return f"pg_catalog.substr({sql_literal(alphabet)}, 1 + {number}, 1)"

    def characters(self, format: NanoId) -> list[str]:
        return [_filtered(format)] if len(format.alphabet) <= len(_BASE64) else super().characters(format)

    def function_of(self, format: BitsFormat) -> str | None:
        if type(format) is Uuid4:
            return "pg_catalog.gen_random_uuid()"
        has_uuidv7 = self.version is not None and int(self.version[0]) >= 18
        # its ids ascend within a session
        return "pg_catalog.uuidv7()" if has_uuidv7 and isinstance(format, (Uuid7, JetifyTypeId)) else None

    def digits_of_version_7(self) -> list[str] | None:
        rest = "pg_catalog.substr(pg_catalog.translate(pg_catalog.gen_random_uuid()::text, '-', ''), 14)"
        return [self.milliseconds, "'7'", rest]

    def present_expressions(self, format: Format) -> list[str]:
        return [self.expression(format), self._for_any_server(PostgreSQLDefaults).expression(format)]

    def older_expressions(self, format: Format) -> list[str]:
        return [self._for_any_server(_OlderDefaults).expression(format)]

    def _for_any_server(self, cls: type[PostgreSQLDefaults]) -> PostgreSQLDefaults:
        defaults = cls(self.dialect)
        defaults.version = None
        return defaults


class _OlderDefaults(PostgreSQLDefaults):
    """Those of builds before 1.0, whose operators had types for which ``pg_catalog`` has no exact match."""

    def random_number(self, limit: int) -> str:
        return f"(('x' || substr(gen_random_uuid()::text, 25))::bit(48)::bigint % {limit})::int"

    def random_digits(self, count: int) -> str:
        return _digits_of_uuids(count, "")

    @property
    def milliseconds(self) -> str:
        return "lpad(to_hex(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0')"

    def seconds_since(self, epoch: int) -> str:
        minus = f" - {epoch}::numeric" if epoch else ""
        return f"lpad(to_hex(floor(extract(epoch FROM clock_timestamp()){minus})::bigint), 8, '0')"

    @property
    def variant(self) -> str:
        return "substr(gen_random_uuid()::text, 20, 1)"

    def character(self, alphabet: str, number: str) -> str:
        return f"substr({sql_literal(alphabet)}, 1 + {number}, 1)"

    def characters(self, format: NanoId) -> list[str]:
        return [self.character(format.alphabet, self.random_number(len(format.alphabet)))] * format.length

    def digits_of_version_7(self) -> list[str] | None:
        return None


def _digits_of_uuids(count: int, schema: str) -> str:
    at_once = 12  # the last digits of a UUID, which are all random
    return " || ".join(
        f"{schema}substr({schema}gen_random_uuid()::text, 25, {min(at_once, count - at)})"
        for at in range(0, count, at_once)
    )


# --- the characters of a NanoId

_BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_DIGEST = "pg_catalog.encode(pg_catalog.sha384(pg_catalog.uuid_send(pg_catalog.gen_random_uuid())), 'base64')"
"""64 characters of base64, without line breaks or padding, from the 122 random bits of a UUID."""
_BITS_OF_A_UUID, _BITS_TO_SPARE = 122, 40
"""An id of few bits less than a UUID has would not be quite uniform."""
_DOUBT = 64
"""The chance that too few characters are left for an id is at most 1 in ``2**64``."""


def _filtered(format: NanoId) -> str:
    alphabet, length = format.alphabet, format.length
    times = len(_BASE64) // len(alphabet)  # how many characters of base64 stand for each one of the alphabet
    meant = [each for each in alphabet if each not in _BASE64] + [*alphabet] * (times - 1)
    others = "".join(each for each in _BASE64 if each not in alphabet)
    count = math.ceil((format.entropy_bits + _BITS_TO_SPARE) / _BITS_OF_A_UUID)
    while _are_too_few(length, count * len(_BASE64), times * len(alphabet)):
        count += 1
    kept = " || ".join([_DIGEST] * count)
    if others:
        kept = f"pg_catalog.translate({kept}, {sql_literal(others)}, {sql_literal(''.join(meant))})"
    return f"pg_catalog.left({kept}, {length})"


def _are_too_few(needed: int, drawn: int, kept: int) -> bool:
    """Return True if the chance is too great that fewer than *needed* of the *drawn* characters of base64 are kept.

    :param kept: how many of the 64 characters are kept.
    """
    all_, left_out = len(_BASE64), len(_BASE64) - kept
    cases = sum(math.comb(drawn, n) * kept**n * left_out ** (drawn - n) for n in range(min(needed, drawn + 1)))
    return bool(cases << _DOUBT > all_**drawn)
