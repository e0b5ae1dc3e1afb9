"""Take a column of public ids into a table that is in use, step by step, without a long lock.

:mod:`sqlalchemy_public_id.alembic` and the command line stand on it. It knows Core and catalogs, nothing of Alembic.
"""

from __future__ import annotations

from sqlalchemy_public_id.online.target import Patience, ServerDefault, Target, Unique

__all__ = ["Patience", "ServerDefault", "Target", "Unique"]
