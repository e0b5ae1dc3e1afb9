"""TypeIDs: the vectors of the specification."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from sqlalchemy_public_id import ConfigurationError, InvalidPublicId, JetifyTypeId

VECTORS = Path(__file__).parents[1] / "data" / "typeid"
"""From https://github.com/jetify-com/typeid, with their license."""


def vectors(name: str, count: int) -> list[Any]:
    found: list[Any] = json.loads((VECTORS / f"{name}.json").read_text())
    assert len(found) == count
    return [pytest.param(vector, id=vector["name"]) for vector in found]


@pytest.mark.parametrize("vector", vectors("valid", 9))
def test_valid(vector: dict[str, str]) -> None:
    """A valid TypeID is accepted, and stands for its UUID."""
    format = JetifyTypeId(vector["prefix"])

    assert format.validate(vector["typeid"]) == vector["typeid"]
    assert format.to_int(vector["typeid"]) == uuid.UUID(vector["uuid"]).int
    assert format.from_int(uuid.UUID(vector["uuid"]).int) == vector["typeid"]


@pytest.mark.parametrize("vector", vectors("invalid", 21))
def test_invalid(vector: dict[str, str]) -> None:
    """An invalid TypeID is refused: its prefix cannot be declared, or the rest is malformed."""
    prefix, found, _ = vector["typeid"].rpartition("_")
    try:
        format = JetifyTypeId(prefix)
    except ConfigurationError:
        return
    with pytest.raises(InvalidPublicId):
        format.validate(vector["typeid"])
    assert not found or not JetifyTypeId().is_valid(vector["typeid"])


@pytest.mark.parametrize("prefix", ["", "a", "ab", "a__b", "a" * 63])
def test_prefixes(prefix: str) -> None:
    """Prefixes of the specification can be declared; without one, there is no separator. New ids are of version 7."""
    format = JetifyTypeId(prefix)
    text = format.generate()

    assert text.startswith(f"{prefix}_" if prefix else "0")
    assert uuid.UUID(int=format.to_int(text)).version == 7


@pytest.mark.parametrize("prefix", ["_a", "a_", "A", "a1", "a-b", "a" * 64, "é", "a\n", " ", 5])
def test_refused_prefixes(prefix: object) -> None:
    """Other prefixes are refused."""
    with pytest.raises(ConfigurationError, match="is not allowed in a TypeID"):
        JetifyTypeId(prefix)  # type: ignore[arg-type]


def test_no_prefix() -> None:
    """The empty prefix and none are the same."""
    assert JetifyTypeId("") == JetifyTypeId(None) == JetifyTypeId() == JetifyTypeId("a").prefixed(None)
    assert repr(JetifyTypeId("")) == "JetifyTypeId()"
