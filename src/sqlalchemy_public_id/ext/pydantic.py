"""Pydantic: fields that hold public ids, and response models that refuse to show integer keys.

You can use a :class:`~sqlalchemy_public_id.TypedId` as the type of a field. For any other format, use
:class:`PublicId`. :class:`PublicModel` is the base of response models:

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
        message = str(error)
    assert message == (
        "Leaky.id would show user.id, an integer key of User; show public_id, "
        "with Field(validation_alias='public_id')"
    )
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar, overload

from sqlalchemy import inspect
from sqlalchemy.orm import Mapper
from typing_extensions import Self

from sqlalchemy_public_id import lookup, references
from sqlalchemy_public_id.columns import public_id_type
from sqlalchemy_public_id.errors import ConfigurationError, require
from sqlalchemy_public_id.ext import _mapped
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.orm.inspection import AnySession, session_of, unscoped
from sqlalchemy_public_id.typed import TypedId, mark_parsed

with require("pydantic"):
    from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
    from pydantic.fields import FieldInfo
    from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from sqlalchemy_public_id.ext import _fields
from sqlalchemy_public_id.ext._fields import NotAKey
from sqlalchemy_public_id.typed.schema import core_schema_of, json_schema_of

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session

    AnyAsyncSession: TypeAlias = AsyncSession | async_scoped_session[Any]

__all__ = ["NotAKey", "Page", "PublicId", "PublicModel"]

P = TypeVar("P", bound=BaseModel)  # a response model

CHECKED = "x-sqlalchemy-public-id-checked"
"""A key in the JSON schemas of models that check what they read, while :func:`marked_schemas` is active."""
_marks: ContextVar[bool] = ContextVar("marks", default=False)


@contextmanager
def marked_schemas() -> Generator[None]:
    """Mark the JSON schemas of each :class:`PublicModel` for ``lint_app``."""
    token = _marks.set(True)
    try:
        yield
    finally:
        _marks.reset(token)


class PublicId:
    """A field of public ids: ``Annotated[str, PublicId(…)]``.

    The value is the canonical string, or a typed id if *source* has one. The JSON schema has a pattern, lengths and an
    example. Any other string is a validation error of type ``public_id``, and so is a value of any other type, such as
    an integer. Validators to its left run first: ``Annotated[str, BeforeValidator(str.strip), PublicId(…)]``.

    :param source: a format, a :class:`TypedId` class, or a mapped class with a public id.
    :param attribute: the name of the public id if the mapped class has several; ``public_id`` by default.
    :raises ConfigurationError: if *source* has no public id, or if the field has a type other than ``str`` or a typed
        id, as in ``Annotated[int, PublicId(…)]``.
    """

    def __init__(self, source: Format | type[Any], *, attribute: str | None = None) -> None:
        self.id_format: Format
        """The format of the ids."""
        self._check: Callable[[Any], str]
        if isinstance(source, Format):
            self.id_format, self._check = source, source.validate
            self._name = type(source).__name__ if source.prefix is None else source.prefix
        elif isinstance(source, type) and issubclass(source, TypedId) and hasattr(source, "id_format"):
            self.id_format, self._check, self._name = source.id_format, source, source.__name__
        elif _mapped.mapper_of(source) is not None:
            type_ = public_id_type(_mapped.public_id(source, attribute)[1])
            self.id_format, self._check, self._name = type_.id_format, type_.checked, source.__name__
        else:
            raise ConfigurationError(
                f"{safe_repr(source)} has no public ids; expected a format such as NanoId(length=12), a TypedId class "
                f"with a prefix, or a mapped class"
            )

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        cls: object = source
        if not (isinstance(cls, type) and issubclass(cls, str)):
            raise ConfigurationError(
                f"{self!r} annotates {safe_repr(source)}, expected str or a typed id; if the id is optional, write "
                f"Annotated[str, PublicId(…)] | None"
            )
        inner = handler(source)
        own = core_schema_of(self._check, mark_parsed, name=self._name, field=handler.field_name)
        # a plain str, or a typed id, adds nothing to the check; validators and constraints on the left do
        is_plain = inner["type"] == "function-plain" or inner.keys() <= {"type", "metadata"}
        return own if is_plain else core_schema.chain_schema([inner, own])

    def __get_pydantic_json_schema__(self, schema: object, handler: object) -> dict[str, Any]:
        return json_schema_of(self.id_format)

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON schema of the ids, for documents that Pydantic does not write."""
        return json_schema_of(self.id_format)

    def __repr__(self) -> str:
        return f"PublicId({self.id_format!r})"


