"""Upserts keep the id of an existing row, and INSERT … FROM SELECT does not give all rows the same id."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, String, func, insert, literal, select, text, update
from sqlalchemy.exc import DBAPIError, StatementError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, aliased, configure_mappers, mapped_column, relationship
from support.marks import on
from support.members import A, B

from sqlalchemy_public_id import (
    ConfigurationError,
    ImmutablePublicId,
    NanoId,
    PublicIdMixin,
    bigint_key,
    guard,
    public_id_column,
    testing,
)

pytestmark = pytest.mark.backend


class Base(DeclarativeBase):
    metadata = MetaData()


class User(PublicIdMixin, Base):
    """Every column is part of an upsert, because MySQL cannot set a column to ``inserted`` if the rows omit it."""

    __tablename__ = "user"
    email: Mapped[str] = mapped_column(String(50), unique=True)
    name: Mapped[str | None] = mapped_column(String(50))


class Link(Base):
    """A public id whose column has another name and key than its attribute."""

    __tablename__ = "link"
    id: Mapped[int] = bigint_key()
    long: Mapped[str] = public_id_column(name="long_text", key="long_key")
    url: Mapped[str] = mapped_column(String(50), unique=True)


ADA = (1, A, "ada@example.org", "Ada")
NEW = {"email": "grace@example.org", "name": "Grace"}
SAME = {"email": "ada@example.org", "name": "Ada Lovelace"}
table = User.__table__
conflict_clauses = on("sqlite", "postgresql")


@pytest.fixture(autouse=True)
def tables(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """Store one user without a session, so that the engine is not guarded yet."""
    create(Base.metadata)
    configure_mappers()
    with engine.begin() as connection:
        connection.execute(insert(table), {"public_id": A, "email": ADA[2], "name": ADA[3]})


def stored(engine: Engine) -> list[Any]:
    with engine.connect() as connection:
        columns = (table.c.id, table.c.public_id, table.c.email, table.c.name)
        return list(connection.execute(select(*columns).order_by(table.c.name)))


def insert_of(engine: Engine, target: Any) -> Any:
    """Return the dialect's own INSERT, which has the clauses for upserts."""
    name = {"mariadb": "mysql"}.get(engine.name, engine.name)
    return import_module(f"sqlalchemy.dialects.{name}").insert(target)


def upsert(engine: Engine, target: Any, set_: Callable[[Any], Any], unique: str = "email") -> Any:
    """Return an upsert into *target*; *set_* computes the SET of existing rows from the columns of the new row."""
    statement = insert_of(engine, target)
    if engine.name in {"mysql", "mariadb"}:
        return statement.on_duplicate_key_update(set_(statement.inserted))
    return statement.on_conflict_do_update(index_elements=[unique], set_=set_(statement.excluded))


def through_session(engine: Engine, statement: Any, rows: Any) -> None:
    with Session(engine) as session, session.begin():
        session.execute(statement, rows)


def through_guarded_core(engine: Engine, statement: Any, rows: Any) -> None:
    guard.install(engine)
    through_core(engine, statement, rows)


def through_core(engine: Engine, statement: Any, rows: Any) -> None:
    with engine.begin() as connection:
        connection.execute(statement, rows)


WAYS: dict[str, tuple[Callable[[Engine, Any, Any], None], Any]] = {
    "insert(Model) through a session": (through_session, User),
    "insert(table) through a session": (through_session, table),
    "insert(table) through a guarded engine": (through_guarded_core, table),
    "insert(table) without the guard": (through_core, table),
}
ROTATIONS: dict[str, Callable[[Any], Any]] = {
    "all columns": lambda new: {column.name: column for column in new},
    "by name": lambda new: {"name": new.name, "public_id": new.public_id},
    "to a text": lambda new: {"public_id": B},
    "by column": lambda new: {table.c.public_id: new.public_id},
    "by attribute": lambda new: {User.public_id: new.public_id},
}
ROWS = {"one row": SAME, "rows": [NEW, SAME]}


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("way", WAYS)
def test_setting_all_columns_is_refused(engine: Engine, way: str, rows: str) -> None:
    """``set_={c.name: c for c in excluded}`` would replace the id of an existing row: it raises, and writes nothing."""
    send, target = WAYS[way]
    with pytest.raises(ImmutablePublicId, match="would give an existing User a new public_id") as caught:
        send(engine, upsert(engine, target, ROTATIONS["all columns"]), ROWS[rows])

    assert not isinstance(caught.value, StatementError)
    assert (caught.value.model, caught.value.attribute) == ("User", "public_id")
    new = "inserted" if engine.name in {"mysql", "mariadb"} else "excluded"
    assert f"{{key: stmt.{new}[key] for key in row" in str(caught.value)
    assert stored(engine) == [ADA]


