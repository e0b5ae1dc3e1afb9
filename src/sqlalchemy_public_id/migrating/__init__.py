"""Add a column of public ids to a table in use, step by step, without a long lock.

:func:`sqlalchemy_public_id.operation.run_phases` runs the steps. It depends on Core and the catalogs, not on Alembic.
"""

from sqlalchemy_public_id.migrating.column import Keeps, Patience, PublicIdColumn, ServerDefault, Unique

__all__ = ["Keeps", "Patience", "PublicIdColumn", "ServerDefault", "Unique"]
