"""A sample schema of eleven tables with foreign keys gets public ids on every table, and goes on working."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Column, Engine, Index, MetaData, func, insert, select
from support import chinook
from support.projects import Project, downgrade_of, upgrade_of

from sqlalchemy_public_id import NanoId, PublicIdType, audit

pytestmark = [pytest.mark.backend, pytest.mark.slow]

FORMATS = {"Customer": NanoId(prefix="cus"), "Invoice": NanoId(prefix="inv"), "PlaylistTrack": NanoId(length=16)}


@pytest.fixture
def project(new_project: Callable[..., Project], engine: Engine, create: Callable[[MetaData], None]) -> Project:
    """A project whose database is Chinook's, and which has not said so in any migration yet."""
    create(chinook.METADATA)
    with engine.begin() as connection:
        chinook.fill(connection)
    return new_project()


def reflected(engine: Engine) -> MetaData:
    """The schema as it is."""
    metadata = MetaData()
    metadata.reflect(engine, only=lambda name, _: name != "alembic_version")
    return metadata


def with_public_ids(engine: Engine) -> MetaData:
    """The schema as the team wants it: a public id on every table."""
    metadata = reflected(engine)
    for table in metadata.tables.values():
        format = FORMATS.get(table.name, NanoId())
        column = Column("public_id", PublicIdType(format), default=format.generate, nullable=False)
        table.append_column(column)
        Index(f"uq_{table.name}_public_id", column, unique=True)
    return metadata


def application(engine: Engine) -> dict[str, Any]:
    """What the application's own queries answer; they know nothing of public ids."""
    customer, invoice, line = chinook.CUSTOMER.c, chinook.INVOICE.c, chinook.INVOICE_LINE.c
    track, album, artist = chinook.TRACK.c, chinook.ALBUM.c, chinook.ARTIST.c
    spent = (
        select(customer.LastName, func.sum(invoice.Total))
        .where(customer.CustomerId == invoice.CustomerId)
        .group_by(customer.CustomerId, customer.LastName)
        .order_by(func.sum(invoice.Total).desc(), customer.LastName)
    )
    sold = (
        select(artist.Name, func.count())
        .where(line.TrackId == track.TrackId, track.AlbumId == album.AlbumId, album.ArtistId == artist.ArtistId)
        .group_by(artist.Name)
        .order_by(func.count().desc(), artist.Name)
    )
    with engine.connect() as connection:
        rows = {
            table.name: connection.execute(select(*table.c).order_by(*table.primary_key)).all()
            for table in chinook.METADATA.sorted_tables
        }
        return {"rows": rows, "spent": connection.execute(spent).all(), "sold": connection.execute(sold).all()}


def test_every_table(project: Project, engine: Engine) -> None:
    """One migration, which autogenerate has written, takes all tables there and back; old queries and INSERTs work."""
    before, wanted = application(engine), with_public_ids(engine)
    written = project.migrate(wanted)

    assert len(upgrade_of(written)) == len(downgrade_of(written)) == len(wanted.tables) == 11
    assert project.check(wanted) is None
    assert application(engine) == before

    report = audit.run(engine, formats={name: FORMATS.get(name, NanoId()) for name in wanted.tables})
    assert [finding for finding in report.findings if finding.severity != "info"] == []

    artist = reflected(engine).tables["Artist"]
    with engine.begin() as connection:
        key = connection.execute(insert(artist).values(Name="Barbara")).inserted_primary_key
        assert key is not None
        (made,) = connection.execute(select(artist.c.public_id).where(artist.c.ArtistId == key[0])).scalars()
        connection.execute(artist.delete().where(artist.c.ArtistId == key[0]))
    assert NanoId().is_valid(made)

    project.downgrade()
    assert not [name for name, table in reflected(engine).tables.items() if "public_id" in table.c]
    assert application(engine) == before

    project.upgrade()
    assert project.check(wanted) is None
    assert application(engine) == before
