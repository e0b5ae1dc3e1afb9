"""References to rows of any model, for audit logs, comments and attachments.

>>> from sqlalchemy import create_engine
>>> from sqlalchemy.orm import DeclarativeBase, Session, mapped_column
>>> from sqlalchemy_public_id import NanoId, PublicIdMixin, lookup
>>> from sqlalchemy_public_id.references import AnyPublicIdType
>>> class Base(DeclarativeBase): ...
>>> class Painting(PublicIdMixin, Base):
...     __tablename__ = "painting"
...     __public_id__ = NanoId(prefix="painting")
>>> class AuditEntry(PublicIdMixin, Base):
...     __tablename__ = "audit_entry"
...     subject = mapped_column(AnyPublicIdType(), index=True)
>>> engine = create_engine("sqlite://")
>>> Base.metadata.create_all(engine)
>>> with Session(engine) as session:
...     session.add(painting := Painting())
...     session.add(entry := AuditEntry(subject=painting.public_id))
...     session.flush()
...     lookup.resolve_many(session, [entry.subject]) == {entry.subject: painting}
True

There is no foreign key, so the id stays when the row is deleted.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from sqlalchemy import ColumnElement, String
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import configure_mappers
from sqlalchemy.types import Concatenable, TypeDecorator, TypeEngine

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError, InvalidPublicId, PublicIdError
from sqlalchemy_public_id.key_types import EQUALITIES
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.registry import format_of
from sqlalchemy_public_id.stored_ids import SqlType, require_text_index, text_to_compare, text_type
from sqlalchemy_public_id.types import IdColumnType, require_text, unwrapped

__all__ = ["AnyPublicIdType"]

_LONGEST = 255
"""The number of characters that every database can index."""


class _Comparator(TypeDecorator.Comparator[str], Concatenable.Comparator[str]):
    """Refuses comparisons with columns whose ids are stored as numbers, which never equal text."""

    def operate(self, op: Any, *other: Any, **kwargs: Any) -> ColumnElement[Any]:
        for operand in other:
            columns = getattr(operand, "selected_columns", None) or [operand]
            types = [getattr(column, "type", None) for column in columns] if op in EQUALITIES else []
            if any(isinstance(type_, IdColumnType) and type_.is_native for type_ in types):
                raise ConfigurationError(
                    "a column of ids of any model stores text, and cannot be compared with ids that are stored as "
                    'numbers; load the rows with lookup.resolve_many(), or store these ids as text, with storage="text"'
                )
        return super().operate(op, *other, **kwargs)


class AnyPublicIdType(TypeDecorator[str]):
    """Column type for public ids of any model, including models that are no longer declared.

    A new value must be an id of a declared model or a :class:`~sqlalchemy_public_id.TypedId`, with a prefix, and is
    stored in its canonical spelling. Stored values are returned unchanged. A comparison with anything else matches no
    row. The column is compared byte by byte on every database.

    :param length: the maximum length of an id in characters, at most 255.
    :param sql_type: ``"TEXT"`` for a column without a length; see :class:`~sqlalchemy_public_id.PublicIdType`.
    :raises InvalidPublicId: during the flush or statement, if a value is not such an id or is too long.
    """

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = String
    cache_ok: bool | None = True
    comparator_factory = _Comparator  # pyright: ignore[reportAssignmentType]  # a property in its base

    def __init__(self, length: int = 64, sql_type: SqlType | None = None) -> None:
        if not isinstance(length, int) or isinstance(length, bool) or not 1 <= length <= _LONGEST:
            raise ConfigurationError(f"length is {safe_repr(length)}, expected a whole number from 1 to {_LONGEST}")
        if sql_type is not None:
            require_text(None, sql_type)
        self.length = length
        self.sql_type = sql_type
        super().__init__(length)

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if self.sql_type is None:
            return dialect.type_descriptor(traits_for(dialect).column_text(self.length))
        require_text_index("a column of ids of any model", self.sql_type, self.length, dialect)
        return text_type(self.length, traits_for(dialect), sql_type=self.sql_type)

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        if value is None:
            return None
        format = format_of(value)
        if format is None:  # a model registers its prefix when its mapper is configured
            with suppress(SQLAlchemyError, PublicIdError):  # a broken model affects only its own ids
                configure_mappers()
            format = format_of(value)
        if format is None or len(value) > self.length:
            reason = "no model has such ids" if format is None else f"it has {len(value)} characters"
            expected = f"an id of a model with a prefix, of at most {self.length} characters"
            raise unwrapped(InvalidPublicId(value, expected=expected, reason=reason))
        return str.__str__(format.validate(value))

    def coerce_compared_value(self, op: Any, value: Any) -> TypeEngine[Any]:
        return _ComparedText(self.length) if op in EQUALITIES else String()

    def __repr__(self) -> str:
        own = "" if self.sql_type is None else f", sql_type={self.sql_type!r}"
        return f"{type(self).__name__}({self.length}{own})"


class _ComparedText(TypeDecorator[str]):
    """The type of a value compared with the column: text that a driver can send, or ``""``, which no row has."""

    impl = String
    cache_ok = True

    def __init__(self, length: int) -> None:
        self.length = length
        super().__init__(length)

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str):
            return ""
        format = format_of(value)
        return text_to_compare(value if format is None else format.validate(value), self.length)
