"""Keys in an order that only a secret reveals: format-preserving encryption of the index.

>>> from sqlalchemy_public_id.formats import BASE36
>>> from sqlalchemy_public_id.keys.coprime.keyed import KeyedStep
>>> step = KeyedStep(BASE36, 8, secret=bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c"))  # secrets.token_bytes(16)
>>> step.keys(0, 3)
['lg3x34n7', 'k4g4u9qy', 'pgfb6skv']
>>> step.index("pgfb6skv")
2

The method is FF1 of NIST SP 800-38G (2016), with AES: the n-th key is the encryption of the index, written in *length*
digits of *alphabet*. A permutation has no two equal values, so no key comes twice. The cipher is the one of ``libffx``,
on the AES of ``cryptography``; it is the standard and nothing more, so any other FF1 gives the same keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sqlalchemy_public_id.errors import ConfigurationError, MissingExtra, safe_repr
from sqlalchemy_public_id.formats.alphabets import width_for
from sqlalchemy_public_id.keys.coprime.step import KeySpace

if TYPE_CHECKING:
    from ffx import FF1  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]  # it has none

_FEWEST = 1_000_000
"""From the draft of revision 1 of NIST SP 800-38G: the order of fewer keys can be found by trying."""
_SECRET_BYTES = (16, 24, 32)
_LONGEST_TWEAK = 255


@dataclass(frozen=True, repr=False)
class KeyedStep(KeySpace):
    """The strings of *length* characters of *alphabet*, in an order defined by a *secret*.

    Without the secret, no number of keys reveals which one comes next, or in which order they were issued. With it, all
    can be listed. It can never be changed: another secret is another order, in which issued keys come again. A ``repr``
    does not contain it; a pickle does, and must be kept like the secret.

    Requires ``pip install 'sqlalchemy-public-id[keyed]'``, and some 30 µs per key.

    :raises MissingExtra: if the cipher is not installed.
    :raises ConfigurationError: for settings that cannot work, such as fewer than a million keys.
    """

    alphabet: str
    length: int
    secret: bytes
    """16, 24 or 32 random bytes, for AES-128, AES-192 or AES-256."""
    tweak: bytes = b""
    """Distinguishes sequences with one secret, such as the name of the table. It is no secret."""
    _cipher: ClassVar[FF1]  # each one has its own, set below; as a ClassVar it is no field

    def __post_init__(self) -> None:
        self._describe()
        secret, tweak = self.secret, self.tweak
        if not isinstance(secret, bytes) or len(secret) not in _SECRET_BYTES:
            what = f"of {len(secret)} bytes" if isinstance(secret, bytes) else f"of type {type(secret).__name__}"
            raise ConfigurationError(
                f"the secret is {what}, expected 16, 24 or 32 random bytes: make it once with "
                f"secrets.token_bytes(16), and keep it where passwords are kept"
            )
        if not isinstance(tweak, bytes) or len(tweak) > _LONGEST_TWEAK:
            raise ConfigurationError(f"tweak is {safe_repr(tweak)}, expected up to {_LONGEST_TWEAK} bytes: b'customer'")
        if self.size < _FEWEST:
            raise ConfigurationError(
                f"{len(self.alphabet)}**{self.length} are {self.size} keys, and their order could be found out by "
                f"trying: expected {_FEWEST:,} or more, so length={width_for(len(self.alphabet), _FEWEST)}"
            )
        object.__setattr__(self, "_cipher", _ff1(secret, self.alphabet))

    @property
    def entropy_bits(self) -> float:
        """The bits of a key. With *n* of them issued, a guess hits one in ``size / n``."""
        return self.length * math.log2(len(self.alphabet))

    def _texts(self, first: int, count: int) -> list[str]:
        encrypt, write = self._cipher.encrypt, self._write
        return [encrypt(write(index), tweak=self.tweak) for index in range(first, first + count)]

    def _index(self, text: str) -> int:
        return self._read(self._cipher.decrypt(text, tweak=self.tweak))

    def _shown(self) -> dict[str, str]:
        arguments = super()._shown() | {"secret": "..."}
        if not self.tweak:
            del arguments["tweak"]
        return arguments


def _ff1(secret: bytes, alphabet: str) -> FF1:
    try:
        from ffx import FF1  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:  # of version 1 too, which has no FF1
        raise MissingExtra("libffx", extra="keyed") from error
    return FF1(secret, alphabet=alphabet)
