"""Keys that a database coordinates: leased in blocks, sequential but disguised, or marked with a cluster."""

from sqlalchemy_public_id.keys.blocks import BlockAllocator, block_key
from sqlalchemy_public_id.keys.cluster import cluster_key, cluster_of, hex_of, in_cluster, sequence_of
from sqlalchemy_public_id.keys.coprime import CoprimeKey, CoprimeStep, KeyedStep
from sqlalchemy_public_id.keys.ranges import ClusterKey, Range, Ranges, range_of
from sqlalchemy_public_id.keys.sharding import ShardRouter

__all__ = [
    "block_key",
    "BlockAllocator",
    "ClusterKey",
    "cluster_key",
    "cluster_of",
    "CoprimeKey",
    "CoprimeStep",
    "hex_of",
    "in_cluster",
    "KeyedStep",
    "Range",
    "range_of",
    "Ranges",
    "sequence_of",
    "ShardRouter",
]
