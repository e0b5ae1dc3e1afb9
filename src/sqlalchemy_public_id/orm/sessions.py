"""The sessions that the functions of this library take."""

from __future__ import annotations

import sys

from sqlalchemy.orm import Session, scoped_session


def require_session(session: object) -> None:
    """Refuse anything but a synchronous session: a connection would execute the query as well, and return a key."""
    if not isinstance(session, (Session, scoped_session)):
        kind = type(session).__name__
        hint = "import it from sqlalchemy_public_id.asyncio" if hasattr(session, "run_sync") else "pass a Session"
        raise TypeError(f"expected a Session, not {kind}: {hint}")


def session_of(session: Session | scoped_session[Session]) -> Session:
    """Return *session*, or the one of a scoped session; raise as :func:`require_session` does."""
    require_session(session)
    return session() if isinstance(session, scoped_session) else session


def is_sharded(session: Session | scoped_session[Session]) -> bool:
    """Return True if *session* has several databases. If the module is not loaded, no session is of its class."""
    session = session_of(session)
    module = sys.modules.get("sqlalchemy.ext.horizontal_shard")
    return module is not None and isinstance(session, module.ShardedSession)
