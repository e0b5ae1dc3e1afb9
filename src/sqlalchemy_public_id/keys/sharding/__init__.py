"""Rows of one model in several databases, each in the one that its public id, its prefix or its key names."""

from __future__ import annotations

from sqlalchemy_public_id.keys.sharding.router import ShardRouter

__all__ = ["ShardRouter"]
