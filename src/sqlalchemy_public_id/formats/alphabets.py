"""Alphabets for random ids, as named constants.

Each is a plain string in a fixed order; any string of different printable ASCII characters is an alphabet too.
"""

from __future__ import annotations

from typing import Final

__all__ = ["BASE36", "BASE58", "BASE62", "CROCKFORD32", "UNAMBIGUOUS", "URLSAFE64"]

BASE36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
"""Digits and small letters, the default: a double click selects all of an id, and no system folds its case."""

BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
"""Bitcoin's alphabet: digits and letters without ``0 O I l``."""

BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""Digits and letters of both cases."""

URLSAFE64: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
"""RFC 4648's URL-safe alphabet. It contains ``-`` and ``_``: a double click may select a part of an id, and a prefix
needs another separator."""

CROCKFORD32: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's base 32: no ``I L O U``. NanoIds are compared exactly; their case is not folded."""

UNAMBIGUOUS: Final = "6789bcdfghjkmnpqrtwz"
"""No vowels and no look-alikes (``0 O 1 I l 2 Z 5 S`` …): ids spell no words, and can be dictated by telephone."""
