"""``assert_tenants_are_apart()``: what the sessions of two organizations see of each other, with every function."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, create_engine, inspect, select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.ext.horizontal_shard import ShardedSession
from sqlalchemy.orm import DeclarativeBase, Session, selectinload
from support import kinds_of_models
from support.marks import on
from support.strangers import (
    CRITERIA,
    Base,
    Document,
    Invoice,
    Keys,
    Login,
    Organization,
    Ticket,
    User,
    enter,
    fill,
    limit,
    on_classes,
    row_level_security,
)

from sqlalchemy_public_id import ConfigurationError
from sqlalchemy_public_id.testing import TenantLeak, TenantsNotApart, assert_tenants_are_apart
from sqlalchemy_public_id.testing.attempts import Attempts
from sqlalchemy_public_id.testing.seen import Seen

PAGES = {f"lookup.page({argument}={order})" for argument in ("after", "before") for order in ("", ", order_by=")}
LOOKUPS = {
    "LegacyKeys",
    "idempotency.insert_once",
    "lookup.get",
    "lookup.get_many",
    "lookup.get_one",
    "lookup.keys_of",
    "lookup.page",
    "lookup.page(count=)",
    "lookup.public_ids_of",
    "lookup.resolve",
    "lookup.resolve_many",
    "select()",
} | PAGES
"""All functions that can reach the rows of a model with a prefix."""


def functions_of(reference: str) -> set[str]:
    """Return all functions that can reach the rows that a reference points to."""
    relationship = reference.partition("_")[0]
    return {
        f"Ticket.{relationship} after Ticket.{reference} =",
        f"Ticket.{reference}",
        f"Ticket.{reference} =",
        f"Ticket.{reference} in SQL",
        *(f"{function} with Ticket.{reference}" for function in ("bulk.insert()", "insert()", "update()")),
    }


@pytest.fixture
def keys(create: Callable[[MetaData], None], engine: Engine) -> Keys:
    create(Base.metadata)
    return fill(engine)


def leaks(one: Session, other: Session, **options: Any) -> dict[str, set[str]]:
    """Return what comes through: model → functions."""
    try:
        assert_tenants_are_apart(Base, one, other, **options)
    except TenantsNotApart as error:
        return by_model(error.leaks) | {model: {"untried"} for model in error.untried}
    return {}


def by_model(found: Iterable[TenantLeak]) -> dict[str, set[str]]:
    functions = defaultdict(set)
    for leak in found:
        functions[leak.model].add(leak.function)
    return dict(functions)


# --- what a stranger sees

EXPECTED: dict[str, dict[str, set[str]]] = {
    "class": {},
    "base": {},
    "subclass": {"Document": LOOKUPS},  # SQLAlchemy does not apply criteria of a subclass to queries of its base
    "not the tenants' own table": {"Organization": LOOKUPS | functions_of("organization_public_id")},
}


@pytest.mark.backend
@pytest.mark.parametrize("where", CRITERIA)
def test_criteria(engine: Engine, keys: Keys, where: str) -> None:
    """A stranger reaches nothing by any function, unless the criteria miss a class: then, the rows of that class."""
    with Session(engine) as ours, Session(engine) as theirs:
        for session, key in zip((ours, theirs), keys, strict=True):
            limit(session, key, CRITERIA[where])

        assert leaks(ours, theirs) == EXPECTED[where]


@pytest.mark.backend
@on("postgresql")
def test_row_level_security(engine: Engine, keys: Keys) -> None:
    """A stranger reaches nothing if the database hides the rows."""
    with row_level_security(engine) as limited, Session(limited) as ours, Session(limited) as theirs:
        for session, key in zip((ours, theirs), keys, strict=True):
            enter(session, key)

        assert leaks(ours, theirs) == {}


@pytest.mark.backend
def test_asynchronous_drivers(async_engine: AsyncEngine) -> None:
    """A stranger reaches nothing with an ``AsyncSession``."""

    async def story() -> None:
        try:
            async with async_engine.begin() as connection:
                await connection.run_sync(Base.metadata.drop_all)
                await connection.run_sync(Base.metadata.create_all)
                keys = await connection.run_sync(fill)
            async with AsyncSession(async_engine) as ours, AsyncSession(async_engine) as theirs:
                for session, key in zip((ours, theirs), keys, strict=True):
                    limit(session.sync_session, key, CRITERIA["base"])
                assert await ours.run_sync(leaks, theirs.sync_session) == {}
        finally:
            async with async_engine.begin() as connection:
                await connection.run_sync(Base.metadata.drop_all)
            await async_engine.dispose()

    asyncio.run(story())


SCOPED = {"assignee_public_id", "assignee_card", "watcher_public_id", "watcher_card"}


@pytest.mark.backend
def test_scopes(engine: Engine, keys: Keys) -> None:
    """In a session without criteria, a scope alone refuses a stranger's id, and shows no other id of the row."""
    ours, theirs = keys
    with Session(engine) as anyone, Session(engine) as stranger:
        anyone.info["organization_id"] = ours
        limit(stranger, theirs, CRITERIA["base"])
        mappers = [inspect(model) for model in (Ticket, User)]
        found = by_model(Attempts(Seen(anyone, mappers), Seen(stranger, mappers)).leaks())
        anyone.rollback()
    assigned = {function for function in found["User"] if " =" in function or " with " in function}

    assert {function for function in assigned if any(name in function for name in SCOPED)} == set()
    assert assigned  # to the author, which has no scope


