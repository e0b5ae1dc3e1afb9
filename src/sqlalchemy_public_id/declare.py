"""Declare the two identifiers of a model: an internal key, and a public id.

>>> from sqlalchemy import String
>>> from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
>>> from sqlalchemy_public_id import PublicIdMixin
>>> class Base(DeclarativeBase): ...
>>> class User(PublicIdMixin, Base):
...     __tablename__ = "user"
...     name: Mapped[str] = mapped_column(String(255))
>>> [column.name for column in User.__table__.columns]
['id', 'public_id', 'name']

``__public_id__`` sets the format of a model's ids, or a :class:`~sqlalchemy_public_id.TypedId` class.
``__public_id_unique_with__`` names the columns with which the ids are unique, where they are not unique alone.
``__public_id_sql_type__ = "TEXT"`` declares a column without a length; all models of a base inherit it from the base.
``PublicIdMixin[CustomerId]`` also sets a typed id, and declares the attribute's type for mypy and pyright.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, ForwardRef, Generic, cast, get_args, get_origin, overload

from sqlalchemy import Identity, Table
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.orm import (
    InstrumentedAttribute,
    Mapped,
    MappedAsDataclass,
    MappedColumn,
    Mapper,
    Session,
    declared_attr,
    mapped_column,
)
from typing_extensions import TypeVar

from sqlalchemy_public_id import guard, unique_index
from sqlalchemy_public_id.columns import MAX_RETRIES, is_copy, set_max_retries
from sqlalchemy_public_id.declared_options import keep_options
from sqlalchemy_public_id.dialects import before_create
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format, NanoId
from sqlalchemy_public_id.guard import drawing
from sqlalchemy_public_id.guard.default import IdDefault
from sqlalchemy_public_id.key_types import BigIntegerKey
from sqlalchemy_public_id.listeners import Listener, Listeners
from sqlalchemy_public_id.orm import mappers
from sqlalchemy_public_id.orm.inspection import BIGINT_KEY, MIXED_IN
from sqlalchemy_public_id.stored_ids import SqlType, refuse_conversions
from sqlalchemy_public_id.typed import TypedId
from sqlalchemy_public_id.types import IdColumnType

__all__ = [
    "PublicIdColumnMixin",
    "PublicIdColumnMixinDataclass",
    "PublicIdMixin",
    "PublicIdMixinDataclass",
    "PublicIdType",
    "bigint_key",
    "public_id_column",
]

IdT = TypeVar("IdT", bound=str, default=str)
TypedIdT = TypeVar("TypedIdT", bound=TypedId)

_OWN = ("default", "insert_default", "nullable", "unique", "index", "primary_key")
_CHANGING = ("onupdate", "server_onupdate")
_OPTIONS = {
    name for name, option in inspect.signature(mapped_column).parameters.items() if option.kind is option.KEYWORD_ONLY
}.difference(_OWN, _CHANGING, {"name", "type_"})


def bigint_key(**kwargs: Any) -> MappedColumn[int]:
    """Declare a 64-bit autoincrementing primary key, which stays inside the database.

    The column is a ``BIGINT`` identity on PostgreSQL, ``BIGINT UNSIGNED AUTO_INCREMENT`` on MySQL and MariaDB, and
    ``INTEGER`` on SQLite, the only type that autoincrements there. Dialects derived from these use their parent's type.
    Keyword arguments are passed to :func:`sqlalchemy.orm.mapped_column`.
    """
    kwargs["info"] = {**(kwargs.get("info") or {}), BIGINT_KEY: True}
    mapped: MappedColumn[int] = mapped_column(
        BigIntegerKey(), Identity(), primary_key=True, autoincrement=True, **kwargs
    )
    keep_options(mapped.column, "bigint_key()", ["server_default"])
    return mapped


_LISTENERS = Listeners(
    Listener(Table, "before_create", before_create),
    Listener(Mapper, "after_mapper_constructed", mappers.after_mapper_constructed),
    Listener(Mapper, "before_mapper_configured", mappers.before_mapper_configured),
    Listener(Mapper, "mapper_configured", mappers.mapper_configured),
    Listener(object, "attribute_instrument", mappers.attribute_instrument, {"propagate": True}),
    Listener(Session, "after_begin", guard.after_begin),
    Listener(Session, "after_flush", drawing.end_flush),
    Listener(Session, "after_soft_rollback", drawing.end_flush),
)
"""Installed by the first :class:`PublicIdType` of the process, never at import."""


class PublicIdType(IdColumnType):
    """Column type for the public ids of one *format*: a :class:`Format`, or a :class:`TypedId` class.

    Ids are stored as text that is compared byte by byte: ``VARCHAR(n)``, with ``COLLATE "C"`` on PostgreSQL and
    ``CHARACTER SET ascii COLLATE ascii_bin`` on MySQL and MariaDB. Formats that encode a number store the number,
    unless they have ``storage="text"``: 128 bits as ``UUID`` on PostgreSQL and ``BINARY(16)`` elsewhere, 96 and
    160 bits as ``BYTEA`` and ``BINARY`` (``BLOB`` on SQLite, ``RAW`` on Oracle), 64 bits as ``BIGINT``. Writing a
    malformed id raises :class:`~sqlalchemy_public_id.InvalidPublicId`. Stored ids are returned unchecked, as strings
    with their prefix or as typed ids. Comparing the column with a malformed string matches no row.

    With ``sql_type="TEXT"``, text is stored in a column of this type, which PostgreSQL and SQLite index like a
    ``VARCHAR``. Where an index of ``TEXT`` needs a length, as on MySQL and MariaDB, the type raises
    :class:`~sqlalchemy_public_id.ConfigurationError` once a statement is compiled.

    Subclasses must set ``cache_ok = True`` themselves, as with every :class:`~sqlalchemy.types.TypeDecorator`.

    The first instance in a process installs listeners on mappers and sessions, which generate ids before the flush,
    validate and protect them, and guard engines against collisions.

    >>> from sqlalchemy import Column, MetaData, Table
    >>> from sqlalchemy_public_id import NanoId, PublicIdType
    >>> format = NanoId(prefix="cus")
    >>> customer = Table(
    ...     "customer",
    ...     MetaData(),
    ...     Column("public_id", PublicIdType(format), default=format.generate, unique=True, nullable=False),
    ... )
    """

    cache_ok: bool | None = True  # SQLAlchemy requires it of each class

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        refuse_conversions(cls, PublicIdType)

    def __init__(self, format: Format | type[TypedId], sql_type: SqlType | None = None) -> None:
        super().__init__(format, sql_type)
        unique_index.LISTENERS.install()
        _LISTENERS.install()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a type that was pickled or copied, which may be the first one of this process."""
        super().__setstate__(state)
        unique_index.LISTENERS.install()
        _LISTENERS.install()


