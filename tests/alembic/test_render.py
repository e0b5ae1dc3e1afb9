"""How operations and columns are rendered in migrations."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from alembic.autogenerate import render_python_code
from alembic.operations.ops import ModifyTableOps, UpgradeOps
from sqlalchemy import Column, Integer, MetaData, Table
from support.marks import on
from support.people import People
from support.projects import Project, downgrade_of, upgrade_of
from support.shops import new_shop, old_shop, shop

from sqlalchemy_public_id import ConfigurationError, NanoId, PublicIdType
from sqlalchemy_public_id.alembic import (
    AddPublicIdOp,
    BackfillPublicIdOp,
    ContractPublicIdOp,
    DropPublicIdOp,
    ExpandPublicIdOp,
    LoosenPublicIdOp,
    PublicIdOp,
)
from sqlalchemy_public_id.alembic.render import _DRIVERS
from sqlalchemy_public_id.formats import BASE62
from sqlalchemy_public_id.references import AnyPublicIdType

pytestmark = pytest.mark.backend

OPERATIONS = [
    AddPublicIdOp,
    BackfillPublicIdOp,
    ContractPublicIdOp,
    DropPublicIdOp,
    ExpandPublicIdOp,
    LoosenPublicIdOp,
]

OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({}, ""),
    ({"schema": "attic"}, ", schema='attic'"),
    ({"unique_name": "only_one"}, ", unique_name='only_one'"),
    ({"unique_name": "uq_user_public_id"}, ""),
    ({"server_default": "drop"}, ", server_default='drop'"),
    ({"server_default": "keep", "online": True, "lock_timeout": 1.0, "format": None}, ""),
    ({"format": NanoId()}, ""),
    ({"format": NanoId(length=8, alphabet=BASE62)}, ", format=NanoId(length=8, alphabet=BASE62)"),
    ({"format": NanoId().accepting("__world__")}, ", format=NanoId().accepting('__world__')"),
    ({"collation": "bytes", "keeps": "unique"}, ", collation='bytes', keeps='unique'"),
    ({"format": NanoId(prefix="b").accepting(NanoId())}, ", format=NanoId(prefix='b').accepting(NanoId())"),
    ({"online": False}, ", online=False"),
    ({"lock_timeout": 0.5, "attempts": 3}, ", lock_timeout=0.5, attempts=3"),
    ({"index_timeout": 60, "batch_seconds": 2, "pause": 0}, ", index_timeout=60, batch_seconds=2, pause=0"),
]


def written(*ops: PublicIdOp, **options: Any) -> str:
    """Return how a migration renders *ops*."""
    lines = render_python_code(UpgradeOps([ModifyTableOps("user", list(ops))]), **options).splitlines()
    return "\n".join(line.strip() for line in lines if "#" not in line)


@pytest.mark.parametrize(("options", "expected"), OPTIONS, ids=[text or "none" for _, text in OPTIONS])
def test_options(options: dict[str, Any], expected: str) -> None:
    """Options are rendered only if they differ from the defaults of the operation."""
    assert written(AddPublicIdOp("user", **options)) == f"op.add_public_id('user'{expected})"


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_operations(operation: type[PublicIdOp]) -> None:
    """Each operation is rendered as a call of its method."""
    assert written(operation("user")) == f"op.{operation.name}('user')"
    assert written(operation("user", "slug")) == f"op.{operation.name}('user', 'slug')"


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_batch(operation: type[PublicIdOp]) -> None:
    """Inside a batch, the table and its schema are not repeated."""
    code = written(operation("user", "slug", schema="attic", unique_name="x"), render_as_batch=True)

    assert code.splitlines() == [
        "with op.batch_alter_table('user', schema=None) as batch_op:",
        f"batch_op.{operation.name}('slug', unique_name='x')",
    ]


@on("sqlite", "postgresql")
def test_column_of_a_batch(new_people: Callable[..., People]) -> None:
    """In a batch, an operation takes the name of the column, and its options."""
    people = new_people(3)

    with people.migrating() as op, op.batch_alter_table(people.table) as batch:
        typed: Any = batch
        typed.add_public_id("slug", format=NanoId(length=8), server_default="none")

    assert people.columns() == ["id", "name", "slug"]
    slugs = People(people.engine, people.table, "slug", format=NanoId(length=8), server_default="none")
    slugs.check_complete(3)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_difference(operation: type[PublicIdOp]) -> None:
    """As a difference, an operation names schema, table and column, as those of Alembic do."""
    found = operation("user", "slug", schema="attic").to_diff_tuple()

    assert found == (operation.name, "attic", "user", "slug")


def test_beside_batches() -> None:
    """An operation outside of a ``ModifyTableOps``, where a project may put it, is rendered outside of batches."""
    code = render_python_code(UpgradeOps([AddPublicIdOp("user", schema="attic")]), render_as_batch=True)

    assert " op.add_public_id('user', schema='attic')" in code


def test_prefix_of_the_user() -> None:
    """The project's own name for ``op`` is used."""
    assert written(AddPublicIdOp("user"), alembic_module_prefix="alembic.op.") == "alembic.op.add_public_id('user')"


