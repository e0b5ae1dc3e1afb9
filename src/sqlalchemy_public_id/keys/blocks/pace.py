"""How large the next block is: about what one second needs."""

from __future__ import annotations

from sqlalchemy_public_id.errors import ConfigurationError, shown

__all__ = ["FIRST", "LARGEST", "Pace", "SMALLEST"]

FIRST = 100
"""The size of the first block, where none was given."""
SMALLEST = 10
LARGEST = 1_000_000
"""The bounds of what the size adapts to."""

_MOST = 2**63 - 1
"""What a ``BIGINT`` holds: no sequence has more."""
_SECONDS = 1.0
_FASTER, _SLOWER = 10, 0.5


class Pace:
    """The size of the next block: always *block*, or what was needed in a second lately.

    It grows tenfold at most and shrinks by half at most, from one block to the next.

    >>> pace = Pace(None)
    >>> pace.size, pace.after(seconds=0.001, issued=100), pace.after(seconds=2.0, issued=4000)
    (100, 1000, 2000)
    """

    def __init__(self, block: int | None) -> None:
        if block is not None and (not isinstance(block, int) or isinstance(block, bool) or not 1 <= block <= _MOST):
            raise ConfigurationError(
                f"block is {shown(block)}, expected how many keys to lease at once, 1 to {_MOST}, "
                f"or nothing for a number that adapts to the rate"
            )
        self._is_fixed = block is not None
        self.size: int = FIRST if block is None else block

    def after(self, *, seconds: float, issued: int) -> int:
        """The size of the next block, where *issued* keys were used in the *seconds* since the last one."""
        if issued and not self._is_fixed:
            wanted = issued * _SECONDS / max(seconds, 1e-6)
            wanted = min(max(wanted, self.size * _SLOWER), self.size * _FASTER)
            self.size = int(min(max(wanted, SMALLEST), LARGEST))
        return self.size
