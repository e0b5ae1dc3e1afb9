"""Listeners of mappers, attributes and sessions that make, check and protect the ids of objects.

* ``flush``: before the INSERT (``before_insert``) an object without an id gets one.
* ``attributes``: on first access the id is made, on assignment it is checked.
* ``merges``: ``Session.merge()`` copies an id that the library made.
* ``sessions``: a rollback takes ids back.

They are installed when the first column type is made, never at import.
"""

from __future__ import annotations

from sqlalchemy.orm import Mapper, Session

from sqlalchemy_public_id.events import mappers, sessions
from sqlalchemy_public_id.orm.listening import Listeners
from sqlalchemy_public_id.types import when_first_used

LISTENERS = Listeners(
    (Mapper, "mapper_configured", mappers.on_mapper_configured),
    (Session, "after_begin", sessions.on_begin),
    (Session, "after_flush", sessions.on_flushed),
    (Session, "after_soft_rollback", sessions.on_rolled_back),
    (Session, "pending_to_transient", sessions.on_taken_back),
    (Session, "persistent_to_transient", sessions.on_row_taken_back),
)

when_first_used(LISTENERS.install)