@pytest.mark.parametrize("values", [SAME, SAME | {"public_id": B}], ids=["made id", "given id"])
@pytest.mark.parametrize("rotation", ROTATIONS)
def test_setting_the_id_is_refused(engine: Engine, rotation: str, values: dict[str, Any]) -> None:
    """An upsert that sets the id raises, however it names the column, and whether or not the row has an id."""
    with pytest.raises(ImmutablePublicId):
        through_session(engine, upsert(engine, User, ROTATIONS[rotation]), values)

    assert stored(engine) == [ADA]


@pytest.mark.parametrize("key", ["long_text", "long_key", Link.long], ids=["name", "key", "attribute"])
@pytest.mark.filterwarnings("ignore:Additional column names not matching")  # it renders the name, and works
def test_setting_a_renamed_column_is_refused(engine: Engine, key: Any) -> None:
    """A public id whose column has another name than its attribute is protected as well."""
    statement = upsert(engine, Link, lambda new: {key: new.long_key}, unique="url")
    with pytest.raises(ImmutablePublicId, match="would give an existing Link a new long_text"):
        through_session(engine, statement, {"url": "https://example.org"})


@on("sqlite")
def test_message_beside_a_broken_model(engine: Engine) -> None:
    """A model of another base that cannot be configured does not replace the error."""

    class Own(DeclarativeBase): ...

    class Broken(Own):
        __tablename__ = "broken"
        id: Mapped[int] = bigint_key()
        missing: Mapped[Any] = relationship("Missing")

    try:
        with pytest.raises(ImmutablePublicId):
            through_core(engine, upsert(engine, table, ROTATIONS["all columns"]), SAME)
    finally:
        Own.registry.dispose()


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("way", WAYS)
def test_existing_row_keeps_its_id(engine: Engine, way: str, rows: str) -> None:
    """An upsert written as the message advises updates the row, which keeps its key and its id."""
    send, target = WAYS[way]
    statement = upsert(engine, target, lambda new: {c.name: c for c in new if c.name not in ("id", "public_id")})
    send(engine, statement, ROWS[rows])
    first, *others = stored(engine)

    assert first == (1, A, "ada@example.org", "Ada Lovelace")
    assert [row[2:] for row in others] == ([("grace@example.org", "Grace")] if rows == "rows" else [])
    assert all(NanoId().is_valid(row[1]) for row in others)


@conflict_clauses
@pytest.mark.parametrize("is_update", [True, False], ids=["update", "do nothing"])
@pytest.mark.parametrize("rows", [NEW, [NEW, SAME]], ids=["one row", "rows"])
def test_collision_in_an_upsert_is_retried(engine: Engine, rows: Any, is_update: bool) -> None:
    """If the generated id of a new row collides in an upsert on another column, the row is retried, not lost."""
    update_name = upsert(engine, User, lambda new: {"name": new.name})
    with testing.collisions(User, A, times=2):
        through_session(engine, update_name if is_update else do_nothing(engine, index_elements=["email"]), rows)

    assert {row[2] for row in stored(engine)} == {"ada@example.org", "grace@example.org"}


# --- inside another statement


def rotation(engine: Engine, target: Any, **values: Any) -> Any:
    """Return an upsert of one row that sets all columns."""
    return upsert(engine, target, ROTATIONS["all columns"]).values(**(SAME | values))


