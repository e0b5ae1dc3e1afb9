"""Pydantic: public ids as types of fields, and response models that no integer key gets into.

A :class:`~sqlalchemy_public_id.TypedId` is a type of field by itself, :class:`PublicId` makes one of any format, and
:class:`PublicModel` is for what goes out:

.. code-block:: python

    from typing import Annotated

    from pydantic import BaseModel
    from sqlalchemy_public_id import ConfigurationError, NanoId
    from sqlalchemy_public_id.ext.pydantic import PublicId, PublicModel

    class Wanted(BaseModel):
        coupon: Annotated[str, PublicId(NanoId(prefix="cpn"))]

    assert Wanted.model_json_schema()["properties"]["coupon"]["pattern"] == "^cpn_[0-9a-z]{12}$"

    class UserOut(PublicModel, model=User):
        public_id: Annotated[str, PublicId(User)]
        name: str

    assert UserOut.of(session, session.get(User, 1)).model_dump() == {"public_id": "izkpm55j334u", "name": "Ada"}

    try:
        class Leaky(PublicModel, model=User):
            id: int
    except ConfigurationError as error:
        assert str(error) == "Leaky.id would show user.id, an integer key of User; show public_id"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, ClassVar

from sqlalchemy.orm import RelationshipProperty, Session
from typing_extensions import Self

from sqlalchemy_public_id import references
from sqlalchemy_public_id.errors import ConfigurationError, MissingExtra, shown
from sqlalchemy_public_id.ext import _attributes, _mapped, _samples
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.typed import TypedId
from sqlalchemy_public_id.types import public_id_type

try:
    import_module("pydantic")
except ModuleNotFoundError as error:
    raise MissingExtra("pydantic", extra="pydantic") from error

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError, core_schema

from sqlalchemy_public_id.ext import _related
from sqlalchemy_public_id.ext._paths import paths_of
from sqlalchemy_public_id.pydantic_schema import core_schema_of, json_schema_of

__all__ = ["PublicId", "PublicModel"]


class PublicId:
    """The public ids of a format, a typed id or a mapped class, as a type of field: ``Annotated[str, PublicId(…)]``.

    The value is the canonical text, or a typed id where there is one. The JSON schema has pattern, lengths and an
    example. A text that is no such id is a validation error of type ``public_id``, and so is whatever is no text:
    integers are never taken for ids. Validators on its left come first: ``Annotated[str, BeforeValidator(str.strip),
    PublicId(…)]``. On what is no text, as in ``Annotated[int, PublicId(…)]``, it is a :class:`ConfigurationError`.

    :param source: a format, a :class:`TypedId` class, or a mapped class, whose public id is meant.
    :param attribute: which public id, where a mapped class has several; ``public_id`` by default.
    :raises ConfigurationError: where *source* has no public id.
    """

    def __init__(self, source: Format | type[Any], *, attribute: str | None = None) -> None:
        self.id_format: Format
        """The format of the ids."""
        self._check: Callable[[Any], str]
        if isinstance(source, Format):
            self.id_format, self._check = source, source.validate
        elif isinstance(source, type) and issubclass(source, TypedId) and hasattr(source, "id_format"):
            self.id_format, self._check = source.id_format, source
        elif _mapped.mapper_of(source) is not None:
            type_ = public_id_type(_mapped.public_id(source, attribute)[1])
            self.id_format, self._check = type_.id_format, type_.checked
        else:
            raise ConfigurationError(
                f"{shown(source)} has no public ids; expected a format such as NanoId(length=12), a TypedId class with "
                f"a prefix, or a mapped class"
            )

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        kind: object = source
        if not (isinstance(kind, type) and issubclass(kind, str)):
            raise ConfigurationError(
                f"{self!r} is a note on {shown(source)}, expected str, or a typed id; where there may be none, write "
                f"Annotated[str, PublicId(…)] | None"
            )
        before, own = handler(source), core_schema_of(self._check)
        is_plain = before["type"] == "function-plain" or before.keys() <= {"type", "metadata"}
        return own if is_plain else core_schema.chain_schema([before, own])

    def __get_pydantic_json_schema__(self, schema: object, handler: object) -> dict[str, Any]:
        return json_schema_of(self.id_format)

    def json_schema(self) -> dict[str, Any]:
        """The JSON schema of the ids, for documents that are not made by Pydantic."""
        return json_schema_of(self.id_format)

    def __repr__(self) -> str:
        return f"PublicId({self.id_format!r})"


class PublicModel(BaseModel):
    """A response model for the objects of one mapped class, which is named where it is declared: ``model=Order``.

    Reads attributes, ``public_ref()`` included, and refuses a field that would show an integer key or foreign key: by
    its own name, by an alias, through a relationship, through a synonym, composite or association proxy, in the keys of
    a dictionary, or in the expression of a hybrid or column property, unless that is a comparison or a count. A
    subclass without ``model=`` is a base or an envelope for others.

    :raises ConfigurationError: when the class is created, or when it meets its first object, where mappers have to be
        configured to tell: such a field; a field that the mapped class has no attribute for, and no default;
        ``extra="allow"``, which takes every attribute; a relationship shown by what is no ``PublicModel``: another
        model, or a type that takes any object, such as ``object``, ``InstanceOf[…]`` or an unbound type variable.
    """

    model_config = ConfigDict(from_attributes=True)

    __mapped_class__: ClassVar[type[Any] | None] = None
    __checked__: ClassVar[frozenset[type[Any]]] = frozenset()

    def __init_subclass__(cls, *, model: type[Any] | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)

    @classmethod
    def __pydantic_init_subclass__(cls, *, model: type[Any] | None = None, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if model is not None:
            if _mapped.mapper_of(model) is None:
                raise ConfigurationError(f"{cls.__name__}: model is {shown(model)}, expected a mapped class")
            cls.__mapped_class__ = model
        cls.__checked__ = frozenset()
        if cls.__mapped_class__ is not None:
            _refuse_keys(cls, cls.__mapped_class__)

    @classmethod
    def of(cls, session: Session, obj: object) -> Self:
        """The response for one object; with an ``AsyncSession``, ``await session.run_sync(OrderOut.of, order)``."""
        return cls.many(session, [obj])[0]

    @classmethod
    def many(cls, session: Session, objects: Iterable[object]) -> list[Self]:
        """The responses for *objects*, in their order. What references need is loaded for all of them at once.

        With an ``AsyncSession``, ``await session.run_sync(OrderOut.many, orders)``.
        """
        found = list(objects)
        references.load(session, found)
        return [cls.model_validate(obj) for obj in found]

    @model_validator(mode="before")
    @classmethod
    def _of_the_mapped_class(cls, source: object) -> object:
        """Let no object in that the fields were not checked for."""
        model = cls.__mapped_class__
        kind = type(source)
        if kind is dict or (model is None and _mapped.mapper_of(kind) is None):
            return source
        if model is None:
            raise ConfigurationError(
                f"{cls.__name__} does not say which mapped class it shows; "
                f"write class {cls.__name__}(PublicModel, model={kind.__name__})"
            )
        if isinstance(source, model):
            if kind not in cls.__checked__:  # which may be a subclass, whose attributes are its own
                _refuse_keys(cls, kind)
        elif _mapped.mapper_of(kind) is not None:
            facts = {"expected": model.__name__, "found": kind.__name__}
            raise PydanticCustomError("public_model", "Input should be of {expected}, not {found}", facts)
        return source


# --- inside


def _refuse_keys(cls: type[PublicModel], model: type[Any]) -> None:
    """Check the fields of *cls*; what configured mappers, or types declared below, alone tell is for the next time."""
    mapper = _mapped.mapper_of(model) or _mapped.mapper_of(cls.__mapped_class__)
    assert mapper is not None
    if cls.model_config.get("extra") == "allow":
        raise ConfigurationError(
            f'{cls.__name__} has extra="allow", which shows every attribute, keys included; name the fields'
        )
    for name, field in cls.model_fields.items():
        paths = list(paths_of(cls, name, field))
        found = [path for path in paths if _attributes.has_attribute(mapper, str(path[0]))]
        if not found and field.is_required():
            read = " or ".join(repr(path[0]) for path in paths)
            raise ConfigurationError(
                f"{cls.__name__}.{name} reads {read}, which {model.__name__} does not have; "
                f"name an attribute with validation_alias=…, or give the field a default"
            )
        for path in found:
            key = _attributes.key_behind(mapper, path)
            if key is not None:
                raise ConfigurationError(f"{cls.__name__}.{name} would show {key}; show {key.instead}")
            relationship = _attributes.relationship_behind(mapper, path)
            if relationship is not None:
                _refuse_others(cls, name, field, relationship.mapper.class_ if mapper.configured else None)
            first = str(path[0])
            dictionary = _attributes.dictionary_behind(mapper, first) if len(path) == 1 else None
            if dictionary is not None and mapper.configured and _related.shows_keys(field.annotation, PublicId):
                _refuse_dictionary(cls, name, dictionary)
            if len(path) == 1 and mapper.has_property(first):
                break  # it is always there, so that Pydantic does not go on to the next
    if mapper.configured and cls.__pydantic_complete__:
        cls.__checked__ |= {model}


def _refuse_others(cls: type[PublicModel], name: str, field: FieldInfo, target: type[Any] | None) -> None:
    """Refuse what shows related objects, of the class *target*, without being a ``PublicModel``."""
    is_free = _related.is_not_validated(field.metadata)
    what = _related.NOT_VALIDATED if is_free else _related.lets_through(field.annotation, PublicModel, target)
    if what is not None:
        raise ConfigurationError(
            f"{cls.__name__}.{name} shows related objects as {what}, which may show their keys; "
            f"make it a PublicModel, model=…"
        )


def _refuse_dictionary(cls: type[PublicModel], name: str, dictionary: RelationshipProperty[Any]) -> None:
    """Refuse the keys of a dictionary of related objects where they are integer keys, or cannot be checked."""
    try:
        key = _attributes.key_of_dictionary(dictionary)
    except _samples.Untold:
        raise ConfigurationError(
            f"{cls.__name__}.{name} shows a dictionary whose keys cannot be checked; make them public ids, of a typed "
            f"id or Annotated[str, PublicId(…)], or show a list"
        ) from None
    if key is not None:
        raise ConfigurationError(
            f"{cls.__name__}.{name} would show {key}, in the keys of a dictionary; key it by {key.instead}"
        )
