"""Show a foreign key as the public id of the row it points to.

>>> from sqlalchemy import ForeignKey
>>> from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship
>>> from sqlalchemy_public_id import NanoId, PublicIdMixin
>>> from sqlalchemy_public_id.references import public_ref
>>> class Base(DeclarativeBase): ...
>>> class Customer(PublicIdMixin, Base):
...     __tablename__ = "customer"
...     __public_id__ = NanoId(prefix="cus")
>>> class Order(PublicIdMixin, Base):
...     __tablename__ = "order"
...     customer_id = mapped_column(ForeignKey("customer.id"))
...     customer = relationship(Customer)
...     customer_public_id = public_ref("customer")
>>> Order(customer_public_id="cus_izkpm55j334u").customer_public_id
'cus_izkpm55j334u'

The column stays an integer, and nothing is stored twice. The attribute is

* **read** without loading the row: the first access fetches the ids for all objects of the session in one statement;
  :func:`load` and :func:`eager` do so ahead of time;
* **compared and sorted by** in SQL, through the indexes of both columns;
* **assigned**: the next flush looks up the keys, in one SELECT for each model, before it writes anything.

An id that belongs to no row raises :class:`~sqlalchemy_public_id.PublicIdNotFound`, with the attribute as ``field``.
"""

from sqlalchemy_public_id.references.attribute import public_ref
from sqlalchemy_public_id.references.reading import eager, load
from sqlalchemy_public_id.references.reference import PublicRef, public_refs

__all__ = ["PublicRef", "eager", "load", "public_ref", "public_refs"]
