"""Obstacles on MySQL and MariaDB: rights, engines, and indexes that make every change copy the table."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy_public_id.errors import Obstacle
from sqlalchemy_public_id.preflight.scene import Scene


def obstacles(scene: Scene) -> Iterator[Obstacle]:
    """Yield what stands in the way of the phases."""
    yield from ()
