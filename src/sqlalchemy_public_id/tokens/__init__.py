"""Authorization tokens: strings that are themselves a permission, such as the link that resets a password.

A public id names a row, and an access to the row still has to be authorized. A token *is* the permission. So it is
longer, reveals no time, can be recognized where it leaked, and is not stored: the database has its digest, and the text
exists only where it is sent.

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

from sqlalchemy_public_id.tokens.column import TokenType, get, token_column
from sqlalchemy_public_id.tokens.token import IssuedToken, Token

__all__ = ["get", "IssuedToken", "Token", "token_column", "TokenType"]