def test_dropping_tells_no_more_than_it_takes() -> None:
    """An operation that drops the ids is rendered without their format and default, but with the name of the index."""
    reverse = AddPublicIdOp("user", format=NanoId(prefix="b"), server_default="none", unique_name="x").reverse()

    assert isinstance(reverse, DropPublicIdOp)
    assert written(reverse) == "op.drop_public_id('user', unique_name='x')"


LONG = NanoId(prefix="prefix", length=20, alphabet="123456789ABDEGJKLMNPQRVWXYZabdegijkmnopqrvwxyz")
LONG_LINES = [
    {},
    {"format": LONG},
    {"format": LONG, "unique_name": "a_name_that_is_long", "server_default": "none"},
    {"format": NanoId(prefix="b").accepting(LONG, LONG.prefixed("old")), "comment": "It's (a, b) \\ 'c'"},
    {"comment": "of many words, " * 9},
    {"schema": "a_schema_of_a_name", "unique_name": "a_name_that_is_long", "comment": "of some words"},
    # arguments that fit into a line, with and without their commas, or do not
    *({"format": NanoId(24, prefix="p" * length, separator="~~"), "comment": "of words"} for length in range(36, 46)),
]


def test_lines_are_as_ruff_formats_them() -> None:
    """Ruff changes nothing in a rendered operation, with lines of 100 characters and the quotes of Alembic."""
    pytest.importorskip("ruff")
    functions = []
    for number, (options, batch) in enumerate(product(LONG_LINES, (False, True))):
        op = AddPublicIdOp("user", "a_column_of_public_ids", **options)
        op.notes = ["A note, which is a sentence of many words; it is to be wrapped. " * 4]
        body = render_python_code(UpgradeOps([ModifyTableOps("user", [op])]), render_as_batch=batch)
        functions.append(f"def upgrade_{number}() -> None:\n    {body.strip()}\n")
    code = "\n\n".join(functions)
    settings = ["--config", "line-length=100", "--config", 'format.quote-style="preserve"']

    formatted = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--isolated", *settings, "-"],
        input=code,
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert formatted == code


# --- columns


def test_plain_types(new_project: Callable[..., Project]) -> None:
    """Public ids, keys and references are rendered as types of SQLAlchemy, with variants for each database."""
    for driver in ("psycopg", "pymysql"):
        pytest.importorskip(driver)
    shop = new_shop()
    Table("entry", shop, Column("id", Integer, primary_key=True), Column("subject", AnyPublicIdType(48)))
    text = new_project().revision(shop)

    assert (
        "sa.Column('public_id', sa.String(length=12).with_variant(sa.String(length=12, collation='C'), 'postgresql')"
        ".with_variant(mysql.VARCHAR(charset='ascii', collation='ascii_bin', length=12), 'mysql', 'mariadb')"
    ) in text
    assert "from sqlalchemy.dialects import mysql\n" in text
    unsigned = "mysql.BIGINT(unsigned=True), 'mysql', 'mariadb'"
    key = f"sa.BigInteger().with_variant({unsigned}).with_variant(sa.Integer(), 'sqlite')"
    assert f"sa.Column('id', {key}, sa.Identity(always=False), autoincrement=True, nullable=False)" in text
    assert f"sa.Column('customer_id', {key}, nullable=True)" in text
    assert "sa.Column('subject', sa.String(length=48).with_variant(sa.String(length=48, collation='C'), 'post" in text
    assert "sqlalchemy_public_id" not in text.partition("Create Date")[2]