@overload
def public_id_column(
    format: type[TypedIdT],
    *,
    name: str | None = None,
    max_retries: int = MAX_RETRIES,
    unique_with: Sequence[str] = (),
    sql_type: SqlType | None = None,
    **kwargs: Any,
) -> MappedColumn[TypedIdT]: ...
@overload
def public_id_column(
    format: Format | None = None,
    *,
    name: str | None = None,
    max_retries: int = MAX_RETRIES,
    unique_with: Sequence[str] = (),
    sql_type: SqlType | None = None,
    **kwargs: Any,
) -> MappedColumn[str]: ...
def public_id_column(
    format: Format | type[TypedId] | None = None,
    *,
    name: str | None = None,
    max_retries: int = MAX_RETRIES,
    unique_with: Sequence[str] = (),
    sql_type: SqlType | None = None,
    **kwargs: Any,
) -> MappedColumn[Any]:
    """Declare a column of public ids, which is never null and has a unique index.

    The index is named ``uq_<table>_<column>``, or by the ``ix`` convention of ``MetaData(naming_convention=…)``.

    :param format: a format or a typed id class; ``NanoId()`` by default.
    :param name: the name of the column; by default, the name of the attribute.
    :param max_retries: how many new ids to try for a row whose id collides, before raising
        :class:`~sqlalchemy_public_id.PublicIdCollision`.
    :param unique_with: the names of other columns of the table, none of which may be NULL. Two rows may then have
        equal ids if they differ in these columns, and the unique index has them beside the id. Declare the column by
        which the database distributes the table: a partition key, a shard key or a tenant.
    :param sql_type: ``"TEXT"`` for a column without a length; see :class:`PublicIdType`.
    :param kwargs: passed to :func:`sqlalchemy.orm.mapped_column`.

    >>> from sqlalchemy.orm import DeclarativeBase, Mapped
    >>> from sqlalchemy_public_id import NanoId, bigint_key, public_id_column
    >>> class Base(DeclarativeBase): ...
    >>> class Legacy(Base):
    ...     __tablename__ = "legacy"
    ...     id: Mapped[int] = bigint_key()
    ...     slug: Mapped[str] = public_id_column(NanoId(length=10), max_retries=20)
    >>> [index.name for index in Legacy.__table__.indexes]
    ['uq_legacy_slug']
    """
    for option in kwargs:
        if option in _OWN:
            raise ConfigurationError(
                f"public_id_column() sets {option} itself: a public id is generated, unique and never null"
            )
        if option in _CHANGING:
            raise ConfigurationError(f"public_id_column() takes no {option}: the public id of a row never changes")
    unknown = kwargs.keys() - _OPTIONS
    if unknown:
        raise ConfigurationError(
            f"public_id_column() has no option {', '.join(sorted(unknown))}; expected name, max_retries, unique_with, "
            f"sql_type, or one of {', '.join(sorted(_OPTIONS))} for mapped_column(). Length and alphabet belong to the "
            f"format"
        )
    type_ = PublicIdType(NanoId() if format is None else format, sql_type)
    alone = not unique_with or None
    mapped: MappedColumn[Any] = mapped_column(
        name, type_, nullable=False, unique=alone, index=alone, insert_default=IdDefault(type_), **kwargs
    )
    set_max_retries(mapped.column, max_retries)
    unique_index.declare_unique(mapped.column, unique_with)
    keep_options(mapped.column, "public_id_column()", [*_OWN, *_CHANGING])
    return mapped


