"""Test code and claims of the guides with tables and texts that the guides themselves do not use."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from alembic.autogenerate import produce_migrations, render_python_code
from alembic.migration import MigrationContext
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, Uuid, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, configure_mappers, mapped_column
from support.raw_uuids import type_of_uuid

import sqlalchemy_public_id
from sqlalchemy_public_id import PublicIdColumnMixin, Uuid4, lookup
from sqlalchemy_public_id.errors import MigrationRefused

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
ADOPTING, COMING_FROM, TENANTS = (GUIDES / f"{name}.md" for name in ("adopting-ids", "coming-from", "tenants"))


def execute(code: str, **names: Any) -> dict[str, Any]:
    """Execute *code* of a guide, and return its names."""
    names["__name__"] = __name__
    exec(compile(code, "guide", "exec", dont_inherit=True), names)
    return names


def first_block(guide: Path) -> str:
    return guide.read_text().partition("```python\n")[2].partition("```")[0]


def statement(guide: Path, beginning: str) -> str:
    """Return the class or function in *guide* that starts with *beginning*."""
    found = re.search(rf"^{re.escape(beginning)}.*?(?=^\S)", guide.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[0]


def model_of(guide: Path, beginning: str) -> Any:
    """Return a model of *guide*, on a new base."""

    class Base(DeclarativeBase):
        metadata = MetaData()

    imports = first_block(guide).partition("class Before")[0]
    model: Any = [*execute(imports + statement(guide, beginning), Base=Base).values()][-1]
    configure_mappers()
    return model


def row_of_uuids(engine: Engine) -> dict[str, str]:
    """Return what the table of "A UUID column" says about SQLAlchemy's Uuid() in this database."""
    lines = [
        line for line in ADOPTING.read_text().splitlines() if re.match(r"\| (the column is|`UUID`|`CHAR\(32\)`)", line)
    ]
    heads, *rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]
    found = [dict(zip(heads, row, strict=True)) for row in rows]
    [row] = [
        row for row in found if row["the column is"] == type_of_uuid(engine) and engine.name in row["where"].lower()
    ]
    return row


def old_documents() -> Table:
    """Return a table with a column of SQLAlchemy's Uuid()."""
    columns = (Column("id", Integer, primary_key=True), Column("public_id", Uuid, nullable=False, unique=True))
    return Table("document", MetaData(), *columns)


def model_with(format: str) -> Any:
    """Return a model of the table of documents, whose ids have a format of the guide."""

    class Base(DeclarativeBase):
        metadata = MetaData()

    class Document(PublicIdColumnMixin, Base):
        __tablename__ = "document"
        __public_id__ = eval(format, {"Uuid4": Uuid4})
        id: Mapped[int] = mapped_column(primary_key=True)

    return Document


def differences(engine: Engine, model: Any) -> list[str]:
    """Return the operations that autogenerate writes."""
    with engine.connect() as connection:
        script = produce_migrations(MigrationContext.configure(connection), model.metadata)
    assert script.upgrade_ops is not None
    return re.findall(r"op\.\w+\(.*?\)$", render_python_code(script.upgrade_ops), re.MULTILINE | re.DOTALL)


@pytest.mark.backend
def test_key_that_stays(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """One operation migrates a table with an INTEGER key to the model in "Integer keys"."""
    old = MetaData()
    Table("user", old, Column("id", Integer, primary_key=True), Column("name", String(100), nullable=False))
    create(old)
    model = model_of(COMING_FROM, "class User(")

    assert [each.partition("(")[0] for each in differences(engine, model)] == ["op.add_public_id"]


@pytest.mark.backend
def test_column_of_uuids(engine: Engine, create: Callable[[MetaData], None], session: Session) -> None:
    """The format that "A UUID column" shows for SQLAlchemy's Uuid() reads the column and keeps existing links valid."""
    document = old_documents()
    create(document.metadata)
    stored = UUID("7d444840-9dc0-41d1-b245-5ffdce74fad2")
    session.execute(insert(document).values(public_id=stored))
    session.commit()
    row = row_of_uuids(engine)
    model = model_with(row["format"])
    link = stored.hex if row["old links are found"] == "without their hyphens" else str(stored)

    found = lookup.get_one(session, model, link)

    assert found.public_id == link
    assert lookup.get(session, model, str(stored)) is (found if link == str(stored) else None)
    session.add(new := model())
    session.flush()
    assert {*session.scalars(select(document.c.public_id))} == {stored, UUID(new.public_id)}
    session.rollback()
    assert not [each for each in differences(engine, model) if "type" in each]


@pytest.mark.backend
def test_mistaken_column_of_uuids(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """With the guide's format for another database, autogenerate refuses to change texts into numbers, or back."""
    create(old_documents().metadata)
    mistaken = (
        'Uuid4(encoding="hex", storage="text")' if engine.name == "postgresql" else 'Uuid4(encoding="hyphenated")'
    )

    with pytest.raises(MigrationRefused, match=r"no ALTER converts one to the other; take the format Uuid4\("):
        differences(engine, model_with(mistaken))


@pytest.mark.backend
def test_table_works_on_without_the_library(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """The models of "Remove the library" read and write the old tables in a process that cannot import the library."""
    before, *after = re.findall(
        r"^```python\n(.*?)^```", (GUIDES / "removing.md").read_text(), re.MULTILINE | re.DOTALL
    )
    declarations, setting_up, rows = before.partition("engine = ")
    assert setting_up
    names = execute(declarations)
    create(names["Before"].metadata)
    execute(rows.partition("create_all(engine)")[2], **names, engine=engine)
    url = engine.url.render_as_string(hide_password=False)
    preamble = (
        "import sys; sys.modules['sqlalchemy_public_id'] = None\n"
        f"from sqlalchemy import create_engine; engine = create_engine({url!r})\n"
    )

    subprocess.run([sys.executable, "-c", preamble + "\n".join(after)], check=True)

    with Session(engine) as session:
        models = names["OldCustomer"], names["OldOrder"]
        stored = {model: {row.public_id for row in session.scalars(select(model))} for model in models}
    assert [*map(len, stored.values())] == [2, 2]
    assert [id for model, ids in stored.items() for id in ids if not model.__public_id__.is_valid(id)] == []


def test_every_obstacle_is_in_the_guide() -> None:
    """The guide lists the code of each obstacle."""
    sources = (Path(sqlalchemy_public_id.__file__).parent / "migrations").rglob("*.py")
    codes = {code for source in sources for code in re.findall(r'Obstacle\(\s*"([a-z-]+)"', source.read_text())}
    table = (GUIDES / "migration-hazards.md").read_text().partition("## Obstacles")[2]

    assert len(codes) > 20
    assert sorted(code for code in codes if f"`{code}`" not in table) == []


def test_condition_of_a_tenant() -> None:
    """The search in "Several tenants" returns a result for an id of each model of the guide."""
    # different prefixes: a failure keeps the models alive, and the guide itself may run in this process
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
