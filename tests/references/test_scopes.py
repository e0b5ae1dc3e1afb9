"""References with a scope: which rows may be assigned by their public ids."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import ForeignKey, MetaData, insert, select, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from support.tenants import UNKNOWN, Organization, Tenants, Ticket, User

from conftest import Statements
from sqlalchemy_public_id import ConfigurationError, PublicIdMixin, PublicIdNotFound, bulk
from sqlalchemy_public_id.references import public_ref

pytestmark = pytest.mark.backend


def assign(session: Session, row: Any) -> None:
    session.add(row)
    session.flush()


@pytest.mark.parametrize("organization", ["object", "key", "public id", "new"])
@pytest.mark.parametrize("is_known", [True, False], ids=["theirs", "unknown"])
def test_assigned_id_of_another_tenant(session: Session, tenants: Tenants, organization: str, is_known: bool) -> None:
    """A user of another organization cannot be assigned: the error is that of an unknown id, and nothing is stored."""
    given: dict[str, Any] = {
        "object": {"organization": tenants.ours},
        "key": {"organization_id": tenants.ours.id},
        "public id": {"organization_public_id": tenants.ours.public_id},
        "new": {"organization": Organization(name="new")},
    }[organization]
    public_id = tenants.eve.public_id if is_known else UNKNOWN
    with session.no_autoflush:
        session.add(Ticket(**given, assignee_public_id=public_id))
    with pytest.raises(PublicIdNotFound) as caught:
        session.flush()
    assert (caught.value.field, caught.value.value) == ("Ticket.assignee_public_id", public_id)
    session.rollback()
    if organization != "new":
        ticket = Ticket(**given, assignee_public_id=tenants.ada.public_id)
        assign(session, ticket)
        assert ticket.assignee is tenants.ada
    assert len(session.scalars(select(Ticket)).all()) == 1 + (organization != "new")


@pytest.mark.parametrize("has_one", [True, False])
@pytest.mark.parametrize("name", ["assignee_public_id", "watcher_public_id"])
def test_statements_for_an_assigned_id(
    session: Session, tenants: Tenants, statements: list[str], name: str, has_one: bool
) -> None:
    """The id of a user of another organization takes as many statements as an unknown one."""
    theirs, values = tenants.eve.public_id, {"organization_id": tenants.ours.id}
    if has_one:
        setattr(tenants.ticket, name, tenants.ada.public_id)
    session.commit()
    counts = []
    for public_id in (theirs, UNKNOWN):
        session.refresh(tenants.ticket)
        statements.clear()
        setattr(tenants.ticket, name, public_id)
        with pytest.raises(PublicIdNotFound):
            session.flush()
        session.rollback()
        session.connection()
        counts.append(len(statements))
        statements.clear()
        with pytest.raises(PublicIdNotFound):
            session.execute(insert(Ticket), [values | {name: public_id}])
        session.rollback()
        counts.append(len(statements))
    assert counts[:2] == counts[2:]


def test_assigned_id_that_the_object_has(session: Session, tenants: Tenants) -> None:
    """A client may send back the id of a row outside the scope, if the object already refers to that row."""
    tenants.ticket.assignee = tenants.eve  # the application may do this
    session.commit()
    tenants.ticket.assignee_public_id = tenants.eve.public_id
    session.commit()
    assert tenants.ticket.assignee is tenants.eve
    tenants.ticket.assignee = None
    session.commit()
    tenants.ticket.assignee_public_id = tenants.eve.public_id
    with pytest.raises(PublicIdNotFound):
        session.flush()


@pytest.mark.parametrize("way", ["key", "object", "public id", "collection"])
@pytest.mark.parametrize("order", ["organization first", "id first"])
def test_moved_with_the_id_that_the_object_has(session: Session, tenants: Tenants, way: str, order: str) -> None:
    """A ticket that moves to another organization does not keep the user whose id is assigned again."""
    ticket, theirs, ada = tenants.ticket, tenants.theirs, tenants.ada.public_id
    ticket.assignee_public_id = ada
    session.commit()
    assert (ticket.organization.id, ticket.assignee_public_id) == (tenants.ours.id, ada)

    def move() -> None:
        if way == "key":
            ticket.organization_id = theirs.id
        elif way == "object":
            ticket.organization = theirs
        elif way == "public id":
            ticket.organization_public_id = theirs.public_id
        else:
            theirs.owned.append(ticket)

    with session.no_autoflush:
        if order == "organization first":
            move()
        ticket.assignee_public_id = ada
        if order == "id first":
            move()
    with pytest.raises(PublicIdNotFound) as caught:
        session.flush()
    assert caught.value.field == "Ticket.assignee_public_id"
    session.rollback()
    assert ticket.organization is tenants.ours
    assert ticket.assignee is tenants.ada


def test_statements_for_the_id_that_the_object_has(session: Session, tenants: Tenants, statements: Statements) -> None:
    """An id that is assigned again is compared by one SELECT; nothing is written, and the user stays loaded."""
    tenants.ticket.assignee_public_id = tenants.ada.public_id
    session.commit()
    assert tenants.ticket.assignee is tenants.ada
    assert tenants.ticket.organization_id == tenants.ours.id
    public_id = tenants.ada.public_id
    statements.clear()
    tenants.ticket.assignee_public_id = public_id
    session.flush()
    assert tenants.ticket.assignee is tenants.ada
    assert len(statements) == len(statements.starting("SELECT")) == 1


def test_assigned_later(session: Session, tenants: Tenants) -> None:
    """The scope is checked with the values that a stored object will have after the flush."""
    tenants.ticket.assignee_public_id = tenants.eve.public_id
    with pytest.raises(PublicIdNotFound):
        session.flush()
    session.rollback()
    assert tenants.ticket.organization is tenants.ours
    tenants.ticket.organization_id = tenants.theirs.id
    tenants.ticket.assignee_public_id = tenants.eve.public_id
    session.flush()
    assert tenants.ticket.assignee is tenants.eve


def test_new_objects_of_one_flush(session: Session, tenants: Tenants) -> None:
    """The scope of new users is checked, too, with the organization that they will have."""
    bob = User(organization=tenants.ours, name="Bob")
    mallory = User(organization=tenants.theirs, name="Mallory")
    session.add_all([bob, mallory])
    session.add(ticket := Ticket(organization=tenants.ours, assignee_public_id=bob.public_id))
    session.flush()
    assert ticket.assignee is bob

    session.add_all([mallory, Ticket(organization=tenants.ours, assignee_public_id=mallory.public_id)])
    with pytest.raises(PublicIdNotFound):
        session.flush()


def test_condition_of_the_session(session: Session, tenants: Tenants) -> None:
    """A scope may be a function of the session that returns a condition; other results are rejected."""
    assign(session, Ticket(organization=tenants.ours, watcher_public_id=tenants.ada.public_id))
    session.add(Ticket(organization=tenants.ours, watcher_public_id=tenants.eve.public_id))
    with pytest.raises(PublicIdNotFound) as caught:
        session.flush()
    assert caught.value.field == "Ticket.watcher_public_id"
    session.rollback()
    session.info["condition"] = User.organization_id == tenants.theirs.id
    assign(session, Ticket(organization=tenants.theirs, watcher_public_id=tenants.eve.public_id))
    for wrong in (True, None, "organization_id = 1"):
        session.info["condition"] = wrong
        with session.no_autoflush:
            session.add(Ticket(organization=tenants.ours, watcher_public_id=tenants.ada.public_id))
        with pytest.raises(ConfigurationError, match="expected a condition such as User"):
            session.flush()
        session.rollback()


@pytest.mark.parametrize("way", ["flush", "bulk"])
def test_condition_for_new_objects(session: Session, tenants: Tenants, way: str) -> None:
    """A new user has to meet the condition, too, which a SELECT of the same flush compares."""

    def write(user: User) -> Ticket:
        ticket = Ticket(organization=tenants.ours, watcher_public_id=user.public_id)
        session.add(user)
        if way == "bulk":
            bulk.insert(session, [ticket])
        else:
            assign(session, ticket)
        return ticket

    bob = User(organization=tenants.ours, name="Bob")
    assert write(bob).watcher is bob
    with pytest.raises(PublicIdNotFound) as caught:
        write(User(organization=tenants.theirs, name="Mallory"))
    assert caught.value.field == "Ticket.watcher_public_id"
    session.rollback()
    assert len(session.scalars(select(Ticket)).all()) == 1


def test_condition_for_a_user_that_moves(session: Session, tenants: Tenants) -> None:
    """A user that stops to meet the condition in the same flush cannot be assigned."""
    with session.no_autoflush:
        tenants.ada.organization = tenants.theirs
        session.add(Ticket(organization=tenants.ours, watcher_public_id=tenants.ada.public_id))
    with pytest.raises(PublicIdNotFound):
        session.flush()


def test_statements_for_the_condition_of_new_objects(
    session: Session, tenants: Tenants, statements: Statements
) -> None:
    """One SELECT after the flush compares all new users; stored users are not read twice."""
    users = [User(organization=tenants.ours, name=name) for name in ("Bob", "Bea")]
    ours, ada = tenants.ours, tenants.ada.public_id
    assert ours.id
    session.add_all(users)
    statements.clear()
    session.add_all(Ticket(organization=ours, watcher_public_id=user.public_id) for user in users * 2)
    session.flush()
    assert len(statements.starting("SELECT")) == 1
    statements.clear()
    session.add(Ticket(organization=ours, watcher_public_id=ada))
    session.flush()
    assert len(statements.starting("SELECT")) == 1


def test_references_with_a_scope_and_without(session: Session, tenants: Tenants, statements: Statements) -> None:
    """The flush of many objects sends one SELECT per condition; a scope applies only to its own reference."""
    ours, ada, eve = tenants.ours.id, tenants.ada.public_id, tenants.eve.public_id
    session.expunge_all()
    statements.clear()
    given = {"organization_id": ours, "author_public_id": eve, "assignee_public_id": ada, "watcher_public_id": ada}
    session.add_all(Ticket(**given) for _ in range(20))
    session.flush()
    assert len(statements.starting("SELECT")) == 2

    with pytest.raises(PublicIdNotFound):
        assign(session, Ticket(**{**given, "assignee_public_id": eve}))


def test_tenant_that_is_not_known(session: Session, tenants: Tenants) -> None:
    """An object whose tenant is not set before the flush is rejected, and the error says what to set."""
    session.add(Ticket(assignee_public_id=tenants.ada.public_id))
    with pytest.raises(ConfigurationError, match="set organization_id, or the relationship"):
        session.flush()

    session.rollback()
    session.add(Ticket(organization_id=None, assignee_public_id=tenants.ada.public_id))
    with pytest.raises(PublicIdNotFound):
        session.flush()


def test_tenant_that_a_collection_changes(session: Session, tenants: Tenants) -> None:
    """The flush checks the keys that it has written, because a collection may change the object's foreign key."""
    ticket = Ticket(organization_id=tenants.ours.id, assignee_public_id=tenants.ada.public_id)
    tenants.theirs.owned.append(ticket)
    with pytest.raises(PublicIdNotFound):
        session.flush()
    session.rollback()
    assert len(session.scalars(select(Ticket)).all()) == 1


