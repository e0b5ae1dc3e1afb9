"""Code and claims of the guides, tried on tables and texts that the guides themselves do not use."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from alembic.autogenerate import produce_migrations, render_python_code
from alembic.migration import MigrationContext
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, Uuid, insert
from sqlalchemy.orm import DeclarativeBase, Session, configure_mappers
from support.marks import known_defect

from sqlalchemy_public_id import lookup

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
COMING_FROM, TENANTS = GUIDES / "coming-from.md", GUIDES / "tenants.md"


def execute(code: str, **names: Any) -> dict[str, Any]:
    """Execute *code* of a guide, and return its names."""
    names["__name__"] = __name__
    exec(compile(code, "guide", "exec", dont_inherit=True), names)
    return names


def first_block(guide: Path) -> str:
    return guide.read_text().partition("```python\n")[2].partition("```")[0]


def statement(guide: Path, beginning: str) -> str:
    """Return the class or function that begins like this."""
    found = re.search(rf"^{re.escape(beginning)}.*?(?=^\S)", guide.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[0]


def model_of(guide: Path, beginning: str) -> Any:
    """Return a model of *guide*, on a base of its own."""

    class Base(DeclarativeBase):
        metadata = MetaData()

    imports = first_block(guide).partition("class Base")[0]
    model: Any = [*execute(imports + statement(guide, beginning), Base=Base).values()][-1]
    configure_mappers()
    return model


@pytest.mark.backend
def test_key_that_stays(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """The model that "Integer ids in the API" shows is migrated by one operation from a table with an INTEGER key."""
    old = MetaData()
    Table("user", old, Column("id", Integer, primary_key=True), Column("name", String(100), nullable=False))
    create(old)
    model = model_of(COMING_FROM, "class User(")

    with engine.connect() as connection:
        script = produce_migrations(MigrationContext.configure(connection), model.metadata)

    assert script.upgrade_ops is not None
    written = re.findall(r"op\.\w+", render_python_code(script.upgrade_ops))

    assert written == ["op.add_public_id"]


@pytest.mark.backend
@pytest.mark.parametrize(
    "database",
    [
        "postgresql",
        *(
            pytest.param(
                name, marks=known_defect("house", "a column of UUIDs is not read as it is", raises=AssertionError)
            )
            for name in ("sqlite", "mysql", "mariadb")
        ),
    ],
    indirect=True,
)
def test_column_of_uuids(create: Callable[[MetaData], None], session: Session) -> None:
    """The model that "A UUID column" shows finds rows of a table whose UUIDs SQLAlchemy has stored."""
    old = MetaData()
    document = Table("document", old, Column("id", Integer, primary_key=True), Column("public_id", Uuid, unique=True))
    create(old)
    stored = UUID("7d444840-9dc0-41d1-b245-5ffdce74fad2")
    session.execute(insert(document).values(public_id=stored))
    session.commit()

    found = lookup.get(session, model_of(COMING_FROM, "class Document("), str(stored))

    assert found is not None


def test_condition_of_a_tenant() -> None:
    """The search that "Several tenants" shows answers for an id of each model of the guide."""
    # prefixes of its own: the failure keeps the models alive, and the guide itself may run in this process
    models = first_block(TENANTS).replace('prefix="', 'prefix="of_a_tenant_')
    names = execute(models + statement(TENANTS, "def mine_of("))
    session, ours, ada = names["session"], names["ours"], names["ada"]
    try:
        ids = [ours.public_id, ada.public_id]
        found = [lookup.resolve(session, each, base=names["Base"], where=names["mine_of"]) for each in ids]
    finally:
        session.close()
        names["engine"].dispose()

    assert found == [ours, ada]