MODELS: dict[Any, set[str]] = {User: set(), Login: set(), Ticket: set(), Document: {"Invoice", "Memo"}}
"""Model → its subclasses."""


@pytest.mark.slow
@pytest.mark.parametrize("forgotten", MODELS, ids=lambda model: model.__name__)
def test_forgotten_model(engine: Engine, keys: Keys, forgotten: Any) -> None:
    """A model that the criteria forget is named, with its subclasses, and no other one but by its references."""
    criteria = on_classes(Organization, *(model for model in MODELS if model is not forgotten))
    with Session(engine) as ours, Session(engine) as theirs:
        for session, key in zip((ours, theirs), keys, strict=True):
            limit(session, key, criteria)
        found = leaks(ours, theirs)

    assert {model for model in found if "select()" in found[model]} == {forgotten.__name__, *MODELS[forgotten]}
    expected = {"select()", "tokens.get"} if forgotten is Login else LOOKUPS
    assert expected <= found[forgotten.__name__]


# --- what is left behind


def all_rows(engine: Engine) -> list[list[Any]]:
    with engine.connect() as connection:
        return [sorted(map(repr, connection.execute(select(table)))) for table in Base.metadata.sorted_tables]


@pytest.mark.backend
def test_nothing_is_changed(engine: Engine, keys: Keys) -> None:
    """If everything came through, all rows are as before, and so are the objects that the sessions held."""
    before = all_rows(engine)
    with Session(engine) as ours, Session(engine) as theirs:
        ours.info["organization_id"], theirs.info["organization_id"] = keys
        ticket = ours.scalars(select(Ticket).options(selectinload(Ticket.assignee))).first()
        held = set(ours)
        assert leaks(ours, theirs)
        assert set(ours) == held
        assert (inspect(ticket).persistent, ours.is_modified(ticket)) == (True, False)
        assert not ours.in_transaction()
        assert not theirs.in_transaction()

    assert all_rows(engine) == before


@pytest.mark.backend
def test_sessions_of_one_connection(engine: Engine, keys: Keys) -> None:
    """Both sessions may use savepoints of one connection, as in a test that is rolled back."""
    with engine.connect() as connection, connection.begin() as transaction:
        options: Any = {"bind": connection, "join_transaction_mode": "create_savepoint"}
        with Session(**options) as ours, Session(**options) as theirs:
            for session, key in zip((ours, theirs), keys, strict=True):
                limit(session, key, CRITERIA["base"])

            assert leaks(ours, theirs) == {}
        transaction.rollback()


# --- errors


def test_error(engine: Engine, keys: Keys) -> None:
    """The error is one text by model and function, with what came through as attributes."""
    with Session(engine) as ours, Session(engine) as theirs, pytest.raises(TenantsNotApart) as caught:
        for session, key in zip((ours, theirs), keys, strict=True):
            limit(session, key, on_classes(Organization, User, Ticket, Document))
        assert_tenants_are_apart(Base, ours, theirs)

    assert str(caught.value).splitlines() == [
        "one tenant reaches rows of the other:",
        "  Login: select(), tokens.get",
        "let the sessions hide these rows; if all tenants share a model, name it in shared=[…]",
    ]
    assert [leak[:2] for leak in caught.value.leaks] == [("select()", "Login"), ("tokens.get", "Login")]


