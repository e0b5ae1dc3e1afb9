"""A text, a bound parameter, ``literal()`` and ``bindparam()`` compare with a column of public ids alike."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache
from typing import Any

import pytest
from sqlalchemy import ForeignKey, MetaData, String, bindparam, delete, lambda_stmt, literal, not_, or_, select, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, aliased, mapped_column, relationship

from sqlalchemy_public_id import (
    InvalidPublicId,
    NanoId,
    ObjectId,
    PublicIdMixin,
    Snowflake,
    TypedId,
    Ulid,
    Uuid7,
    lookup,
    public_ref,
)

pytestmark = pytest.mark.backend


class BoundId(TypedId, prefix="bnd", format=Uuid7()): ...


class OtherId(TypedId, prefix="obnd", format=Uuid7()): ...


FORMATS: dict[str, Any] = {  # one for each way of storing ids
    "uuid7": Uuid7(prefix="bound"),
    "ulid": Ulid(),
    "object id": ObjectId(),
    "snowflake": Snowflake(machine_id=7),
    "typed id": BoundId,
    "ulid text": Ulid(storage="text"),
    "nanoid": NanoId(),
}
NUMBERS = [name for name in FORMATS if name not in ("ulid text", "nanoid")]
MALFORMED = ["", "x", "cus_izkpm55j334u", "0" * 200, "' OR 1=1 --"]
UNSENDABLE = ["\x00", "ü"]
"""Parameters of a text column are sent unchanged, and some databases reject these characters."""

WAYS: dict[str, Callable[[str], Any]] = {
    "text": str,
    "literal": literal,
    "literal of a type": lambda text: literal(text, String(255)),
    "bindparam": lambda text: bindparam("given", text),
    "bindparam of a type": lambda text: bindparam("given", text, String()),
    "unique bindparam": lambda text: bindparam("given", text, unique=True),
}


@cache
def model_of(declared: Any) -> Any:
    """Return a model with ids of the format *declared*, whose table has the two rows of the fixture *rows*."""

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

    Row.Note = Note
    return Row


class Rows:
    """A table with the rows "one" and "two"; the parent of "two" is "one"."""

    def __init__(self, model: Any, session: Session) -> None:
        self.model, self.session = model, session
        self.one = model(name="one")
        session.add(self.one)
        session.flush()
        self.two = model(name="two", parent_id=self.one.id)
        session.add(self.two)
        session.commit()
        self.id, self.other = self.one.public_id, self.two.public_id

    def names(self, condition: Any, **parameters: Any) -> list[str]:
        """Return the names of the rows that *condition* finds."""
        query = select(self.model.name).where(condition).order_by(self.model.id)
        return list(self.session.scalars(query, parameters))

    def check(self, given: Any, found: list[str], /, **parameters: Any) -> None:
        """Assert that every kind of equality with *given* finds the rows *found*, and its negation the other rows."""
        id, others = self.model.public_id, [name for name in ("one", "two") if name not in found]
        for condition in (
            id == given,
            id.in_([given]),
            id.is_not_distinct_from(given),
            not_(id != given),
            not_(id.not_in([given])),
        ):
            assert self.names(condition, **parameters) == found
        for condition in (id != given, id.not_in([given]), id.is_distinct_from(given), not_(id == given)):
            assert self.names(condition, **parameters) == others


@pytest.fixture
def rows_of(create: Callable[[MetaData], None], session: Session) -> Iterator[Callable[[Any], Rows]]:
    """Return a function that creates the tables and rows with ids of a format."""

    def make(declared: Any) -> Rows:
        model = model_of(declared)
        create(model.metadata)
        return Rows(model, session)

    yield make
    session.rollback()


of_numbers = pytest.mark.parametrize("format_name", NUMBERS, indirect=True)


@pytest.fixture(scope="module", params=FORMATS)
def format_name(request: pytest.FixtureRequest) -> str:
    """Return the name of a format; module scope runs the tests of one format together, on the same tables."""
    return str(request.param)


@pytest.fixture
def rows(format_name: str, rows_of: Callable[[Any], Rows]) -> Rows:
    """Return the rows with ids of each format."""
    return rows_of(FORMATS[format_name])


# --- equalities


def test_well_formed_and_malformed(rows: Rows) -> None:
    """An id finds its row and a malformed text none, however it is passed and even if the statement is cached."""
    id = rows.model.public_id
    for way, make in WAYS.items():
        malformed = MALFORMED + UNSENDABLE * (way == "text" or id.type.is_native)
        for text, found in [(rows.id, ["one"]), (rows.other, ["two"]), *((text, []) for text in malformed)]:
            rows.check(make(text), found)
            assert rows.names(id.in_([make(text), literal(rows.other)])) == sorted({*found, "two"})
    wrong = MALFORMED + UNSENDABLE
    assert [text for text in wrong if lookup.get(rows.session, rows.model, text) is not None] == []


def test_nothing_and_iterables(rows: Rows) -> None:
    """``None`` is NULL, an empty list matches no id, and ``in_()`` takes any iterable or a query."""
    id, texts = rows.model.public_id, {rows.id: 1, "nonsense": 2}

    assert rows.names(id == None) == rows.names(id.in_([])) == []  # noqa: E711
    assert rows.names(id != None) == rows.names(id.not_in([])) == ["one", "two"]  # noqa: E711
    iterables = texts.keys(), iter(texts), (text for text in texts), tuple(texts), set(texts)
    assert [rows.names(id.in_(several)) for several in iterables] == [["one"]] * 5
    assert rows.names(id.in_(select(id).where(rows.model.name == "two"))) == ["two"]


@of_numbers
def test_another_column(rows: Rows) -> None:
    """Another column of ids can be joined; with NULL, ``!=`` is not true, and IS DISTINCT FROM is."""
    session, about, other = rows.session, rows.model.Note.about, aliased(rows.model)
    session.add_all([rows.model.Note(about=None), rows.model.Note(about=rows.id)])
    session.flush()

    def count(condition: Any) -> int:
        return len(session.scalars(select(rows.model.Note.id).where(condition)).all())

    texts = "nonsense", literal("nonsense")
    assert [[count(about == each), count(about != each)] for each in texts] == [[0, 1]] * 2
    assert [count(about.in_([each, rows.id])) for each in texts] == [1, 1]
    distinct = [[about.is_distinct_from(each), about.is_not_distinct_from(each)] for each in texts]
    assert [[*map(count, each)] for each in distinct] == [[2, 0]] * 2
    assert session.scalars(select(about).join(rows.model, rows.model.public_id == about)).all() == [rows.id]
    assert session.scalars(select(other.public_id).join(rows.model.Note, other.public_id == about)).all() == [rows.id]


def test_a_typed_id_of_another_type(rows_of: Callable[[Any], Rows]) -> None:
    """A parameter with a typed id of another type matches no row."""
    rows = rows_of(BoundId)
    own, other = BoundId(rows.id), OtherId("o" + rows.id)

    rows.check(literal(own), ["one"])
    rows.check(literal(other), [])
    assert rows.names(rows.model.public_id.in_([literal(own), literal(other)])) == ["one"]


def test_members_of_an_enum(rows: Rows) -> None:
    """Texts may be members of an ``Enum``, although ``str()`` would return their names."""
    members: Any = Enum("members", {"own": rows.id, "none": "nonsense"}, type=str)

    for way in (lambda member: member, literal):
        rows.check(way(members.own), ["one"])
        rows.check(way(members.none), [])
    rows.check(bindparam("given"), ["one"], given=members.own)
    assert rows.names(rows.model.public_id.in_(members)) == ["one"]


def test_references(rows: Rows) -> None:
    """A reference compares with parameters like a column of ids."""
    parent, model = rows.model.parent_public_id, rows.model

    given = literal(rows.id), bindparam("given", rows.id)
    equal = [condition for each in given for condition in (parent == each, parent.in_([each, rows.other]))]
    assert [*map(rows.names, equal)] == [["two"]] * 4
    other = [condition for each in given for condition in (parent != each, parent.not_in([each]))]
    assert [*map(rows.names, other)] == [[]] * 4
    assert [rows.names(parent.is_distinct_from(each)) for each in given] == [["one"]] * 2
    assert rows.names(parent.in_(bindparam("given", [rows.id], expanding=True))) == ["two"]
    given = literal(rows.other), literal("nonsense")
    assert [(rows.names(parent == each), rows.names(parent != each)) for each in given] == [([], ["two"])] * 2
    rows.session.execute(delete(model).where(parent == literal(rows.id)))
    assert rows.session.scalars(select(model.name)).all() == ["one"]


def test_on_the_left(rows: Rows) -> None:
    """A parameter on the left must be given the type of the column, as the guide says."""
    id = rows.model.public_id

    assert rows.names(literal(rows.id, id.type) == id) == ["one"]
    assert rows.names(literal(rows.id, id.type) != id) == ["two"]


# --- the value at execution


def test_a_value_that_execution_gives(rows: Rows) -> None:
    """The value passed at execution counts, even if the parameter was created with no value or a malformed one."""
    id = rows.model.public_id
    made = [bindparam("given"), bindparam("given", type_=String())]
    if id.type.is_native:
        made += [bindparam("given", text) for text in ("", "nonsense", None)]
    for given in made:
        rows.check(given, ["one"], given=rows.id)
        both = id.in_([given, bindparam("more", "nonsense")])
        assert rows.names(both, given=rows.id, more=rows.other) == ["one", "two"]


def test_malformed_at_execution(rows: Rows) -> None:
    """A malformed text that is passed at execution matches no row if ids are stored as text. If they are stored as
    numbers, it raises."""
    id = rows.model.public_id
    for text, given in itertools.product(
        MALFORMED, (bindparam("given"), bindparam("given", type_=String()), bindparam("given", rows.id))
    ):
        if id.type.is_native:
            with pytest.raises(InvalidPublicId):
                rows.names(id == given, given=text)
        else:
            rows.check(given, [], given=text)


@pytest.mark.parametrize("type_", [None, String()])
def test_name_that_another_column_has(rows: Rows, type_: Any) -> None:
    """A parameter shared with another column is sent unchanged; if ids are numbers, a malformed value raises."""
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
    """An integer key passed at execution instead of a public id raises."""
    id = rows.model.public_id
    for condition, given in [
        (id == bindparam("given"), 1),
        (id == bindparam("given", type_=String()), 1),
        (id.in_(bindparam("given", expanding=True)), [rows.id, 1]),
    ]:
        with pytest.raises(InvalidPublicId, match="it is of type int"):
            rows.names(condition, given=given)


def test_a_list_in_one_parameter(rows: Rows) -> None:
    """``in_(bindparam("ids", [...]))`` finds the rows of the list, and ignores malformed texts in it."""
    id, ids = rows.model.public_id, [rows.id, "nonsense"]
    made = [bindparam("ids", expanding=True), bindparam("ids", [rows.id], expanding=True)]
    if id.type.is_native:
        given = [
            bindparam("ids", ids, expanding=True),
            bindparam("ids", ids, String()),
            bindparam("ids", ids, unique=True, expanding=True),
            bindparam("called", callable_=lambda: [rows.id], type_=String(), expanding=True),
        ]
        assert [(rows.names(id.in_(each)), rows.names(id.not_in(each))) for each in given] == [(["one"], ["two"])] * 4
        made.append(bindparam("ids", type_=String(), expanding=True))
        assert rows.names(id.in_(bindparam("ids", ["nonsense"]))) == []
    assert [rows.names(id.in_(each), ids=[rows.other]) for each in made] == [["two"]] * len(made)


# --- order


def test_order(rows: Rows) -> None:
    """``<``, ``>`` and BETWEEN accept parameters, too."""
    id = rows.model.public_id
    (small, low), (large, high) = sorted([(rows.id, "one"), (rows.other, "two")])

    assert rows.names(id < literal(large)) == [low]
    assert rows.names(id >= bindparam("given", large)) == [high]
    assert rows.names(id <= bindparam("given", small, String())) == [low]
    assert rows.names(id > literal(small)) == [high]
    assert rows.names(id.between(literal(small), literal(small))) == [low]
    assert rows.names(id.between(small, bindparam("given", large))) == ["one", "two"]


@of_numbers
def test_no_place_in_the_order(rows: Rows) -> None:
    """If ids are stored as numbers, ``<``, ``>=`` or BETWEEN with a malformed text raises."""
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


def test_text_that_begins_with_an_id(rows: Rows) -> None:
    """An id concatenated with text is not an id, so it is compared with any text."""
    if rows.model.public_id.type.is_native:
        return
    joined = rows.model.public_id + "/and more, with blanks"
    assert rows.names(joined == f"{rows.id}/and more, with blanks") == ["one"]
    assert rows.names(joined.in_([f"{rows.other}/and more, with blanks"])) == ["two"]


# --- in other statements


def test_update_and_delete(rows: Rows) -> None:
    """UPDATE and DELETE with a parameter affect the matching rows, and the session's objects are synchronized."""
    session, model, one, two = rows.session, rows.model, rows.one, rows.two
    given = [bindparam("given"), bindparam("given", rows.other), bindparam("given", "nonsense")]
    changed = []
    for each in given if model.public_id.type.is_native else []:
        session.execute(update(model).where(model.public_id == each).values(name="changed"), {"given": rows.id})
        changed.append((one.name, two.name))
        session.rollback()
    assert changed == [("changed", "two")] * len(changed)
    session.execute(update(model).values(parent_id=None))
    session.execute(update(model).where(model.public_id == literal(rows.id)).values(name="kept"))
    assert (one.name, two.name) == ("kept", "two")
    session.execute(delete(model).where(model.public_id != literal(rows.id)))
    assert (one in session, two in session) == (True, False)

    assert session.scalars(select(model.name)).all() == ["kept"]


