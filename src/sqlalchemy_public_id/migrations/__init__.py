"""Add a column of public ids to a table in use, step by step, without a long lock.

:func:`~sqlalchemy_public_id.migrations.operation.run_phases` runs the steps. This package depends on SQLAlchemy Core
and the catalogs, and not on Alembic. Each database has a subpackage with its steps, queries, rows and session.
"""

from sqlalchemy_public_id.migrations.column import PublicIdColumn
from sqlalchemy_public_id.migrations.consent import Consent, Options, Pace, Timeouts, Triggers

__all__ = ["Consent", "Options", "Pace", "Timeouts", "PublicIdColumn", "Triggers"]
