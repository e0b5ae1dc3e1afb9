"""Two organizations that share tables, and the ways in which a session sees the rows of one of them only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, TypeAlias

from sqlalchemy import Connection, Engine, ForeignKey, MetaData, String, create_engine, event, text
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    ORMExecuteState,
    Session,
    declared_attr,
    mapped_column,
    relationship,
    with_loader_criteria,
)
from support.rights import user_with

from sqlalchemy_public_id import NanoId, PublicIdMixin, bigint_key, public_id_column, tokens
from sqlalchemy_public_id.references import public_ref

TOKEN = tokens.Token(prefix="strangerlogin")


class Base(DeclarativeBase):
    metadata = MetaData()


class Organization(PublicIdMixin, Base):
    """The tenants' own table, whose key is the tenant."""

    __tablename__ = "strange_organization"
    __public_id__ = NanoId(prefix="strangeorg")
    name: Mapped[str] = mapped_column(String(50))


class OfOrganization:
    """A model whose rows belong to an organization."""

    organization_id: Mapped[int] = mapped_column(ForeignKey(Organization.id), index=True)

    @declared_attr
    @classmethod
    def organization(cls) -> Mapped[Organization]:
        return relationship(Organization)


class User(OfOrganization, PublicIdMixin, Base):
    """A model with two public ids, whose rows belong to an organization."""

    __tablename__ = "strange_user"
    __public_id__ = NanoId(prefix="strangeusr")
    card: Mapped[str] = public_id_column(NanoId(length=8))
    name: Mapped[str] = mapped_column(String(50))
    nickname: Mapped[str | None] = mapped_column(String(50))


class Login(OfOrganization, Base):
    """A model with a token, and without a public id."""

    __tablename__ = "strange_login"
    id: Mapped[int] = bigint_key()
    token: Mapped[bytes] = tokens.token_column(TOKEN)


class Ticket(OfOrganization, PublicIdMixin, Base):
    """A model with references: by the scope of a name, by that of a function, and without a scope."""

    __tablename__ = "strange_ticket"
    __public_id__ = NanoId(prefix="strangetkt")
    title: Mapped[str] = mapped_column(String(50))
    organization_public_id: Mapped[str] = public_ref("organization")
    author_id: Mapped[int | None] = mapped_column(ForeignKey(User.id))
    author: Mapped[User | None] = relationship(foreign_keys=author_id)
    author_public_id: Mapped[str | None] = public_ref("author", attribute="public_id")
    author_card: Mapped[str | None] = public_ref("author", attribute="card")
    assignee_id: Mapped[int | None] = mapped_column(ForeignKey(User.id))
    assignee: Mapped[User | None] = relationship(foreign_keys=assignee_id)
    assignee_public_id: Mapped[str | None] = public_ref("assignee", attribute="public_id", scope="organization_id")
    assignee_card: Mapped[str | None] = public_ref("assignee", attribute="card", scope="organization_id")
    watcher_id: Mapped[int | None] = mapped_column(ForeignKey(User.id))
    watcher: Mapped[User | None] = relationship(foreign_keys=watcher_id)
    watcher_public_id: Mapped[str | None] = public_ref(
        "watcher", attribute="public_id", scope=lambda session: User.organization_id == session.info["organization_id"]
    )
    watcher_card: Mapped[str | None] = public_ref(
        "watcher", attribute="card", scope=lambda session: User.organization_id == session.info["organization_id"]
    )


class Document(OfOrganization, PublicIdMixin, Base):
    """The base of a hierarchy, whose rows belong to an organization."""

    __tablename__ = "strange_document"
    __public_id__ = NanoId(prefix="strangedoc")
    kind: Mapped[str] = mapped_column(String(10))
    title: Mapped[str] = mapped_column(String(50))
    __mapper_args__: ClassVar[dict[str, Any]] = {"polymorphic_on": "kind", "polymorphic_identity": "document"}


class Invoice(Document):
    """A subclass with a table of its own."""

    __tablename__ = "strange_invoice"
    id: Mapped[int] = mapped_column(ForeignKey(Document.id), primary_key=True)
    total: Mapped[int | None]
    __mapper_args__: ClassVar[dict[str, Any]] = {"polymorphic_identity": "invoice"}


