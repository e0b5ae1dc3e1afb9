"""A schema for each tenant: env.py runs the revisions once per schema, over one connection."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import BigInteger, Column, MetaData, String, Table, inspect, text
from support.marks import on
from support.projects import Project

from sqlalchemy_public_id import NanoId, public_id_column

pytestmark = [pytest.mark.backend, on("postgresql", "mysql", "mariadb")]

SEARCH_PATH = """
import os
from alembic import context
from sqlalchemy import create_engine, text

config = context.config
tenants = config.attributes["tenants"]
engine = create_engine(config.get_main_option("sqlalchemy.url"))
with engine.connect() as connection:
    for tenant in tenants:
        connection.execute(text(config.attributes["choose"].format(tenant)))
        connection.commit()
        connection.dialect.default_schema_name = tenant
        context.configure(connection=connection, target_metadata=config.attributes.get("metadata"))
        with context.begin_transaction():
            context.run_migrations()
engine.dispose()
"""
"""The env.py of Alembic's cookbook, in a loop: the connection's default schema is that of a tenant."""

FORMAT = NanoId(prefix="inv")


def invoices(*, with_ids: bool, schema: str | None = None) -> MetaData:
    metadata = MetaData()
    columns = [Column("id", BigInteger, primary_key=True), Column("name", String(20))]
    if with_ids:
        columns.append(public_id_column(FORMAT, name="public_id").column)
    Table("invoice", metadata, *columns, schema=schema)
    return metadata


@pytest.fixture
def project(new_project: Callable[..., Project]) -> Project:
    return new_project()


@pytest.fixture
def tenants(project: Project) -> Iterator[list[str]]:
    """Three schemas with a table ``invoice`` of two rows each."""
    names = [f"tenant_{uuid.uuid4().hex[:8]}" for _ in range(3)]
    for name in names:
        project.execute(f"CREATE SCHEMA {name}")
        invoices(with_ids=False, schema=name).create_all(project.engine)
        project.execute(f"INSERT INTO {name}.invoice (name) VALUES ('a'), ('b')")
    yield names
    cascade = " CASCADE" if project.engine.dialect.name == "postgresql" else ""
    for name in names:
        project.execute(f"DROP SCHEMA {name}{cascade}")


def ids(project: Project, tenant: str) -> list[str | None]:
    with project.engine.connect() as connection:
        return list(connection.scalars(text(f"SELECT public_id FROM {tenant}.invoice")))


def columns(project: Project, tenant: str) -> set[str]:
    with project.engine.connect() as connection:
        return {column["name"] for column in inspect(connection).get_columns("invoice", schema=tenant)}


def test_a_context_for_each_tenant(project: Project, tenants: list[str]) -> None:
    """Autogenerate writes a revision for models without a schema, which runs for each tenant, there and back."""
    (project.folder / "env.py").write_text(SEARCH_PATH)
    is_postgresql = project.engine.dialect.name == "postgresql"
    project.config.attributes["choose"] = 'SET search_path TO "{}"' if is_postgresql else "USE {}"
    metadata = invoices(with_ids=True)
    project.config.attributes["tenants"] = tenants[:1]  # autogenerate compares one of them
    written = project.revision(metadata)
    project.config.attributes["tenants"] = tenants
    project.upgrade()

    assert written.count("op.add_public_id(") == 1
    for tenant in tenants:
        found = ids(project, tenant)
        assert len({*found}) == 2
        assert all(FORMAT.is_valid(each) for each in found if each is not None)
        assert None not in found
    for tenant in tenants:
        project.config.attributes["tenants"] = [tenant]
        assert project.check(metadata) is None
    project.config.attributes["tenants"] = tenants
    project.downgrade()
    assert [columns(project, tenant) for tenant in tenants] == [{"id", "name"}] * 3


def test_operations_in_a_loop(project: Project, tenants: list[str]) -> None:
    """``op.*`` in a loop over schemas migrates the table of each tenant, there and back."""
    loop = f"[op.{{}}_public_id('invoice', schema=tenant{{}}) for tenant in {tenants!r}]"
    project.config.attributes["metadata"] = invoices(with_ids=True)
    project.write(loop.format("add", ", format=sqlalchemy_public_id.NanoId(prefix='inv')"), loop.format("drop", ""))
    project.upgrade()
    for tenant in tenants:
        assert len({*ids(project, tenant)} - {None}) == 2
        with project.engine.connect() as connection:
            indexes = inspect(connection).get_indexes("invoice", schema=tenant)
        assert [(index["name"], index["unique"]) for index in indexes] == [("uq_invoice_public_id", True)]
    project.downgrade()
    assert [columns(project, tenant) for tenant in tenants] == [{"id", "name"}] * 3
