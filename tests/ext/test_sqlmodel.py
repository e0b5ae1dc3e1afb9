"""SQLModel: tables with a key and a public id, their serialization, and references in place of foreign keys."""

import json
from collections.abc import Callable
from itertools import count
from typing import Annotated, Any, ClassVar, cast
from uuid import UUID, uuid4

import pytest
from fastapi import FastAPI
from pydantic import ConfigDict, ValidationError
from pydantic import Field as PydanticField
from sqlalchemy import BigInteger, Column, Engine, MetaData, inspect
from sqlalchemy.orm import Mapped, registry
from sqlalchemy.types import NullType
from sqlmodel import Field, Relationship, Session, SQLModel, select
from support.command import run
from support.purchases import differing
from support.rows import agree
from support.web_requests import asked

from sqlalchemy_public_id import (
    ConfigurationError,
    Format,
    ImmutablePublicId,
    InvalidPublicId,
    NanoId,
    PublicIdNotFound,
    TypedId,
    Uuid7,
    audit,
    lookup,
    public_ref,
    testing,
)
from sqlalchemy_public_id.errors import PublicIdWarning
from sqlalchemy_public_id.ext.fastapi import lint_app
from sqlalchemy_public_id.ext.pydantic import PublicId, PublicModel
from sqlalchemy_public_id.ext.sqlmodel import PublicIdColumnSQLModel, PublicIdSQLModel
from sqlalchemy_public_id.idempotency import insert_once
from sqlalchemy_public_id.key_types import BigIntegerKey


class Own(SQLModel, registry=registry()): ...


ID = "izkpm55j334u"
NONCES = count()


class TeamId(TypedId, prefix="smteam"): ...


class CountryId(TypedId, prefix="smcountry"): ...


class Named(SQLModel):
    name: str = Field(max_length=50)


class Team(PublicIdSQLModel, Own, table=True):
    """Declares the type of its ids in the annotation."""

    public_id: TeamId = Field(default=None)
    name: str = Field(max_length=50)
    heroes: list["Hero"] = Relationship(back_populates="team")


class Hero(PublicIdSQLModel, Named, Own, table=True):
    __public_id__: ClassVar[Format] = NanoId(prefix="smhero")
    team_id: int | None = Field(default=None, foreign_key="team.id", sa_type=NullType)
    team: Team | None = Relationship(back_populates="heroes")
    team_public_id = public_ref("team")


class Event(PublicIdSQLModel, Own, table=True):
    """Its ids are stored as numbers."""

    __public_id__: ClassVar[Format] = Uuid7(prefix="smevent")


class Country(PublicIdColumnSQLModel, Own, table=True):
    """Declares its own key."""

    __public_id__: ClassVar[type[TypedId]] = CountryId
    code: str = Field(primary_key=True, max_length=2)


class Prize(PublicIdColumnSQLModel, Own, table=True):
    """Declares its own key, as in SQLModel's documentation, and has defaults."""

    id: int | None = Field(default=None, primary_key=True)
    name: str = Field(max_length=50)
    state: str = Field(default="new", max_length=50)
    nonce: int = Field(default_factory=lambda: next(NONCES))
    team_id: int | None = Field(default=None, foreign_key="team.id", sa_type=NullType)
    team: Team | None = Relationship()
    team_public_id = public_ref("team")


class PrizeIn(SQLModel):
    public_id: str
    name: str
    team_public_id: TeamId | None = None


class Guest(PublicIdSQLModel, Own, table=True):
    """Declares its reference as a ``ClassVar``, which Pydantic ignores."""

    model_config = ConfigDict(validate_assignment=True)
    team_id: int | None = Field(default=None, foreign_key="team.id", sa_type=NullType)
    team: Team | None = Relationship()
    team_public_id: ClassVar[Any] = public_ref("team")


class TeamPublic(Named):
    public_id: TeamId


@pytest.fixture
def db(create: Callable[[MetaData], None], engine: Engine) -> Any:
    """Yield a session of SQLModel on empty tables."""
    create(Own.metadata)
    with Session(engine) as session:
        yield session


@pytest.fixture
def teams(db: Session) -> tuple[Team, Team]:
    found = Team(name="first"), Team(name="second")
    db.add_all(found)
    db.commit()
    return found


# --- the table


