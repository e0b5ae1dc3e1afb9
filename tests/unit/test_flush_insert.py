"""The INSERT of a flush: what it keeps from one flush to the next, and the keys that it reads."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Column, Dialect, Identity, Integer, MetaData, String, Table, insert
from sqlalchemy.dialects import mysql, sqlite
from sqlalchemy.orm import DeclarativeBase, Mapped, configure_mappers, mapped_column

from sqlalchemy_public_id import PublicIdMixin
from sqlalchemy_public_id._compat.flush_insert import FlushInsert, PreparedInsert


class Base(DeclarativeBase): ...


class Letter(PublicIdMixin, Base):
    __tablename__ = "letter_of_a_flush"
    name: Mapped[str | None] = mapped_column(server_default="-")


pairs = Table(
    "pair_of_a_flush", MetaData(), Column("left", Integer, primary_key=True), Column("right", Integer, primary_key=True)
)
texts = Table("text_of_a_flush", MetaData(), Column("code", String(9), primary_key=True), Column("name", String(9)))
letters: Any = Letter.__table__


def of_flush() -> FlushInsert:
    configure_mappers()
    statement = Letter.__mapper__._memo(("insert", letters), letters.insert)
    assert isinstance(statement, FlushInsert)
    return statement


def test_statement_of_the_flush_before() -> None:
    """For the same columns a flush gets the statement of the flush before, whose cache key is built already."""
    first = of_flush().return_defaults(letters.c.id, sort_by_parameter_order=True)
    key = first._generate_cache_key()
    second = of_flush().return_defaults(letters.c.id, sort_by_parameter_order=True)

    assert second is first
    assert second._generate_cache_key() is key
    assert key == insert_like(first)._generate_cache_key()


def insert_like(statement: FlushInsert) -> FlushInsert:
    """Return a new statement that SQLAlchemy takes for the same."""
    new = FlushInsert(letters, statement.ids)
    return new.return_defaults(letters.c.id, sort_by_parameter_order=True)


def test_statements_with_other_columns() -> None:
    """Other columns, another order of rows and more columns of a statement are statements of their own."""
    plain = of_flush()
    one, other = plain.return_defaults(letters.c.id), plain.return_defaults(letters.c.name)
    both, ordered = (
        one.return_defaults(letters.c.name),
        plain.return_defaults(letters.c.id, sort_by_parameter_order=True),
    )

    keys = [each._generate_cache_key() for each in (plain, one, other, both, ordered)]
    assert all(keys)
    assert len({key.key for key in keys if key}) == 5
    assert one.return_defaults(letters.c.name) is both
    assert plain.return_defaults(letters.c.id) is one


def test_copies_keep_nothing() -> None:
    """A copy with something more has statements of its own: those of the original lack it."""
    plain = of_flush()
    one = plain.return_defaults(letters.c.id)
    changed = plain.prefix_with("LOW_PRIORITY")

    assert changed.return_defaults(letters.c.id) is not one
    assert "LOW_PRIORITY" in str(changed.return_defaults(letters.c.id))
    assert "LOW_PRIORITY" not in str(plain.return_defaults(letters.c.id))


@pytest.mark.parametrize(
    "copied",
    [
        lambda statement: statement._annotate({"note": 1}),
        copy.copy,
        copy.deepcopy,
        lambda statement: pickle.loads(pickle.dumps(statement)),
    ],
    ids=["annotated", "copied", "copied deeply", "pickled"],
)
def test_copies_of_other_kinds(copied: Callable[[Any], Any]) -> None:
    """Copies that take over all attributes have statements of their own, too, and leave those of the original."""
    plain = FlushInsert(letters, of_flush().ids)
    early = copied(plain).return_defaults(letters.c.id)
    one = plain.return_defaults(letters.c.id)
    late = copied(plain).return_defaults(letters.c.id)

    assert one is plain.return_defaults(letters.c.id)
    assert "note" not in one._annotations
    assert len({id(each) for each in (early, one, late)}) == 3
    assert str(one) == str(late) == str(early)


def test_cache_key_of_a_statement_that_is_copied_meanwhile() -> None:
    """Statements have their cache keys before threads share them: a copy would take over one built meanwhile."""
    plain = of_flush()
    one = plain.return_defaults(letters.c.id, sort_by_parameter_order=True)

    for statement in (plain, one):
        assert "_generate_cache_key" in vars(statement)
        assert "_generate_cache_key" in statement._memoized_keys
        assert "_generate_cache_key" not in vars(statement._generate())


def test_supplemental_columns() -> None:
    """Columns that are returned beside the defaults are passed on."""
    statement = of_flush().return_defaults(letters.c.id, supplemental_cols=[letters.c.name])
    compiled: Any = statement.compile(dialect=sqlite.dialect(insert_returning=True), column_keys=["public_id"])

    assert {column.name for column in compiled.effective_returning} == {"id", "name"}


@pytest.mark.parametrize("dialect", [mysql.dialect(), sqlite.dialect()], ids=["mysql", "sqlite"])
@pytest.mark.parametrize(
    ("table", "sent"),
    [
        (letters, ["public_id"]),
        (letters, ["id", "public_id"]),
        (pairs, ["left", "right"]),
        (texts, ["code", "name"]),
        (Table("key_alone", MetaData(), Column("id", Integer, Identity(), primary_key=True)), []),
    ],
    ids=["number", "number that is sent", "two columns", "text", "nothing else"],
)
def test_keys_of_the_driver(table: Table, sent: list[str], dialect: Dialect) -> None:
    """The key of a row is what SQLAlchemy would read: the number of the driver, or what was sent."""
    ours: Any = PreparedInsert(table).compile(dialect=dialect, column_keys=sent)
    theirs: Any = insert(table).compile(dialect=dialect, column_keys=sent)
    parameters = {"id": 4, "left": 1, "right": 2, "code": "a", "name": "b", "public_id": "x"}

    for number in (7, 0, None):
        for given in ({key: parameters[key] for key in sent}, dict.fromkeys(sent)):
            expected = theirs._inserted_primary_key_from_lastrowid_getter(number, given)
            row = ours._inserted_primary_key_from_lastrowid_getter(number, given)

            assert row == expected
            assert row._fields == expected._fields