def test_lazy_load_before_the_flush(session: Session, tenants: Tenants) -> None:
    """Before a flush has checked the scope, the relationship loads no row of another tenant."""
    ticket, public_id = tenants.ticket, tenants.eve.public_id
    assert ticket.organization_id
    with session.no_autoflush:
        ticket.assignee_public_id = public_id
        assert ticket.assignee is None
        ticket.watcher_public_id = public_id
        assert ticket.watcher is None


def test_lazy_load_that_flushes(session: Session, tenants: Tenants) -> None:
    """The flush before a lazy load checks the scope, and then the relationship loads the row."""
    tenants.ticket.assignee_public_id = tenants.ada.public_id
    assert tenants.ticket.assignee is tenants.ada
    session.refresh(tenants.ticket)
    tenants.ticket.assignee_public_id = tenants.eve.public_id
    with pytest.raises(PublicIdNotFound):
        tenants.ticket.assignee  # noqa: B018


@pytest.mark.parametrize("way", ["key", "expression", "collection"])
def test_user_that_moves_in_the_same_flush(session: Session, tenants: Tenants, way: str) -> None:
    """A row that leaves the tenant in the same flush cannot be assigned."""
    their_id, public_id = tenants.theirs.id, tenants.ada.public_id
    with session.no_autoflush:
        session.add(Ticket(organization=tenants.ours, assignee_public_id=public_id))
        if way == "key":
            tenants.ada.organization_id = their_id
        elif way == "expression":
            theirs = select(Organization.id).where(Organization.name == "theirs").scalar_subquery()
            tenants.ada.organization_id = theirs
        else:
            tenants.theirs.users.append(tenants.ada)
    with pytest.raises(PublicIdNotFound):
        session.flush()
    session.rollback()
    assert len(session.scalars(select(Ticket)).all()) == 1


