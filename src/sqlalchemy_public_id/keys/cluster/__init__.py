"""Keys that contain the number of the cluster that generated them: the column, its DDL, and SQL expressions.

The expressions for the cluster, the sequence, the range and the digits work on every database.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Integer, String, literal_column, or_
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import BigInteger

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.keys.cluster.column import cluster_key, resolved
from sqlalchemy_public_id.keys.ranges import LAST_SEQUENCE, SEQUENCE_BITS, range_of

__all__ = ["cluster_key", "cluster_of", "hex_of", "in_cluster", "sequence_of"]


def cluster_of(column: Any) -> ColumnElement[int]:
    """Return an expression for the cluster of the keys in *column*, to select and to group by.

    To filter, use :func:`in_cluster`, which is served by an index.

    >>> from sqlalchemy import func, select
    >>> print(select(cluster_of(User.id), func.count()).group_by(cluster_of(User.id)))  # doctest: +NORMALIZE_WHITESPACE
    SELECT "user".id >> 48 AS anon_1, count(*) AS count_1
    FROM "user" GROUP BY "user".id >> 48
    """
    # literals instead of parameters: PostgreSQL needs the same expression in GROUP BY, and shifts by a 32-bit integer
    shifted: ColumnElement[int] = column.bitwise_rshift(literal_column(str(SEQUENCE_BITS), Integer()))
    return shifted


def sequence_of(column: Any) -> ColumnElement[int]:
    """Return an expression for the sequence number of each key in *column* within its cluster.

    >>> print(sequence_of(User.id))
    "user".id & 281474976710655
    """
    masked: ColumnElement[int] = column.bitwise_and(literal_column(str(LAST_SEQUENCE), BigInteger()))
    return masked


def in_cluster(column: Any, *clusters: int) -> ColumnElement[bool]:
    """Match keys in *column* that belong to one of *clusters*, by ranges that use the index of the key.

    >>> print(in_cluster(User.id, 10))
    "user".id BETWEEN :id_1 AND :id_2

    :raises ConfigurationError: without a cluster, or for an invalid cluster number.
    """
    if not clusters:
        raise ConfigurationError("in_cluster() needs at least one cluster")
    ranges = [range_of(resolved(cluster)) for cluster in clusters]
    return or_(*(column.between(keys.start, keys.last) for keys in ranges))


def hex_of(column: Any) -> ColumnElement[str]:
    """Return an expression for the keys in *column* in lowercase hexadecimal, without leading zeros.

    >>> print(hex_of(User.id))
    to_hex("user".id)
    """
    return _Hex(column)


class _Hex(FunctionElement[str]):
    name = "to_hex"
    type = String()
    inherit_cache = True


@compiles(_Hex)
def _to_hex(element: _Hex, compiler: Any, **kw: Any) -> str:
    return f"to_hex({compiler.process(element.clauses, **kw)})"


@compiles(_Hex, "mysql", "mariadb")
def _lower_hex(element: _Hex, compiler: Any, **kw: Any) -> str:
    return f"lower(hex({compiler.process(element.clauses, **kw)}))"


@compiles(_Hex, "sqlite")
def _printf(element: _Hex, compiler: Any, **kw: Any) -> str:
    return f"printf('%x', {compiler.process(element.clauses, **kw)})"
