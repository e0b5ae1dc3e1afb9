"""Keyed steps: FF1 of NIST SP 800-38G, tested with the samples of NIST."""

from __future__ import annotations

import builtins
import math
import pickle
from typing import Any

import pytest
from support.forks import in_threads

from sqlalchemy_public_id import ConfigurationError, InvalidPublicId
from sqlalchemy_public_id.errors import KeySpaceExhausted, MissingExtra
from sqlalchemy_public_id.formats import BASE36
from sqlalchemy_public_id.keys.coprime.keyed import KeyedStep

pytest.importorskip("ffx")

AES = bytes.fromhex("2B7E151628AED2A6ABF7158809CF4F3CEF4359D8D580AA4F7F036D6F04FC6A94")
DIGITS = BASE36[:10]
NUMBERS = "0123456789"
LETTERS = "0123456789abcdefghi"
TWEAK, OTHER_TWEAK = bytes.fromhex("39383736353433323130"), bytes.fromhex("3737373770717273373737")

SAMPLES = [
    (16, DIGITS, b"", NUMBERS, "2433477484"),
    (24, DIGITS, TWEAK, NUMBERS, "2496655549"),
    (32, BASE36, OTHER_TWEAK, LETTERS, "xs8a0azh2avyalyzuwd"),
]
"""The FF1 samples of NIST (csrc.nist.gov, "FF1samples.pdf"): key size in bytes, alphabet, tweak, plain, cipher."""


@pytest.mark.parametrize(("size", "alphabet", "tweak", "plain", "cipher"), SAMPLES)
def test_samples_of_nist(size: int, alphabet: str, tweak: bytes, plain: str, cipher: str) -> None:
    """The key with a sample's plaintext as its index is the sample's ciphertext, and leads back to the index."""
    step = KeyedStep(alphabet, len(plain), AES[:size], tweak)
    index = int(plain, len(alphabet))

    assert step.key(index) == cipher
    assert step.index(cipher) == index


def test_keys_for_ever() -> None:
    """The keys of a secret never change between versions, because some would repeat."""
    step = KeyedStep(BASE36, 8, AES[:16])

    assert step.keys(0, 3) == ["lg3x34n7", "k4g4u9qy", "pgfb6skv"]


@pytest.mark.usefixtures("restless")
def test_threads() -> None:
    """Threads can share a step: each gets the same keys as a single thread, and each key leads back to its index."""
    step = KeyedStep(BASE36, 8, AES[:16])
    alone = step.keys(0, 200)

    def work() -> list[str]:
        keys = step.keys(0, 200)
        return keys if list(map(step.index, keys)) == list(range(200)) else []

    assert in_threads(8, work) == [alone] * 8


def test_the_last_key() -> None:
    """After the last key an error is raised, and keys of another length are malformed."""
    step = KeyedStep("0123456789", 6, AES[:16], b"order")

    assert step.index(step.key(999_999)) == 999_999
    assert step.entropy_bits == 6 * math.log2(10)
    with pytest.raises(KeySpaceExhausted):
        step.key(10**6)
    with pytest.raises(InvalidPublicId, match="it has 8 characters"):
        step.index("12345678")


def test_the_secret_is_not_shown() -> None:
    """Neither ``repr`` nor an error shows the secret; a pickle contains it, and is equal when loaded."""
    step = KeyedStep(BASE36, 8, AES[:16], b"order")
    with pytest.raises(KeySpaceExhausted) as raised:
        step.key(step.size)

    assert repr(step) == f"KeyedStep(alphabet={BASE36!r}, length=8, tweak=b'order')"
    shown = f"{step!r} {step} {raised.value}"
    assert repr(AES[:16])[2:-1] not in shown
    assert AES[:16].hex() not in shown
    twin = pickle.loads(pickle.dumps(step))
    assert (twin, hash(twin), twin.keys(0, 3)) == (step, hash(step), step.keys(0, 3))
    assert step != KeyedStep(BASE36, 8, AES[16:], b"order")
    with pytest.raises(TypeError, match="secret"):
        eval(repr(step))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"secret": b"x" * 17}, "got 17; expected .* a secret of 16, 24 or 32 random bytes"),
        ({"secret": "x" * 16}, "got str; expected .* a secret of 16, 24 or 32 random bytes"),
        ({"tweak": "order"}, "got str; expected .* a tweak such as b'customer'"),
        ({"length": 3}, "length 3 .* expected 1,000,000 keys or more"),
        ({"alphabet": "01", "length": 19}, "length 19 .* expected 1,000,000 keys or more"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_refused(settings: dict[str, Any], message: str) -> None:
    """Invalid settings raise when the step is declared, and no message shows the secret."""
    with pytest.raises(ConfigurationError, match=message) as raised:
        KeyedStep(**{"alphabet": BASE36, "length": 8, "secret": AES[:16], **settings})

    assert "xxx" not in str(raised.value)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the cipher is not installed, the declaration says what to install."""
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name == "ffx":
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(
        MissingExtra, match=r"libffx is not installed; run: pip install 'sqlalchemy-public-id\[keyed\]'"
    ):
        KeyedStep(BASE36, 8, AES[:16])
