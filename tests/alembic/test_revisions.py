"""Three revisions from one ``alembic revision --autogenerate``."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import Column, Index, MetaData, String, inspect
from support.marks import on
from support.projects import Project, downgrade_of, upgrade_of
from support.shops import old_shop, shop

from sqlalchemy_public_id import NanoId, public_id_column
from sqlalchemy_public_id.dialects import traits_for

pytestmark = pytest.mark.backend

IMPORT = "from sqlalchemy_public_id.alembic.revisions import three_revisions, three_revisions_after"
FORMAT = "format=NanoId(prefix='cus')"


@pytest.fixture(name="project")
def _project(project: Project) -> Project:
    """A project that uses ``three_revisions``."""
    project.configure("process_revision_directives=three_revisions,", before=IMPORT)
    return project


def wanted() -> MetaData:
    return shop(NanoId(prefix="cus"))


def files(written: str) -> list[str]:
    """Return the revision files of which *written* consists."""
    return re.split(r'^"""(?=[^\n]+\n\nRevision ID)', written, flags=re.MULTILINE)[1:]


def test_three_revisions(project: Project) -> None:
    """Each phase has its own revision, on top of the previous one, with a downgrade that undoes only this phase."""
    expand, backfill, contract = files(project.revision(wanted(), "ids"))

    assert project.history() == ["shop", "ids: expand", "ids: backfill", "ids: contract"]
    assert upgrade_of(expand) == [f"op.expand_public_id('customer', {FORMAT})"]
    assert downgrade_of(expand) == ["op.drop_public_id('customer')"]
    assert upgrade_of(backfill) == [f"op.backfill_public_id('customer', {FORMAT})"]
    assert downgrade_of(backfill) == ["pass"]
    assert upgrade_of(contract) == [f"op.contract_public_id('customer', {FORMAT})"]
    assert downgrade_of(contract) == [f"op.loosen_public_id('customer', {FORMAT})"]


def test_there_and_back_in_steps(project: Project) -> None:
    """The three revisions can be upgraded and downgraded one by one."""
    project.revision(wanted())
    for _ in range(3):
        assert project.differences(wanted())
        project.upgrade("+1")
    assert project.check(wanted()) is None

    for _ in range(3):
        project.downgrade()
        assert project.differences(wanted())
    assert project.differences(old_shop()) == []

    project.upgrade()
    assert project.check(wanted()) is None


@on("postgresql")
def test_column_that_needs_its_index_alone(project: Project) -> None:
    """One chain of revisions has other changes, a NOT NULL column that lacks its index, and the phases of a new one."""
    project.execute('ALTER TABLE "order" ADD COLUMN public_id VARCHAR(12) COLLATE "C" NOT NULL')

    def all_of_it() -> MetaData:
        metadata = wanted()
        metadata.tables["customer"].append_column(Column("city", String(20)))
        column = public_id_column(NanoId()).column
        column.name = column.key = "public_id"
        metadata.tables["order"].append_column(column)
        return metadata

    written = files(project.migrate(all_of_it(), "all"))

    assert project.history()[1:] == ["all", "all: public ids", "all: expand", "all: backfill", "all: contract"]
    assert [upgrade_of(file)[0].partition("(")[0] for file in written[:2]] == ["op.add_column", "op.contract_public_id"]
    assert project.check(all_of_it()) is None
    project.downgrade("-5")
    project.upgrade()
    assert project.check(all_of_it()) is None


def test_column_that_is_there(project: Project) -> None:
    """A column that somebody has begun to add is completed in three revisions, and stays when they are downgraded."""
    type_ = traits_for(project.engine.dialect).text_type(16).compile(project.engine.dialect)
    project.execute(f"ALTER TABLE customer ADD COLUMN public_id {type_}")
    expand, _, contract = files(project.migrate(wanted()))

    assert downgrade_of(expand) == [f"op.loosen_public_id('customer', {FORMAT}, server_default='none')"]
    assert downgrade_of(contract) == [f"op.loosen_public_id('customer', {FORMAT})"]
    assert project.check(wanted()) is None
    project.downgrade()
    project.upgrade()
    assert project.check(wanted()) is None
    project.downgrade("-3")
    project.engine.dispose()
    assert "public_id" in {column["name"] for column in inspect(project.engine).get_columns("customer")}


@on("sqlite")
@pytest.mark.parametrize("split", [True, False])
def test_check_finds_it(project: Project, split: bool) -> None:
    """``alembic check`` reports all differences, whether or not they are split into several revisions."""
    if not split:
        project.configure()
    metadata = wanted()
    metadata.tables["customer"].append_column(Column("city", String(20)))
    columns = metadata.tables["customer"].c
    Index("ix_customer_city", columns.public_id, columns.city)

    found = str(project.check(metadata))

    assert found.count("add_column") == 1
    assert found.count("add_index") == 1
    assert ("expand_public_id" in found and "contract_public_id" in found) == split
    assert ("add_public_id" in found) != split


@on("sqlite")
def test_after_those_of_the_user(project: Project) -> None:
    """The project's own function runs first; the imports that it adds are in each of the files."""
    own = "def own(context, revision, directives):\n    (script,) = directives\n    script.message = 'mine'"
    own += "\n    script.imports.add('import decimal')"
    project.configure("process_revision_directives=three_revisions_after(own),", before=f"{IMPORT}\n\n{own}\n")
    written = files(project.revision(wanted(), "ids"))

    assert project.history() == ["shop", "mine: expand", "mine: backfill", "mine: contract"]
    assert ["\nimport decimal\n" in file for file in written] == [True] * 3


@on("sqlite")
def test_batches(project: Project) -> None:
    """The phases are rendered in batches if the project wants batches."""
    project.configure("process_revision_directives=three_revisions, render_as_batch=True,", before=IMPORT)
    expand, backfill, contract = files(project.migrate(wanted()))

    assert upgrade_of(expand)[-1] == f"batch_op.expand_public_id({FORMAT})"
    assert downgrade_of(backfill) == ["pass"]
    assert downgrade_of(contract)[-1] == f"batch_op.loosen_public_id({FORMAT})"
    assert project.check(wanted()) is None
