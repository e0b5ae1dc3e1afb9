"""Add a column of public ids to a table in use, step by step, without a long lock.

:mod:`sqlalchemy_public_id.alembic` and the command line call it. It depends on Core and the catalogs, not on Alembic.
"""

from sqlalchemy_public_id.online.plan import Keeps, Patience, PublicIdColumn, ServerDefault, Unique

__all__ = ["Keeps", "Patience", "PublicIdColumn", "ServerDefault", "Unique"]