@pytest.mark.parametrize("way", ["bulk", "insert", "update"])
def test_other_ways_to_write(session: Session, tenants: Tenants, way: str) -> None:
    """Bulk inserts and statements refuse the id of another tenant as a flush does."""

    def write(public_id: str) -> None:
        if way == "bulk":
            bulk.insert(session, [Ticket(organization=tenants.ours, assignee_public_id=public_id)])
        elif way == "insert":
            row = {"organization_id": tenants.ours.id, "assignee_public_id": public_id}
            session.execute(insert(Ticket), [row])
        else:
            row = {"id": tenants.ticket.id, "organization_id": tenants.ours.id, "assignee_public_id": public_id}
            session.execute(update(Ticket), [row])

    write(tenants.ada.public_id)
    with pytest.raises(PublicIdNotFound):
        write(tenants.eve.public_id)


def test_statement_without_the_shared_attribute(session: Session, tenants: Tenants) -> None:
    """A row without the attribute of the scope cannot be checked, and is rejected."""
    row = {"id": tenants.ticket.id, "assignee_public_id": tenants.ada.public_id}
    with pytest.raises(ConfigurationError, match="add it to each row"):
        session.execute(update(Ticket), [row])


@pytest.mark.parametrize("scope", ["tenant_id", ["organization_id", "of_owner"], "of_thing", "owner"])
def test_scopes_that_cannot_work(scope: Any) -> None:
    """A scope that is not a column attribute of both models is rejected when the mappers are configured."""

    class OtherBase(DeclarativeBase):
        metadata = MetaData()

    class Owner(PublicIdMixin, OtherBase):
        __tablename__ = "owner"
        organization_id: Mapped[int]
        of_owner: Mapped[int]

    class Thing(PublicIdMixin, OtherBase):
        __tablename__ = "thing"
        organization_id: Mapped[int]
        of_thing: Mapped[int]
        owner_id: Mapped[int] = mapped_column(ForeignKey("owner.id"))
        owner: Mapped[Owner] = relationship()
        owner_public_id: Mapped[str] = public_ref("owner", scope=scope)

    with pytest.raises(ConfigurationError, match="which is not a column attribute of"):
        OtherBase.registry.configure()
    OtherBase.registry.dispose()


