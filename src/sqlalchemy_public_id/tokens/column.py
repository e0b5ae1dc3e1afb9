"""The column that stores the digests of tokens, and what it is compared with."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, cast

from sqlalchemy import BindParameter, ColumnElement, LargeBinary, event
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DontWrapMixin
from sqlalchemy.orm import MappedColumn, mapped_column
from sqlalchemy.sql import operators
from sqlalchemy.types import TypeDecorator, TypeEngine

from sqlalchemy_public_id.comparisons import no_match
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.mixins import name_index
from sqlalchemy_public_id.tokens.token import DIGEST_BYTES, IssuedToken, Token, concealed
from sqlalchemy_public_id.types import is_expression

__all__ = ["TokenType", "token_column"]

_ONE = {operator.eq, operator.ne, operators.is_distinct_from, operators.is_not_distinct_from}
_SEVERAL = {operators.in_op, operators.not_in_op}


def token_column(token: Token, *, name: str | None = None, **kwargs: Any) -> MappedColumn[bytes]:
    """A column of digests of tokens: 32 bytes, never null, with a unique index named ``uq_<table>_<column>``.

    :param token: the kind of tokens.
    :param name: the name of the column, where it is not that of the attribute.
    :param kwargs: for :func:`sqlalchemy.orm.mapped_column`.

    >>> from sqlalchemy.orm import DeclarativeBase
    >>> from sqlalchemy_public_id import PublicIdMixin
    >>> class Base(DeclarativeBase): ...
    >>> class Share(PublicIdMixin, Base):
    ...     __tablename__ = "share"
    ...     token = token_column(Token("share"))
    >>> sorted(index.name for index in Share.__table__.indexes)
    ['uq_share_public_id', 'uq_share_token']
    """
    for option in ("default", "insert_default", "nullable", "unique", "index", "primary_key"):
        if option in kwargs:
            raise ConfigurationError(
                f"token_column() sets {option} itself: a token is given, unique and never null; "
                f"keep tokens in a table of their own, and delete the row of one that is used up"
            )
    mapped: MappedColumn[bytes] = mapped_column(
        name, TokenType(token), nullable=False, unique=True, index=True, **kwargs
    )
    event.listen(mapped.column, "after_parent_attach", name_index, propagate=True)
    return mapped


class _NoDigest(TypeError, DontWrapMixin):
    """Raised as it is: SQLAlchemy would wrap it and show the parameters, which may be the text of a token."""


class _Comparator(TypeDecorator.Comparator[bytes]):
    """Comparisons of the column with the text of a token, which becomes its digest at once.

    So such a comparison does not hold the text. What other expressions do with a text is theirs.
    """

    def operate(self, op: Any, *other: Any, **kwargs: Any) -> ColumnElement[Any]:
        assert isinstance(self.type, TokenType)
        if other and op in _SEVERAL:
            several = _several(other[0])
            _refuse_text_in_a_parameter(other[0] if several is None else several)
            if several is not None:
                other = ([digest for digest in map(self.type.digest, several) if digest is not None], *other[1:])
        elif other and op in _ONE:
            _refuse_text_in_a_parameter(other[0])
            found = self.type.digest(other[0])
            if found is None and other[0] is not None:
                return no_match(self.expr, op)
            other = (found, *other[1:])
        return super().operate(op, *other, **kwargs)


def _several(given: Any) -> list[Any] | None:
    """What ``in_`` was given, where it is an iterable; ``None`` for a subquery or a parameter."""
    if isinstance(given, (str, bytes, IssuedToken)):
        raise _NoDigest(f"{concealed(given)} was given to in_, which takes several tokens, not one: write in_([token])")
    if is_expression(given):
        return None
    return [*given] if hasattr(given, "__iter__") else None


def _refuse_text_in_a_parameter(value: Any) -> None:
    """Refuse ``literal(text)`` and ``bindparam("name", text)``, which SQLAlchemy would send as they are."""
    if isinstance(value, (list, tuple, set, frozenset)):
        for each in cast("Iterable[Any]", value):
            _refuse_text_in_a_parameter(each)
    elif isinstance(value, BindParameter):
        held = cast("Any", value).value
        for each in cast("Iterable[Any]", held) if isinstance(held, (list, tuple, set, frozenset)) else [held]:
            if isinstance(each, (str, IssuedToken)):
                raise _NoDigest(
                    "a parameter holds the text of a token, which would be sent as it is: compare with the text "
                    "itself, without literal() and bindparam()"
                )


class TokenType(TypeDecorator[bytes]):
    """A column of digests of tokens: ``BINARY(32)`` on MySQL and MariaDB, ``BYTEA`` on PostgreSQL, ``BLOB`` on SQLite.

    ``==``, ``!=`` and ``in_`` take the text of a token, or an issued one, and compare its digest; ``in_`` takes any
    iterable of them. A text that is no token, or that none of the keys signed, matches no row. What is written is a
    digest: ``issued.digest``.

    That is for the column itself. A text on its own inside of an expression, as in ``case()``, ``coalesce()`` or on the
    left as ``literal(text)``, is sent as it is: give ``token.digest(text)`` there.
    """

    impl = LargeBinary
    cache_ok = True  # a kind of token is itself and no other
    comparator_factory = _Comparator  # pyright: ignore[reportAssignmentType]  # a property in its base

    def __init__(self, token: Token) -> None:
        if not isinstance(token, Token):
            raise ConfigurationError(f"{concealed(token)} is no kind of token; expected Token(prefix='reset')")
        self.token = token
        super().__init__(DIGEST_BYTES)

    @property
    def python_type(self) -> type[bytes]:
        return bytes

    def digest(self, value: Any) -> Any:
        """The digest of *value*, a text; an issued token's; anything else as it is."""
        if isinstance(value, str):
            return self.token.digest(value)
        return value.digest if isinstance(value, IssuedToken) else value

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(traits_for(dialect).integer_type(8 * DIGEST_BYTES))

    def process_bind_param(self, value: Any, dialect: Dialect) -> bytes | None:
        if value is None or (isinstance(value, bytes) and len(value) == DIGEST_BYTES):
            return value
        raise _NoDigest(
            f"expected the digest of a token, {DIGEST_BYTES} bytes, but got an object of type {type(value).__name__}: "
            f"store issued.digest, which issue() gives"
        )

    # SQLAlchemy's protocol names the argument, which functions need not
    def literal_processor(self, dialect: Dialect) -> Callable[[Any], str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """As SQL writes it; SQLAlchemy does not know how to write bytes."""
        literal = traits_for(dialect).literal
        return lambda value: "NULL" if value is None else literal(self.process_bind_param(value, dialect))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.token!r})"