class PublicModel(BaseModel):
    """A response model for the objects of one mapped class: ``class OrderOut(PublicModel, model=Order)``.

    The model reads attributes, including ``public_ref()``, and refuses fields that would show an integer key or foreign
    key. A field that reads a column is refused if the column is a key, whether by its name, an alias, a synonym, in a
    composite or through a relationship. A field that reads anything else, such as a hybrid or a property, is refused if
    its type can hold a number, or related objects without a ``PublicModel``. Use ``Annotated[int, NotAKey()]`` to allow
    a number that is not a key.

    A subclass without ``model=`` serves as a base or as an envelope for other models, and may have numbers of its own.

    :raises ConfigurationError: for a field that is refused, for a required field without an attribute, for a field with
        the type of another model's ids, and for ``extra="allow"``, which would show every attribute. The error is
        raised when the class is created, or with its first object if the check needs configured mappers.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(from_attributes=True)

    __mapped_class__: ClassVar[type[Any] | None] = None
    __checked__: ClassVar[frozenset[type[Any]]] = frozenset()

    def __init_subclass__(cls, *, model: type[Any] | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)

    @classmethod
    def __pydantic_init_subclass__(cls, *, model: type[Any] | None = None, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if model is not None:
            if _mapped.mapper_of(model) is None:
                raise ConfigurationError(f"{cls.__name__}: model is {safe_repr(model)}, expected a mapped class")
            cls.__mapped_class__ = model
        cls.__checked__ = frozenset()
        if cls.__mapped_class__ is not None:
            _refuse_keys(cls, cls.__mapped_class__)

    @overload
    @classmethod
    def of(cls, session: AnySession, obj: object) -> Self: ...
    @overload
    @classmethod
    def of(cls, session: AnyAsyncSession, obj: object) -> Coroutine[Any, Any, Self]: ...
    @classmethod
    def of(cls, session: Any, obj: object) -> Any:
        """Return the response for one object. With an ``AsyncSession``, await the call.

        References are loaded together with those of the session's other objects, as attributes load them.
        """
        session = unscoped(session)
        if hasattr(session, "run_sync"):
            return session.run_sync(cls.of, obj)
        state = inspect(obj, raiseerr=False)
        if state is None or getattr(state, "session", None) is not session_of(session):
            references.load(session, [obj])
        return cls.model_validate(obj)

    @overload
    @classmethod
    def many(cls, session: AnySession, objects: Iterable[object]) -> list[Self]: ...
    @overload
    @classmethod
    def many(cls, session: AnyAsyncSession, objects: Iterable[object]) -> Coroutine[Any, Any, list[Self]]: ...
    @classmethod
    def many(cls, session: Any, objects: Iterable[object]) -> Any:
        """Return the responses for *objects*, in their order. The references of all objects are loaded together.

        With an ``AsyncSession``, await the call.
        """
        session = unscoped(session)
        rows: Any = list(objects) if hasattr(objects, "__iter__") else objects  # load() refuses it
        if hasattr(session, "run_sync"):
            return session.run_sync(cls.many, rows)
        references.load(session, rows)
        return [cls.model_validate(row) for row in rows]

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler(core)
        if _marks.get() and cls.__mapped_class__ is not None:
            handler.resolve_ref_schema(schema)[CHECKED] = True
        return schema

    @model_validator(mode="before")
    @classmethod
    def _of_the_mapped_class(cls, source: object) -> object:
        # refuses objects of a class that the fields were not checked against
        model = cls.__mapped_class__
        source_class = type(source)
        if source_class is dict or (model is None and _mapped.mapper_of(source_class) is None):
            return source
        if model is None:
            raise ConfigurationError(
                f"{cls.__name__} has no mapped class; "
                f"write class {cls.__name__}(PublicModel, model={source_class.__name__})"
            )
        if isinstance(source, model):
            if source_class not in cls.__checked__:  # a subclass has attributes of its own
                _refuse_keys(cls, source_class)
        elif _mapped.mapper_of(source_class) is not None:
            facts = {"expected": model.__name__, "found": source_class.__name__}
            raise PydanticCustomError("public_model", "Input should be of {expected}, not {found}", facts)
        elif isinstance(source, Coroutine):
            source.close()  # Python would warn that nobody has awaited it
            raise _not_awaited(cls.__name__, "obj")
        return source


class Page(BaseModel, Generic[P]):
    """A response with the rows of a page, and the cursors of the next and the previous page: ``Page[OrderOut]``.

    A FastAPI endpoint with the response model ``Page[OrderOut]`` can return a
    :class:`sqlalchemy_public_id.lookup.Page` directly, because it has the attributes of this class.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(from_attributes=True)

    items: list[P]
    next: str | None = None
    """The ``after`` for the next page; ``None`` on the last page."""
    previous: str | None = None
    """The ``before`` for the previous page; ``None`` on the first page."""
    total: int | None = None
    """The number of rows on all pages, or the number at which counting stopped; ``None`` if they were not counted."""

    @overload
    @classmethod
    def of(cls, session: AnySession, page: lookup.Page[Any]) -> Self: ...
    @overload
    @classmethod
    def of(cls, session: AnyAsyncSession, page: lookup.Page[Any]) -> Coroutine[Any, Any, Self]: ...
    @classmethod
    def of(cls, session: Any, page: lookup.Page[Any]) -> Any:
        """Return the response for *page*. The references of its rows are loaded together.

        With an ``AsyncSession``, await the call.
        """
        session = unscoped(session)
        if hasattr(session, "run_sync"):
            return session.run_sync(cls.of, page)
        references.load(session, page)
        return cls.model_validate(page)

    @model_validator(mode="before")
    @classmethod
    def _of_a_page(cls, source: object) -> object:
        if isinstance(source, Coroutine):
            source.close()  # Python would warn that nobody has awaited it
            raise _not_awaited("Page[…]", "page")
        return source


