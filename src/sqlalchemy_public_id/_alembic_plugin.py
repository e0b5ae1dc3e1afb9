"""What Alembic loads when it is imported, wherever this library is installed: the entry point ``alembic.plugins``.

Two promises, to programs that use Alembic and perhaps not even know of this library: ``import alembic`` works, and it
says nothing. So this module imports no part of Alembic, which is half imported itself when it comes here; and whatever
goes wrong is told to the log, and raised only where somebody imports :mod:`sqlalchemy_public_id.alembic`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

__all__ = ["setup"]


class _Plugin(ModuleType):
    """Alembic 1.18.0 to 1.20.0 iterate over what an entry point names; later ones want a module, and warn of lists."""

    def __iter__(self) -> Iterator[ModuleType]:
        yield self


sys.modules[__name__].__class__ = _Plugin


def setup(plugin: object) -> None:
    """Called by Alembic 1.18 and later. *plugin* remains empty: the package registers one that is on by default."""
    try:
        import_module("sqlalchemy_public_id.alembic")
    except Exception:
        logging.getLogger(__name__).warning(
            "sqlalchemy-public-id does not work with this Alembic; "
            "migrations that say op.add_public_id() will fail, all others are not concerned",
            exc_info=True,
        )
