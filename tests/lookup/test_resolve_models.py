"""``resolve()`` and ``resolve_many()`` limited to some models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from sqlalchemy import Engine, ForeignKey, MetaData, String
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, registry, with_loader_criteria
from support.async_sessions import tell

from conftest import Statements
from sqlalchemy_public_id import ConfigurationError, NanoId, PublicIdMixin, lookup, public_id_column
from sqlalchemy_public_id.asyncio import lookup as awaited
from sqlalchemy_public_id.errors import DuplicatePrefix


class Base(DeclarativeBase):
    metadata = MetaData()


class Issue(PublicIdMixin, Base):
    __tablename__ = "rm_issue"
    __public_id__ = NanoId(prefix="rmissue")
    __mapper_args__: ClassVar[dict[str, Any]] = {"polymorphic_on": "kind", "polymorphic_identity": "issue"}
    kind: Mapped[str] = mapped_column(String(10))
    code: Mapped[str] = public_id_column(NanoId(prefix="rmcode"))


class Bug(Issue):
    """A joined-table subclass."""

    __tablename__ = "rm_bug"
    __mapper_args__: ClassVar[dict[str, Any]] = {"polymorphic_identity": "bug"}
    id: Mapped[int] = mapped_column(ForeignKey(Issue.id), primary_key=True)
    tenant: Mapped[int] = mapped_column(default=1)


class Crash(Bug):
    """A single-table subclass of it."""

    __mapper_args__: ClassVar[dict[str, Any]] = {"polymorphic_identity": "crash"}


class Wish(Issue):
    __mapper_args__: ClassVar[dict[str, Any]] = {"polymorphic_identity": "wish"}


class Comment(PublicIdMixin, Base):
    __tablename__ = "rm_comment"
    __public_id__ = NanoId(prefix="rmcomment")


class Job(PublicIdMixin, Base):
    """A model that clients must not reach."""

    __tablename__ = "rm_job"
    __public_id__ = NanoId(prefix="rmjob")


class Nameless(PublicIdMixin, Base):
    """A model whose ids have no prefix."""

    __tablename__ = "rm_nameless"


class Keyed(Base):
    """A model without a public id."""

    __tablename__ = "rm_keyed"
    id: Mapped[int] = mapped_column(primary_key=True)


KINDS: list[Any] = [Issue, Bug, Crash, Wish, Comment, Job]


def rows_of(session: Session) -> dict[Any, Any]:
    rows = {kind: kind() for kind in KINDS}
    session.add_all(rows.values())
    session.commit()
    return rows


@pytest.fixture
def rows(create: Callable[[MetaData], None], session: Session) -> dict[Any, Any]:
    create(Base.metadata)
    return rows_of(session)


ALLOWED: dict[str, tuple[list[Any], list[Any]]] = {
    "several": ([Issue, Comment], [Issue, Bug, Crash, Wish, Comment]),
    "one": ([Comment], [Comment]),
    "subclass": ([Bug], [Bug, Crash]),
    "subclasses": ([Wish, Crash, Comment], [Wish, Crash, Comment]),
    "class and subclass": ([Crash, Bug], [Bug, Crash]),
    "class after subclass": ([Crash, Issue], [Issue, Bug, Crash, Wish]),
    "none": ([], []),
}
"""The models that are passed, and those whose rows are found."""


@pytest.mark.filterwarnings("ignore::sqlalchemy_public_id.errors.PublicIdWarning")
@pytest.mark.backend
@pytest.mark.parametrize("name", ALLOWED)
def test_models(session: Session, rows: dict[Any, Any], statements: Statements, name: str) -> None:
    """Only rows of these models and their subclasses are found, by any of their ids, once each.

    An id of a model that is not among them is treated like one without a model, and no statement is sent.
    """
    models, reachable = ALLOWED[name]
    found = {kind for kind in KINDS if lookup.resolve(session, rows[kind].public_id, models=models) is rows[kind]}
    assert found == {*reachable}
    codes = {kind: rows[kind].code for kind in (Issue, Bug, Crash, Wish)}
    for kind, code in codes.items():
        assert lookup.resolve(session, code, models=iter(models)) is (rows[kind] if kind in reachable else None)
    ids = {rows[kind].public_id: rows[kind] for kind in KINDS}
    many = lookup.resolve_many(session, [*ids, "rmnone_000000000000"], models=(model for model in models))
    assert many == {id: row for id, row in ids.items() if type(row) in reachable}
    assert [*many] == [id for id in ids if id in many]

    statements.clear()
    for other in (rows[Job].public_id, "rmnone_000000000000", "x", None, 1):
        assert lookup.resolve(session, other, models=models) is None
        assert lookup.resolve_many(session, [other], models=models) == {}
    assert len(statements) == 0


@pytest.mark.backend
def test_criteria_on_a_subclass(session: Session, rows: dict[Any, Any], statements: Statements) -> None:
    """A row is searched as the model that is named, so criteria and conditions on this model apply."""
    rows[Bug].tenant = 2
    session.commit()
    bug, crash = rows[Bug].public_id, rows[Crash].public_id
    ours: Any = {"options": [with_loader_criteria(Bug, Bug.tenant == 1, include_aliases=True)]}
    for how in (ours, {"where": Bug.tenant == 1}):
        assert lookup.resolve(session, bug, models=[Bug], **how) is None
        assert lookup.resolve(session, crash, models=[Bug], **how) is rows[Crash]
        assert lookup.resolve_many(session, [bug, crash], models=[Bug, Comment], **how) == {crash: rows[Crash]}
    comment = rows[Comment].public_id
    statements.clear()
    assert lookup.resolve_many(session, [bug, crash, comment], models=[Issue, Comment]).keys() == {bug, crash, comment}
    assert len(statements) == 2


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (Issue, r"models is .*Issue.*, expected a list of models: write \[Issue\]"),
        ("Issue", r"models is 'Issue', expected a list of models"),
        (7, "models is 7, expected a list of models"),
        (["Issue"], "'Issue' is not a mapped class: pass the class, not its name"),
        ([Issue, Keyed], "Keyed has no public id; add PublicIdMixin"),
        ([Issue, Nameless], "models has Nameless, whose ids have no prefix to find their model by"),
        ([Issue, int], "is not a mapped class"),
        ([Issue.__table__], "but a table: pass the model"),
        ([Issue.public_id], "but an attribute of one: pass Issue"),
        ([None], "None is not a mapped class"),
    ],
    ids=["class", "name", "number", "names", "no id", "no prefix", "int", "table", "attribute", "None"],
)
def test_models_that_are_none(models: Any, message: str) -> None:
    """Anything but models whose ids have prefixes is refused, even for an id that no model has."""
    with Session() as session:
        with pytest.raises(ConfigurationError, match=message):
            lookup.resolve(session, "nonsense", models=models)
        with pytest.raises(ConfigurationError, match=message):
            lookup.resolve_many(session, [], models=models)


def test_base_and_models() -> None:
    """A base and models cannot be passed together."""
    with Session() as session:
        with pytest.raises(ConfigurationError, match="base and models are both given: pass only models"):
            lookup.resolve(session, "nonsense", base=Base, models=[Issue])
        with pytest.raises(ConfigurationError, match="base and models are both given"):
            lookup.resolve_many(session, [], base=Base, models=[Issue])


@pytest.mark.parametrize("base", ["Base", 7, int, Base.metadata, SimpleNamespace(registry=registry)], ids=repr)
def test_base_that_is_none(base: Any) -> None:
    """A base that is none would have no models, so that no id would be found: it is refused."""
    with Session() as session:
        with pytest.raises(ConfigurationError, match=r"base is .*, expected a declarative base, a registry or a model"):
            lookup.resolve(session, "nonsense", base=base)
        with pytest.raises(ConfigurationError, match=r"base is .*, expected a declarative base, a registry or a model"):
            lookup.resolve_many(session, [], base=base)


def test_object_with_a_base() -> None:
    """The ``db`` of Flask-SQLAlchemy is not the base, which is its attribute ``Model``."""
    with Session() as session, pytest.raises(ConfigurationError, match="no declarative base; pass its attribute Model"):
        lookup.resolve(session, "nonsense", base=SimpleNamespace(Model=Base, registry=registry))


@pytest.mark.parametrize("base", [Base, Base.registry, Issue], ids=["base", "registry", "model"])
def test_registry_of_a_base(session: Session, rows: dict[Any, Any], base: Any) -> None:
    """The models of a base are those of its registry, which the registry itself and each model stand for, too."""
    job = rows[Job].public_id
    assert lookup.resolve(session, job, base=base) is rows[Job]
    assert lookup.resolve_many(session, [job], base=base) == {job: rows[Job]}


@pytest.fixture
def other_base(engine: Engine) -> Iterator[Any]:
    class Other(DeclarativeBase): ...

    class Remark(PublicIdMixin, Other):
        __tablename__ = "rm_comment"
        __public_id__ = NanoId(prefix="rmcomment")

    yield Remark
    Other.registry.dispose()


def test_prefix_of_two_bases(session: Session, rows: dict[Any, Any], other_base: Any) -> None:
    """Models of two bases with one prefix are told apart by ``models``; without it, or with both, it is an error."""
    comment = rows[Comment].public_id
    for models in (None, [Comment, other_base]):
        with pytest.raises(DuplicatePrefix):
            lookup.resolve(session, comment, models=models)
    assert lookup.resolve(session, comment, models=[Comment]) is rows[Comment]
    assert type(lookup.resolve(session, comment, models=[other_base])) is other_base


@pytest.mark.backend
def test_async(async_engine: AsyncEngine) -> None:
    """The asynchronous functions accept ``models``, too."""

    async def story(session: AsyncSession) -> None:
        rows = await session.run_sync(rows_of)
        job, bug = rows[Job].public_id, rows[Bug].public_id
        assert await awaited.resolve(session, job, models=[Issue, Comment]) is None
        assert await awaited.resolve(session, bug, models=[Bug]) is rows[Bug]
        assert await awaited.resolve_many(session, [job, bug], models=[Issue, Comment]) == {bug: rows[Bug]}
        with pytest.raises(ConfigurationError):
            await awaited.resolve(session, bug, base=Base, models=[Bug])

    tell(async_engine, Base.metadata, story)