def _not_awaited(model: str, argument: str) -> TypeError:
    return TypeError(f"{model} is given a coroutine: write await {model}.of(session, {argument})")


def _refuse_keys(cls: type[PublicModel], model: type[Any]) -> None:
    """Check the fields of *cls* against *model*. Mark *model* as checked once mappers and types are complete."""
    mapper = _mapped.mapper_of(model) or _mapped.mapper_of(cls.__mapped_class__)
    assert mapper is not None
    if cls.model_config.get("extra") == "allow":
        raise ConfigurationError(
            f'{cls.__name__} has extra="allow", which shows every attribute, including keys; name the fields'
        )
    for name, field in cls.model_fields.items():
        choices = list(_fields.read_paths(cls, name, field))
        paths = [path for path in choices if _fields.has_attribute(mapper, str(path[0]))]
        if not paths and field.is_required():
            names = " or ".join(repr(path[0]) for path in choices)
            raise ConfigurationError(
                f"{cls.__name__}.{name} reads {names}, which {model.__name__} does not have; "
                f"name an attribute with validation_alias=…, or give the field a default"
            )
        format = next((_fields.format_at(mapper, path) for path in paths), None)
        if format is not None and _fields.refuses_all(cls, name, field, format):
            raise ConfigurationError(
                f"{cls.__name__}.{name} has the type of other ids: it would refuse each {paths[0][0]} of "
                f"{model.__name__}, which is {format.expected}"
            )
        if not field.exclude and not _fields.has_marker(field.metadata):
            for path in paths:
                _refuse_key(cls, name, field, mapper, path)
                if len(path) == 1 and mapper.has_property(str(path[0])):
                    break  # a mapped attribute always exists: Pydantic does not try the next choice
    if mapper.configured and cls.__pydantic_complete__:
        cls.__checked__ |= {model}


def _refuse_key(cls: type[PublicModel], name: str, field: FieldInfo, mapper: Mapper[Any], path: _fields.Path) -> None:
    """Refuse a field that would show a key by reading *path*, or that might."""
    try:
        owner, columns = _fields.columns_at(mapper, path) or (None, [])
    except _fields.NotConfigured:
        return  # it is checked again with the first object
    for column in columns:
        key = _mapped.key_of(owner or mapper, column)
        if key is not None:
            alias = f", with Field(validation_alias={key.instead!r})" if key.instead.isidentifier() else ""
            raise ConfigurationError(f"{cls.__name__}.{name} would show {key}; show {key.instead}{alias}")
    doubtful = None if columns else _fields.may_hold_a_key(field, cls, PublicModel)
    if doubtful is not None:
        read = ".".join(map(str, path))
        raise ConfigurationError(
            f"{cls.__name__}.{name} may show a key: {mapper.class_.__name__}.{read} is not a column, and {doubtful} "
            f"can hold one; use a PublicModel for related objects, or Annotated[…, NotAKey()] for what is never a key"
        )