WRAPPED: dict[str, Callable[[Any], Any]] = {
    "SELECT from it": lambda inner: select(inner.returning(table.c.public_id).cte("done")),
    "SELECT beside it": lambda inner: select(literal(1)).add_cte(inner.cte("done"), nest_here=True),
    "entities": lambda inner: select(aliased(User, inner.returning(User).cte("done"))),
    "UPDATE": lambda inner: update(Link).values(url="changed").add_cte(inner.cte("done")),
    "INSERT from it": lambda inner: insert(Link).from_select(
        ["url", "long_key"], select(inner.returning(table.c.email, table.c.public_id).cte("done"))
    ),
}


@on("postgresql")
@pytest.mark.parametrize("given", [{}, {"public_id": B}], ids=["made id", "given id"])
@pytest.mark.parametrize("form", WRAPPED)
def test_upsert_in_a_cte_is_refused(engine: Engine, form: str, given: dict[str, Any]) -> None:
    """An upsert that sets the id raises inside the WITH clause of any statement, too."""
    send, target = WAYS["insert(table) through a session" if given else "insert(Model) through a session"]
    with pytest.raises(ImmutablePublicId, match="would give an existing User a new public_id") as caught:
        send(engine, WRAPPED[form](rotation(engine, target, **given)), None)

    assert not isinstance(caught.value, StatementError)
    assert stored(engine) == [ADA]


@on("postgresql")
def test_upsert_in_a_cte(engine: Engine) -> None:
    """An upsert in a CTE that does not set the id updates the row each time it is executed."""
    inner = upsert(engine, User, lambda new: {"name": new.name}).values(**SAME).returning(table.c.public_id)
    statement = select(inner.cte("done"))
    with Session(engine) as session, session.begin():
        assert [session.scalars(statement).all() for _ in range(2)] == [[A], [A]]

    assert stored(engine) == [(*ADA[:3], "Ada Lovelace")]


@on("sqlite", "postgresql", "mariadb")
@pytest.mark.parametrize("given", [{}, {"public_id": B}], ids=["made id", "given id"])
def test_upsert_that_is_read_as_entities_is_refused(engine: Engine, given: dict[str, Any]) -> None:
    """``select(Model).from_statement(insert…)`` raises as the INSERT itself does."""
    statement = select(User).from_statement(rotation(engine, User, **given).returning(User))
    with pytest.raises(ImmutablePublicId):
        through_session(engine, statement, None)

    assert stored(engine) == [ADA]


@conflict_clauses
@pytest.mark.parametrize("wrap", [lambda inner: inner, select(User).from_statement], ids=["INSERT", "from_statement"])
def test_upserted_object_shows_the_id_of_its_row(engine: Engine, wrap: Callable[[Any], Any]) -> None:
    """With ``returning(Model)`` the object has the existing row's id, not the one generated for the INSERT."""
    inner = upsert(engine, User, lambda new: {"name": new.name}).values(**SAME)
    with Session(engine) as session:
        user = session.scalars(wrap(inner.returning(User))).one()

        assert (user.id, user.public_id, user.name) == (1, A, "Ada Lovelace")


# --- on_conflict_do_nothing() of the caller


def do_nothing(engine: Engine, **target: Any) -> Any:
    return insert_of(engine, User).on_conflict_do_nothing(**target)


@conflict_clauses
@pytest.mark.parametrize("target", [{}, {"index_elements": ["email"]}], ids=["no target", "target"])
@pytest.mark.parametrize("rows", ROWS)
def test_do_nothing_of_the_caller(engine: Engine, target: dict[str, Any], rows: str) -> None:
    """The caller's own DO NOTHING works as usual: the existing row is unchanged, and new rows are stored."""
    through_session(engine, do_nothing(engine, **target), ROWS[rows])

    assert ADA in stored(engine)
    assert len(stored(engine)) == (2 if rows == "rows" else 1)


