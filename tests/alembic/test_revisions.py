"""Three revisions from one ``alembic revision --autogenerate``."""

from __future__ import annotations

import re
from typing import Any

import pytest
from alembic import command
from alembic.migration import MigrationContext
from alembic.operations.ops import (
    AddColumnOp,
    CreateIndexOp,
    DowngradeOps,
    MigrationScript,
    ModifyTableOps,
    UpgradeOps,
)
from sqlalchemy import Column, Index, MetaData, String, inspect
from support.marks import on
from support.projects import Project, downgrade_of, upgrade_of
from support.shops import old_shop, shop

from sqlalchemy_public_id import NanoId, public_id_column
from sqlalchemy_public_id.alembic import AddPublicIdOp
from sqlalchemy_public_id.alembic.revisions import one_revision, three_revisions
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


@pytest.mark.parametrize("phases", [True, False], ids=["three revisions", "one revision"])
def test_tables_of_a_schema(phases: bool) -> None:
    """In each revision, the operations are in batches of the table in its schema, and are undone in reverse order."""
    names = ["a", "b"]
    upgrade = UpgradeOps(
        [
            ModifyTableOps(
                name,
                [
                    AddColumnOp(name, Column("city", String(20)), schema="attic"),
                    AddPublicIdOp(name, schema="attic"),
                    CreateIndexOp(f"ix_{name}", name, ["public_id", "city"], schema="attic"),
                ],
                schema="attic",
            )
            for name in names
        ]
    )
    scripts = [MigrationScript("1a", upgrade, upgrade.reverse_into(DowngradeOps([])), message="ids")]
    (three_revisions if phases else one_revision)(MigrationContext.configure(dialect_name="sqlite"), None, scripts)

    places = [(name, "attic") for name in names]
    for script in scripts:
        ops: Any = (script.upgrade_ops, script.downgrade_ops)
        up, down = ([(each.table_name, each.schema) for each in part.ops] for part in ops)
        assert up == places
        assert down == ([] if script.message == "ids: backfill" else places[::-1])
    kinds = ["expand", "backfill", "contract"] if phases else ["public ids"]
    assert [script.message for script in scripts] == ["ids", *(f"ids: {each}" for each in [*kinds, "after public ids"])]


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
    expand, backfill, contract = files(project.migrate(wanted()))

    assert downgrade_of(backfill) == ["pass"]
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


def with_city() -> MetaData:
    """Return the models with a new column beside the public ids, which needs a revision of its own."""
    metadata = wanted()
    metadata.tables["customer"].append_column(Column("city", String(20)))
    return metadata


NUMBERED = """
from alembic.script import ScriptDirectory

def own(context, revision, directives):
    heads = ScriptDirectory.from_config(context.config).get_heads()
    directives[0].rev_id = f"{int(heads[0]) + 1:04}"
"""


@on("sqlite")
@pytest.mark.parametrize("split", [False, True])
def test_numbered_revisions(project: Project, split: bool) -> None:
    """A project that numbers its revisions gets numbered ones, in whose order the files stand in the folder."""
    hook = "three_revisions_after(own)" if split else "own"
    project.rewrite(project.heads()[0], "0001")
    project.execute("UPDATE alembic_version SET version_num = '0001'")
    project.config.set_main_option("file_template", "%%(rev)s_%%(slug)s")
    project.configure(f"process_revision_directives={hook},", before=f"{IMPORT}\n{NUMBERED}")
    project.migrate(with_city(), "ids")

    names = ["0002", "0003", "0004", "0005"] if split else ["0002", "0003"]
    assert sorted(path.name[:5] for path in (project.folder / "versions").glob("000[2-9]*.py")) == [
        f"{name}_" for name in names
    ]
    assert project.heads() == names[-1:]
    assert project.check(with_city()) is None
    assert project.check(wanted()) is not None
    project.migrate(wanted(), "no city")
    assert project.heads() == [f"{int(names[-1]) + 1:04}"]


