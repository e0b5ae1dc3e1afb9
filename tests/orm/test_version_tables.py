"""Classes with a ``__table__``, such as those of SQLAlchemy's recipe ``history_meta.py`` for former versions."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table
from sqlalchemy.orm import Mapped, Session
from support.shapes import new_base
from support.ways import flush

from sqlalchemy_public_id import (
    ConfigurationError,
    PublicIdColumnMixin,
    PublicIdMixin,
    PublicIdMixinDataclass,
    PublicIdType,
    TypedId,
    bigint_key,
    lookup,
)


class DraftId(TypedId, prefix="versdraft"): ...


def with_key(base: Any) -> Any:
    class Draft(PublicIdMixin[DraftId], base):
        __tablename__ = "draft"
        name: Mapped[str]

    return Draft


def with_own_key(base: Any) -> Any:
    class Draft(PublicIdColumnMixin[DraftId], base):
        __tablename__ = "draft"
        id: Mapped[int] = bigint_key()
        name: Mapped[str]

    return Draft


@pytest.mark.parametrize("declare", [with_key, with_own_key])
def test_class_with_the_bases_of_the_original(session: Session, declare: Any) -> None:
    """A class with the bases of its original, and a copy of the table, as the recipe makes it, has the given ids."""
    base = new_base()
    draft = declare(base)
    table = draft.__table__.to_metadata(base.metadata, name="draft_history")
    table.indexes.clear()
    table.c.id.autoincrement = False
    table.c.public_id.default = None
    table.append_column(Column("version", Integer, primary_key=True, autoincrement=False))
    history = type("DraftHistory", draft.__bases__, {"__table__": table})
    base.metadata.create_all(session.get_bind())
    [new] = flush(session, draft, [{"name": "last"}])
    given = [{"id": new.id, "version": version, "public_id": new.public_id, "name": "first"} for version in (1, 2)]
    versions = flush(session, history, given)
    session.expire_all()

    assert [each.public_id for each in versions] == [new.public_id] * 2
    assert {type(each.public_id) for each in versions} == {DraftId}
    assert lookup.resolve(session, new.public_id, base=base) is new


@pytest.mark.parametrize("mixin", [PublicIdMixin, PublicIdColumnMixin, PublicIdMixinDataclass])
def test_mixin_beside_a_table(mixin: Any) -> None:
    """A mixin adds no columns to a table that the model is declared with, so it is refused beside one."""
    metadata = MetaData()
    id_column = Column("public_id", PublicIdType(DraftId), default=DraftId, unique=True, nullable=False)
    table = Table("draft", metadata, Column("id", Integer, primary_key=True), id_column)

    with pytest.raises(ConfigurationError, match="Draft has a __table__, to which a mixin adds no columns"):
        type("Draft", (mixin, new_base()), {"__table__": table})
