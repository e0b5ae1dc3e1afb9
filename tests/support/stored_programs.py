"""Read the text of a stored program as the triggers, functions and views of a database are read, without a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy_public_id.migrations.postgresql import stored_code as postgresql
from sqlalchemy_public_id.migrations.stored_code.programs import Reader, StoredCode
from sqlalchemy_public_id.migrations.stored_code.scope import Language, Program
from sqlalchemy_public_id.migrations.stored_code.shapes import Change, Shape

RELATIONS: Mapping[str, Sequence[str]] = {
    "audit": ["op", "at", "who", "id", "total"],
    "archive": ["id", "total"],
    "prepared": ["id", "total", "public_id"],
    "signed": ["id", "total", "changed_by"],
    "other": ["id", "public_id"],
}
"""The relations beside ``invoice``, and their columns."""


def read(
    text: str,
    language: Language = postgresql.LANGUAGE,
    *,
    adds: bool = True,
    more: Mapping[str, Shape] | None = None,
    **options: Any,
) -> StoredCode:
    """Read a program of a trigger of the table ``invoice``, which has the columns id and total."""
    change = Change("public_id", adds)
    table = change.of(["id", "total"] if adds else ["id", "total", "public_id"])
    variables = {"new": table, "old": table, "new_table": table, **(more or {})}
    returned_by: dict[str, Shape] = {"invoices": table}
    reader = Reader(
        language, change, table, lambda path: path[-1] == "invoice", lambda path: RELATIONS.get(path[-1]), returned_by
    )
    return reader.read([Program("f", text, variables, **options)])


def problems(text: str, language: Language = postgresql.LANGUAGE, **options: Any) -> list[str]:
    """Return what is wrong with the statements of a program."""
    return [finding.problem for finding in read(text, language, **options).by_position]
