"""``sql_type="TEXT"``: a column of ids without a length."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from alembic.autogenerate.api import AutogenContext
from alembic.migration import MigrationContext
from sqlalchemy import (
    Column,
    Connection,
    Engine,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    cast,
    insert,
    inspect,
    literal_column,
    make_url,
    select,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from sqlalchemy.schema import CreateTable
from support.marks import on
from support.people import People
from support.projects import Project
from support.scripts import autogenerate, written

from sqlalchemy_public_id import (
    ConfigurationError,
    NanoId,
    PublicIdType,
    TypedId,
    Uuid7,
    audit,
    bigint_key,
    lookup,
    public_id_column,
    public_ref,
    testing,
)
from sqlalchemy_public_id.alembic.render import render_types
from sqlalchemy_public_id.key_types import BigIntegerKey

pytestmark = pytest.mark.backend


class PaperId(TypedId, prefix="ppr"): ...


class Base(DeclarativeBase):
    metadata = MetaData()


class Paper(Base):
    __tablename__ = "tt_paper"
    id: Mapped[int] = bigint_key()
    public_id: Mapped[PaperId] = public_id_column(PaperId, sql_type="TEXT")
    title: Mapped[str] = mapped_column(String(20))


class Review(Base):
    """Refers to a paper by its key, and to another one by its public id."""

    __tablename__ = "tt_review"
    id: Mapped[int] = bigint_key()
    paper_id: Mapped[int | None] = mapped_column(ForeignKey(Paper.id))
    paper: Mapped[Paper | None] = relationship(foreign_keys=paper_id)
    paper_public_id: Mapped[PaperId | None] = public_ref("paper")
    answers: Mapped[PaperId | None] = mapped_column(ForeignKey(Paper.public_id))


class Place(Base):
    """Has ids of text as its primary key."""

    __tablename__ = "tt_place"
    id: Mapped[str] = mapped_column(
        PublicIdType(NanoId(), sql_type="TEXT"), primary_key=True, default=NanoId().generate
    )


STORED = {"sqlite": "TEXT", "postgresql+psycopg": 'TEXT COLLATE "C"', "cockroachdb+psycopg": "STRING"}


def dialect_of(name: str) -> Any:
    return make_url(f"{name}://").get_dialect()()


@pytest.mark.parametrize("name", ["sqlite", "postgresql+psycopg"])
def test_create_table(name: str) -> None:
    """The column has no length, and is compared byte by byte; a foreign key and a copied table have its type."""
    copied = Base.metadata.tables["tt_paper"].to_metadata(MetaData())
    stored = STORED[name]

    for table in (Paper.__table__, copied):
        assert f"public_id {stored} NOT NULL" in str(CreateTable(table).compile(dialect=dialect_of(name)))
    review = str(CreateTable(Review.__table__).compile(dialect=dialect_of(name)))
    assert f"answers {stored}" in review
    assert f"id {stored} NOT NULL" in str(CreateTable(Place.__table__).compile(dialect=dialect_of(name)))


@pytest.mark.parametrize("name", ["mysql+pymysql", "mariadb+pymysql", "oracle", "mssql"])
def test_refused(name: str) -> None:
    """Where an index of TEXT needs a length, DDL and queries are refused, and the error names the VARCHAR."""
    for statement in (CreateTable(Paper.__table__), CreateTable(Review.__table__), insert(Paper)):
        with pytest.raises(ConfigurationError, match=r"leave sql_type out, so that the column is VARCHAR\(16\)$"):
            str(statement.compile(dialect=dialect_of(name)))


@on("mysql", "mariadb")
def test_refused_by_a_server(engine: Engine) -> None:
    """create_all() is refused before a table is created."""
    with pytest.raises(ConfigurationError, match=r"VARCHAR\(16\)"):
        Paper.__table__.create(engine)

    assert not inspect(engine).has_table("tt_paper")


def test_wrong_declarations() -> None:
    """Another type, or a format that stores numbers, is refused where it is declared."""
    with pytest.raises(ConfigurationError, match=r'^sql_type is \'CLOB\', expected "TEXT"'):
        public_id_column(NanoId(), sql_type="CLOB")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r'stores numbers; add storage="text" to the format$'):
        PublicIdType(Uuid7(), sql_type="TEXT")
    assert repr(PublicIdType(Uuid7(storage="text"), sql_type="TEXT")).endswith(", sql_type='TEXT')")


@on("sqlite")
@pytest.mark.parametrize("change", [copy.copy, copy.deepcopy, lambda type_: pickle.loads(pickle.dumps(type_))])
def test_copies(engine: Engine, statements: list[str], change: Callable[[Any], Any]) -> None:
    """A copy of the type is TEXT; SQLAlchemy's cache does not take a cast to it for one to a VARCHAR."""
    types = [change(PublicIdType(NanoId(), sql_type="TEXT")), PublicIdType(NanoId())]
    with engine.connect() as connection:
        for type_ in types:
            connection.execute(select(cast(literal_column("'id'"), type_)))

    assert [statement.count("AS TEXT") for statement in statements] == [1, 0]


