"""The bytes that a migration takes on disk, and the obstacle if there are too few."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Uuid
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id.dialects.sizes import free_bytes, table_bytes
from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.preflight.scene import Scene
from sqlalchemy_public_id.types import column_type

_OF_INDEX = 30
"""Bytes of an entry of the unique index besides the id: the key or address of its row, headers, and free space."""
_UNITS = ("kB", "MB", "GB", "TB")


def obstacles(scene: Scene, needed: int | None) -> Iterator[Obstacle]:
    """Yield an obstacle if the disk is known to have less than the *needed* bytes."""
    free = free_bytes(scene.connection, scene.target.schema)
    if needed is not None and free is not None and needed > free:
        problem = f"the migration takes about {in_units(needed)} of disk, and {in_units(free)} are free"
        yield Obstacle("disk-full", problem, "make room, or move the database to a larger disk")


def disk_bytes(scene: Scene) -> int | None:
    """Estimate the bytes that the migration takes on disk while it runs; ``None`` if the database cannot tell.

    PostgreSQL writes a new version of each row that gets an id. MySQL, MariaDB and SQLite copy the table. What the
    migration no longer needs at its end is free for other rows.
    """
    if not scene.fills_rows and not scene.copies_table:
        return 0
    size = table_bytes(scene.connection, scene.target.table, scene.target.schema)
    if size is None:
        return None
    width = _width(column_type(scene.target.format, scene.connection.dialect))
    index = 0 if scene.state.index or "contract" not in scene.phases else width + _OF_INDEX
    return size + (scene.rows or 0) * (width + index)  # PostgreSQL has no number before the first ANALYZE


def _width(type_: TypeEngine[object]) -> int:
    length: int | None = getattr(type_, "length", None)  # of strings and bytes
    if length is not None:
        return length + 1
    return 16 if isinstance(type_, Uuid) else 8


def in_units(number: float) -> str:
    """Return *number* bytes in the largest unit of which it has one at least.

    >>> in_units(512), in_units(2_400_000), in_units(5_000_000_000)
    ('0.5 kB', '2.4 MB', '5.0 GB')
    """
    unit, *larger = _UNITS
    number /= 1000
    while larger and number >= 999.95:
        number /= 1000
        unit = larger.pop(0)
    return f"{number:,.1f} {unit}"
