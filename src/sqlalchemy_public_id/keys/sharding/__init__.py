"""Rows of one model in several databases: the public id, its prefix or the key determines the shard."""

from sqlalchemy_public_id.keys.sharding.router import ShardRouter

__all__ = ["ShardRouter"]
