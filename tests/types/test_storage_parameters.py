"""Bound parameters, ``literal()`` and ``bindparam()``, beside a column of public ids: they mean what a text means."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache
from typing import Any

import pytest
from sqlalchemy import (
    ColumnElement,
    ForeignKey,
    MetaData,
    String,
    bindparam,
    delete,
    lambda_stmt,
    literal,
    not_,
    or_,
    select,
    update,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from sqlalchemy_public_id import (
    InvalidPublicId,
    NanoId,
    ObjectId,
    PublicIdMixin,
    Snowflake,
    TypedId,
    Ulid,
    Uuid4,
    Uuid7,
    public_id_column,
    public_ref,
)

pytestmark = pytest.mark.backend


class BoundId(TypedId, prefix="bnd", format=Uuid7()): ...


class OtherId(TypedId, prefix="obnd", format=Uuid7()): ...


FORMATS: dict[str, Any] = {  # one of each way to store
    "uuid7": Uuid7(prefix="bound"),
    "ulid": Ulid(),
    "object id": ObjectId(),
    "snowflake": Snowflake(machine_id=7),
    "typed id": BoundId,
    "ulid text": Ulid(storage="text"),
    "nanoid": NanoId(),
}
NUMBERS = [name for name in FORMATS if name not in ("ulid text", "nanoid")]
IN_OTHER_LETTERS = {"ulid": Ulid(), "ulid text": Ulid(storage="text"), "uuid4": Uuid4(encoding="hex")}
MALFORMED = ["", "x", "cus_izkpm55j334u", "0" * 200, "' OR 1=1 --"]

WAYS: dict[str, Callable[[str], Any]] = {
    "literal": literal,
    "literal of a type": lambda text: literal(text, String(255)),
    "bindparam": lambda text: bindparam("given", text),
    "bindparam of a type": lambda text: bindparam("given", text, String()),
    "unique bindparam": lambda text: bindparam("given", text, unique=True),
}


@cache
def model_of(declared: Any) -> Any:
    """Two rows of it are in the table: those of the fixture *rows*."""

    class Base(DeclarativeBase):
        metadata = MetaData()

    class Row(PublicIdMixin, Base):
        __tablename__ = "bound_row"
        __public_id__ = declared
        name: Mapped[str | None] = mapped_column(String(20))
        parent_id: Mapped[int | None] = mapped_column(ForeignKey("bound_row.id"))
        parent: Mapped[Any] = relationship("Row", remote_side="Row.id")
        parent_public_id: Mapped[str | None] = public_ref("parent")

    class Note(PublicIdMixin, Base):
        __tablename__ = "bound_note"
        __public_id__ = NanoId()
        about: Mapped[str | None] = mapped_column(Row.__table__.c.public_id.type)
        other: Mapped[str] = public_id_column(NanoId())

    Row.Note = Note  # type: ignore[attr-defined]
    return Row


class Rows:
    """A table with the rows "one" and "two"; "two" has "one" as its parent."""

    def __init__(self, model: Any, session: Session) -> None:
        self.model, self.session = model, session
        one = model(name="one")
        session.add(one)
        session.flush()
        two = model(name="two", parent_id=one.id)
        session.add(two)
        session.commit()
        self.id, self.other = one.public_id, two.public_id

    def names(self, condition: Any, **parameters: Any) -> list[str]:
        """The rows that are found."""
        query = select(self.model.name).where(condition).order_by(self.model.id)
        return list(self.session.scalars(query, parameters))


@pytest.fixture
def rows_of(create: Callable[[MetaData], None], session: Session) -> Iterator[Callable[[Any], Rows]]:
    """Make the tables with ids of a format, and the rows."""

    def make(declared: Any) -> Rows:
        model = model_of(declared)
        create(model.metadata)
        return Rows(model, session)

    yield make
    session.rollback()


of_numbers = pytest.mark.parametrize("format_name", NUMBERS, indirect=True)


@pytest.fixture(scope="module", params=FORMATS)
def format_name(request: pytest.FixtureRequest) -> str:
    """The name of a format: the tests of one come one after the other, and share the tables."""
    return str(request.param)


@pytest.fixture
def rows(format_name: str, rows_of: Callable[[Any], Rows]) -> Rows:
    """The rows, with ids of each format."""
    return rows_of(FORMATS[format_name])


def test_well_formed(rows: Rows) -> None:
    """A parameter with an id finds the rows that the id finds, in whatever way it is made."""
    id = rows.model.public_id
    for way, make in WAYS.items():
        given = make(rows.id)
        assert rows.names(id == given) == ["one"], way
        assert rows.names(id != given) == ["two"], way
        assert rows.names(not_(id == given)) == ["two"], way
        assert rows.names(id.in_([given])) == ["one"], way
        assert rows.names(id.in_([given, rows.other])) == ["one", "two"], way
        assert rows.names(id.not_in([given])) == ["two"], way
        assert rows.names(id.is_distinct_from(given)) == ["two"], way
        assert rows.names(id.is_not_distinct_from(given)) == ["one"], way


def test_deleting_all_but_one(rows: Rows) -> None:
    """``DELETE … WHERE id != literal(id)`` spares the row, and UPDATE with it changes that one; so do the objects."""
    session, model = rows.session, rows.model
    session.execute(update(model).values(parent_id=None))
    one, two = session.scalars(select(model).order_by(model.id))

    session.execute(update(model).where(model.public_id == literal(rows.id)).values(name="kept"))
    assert (one.name, two.name) == ("kept", "two")
    session.execute(delete(model).where(model.public_id != literal(rows.id)))
    assert (one in session, two in session) == (True, False)

    assert session.scalars(select(model.name)).all() == ["kept"]


@pytest.mark.parametrize("name", ["ulid text", "nanoid"])
def test_evaluated_for_objects(rows_of: Callable[[Any], Rows], name: str) -> None:
    """Where texts are stored, the session can tell which of its objects a parameter is about, without asking."""
    rows = rows_of(FORMATS[name])
    one = rows.session.scalars(select(rows.model).order_by(rows.model.id)).first()

    for condition in (rows.model.public_id == literal(rows.id), rows.model.public_id <= literal(rows.id)):
        changed = update(rows.model).where(condition).values(name="changed")
        rows.session.execute(changed, execution_options={"synchronize_session": "evaluate"})
        assert one.name == "changed"
        rows.session.rollback()


@of_numbers
def test_malformed(rows: Rows) -> None:
    """A parameter with a malformed text is equal to no row and differs from every row, as the text itself."""
    id, both = rows.model.public_id, ["one", "two"]
    for text, make in itertools.product(MALFORMED, WAYS.values()):
        given = make(text)
        assert rows.names(id == given) == [], text
        assert rows.names(not_(id == given)) == both, text
        assert rows.names(id != given) == both, text
        assert rows.names(not_(id != given)) == [], text
        assert rows.names(id.in_([given])) == [], text
        assert rows.names(id.in_([given, rows.other])) == ["two"], text
        assert rows.names(id.in_([given, literal(rows.id)])) == ["one"], text
        assert rows.names(id.not_in([given])) == both, text
        assert rows.names(id.not_in([given, rows.id])) == ["two"], text
        assert rows.names(id.is_distinct_from(given)) == both, text
        assert rows.names(id.is_not_distinct_from(given)) == [], text


@of_numbers
def test_malformed_beside_null(rows: Rows) -> None:
    """Where there is no id, a malformed one is compared as with the text: ``!=`` is not true, IS DISTINCT FROM is."""
    session, note = rows.session, rows.model.Note
    session.add_all([note(about=None), note(about=rows.id)])
    session.flush()

    def count(condition: ColumnElement[bool]) -> int:
        return len(session.scalars(select(note.id).where(condition)).all())

    for text in ("nonsense", literal("nonsense")):
        assert count(note.about == text) == 0
        assert count(note.about != text) == 1
        assert count(note.about.is_distinct_from(text)) == 2
        assert count(note.about.is_not_distinct_from(text)) == 0
        assert count(note.about.in_([text, rows.id])) == 1


def test_a_typed_id_of_another_type(rows_of: Callable[[Any], Rows]) -> None:
    """A parameter with the id of another type is equal to no row."""
    rows = rows_of(BoundId)
    own, other = BoundId(rows.id), OtherId("o" + rows.id)

    assert rows.names(rows.model.public_id == literal(own)) == ["one"]
    assert rows.names(rows.model.public_id == literal(other)) == []
    assert rows.names(rows.model.public_id.in_([literal(own), literal(other)])) == ["one"]
    assert rows.names(rows.model.public_id != literal(other)) == ["one", "two"]


@of_numbers
def test_a_value_that_execution_replaces(rows: Rows) -> None:
    """What counts is the value at execution, whatever the parameter was made with: nothing, or a malformed text."""
    id = rows.model.public_id
    for text in ("", "nonsense", None):
        given = bindparam("given", text)
        assert rows.names(id == given, given=rows.id) == ["one"]
        assert rows.names(id != given, given=rows.id) == ["two"]
        assert rows.names(id.in_([given, bindparam("more", text)]), given=rows.id, more=rows.other) == [
            "one",
            "two",
        ]
        assert rows.names(id.not_in([given]), given=rows.id) == ["two"]
        assert rows.names(id.is_distinct_from(given), given=rows.id) == ["two"]
        assert rows.names(id.is_not_distinct_from(given), given=rows.id) == ["one"]


def test_without_a_value(rows: Rows) -> None:
    """A parameter may get its value at execution alone."""
    id = rows.model.public_id
    for given in (bindparam("given"), bindparam("given", type_=String())):
        assert rows.names(id == given, given=rows.id) == ["one"]
        assert rows.names(id != given, given=rows.id) == ["two"]
        assert rows.names(id.in_(bindparam("given", expanding=True)), given=[rows.id]) == ["one"]


def test_malformed_at_execution(rows: Rows) -> None:
    """A malformed text that only execution gives is sent as it is to a column of texts, and no row has it; to a column
    of numbers it cannot be sent."""
    id = rows.model.public_id
    for text, given in itertools.product(
        MALFORMED, (bindparam("given"), bindparam("given", type_=String()), bindparam("given", rows.id))
    ):
        if id.type.is_native:
            with pytest.raises(InvalidPublicId):
                rows.names(id == given, given=text)
        else:
            assert rows.names(id == given, given=text) == [], text
            assert rows.names(id != given, given=text) == ["one", "two"], text
            assert rows.names(id.in_([given, rows.other]), given=text) == ["two"], text


@pytest.mark.parametrize("type_", [None, String()])
def test_name_that_another_column_has(rows: Rows, type_: Any) -> None:
    """A parameter whose name stands beside another column, too, is sent there as it is; as a number it is refused."""
    model, given = rows.model, bindparam("given", type_=type_)
    if model.public_id.type.is_native:
        with pytest.raises(InvalidPublicId):
            rows.names(or_(model.name == given, model.public_id == given), given="one")
        return
    assert rows.names(or_(model.name == given, model.public_id == given), given="one") == ["one"]
    assert rows.names(or_(model.public_id == given, model.name == given), given="one") == ["one"]
    changed = update(model).where(model.public_id != given).values(name=given)
    rows.session.execute(changed, {"given": "Ursula K."}, execution_options={"synchronize_session": False})
    assert {*rows.session.scalars(select(model.name))} == {"Ursula K."}


def test_no_text_at_execution(rows: Rows) -> None:
    """A key in place of a public id is a mistake of the program, and is told as such."""
    id = rows.model.public_id
    for condition, given in [
        (id == bindparam("given"), 1),
        (id == bindparam("given", type_=String()), 1),
        (id.in_(bindparam("given", expanding=True)), [rows.id, 1]),
    ]:
        with pytest.raises(InvalidPublicId, match="it is of type int"):
            rows.names(condition, given=given)


@of_numbers
def test_objects_of_a_value_at_execution(rows: Rows) -> None:
    """An UPDATE changes the objects of the rows that it changes, whatever the parameter was made with."""
    session, model = rows.session, rows.model
    one, two = session.scalars(select(model).order_by(model.id))
    for given in (bindparam("given"), bindparam("given", rows.other), bindparam("given", "nonsense")):
        session.execute(update(model).where(model.public_id == given).values(name="changed"), {"given": rows.id})
        assert (one.name, two.name) == ("changed", "two")
        session.rollback()


@of_numbers
def test_a_list_in_one_parameter(rows: Rows) -> None:
    """``in_(bindparam("ids", [...]))`` finds the rows of the list, without what is malformed in it."""
    id, ids = rows.model.public_id, [rows.id, "nonsense"]
    for given in (
        bindparam("ids", ids, expanding=True),
        bindparam("ids", ids, String()),
        bindparam("ids", ids, unique=True, expanding=True),
        bindparam("called", callable_=lambda: [rows.id], type_=String(), expanding=True),
    ):
        assert rows.names(id.in_(given)) == ["one"]
        assert rows.names(id.not_in(given)) == ["two"]
    replaced = bindparam("ids", [rows.id], expanding=True)
    assert rows.names(id.in_(replaced), ids=[rows.other]) == ["two"]
    assert rows.names(id.in_(bindparam("ids", type_=String(), expanding=True)), ids=[rows.other]) == ["two"]
    assert rows.names(id.in_(bindparam("ids", ["nonsense"]))) == []


def test_order(rows: Rows) -> None:
    """``<``, ``>`` and BETWEEN take parameters, too."""
    id = rows.model.public_id
    (small, low), (large, high) = sorted([(rows.id, "one"), (rows.other, "two")])

    assert rows.names(id < literal(large)) == [low]
    assert rows.names(id >= bindparam("given", large)) == [high]
    assert rows.names(id <= bindparam("given", small, String())) == [low]
    assert rows.names(id > literal(small)) == [high]
    assert rows.names(id.between(literal(small), literal(small))) == [low]
    assert rows.names(id.between(small, bindparam("given", large))) == ["one", "two"]


def test_text_that_begins_with_an_id(rows: Rows) -> None:
    """What is joined to an id is no id, so that it is compared with any text."""
    if rows.model.public_id.type.is_native:
        return
    joined = rows.model.public_id + "/and more, with blanks"
    assert rows.names(joined == f"{rows.id}/and more, with blanks") == ["one"]
    assert rows.names(joined.in_([f"{rows.other}/and more, with blanks"])) == ["two"]


@of_numbers
def test_no_place_in_the_order(rows: Rows) -> None:
    """A malformed text is no bound of numbers."""
    id = rows.model.public_id
    for condition in (
        id < "nonsense",
        id >= literal("nonsense"),
        id.between("nonsense", rows.id),
        id.between(rows.id, bindparam("given")),
        ~id.between(rows.id, literal("nonsense")),
    ):
        with pytest.raises(InvalidPublicId):
            rows.names(condition, given="nonsense")


@pytest.mark.parametrize("name", IN_OTHER_LETTERS)
def test_other_letters(rows_of: Callable[[Any], Rows], name: str) -> None:
    """An id in other letters is the same id in a parameter as well."""
    rows = rows_of(IN_OTHER_LETTERS[name])
    id, given = rows.model.public_id, literal(rows.id.swapcase())

    assert rows.names(id == given) == ["one"]
    assert rows.names(id != given) == ["two"]
    assert rows.names(id.in_([given])) == ["one"]
    assert rows.names(id <= given) == rows.names(id <= rows.id)

    one, two = rows.session.scalars(select(rows.model).order_by(rows.model.id))
    rows.session.execute(update(rows.model).where(id == given).values(name="changed"))
    assert (one.name, two.name) == ("changed", "two")


def test_members_of_an_enum(rows: Rows) -> None:
    """Texts may be members of an ``Enum``, which ``str()`` would write by their names."""
    members: Any = Enum("members", {"own": rows.id, "none": "nonsense"}, type=str)
    id = rows.model.public_id

    assert rows.names(id == members.own) == rows.names(id == literal(members.own)) == ["one"]
    assert rows.names(id.in_(members)) == rows.names(id == bindparam("given"), given=members.own) == ["one"]
    assert rows.names(id != members.none) == rows.names(id != literal(members.none)) == ["one", "two"]


def test_cached_statements(rows: Rows) -> None:
    """The same statement with other values, malformed ones among them, has the rows of the values it was given."""
    id = rows.model.public_id
    for make in WAYS.values():
        for text, names in [
            (rows.id, ["one"]),
            (rows.other, ["two"]),
            (rows.id, ["one"]),
            ("x", []),
            (rows.id, ["one"]),
        ]:
            assert rows.names(id == make(text)) == names
            assert rows.names(id.in_([make(text), literal("y")])) == names
            assert rows.names(id.not_in([make(text)])) == [name for name in ("one", "two") if name not in names]


def test_list_in_a_lambda(rows: Rows) -> None:
    """``in_()`` in a lambda takes a list of the program around it."""
    model, session = rows.model, rows.session

    def names_of(ids: list[str]) -> Any:
        return session.scalars(lambda_stmt(lambda: select(model.name).where(model.public_id.in_(ids)))).all()

    assert names_of([rows.id, "nonsense"]) == ["one"]
    assert names_of([rows.other]) == ["two"]


@of_numbers
def test_lambda_statements(rows: Rows) -> None:
    """A lambda is run once and kept; the rows are those of each value, whatever the first one was."""
    model, session = rows.model, rows.session

    def same(given: Any) -> Any:
        return session.scalars(lambda_stmt(lambda: select(model.name).where(model.public_id == given))).all()

    def other(given: Any) -> Any:
        return session.scalars(lambda_stmt(lambda: select(model.name).where(model.public_id != given))).all()

    assert same(literal("nonsense")) == []
    assert other(literal("nonsense")) == ["one", "two"]
    for _ in range(2):
        assert same(literal(rows.id)) == ["one"]
        assert same(literal(rows.other)) == ["two"]
        assert other(literal(rows.id)) == ["two"]


@of_numbers
def test_written_into_the_statement(rows: Rows) -> None:
    """With ``literal_binds`` the statement has what the column stores."""
    for condition, found in [
        (rows.model.public_id == literal(rows.id), "one"),
        (rows.model.public_id.in_([literal("x"), literal(rows.other)]), "two"),
    ]:
        query = select(rows.model.name).where(condition)
        text = str(query.compile(rows.session.get_bind(), compile_kwargs={"literal_binds": True}))

        assert rows.session.connection().exec_driver_sql(text.replace("%%", "%")).scalar() == found


def test_references(rows: Rows) -> None:
    """A reference is compared with parameters as a column of ids is."""
    parent, model = rows.model.parent_public_id, rows.model

    assert rows.names(parent == literal(rows.id)) == ["two"]
    assert rows.names(parent == bindparam("given", rows.id)) == ["two"]
    assert rows.names(parent != literal(rows.id)) == []
    assert rows.names(parent != literal(rows.other)) == ["two"]
    assert rows.names(parent.in_([literal(rows.id), rows.other])) == ["two"]
    assert rows.names(parent.not_in([literal(rows.id)])) == []
    assert rows.names(parent.in_(bindparam("given", [rows.id], expanding=True))) == ["two"]
    assert rows.names(parent == literal("nonsense")) == []
    assert rows.names(parent != literal("nonsense")) == ["two"]
    assert rows.names(parent.is_distinct_from(literal(rows.id))) == ["one"]
    rows.session.execute(delete(model).where(parent == literal(rows.id)))
    assert rows.session.scalars(select(model.name)).all() == ["one"]


def test_on_the_left(rows: Rows) -> None:
    """On the left, a parameter has to be given the column's type, as the guide says."""
    id = rows.model.public_id

    assert rows.names(literal(rows.id, id.type) == id) == ["one"]
    assert rows.names(literal(rows.id, id.type) != id) == ["two"]