class Memo(Document):
    """A subclass in the table of its base."""

    text: Mapped[str | None] = mapped_column(String(50))
    __mapper_args__: ClassVar[dict[str, Any]] = {"polymorphic_identity": "memo"}


def rows_of(organization: Organization) -> list[Base]:
    """Return a row of each model, and a ticket that refers to the user."""
    name = organization.name
    user = User(organization=organization, name=name, nickname=name)
    return [
        organization,
        user,
        Login(organization=organization, token=TOKEN.issue().digest),
        Ticket(organization=organization, title=name, author=user, assignee=user, watcher=user),
        Document(organization=organization, title=name),
        Invoice(organization=organization, title=name, total=48_613),
        Memo(organization=organization, title=name, text=name),
    ]


Keys: TypeAlias = tuple[int, int]
"""The keys of two organizations."""


def fill(engine: Engine | Connection) -> Keys:
    """Store the rows of two organizations, and return the keys of both."""
    with Session(engine) as session:
        organizations = [Organization(name="ours"), Organization(name="theirs")]
        for organization in organizations:
            session.add_all(rows_of(organization))
        session.commit()
        ours, theirs = (organization.id for organization in organizations)
        return ours, theirs


# --- criteria of sessions

Criteria = Callable[[int], list[Any]]


def on_classes(*models: Any) -> Criteria:
    """Return criteria that name each class."""

    def criteria(key: int) -> list[Any]:
        conditions = {model: model.organization_id == key for model in models if model is not Organization}
        if Organization in models:
            conditions[Organization] = Organization.id == key
        return [with_loader_criteria(model, condition, include_aliases=True) for model, condition in conditions.items()]

    return criteria


def on_base(key: int) -> list[Any]:
    """Return criteria for each model with the column."""
    # mypy takes the mixin for a model
    return [
        with_loader_criteria(OfOrganization, lambda model: model.organization_id == key, include_aliases=True),
        with_loader_criteria(Organization, Organization.id == key, include_aliases=True),
    ]


CRITERIA: dict[str, Criteria] = {
    "class": on_classes(Organization, User, Login, Ticket, Document),
    "base": on_base,
    "subclass": on_classes(Organization, User, Login, Ticket, Invoice, Memo),
    "not the tenants' own table": on_classes(User, Login, Ticket, Document),
}
"""Where the criteria are → the criteria for the key of an organization."""


def limit(session: Any, key: int, criteria: Criteria) -> None:
    """Let *session* add the criteria for the organization with this key to each of its SELECTs."""
    session.info["organization_id"] = key

    def add(state: ORMExecuteState) -> None:
        if state.is_select and not state.is_column_load:
            state.statement = state.statement.options(*criteria(key))

    event.listen(session, "do_orm_execute", add)


# --- row-level security

_POLICIES = {Organization: "id = {own}", Invoice: "id IN (SELECT id FROM strange_document)"}


@contextmanager
def row_level_security(engine: Engine) -> Iterator[Engine]:
    """Let PostgreSQL hide rows; yield an engine of a user to whom this applies.

    The organization is the setting ``app.organization`` of a transaction, which :func:`enter` sets.
    """
    tables = {mapper.local_table.name: mapper.class_ for mapper in reversed(list(Base.registry.mappers))}
    own = "current_setting('app.organization')::bigint"
    with engine.begin() as connection:
        for table, model in tables.items():
            condition = _POLICIES.get(model, "organization_id = {own}").format(own=own)
            connection.execute(text(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"))
            connection.execute(text(f"CREATE POLICY own ON {table} USING ({condition})"))
    with user_with(engine, "ALL", *tables) as url:
        limited = create_engine(url)
        try:
            yield limited
        finally:
            limited.dispose()


def enter(session: Any, key: int) -> None:
    """Set the organization of each transaction of *session*."""
    session.info["organization_id"] = key

    def set_organization(session: Session, transaction: Any, connection: Any) -> None:
        connection.execute(text("SELECT set_config('app.organization', :key, true)"), {"key": str(key)})

    event.listen(session, "after_begin", set_organization)
