"""Old links with integer keys, from before public ids, which an application accepts until a given day."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from email.utils import format_datetime
from itertools import count
from typing import Any

from sqlalchemy import ColumnElement, Integer

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.ext._mapped import mapper_of
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.orm.inspection import undecorated

log: logging.Logger = logging.getLogger("sqlalchemy_public_id.ext")


@dataclass(frozen=True)
class LegacyKeys:
    """Accept old links, which contain integer keys, until a given day.

    A string that the format accepts is always a public id. Any other string counts as a key if it is a number from 1 to
    *up_to* without leading zeros, and *until* has not passed. The answer to such a link has the headers ``Deprecation``
    (:rfc:`9745`) and ``Sunset`` (:rfc:`8594`). Each old link is logged, with the number of them so far.

    :param up_to: the largest key that links contained before you introduced public ids. Larger keys are never accepted.
    :param until: the last day on which old links work, in UTC.
    :param since: the day on which you introduced public ids, for the header ``Deprecation``; 1970-01-01 by default.
    :raises ConfigurationError: if *up_to* is not a whole number of 1 or more, or a day is not a ``datetime.date``.

    >>> from datetime import date
    >>> keys = LegacyKeys(up_to=48_113, until=date(9999, 6, 1))
    >>> [keys.key_in(text) for text in ("17", "48114", "017", "١٧", "0")]
    [17, None, None, None, None]
    """

    up_to: int
    until: date
    since: date = date(1970, 1, 1)
    _numbers: Any = field(default_factory=lambda: count(1), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if type(self.up_to) is not int or self.up_to < 1:
            raise ConfigurationError(f"up_to is {safe_repr(self.up_to)}, expected a whole number of 1 or more")
        for name in ("until", "since"):
            if type(getattr(self, name)) is not date:
                raise ConfigurationError(f"{name} is {safe_repr(getattr(self, name))}, expected a datetime.date")

    @property
    def pattern(self) -> str:
        """A regular expression for the keys, for documentation. It also matches larger numbers of as many digits."""
        return f"^[1-9][0-9]{{0,{len(str(self.up_to)) - 1}}}$"

    def key_in(self, text: object) -> int | None:
        """Return *text* as a key, or ``None`` if it is not an accepted key."""
        if not isinstance(text, str) or len(text) > len(str(self.up_to)) or _today() > self.until:
            return None
        if not (text.isascii() and text.isdecimal()) or text[0] == "0":
            return None
        key = int(text)
        return key if key <= self.up_to else None

    @property
    def headers(self) -> dict[str, str]:
        """The headers for the answer to an old link. The last day of all, ``date.max``, is not announced."""
        headers = {"Deprecation": f"@{int(_midnight(self.since).timestamp())}"}
        if self.until < date.max:
            headers["Sunset"] = format_datetime(_midnight(self.until) + timedelta(days=1), usegmt=True)
        return headers

    def note(self, model: type[Any]) -> None:
        """Log that a row was requested by its key."""
        log.info("a row of %s was asked for by its key, %d times so far", model.__name__, next(self._numbers))


def key_column(model: type[Any]) -> ColumnElement[int]:
    """Return the integer key of *model*, as an attribute.

    :raises ConfigurationError: if *model* has no single integer key.
    """
    mapper = mapper_of(model)
    columns = [] if mapper is None else [*mapper.primary_key]
    if mapper is None or len(columns) != 1 or not isinstance(undecorated(columns[0].type), Integer):
        raise ConfigurationError(
            f"legacy_keys= needs a model with a single integer key, which {safe_repr(model)} does not have"
        )
    attribute: ColumnElement[int] = getattr(model, mapper.get_property_by_column(columns[0]).key)
    return attribute


def _today() -> date:
    return datetime.now(timezone.utc).date()


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), timezone.utc)
