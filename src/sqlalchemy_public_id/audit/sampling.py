"""A sample of the ids of a table, and the forms they have.

The form of an id is its prefix and its length. Where no format is known, the most frequent form is taken for the right
one.

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
from sqlalchemy_public_id.dialects.catalog import Facts
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.formats._base import MAX_LENGTH
from sqlalchemy_public_id.formats._bits import BitsFormat

__all__ = ["Form", "Sample", "form_in", "form_of", "forms_of", "read"]

_LEAD = r"[A-Za-z][A-Za-z0-9_]*?[^A-Za-z0-9]+"
_PREFIXED = re.compile(rf"(?P<lead>{_LEAD})(?P<body>[A-Za-z0-9]+)")
_UUID = re.compile(rf"(?P<lead>{_LEAD})?[0-9a-fA-F]{{8}}(?:-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}}")


@dataclass(frozen=True)
class Form:
    """What ids of one format have in common, as far as it can be seen."""

    lead: str
    """Prefix and separator, or nothing."""
    length: int
    """How many characters follow."""
    kind: str = "characters"
    """``UUID`` for the usual form of one, ``other characters`` for blanks and what is not ASCII."""

    def __str__(self) -> str:
        body = "UUID" if self.kind == "UUID" else f"{self.length} {self.kind}"
        return f"{self.lead!r} and {body}" if self.lead else body


@dataclass(frozen=True)
class Sample:
    """Some rows of a table: the oldest and the newest ones, as far as the key tells."""

    rows: int
    """How many were read."""
    missing: int
    """How many of them have no id."""
    ids: tuple[str, ...]
    """The ids of the others. Where numbers are stored, as text of the format that is known, or as they are."""


def read(connection: Connection, facts: Facts, size: int, format: Format | None = None) -> Sample:
    """At most *size* rows of the table: half of them from either end of its primary key."""
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
    """How many of *ids* have which form.

    What looks like a prefix is none where most ids have one of their own: their alphabet contains the separator.
    """
    texts = list(ids)
    looks = [form_of(text) for text in texts]
    leads = Counter(form.lead for form in looks if form.lead)
    single = sum(1 for count in leads.values() if count == 1)
    enough = max(2, len(texts) / 100)
    if len(texts) == 1:
        return Counter(looks)
    real = {lead for lead, count in leads.items() if count >= enough and single <= leads.total() / 2}
    return Counter(
        form if not form.lead or form.lead in real else Form("", len(text))
        for form, text in zip(looks, texts, strict=True)
    )


def form_of(text: str) -> Form:
    """The form of one id.

    >>> str(form_of("cus_izkpm55j334u")), str(form_of("0191b2c3-6f1e-7a3b-8c4d-1234567890ab"))
    ("'cus_' and 12 characters", 'UUID')
    """
    if not text.isascii() or not text.isprintable() or " " in text:
        return Form("", len(text), "other characters")
    if len(text) > MAX_LENGTH:
        return Form("", len(text))
    found = _UUID.fullmatch(text)
    if found is not None:
        return Form(found["lead"] or "", 36, "UUID")
    found = _PREFIXED.fullmatch(text)
    return Form("", len(text)) if found is None else Form(found["lead"], len(found["body"]))


def form_in(text: str, forms: Counter[Form]) -> Form:
    """The one of *forms* that *text* was counted for."""
    form = form_of(text)
    return form if form in forms else Form("", len(text))
