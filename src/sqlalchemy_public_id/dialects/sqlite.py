"""SQLite: a failed statement is rolled back alone; the error message names the violated columns."""

from __future__ import annotations

import re

from sqlalchemy_public_id.dialects._base import ManyRows, Traits, Violation

__all__ = ["SQLite"]

_UNIQUE = re.compile(r"UNIQUE constraint failed: (index '(?P<index>.*)'|(?P<columns>.*))\s*$", re.DOTALL)


class SQLite(Traits):
    """SQLite, through any driver."""

    retries = True
    aborts_transaction = False
    returns_in_order = False  # SQLAlchemy sends one INSERT for each object of a flush
    many_rows = ManyRows.ROW_BY_ROW
    max_parameters = 32_766  # SQLITE_MAX_VARIABLE_NUMBER since 3.32

    def violation(self, error: Exception) -> Violation | None:
        found = _UNIQUE.search(str(error))
        if found is None:
            return None
        if found["index"] is not None:
            return Violation(constraint=found["index"])
        return Violation(columns=found["columns"])