@on("sqlite", "postgresql")
def test_types_of_one_database(new_project: Callable[..., Project], monkeypatch: pytest.MonkeyPatch) -> None:
    """A type has no variant for MySQL in a program that has no driver for it; the database in use always has one."""
    project = new_project()
    of_postgresql = [*_DRIVERS["postgresql",]] if project.engine.dialect.name == "sqlite" else []
    for driver in (*of_postgresql, *_DRIVERS["mysql", "mariadb"]):
        monkeypatch.setitem(sys.modules, driver, None)  # as if it were not installed
    text = project.migrate(new_shop())

    assert "mysql" not in text.partition("Create Date")[2]
    assert ("'postgresql')" in text) is not bool(of_postgresql)
    assert "sa.BigInteger().with_variant(sa.Integer(), 'sqlite')" in text
    assert project.check(new_shop()) is None


def test_types_of_the_library(new_project: Callable[..., Project]) -> None:
    """With ``public_id_render="type"``, the column is rendered as ``PublicIdType``, with imports; the code works."""
    project = new_project()
    project.configure('public_id_render="type",')
    text = project.migrate(new_shop())

    assert "sa.Column('public_id', sqlalchemy_public_id.PublicIdType(NanoId(prefix='cus')), nullable=False)" in text
    assert "import sqlalchemy_public_id\n" in text
    assert "from sqlalchemy_public_id import NanoId\n" in text
    assert project.check(new_shop()) is None


@on("sqlite", "postgresql")
@pytest.mark.parametrize(
    ("style", "expected"),
    [("type", "sqlalchemy_public_id.PublicIdType(NanoId(), sql_type='TEXT')"), ("plain", "sa.Text()")],
)
def test_type_without_a_length(new_project: Callable[..., Project], style: str, expected: str) -> None:
    """``sql_type="TEXT"`` is part of the rendered column, in both ways to write it."""
    metadata = MetaData()
    code = Column("code", PublicIdType(NanoId(), sql_type="TEXT"), nullable=False)
    Table("entry", metadata, Column("id", Integer, primary_key=True), code)
    project = new_project()
    project.configure(f"public_id_render={style!r},")

    assert f"sa.Column('code', {expected}" in project.migrate(metadata)
    assert project.check(metadata) is None


@on("sqlite")
def test_unknown_way_to_write(new_project: Callable[..., Project]) -> None:
    """Any other value of ``public_id_render`` is refused, and the error lists the known ones."""
    project = new_project()
    project.configure('public_id_render="types",')

    with pytest.raises(ConfigurationError, match="""public_id_render is 'types', expected "plain" or "type\""""):
        project.revision(new_shop())


@on("sqlite")
def test_render_item_of_the_user(new_project: Callable[..., Project]) -> None:
    """What ``render_item`` of env.py renders is left to it, public ids included."""
    project = new_project()
    project.configure("render_item=lambda kind, item, context: 'sa.String(99)' if kind == 'type' else False,")
    text = project.revision(new_shop())

    assert "sa.Column('public_id', sa.String(99), nullable=False)" in text


@on("sqlite")
def test_type_of_the_user(new_project: Callable[..., Project]) -> None:
    """A project's subclass of ``PublicIdType`` is not rendered as ``PublicIdType``: its ``render_item`` renders it."""

    class OwnType(PublicIdType):
        cache_ok = True

    metadata = MetaData()
    Table("entry", metadata, Column("id", Integer, primary_key=True), Column("code", OwnType(NanoId())))
    project = new_project()
    project.configure('public_id_render="type",')

    assert "sqlalchemy_public_id.PublicIdType(" not in project.revision(metadata)


def test_batches_there_and_back(project: Project) -> None:
    """With ``render_as_batch=True``, the operation is rendered in a batch, and has the same effect."""
    project.configure("render_as_batch=True,")
    text = project.migrate(shop())

    assert upgrade_of(text)[-1] == "batch_op.add_public_id()"
    assert downgrade_of(text)[-1] == "batch_op.drop_public_id()"
    assert project.check(shop()) is None
    project.downgrade()
    assert project.differences(old_shop()) == []
    project.upgrade()
    assert project.check(shop()) is None
