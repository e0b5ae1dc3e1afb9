"""SQLModel: base classes for tables with an integer key and a public id.

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

In response models, declare the id as in any Pydantic model: ``public_id: Annotated[str, PublicId(Gadget)]`` with
:class:`sqlalchemy_public_id.ext.pydantic.PublicId`, or use a typed id.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, cast

from sqlalchemy import Integer
from sqlalchemy.orm.attributes import del_attribute, instance_state, set_attribute
from typing_extensions import Self

from sqlalchemy_public_id.declare import bigint_key, declared_settings, one_format, public_id_column
from sqlalchemy_public_id.errors import ConfigurationError, PublicIdWarning, require
from sqlalchemy_public_id.ext import _mapped
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.orm.inspection import MIXED_IN
from sqlalchemy_public_id.references.reference import Declared, UnresolvedKey
from sqlalchemy_public_id.typed import TypedId

with require("sqlmodel"):
    from pydantic import BaseModel, ConfigDict
    from sqlmodel import Field, SQLModel
    from sqlmodel.main import get_column_from_field  # pyright: ignore[reportUnknownVariableType]  # of a bare Column

from sqlalchemy_public_id.ext.pydantic import PublicId

__all__ = ["PublicIdColumnSQLModel", "PublicIdSQLModel"]


class PublicIdColumnSQLModel(SQLModel):
    """Add the field and column ``public_id`` to a table that has its own key.

    Set ``__public_id__`` to a format or a :class:`TypedId` class. Alternatively, declare the field as
    ``public_id: GadgetId = Field(default=None)``, so that type checkers see its type instead of ``Any``.

    The id of a new object is generated when you first read it, or by its INSERT. Until then, ``model_dump()`` leaves it
    out. An id that you assign is validated, and raises :class:`~sqlalchemy_public_id.InvalidPublicId` if it is
    malformed. The id of a stored object cannot change.

    Declare a ``public_ref()`` without an annotation: ``maker_public_id = public_ref("maker")``. It is not a Pydantic
    field, but you can assign it and pass it to the constructor, ``model_validate`` and ``sqlmodel_update``.
    """

    model_config: ClassVar[Any] = cast("Any", ConfigDict(ignored_types=(Declared,)))

    __public_id__: ClassVar[Format | type[TypedId] | None] = None
    __public_id_unique_with__: ClassVar[Sequence[str]] = ()

    if TYPE_CHECKING:
        public_id: Any = Field(default=None)  # with another type, no subclass could declare a typed id
    else:
        public_id: str = Field(default=None)

    def __class_getitem__(cls, item: Any) -> NoReturn:
        name = getattr(item, "__name__", safe_repr(item))
        raise ConfigurationError(f"write {cls.__name__}, and declare public_id: {name} = Field(default=None)")

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
        super().__pydantic_init_subclass__(**kwargs)
        if "__abstract__" in vars(cls):
            return
        type_ = cls.model_fields["public_id"].annotation
        typed = type_ if isinstance(type_, type) and issubclass(type_, TypedId) else None
        declared = one_format(cls, typed, "field")
        own: dict[str, Any] = {}  # new columns for each table: SQLModel would share those of a base
        if issubclass(cls, PublicIdSQLModel):
            _check_own_key(cls)
            own["id"] = Field(default=None, sa_column=bigint_key(info={MIXED_IN: True}).column, exclude=True)
        column = public_id_column(declared, **declared_settings(cls)).column
        own["public_id"] = Field(default=None, sa_column=column)
        own["public_id"].metadata.append(PublicId(declared))
        fields, rest = cls.model_fields, dict(cls.model_fields)
        for name, field in own.items():
            annotation = rest.pop(name).annotation
            # never None in a response: a stored object has its id
            field.annotation = str if name == "public_id" and not isinstance(annotation, type) else annotation
        # columns are in the order of the fields: key and public id come first
        fields.clear()
        fields.update({**own, **rest})
        cls.model_rebuild(force=True)

    def __init__(self, /, **data: Any) -> None:
        super().__init__(**data)
        _assign_references(self, data)

    def __setattr__(self, name: str, value: Any) -> None:
        is_instrumented = "_sa_instance_state" in self.__dict__
        if name == "public_id" and value is None and is_instrumented and instance_state(self).key is None:
            # SQLModel's constructor assigns None to a field without a value. Without any value, the id is generated
            # when the attribute is read, or by the INSERT.
            if name in self.__dict__:
                del_attribute(self, name)
        elif (name == "public_id" or isinstance(value, UnresolvedKey)) and is_instrumented:
            # SQLModel would also write the plain value into __dict__, over the generated or typed id
            set_attribute(self, name, value)
            self.__pydantic_fields_set__.add(name)
        elif name not in type(self).model_fields and name in _reference_names(type(self)):
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    @classmethod
    def model_validate(cls, obj: Any, *, update: dict[str, Any] | None = None, **options: Any) -> Self:
        """Build an object as SQLModel does, and assign the references in *obj* and *update*."""
        instance = super().model_validate(obj, update=update, **options)
        _assign_references(instance, {**_references_in(obj, _reference_names(cls)), **(update or {})})
        return instance

    def sqlmodel_update(self, obj: dict[str, Any] | BaseModel, *, update: dict[str, Any] | None = None) -> Self:
        """Update the fields as SQLModel does, and assign the references in *obj* and *update*."""
        super().sqlmodel_update(obj, update=update)  # from a model, it assigns all fields, references included
        _assign_references(self, {**(obj if isinstance(obj, dict) else {}), **(update or {})})
        return self


class PublicIdSQLModel(PublicIdColumnSQLModel):
    """Add an integer key ``id`` and the field ``public_id`` to a table that has no key of its own.

    ``model_dump`` and FastAPI leave the key out of their output. The key is a BIGINT. Declare foreign keys with
    ``NullType``, so that they get its type: ``maker_id: int = Field(foreign_key="maker.id", sa_type=NullType)``.
    """

    __abstract__ = True

    id: int | None = Field(default=None, exclude=True)


def _check_own_key(cls: type[PublicIdSQLModel]) -> None:
    """Warn of an integer key ``id`` of the model's own, which the key of the mixin replaces; refuse any other one.

    A field without a key or a default is an annotation, such as ``id: int``.

    :raises ConfigurationError: if the field has a default, or is not an integer.
    """
    if hasattr(cls, "__table__"):  # the subclass of a table is not a table of its own
        return
    column = cast("Any", get_column_from_field)(cls.model_fields["id"])
    if MIXED_IN in column.info:  # inherited from another model with the mixin
        return
    text = (
        f"{cls.__name__} has a key of its own, id, and PublicIdSQLModel adds another one, a BIGINT; leave id out, or "
        f"use PublicIdColumnSQLModel to keep it"
    )
    if column.default is not None or not isinstance(column.type, Integer):
        raise ConfigurationError(text)
    if column.primary_key:
        warnings.warn(text, PublicIdWarning, stacklevel=2)


def _reference_names(cls: type[Any]) -> set[str]:
    mapper = _mapped.mapper_of(cls)
    descriptors = () if mapper is None else mapper.all_orm_descriptors.items()
    return {str(name) for name, descriptor in descriptors if isinstance(descriptor, Declared)}


def _assign_references(instance: PublicIdColumnSQLModel, values: Mapping[str, Any]) -> None:
    # SQLModel ignores them: they are not fields
    for name in _reference_names(type(instance)) & values.keys():
        setattr(instance, name, values[name])


def _references_in(obj: Any, names: Iterable[str]) -> dict[str, Any]:
    if isinstance(obj, dict):
        return {name: obj[name] for name in names if name in obj}
    if _mapped.mapper_of(obj.__class__) is not None:
        return {}  # an object of a table passes on its foreign keys, which are fields
    fields_set = obj.model_fields_set if isinstance(obj, BaseModel) else names
    return {name: getattr(obj, name) for name in names if name in fields_set and hasattr(obj, name)}