def test_revisions() -> None:
    """A revision has TEXT where the databases have it, and VARCHAR on MySQL, where others may run it."""
    context = AutogenContext(
        MigrationContext.configure(dialect=dialect_of("postgresql+psycopg")), opts={"sqlalchemy_module_prefix": "sa."}
    )
    render_types(context)
    type_ = PublicIdType(NanoId(), sql_type="TEXT")

    assert context.opts["render_item"]("type", type_, context) == (
        "sa.Text().with_variant(sa.Text(collation='C'), 'postgresql')"
        ".with_variant(mysql.VARCHAR(charset='ascii', collation='ascii_bin', length=12), 'mysql', 'mariadb')"
    )
    context.opts["public_id_render"] = "type"
    assert (
        context.opts["render_item"]("type", type_, context)
        == "sqlalchemy_public_id.PublicIdType(NanoId(), sql_type='TEXT')"
    )


@pytest.fixture
def papers(create: Callable[[MetaData], None], session: Session) -> list[Paper]:
    create(Base.metadata)
    papers = [Paper(title=f"paper {number}") for number in range(5)]
    session.add_all(papers)
    session.commit()
    return papers


@on("sqlite", "postgresql")
def test_rows(session: Session, papers: list[Paper]) -> None:
    """Ids are generated, guarded, found and paged as those of a column with a length."""
    ids = [paper.public_id for paper in papers]
    with testing.collisions(Paper, ids[0]):
        session.add(other := Paper(title="other"))
        session.flush()
    assert other.public_id not in ids
    session.execute(insert(Paper), [{"title": "plain"}, {"title": "plain"}])
    session.add(review := Review(paper_public_id=ids[1], answers=ids[2]))
    session.flush()
    session.expire_all()

    assert list(lookup.get_many(session, Paper, [*ids, "ppr_unknown"])) == ids
    assert type(lookup.get_one(session, Paper, ids[3]).public_id) is PaperId
    first = lookup.page(session, Paper, limit=3)
    assert [paper.public_id for paper in lookup.page(session, Paper, limit=2, after=first.next)] == ids[3:]
    found = session.get_one(Review, review.id)
    assert (found.paper_public_id, found.answers) == (ids[1], ids[2])
    join = select(Paper.public_id).join(Review, Review.answers == Paper.public_id)
    assert session.scalars(join).all() == [ids[2]]


@on("sqlite", "postgresql")
def test_index(session: Session, papers: list[Paper]) -> None:
    """A lookup uses the unique index."""
    sent: list[Any] = []
    connection: Connection = session.connection()
    query = select(Paper).where(Paper.public_id == papers[0].public_id)
    compiled = query.compile(connection, compile_kwargs={"literal_binds": True})
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL enable_seqscan = off"))
    explain = "EXPLAIN QUERY PLAN " if connection.dialect.name == "sqlite" else "EXPLAIN "
    sent.extend(connection.exec_driver_sql(f"{explain}{compiled}").all())

    assert "uq_tt_paper_public_id" in str(sent)


