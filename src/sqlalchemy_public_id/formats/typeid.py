"""TypeIDs: a prefix in small letters, and a UUID of version 7 in 26 characters.

The specification is that of https://github.com/jetify-com/typeid, version 0.3.

>>> format = TypeIdFormat("line_item")
>>> format.timestamp("line_item_01h455vb4pex5vsknk084sn02q").isoformat()
'2023-06-30T03:34:18.518000+00:00'
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats._base import Format
from sqlalchemy_public_id.formats._bits import TimedFormat
from sqlalchemy_public_id.formats.uuids import milliseconds_of_uuid7, next_uuid7

__all__ = ["TypeIdFormat"]

_PREFIX = re.compile(r"[a-z](?:[a-z_]{0,61}[a-z])?")


@dataclass(frozen=True, repr=False)
class TypeIdFormat(TimedFormat):
    """TypeIDs with *prefix*: up to 63 small letters, with ``_`` between them; ``""`` or ``None`` for none.

    New ones encode a UUID of version 7, and sort like those of :class:`~sqlalchemy_public_id.formats.Uuid7`.
    All UUIDs are valid, as the specification demands. Capitals are malformed.

    **An id reveals** when its row was created, to the millisecond; and which of two ids came first.

    :raises ConfigurationError: for a prefix that the specification does not allow.
    """

    prefix: str | None = None
    storage: str = "native"
    separator: str = field(default="_", init=False)
    encoding: str = field(default="typeid", init=False)
    _accepted: tuple[Format, ...] = field(default=(), init=False)

    _encodings: ClassVar[tuple[str, ...]] = ("typeid",)
    _kind: ClassVar[str] = "a UUID"

    def __post_init__(self) -> None:
        if self.prefix == "":
            object.__setattr__(self, "prefix", None)
        if self.prefix is not None and not (isinstance(self.prefix, str) and _PREFIX.fullmatch(self.prefix)):
            raise ConfigurationError(
                f"the prefix {self.prefix!r} is not allowed in a TypeID: "
                f"expected 1 to 63 of a-z and '_', beginning and ending with a letter"
            )
        super().__post_init__()

    @property
    def capacity(self) -> int:
        return 2**122

    @property
    def entropy_bits(self) -> float:
        return 74.0

    def _number(self) -> int:
        return next_uuid7()

    def _milliseconds(self, number: int) -> int | None:
        return milliseconds_of_uuid7(number)
