"""Keys in an order that only a secret reveals: format-preserving encryption of the index.

>>> from sqlalchemy_public_id.formats import BASE36
>>> from sqlalchemy_public_id.keys.coprime.keyed import KeyedStep
>>> step = KeyedStep(BASE36, 8, secret=bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c"))  # secrets.token_bytes(16)
>>> step.keys(0, 3)
['lg3x34n7', 'k4g4u9qy', 'pgfb6skv']
>>> step.index("pgfb6skv")
2

The method is FF1 of NIST SP 800-38G (2016), with AES: the n-th key is the encryption of the index, written in *length*
digits of *alphabet*. Encryption is a permutation, so no key is repeated. The cipher comes from ``libffx``, with the AES
of ``cryptography``; any other implementation of FF1 generates the same keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from sqlalchemy_public_id.errors import ConfigurationError, MissingExtra
from sqlalchemy_public_id.formats.alphabets import reader_of, writer_of
from sqlalchemy_public_id.keys.coprime.step import KeySpace

if TYPE_CHECKING:
    from ffx import FF1  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]  # it has none


@dataclass(frozen=True)
class KeyedStep(KeySpace):
    """The strings of *length* characters of *alphabet*, in an order defined by a *secret*.

    Without the secret, keys reveal neither which one comes next nor the order in which they were issued; with it, all
    can be listed. The secret must never change, because another order would issue existing keys again. A ``repr`` does
    not contain the secret; a pickle does, and must be kept as safe as the secret.

    Requires ``pip install 'sqlalchemy-public-id[keyed]'``, and about 30 µs per key.

    :raises MissingExtra: if the cipher is not installed.
    :raises ConfigurationError: for invalid settings, such as fewer than a million keys, whose order could be found by
        brute force (draft of revision 1 of NIST SP 800-38G).
    """

    alphabet: str
    length: int
    secret: bytes = field(repr=False)
    """16, 24 or 32 random bytes, for AES-128, AES-192 or AES-256."""
    tweak: bytes = b""
    """Distinguishes sequences that share one secret: for example, the name of the table. It is not secret."""
    _cipher: ClassVar[FF1]  # each object has its own, set below; a ClassVar is not a field

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            from ffx import FF1  # pyright: ignore[reportMissingTypeStubs]
        except ImportError as error:  # also raised by version 1, which has no FF1
            raise MissingExtra("libffx", extra="keyed") from error
        try:
            for given in (self.secret, self.tweak):
                if not isinstance(given, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
                    raise TypeError(f"expected bytes, got {type(given).__name__}")
            object.__setattr__(self, "_cipher", FF1(self.secret, alphabet=self.alphabet))
            self._text(0)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"FF1 refuses these settings: {error}; expected 1,000,000 keys or more, a tweak such as b'customer', "
                f"and a secret of 16, 24 or 32 random bytes: generate it once with secrets.token_bytes(16); keep it "
                f"where passwords are kept"
            ) from error

    @property
    def entropy_bits(self) -> float:
        """The bits of a key. With *n* keys issued, one guess in ``size / n`` hits an issued key."""
        return self.length * math.log2(len(self.alphabet))

    def _text(self, index: int) -> str:
        return str(self._cipher.encrypt(writer_of(self.alphabet, self.length)(index), tweak=self.tweak))

    def _index(self, text: str) -> int:
        return reader_of(self.alphabet)(self._cipher.decrypt(text, tweak=self.tweak))