def test_other_id_of_a_new_row(session: Session, tenants: Tenants) -> None:
    """The other id of a new row is read from its object; reading it does not skip the check of the scope."""
    bob = User(organization=tenants.ours, name="Bob")
    session.add_all([bob, ticket := Ticket(organization=tenants.ours, assignee_public_id=bob.public_id)])
    with session.no_autoflush:
        assert ticket.assignee_card == bob.card
    session.flush()
    assert ticket.assignee is bob

    session.add(ticket := Ticket(organization=tenants.ours, assignee_public_id=bob.public_id))
    with session.no_autoflush:
        assert ticket.assignee_card == bob.card
        ticket.organization = tenants.theirs
    with pytest.raises(PublicIdNotFound):
        session.flush()


@pytest.mark.parametrize("name", ["assignee", "watcher"])
@pytest.mark.parametrize("is_stored", [False, True])
def test_other_id_of_a_strangers_row(
    session: Session, tenants: Tenants, statements: Statements, name: str, is_stored: bool
) -> None:
    """Before the flush, the other id of a row outside the scope is not shown, as if the row did not exist.

    It takes as many statements as for an unknown id. The relationship loads nothing, either.
    """
    ticket = tenants.ticket if is_stored else Ticket(organization_id=tenants.ours.id)
    session.add(ticket)
    ours, theirs = tenants.ada.public_id, tenants.eve.public_id
    cards = {ours: tenants.ada.card}
    our_id = tenants.ours.id
    assert ticket.organization_id == our_id
    sent = []
    with session.no_autoflush:
        for public_id in (theirs, UNKNOWN):
            setattr(ticket, f"{name}_public_id", public_id)
            statements.clear()
            with pytest.raises(PublicIdNotFound, match=f"Ticket.{name}_public_id: no User has"):
                getattr(ticket, f"{name}_card")
            sent.append(len(statements))
            assert getattr(ticket, name) is None
        setattr(ticket, f"{name}_public_id", ours)
        assert getattr(ticket, f"{name}_card") == cards[ours]
        if is_stored:  # a pending object loads nothing
            session.expire(ticket, [name])
            assert getattr(ticket, name) is tenants.ada
    assert sent[0] == sent[1]
    session.flush()
    assert getattr(ticket, name) is tenants.ada


