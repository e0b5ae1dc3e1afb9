"""Insert many objects and have all of them filled in: key, public id and defaults, on every database.

>>> from sqlalchemy_public_id import bulk
>>> users = [User(name=name) for name in ("Ada", "Grace", "Edsger")]
>>> bulk.insert(session, users)
>>> all(user.id and user.public_id for user in users)
True

More objects than fit into memory come from an iterable:

>>> bulk.insert_many(session, (User(name=f"number {number}") for number in range(10_000)), batch=2_000)
10000

On PostgreSQL the rows are sent as an array for each column, and returned with their public ids. Elsewhere they are sent
without RETURNING, and their keys are read back by public id: those of the first and the last row, if only the rows
between them fit in between, and all of them otherwise. Objects that need the unit of work (with relationships set, SQL
expressions as values, joined-table inheritance, listeners to their INSERTs) are left to it; on PostgreSQL also those
with columns of other types than strings, numbers, dates, times, booleans and UUIDs.
"""

from sqlalchemy_public_id.bulk.batches import insert_many
from sqlalchemy_public_id.bulk.objects import insert

__all__ = ["insert", "insert_many"]