@on("mysql", "mariadb")
def test_insert_ignore_of_the_caller(engine: Engine) -> None:
    """INSERT IGNORE skips the existing row and writes the new one."""
    through_session(engine, insert_of(engine, User).prefix_with("IGNORE"), [NEW, SAME])

    assert [row[2:] for row in stored(engine)] == [("ada@example.org", "Ada"), ("grace@example.org", "Grace")]


# --- INSERT … FROM SELECT


def copies(*names: str) -> Any:
    """Return a SELECT of the columns *names* from the stored users, with other addresses and ids."""
    made = {
        "email": (literal("copy of ") + table.c.email).label("email"),
        "name": table.c.name,
        "public_id": func.replace(table.c.public_id, "a", "c"),
    }
    return select(*(made[name] for name in names))


@pytest.mark.parametrize("way", WAYS)
def test_from_select_without_ids_is_refused(engine: Engine, way: str) -> None:
    """INSERT … FROM SELECT raises, as every row would get the same id; the message says what to do instead."""
    send, target = WAYS[way]
    statement = insert(target).from_select(["email", "name"], copies("email", "name"))
    with pytest.raises(ConfigurationError, match=r"same public_id.*Read the rows and insert them") as caught:
        send(engine, statement, None)

    assert not isinstance(caught.value, StatementError)
    assert stored(engine) == [ADA]


@pytest.mark.parametrize("way", WAYS)
def test_from_select_with_ids(engine: Engine, way: str) -> None:
    """INSERT … FROM SELECT is allowed if the SELECT contains the ids."""
    send, target = WAYS[way]
    names = ["email", "name", "public_id"]
    send(engine, insert(target).from_select(names, copies(*names)), None)

    assert {row[1:] for row in stored(engine)} == {ADA[1:], ("c" * 12, "copy of ada@example.org", "Ada")}


def test_from_select_without_defaults(engine: Engine) -> None:
    """If the caller turns off column defaults, the database rejects the missing id."""
    statement = insert(User).from_select(["email", "name"], copies("email", "name"), include_defaults=False)
    with pytest.raises(DBAPIError, match="public_id"):
        through_session(engine, statement, None)


@on("postgresql")
def test_from_select_in_a_cte_is_refused(engine: Engine) -> None:
    """INSERT … FROM SELECT inside a CTE raises as well, as every row would get the same id."""
    inner = insert(User).from_select(["email", "name"], copies("email", "name")).returning(table.c.public_id)
    with pytest.raises(ConfigurationError, match=r"same public_id.*Read the rows and insert them"):
        through_session(engine, select(inner.cte("done")), None)

    assert stored(engine) == [ADA]


# --- how many statements, and how many rows


def upsert_many(engine: Engine) -> int:
    """Execute an upsert of 50 rows whose SET reads the new row; return how many INSERTs the server has executed."""
    statement = upsert(engine, table, lambda new: {"name": new.name})
    count = text("SHOW SESSION STATUS LIKE 'Com_insert'")
    with engine.begin() as connection:
        connection.execute(table.delete())
        before = int(connection.execute(count).one()[1])
        connection.execute(statement, [{"email": f"{n}@example.org", "name": "a"} for n in range(50)])
        assert connection.scalar(select(func.count()).select_from(table)) == 50
        return int(connection.execute(count).one()[1]) - before


@on("mysql", "mariadb")
def test_upsert_of_many_rows(engine: Engine) -> None:
    """An upsert of many rows takes as many statements with the guard as without it."""
    guard.uninstall(engine)
    without_guard = upsert_many(engine)
    guard.install(engine)

    assert without_guard == upsert_many(engine)


@on("sqlite")
def test_count_of_rows_that_are_skipped(engine: Engine) -> None:
    """``result.rowcount`` does not count the rows that ON CONFLICT DO NOTHING has skipped."""
    guard.install(engine)
    with engine.connect() as connection:
        statement = do_nothing(engine, index_elements=["email"])
        assert connection.execute(statement, [{"email": email} for email in ("a", "b", "a")]).rowcount == 2
