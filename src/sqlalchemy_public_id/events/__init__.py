"""Listeners of mappers, attributes and sessions that generate, check and protect the ids of objects.

* ``mappers``: set up a model. On first access of the attribute the id is generated, on assignment it is checked.
* ``flush``: before the INSERT an object without an id gets one; a rollback makes ids replaceable again.
* ``merges``: ``Session.merge()`` copies a generated id.

They are installed when the first column type is made, never at import.
"""

from sqlalchemy.orm import Mapper, Session

from sqlalchemy_public_id.events import flush, mappers
from sqlalchemy_public_id.orm import Listeners
from sqlalchemy_public_id.types import when_first_used

LISTENERS = Listeners(
    (Mapper, "mapper_configured", mappers.mapper_configured),
    (Session, "after_begin", flush.after_begin),
    (Session, "after_flush", flush.end_flush),
    (Session, "after_soft_rollback", flush.end_flush),
    (Session, "pending_to_transient", flush.pending_to_transient),
    (Session, "persistent_to_transient", flush.persistent_to_transient),
)

when_first_used(LISTENERS.install)