def test_columns(engine: Engine, db: Session) -> None:
    """The key and the public id are the first columns; keys have 64 bits, and the unique index is named."""
    reflected = inspect(engine)
    columns = {column["name"]: column for column in reflected.get_columns("hero")}
    [unique] = [index["name"] for index in reflected.get_indexes("hero") if index["unique"]]

    assert list(columns) == ["id", "public_id", "name", "team_id"]
    assert unique == "uq_hero_public_id"
    assert columns["public_id"]["nullable"] is False
    assert str(columns["id"]["type"]).startswith("INTEGER" if engine.name == "sqlite" else "BIGINT")
    assert str(columns["team_id"]["type"]) == str(columns["id"]["type"])


# --- ids


def test_the_id_is_there_at_once(db: Session) -> None:
    """An object has its id before the flush, and the same id when it is loaded; the flush assigns the key."""
    hero, team, event, country = Hero(name="Deadpond"), Team(name="Z"), Event(), Country(code="fi")
    made = [thing.public_id for thing in (hero, team, event, country)]
    db.add_all([hero, team, event, country])
    db.flush()

    assert [type(id) for id in made] == [str, TeamId, str, CountryId]
    assert [thing.public_id for thing in (hero, team, event, country)] == made
    assert hero.id is not None
    db.expunge_all()
    loaded = [db.exec(select(type(thing))).one().public_id for thing in (hero, team, event, country)]
    assert [(type(id), id) for id in loaded] == [(type(id), id) for id in made]


@pytest.mark.backend
def test_collisions_are_retried(db: Session) -> None:
    """A generated id that collides is replaced by another one, which the object has, too."""
    taken = Hero(name="first")
    db.add(taken)
    db.flush()
    db.add_all(heroes := [*(Hero(name=str(number)) for number in range(3)), Hero(name="late", public_id=None)])
    with testing.collisions(Hero, taken.public_id, times=3):
        db.flush()

    agree(db, [taken, *heroes])


@pytest.mark.parametrize("make", [Team, Team.model_validate], ids=["constructor", "validated"])
def test_given_ids(db: Session, make: Any) -> None:
    """A given id is kept and has the declared type; without one, the object has an id at once."""
    given = "smteam_000000000000"
    data = [{"name": "Z", "public_id": given}, {"name": "Y"}]
    team, other = (Team(**each) if make is Team else make(each) for each in data)
    early = other.public_id
    db.add_all([team, other])
    db.flush()

    assert (team.public_id, other.public_id) == (given, early)
    assert [type(each.public_id) for each in (team, other)] == [TeamId, TeamId]
    assert team.model_fields_set == {"name", "public_id"}
    other = Team(name="X")
    other.public_id = TeamId()
    assert other.model_fields_set == {"name", "public_id"}


@pytest.mark.parametrize("given", ["1", 1, "smhero_000000000000"])
def test_malformed_ids(given: Any) -> None:
    """The constructor, assignment and validation reject a malformed id."""
    team = Team(name="Z")
    with pytest.raises(InvalidPublicId):
        Team(name="Z", public_id=given)
    with pytest.raises(InvalidPublicId):
        team.public_id = given
    with pytest.raises(ValidationError, match="Input is not a public id"):
        Team.model_validate({"name": "Z", "public_id": given})
    assert TeamId.id_format.is_valid(team.public_id)


def test_ids_of_rows_do_not_change(db: Session) -> None:
    """Neither assignment nor ``sqlmodel_update()`` can change the id of a stored row."""
    hero = Hero(name="Deadpond")
    db.add(hero)
    db.commit()
    db.refresh(hero)
    for other in ("smhero_000000000000", None):
        with pytest.raises(ImmutablePublicId):
            hero.public_id = other
    with pytest.raises(ImmutablePublicId):
        hero.sqlmodel_update({"public_id": "smhero_000000000000"})
    hero.sqlmodel_update({"name": "Dive", "public_id": hero.public_id})
    db.commit()

    assert (hero.name, hero.public_id[:7]) == ("Dive", "smhero_")


# --- serialization


def test_the_key_is_not_dumped(db: Session) -> None:
    """``model_dump()`` includes the public id once it was read, and never the key, before and after the flush."""
    hero = Hero(name="Deadpond")
    assert hero.model_dump() == {"name": "Deadpond", "team_id": None}
    assert hero.public_id
    before = hero.model_dump()
    db.add(hero)
    db.commit()
    db.refresh(hero)

    assert before == {"public_id": hero.public_id, "name": "Deadpond", "team_id": None}
    assert hero.model_dump() == json.loads(hero.model_dump_json()) == before


