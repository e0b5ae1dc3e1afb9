"""What a newcomer passes by mistake: each error names what to pass instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from sqlalchemy_public_id import ConfigurationError, NanoId, PublicIdColumnMixin, PublicIdMixin, lookup, references


class Base(DeclarativeBase): ...


class Tag(PublicIdMixin, Base):
    __tablename__ = "tag"
    name: Mapped[str] = mapped_column(default="x")


@pytest.fixture
def session() -> Iterator[Session]:
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        yield session
    engine.dispose()


MODELS: dict[str, tuple[Callable[[], Any], str]] = {
    "name": (lambda: "Tag", "'Tag' is not a mapped class: pass the class, not its name"),
    "object": (lambda: Tag(), "but an object of one: pass Tag"),
    "attribute": (lambda: Tag.public_id, "but an attribute of one: pass Tag"),
    "table": (lambda: Tag.__table__, "but a table: pass the model that is mapped to it"),
    "nothing": (lambda: None, "None is not a mapped class; expected a model"),
    "class": (lambda: int, "<class 'int'> is not a mapped class; expected a model"),
    "column": (lambda: select(Tag.name), "is not a mapped class|is of one model"),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("function", ["get", "get_one", "get_many", "keys_of", "public_ids_of", "page"])
def test_not_a_model(session: Session, name: str, function: str) -> None:
    """Each lookup names what to pass instead of something that is no model."""
    build, message = MODELS[name]
    arguments: Any = {"limit": 3} if function == "page" else {}
    ids: tuple[Any, ...] = () if function == "page" else (["x"],) if function.endswith(("many", "of")) else ("x",)
    with pytest.raises(ConfigurationError, match=message):
        getattr(lookup, function)(session, build(), *ids, **arguments)


@pytest.mark.parametrize("where", [False, {"name": "x"}, "name = 'x'", Tag])
@pytest.mark.parametrize("public_id", ["x", "0" * 12])
def test_where_is_refused_for_every_id(session: Session, where: Any, public_id: str) -> None:
    """A condition that is none is refused for malformed ids as well, or tests with unknown ids would pass."""
    with pytest.raises(ConfigurationError, match="expected a condition such as Tag"):
        lookup.get(session, Tag, public_id, where=where)


def test_swapped_arguments(session: Session) -> None:
    """The error of a model in the place of the session names the class, not its metaclass."""
    with pytest.raises(TypeError, match="not the class Tag: pass a Session first"):
        lookup.get(Tag, session, "x")  # type: ignore[arg-type]  # the mistake
    with pytest.raises(TypeError, match="not sessionmaker: pass a Session first"):
        lookup.get(sessionmaker(), Tag, "x")  # type: ignore[arg-type]  # the mistake


def test_one_object_to_load(session: Session) -> None:
    """One object in the place of several is named."""
    with pytest.raises(TypeError, match=r"expected mapped objects, not one: write \[tag\]"):
        references.load(session, Tag())  # type: ignore[arg-type]  # the mistake


@pytest.mark.parametrize(
    ("mixins", "message"), [((), "no mixin that adds the column"), ((PublicIdColumnMixin,), "itself")]
)
def test_format_without_a_column(mixins: tuple[type[Any], ...], message: str) -> None:
    """A model with ``__public_id__`` and without the mixin is told so; one that has both the mixin and a column too."""

    class OtherBase(DeclarativeBase): ...

    columns: dict[str, Any] = {"public_id": mapped_column()} if mixins else {}
    annotations = {"id": Mapped[int]} | ({"public_id": Mapped[str]} if mixins else {})
    body = {"__tablename__": "thing", "__public_id__": NanoId(), "__annotations__": annotations}
    body |= columns | {"id": mapped_column(primary_key=True)}
    with pytest.raises(ConfigurationError, match=message):
        type("Thing", (*mixins, OtherBase), body)
        OtherBase.registry.configure()
    OtherBase.registry.dispose()
