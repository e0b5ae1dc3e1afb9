"""Create tables in several databases at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, MetaData


@contextmanager
def tables_in(engines: dict[str, Engine], metadata: MetaData) -> Iterator[dict[str, Engine]]:
    """Create the tables of *metadata* in the databases of all *engines*, and drop them afterwards."""
    for engine in engines.values():
        metadata.drop_all(engine)
        metadata.create_all(engine)
    yield engines
    for engine in engines.values():
        metadata.drop_all(engine)