def test_json_schemas() -> None:
    """The JSON schema of a public id has an anchored pattern and a length; a response has no key."""
    pattern = {TeamPublic: "^smteam_[0-9a-z]{12}$", Hero: "^smhero_[0-9a-z]{12}$"}
    schemas = {model: model.model_json_schema(mode="serialization")["properties"] for model in pattern}

    assert {model: schema["public_id"]["pattern"] for model, schema in schemas.items()} == pattern
    assert {schema["public_id"]["maxLength"] for schema in schemas.values()} == {19}
    assert all("id" not in schema for schema in schemas.values())


# --- declarations


def test_default_format() -> None:
    """Without a declared format, ids are those of ``NanoId()``; tables with a common base share no columns."""

    class Fresh(SQLModel, registry=registry()): ...

    class Base(PublicIdSQLModel):
        name: str = ""

    class One(Base, Fresh, table=True): ...

    class Two(Base, Fresh, table=True): ...

    assert NanoId().is_valid(One().public_id)
    assert [list(table.columns.keys()) for table in (One.__table__, Two.__table__)] == [["id", "public_id", "name"]] * 2
    assert [index.name for index in Two.__table__.indexes] == ["uq_two_public_id"]


def test_two_formats_are_refused() -> None:
    """A model whose ``__public_id__`` and field type disagree is rejected."""
    with pytest.raises(ConfigurationError, match="has two formats"):

        class Box(PublicIdSQLModel):
            __public_id__: ClassVar[Format] = NanoId()
            public_id: TeamId = Field(default=None)


def test_a_key_of_its_own_is_refused() -> None:
    """The base class that adds a key rejects a model that declares its own, and names the one without a key."""

    class Fresh(SQLModel, registry=registry()): ...

    with pytest.raises(ConfigurationError, match=r"PublicIdSQLModel adds another one; use PublicIdColumnSQLModel$"):

        class Box(PublicIdSQLModel, Fresh, table=True):
            code: str = Field(primary_key=True)


OWN_KEYS: dict[str, tuple[Any, Any]] = {
    "UUID": (UUID, lambda: Field(primary_key=True)),
    "UUID, generated": (UUID, lambda: Field(default_factory=uuid4, primary_key=True)),
    "integer": (int | None, lambda: Field(default=None, primary_key=True)),
    "annotated": (Annotated[int, Field(primary_key=True)], lambda: None),
    "column": (int, lambda: Field(sa_column=Column(BigInteger, primary_key=True))),
    "text, not a key": (str, lambda: Field()),
    "generated, not a key": (int, lambda: Field(default_factory=count().__next__)),
}
"""The type and the value of a field, which is a key, or which the key of the mixin cannot be."""


def declared_with(place: str, mixin: Any, **members: Any) -> Any:
    """Declare a table with *mixin* and the field *members*, which stands in *place*."""

    class Fresh(SQLModel, registry=registry()): ...

    def declare(name: str, *bases: Any, **options: Any) -> Any:
        own = {"__module__": __name__, **({} if bases[1:] else members)}
        return type(SQLModel)(name, bases, own, **options)

    if place == "the model":
        return type(SQLModel)("Box", (mixin, Fresh), {"__module__": __name__, **members}, table=True)
    if place == "a base before":
        return declare("Box", declare("Keyed", SQLModel), mixin, Fresh, table=True)
    return declare("Box", declare("Keyed", mixin), Fresh, table=True)


@pytest.mark.parametrize("place", ["the model", "a base before", "a base with the mixin"])
@pytest.mark.parametrize("kind", OWN_KEYS)
def test_a_key_of_the_name_that_the_mixin_gives(kind: str, place: str) -> None:
    """A field ``id`` that the key of the mixin replaces is refused wherever it stands, or, if it is an integer key, a
    warning says so; the class without a key keeps it."""
    annotation, value = OWN_KEYS[kind]

    def declared(mixin: Any) -> Any:
        return declared_with(place, mixin, id=value(), __annotations__={"id": annotation})

    said = r"has a key of its own, id, and PublicIdSQLModel adds another one.* use PublicIdColumnSQLModel to keep it"
    if kind in ("integer", "annotated", "column"):
        with pytest.warns(PublicIdWarning, match=said):
            assert [type(key.type) for key in declared(PublicIdSQLModel).__table__.primary_key] == [BigIntegerKey]
    else:
        with pytest.raises(ConfigurationError, match=said):
            declared(PublicIdSQLModel)
    if "not a key" not in kind:
        assert [type(key.type) for key in declared(PublicIdColumnSQLModel).__table__.primary_key] != [BigIntegerKey]


