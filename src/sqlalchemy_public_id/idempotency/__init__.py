"""Inserts that can be repeated: after a timeout, send the same again.

>>> from sqlalchemy_public_id import idempotency
>>> user, created = idempotency.insert_once(session, User(public_id="8w0tnq3c5yzd", name="Grace"))
>>> again, created_again = idempotency.insert_once(session, User(public_id="8w0tnq3c5yzd", name="Grace"))
>>> created, created_again, again is user
(True, False, True)

The sender of the row makes the public id, and keeps it for the repetition. The id replaces an idempotency key, and its
unique index a table of such keys.

``sqlalchemy_public_id.asyncio.idempotency`` has the same function for an ``AsyncSession``.
"""

from __future__ import annotations

from sqlalchemy_public_id.idempotency.once import insert_once

__all__ = ["insert_once"]
