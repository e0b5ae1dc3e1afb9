"""The orders in which the numbers of a counter become ids, as rows beside it.

The same numbers in another order would repeat ids, and programs that differ in a setting need not know each other. The
table of counters has a row for each order, so it needs no other column: its name begins with a blank, which no name of
a counter does, and its number means nothing.
"""

from __future__ import annotations

import hashlib
import logging

from sqlalchemy import Connection, Table, insert, select

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError

logger: logging.Logger = logging.getLogger("sqlalchemy_public_id")
_LAST = "~"
"""Sorted after each order: texts are compared byte by byte."""
_LONGEST = 80
"""The length of a text that leaves space for the order in the name of a row."""


class Orders:
    """The orders that the formats of this program have for the numbers of the counter *name*."""

    def __init__(self, table: Table, name: str) -> None:
        self._table = table
        self._name = name
        self._claimed: dict[str, str] = {}
        self._compared: set[str] = set()

    def claim(self, ids: str, order: str) -> None:
        """Have the next lease compare the *order* of *ids* with that of the table."""
        if self._claimed.setdefault(ids, order) != order:
            raise ConfigurationError(
                f"two formats count {ids} with {self._name!r} in different orders, so ids would be repeated: give them "
                f"equal steps, or two sequences and two prefixes"
            )

    def compare(self, connection: Connection) -> list[str]:
        """Compare new claims with the table, and add those that it lacks; return them, to be kept after a COMMIT.

        :raises ConfigurationError: if ids were counted in another order.
        """
        new = [ids for ids in self._claimed if ids not in self._compared]
        names, comparable = self._table.c.name, traits_for(connection.dialect).comparable_text
        for ids in new:
            start = self._start_of(ids)
            is_of = comparable(names).between(comparable(start), comparable(start + _LAST))
            found = connection.scalars(select(names).where(is_of)).all()
            own = start + self._claimed[ids]
            others = [row for row in found if row != own]
            if others:
                raise ConfigurationError(
                    f"other settings have made {ids} of the numbers of {self._name!r}, so ids would be repeated: "
                    f"restore their step, start, alphabet or secret, or continue with longer keys, another prefix or "
                    f"another sequence; if no id was made with them, delete the row {others[0]!r} of "
                    f"{self._table.fullname}"
                )
            if not found:
                connection.execute(insert(self._table).values(name=own, next=0))
        return new

    def keep(self, compared: list[str]) -> None:
        """Compare no more what :meth:`compare` has returned."""
        self._compared.update(compared)

    @property
    def are_compared(self) -> bool:
        return self._compared.issuperset(self._claimed)

    def skip(self) -> None:
        """Compare nothing from now on, and log it: this role may not add rows."""
        self._compared.update(self._claimed)
        logger.warning(
            "nobody compares the order in which %r is counted with that of other programs, because this role may not "
            "add rows to %s; grant it INSERT there",
            *(self._name, self._table.fullname),
        )

    def _start_of(self, ids: str) -> str:
        text = f" {self._name}: {ids} "
        return (
            text if len(text) <= _LONGEST and text.isascii() else f" {hashlib.sha256(text.encode()).hexdigest()[:32]} "
        )