@pytest.mark.parametrize("place", ["the model", "a base before", "a base with the mixin"])
@pytest.mark.parametrize("value", [{}, {"id": None}, {"id": Field(default=None)}], ids=["none", "None", "field"])
def test_an_annotation_of_the_key(value: dict[str, Any], place: str) -> None:
    """A field ``id`` that says nothing but its type may stand beside the mixin, whose key the table gets."""
    table = declared_with(place, PublicIdSQLModel, __annotations__={"id": int | None}, **value).__table__

    assert [(key.name, type(key.type)) for key in table.primary_key] == [("id", BigIntegerKey)]


def test_a_subclass_of_a_table() -> None:
    """A model that inherits from a table, as FastAPI creates them, is not a table of its own."""

    class EventOut(Event):
        name: str = ""

    assert EventOut.__table__ is Event.__table__
    assert "id" not in EventOut.model_json_schema(mode="serialization")["properties"]


# --- inserts that can be repeated


def test_insert_once(db: Session) -> None:
    """The same payload never conflicts, because defaults that the constructor adds are not compared."""
    prize, created = insert_once(db, Prize(public_id=ID, name="Oscar"))
    db.commit()
    assert created
    assert insert_once(db, Prize(public_id=ID, name="Oscar")) == (prize, False)

    prize.state, prize.team = "awarded", Team(name="Z")
    db.commit()
    repetitions = [
        Prize(public_id=ID, name="Oscar"),
        Prize.model_validate({"public_id": ID, "name": "Oscar"}),
        Prize.model_validate(PrizeIn(public_id=ID, name="Oscar")),
        Prize(public_id=ID, name="Oscar", team=prize.team),
        Prize(public_id=ID, name="Oscar", team_id=prize.team_id),
        Prize(public_id=ID, name="Oscar", team_public_id=prize.team_public_id),
    ]
    assert [insert_once(db, again) for again in repetitions] == [(prize, False)] * len(repetitions)


def test_insert_once_with_other_contents(db: Session) -> None:
    """Every value of the payload is compared, even if it equals the default or was assigned later."""
    team, other = Team(name="Z"), Team(name="Y")
    db.add_all([team, other])
    insert_once(db, Prize(public_id=ID, name="Oscar", state="awarded", team=team))
    db.commit()
    assigned = Prize(public_id=ID, name="Oscar")
    assigned.state = "lost"

    others = [
        Prize(public_id=ID, name="Emmy"),
        Prize(public_id=ID, name="Oscar", state="new"),
        assigned,
        Prize(public_id=ID, name="Oscar", team=other),
        Prize(public_id=ID, name="Oscar", team_id=other.id),
        Prize(public_id=ID, name="Oscar", team_id=None),
        Prize(public_id=ID, name="Oscar", team_public_id=other.public_id),
    ]
    expected = ["name", "state", "state", *["team_public_id"] * 4]
    assert [differing(db, each) for each in others] == [(name,) for name in expected]


@pytest.mark.parametrize("payload", [{}, {"public_id": None}], ids=["no id", "None"])
def test_insert_once_without_an_id(db: Session, payload: dict[str, Any]) -> None:
    """An id that the constructor generated is not from the sender: it is rejected until the caller sets one."""
    prize = Prize(name="Oscar", **payload)
    with pytest.raises(ConfigurationError, match="no public_id"):
        insert_once(db, prize)

    prize.public_id = ID
    assert insert_once(db, prize) == (prize, True)


def test_id_declared_as_optional() -> None:
    """A table whose id is declared as optional still has an id from the beginning."""

    class Medal(PublicIdSQLModel, registry=registry()):
        public_id: str | None = Field(default=None)

    class Gold(Medal, table=True): ...

    assert Gold().public_id
    assert Gold.model_json_schema()["properties"]["public_id"]["format"] == "public-id"


