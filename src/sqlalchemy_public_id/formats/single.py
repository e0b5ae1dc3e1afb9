"""The format of a single id, such as that of a row for the whole world."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats._base import Format
from sqlalchemy_public_id.formats.alphabets import escaped, is_printable


@dataclass(frozen=True, eq=False, repr=False)
class SingleId(Format):
    """The format of a single id, such as ``"__world__"`` in ``accepting("__world__")``."""

    text: str
    prefix: str | None = field(default=None, init=False)
    separator: str = field(default="_", init=False)
    _accepted: tuple[Format, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        if not is_printable(self.text):
            raise ConfigurationError(f"the id {self.text!r} is not allowed: expected printable ASCII characters")
        self._describe(escaped(self.text), len(self.text), repr(self.text))

    @property
    def capacity(self) -> int:
        return 1

    @property
    def entropy_bits(self) -> float:
        return 0.0

    def _make(self, count: int) -> list[str]:
        return [self.text] * count

    def __repr__(self) -> str:
        return repr(str(self.text))
