"""The entry point ``alembic.plugins``, which ``import alembic`` loads in every program that has this library installed.

It must not break or warn in programs that use Alembic alone. Alembic is only partly imported when it loads this module,
which therefore imports nothing from it. Errors are logged; they are raised by ``import sqlalchemy_public_id.alembic``.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType


class _Plugin(ModuleType):
    """A module with an iterator: Alembic 1.18.0 to 1.20.0 iterate over the entry point; later ones warn about lists."""

    def __iter__(self) -> Iterator[ModuleType]:
        yield self


sys.modules[__name__].__class__ = _Plugin


def setup(plugin: object) -> None:
    """Load the directives; Alembic 1.18 and later call it. *plugin* stays empty: the package registers its own."""
    try:
        import_module("sqlalchemy_public_id.alembic")
    except Exception:
        logging.getLogger(__name__).warning(
            "sqlalchemy-public-id does not work with this Alembic; "
            "migrations that call op.add_public_id() will fail, all others are not affected",
            exc_info=True,
        )
