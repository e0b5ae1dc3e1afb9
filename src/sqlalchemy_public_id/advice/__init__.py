"""Migration advice: what goes wrong with public ids in a database, why, and the lines to paste instead.

Errors, :mod:`sqlalchemy_public_id.audit` and the page "Dangerous migrations" of the documentation share these pieces.

>>> piece = about("invalid-index", table="invoice")
>>> piece.title
'An INVALID index left behind'
>>> print(piece.good)
DROP INDEX CONCURRENTLY uq_invoice_public_id;
CREATE UNIQUE INDEX CONCURRENTLY uq_invoice_public_id ON invoice (public_id);
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from sqlalchemy_public_id.advice.piece import Advice, Database
from sqlalchemy_public_id.advice.pieces import PIECES
from sqlalchemy_public_id.naming import not_null_check_name, unique_name

__all__ = ["ADVICE", "Advice", "Database", "about", "as_markdown"]


def about(
    slug: str, *, table: str = "customer", column: str = "public_id", key: str = "id", length: int = 12, **names: str
) -> Advice:
    """Return the piece *slug*, with these names in its lines.

    Names are escaped in Python and for a shell. In SQL they are inserted unquoted.

    :param key: the column of the integer key.
    :param length: the length of the column in characters.
    :param names: ``index`` and ``check``, if they differ from ``uq_<table>_<column>`` and
        ``ck_<table>_<column>_not_null``; ``replaced``, the index or constraint that ``index`` replaces; ``dropped``,
        the index with its schema, for DROP INDEX; ``new`` and ``old``, two formats; ``type``, the column type, if it
        is not a string.
    :raises KeyError: if there is no such piece.

    >>> about("one-update", table="invoice").good
    'public-id backfill "$DATABASE_URL" invoice'
    """
    piece = _TEXTS[slug]
    values = {"index": unique_name(table, column), "check": not_null_check_name(table, column)}
    values |= {"new": "NanoId(length=16)", "old": f"NanoId(length={length})"}
    values |= {"type": f"varchar({length}) CHARACTER SET ascii COLLATE ascii_bin", "replaced": f"{table}_{column}_key"}
    values |= {"dropped": names.get("index", values["index"])}
    values |= {**names, "table": table, "column": column, "key": key, "length": str(length)}
    fill = {"sql": str.format_map, "sh": _fill_shell, "text": _fill_python}[piece.language]
    return replace(piece, bad=fill(piece.bad, values), good=fill(piece.good, values))


def _fill_shell(lines: str, values: Mapping[str, str]) -> str:
    quoted = {name: shlex.quote(value) for name, value in values.items()}
    escaped = {name: re.sub(r'[\\"$`]', r"\\\g<0>", value) for name, value in values.items()}
    # every second part is between double quotes, where a shell expands variables and commands
    parts = enumerate(lines.split('"'))
    return '"'.join(part.format_map(escaped if index % 2 else quoted) for index, part in parts)


def _fill_python(lines: str, values: Mapping[str, str]) -> str:
    # names are between double quotes; formats are code
    names = {name: json.dumps(values[name], ensure_ascii=False)[1:-1] for name in values.keys() - {"new", "old"}}
    return lines.format_map({**values, **names})


def as_markdown() -> str:
    """Return all pieces, as the page of the documentation."""
    head = (
        "# Dangerous migrations\n\n"
        "This page lists what goes wrong when a table gains public ids, the lock of each statement, and the remedy.\n"
        "`op.add_public_id()` and its three phases avoid all of these dangers, and `public-id audit` finds old ones.\n"
        "The page is generated from `sqlalchemy_public_id.advice`, which errors and reports use as well.\n"
    )
    return "\n".join([head, *(piece.as_markdown() for piece in ADVICE.values())])


_TEXTS = {piece.slug: piece for piece in PIECES}

ADVICE: Mapping[str, Advice] = MappingProxyType({slug: about(slug) for slug in _TEXTS})
"""All pieces by slug, in the order of a migration, for the table ``customer``."""
