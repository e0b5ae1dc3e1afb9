"""SQLModel: tables with a key and a public id.

>>> from sqlalchemy_public_id import NanoId
>>> from sqlalchemy_public_id.ext.sqlmodel import PublicIdSQLModel
>>> class Gadget(PublicIdSQLModel, table=True):
...     __public_id__ = NanoId(prefix="gadget")
...     name: str
>>> gadget = Gadget(name="Telescope")
>>> gadget.public_id == gadget.model_dump()["public_id"]
True
>>> sorted(gadget.model_dump())
['name', 'public_id']

What goes out names its id as any other model of Pydantic does: ``public_id: Annotated[str, PublicId(Gadget)]``, with
:class:`sqlalchemy_public_id.ext.pydantic.PublicId`, or a typed id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, ClassVar, cast

from sqlalchemy.orm.attributes import set_attribute
from typing_extensions import Self

from sqlalchemy_public_id.errors import ConfigurationError, MissingExtra
from sqlalchemy_public_id.ext import _mapped
from sqlalchemy_public_id.formats import Format, NanoId
from sqlalchemy_public_id.mixins import bigint_key, public_id_column
from sqlalchemy_public_id.orm.inspection import MIXED_IN
from sqlalchemy_public_id.references.reference import Declared
from sqlalchemy_public_id.references.waiting import Waiting
from sqlalchemy_public_id.typed import TypedId

try:
    import_module("sqlmodel")
except ModuleNotFoundError as error:
    raise MissingExtra("sqlmodel", extra="sqlmodel") from error

from pydantic import BaseModel, ConfigDict
from sqlmodel import Field, SQLModel

from sqlalchemy_public_id.ext.pydantic import PublicId

__all__ = ["PublicIdColumnSQLModel", "PublicIdSQLModel"]


class PublicIdColumnSQLModel(SQLModel):
    """Adds the field and column ``public_id`` to a table that has a key already.

    ``__public_id__`` says which ids it has: a format, or a :class:`TypedId` class. A field
    ``public_id: GadgetId = Field(default=None)`` says the same, and tells it to mypy and pyright as well.

    An object has its id as soon as it is made. An id that is given is checked
    (:class:`~sqlalchemy_public_id.InvalidPublicId`), and that of a stored row cannot change.

    A ``public_ref()`` of the table is written without an annotation, ``maker_public_id = public_ref("maker")``. It is
    no field, but it is assigned like one, and the constructor, ``model_validate`` and ``sqlmodel_update`` take it.
    """

    model_config = cast("Any", ConfigDict(ignored_types=(Declared,)))

    __public_id__: ClassVar[Format | type[TypedId] | None] = None

    public_id: str = Field(default=None)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        annotations: dict[str, Any] = vars(cls).get("__annotations__", {})
        for name, value in vars(cls).items():
            if isinstance(value, Declared) and "ClassVar" not in str(annotations.get(name, ClassVar)):
                raise ConfigurationError(
                    f"{cls.__name__}.{name} has an annotation, which makes it a field of Pydantic; "
                    f'write {name} = public_ref("{value.relationship}"), without one'
                )

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Give each table columns of its own: SQLModel would share those of a base."""
        super().__pydantic_init_subclass__(**kwargs)
        if "__abstract__" in vars(cls):
            return
        declared = _declared(cls)
        own: dict[str, Any] = {}
        if issubclass(cls, PublicIdSQLModel):
            own["id"] = Field(default=None, sa_column=bigint_key(info={MIXED_IN: True}).column, exclude=True)
        own["public_id"] = Field(default=None, sa_column=public_id_column(declared).column)
        own["public_id"].metadata.append(PublicId(declared))
        fields, rest = cls.model_fields, dict(cls.model_fields)
        for name, field in own.items():
            annotation = rest.pop(name).annotation
            # an id is there as soon as the object is, whatever a table says of None
            field.annotation = str if name == "public_id" and not isinstance(annotation, type) else annotation
        fields.clear()  # the columns of a table are in the order of the fields: ours come first
        fields.update({**own, **rest})
        cls.model_rebuild(force=True)

    def __init__(self, /, **data: Any) -> None:
        super().__init__(**data)
        _refer(self, data)

    def __setattr__(self, name: str, value: Any) -> None:
        if (name == "public_id" or isinstance(value, Waiting)) and "_sa_instance_state" in self.__dict__:
            # SQLAlchemy's part alone: Pydantic's would write the value over the id that was made or typed
            set_attribute(self, name, value)
            self.__pydantic_fields_set__.add(name)
        elif name not in type(self).model_fields and name in _refs(type(self)):
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    @classmethod
    def model_validate(cls, obj: Any, *, update: dict[str, Any] | None = None, **options: Any) -> Self:
        """As SQLModel's, with the references."""
        made = super().model_validate(obj, update=update, **options)
        _refer(made, {**_given(obj, _refs(cls)), **(update or {})})
        return made

    def sqlmodel_update(self, obj: dict[str, Any] | BaseModel, *, update: dict[str, Any] | None = None) -> Self:
        """As SQLModel's, with the references."""
        super().sqlmodel_update(obj, update=update)  # which assigns all fields of a model
        _refer(self, {**(obj if isinstance(obj, dict) else {}), **(update or {})})
        return self


class PublicIdSQLModel(PublicIdColumnSQLModel):
    """Adds a key ``id`` and the field ``public_id`` to a table.

    The key is left out of what ``model_dump`` and FastAPI show. A foreign key takes its type from the key, which is a
    BIGINT: ``maker_id: int = Field(foreign_key="maker.id", sa_type=NullType)``.
    """

    __abstract__ = True

    id: int | None = Field(default=None, exclude=True)


def _declared(cls: type[PublicIdColumnSQLModel]) -> Format | type[TypedId]:
    """What *cls* says of its ids: ``__public_id__``, or the type of its field, or nothing."""
    said, type_ = cls.__public_id__, cls.model_fields["public_id"].annotation
    if isinstance(type_, type) and issubclass(type_, TypedId):
        if said is not None and said is not type_:
            raise ConfigurationError(
                f"{cls.__name__} has two formats, {said!r} as __public_id__ and {type_.__name__} as the type of its "
                f"field; leave one out"
            )
        return type_
    return NanoId() if said is None else said


def _refs(cls: type[Any]) -> set[str]:
    """The names of the references of a table."""
    mapper = _mapped.mapper_of(cls)
    found = () if mapper is None else mapper.all_orm_descriptors.items()
    return {str(name) for name, each in found if isinstance(each, Declared)}


def _refer(instance: PublicIdColumnSQLModel, values: Mapping[str, Any]) -> None:
    """Assign those of *values* that are for references, which SQLModel leaves out."""
    for name in _refs(type(instance)) & values.keys():
        setattr(instance, name, values[name])


def _given(obj: Any, names: Iterable[str]) -> dict[str, Any]:
    """What *obj* says of the references *names*. A row says it by its foreign key."""
    if isinstance(obj, dict):
        return {name: obj[name] for name in names if name in obj}
    if _mapped.mapper_of(obj.__class__) is not None:
        return {}
    said = obj.model_fields_set if isinstance(obj, BaseModel) else names
    return {name: getattr(obj, name) for name in names if name in said and hasattr(obj, name)}
