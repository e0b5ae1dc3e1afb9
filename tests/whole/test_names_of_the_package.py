"""Names of the package, and errors for wrong arguments."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import sqlalchemy_public_id
from sqlalchemy_public_id import PublicIdError, keys
from sqlalchemy_public_id.tokens import Token


def test_dir_of_the_package() -> None:
    """Completion in a shell offers each name of ``__all__``."""
    assert set() == set(sqlalchemy_public_id.__all__) - set(dir(sqlalchemy_public_id))


def test_modules_of_keys() -> None:
    """``import sqlalchemy_public_id.keys.NAME as NAME`` binds a module, whatever module of ``keys`` it is."""
    modules = [importlib.import_module(f"{keys.__name__}.{name}") for _, name, _ in pkgutil.iter_modules(keys.__path__)]

    assert modules == [getattr(keys, module.__name__.rpartition(".")[2]) for module in modules]


@pytest.mark.parametrize("digest", [b"short", None])
def test_digest_of_a_token(digest: bytes | None) -> None:
    """``Token.verify()`` accepts the digest of a nullable column, and checks it: the token does not match, or an error
    of the library names the argument."""
    token = Token("reset")
    try:
        matches = token.verify(token.issue().reveal(), digest)  # type: ignore[arg-type]
    except PublicIdError:
        matches = False

    assert not matches