def test_shared_models(engine: Engine, keys: Keys) -> None:
    """A model that is named as shared is not tried, and neither are its subclasses."""
    with Session(engine) as ours, Session(engine) as theirs:
        for session, key in zip((ours, theirs), keys, strict=True):
            limit(session, key, on_classes(Organization, User, Login, Ticket))

        assert leaks(ours, theirs, shared=[Document]) == {}


def test_model_without_rows(engine: Engine, keys: Keys) -> None:
    """A model of which one session sees no row is an error, because nothing was tried with it."""
    with Session(engine) as session, session.begin():
        session.delete(session.scalars(select(Invoice)).first())
    with Session(engine) as ours, Session(engine) as theirs, pytest.raises(TenantsNotApart) as caught:
        for session, key in zip((ours, theirs), keys, strict=True):
            limit(session, key, CRITERIA["base"])
        assert_tenants_are_apart(Base, ours, theirs)

    assert (caught.value.leaks, caught.value.untried) == ((), ("Invoice",))
    assert str(caught.value) == "nothing was tried with Invoice: commit a row of each for both tenants"


def test_what_could_not_be_undone(engine: Engine, keys: Keys) -> None:
    """Sessions whose rollback would undo too much, or nothing, are refused, and nothing is written."""
    before = all_rows(engine)
    with Session(engine) as ours, Session(engine) as theirs:
        with pytest.raises(ConfigurationError, match="the same session"):
            assert_tenants_are_apart(Base, ours, ours)
        theirs.add(Organization(name="new"))
        with pytest.raises(ConfigurationError, match="not flushed"):
            assert_tenants_are_apart(Base, ours, theirs)
        theirs.rollback()
        with pytest.raises(ConfigurationError, match="expected a declarative base"):
            assert_tenants_are_apart(User.__table__, ours, theirs)
        sharded = ShardedSession(
            shards={"one": engine},
            shard_chooser=lambda *_: "one",
            identity_chooser=lambda *_, **__: ["one"],
            execute_chooser=lambda _: ["one"],
        )
        with sharded, pytest.raises(ConfigurationError, match="sharded"):
            assert_tenants_are_apart(Base, ours, sharded)
    autocommit = create_engine(engine.url, isolation_level="AUTOCOMMIT")
    with Session(autocommit) as ours, Session(autocommit) as theirs, pytest.raises(ConfigurationError, match="AUTOCOM"):
        assert_tenants_are_apart(Base, ours, theirs)
    autocommit.dispose()

    assert all_rows(engine) == before


def test_asynchronous_sessions() -> None:
    """An ``AsyncSession`` is refused with what to pass instead."""
    with pytest.raises(TypeError, match="run_sync"):
        assert_tenants_are_apart(Base, AsyncSession(), AsyncSession())  # type: ignore[arg-type]


def test_base_without_models() -> None:
    """A base without models has nothing to try."""

    class Empty(DeclarativeBase): ...

    assert_tenants_are_apart(Empty, Session(), Session())


# --- models of all kinds


@pytest.mark.backend
@pytest.mark.parametrize("is_limited", [True, False])
def test_kinds_of_models(
    engine: Engine, create: Callable[[MetaData], None], recwarn: pytest.WarningsRecorder, is_limited: bool
) -> None:
    """Composite and natural keys, dataclasses, unions, validators, eager loads, and columns of all sorts are tried."""
    create(kinds_of_models.Base.metadata)
    with Session(engine) as session:
        session.add_all([*kinds_of_models.rows_of(1), *kinds_of_models.rows_of(2)])
        session.commit()
    models = {mapper.class_.__name__ for mapper in kinds_of_models.Base.registry.mappers}
    with Session(engine) as ours, Session(engine) as theirs:
        for session, tenant in ((ours, 1), (theirs, 2)) if is_limited else ():
            limit(session, tenant, kinds_of_models.criteria)

        if is_limited:
            assert_tenants_are_apart(kinds_of_models.Base, ours, theirs)
        else:
            with pytest.raises(TenantsNotApart) as caught:
                assert_tenants_are_apart(kinds_of_models.Base, ours, theirs)
            assert by_model(caught.value.leaks).keys() == models
    assert list(recwarn) == []
