"""Keys that contain the number of the cluster that generated them: the column, its DDL, and SQL expressions."""

from sqlalchemy_public_id.keys.cluster.column import cluster_key
from sqlalchemy_public_id.keys.cluster.expressions import cluster_of, hex_of, in_cluster, sequence_of

__all__ = ["cluster_key", "cluster_of", "hex_of", "in_cluster", "sequence_of"]