@on("sqlite")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("r9", r"r10"),
        ("20261129112059", "20261129112060"),
        ("add_ids", "add_ids_2"),
        ("fa81a5f6b879", "[0-9a-f]{12}"),
        ("6e2f4b1a9c7d4e0f8a1b2c3d4e5f6a7b", "[0-9a-f]{32}"),
    ],
)
def test_ids_of_the_project(project: Project, first: str, second: str) -> None:
    """The id of the second revision resembles the one that the project has given to the first."""
    own = f"def own(context, revision, directives):\n    directives[0].rev_id = {first!r}"
    project.configure("process_revision_directives=own,", before=own)
    project.migrate(with_city(), "ids")

    (head,) = project.heads()
    assert re.fullmatch(second, head)
    assert head > first or first == "r9"


@on("sqlite")
def test_ids_of_another_branch(project: Project) -> None:
    """No new revision gets the id of an existing one, of which Alembic would run only one."""
    (own,) = project.heads()
    command.revision(project.config, "of another branch", rev_id="0003", head="base")
    project.upgrade("heads")
    project.config.attributes["metadata"] = with_city()

    made = command.revision(project.config, "ids", rev_id="0002", head=own, autogenerate=True)

    assert isinstance(made, list)
    assert [script and script.revision for script in made] == ["0002", "0004", "0005", "0006"]


@on("sqlite")
def test_messages_of_the_project(project: Project) -> None:
    """A message that begins with the id of its revision begins with the id of each."""
    own = """
def own(context, revision, directives):
    directives[0].rev_id = "0002"
    directives[0].message = f"[0002] {directives[0].message}"
"""
    project.configure("process_revision_directives=own,", before=own)
    project.migrate(with_city(), "ids")

    assert project.history() == ["shop", "[0002] ids", "[0003] ids: public ids"]


@on("sqlite")
def test_scripts_of_the_project(project: Project) -> None:
    """A hook that makes two scripts keeps its chain: the second follows on the public ids, and has an id of its own."""
    own = """
from alembic.operations.ops import DowngradeOps, ExecuteSQLOp, MigrationScript, UpgradeOps

def own(context, revision, directives):
    directives[0].rev_id = "0002"
    ops = UpgradeOps([ExecuteSQLOp("UPDATE customer SET city = 'Bern'")]), DowngradeOps([])
    directives.append(MigrationScript("0003", *ops, message="cities", head="0002"))
"""
    project.configure("process_revision_directives=own,", before=own)
    project.migrate(with_city(), "ids")

    assert project.history() == ["shop", "ids", "ids: public ids", "cities"]
    assert project.heads() == ["0003"]


@on("sqlite")
def test_attributes_of_the_project(project: Project) -> None:
    """What a hook sets on its script, such as the folder, each script has; a label of the branch stays at the first."""
    (project.folder / "more").mkdir()
    project.config.set_main_option("version_path_separator", "os")  # before Alembic 1.16
    project.config.set_main_option("version_locations", f"{project.folder}/versions:{project.folder}/more")
    own = f"""
def own(context, revision, directives):
    directives[0].version_path = {str(project.folder / "more")!r}
    directives[0].branch_label = "ids"
"""
    project.configure("process_revision_directives=own,", before=own)
    project.migrate(with_city(), "ids")

    assert len(list((project.folder / "more").glob("*.py"))) == 2
    assert project.check(with_city()) is None


CLEARS = """
def own(context, revision, directives):
    if directives[0].upgrade_ops.is_empty():
        directives[:] = []
"""


@on("sqlite")
@pytest.mark.parametrize("hook", ["own", "three_revisions_after(own)"])
def test_check_beside_a_hook_that_clears(project: Project, hook: str) -> None:
    """``alembic check`` works in a project that writes no empty revisions, and still writes none."""
    project.configure(f"process_revision_directives={hook},", before=f"{IMPORT}\n{CLEARS}")
    project.migrate(with_city(), "ids")
    before = project.history()

    assert project.check(with_city()) is None
    assert "city" in str(project.check(wanted()))
    assert project.files(with_city()) == []
    assert project.history() == before
