"""Parts of queries of the catalogs, whose parameters are :attr:`LiveTable.names`."""

from __future__ import annotations

THIS = "CAST(pg_catalog.to_regclass(:regclass) AS oid)"
"""The table."""
PARTITIONS = "(SELECT CAST(relid AS oid) FROM pg_catalog.pg_partition_tree(pg_catalog.to_regclass(:regclass)))"
"""A partitioned table and all its partitions; nothing for another table."""
WHOLE = f"ANY (ARRAY(SELECT {THIS} UNION ALL {PARTITIONS}))"
"""The table and all its partitions. PostgreSQL expects ten elements of the array, but a thousand partitions."""