if TYPE_CHECKING:

    class _id_attribute(Generic[IdT]):  # noqa: N801  named like declared_attr
        # declared_attr with a type for assignment: with Mapped[IdT], mypy refuses Order.public_id in a query
        def __init__(self, method: Callable[..., Mapped[IdT]]) -> None: ...
        @overload
        def __get__(self, instance: None, owner: Any) -> InstrumentedAttribute[IdT]: ...
        @overload
        def __get__(self, instance: object, owner: Any) -> IdT: ...
        def __get__(self, instance: object | None, owner: Any) -> Any: ...
        def __set__(self, instance: object, value: IdT) -> None: ...

else:
    _id_attribute = declared_attr


@contextmanager
def _explaining(model: type[Any], keywords: Mapping[str, object]) -> Generator[None]:
    """Say what to write if SQLAlchemy or Python refuses the class *model*, declared with *keywords*."""
    try:
        yield
    except TypeError as error:
        given = [name for name in keywords if name in _OF_FORMATS]
        if not given:
            raise
        raise ConfigurationError(
            f"{model.__name__} takes no {', '.join(given)} after its bases; the format of its ids is an attribute of "
            f"the class: __public_id__ = NanoId({given[0]}=…)"
        ) from error
    except InvalidRequestError as error:
        mixin = next(base.__name__ for base in model.__mro__ if base.__module__ == __name__)
        if not issubclass(model, MappedAsDataclass) or mixin.endswith("Dataclass"):
            raise
        raise ConfigurationError(f"{model.__name__} is a dataclass: write {mixin}Dataclass, not {mixin}") from error


_OF_FORMATS = {"prefix", "length", "alphabet", "separator"}
"""Settings that belong to the format, and not to the class."""


class PublicIdColumnMixin(Generic[IdT]):
    """Adds the column ``public_id`` to a model that declares its own primary key."""

    __public_id__: ClassVar[Format | type[TypedId] | None] = None
    __public_id_unique_with__: ClassVar[Sequence[str]] = ()

    if not TYPE_CHECKING:  # type checkers know the keywords that the base takes

        def __init_subclass__(cls, **kwargs):
            with _explaining(cls, kwargs):
                super().__init_subclass__(**kwargs)

    @_id_attribute
    def public_id(cls) -> Mapped[IdT]:
        """The public id: unique, never null, and generated unless you set it."""
        return cast("Mapped[IdT]", _mixed_in(cls, "public_id", _declared_column, model=cls))


class PublicIdMixin(PublicIdColumnMixin[IdT]):
    """Adds a primary key ``id`` for joins and foreign keys, and a ``public_id`` for URLs and APIs."""

    if TYPE_CHECKING:
        id: Mapped[int] = mapped_column()
    else:

        @declared_attr
        def id(cls):
            return _mixed_in(cls, "id", bigint_key, sort_order=-10, info={MIXED_IN: True})


