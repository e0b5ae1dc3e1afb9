""":mod:`sqlalchemy_public_id.lookup` for an ``AsyncSession``."""

from sqlalchemy_public_id import lookup
from sqlalchemy_public_id.asyncio._awaited import awaited

__all__ = ["get", "get_many", "get_one", "keys_of", "page", "public_ids_of", "resolve"]

get = awaited(lookup.get)
get_one = awaited(lookup.get_one)
resolve = awaited(lookup.resolve)
get_many = awaited(lookup.get_many)
keys_of = awaited(lookup.keys_of)
public_ids_of = awaited(lookup.public_ids_of)
page = awaited(lookup.page)
