"""Authorization tokens: texts that are themselves the right to do something, such as the link that resets a password.

A public id names a row, and whoever knows it still has to be allowed to see the row. A token *is* the permission. So
it is longer, never tells when it was made, can be recognized where it leaked, and is not stored: the database has its
digest, and the text exists only where it is sent.

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

from sqlalchemy_public_id.tokens.column import TokenType, token_column
from sqlalchemy_public_id.tokens.finding import get
from sqlalchemy_public_id.tokens.token import IssuedToken, Token

__all__ = ["get", "IssuedToken", "Token", "token_column", "TokenType"]
