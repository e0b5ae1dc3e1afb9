"""Keys that step through a space of strings, each once, in an order that looks random."""

from sqlalchemy_public_id.keys.coprime.format import CoprimeKey
from sqlalchemy_public_id.keys.coprime.keyed import KeyedStep
from sqlalchemy_public_id.keys.coprime.step import CoprimeStep

__all__ = ["CoprimeKey", "CoprimeStep", "KeyedStep"]
