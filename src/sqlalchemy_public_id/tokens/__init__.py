"""Tokens that grant access to their bearer, such as in a link that resets a password.

A public id identifies a row, and access to the row still has to be authorized. A token *is* the permission. Therefore,
it is longer, reveals no time, and can be recognized where it has leaked. The database stores only its digest.

>>> from sqlalchemy.orm import DeclarativeBase
>>> from sqlalchemy_public_id import PublicIdMixin, tokens
>>> RESET = tokens.Token(prefix="reset")
>>> class Base(DeclarativeBase): ...
>>> class PasswordReset(PublicIdMixin, Base):
...     __tablename__ = "password_reset"
...     token = tokens.token_column(RESET)
>>> Base.metadata.create_all(engine)
>>> issued = RESET.issue()
>>> session.add(PasswordReset(token=issued.digest))
>>> link = f"https://example.org/reset#{issued.reveal()}"
>>> tokens.get(session, PasswordReset, issued.reveal()) is not None
True
>>> tokens.get(session, PasswordReset, "reset_guessed") is None
True

``sqlalchemy_public_id.asyncio.tokens`` has :func:`get` for an ``AsyncSession``.
"""

from __future__ import annotations

import hmac
import operator
import secrets
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from sqlalchemy import BindParameter, ColumnElement, LargeBinary, inspect
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DontWrapMixin
from sqlalchemy.orm import InstanceState, MappedColumn, Mapper, Session, mapped_column
from sqlalchemy.types import TypeDecorator, TypeEngine
from typing_extensions import Unpack

from sqlalchemy_public_id.declared_options import keep_options
from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.lookup import LoadOptions, check_options, one_row
from sqlalchemy_public_id.messages import concealed, safe_repr
from sqlalchemy_public_id.orm.inspection import require_session
from sqlalchemy_public_id.tokens.token import DIGEST_BYTES, IssuedToken, Token
from sqlalchemy_public_id.unique_index import declare_unique

__all__ = ["get", "IssuedToken", "Token", "token_column", "TokenType"]

M = TypeVar("M")  # a model

_OWN = ("default", "insert_default", "nullable", "unique", "index", "primary_key")


def token_column(token: Token, *, name: str | None = None, **kwargs: Any) -> MappedColumn[bytes]:
    """Declare a column of token digests: 32 bytes, never null, with a unique index named as by ``public_id_column()``.

    :param token: the kind of tokens.
    :param name: the name of the column; by default, the name of the attribute.
    :param kwargs: passed to :func:`sqlalchemy.orm.mapped_column`.

    >>> from sqlalchemy.orm import DeclarativeBase
    >>> from sqlalchemy_public_id import PublicIdMixin
    >>> class Base(DeclarativeBase): ...
    >>> class Share(PublicIdMixin, Base):
    ...     __tablename__ = "share"
    ...     token = token_column(Token("share"))
    >>> sorted(index.name for index in Share.__table__.indexes)
    ['uq_share_public_id', 'uq_share_token']
    """
    for option in _OWN:
        if option in kwargs:
            raise ConfigurationError(
                f"token_column() sets {option} itself: tokens are issued by your program, unique and never null; "
                f"keep them in a separate table, and delete the row of a used token"
            )
    mapped: MappedColumn[bytes] = mapped_column(
        name, TokenType(token), nullable=False, unique=True, index=True, **kwargs
    )
    declare_unique(mapped.column)
    keep_options(mapped.column, "token_column()", _OWN)
    return mapped


class _NoDigest(TypeError, DontWrapMixin):
    """An error that SQLAlchemy does not wrap: a StatementError would show the parameters, maybe the text of a token."""


_OF_NO_TOKEN = secrets.token_bytes(DIGEST_BYTES)
"""The digest that replaces invalid text in comparisons. Each process draws a random one, which no row has."""


def _no_digest(value: object) -> _NoDigest:
    return _NoDigest(
        f"expected the digest of a token, {DIGEST_BYTES} bytes, but got an object of type {type(value).__name__}: "
        f"store issued.digest, and compare the column with digest(text) of its Token"
    )


class _Comparator(TypeDecorator.Comparator[bytes]):
    """Makes ``None``, the digest of invalid text, match no row. IS NULL would match rows of an outer join.

    Text is refused at once: SQLAlchemy shows the values of a statement that it cannot compile, such as with literals.
    """

    def operate(self, op: Any, *other: Any, **kwargs: Any) -> ColumnElement[Any]:
        for operand in other:
            several = isinstance(operand, (list, tuple, set, frozenset))
            for value in cast("Iterable[Any]", operand) if several else [operand]:
                given: Any = cast("Any", value).effective_value if isinstance(value, BindParameter) else value
                if isinstance(given, str):
                    raise _no_digest(given)
        if op in (operator.eq, operator.ne) and other and other[0] is None:
            other = (_OF_NO_TOKEN,)
        return super().operate(op, *other, **kwargs)


