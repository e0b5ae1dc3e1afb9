"""Which statements of a lookup have an order or a limit of their own."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import (
    LABEL_STYLE_TABLENAME_PLUS_COL,
    Select,
    bindparam,
    func,
    or_,
    select,
    text,
    true,
)
from sqlalchemy.orm import aliased, load_only, with_loader_criteria
from sqlalchemy.orm.interfaces import UserDefinedOption
from support.members import User

from sqlalchemy_public_id.lookup.selecting import is_sorted_or_limited

table: Any = User.__table__


class Unhashable(UserDefinedOption):
    __hash__ = None


def statements() -> list[Select[Any]]:
    """Return SELECTs of every kind, without ORDER BY or LIMIT."""
    other, inner = aliased(User), select(User.id).order_by(User.id).limit(1)
    return [
        select(table).where(table.c.id > 1).with_for_update(),
        select(User),
        select(other).join(User, User.id == other.id).where(other.name.in_(["a", "b"]), or_(other.id > 1, true())),
        select(User).where(User.id.in_(inner)).add_cte(select(User.id).cte("other")),
        select(User).group_by(User.id).having(func.count() > 1).distinct().prefix_with("ALL").with_hint(User, "x"),
        select(User).options(load_only(User.name), with_loader_criteria(User, lambda cls: cls.id > 1), Unhashable()),
        select(User).execution_options(populate_existing=True).set_label_style(LABEL_STYLE_TABLENAME_PLUS_COL),
        select(User).where(text("id > :least")),
        select(User).order_by("name").limit(1).offset(2).order_by(None).limit(None).offset(None),
        select(User).fetch(1, percent=True).fetch(None),
    ]


@pytest.mark.parametrize("statement", statements(), ids=range(len(statements())))
def test_sorted_or_limited(statement: Select[Any]) -> None:
    """ORDER BY, LIMIT, OFFSET and FETCH are recognized."""
    assert not is_sorted_or_limited(statement)
    changed = [
        statement.order_by("name"),
        statement.order_by(table.c.id.desc()),
        statement.limit(1),
        statement.limit(bindparam("most")),
        statement.offset(1),
        statement.fetch(1),
        statement.fetch(10, with_ties=True),
        statement.slice(1, 2),
    ]
    assert [str(each) for each in changed if not is_sorted_or_limited(each)] == []
