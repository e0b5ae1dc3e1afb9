"""What stands in a foreign key between the assignment of a public id and the flush that finds its key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.references.reference import Source

__all__ = ["Waiting"]


@dataclass(frozen=True)
class Waiting:
    """A foreign key that is known by public id only.

    It is kept in the attribute of the foreign key itself, so that a later value replaces it, and ``session.merge()``
    and ``pickle`` carry it along. No driver takes it: what passes the flush by, as ``session.bulk_save_objects()``
    does, is an error, and never a NULL.
    """

    attribute: str
    """The name of the reference."""
    public_id: str
    source: Source = field(repr=False)
    """Where the key is found."""

    def __clause_element__(self) -> NoReturn:
        """As a value in a statement, it is refused."""
        raise self._error()

    def __str__(self) -> NoReturn:
        """As a text, too: the drivers of MySQL and MariaDB send the text of whatever they do not know."""
        raise self._error()

    def _error(self) -> ConfigurationError:
        return ConfigurationError(
            f"{self.attribute} = {self.public_id!r} waits for the next flush to find its key: flush the session before "
            f"the foreign key is used, and assign no reference once a flush has begun. bulk_save_objects() does not "
            f"flush: use add_all(), or bulk.insert()"
        )