@on("sqlite", "postgresql")
def test_audit(engine: Engine, papers: list[Paper]) -> None:
    """An audit finds nothing to say."""
    report = audit.run(engine, tables=["tt_paper"], formats={"tt_paper": PaperId.id_format})

    assert [str(finding) for finding in report.findings] == []


# --- migrations


def papers_of(sql_type: Any) -> MetaData:
    metadata = MetaData()
    ids: Column[Any] = public_id_column(NanoId(), sql_type=sql_type).column
    ids.name = ids.key = "public_id"
    Table("leaflet", metadata, Column("id", Integer, primary_key=True), ids)
    Table(
        "shelf", metadata, Column("id", PublicIdType(NanoId(), sql_type), primary_key=True, default=NanoId().generate)
    )
    Table("stack", metadata, Column("id", Integer, primary_key=True), Column("shelf_id", ForeignKey("shelf.id")))
    Table("copy", metadata, Column("id", Integer, primary_key=True), Column("of_id", ForeignKey("leaflet.public_id")))
    return metadata


def types_of(engine: Engine) -> dict[str, str]:
    columns = {"leaflet": "public_id", "shelf": "id", "stack": "shelf_id", "copy": "of_id"}
    inspector = inspect(engine)
    return {
        table: type(next(each["type"] for each in inspector.get_columns(table) if each["name"] == name)).__name__
        for table, name in columns.items()
    }


@on("sqlite", "postgresql")
def test_new_tables(new_project: Callable[..., Project], engine: Engine) -> None:
    """Autogenerate creates TEXT for ids, keys and foreign keys to both, and finds nothing to do afterwards."""
    project = new_project()
    project.migrate(papers_of("TEXT"))

    assert types_of(engine) == dict.fromkeys(("leaflet", "shelf", "stack", "copy"), "TEXT")
    assert project.check(papers_of("TEXT")) is None
    assert project.check(papers_of(None)) is None


@on("sqlite", "postgresql")
def test_tables_with_a_length(new_project: Callable[..., Project], engine: Engine) -> None:
    """A column with a length holds the ids, and keeps its type: declaring TEXT later changes no table."""
    project = new_project()
    project.migrate(papers_of(None))
    before = types_of(engine)

    assert project.check(papers_of("TEXT")) is None
    assert before == types_of(engine)
    assert "TEXT" not in before.values()


@on("sqlite", "postgresql")
def test_added_to_a_table(new_people: Callable[..., People], engine: Engine) -> None:
    """Ids and a server default are added to a nullable column of TEXT, which keeps its type."""
    bytewise = ' COLLATE "C"' if engine.name == "postgresql" else ""
    table = new_people(3, more=f", public_id text{bytewise}")
    metadata = MetaData()
    ids: Column[Any] = public_id_column(NanoId(), sql_type="TEXT").column
    ids.name = ids.key = "public_id"
    Table("person", metadata, Column("id", BigIntegerKey(), primary_key=True), Column("name", String(50)), ids)

    table.run("expand_public_id", format=NanoId())
    if engine.name != "sqlite":
        assert NanoId().canonical(table.written()) is not None  # by the database
    table.run("backfill_public_id", format=NanoId())
    table.run("contract_public_id", format=NanoId())

    assert all(NanoId().canonical(id) for id in table.ids())
    (type_,) = [each["type"] for each in inspect(engine).get_columns("person") if each["name"] == "public_id"]
    assert isinstance(type_, Text)
    assert [str(finding) for finding in audit.run(engine, tables=["person"]).findings] == []
    assert "op." not in written(autogenerate(engine, metadata))