# --- references


class HeroIn(SQLModel):
    name: str = "Ada"
    team_public_id: TeamId | None = None


class HeroOut(PublicModel, model=Hero):
    public_id: Annotated[str, PublicId(Hero)]
    team_public_id: TeamId | None


def assigned(hero: Any, value: Any) -> Any:
    hero.team_public_id = value
    return hero


WAYS: dict[str, Callable[[Any], Any]] = {
    "constructor": lambda value: Hero(name="Ada", team_public_id=value),
    "assignment": lambda value: assigned(Hero(name="Ada"), value),
    "ClassVar, constructor": lambda value: Guest(team_public_id=value),
    "ClassVar, assignment": lambda value: assigned(Guest(), value),
    "validated data": lambda value: Hero.model_validate({"name": "Ada", "team_public_id": value}),
    "validated model": lambda value: Hero.model_validate(HeroIn(team_public_id=value)),
    "validated with an update": lambda value: Hero.model_validate(HeroIn(), update={"team_public_id": value}),
    "validated with another update": lambda value: Hero.model_validate(
        HeroIn(team_public_id=TeamId()), update={"team_public_id": value}
    ),
    "updated from data": lambda value: Hero(name="Ada").sqlmodel_update({"team_public_id": value}),
    "updated from a model": lambda value: Hero(name="Ada").sqlmodel_update(HeroIn(team_public_id=value)),
    "updated with more": lambda value: Hero(name="Ada").sqlmodel_update({}, update={"team_public_id": value}),
}


@pytest.mark.parametrize("way", WAYS)
def test_writing(db: Session, teams: tuple[Team, Team], way: str) -> None:
    """Every way to set the values of a SQLModel object accepts a reference, and the flush finds the key."""
    first, _ = teams
    hero = WAYS[way](str(first.public_id))
    db.add(hero)
    db.commit()

    assert hero.team_id == first.id
    assert hero.team is first
    assert hero.team_public_id == first.public_id
    assert type(hero.team_public_id) is TeamId


@pytest.mark.parametrize("way", WAYS)
def test_wrong_ids(db: Session, way: str) -> None:
    """Every way rejects a malformed id at once, and the flush rejects an unknown one; none is dropped."""
    with pytest.raises(InvalidPublicId):
        WAYS[way]("smhero_000000000000") if "model" not in way else WAYS["assignment"]("1")
    db.add(WAYS[way](TeamId("smteam_000000000000")))
    with pytest.raises(PublicIdNotFound):
        db.flush()


@pytest.mark.backend
def test_changing(db: Session, teams: tuple[Team, Team]) -> None:
    """The reference of a stored row can be changed and cleared, and other updates do not change it."""
    first, second = teams
    hero = Hero(name="Ada", team_public_id=first.public_id)
    db.add(hero)
    db.commit()
    hero.team_public_id = second.public_id
    db.commit()
    changed = hero.team_id
    hero.sqlmodel_update({"name": "Grace"})
    db.commit()
    kept = hero.team_id
    hero.team_public_id = None
    db.commit()

    assert (changed, kept, hero.team_id) == (second.id, second.id, None)
    assert hero.name == "Grace"


def test_copied_object(db: Session, teams: tuple[Team, Team]) -> None:
    """An object validated from another row gets its foreign key; the reference is neither a field nor a column."""
    first, _ = teams
    hero = Hero(name="Ada", team_public_id=first.public_id)
    db.add(hero)
    db.commit()

    assert Guest.model_validate(hero, update={"public_id": Guest().public_id, "id": None}).team_id == first.id
    assert set(Hero.model_fields) == {"id", "public_id", "name", "team_id"}
    assert "team_public_id" not in Hero.__table__.columns


def test_other_attributes_are_as_strict_as_before() -> None:
    """Only fields and references can be assigned."""
    with pytest.raises(ValueError, match="has no field"):
        Hero(name="Ada").nothing = 1


@pytest.mark.parametrize("annotation", [str | None, TeamId, Mapped[TeamId]])
def test_annotated_reference_is_refused(annotation: Any) -> None:
    """A reference with an annotation, which makes it a Pydantic field, is rejected; the error says to remove it."""
    body = {"__annotations__": {"team_public_id": annotation}, "team_public_id": public_ref("team")}

    with pytest.raises(ConfigurationError, match='write team_public_id = public_ref\\("team"\\), without'):
        type(SQLModel)("Annotated", (PublicIdSQLModel,), {"__module__": __name__, **body})


