"""Listeners of mappers, attributes and sessions that generate, check and protect the ids of objects.

``mappers`` sets up a model: on first access of the attribute the id is generated, on assignment it is checked. A
session guards the engine that it begins to use.

They are installed when the first :class:`~sqlalchemy_public_id.PublicIdType` is made, never at import.
"""

from weakref import ref

from sqlalchemy.engine import Connection
from sqlalchemy.orm import Mapper, Session

from sqlalchemy_public_id import guard
from sqlalchemy_public_id.events import mappers
from sqlalchemy_public_id.guard import guarded_dialects
from sqlalchemy_public_id.orm import Listener, Listeners
from sqlalchemy_public_id.types import IdColumnType, after_type_attached


def after_begin(session: Session, transaction: object, connection: Connection) -> None:
    """Guard the engine. Runs when a session has begun a transaction on a connection, before its first statement."""
    if ref(connection.dialect) not in guarded_dialects:
        guard.install_for(connection)
        guard.warn_if_unguarded(connection.dialect)


_LISTENERS = Listeners(
    Listener(IdColumnType, "after_parent_attach", after_type_attached),
    Listener(Mapper, "before_mapper_configured", mappers.before_mapper_configured),
    Listener(Mapper, "mapper_configured", mappers.mapper_configured),
    Listener(object, "attribute_instrument", mappers.attribute_instrument, {"propagate": True}),
    Listener(Session, "after_begin", after_begin),
)


def install() -> None:
    """Install the listeners, once. Called for each :class:`~sqlalchemy_public_id.PublicIdType` that is made."""
    _LISTENERS.install()