@pytest.mark.parametrize("name", ["ulid text", "nanoid"])
@pytest.mark.parametrize("compare", [operator.eq, operator.le])
def test_evaluated_for_objects(rows_of: Callable[[Any], Rows], name: str, compare: Any) -> None:
    """If ids are stored as text, ``synchronize_session="evaluate"`` works for comparisons with parameters."""
    rows = rows_of(FORMATS[name])
    id = rows.model.public_id

    changed = update(rows.model).where(compare(id, literal(rows.id))).values(name="changed")
    rows.session.execute(changed, execution_options={"synchronize_session": "evaluate"})
    assert rows.one.name == "changed"


def test_lambda_statements(rows: Rows) -> None:
    """A cached lambda statement returns the rows of each value or list, whatever the first one was."""
    model, session = rows.model, rows.session

    def same(given: Any) -> Any:
        return session.scalars(lambda_stmt(lambda: select(model.name).where(model.public_id == given))).all()

    def other(given: Any) -> Any:
        return session.scalars(lambda_stmt(lambda: select(model.name).where(model.public_id != given))).all()

    def several(ids: list[str]) -> Any:
        return session.scalars(lambda_stmt(lambda: select(model.name).where(model.public_id.in_(ids)))).all()

    if model.public_id.type.is_native:
        assert (same(literal("nonsense")), other(literal("nonsense"))) == ([], ["one", "two"])
    for _ in range(2):
        assert (same(literal(rows.id)), same(literal(rows.other)), other(literal(rows.id))) == (
            ["one"],
            ["two"],
            ["two"],
        )
        assert (several([rows.id, "nonsense"]), several([rows.other])) == (["one"], ["two"])


def test_written_into_the_statement(rows: Rows) -> None:
    """With ``literal_binds`` the statement contains the value as the column stores it."""
    id = rows.model.public_id
    conditions = id == rows.id, id == literal(rows.id), id.in_([literal("x"), literal(rows.other)])
    queries = [select(rows.model.name).where(condition) for condition in conditions]
    texts = [str(query.compile(rows.session.get_bind(), compile_kwargs={"literal_binds": True})) for query in queries]

    sent = [rows.session.connection().exec_driver_sql(text.replace("%%", "%")) for text in texts]
    assert [result.scalar() for result in sent] == ["one", "one", "two"]
