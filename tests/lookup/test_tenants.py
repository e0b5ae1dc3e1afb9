"""Several tenants in one table: a row of another tenant is like one that does not exist."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import ForeignKey, MetaData, String, func, insert, select, true, update
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    aliased,
    mapped_column,
    relationship,
    with_loader_criteria,
)

from sqlalchemy_public_id import (
    ConfigurationError,
    IdempotencyConflict,
    InvalidCursor,
    NanoId,
    PublicIdMixin,
    PublicIdNotFound,
    bulk,
    lookup,
    references,
)
from sqlalchemy_public_id.idempotency import insert_once
from sqlalchemy_public_id.orm.inspection import condition_of
from sqlalchemy_public_id.references import public_ref

pytestmark = pytest.mark.backend


class Base(DeclarativeBase):
    metadata = MetaData()


class Organisation(PublicIdMixin, Base):
    __tablename__ = "organisation"
    name: Mapped[str] = mapped_column(String(50))
    owned: Mapped[list[Ticket]] = relationship(overlaps="organisation")
    users: Mapped[list[User]] = relationship(overlaps="organisation")


class User(PublicIdMixin, Base):
    __tablename__ = "user"
    __public_id__ = NanoId(prefix="tnu")
    organisation_id: Mapped[int] = mapped_column(ForeignKey(Organisation.id))
    organisation: Mapped[Organisation] = relationship(overlaps="users")
    name: Mapped[str] = mapped_column(String(50))


class Ticket(PublicIdMixin, Base):
    __tablename__ = "ticket"
    organisation_id: Mapped[int] = mapped_column(ForeignKey(Organisation.id))
    organisation: Mapped[Organisation] = relationship(overlaps="owned")
    organisation_public_id: Mapped[str] = public_ref("organisation")
    assignee_id: Mapped[int | None] = mapped_column(ForeignKey(User.id))
    assignee: Mapped[User | None] = relationship(foreign_keys=assignee_id)
    assignee_public_id: Mapped[str | None] = public_ref("assignee", scope="organisation_id")
    watcher_id: Mapped[int | None] = mapped_column(ForeignKey(User.id))
    watcher: Mapped[User | None] = relationship(foreign_keys=watcher_id)
    watcher_public_id: Mapped[str | None] = public_ref(
        "watcher", scope=lambda session: User.organisation_id == session.info["organisation_id"]
    )


class Tenants:
    """Two organisations, a user of each, and a ticket of each."""

    def __init__(self, session: Session) -> None:
        self.ours, self.theirs = Organisation(name="ours"), Organisation(name="theirs")
        self.ada = User(organisation=self.ours, name="Ada")
        self.eve = User(organisation=self.theirs, name="Eve")
        self.ticket = Ticket(organisation=self.ours)
        session.add_all([self.ours, self.theirs, self.ada, self.eve, self.ticket])
        session.commit()
        session.info["organisation_id"] = self.ours.id

    @property
    def where(self) -> Any:
        return User.organisation_id == self.ours.id


@pytest.fixture(autouse=True)
def tables(create: Callable[[MetaData], None]) -> None:
    create(Base.metadata)


@pytest.fixture
def tenants(session: Session) -> Tenants:
    return Tenants(session)


UNKNOWN = "tnu_000000000000"

LOOKUPS: dict[str, Callable[..., Any]] = {
    "get": lambda session, model, one, where: lookup.get(session, model, one.public_id, **where),
    "get_many": lambda session, model, one, where: lookup.get_many(session, model, [one.public_id], **where),
    "keys_of": lambda session, model, one, where: lookup.keys_of(session, model, [one.public_id], **where),
    "public_ids_of": lambda session, model, one, where: lookup.public_ids_of(session, model, [one.id], **where),
    "page": lambda session, model, one, where: list(lookup.page(session, model, limit=9, **where)),
}


@pytest.mark.parametrize("name", LOOKUPS)
@pytest.mark.parametrize("form", ["condition", "function", "statement", "criteria"])
def test_lookups(session: Session, tenants: Tenants, statements: list[str], name: str, form: str) -> None:
    """Each lookup finds a row of ours, and of theirs exactly what it finds of none, in as many statements."""
    our_id, our_key, our_text = tenants.ours.id, tenants.ada.id, tenants.ada.public_id
    rows: Any = User
    where: Any = {}
    if form == "condition":
        where = {"where": tenants.where}
    elif form == "function":
        where = {"where": lambda model: model.organisation_id == our_id}
    else:
        rows = select(User).where(tenants.where)
    if form == "criteria":
        rows = select(User).options(with_loader_criteria(User, tenants.where))
    eve = SimpleNamespace(id=tenants.eve.id, public_id=tenants.eve.public_id)
    unknown = SimpleNamespace(id=10**6, public_id="tnu_000000000000")
    find = LOOKUPS[name]

    assert find(session, rows, SimpleNamespace(id=our_key, public_id=our_text), where)
    session.expunge_all()
    session.connection()
    sent: list[list[str]] = []
    answers = []
    for one in (eve, unknown):
        statements.clear()
        answers.append(find(session, rows, one, where))
        sent.append(list(statements))
        session.expunge_all()
    if name == "page":
        assert [row.public_id for row in answers[0]] == [our_text]
    else:
        assert answers[0] == answers[1]
        assert not answers[0]
    assert len(sent[0]) == len(sent[1]) == 1


def test_get_one_and_resolve(session: Session, tenants: Tenants) -> None:
    """The error names the model and the id that was asked for, as for an unknown id."""
    with pytest.raises(PublicIdNotFound, match="no User has the public id 'tnu_") as caught:
        lookup.get_one(session, User, tenants.eve.public_id, where=tenants.where)
    assert caught.value.model == "User"
    with pytest.raises(PublicIdNotFound, match="no User has"):
        lookup.get_one(session, select(User).where(tenants.where), tenants.eve.public_id)
    assert lookup.get_one(session, select(User).where(tenants.where), tenants.ada.public_id) is tenants.ada
    ours = lambda model: model.organisation_id == tenants.ours.id  # noqa: E731  # as an application writes it
    assert lookup.resolve(session, tenants.eve.public_id, where=ours) is None
    assert lookup.resolve(session, tenants.ada.public_id, where=ours) is tenants.ada


@pytest.mark.parametrize("order_by", [None, User.name, func.nullif(User.name, "Ada")])
def test_cursors(session: Session, tenants: Tenants, statements: list[str], order_by: Any) -> None:
    """The id of a row of theirs is no cursor: the error and the number of statements are those of an unknown id."""
    where, ours, theirs = tenants.where, tenants.ada.public_id, tenants.eve.public_id
    session.connection()
    sent = []
    for cursor in (theirs, UNKNOWN):
        statements.clear()
        with pytest.raises(InvalidCursor, match="after: no User has the public id"):
            lookup.page(session, User, limit=9, after=cursor, where=where, order_by=order_by)
        sent.append(len(statements))
    assert sent[0] == sent[1] <= 2
    assert not lookup.page(session, User, limit=9, after=ours, where=where, order_by=order_by)


def test_statements_of_a_page_with_a_cursor(session: Session, tenants: Tenants, statements: list[str]) -> None:
    """One selects the rows, and checks the cursor."""
    bob = User(organisation=tenants.ours, name="Bob")
    session.add(bob)
    session.commit()
    where, ours = tenants.where, tenants.ada.public_id
    session.connection()
    statements.clear()
    assert list(lookup.page(session, User, limit=1, after=ours, where=where, order_by=User.name)) == [bob]
    assert len(statements) == 1


@pytest.mark.parametrize("find", LOOKUPS)
def test_condition_of_the_model_for_an_alias(session: Session, tenants: Tenants, find: str) -> None:
    """A condition of the model is refused for an alias of it: it would hold for another row of the table."""
    user = aliased(User)
    with pytest.raises(ConfigurationError, match=r"names User, but the statement selects an alias of it"):
        LOOKUPS[find](session, select(user), tenants.eve, {"where": tenants.where})
    own = {"where": lambda entity: entity.organisation_id == tenants.ours.id}
    ours = [tenants.ada] if find == "page" else None  # a page does not name a row
    assert (LOOKUPS[find](session, select(user), tenants.eve, own) or None) == ours
    assert LOOKUPS[find](session, select(user), tenants.ada, own)
    # a subquery, and a table that the statement itself selects from
    nested = {"where": user.id.in_(select(User.id).where(tenants.where))}
    assert (LOOKUPS[find](session, select(user), tenants.eve, nested) or None) == ours
    joined = select(user).join(User, User.id == user.id)
    assert (LOOKUPS[find](session, joined, tenants.eve, {"where": tenants.where}) or None) == ours


@pytest.mark.parametrize("where", [True, 1, "organisation_id = 1", User.organisation, User])
def test_conditions_that_are_none(session: Session, tenants: Tenants, where: Any) -> None:
    """What Python has made of a condition, or anything else, is refused and selects nothing."""
    for find in LOOKUPS.values():
        with pytest.raises(ConfigurationError, match="expected a condition such as User"):
            find(session, User, tenants.ada, {"where": where})
    assert lookup.get(session, User, tenants.eve.public_id, where=true()) is tenants.eve


@pytest.mark.parametrize("rows", [lambda: select(User.name), lambda: select(User, Ticket), lambda: select(1)])
def test_statements_of_no_model(session: Session, tenants: Tenants, rows: Callable[[], Any]) -> None:
    """A statement that does not select one model is refused with what it selects."""
    for find in LOOKUPS.values():
        with pytest.raises(ConfigurationError, match=r"is of one model|is not a mapped class"):
            find(session, rows(), tenants.ada, {})


def test_statements_with_a_limit(session: Session, tenants: Tenants) -> None:
    """ORDER BY and LIMIT of a statement are refused with the reason."""
    with pytest.raises(ConfigurationError, match="at most one row"):
        lookup.get(session, select(User).limit(1), tenants.ada.public_id)
    with pytest.raises(ConfigurationError, match="in the order of the ids"):
        lookup.get_many(session, select(User).order_by(User.id), [tenants.ada.public_id])


# --- repeated inserts


def test_repeated_insert_of_their_row(session: Session, tenants: Tenants) -> None:
    """With the id of a row of theirs, the error is one and the same for all contents: none of them is compared."""
    our_id, ours, theirs = tenants.ours.id, tenants.ada.public_id, tenants.eve.public_id
    for where in (tenants.where, lambda model: model.organisation_id == our_id):
        for name in ("Eve", "another"):
            with pytest.raises(IdempotencyConflict, match="does not meet the condition") as caught:
                insert_once(session, User(public_id=theirs, organisation_id=our_id, name=name), where=where)
            assert (caught.value.public_id, caught.value.model, caught.value.differing) == (theirs, "User", ())
        again = User(public_id=ours, organisation_id=our_id, name="Ada")
        assert insert_once(session, again, where=where) == (tenants.ada, False)
        with pytest.raises(IdempotencyConflict) as caught:
            insert_once(session, User(public_id=ours, organisation_id=our_id, name="Bob"), where=where)
        assert caught.value.differing == ("name",)
    bob, is_new = insert_once(session, User(public_id=UNKNOWN, organisation_id=our_id, name="Bob"), where=where)
    assert (bob.name, is_new) == ("Bob", True)
    session.commit()
    assert session.scalars(select(User.name).order_by(User.id)).all() == ["Ada", "Eve", "Bob"]


def test_condition_of_a_repeated_insert(session: Session, tenants: Tenants) -> None:
    """What is no condition is refused before anything is sent, also if the row would be new."""
    new = User(public_id=UNKNOWN, organisation_id=tenants.ours.id, name="Bob")
    with pytest.raises(ConfigurationError, match="expected a condition such as User"):
        insert_once(session, new, where=True)  # type: ignore[arg-type]  # as Python compares
    assert new not in session


# --- references


def assign(session: Session, ticket: Any) -> None:
    session.add(ticket)
    session.flush()


@pytest.mark.parametrize("organisation", ["object", "key", "public id", "new"])
def test_assigned_id_of_another_tenant(session: Session, tenants: Tenants, organisation: str) -> None:
    """A user of another organisation cannot be assigned: the error is that of an unknown id, and nothing is stored."""
    given: dict[str, Any] = {
        "object": {"organisation": tenants.ours},
        "key": {"organisation_id": tenants.ours.id},
        "public id": {"organisation_public_id": tenants.ours.public_id},
        "new": {"organisation": Organisation(name="new")},
    }[organisation]
    for public_id in (tenants.eve.public_id, "tnu_000000000000"):
        with session.no_autoflush:
            session.add(Ticket(**given, assignee_public_id=public_id))
        with pytest.raises(PublicIdNotFound) as caught:
            session.flush()
        assert (caught.value.field, caught.value.value) == ("Ticket.assignee_public_id", public_id)
        session.rollback()
    if organisation != "new":
        ticket = Ticket(**given, assignee_public_id=tenants.ada.public_id)
        assign(session, ticket)
        assert ticket.assignee is tenants.ada
    assert len(session.scalars(select(Ticket)).all()) == 1 + (organisation != "new")


@pytest.mark.parametrize("has_one", [True, False])
@pytest.mark.parametrize("name", ["assignee_public_id", "watcher_public_id"])
def test_statements_for_an_assigned_id(
    session: Session, tenants: Tenants, statements: list[str], name: str, has_one: bool
) -> None:
    """The id of a user of another organisation takes as many statements as an unknown one."""
    theirs, values = tenants.eve.public_id, {"organisation_id": tenants.ours.id}
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
    """A form may send back the id of a row that is outside of the scope, if the object refers to it already."""
    tenants.ticket.assignee = tenants.eve  # the program may
    session.commit()
    tenants.ticket.assignee_public_id = tenants.eve.public_id
    session.commit()
    assert tenants.ticket.assignee is tenants.eve
    tenants.ticket.assignee = None
    session.commit()
    tenants.ticket.assignee_public_id = tenants.eve.public_id
    with pytest.raises(PublicIdNotFound):
        session.flush()


def test_assigned_later(session: Session, tenants: Tenants) -> None:
    """A stored object is compared by what it will have after the flush."""
    tenants.ticket.assignee_public_id = tenants.eve.public_id
    with pytest.raises(PublicIdNotFound):
        session.flush()
    session.rollback()
    tenants.ticket.organisation = tenants.theirs
    tenants.ticket.assignee_public_id = tenants.eve.public_id
    session.flush()
    assert tenants.ticket.assignee is tenants.eve


def test_new_objects_of_one_flush(session: Session, tenants: Tenants) -> None:
    """New users are compared as well, by the organisation that they will have."""
    bob = User(organisation=tenants.ours, name="Bob")
    mallory = User(organisation=tenants.theirs, name="Mallory")
    session.add_all([bob, mallory])
    session.add(ticket := Ticket(organisation=tenants.ours, assignee_public_id=bob.public_id))
    session.flush()
    assert ticket.assignee is bob

    session.add_all([mallory, Ticket(organisation=tenants.ours, assignee_public_id=mallory.public_id)])
    with pytest.raises(PublicIdNotFound):
        session.flush()


def test_condition_of_the_session(session: Session, tenants: Tenants) -> None:
    """A scope may be a condition that is built of the session."""
    assign(session, Ticket(organisation=tenants.ours, watcher_public_id=tenants.ada.public_id))
    session.add(Ticket(organisation=tenants.ours, watcher_public_id=tenants.eve.public_id))
    with pytest.raises(PublicIdNotFound) as caught:
        session.flush()
    assert caught.value.field == "Ticket.watcher_public_id"
    session.rollback()
    session.info["organisation_id"] = tenants.theirs.id
    assign(session, Ticket(organisation=tenants.theirs, watcher_public_id=tenants.eve.public_id))


def test_both_scopes(session: Session, tenants: Tenants, statements: list[str]) -> None:
    """Many objects are checked by one SELECT for each scope, and for the shared values before and after the flush."""
    statements.clear()
    session.add_all(
        Ticket(
            organisation=tenants.ours,
            assignee_public_id=tenants.ada.public_id,
            watcher_public_id=tenants.ada.public_id,
        )
        for _ in range(20)
    )
    session.flush()

    selects = [one for one in statements if one.lstrip().upper().startswith("SELECT") and "user" in one]
    assert len(selects) <= 5 + 2  # twice for the shared values; and those that refresh the expired users


def test_tenant_that_is_not_known(session: Session, tenants: Tenants) -> None:
    """An object without its tenant before the flush is refused with what to set."""
    session.add(Ticket(assignee_public_id=tenants.ada.public_id))
    with pytest.raises(ConfigurationError, match="set organisation_id, or the relationship"):
        session.flush()


def test_tenant_that_a_collection_changes(session: Session, tenants: Tenants) -> None:
    """The flush compares what it has written: a collection may have another foreign key than the object."""
    ticket = Ticket(organisation_id=tenants.ours.id, assignee_public_id=tenants.ada.public_id)
    tenants.theirs.owned.append(ticket)
    with pytest.raises(PublicIdNotFound):
        session.flush()
    session.rollback()
    assert len(session.scalars(select(Ticket)).all()) == 1


def test_lazy_load_before_the_flush(session: Session, tenants: Tenants) -> None:
    """Before a flush has checked the scope, the relationship loads no row of another tenant."""
    ticket, public_id = tenants.ticket, tenants.eve.public_id
    assert ticket.organisation_id
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
        session.add(Ticket(organisation=tenants.ours, assignee_public_id=public_id))
        if way == "key":
            tenants.ada.organisation_id = their_id
        elif way == "expression":
            theirs = select(Organisation.id).where(Organisation.name == "theirs").scalar_subquery()
            tenants.ada.organisation_id = theirs
        else:
            tenants.theirs.users.append(tenants.ada)
    with pytest.raises(PublicIdNotFound):
        session.flush()
    session.rollback()
    assert len(session.scalars(select(Ticket)).all()) == 1


@pytest.mark.parametrize("condition", [True, None, "organisation_id = 1"])
def test_scope_that_returns_no_condition(session: Session, tenants: Tenants, condition: Any) -> None:
    """A function that returns no condition is refused, and assigns nothing."""
    ref = references.public_refs(Ticket)["watcher_public_id"]
    assert ref.condition is not None
    session.info["organisation_id"] = tenants.ours.id
    with pytest.raises(ConfigurationError, match="expected a condition such as User"):
        condition_of("scope", condition, User)


@pytest.mark.parametrize("way", ["bulk", "insert", "update"])
def test_other_ways_to_write(session: Session, tenants: Tenants, way: str) -> None:
    """Bulk inserts and statements refuse the id of another tenant as a flush does."""

    def write(public_id: str) -> None:
        if way == "bulk":
            bulk.insert(session, [Ticket(organisation=tenants.ours, assignee_public_id=public_id)])
        elif way == "insert":
            row = {"organisation_id": tenants.ours.id, "assignee_public_id": public_id}
            session.execute(insert(Ticket), [row])
        else:
            row = {"id": tenants.ticket.id, "organisation_id": tenants.ours.id, "assignee_public_id": public_id}
            session.execute(update(Ticket), [row])

    write(tenants.ada.public_id)
    with pytest.raises(PublicIdNotFound):
        write(tenants.eve.public_id)


def test_statement_without_the_shared_attribute(session: Session, tenants: Tenants) -> None:
    """A row that does not have the attribute of the scope cannot be compared, and is refused."""
    row = {"id": tenants.ticket.id, "assignee_public_id": tenants.ada.public_id}
    with pytest.raises(ConfigurationError, match="add it to each row"):
        session.execute(update(Ticket), [row])


@pytest.mark.parametrize("scope", ["tenant_id", ["organisation_id", "no"], "organisation"])
def test_scopes_that_cannot_work(scope: Any) -> None:
    """A scope that names no column attribute of both models is refused when the mappers are configured."""

    class OtherBase(DeclarativeBase):
        metadata = MetaData()

    class Owner(PublicIdMixin, OtherBase):
        __tablename__ = "owner"
        organisation_id: Mapped[int]

    class Thing(PublicIdMixin, OtherBase):
        __tablename__ = "thing"
        organisation_id: Mapped[int]
        owner_id: Mapped[int] = mapped_column(ForeignKey("owner.id"))
        owner: Mapped[Owner] = relationship()
        owner_public_id: Mapped[str] = public_ref("owner", scope=scope)

    with pytest.raises(ConfigurationError, match="which is no column attribute of"):
        OtherBase.registry.configure()
    OtherBase.registry.dispose()
