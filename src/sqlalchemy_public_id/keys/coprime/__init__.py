"""Sequential keys, disguised: they visit each string of a space once, in an order that looks random."""

from sqlalchemy_public_id.keys.coprime.format import CoprimeKey
from sqlalchemy_public_id.keys.coprime.keyed import KeyedStep
from sqlalchemy_public_id.keys.coprime.step import CoprimeStep

__all__ = ["CoprimeKey", "CoprimeStep", "KeyedStep"]
