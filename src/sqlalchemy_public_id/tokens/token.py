"""Generate and check tokens, without the database.

.. code-block:: text

    reset_<random><checksum>

* **random**: random bits from the operating system, in base 62.
* **checksum**: CRC-32 of everything before it, as in the tokens of GitHub and npm. With it, a secret scanner can tell a
  leaked token from similar text. A CRC detects every change of a single character.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
import zlib
from typing import Final, NoReturn, TypeAlias

from typing_extensions import Never

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import BASE62, Format
from sqlalchemy_public_id.formats.alphabets import writer_of
from sqlalchemy_public_id.messages import concealed, safe_repr

Bytes: TypeAlias = bytes  # `bytes` is an argument below

DIGEST_BYTES: Final = 32
"""The length of a SHA-256 digest."""

_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}", re.ASCII)
_FEWEST, _MOST = 16, 64
_CHECKSUM_WIDTH = 6


class IssuedToken:
    """A new token: its digest for the database, and its text for the receiver.

    Only :meth:`reveal` shows the text. ``repr``, ``str``, logs and tracebacks show only the prefix, and a token cannot
    be pickled or copied.
    """

    __slots__ = ("__text", "_prefix", "digest")

    digest: Bytes
    """SHA-256 of the text, 32 bytes, to be stored."""

    def __init__(self, prefix: str, text: str) -> None:
        self._prefix = prefix
        self.__text = text
        self.digest = _digest(text)

    def reveal(self) -> str:
        """Return the text. Send it without storing it; it cannot be recovered from the digest."""
        return self.__text

    def __repr__(self) -> str:
        return f"<IssuedToken {self._prefix}_…>" if hasattr(self, "_prefix") else "<IssuedToken>"

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be pickled or copied, because its secret text would stay there; pass on issued.digest"
        )


class Token:
    """One kind of token, such as for resetting passwords.

    :param prefix: the beginning of each token, which people and scanners recognize: ``"reset"``.
    :param bytes: the number of random bytes, at least 16. 32 bytes cannot be guessed.
    :raises ConfigurationError: for invalid settings, and for a ``format``, because public ids are not tokens.

    >>> share = Token("share")
    >>> issued = share.issue()
    >>> issued
    <IssuedToken share_…>
    >>> text = issued.reveal()
    >>> len(text), share.is_token(text), share.is_token(text[:-1] + "~")
    (55, True, False)
    >>> share.verify(text, issued.digest)
    True
    """

    prefix: str
    """The beginning of each token, before the ``_``."""
    pattern: str
    r"""A regular expression for secret scanners. It is not anchored: it begins and ends with ``\b``, and finds tokens
    inside other text."""

    __slots__ = ("_bytes", "_random_width", "_regex", "_width", "pattern", "prefix")

    def __init__(self, prefix: str, *, bytes: int = 32, **unknown: Never) -> None:
        if unknown or isinstance(prefix, Format):
            raise ConfigurationError(_refusal(prefix, *unknown))
        if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
            raise ConfigurationError(
                f"the prefix {_short(prefix)} is not allowed: expected up to 32 ASCII letters, digits and '_', "
                f"beginning with a letter"
            )
        if not isinstance(bytes, int) or not _FEWEST <= bytes <= _MOST:
            raise ConfigurationError(
                f"bytes is {_short(bytes)}, expected a whole number from {_FEWEST} to {_MOST}: a guessed token is a "
                f"permission, and fewer than {8 * _FEWEST} bits can be guessed"
            )
        self.prefix = prefix
        self._bytes = bytes
        self._random_width = math.ceil(8 * bytes / math.log2(len(BASE62)))
        self._width = len(prefix) + 1 + self._random_width + _CHECKSUM_WIDTH
        own = f"{prefix}_[0-9A-Za-z]{{{self._width - len(prefix) - 1}}}"
        self.pattern = rf"\b{own}\b"
        self._regex = re.compile(own, re.ASCII)

    def issue(self) -> IssuedToken:
        """Generate a new token."""
        text = f"{self.prefix}_{''.join(secrets.choice(BASE62) for _ in range(self._random_width))}"
        return IssuedToken(self.prefix, text + _checksum(text))

    def is_token(self, text: object) -> bool:
        """Return True if *text* has the form and the checksum of these tokens. It may be forged or expired."""
        if not isinstance(text, str) or len(text) != self._width or not self._regex.fullmatch(text):
            return False
        return text[-_CHECKSUM_WIDTH:] == _checksum(text[:-_CHECKSUM_WIDTH])

    def digest(self, text: object) -> Bytes | None:
        """Return the digest of *text*, to find its row; ``None`` if *text* is not a token."""
        return _digest(text) if isinstance(text, str) and self.is_token(text) else None

    def verify(self, text: object, digest: Bytes) -> bool:
        """Return True if *text* is a token with this *digest*, which is compared in constant time.

        :raises ConfigurationError: if *digest* is not ``bytes``, such as ``None`` from a row without a token.
        """
        if not isinstance(digest, (Bytes, bytearray, memoryview)):
            raise ConfigurationError(
                f"digest is {concealed(digest)}, expected {DIGEST_BYTES} bytes; a row without a digest has no token, "
                f"so check for None before"
            )
        expected = self.digest(text)
        return expected is not None and hmac.compare_digest(expected, digest)

    def __repr__(self) -> str:
        return f"Token({self.prefix!r}, bytes={self._bytes})" if hasattr(self, "_width") else "<Token>"  # or invalid


def _digest(text: str) -> Bytes:
    return hashlib.sha256(text.encode("ascii")).digest()


def _checksum(text: str) -> str:
    return writer_of(BASE62, _CHECKSUM_WIDTH)(zlib.crc32(text.encode("ascii")))


def _short(value: object) -> str:
    """Return the representation of *value*, unless it may be a token."""
    is_short = len(value) < _FEWEST if isinstance(value, str) else value is None or isinstance(value, (int, float))
    return safe_repr(value) if is_short else concealed(value)


def _refusal(prefix: object, *unknown: str) -> str:
    if isinstance(prefix, Format) or "format" in unknown:
        return (
            "a token takes no format: public ids are short, or in the order of time, and can be guessed by that; "
            "a token is all random, and has a form of its own: Token(prefix='reset')"
        )
    return f"Token has no option {', '.join(unknown)}; expected prefix and bytes"
