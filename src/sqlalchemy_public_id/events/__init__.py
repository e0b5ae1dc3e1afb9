"""Listeners of mappers, attributes and sessions that generate, check and protect the ids of objects.

* ``mappers``: set up a model. On first access of the attribute the id is generated, on assignment it is checked.
* ``flush``: guard the engine of a session.

They are installed when the first column type is made, never at import.
"""

from sqlalchemy import event
from sqlalchemy.orm import Mapper, Session

from sqlalchemy_public_id.events import flush, mappers
from sqlalchemy_public_id.orm import Listener, Listeners
from sqlalchemy_public_id.types import when_first_used

LISTENERS = Listeners(
    Listener(Mapper, "before_mapper_configured", mappers.before_mapper_configured),
    Listener(Mapper, "mapper_configured", mappers.mapper_configured),
    Listener(Session, "after_begin", flush.after_begin),
)

when_first_used(LISTENERS.install)
# SQLAlchemy cannot remove a listener of this kind
when_first_used(lambda: event.listen(object, "attribute_instrument", mappers.attribute_instrument, propagate=True))
