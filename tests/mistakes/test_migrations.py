"""Mistakes with Alembic and operations, on a project with a table in use."""

from collections.abc import Callable
from typing import Any

import pytest
from mistakes.models import new_base
from mistakes.table import mistake
from sqlalchemy import Engine, MetaData, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session
from support.marks import on
from support.projects import Project, downgrade_of, upgrade_of
from support.shops import shop

from sqlalchemy_public_id import NanoId, PublicIdMixin

Create = Callable[[MetaData], None]


@mistake(
    "the format gets longer, and the proposed migration is run",
    documented=("guides/choosing-a-format#change-the-format-later", r"Without `accepting\(\)`, old ids are not found"),
)
def test_longer_format(project: Project) -> None:
    """New ids should be longer, and old ones stay valid; the migration changes the length of the column only."""
    project.migrate(shop(NanoId(length=12)), "ids")
    assert "existing_type=sa.VARCHAR(length=12" in project.revision(shop(NanoId(length=16)))


@mistake("alembic upgrade, in a project of plain alembic init")
def test_revision_without_the_template(project: Project) -> None:
    """The table should get ids, which need one operation."""
    assert "op.add_public_id('customer')" in upgrade_of(project.revision(shop()))


@mistake(
    "alembic downgrade -1, and upgrade again",
    documented=("guides/alembic#the-generated-migration", r"\*\*The downgrade deletes the ids\*\*"),
)
def test_downgrade(project: Project) -> None:
    """The last revision should be run again; the ids are others afterwards."""
    assert "op.drop_public_id('customer')" in downgrade_of(project.revision(shop()))


@mistake('op.rename_table("customer", "client") by hand')
def test_renamed_table(project: Project, engine: Engine) -> None:
    """The table should have another name, and its ids stay as they are."""
    project.migrate(shop(), "ids")
    project.write("op.rename_table('customer', 'client')")
    project.upgrade()
    with engine.connect() as connection:
        assert len(set(connection.scalars(text("SELECT public_id FROM client")))) == 3


@mistake(
    'op.add_column("customer", sa.Column("public_id", …, nullable=True)) by hand', says=r"op\.add_public_id\('customer'"
)
def test_nullable_column_by_hand(project: Project) -> str:
    """The rows should get ids later; the next revision says how."""
    project.write("op.add_column('customer', sa.Column('public_id', sa.String(12)))")
    project.upgrade()
    return "\n".join(upgrade_of(project.revision(shop())))


@mistake('op.add_public_id("customers")', says=r"there is no table 'customers'")
def test_name_of_the_table(project: Project) -> None:
    """The table ``customer`` is meant."""
    project.write("op.add_public_id('customers')")
    project.upgrade()


@mistake('op.add_public_id("customer", prefix="cus")', says=r"format=NanoId|prefix")
def test_prefix_of_an_operation(project: Project) -> None:
    """The ids should have this prefix."""
    project.write("op.add_public_id('customer', prefix='cus')")
    project.upgrade()


@mistake('op.add_public_id("customer", NanoId(prefix="cus"))', says=r"format=NanoId\(prefix='cus'\)")
def test_second_argument_of_an_operation(project: Project) -> None:
    """The ids should have this format; the second argument is the name of the column."""
    project.write("from sqlalchemy_public_id import NanoId; op.add_public_id('customer', NanoId(prefix='cus'))")
    project.upgrade()


@mistake(
    'op.contract_public_id("customer") before the backfill', says=r"add it first, with op\.expand_public_id\('customer'"
)
def test_contract_first(project: Project) -> None:
    """The column should be NOT NULL and unique; nothing has added it yet."""
    project.write("op.contract_public_id('customer')")
    project.upgrade()


@mistake("an operation after another change in one revision", says=r"revision")
@pytest.mark.backend
@on("postgresql")
def test_operation_in_a_mixed_revision(project: Project) -> None:
    """Both changes belong together; the steps of the operation are committed one by one."""
    project.write("op.add_column('customer', sa.Column('mail', sa.String(9))); op.add_public_id('customer')")
    project.upgrade()


@mistake(
    "create_all() with a table that exists",
    documented=("guides/declaring-ids", r"If your table has rows already, see \[Add ids to a table in production\]"),
)
def test_table_without_the_column(session: Session, create: Create) -> None:
    """The column should be added; create_all() changes no table, so the database says that there is no such column."""
    base = new_base()
    old: Any = type("Old", (PublicIdMixin, base), {"__tablename__": "old"})
    session.execute(text("CREATE TABLE old (id INTEGER PRIMARY KEY)"))
    base.metadata.create_all(session.connection())
    with pytest.raises(OperationalError, match="public_id"):
        session.scalars(select(old)).all()


@mistake('op.add_public_id("customer", format="cus")', says=r"expected a format such as NanoId\(length=12\)")
def test_prefix_as_format_of_an_operation(project: Project) -> None:
    """The ids should have this prefix."""
    project.write("op.add_public_id('customer', format='cus')")
    project.upgrade()


@mistake(
    'op.add_public_id("customer"), as in the README, of a model with a prefix', says=r"format=NanoId\(prefix='cus'\)"
)
def test_operation_without_the_format(project: Project, caplog: pytest.LogCaptureFixture) -> str | None:
    """The ids should be those of the model; they are those of the default format, and look-ups find none of them."""
    project.config.attributes["metadata"] = shop(NanoId(prefix="cus"))
    project.write("op.add_public_id('customer')")
    project.upgrade()
    return caplog.text or None