class PublicIdColumnMixinDataclass(MappedAsDataclass, Generic[IdT]):
    """:class:`PublicIdColumnMixin` for dataclasses. ``public_id`` is not an argument of the constructor."""

    __public_id__: ClassVar[Format | type[TypedId] | None] = None
    __public_id_unique_with__: ClassVar[Sequence[str]] = ()

    if not TYPE_CHECKING:

        def __init_subclass__(cls, **kwargs):
            with _explaining(cls, kwargs):
                super().__init_subclass__(**kwargs)

    @_id_attribute
    def public_id(cls) -> Mapped[IdT]:
        """The public id: unique, never null, generated."""
        return cast("Mapped[IdT]", _mixed_in(cls, "public_id", _declared_column, model=cls, init=False))


class PublicIdMixinDataclass(PublicIdColumnMixinDataclass[IdT]):
    """:class:`PublicIdMixin` for dataclasses. ``id`` and ``public_id`` are not arguments of the constructor."""

    if TYPE_CHECKING:
        id: Mapped[int] = mapped_column(init=False)  # the field of a dataclass for type checkers
    else:

        @declared_attr
        def id(cls):
            return _mixed_in(cls, "id", bigint_key, sort_order=-10, init=False, info={MIXED_IN: True})


def _mixed_in(cls: Any, name: str, make: Callable[..., MappedColumn[Any]], **kwargs: Any) -> Any:
    """Return the column *name* that a mixin adds to *cls*.

    The class of a version table has the bases of its original, and a copy of the table, which has the column.
    """
    table: Table | None = cast("dict[str, Any]", vars(cls)).get("__table__")
    if not isinstance(table, Table):
        return make(**kwargs)
    copied: Any = table.columns.get(name)
    if not any(map(is_copy, table.columns)) or copied is None:
        raise ConfigurationError(
            f"{cls.__name__} has a __table__, to which a mixin adds no columns; leave the mixin out, and write "
            f"Column(…, PublicIdType(format), default=format.generate, unique=True, nullable=False) in the table"
        )
    return copied


def _declared_column(model: Any, **kwargs: Any) -> MappedColumn[Any]:
    return public_id_column(declared_format(model), **declared_settings(model), sort_order=-9, **kwargs)


def declared_settings(model: Any) -> dict[str, Any]:
    """Return the arguments of :func:`public_id_column` that attributes of *model* set, besides the format."""
    # no mixin has the type, because its value would hide the one of a base, which is inherited after the mixin
    sql_type = getattr(model, "__public_id_sql_type__", None)
    return {"unique_with": model.__public_id_unique_with__, "sql_type": sql_type}


def declared_format(model: Any) -> Format | type[TypedId]:
    """Return ``__public_id__`` of *model*, or the typed id in ``PublicIdMixin[…]``, or the default format."""
    return one_format(model, _typed_id_of_mixin(model), "mixin")


def one_format(model: Any, typed: type[TypedId] | None, place: str) -> Format | type[TypedId]:
    """Return ``__public_id__`` of *model*, or the typed id in *place*, or the default format; refuse both together."""
    explicit = cast("Format | type[TypedId] | None", getattr(model, "__public_id__", None))
    if typed is not None and explicit is not None and explicit is not typed:
        raise ConfigurationError(
            f"{model.__name__} has two formats, {explicit!r} as __public_id__ and {typed.__name__} "
            f"as the type of its {place}; leave one out"
        )
    declared = typed or explicit
    return NanoId() if declared is None else declared


def _typed_id_of_mixin(model: Any) -> type[TypedId] | None:
    for base in model.__mro__:
        for generic in base.__dict__.get("__orig_bases__", ()):
            origin = get_origin(generic)
            if not (
                isinstance(origin, type) and issubclass(origin, (PublicIdColumnMixin, PublicIdColumnMixinDataclass))
            ):
                continue
            for argument in get_args(generic):
                if isinstance(argument, ForwardRef):
                    raise ConfigurationError(
                        f"{model.__name__}: {argument.__forward_arg__!r} is only a name; "
                        f'declare the typed id before the model, as class …(TypedId, prefix="…"), '
                        f"and write it without quotes"
                    )
                if isinstance(argument, type) and issubclass(argument, TypedId):
                    return argument
                if not isinstance(argument, (typing.TypeVar, TypeVar)) and argument is not str:
                    raise ConfigurationError(
                        f"{model.__name__}: {argument!r} is not a TypedId class; "
                        f"a format is given as __public_id__ = NanoId(...)"
                    )
    return None