def test_other_id_of_a_row_that_the_object_has(session: Session, tenants: Tenants) -> None:
    """An object that refers to a row outside the scope shows the row's other id if its id is sent back."""
    tenants.ticket.assignee = tenants.eve  # the application may do this
    session.commit()
    assert tenants.ticket.organization_id == tenants.ours.id
    tenants.ticket.assignee_id = None
    with session.no_autoflush:
        tenants.ticket.assignee_public_id = tenants.eve.public_id
        assert tenants.ticket.assignee_card == tenants.eve.card
    session.flush()
    assert tenants.ticket.assignee is tenants.eve


@pytest.mark.parametrize("of", ["ours", "theirs"])
def test_other_id_with_an_assigned_tenant(session: Session, tenants: Tenants, of: str) -> None:
    """The other id is compared with the organization that the object was assigned by its public id."""
    organization = tenants.ours if of == "ours" else tenants.theirs
    ticket = Ticket(organization_public_id=organization.public_id, assignee_public_id=tenants.ada.public_id)
    session.add(ticket)
    with session.no_autoflush:
        if of == "ours":
            assert ticket.assignee_card == tenants.ada.card
        else:
            with pytest.raises(PublicIdNotFound, match="assignee_public_id"):
                ticket.assignee_card  # noqa: B018
    session.expunge(ticket)
    session.add(ticket := Ticket(assignee_public_id=tenants.ada.public_id))
    with session.no_autoflush, pytest.raises(ConfigurationError, match="set organization_id, or the relationship"):
        ticket.assignee_card  # noqa: B018


def test_key_that_the_program_has_set(session: Session, tenants: Tenants) -> None:
    """The scope is checked even if the application has set the key of the row, whatever the session holds."""
    tenants.ticket.assignee_id = tenants.eve.id
    tenants.ticket.assignee_public_id = tenants.eve.public_id
    with pytest.raises(PublicIdNotFound):
        session.flush()


def test_two_references_of_a_row_of_a_statement(session: Session, tenants: Tenants) -> None:
    """Two references of a row may name one row, not two; ``None``, and the tenant as a reference, are accepted."""
    assign(session, bob := User(organization=tenants.ours, name="Bob"))
    row = {"organization_id": tenants.ours.id, "assignee_public_id": tenants.ada.public_id}

    session.execute(insert(Ticket), [{**row, "assignee_card": tenants.ada.card}])
    session.execute(insert(Ticket), [{**row, "assignee_public_id": None}])
    del row["organization_id"]
    row["organization_public_id"] = tenants.ours.public_id
    session.execute(insert(Ticket), [row])
    message = r"has two values for Ticket.assignee_id: assignee_card refers to another"
    with pytest.raises(ConfigurationError, match=message):
        session.execute(insert(Ticket), [{**row, "assignee_card": bob.card}])
