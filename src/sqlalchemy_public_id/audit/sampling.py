"""Samples of the ids of a table, and their forms.

The form of an id is its prefix and its length. If no format is known, the most frequent form is taken as the right one.

>>> forms = forms_of(["cus_izkpm55j334u", "cus_0a1b2c3d4e5f", "izkpm55j334u"])
>>> [str(form) for form, _ in forms.most_common()]
["'cus_' and 12 characters", '12 characters']
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnClause, Connection, column, select, table

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.formats._bits import BitsFormat
from sqlalchemy_public_id.formats.alphabets import MAX_LENGTH
from sqlalchemy_public_id.migrating.catalog import Facts

_LEAD = r"[A-Za-z][A-Za-z0-9_]*?[^A-Za-z0-9]+"
_PREFIXED = re.compile(rf"(?P<lead>{_LEAD})(?P<body>[A-Za-z0-9]+)")
_UUID = re.compile(rf"(?P<lead>{_LEAD})?[0-9a-fA-F]{{8}}(?:-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}}")


@dataclass(frozen=True)
class Form:
    """The common shape of ids of one format."""

    lead: str
    """Prefix and separator, or an empty string."""
    length: int
    """The number of characters that follow."""
    kind: str = "characters"
    """``UUID`` for one with hyphens, ``other characters`` for blanks and non-ASCII."""

    def __str__(self) -> str:
        body = "UUID" if self.kind == "UUID" else f"{self.length} {self.kind}"
        return f"{self.lead!r} and {body}" if self.lead else body


@dataclass(frozen=True)
class Sample:
    """Rows of a table: the first and the last ones by primary key."""

    rows: int
    """The number of rows that were read."""
    missing: int
    """The number of them without an id."""
    ids: tuple[str, ...]
    """The ids of the others. Stored numbers are in the format if it is known, else plain."""


def read(connection: Connection, facts: Facts, size: int, format: Format | None = None) -> Sample:
    """Read at most *size* rows of the table, half of them from either end of its primary key."""
    names = dict.fromkeys((facts.column, *facts.primary_key))
    columns: list[ColumnClause[Any]] = [column(name) for name in names]
    source = table(facts.table, *columns, schema=facts.schema)
    keys = [source.c[name] for name in facts.primary_key]
    query = select(source.c[facts.column].label("shown"), *keys)
    half = max(size // 2, 1)
    rows = connection.execute(query.order_by(*(key.asc() for key in keys)).limit(half if keys else size)).all()
    if keys and len(rows) == half:
        seen = {tuple(row[1:]) for row in rows}
        newest = connection.execute(query.order_by(*(key.desc() for key in keys)).limit(half)).all()
        rows = [*rows, *(row for row in newest if tuple(row[1:]) not in seen)]
    values = [row[0] for row in rows]
    number = traits_for(connection.dialect).from_native

    def text(value: Any) -> str:
        if isinstance(value, str):
            return value
        if isinstance(format, BitsFormat) and format.is_native:
            return format.from_int(number(value))
        return value.hex() if isinstance(value, bytes) else str(value)

    return Sample(len(values), values.count(None), tuple(text(value) for value in values if value is not None))


def forms_of(ids: Iterable[str]) -> Counter[Form]:
    """Count *ids* by form.

    If most ids have a prefix of their own, none of them is a prefix: the alphabet contains the separator.
    """
    values = list(ids)
    candidates = [form_of(text) for text in values]
    leads = Counter(form.lead for form in candidates if form.lead)
    single = sum(1 for count in leads.values() if count == 1)
    enough = max(2, len(values) / 100)
    if len(values) == 1:
        return Counter(candidates)
    real = {lead for lead, count in leads.items() if count >= enough and single <= leads.total() / 2}
    return Counter(
        form if not form.lead or form.lead in real else Form("", len(text))
        for form, text in zip(candidates, values, strict=True)
    )


def form_of(text: str) -> Form:
    """Return the form of one id.

    >>> str(form_of("cus_izkpm55j334u")), str(form_of("0191b2c3-6f1e-7a3b-8c4d-1234567890ab"))
    ("'cus_' and 12 characters", 'UUID')
    """
    if not text.isascii() or not text.isprintable() or " " in text:
        return Form("", len(text), "other characters")
    if len(text) > MAX_LENGTH:
        return Form("", len(text))
    if match := _UUID.fullmatch(text):
        return Form(match["lead"] or "", 36, "UUID")
    if match := _PREFIXED.fullmatch(text):
        return Form(match["lead"], len(match["body"]))
    return Form("", len(text))


def form_in(text: str, forms: Counter[Form]) -> Form:
    """Return the one of *forms* that counts *text*."""
    form = form_of(text)
    return form if form in forms else Form("", len(text))
