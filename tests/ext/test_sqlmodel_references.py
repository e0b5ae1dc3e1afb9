"""SQLModel: foreign keys of its tables, seen as public ids."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import pytest
from fastapi import FastAPI
from pydantic import ConfigDict
from pydantic import Field as PydanticField
from sqlalchemy import Engine, MetaData
from sqlalchemy.orm import Mapped, registry
from sqlalchemy.types import NullType
from sqlmodel import Field, Relationship, Session, SQLModel, select

from sqlalchemy_public_id import ConfigurationError, Format, InvalidPublicId, NanoId, PublicIdNotFound, TypedId
from sqlalchemy_public_id.ext.fastapi import lint_app
from sqlalchemy_public_id.ext.pydantic import PublicId, PublicModel
from sqlalchemy_public_id.ext.sqlmodel import PublicIdColumnSQLModel, PublicIdSQLModel
from sqlalchemy_public_id.references import public_ref


class Own(SQLModel, registry=registry()): ...


class OrchestraId(TypedId, prefix="smrorch"): ...


class Orchestra(PublicIdSQLModel, Own, table=True):
    public_id: OrchestraId = Field(default=None)
    name: str = Field(max_length=50)


class Player(PublicIdSQLModel, Own, table=True):
    __public_id__: ClassVar[Format] = NanoId(prefix="smrplayer")
    name: str = Field(max_length=50)
    orchestra_id: int | None = Field(default=None, foreign_key="orchestra.id", sa_type=NullType)
    orchestra: Orchestra | None = Relationship()
    orchestra_public_id = public_ref("orchestra")


class Guest(PublicIdSQLModel, Own, table=True):
    """Says that Pydantic has to leave its reference alone."""

    model_config = ConfigDict(validate_assignment=True)
    orchestra_id: int | None = Field(default=None, foreign_key="orchestra.id", sa_type=NullType)
    orchestra: Orchestra | None = Relationship()
    orchestra_public_id: ClassVar[Any] = public_ref("orchestra")


class PlayerIn(SQLModel):
    name: str = "Ada"
    orchestra_public_id: OrchestraId | None = None


class PlayerOut(PublicModel, model=Player):
    public_id: Annotated[str, PublicId(Player)]
    orchestra_public_id: OrchestraId | None


@pytest.fixture
def db(create: Callable[[MetaData], None], engine: Engine) -> Any:
    """A session of SQLModel on tables with two orchestras."""
    create(Own.metadata)
    with Session(engine) as session:
        session.add_all([Orchestra(name="first"), Orchestra(name="second")])
        session.commit()
        yield session
        session.rollback()


def orchestras(db: Session) -> tuple[Orchestra, Orchestra]:
    first, second = db.exec(select(Orchestra).order_by(Orchestra.name)).all()
    return first, second


def assigned(player: Any, value: Any) -> Any:
    player.orchestra_public_id = value
    return player


WAYS: dict[str, Callable[[Any], Any]] = {
    "constructor": lambda value: Player(name="Ada", orchestra_public_id=value),
    "assignment": lambda value: assigned(Player(name="Ada"), value),
    "ClassVar, constructor": lambda value: Guest(orchestra_public_id=value),
    "ClassVar, assignment": lambda value: assigned(Guest(), value),
    "validated data": lambda value: Player.model_validate({"name": "Ada", "orchestra_public_id": value}),
    "validated model": lambda value: Player.model_validate(PlayerIn(orchestra_public_id=value)),
    "validated with an update": lambda value: Player.model_validate(PlayerIn(), update={"orchestra_public_id": value}),
    "updated from data": lambda value: Player(name="Ada").sqlmodel_update({"orchestra_public_id": value}),
    "updated from a model": lambda value: Player(name="Ada").sqlmodel_update(PlayerIn(orchestra_public_id=value)),
    "updated with more": lambda value: Player(name="Ada").sqlmodel_update({}, update={"orchestra_public_id": value}),
}


@pytest.mark.parametrize("way", WAYS)
def test_writing(db: Session, way: str) -> None:
    """In every way in which an object of SQLModel gets its values, the reference is taken; the flush finds the key."""
    first, _ = orchestras(db)
    player = WAYS[way](str(first.public_id))
    db.add(player)
    db.commit()

    assert player.orchestra_id == first.id
    assert player.orchestra is first
    assert player.orchestra_public_id == first.public_id
    assert type(player.orchestra_public_id) is OrchestraId


@pytest.mark.parametrize("way", WAYS)
def test_wrong_ids(db: Session, way: str) -> None:
    """In each of them, a malformed id is refused at once, and an unknown one by the flush: none is dropped."""
    with pytest.raises(InvalidPublicId):
        WAYS[way]("smrplayer_000000000000") if "model" not in way else WAYS["assignment"]("1")
    db.add(WAYS[way](OrchestraId("smrorch_000000000000")))
    with pytest.raises(PublicIdNotFound):
        db.flush()


@pytest.mark.backend
def test_changing(db: Session) -> None:
    """A stored row is given another one, and none; what is not said does not change."""
    first, second = orchestras(db)
    player = Player(name="Ada", orchestra_public_id=first.public_id)
    db.add(player)
    db.commit()
    player.orchestra_public_id = second.public_id
    db.commit()
    changed = player.orchestra_id
    player.sqlmodel_update({"name": "Grace"})
    db.commit()
    kept = player.orchestra_id
    player.orchestra_public_id = None
    db.commit()

    assert (changed, kept, player.orchestra_id) == (second.id, second.id, None)
    assert player.name == "Grace"


def test_reading_and_comparing(db: Session) -> None:
    """A loaded object shows the public id, and a query compares it."""
    first, second = orchestras(db)
    db.add_all([Player(name="Ada", orchestra=first), Player(name="Grace", orchestra=second), Player(name="Eve")])
    db.commit()
    ids = [first.public_id, None, second.public_id]
    db.expunge_all()
    found = db.exec(select(Player).where(Player.orchestra_public_id == ids[2])).one()

    assert (found.name, found.orchestra_public_id) == ("Grace", ids[2])
    players = db.exec(select(Player).order_by(Player.name)).all()
    assert [each.name for each in players] == ["Ada", "Eve", "Grace"]
    assert [each.orchestra_public_id for each in PlayerOut.many(db, players)] == ids


def test_copied_object(db: Session) -> None:
    """An object that is validated from another row has its foreign key; the reference is no field, and no column."""
    first, _ = orchestras(db)
    player = Player(name="Ada", orchestra_public_id=first.public_id)
    db.add(player)
    db.commit()
    copy = Guest.model_validate(player, update={"public_id": Guest().public_id, "id": None})

    assert copy.orchestra_id == first.id
    assert set(Player.model_fields) == {"id", "public_id", "name", "orchestra_id"}
    assert "orchestra_public_id" not in Player.__table__.columns


def test_other_attributes_are_as_strict_as_before() -> None:
    """What is neither a field nor a reference cannot be assigned."""
    with pytest.raises(ValueError, match="has no field"):
        Player(name="Ada").nothing = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("annotation", [str | None, OrchestraId, Mapped[OrchestraId]])
def test_annotated_reference_is_refused(annotation: Any) -> None:
    """With an annotation it would be a field of Pydantic; the error says to leave that out."""
    body = {"__annotations__": {"orchestra_public_id": annotation}, "orchestra_public_id": public_ref("orchestra")}

    with pytest.raises(ConfigurationError, match='write orchestra_public_id = public_ref\\("orchestra"\\), without'):
        type(SQLModel)("Annotated", (PublicIdSQLModel,), {"__module__": __name__, **body})


# --- what to write instead of a key


class Bare(SQLModel, registry=registry()): ...


class Hall(Bare, table=True):
    id: int | None = Field(default=None, primary_key=True)


class Seat(Bare, table=True):
    """Without one of the mixins."""

    id: int | None = Field(default=None, primary_key=True)
    hall_id: int | None = Field(default=None, foreign_key="hall.id")
    hall: Hall | None = Relationship()


class SeatOut(SQLModel):
    id: int
    hall_id: int


def test_advice() -> None:
    """On a table of SQLModel, the advice is what can be written there."""
    app = FastAPI()
    app.get("/seat", response_model=SeatOut)(lambda: None)

    assert [finding.advice for finding in lint_app(app, bases=[Seat])] == [
        "show public_id, with PublicIdColumnSQLModel on Seat",
        'show hall_public_id, which is public_ref("hall") on Seat, with PublicIdColumnSQLModel',
    ]
    with pytest.raises(ConfigurationError, match=r'public_ref\("orchestra"\) on Player$'):

        class Leaky(PublicModel, model=Player):
            number: int = PydanticField(validation_alias="orchestra_id")


def test_mixin_for_a_table_with_a_key() -> None:
    """The mixin that the advice names takes a reference as well."""

    class Fresh(SQLModel, registry=registry()): ...

    class Arena(PublicIdColumnSQLModel, Fresh, table=True):
        id: int | None = Field(default=None, primary_key=True)

    class Row(PublicIdColumnSQLModel, Fresh, table=True):
        id: int | None = Field(default=None, primary_key=True)
        arena_id: int | None = Field(default=None, foreign_key="arena.id")
        arena: Arena | None = Relationship()
        arena_public_id = public_ref("arena")

    text = Arena().public_id

    assert Row(arena_public_id=text).arena_public_id == text
