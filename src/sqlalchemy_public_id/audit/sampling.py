"""Samples of the ids of a table, and their forms.

The form of an id is its prefix and its length. If no format is known, the most frequent form is taken as the right one.

>>> forms_of(["cus_izkpm55j334u", "cus_0a1b2c3d4e5f", "izkpm55j334u"])
{"'cus_' and 12 characters": ['cus_izkpm55j334u', 'cus_0a1b2c3d4e5f'], '12 characters': ['izkpm55j334u']}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnClause, Connection, column, func, literal, select, table

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.formats._bits import BitsFormat
from sqlalchemy_public_id.formats.alphabets import MAX_LENGTH, is_printable
from sqlalchemy_public_id.formats.guess import UUID_TEXT, split
from sqlalchemy_public_id.migrating import PublicIdColumn


@dataclass(frozen=True)
class Sample:
    """Rows of a table: the first and the last ones by primary key."""

    rows: int
    """The number of rows that were read."""
    missing: int
    """The number of them without an id."""
    ids: tuple[str, ...]
    """The ids of the others. Stored numbers are in the format if it is known, else plain."""
    is_text: bool = True
    """True if the database returns all of them as strings."""


def read(
    connection: Connection, target: PublicIdColumn, primary_key: Sequence[str], size: int, format: Format | None = None
) -> Sample:
    """Read at most *size* rows of the table, half of them from either end of its primary key.

    :param format: the format of the ids, if it is known.
    """
    columns: list[ColumnClause[Any]] = [column(name) for name in dict.fromkeys((target.column, *primary_key))]
    source = table(target.table, *columns, schema=target.schema)
    keys = [source.c[name] for name in primary_key]
    query, half = select(source.c[target.column]), max(size // 2, 1)
    oldest = query.order_by(*(key.asc() for key in keys)).limit(half if keys else size)
    values: list[Any] = [*connection.scalars(oldest)]
    if keys and len(values) == half:
        some = select(literal(1)).select_from(source).limit(size).subquery()
        others = (connection.scalar(select(func.count()).select_from(some)) or 0) - half
        values += connection.scalars(query.order_by(*(key.desc() for key in keys)).limit(max(others, 0)))
    number = traits_for(connection.dialect).from_native

    def text(value: Any) -> str:
        if isinstance(value, str):
            return value
        if isinstance(format, BitsFormat) and format.is_native:
            return format.from_int(number(value))
        return value.hex() if isinstance(value, bytes) else str(value)

    stored = [value for value in values if value is not None]
    is_text = all(isinstance(value, str) for value in stored)
    return Sample(len(values), values.count(None), tuple(map(text, stored)), is_text)


def forms_of(ids: Sequence[str]) -> dict[str, list[str]]:
    """Return the *ids* of each form, the most frequent one first.

    If most ids have a prefix of their own, none of them is a prefix: the alphabet contains the separator.
    """
    leads = Counter(lead for lead in map(_lead, ids) if lead)
    single = sum(1 for count in leads.values() if count == 1)
    enough = max(2, len(ids) / 100)
    real = {lead for lead, count in leads.items() if count >= enough and single <= leads.total() / 2}
    forms: dict[str, list[str]] = {}
    for text in ids:
        lead = _lead(text)
        forms.setdefault(_form(text, lead if lead in real or len(ids) == 1 else ""), []).append(text)
    return dict(sorted(forms.items(), key=lambda form: -len(form[1])))


def _lead(text: str) -> str:
    """Return prefix and separator of *text*, or an empty string."""
    return "".join(split(text)[:2]) if len(text) <= MAX_LENGTH and is_printable(text) else ""


def _form(text: str, lead: str) -> str:
    if not is_printable(text):
        return f"{len(text)} other characters"
    body = text[len(lead) :]
    described = "UUID" if len(body) == 36 and UUID_TEXT.fullmatch(body) else f"{len(body)} characters"
    return f"{lead!r} and {described}" if lead else described
