"""Generate and check tokens, without the database.

.. code-block:: text

    reset_<random><checksum>
    reset_<random><signature><checksum>

* **random**: random bits from the operating system, in base 62.
* **signature**, with ``signing_keys=``: the first 128 bits of HMAC-SHA256 of everything before it, in base 62.
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
from collections.abc import Sequence
from typing import Any, Final, NoReturn, TypeAlias, cast

from typing_extensions import Never, Self

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
_KEY_BYTES = 32
"""The fewest bytes of a signing key: as many as SHA-256 returns (RFC 2104, 3)."""
_SIGNATURE_BYTES = 16
_SIGNATURE_WIDTH = 22
"""The characters of 128 bits in base 62."""
_write_signature = writer_of(BASE62, _SIGNATURE_WIDTH)
_PURPOSE = b"sqlalchemy-public-id token\0"
"""Precedes what is signed, so that no signature for another purpose, by the same key, is one of a token."""


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
    :param signing_keys: a list of secret keys, each of 32 random bytes or more. The first one signs new tokens, and all
        of them verify: to rotate keys, append a new one, and move it to the front when all processes have it. Text
        without a valid signature is refused without a query. By default, tokens are not signed.
    :param accept_unsigned: True to accept tokens without a signature, too, which were issued before *signing_keys* was
        set. While it is True, a signature proves nothing, because it can be left out.
    :raises ConfigurationError: for invalid settings, and for a ``format``, because public ids are not tokens.

    ``repr()``, errors and logs do not show the keys, and a kind of tokens with keys cannot be pickled.

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

    __slots__ = (
        "_bytes",
        "_random_width",
        "_regex",
        "_signed_width",
        "_signer",
        "_unsigned_width",
        "pattern",
        "prefix",
    )

    def __init__(
        self,
        prefix: str,
        *,
        bytes: int = 32,
        signing_keys: Sequence[Bytes] | None = None,
        accept_unsigned: bool = False,
        **unknown: Never,
    ) -> None:
        signer = None if signing_keys is None else _signer(signing_keys)
        del signing_keys  # error reports show local variables
        if isinstance(signer, str):
            raise ConfigurationError(signer)
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
        if not isinstance(accept_unsigned, bool) or (accept_unsigned and not signer):
            raise ConfigurationError(
                f"accept_unsigned is {_short(accept_unsigned)}, expected True or False; True needs signing_keys, "
                f"because without them no token is signed"
            )
        self.prefix = prefix
        self._signer = signer
        self._bytes = bytes
        self._random_width = math.ceil(8 * bytes / math.log2(len(BASE62)))
        unsigned = len(prefix) + 1 + self._random_width + _CHECKSUM_WIDTH
        self._signed_width = unsigned + _SIGNATURE_WIDTH if signer else None
        self._unsigned_width = unsigned if accept_unsigned or not signer else None
        widths = [width for width in (self._signed_width, self._unsigned_width) if width]
        forms = [f"{prefix}_[0-9A-Za-z]{{{width - len(prefix) - 1}}}" for width in widths]
        own = forms[0] if len(forms) == 1 else f"(?:{'|'.join(forms)})"
        self.pattern = rf"\b{own}\b"
        self._regex = re.compile(own, re.ASCII)

    def issue(self) -> IssuedToken:
        """Generate a new token, signed with the first of the signing keys."""
        text = f"{self.prefix}_{''.join(secrets.choice(BASE62) for _ in range(self._random_width))}"
        if self._signer:
            text += self._signer.sign(text)
        return IssuedToken(self.prefix, text + _checksum(text))

    def is_token(self, text: object) -> bool:
        """Return True if *text* has the form, the checksum and, with ``signing_keys``, the signature of these tokens.

        It may be expired or used, and without ``signing_keys`` forged.
        """
        if not isinstance(text, str) or len(text) not in (self._signed_width, self._unsigned_width):
            return False
        if not self._regex.fullmatch(text) or text[-_CHECKSUM_WIDTH:] != _checksum(text[:-_CHECKSUM_WIDTH]):
            return False
        if self._signer is None or len(text) == self._unsigned_width:
            return True
        end = len(text) - _CHECKSUM_WIDTH - _SIGNATURE_WIDTH
        return self._signer.verify(text[:end], text[end:-_CHECKSUM_WIDTH])

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
        if not hasattr(self, "_regex"):
            return "<Token>"  # its settings are invalid
        signed = f", signing_keys={self._signer!r}" if self._signer else ""
        accepting = ", accept_unsigned=True" if self._signer and self._unsigned_width else ""
        return f"Token({self.prefix!r}, bytes={self._bytes}{signed}{accepting})"

    def __copy__(self, memo: object = None) -> Self:
        return self

    __deepcopy__ = __copy__

    def __reduce__(self) -> tuple[Any, ...]:
        if self._signer:
            return self._signer.__reduce__()
        return _rebuild, (type(self), self.prefix, self._bytes)


def _rebuild(cls: type[Token], prefix: str, bytes: int) -> Token:
    return cls(prefix, bytes=bytes)


class _Signer:
    """Signs with the first key, and verifies with all of them. Its ``repr`` does not show them."""

    __slots__ = ("__keys",)

    def __init__(self, keys: Sequence[Bytes]) -> None:
        self.__keys = (*keys,)

    def __repr__(self) -> str:
        return f"<{len(self.__keys)} of them>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Token with signing_keys cannot be pickled, because its secret keys would stay there; create it in each "
            "process"
        )

    def sign(self, text: str) -> str:
        return _signature(self.__keys[0], text)

    def verify(self, text: str, signature: str) -> bool:
        # all keys are tried, so the time does not tell which one has signed
        signed_by = [hmac.compare_digest(_signature(key, text), signature) for key in self.__keys]
        return any(signed_by)


def _signature(key: Bytes, text: str) -> str:
    digest = hmac.digest(key, _PURPOSE + text.encode("ascii"), "sha256")
    return _write_signature(int.from_bytes(digest[:_SIGNATURE_BYTES], "big"))


def _signer(keys: object) -> _Signer | str:
    """Return the signer with these keys, or what is wrong with them, in words that do not show them."""
    advice = (
        f"expected a list of keys, each of {_KEY_BYTES} random bytes or more: generate one with "
        f"secrets.token_bytes({_KEY_BYTES}), keep it where passwords are kept, and read hexadecimal text with "
        f"bytes.fromhex(text)"
    )
    if not isinstance(keys, (list, tuple)):
        return f"signing_keys is {concealed(keys)}, {advice}"
    given = cast("Sequence[Any]", keys)
    wrong = [key for key in given if not isinstance(key, Bytes) or len(key) < _KEY_BYTES]
    if wrong or not given:
        return f"signing_keys {f'has {concealed(wrong[0])}' if wrong else 'is empty'}, {advice}"
    return _Signer(given)


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
    return f"Token has no option {', '.join(unknown)}; expected prefix, bytes, signing_keys and accept_unsigned"