class Bare(SQLModel, registry=registry()): ...


class Hall(Bare, table=True):
    id: int | None = Field(default=None, primary_key=True)


class Seat(Bare, table=True):
    """Has none of the mixins."""

    id: int | None = Field(default=None, primary_key=True)
    hall_id: int | None = Field(default=None, foreign_key="hall.id")
    hall: Hall | None = Relationship()


class SeatOut(SQLModel):
    id: int
    hall_id: int


def test_format_in_brackets() -> None:
    """A format in brackets, as other mixins accept, raises an error that has the field to declare instead."""
    with pytest.raises(ConfigurationError, match=r"write PublicIdSQLModel, and declare public_id: TeamId = Field"):
        PublicIdSQLModel[TeamId]


def test_advice() -> None:
    """For a SQLModel table, errors and findings suggest what SQLModel accepts."""
    app = FastAPI()
    app.get("/seat", response_model=SeatOut)(lambda: None)

    assert [finding.advice for finding in lint_app(app, bases=[Seat])] == [
        "show public_id, with PublicIdColumnSQLModel on Seat",
        'show hall_public_id, which is public_ref("hall") on Seat, with PublicIdColumnSQLModel',
    ]
    with pytest.raises(ConfigurationError, match=r'public_ref\("team"\) on Hero$'):

        class Leaky(PublicModel, model=Hero):
            number: int = PydanticField(validation_alias="team_id")


class Badge(PublicIdSQLModel, Own, table=True):
    """Hides its foreign key."""

    team_id: int | None = Field(default=None, foreign_key="team.id", sa_type=NullType, exclude=True)
    team: Team | None = Relationship()
    team_public_id = public_ref("team")


def test_foreign_key_that_is_excluded(db: Session, teams: tuple[Team, Team]) -> None:
    """``exclude=True`` hides a foreign key from dumps and from a response model, but not from the table."""
    badge = Badge(team_public_id=teams[0].public_id)
    db.add(badge)
    db.commit()
    db.refresh(badge)
    app = FastAPI()
    app.get("/badge", response_model=Badge)(lambda: badge)
    (answer,) = asked(app, "/badge")

    assert badge.team_id == teams[0].id
    assert answer.json() == badge.model_dump() == {"public_id": badge.public_id}
    assert lint_app(app, bases=[Badge]) == []


# --- the base of SQLModel, whose registry has no public name


def test_id_is_resolved_in_a_base(db: Session, teams: tuple[Team, Team]) -> None:
    """``base`` may be a subclass of ``SQLModel`` with a registry, and one of its tables."""
    for base in (Own, Team, Hero):
        assert lookup.resolve(db, teams[0].public_id, base=base) is teams[0]


def test_base_with_several_registries(db: Session, teams: tuple[Team, Team]) -> None:
    """The tables of ``SQLModel`` itself may be of several registries; then a base is to be named."""
    with pytest.raises(ConfigurationError, match="whose models have several registries; pass one"):
        lookup.resolve(db, teams[0].public_id, base=SQLModel)


def test_base_on_the_command_line(db: Session, engine: Engine) -> None:
    """``--models`` may name a base of SQLModel: its ids are described, and its tables are audited."""
    described = json.loads(run("spec", f"{__name__}:Own").stdout)["public_ids"]
    url = engine.url.render_as_string(hide_password=False)
    audited = run("audit", url, "--models", f"{__name__}:Own", "--table", "team")

    assert {"Team", "Hero", "Event"} <= {each["model"] for each in described}
    assert (audited.exit_code, "team" in audited.stdout) == (0, True)


def test_base_without_models(engine: Engine, db: Session) -> None:
    """For a base without tables, and for one in place of its metadata, the error says what to do."""

    class Empty(SQLModel, registry=registry()): ...

    with pytest.raises(ConfigurationError, match="which has no models; import the modules that declare them first"):
        lookup.resolve(db, ID, base=Empty)
    with pytest.raises(ConfigurationError, match=r"models has .*Own.*, expected MetaData, such as Base.metadata"):
        audit.run(engine, models=cast("Any", Own))