class TokenType(TypeDecorator[bytes]):
    """Column type for token digests: ``BINARY(32)`` on MySQL and MariaDB, ``BYTEA`` on PostgreSQL, ``BLOB`` on SQLite.

    Write ``issued.digest``, and compare with ``Model.token == RESET.digest(text)``, which matches no row if the text is
    not a token. The text itself raises :class:`TypeError` instead of being sent.
    """

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = LargeBinary
    cache_ok: bool | None = True  # a Token is hashable by its identity
    is_of_tokens: bool = True
    """Errors about ids of a model with this column do not show them, because they may be tokens."""
    comparator_factory = _Comparator  # pyright: ignore[reportAssignmentType]  # a property in its base

    def __init__(self, token: Token) -> None:
        if not isinstance(token, Token):
            raise ConfigurationError(f"{concealed(token)} is not a Token; expected one such as Token(prefix='reset')")
        self.token = token
        super().__init__(DIGEST_BYTES)

    @property
    def python_type(self) -> type[bytes]:
        return bytes

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(traits_for(dialect).integer_type(8 * DIGEST_BYTES))

    def process_bind_param(self, value: Any, dialect: Dialect) -> bytes | None:
        if value is None or (isinstance(value, bytes) and len(value) == DIGEST_BYTES):
            return value
        raise _no_digest(value)

    # SQLAlchemy's protocol names the argument, which a plain Callable does not
    def literal_processor(self, dialect: Dialect) -> Callable[[Any], str]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Render a digest as SQL; SQLAlchemy has no literals for bytes.

        Anything else becomes NULL, which the column refuses, because SQLAlchemy puts the value into the error for a
        literal that cannot be rendered.
        """
        literal = traits_for(dialect).literal

        def render(value: Any) -> str:
            try:
                return literal(self.process_bind_param(value, dialect))
            except _NoDigest:
                return "NULL"

        return render

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.token!r})"


# --- look up


def get(
    session: Session, model: type[M], text: object, *, attribute: str | None = None, **load: Unpack[LoadOptions]
) -> M | None:
    """Return the row of *model* that has this token, or ``None``.

    For text that is not a token, or is mistyped, no query is sent. An expired token finds its row, unless you pass a
    condition: ``where=Download.expires_at > now``.

    :param text: the text that was received; any object is accepted.
    :param attribute: the name of the token column, if a model has several; ``token`` by default.
    :param load: as with :func:`sqlalchemy_public_id.lookup.get`: ``where``, ``options``, ``with_for_update`` and so on.
    """
    require_session(session)
    check_options("get", load)
    key, digest = column_and_digest(text, model, attribute)
    del text  # error reports show local variables, and what follows may fail
    return None if digest is None else find(session, model, key, digest, **load)


def column_and_digest(text: object, model: type[Any], attribute: str | None) -> tuple[str, bytes | None]:
    """Return the name of the token column of *model*, and the digest of *text* if it is a token."""
    mapper = cast("Mapper[Any] | InstanceState[Any] | None", inspect(model, raiseerr=False))
    if not isinstance(mapper, Mapper):
        what = safe_repr(model) if isinstance(model, type) else concealed(model)
        raise ConfigurationError(f"{what} is not a mapped class")
    types = {prop.key: prop.columns[0].type for prop in mapper.column_attrs}
    tokens = {key: type_.token for key, type_ in types.items() if isinstance(type_, TokenType)}
    if not tokens:
        raise ConfigurationError(f"{model.__name__} has no token; add a token_column() to it")
    if attribute is None:
        attribute = next(iter(tokens)) if len(tokens) == 1 else "token"
        if attribute not in tokens:
            raise ConfigurationError(
                f"{model.__name__} has several tokens; name one of {', '.join(tokens)} with attribute=…"
            )
    if not isinstance(attribute, str) or attribute not in tokens:
        raise ConfigurationError(
            f"attribute is {concealed(attribute)}, expected the name of a token of {model.__name__}: "
            f"{', '.join(map(repr, tokens))}"
        )
    return attribute, tokens[attribute].digest(text)


def find(session: Session, model: type[M], key: str, digest: bytes, **load: Unpack[LoadOptions]) -> M | None:
    """Return the row of *model* with this *digest*."""
    # The time that the index takes may depend on the digest, but the first bytes of a digest cannot be chosen.
    row = one_row(session, model, getattr(model, key) == digest, **load)
    if row is None or not hmac.compare_digest(getattr(row, key), digest):
        return None
    return row
