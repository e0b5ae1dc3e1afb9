"""Depots and parcels, whose keys contain the cluster that generated them."""

from __future__ import annotations

from typing import Any

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Engine, ForeignKey, MetaData, String, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import sqlalchemy_public_id.alembic as _operations  # noqa: F401  # registers the operations
from sqlalchemy_public_id.keys import ClusterKey, cluster_key


def models(
    parent: Any = None, child: Any = None, *, table: str = "depot", schema: str | None = None, **key: Any
) -> Any:
    """Return two models with cluster keys, the second of which refers to the first."""

    class Base(DeclarativeBase):
        # a convention that uses the name of each constraint, so the CHECK of the configuration needs one
        metadata = MetaData(schema=schema, naming_convention={"ck": "ck_%(table_name)s_%(constraint_name)s"})

    class Depot(Base):
        __tablename__ = table
        id: Mapped[int] = parent or cluster_key(**key)
        name: Mapped[str] = mapped_column(String(50), default="x")

    class Parcel(Base):
        __tablename__ = f"{table}_parcel"
        id: Mapped[int] = child or cluster_key(**key)
        depot_id: Mapped[int] = mapped_column(ForeignKey(Depot.id))

    return Base.metadata, Depot, Parcel


def hexes(session: Session, model: Any) -> list[str]:
    return [ClusterKey(key).hex for key in session.scalars(select(model.id).order_by(model.id))]


def migrate(engine: Engine, name: str, *args: Any, **options: Any) -> None:
    """Run the operation ``op.<name>(...)``."""
    with engine.begin() as connection:
        getattr(Operations(MigrationContext.configure(connection)), name)(*args, **options)
