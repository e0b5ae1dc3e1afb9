"""Ids of 64 bits in JavaScript, whose numbers lose digits beyond 2**53: in Node, if it is installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter, ValidationError
from sqlalchemy import Engine, MetaData, create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Session

from sqlalchemy_public_id import PublicIdMixin, Snowflake
from sqlalchemy_public_id.ext.pydantic import PublicId, PublicModel
from sqlalchemy_public_id.formats.snowflake import EPOCH

ENCODINGS = pytest.mark.parametrize("encoding", Snowflake._encodings)


def declare(format: Snowflake) -> tuple[Any, Any]:
    class Base(DeclarativeBase):
        metadata = MetaData()

    class Parcel(PublicIdMixin, Base):
        __tablename__ = "parcel_of_javascript"
        __public_id__ = format

    class ParcelOut(PublicModel, model=Parcel):
        public_id: Annotated[str, PublicId(Parcel)]

    return Parcel, ParcelOut


@pytest.fixture
def through_javascript(pytestconfig: pytest.Config) -> Callable[[str], str]:
    """Return a function that returns the JSON that JavaScript makes of a JSON text."""
    node = shutil.which("node")
    if node is None:
        missing = "Node is missing: run tools/languages up"
        pytest.fail(missing) if pytestconfig.getoption("--require-all-databases") else pytest.skip(missing)
    program = "process.stdout.write(JSON.stringify(JSON.parse(require('fs').readFileSync(0, 'utf8'))))"

    def through(text: str) -> str:
        return subprocess.run([node, "-e", program], input=text, capture_output=True, text=True, check=True).stdout

    return through


@ENCODINGS
def test_answers(through_javascript: Callable[[str], str], encoding: str) -> None:
    """A response model shows Snowflakes as strings, which JavaScript returns unchanged, beyond 2**53, too."""
    format = Snowflake(1, encoding=encoding)
    Parcel, ParcelOut = declare(format)
    engine = create_engine("sqlite://")
    Parcel.metadata.create_all(engine)
    with Session(engine) as session:
        parcels = [Parcel(public_id=format.from_int(number)) for number in (2**53 + 1, 2**63 - 1, (EPOCH << 20) + 7)]
        session.add_all(parcels)
        session.commit()
        answer = "[{}]".format(",".join(ParcelOut.of(session, parcel).model_dump_json() for parcel in parcels))
        ids = [parcel.public_id for parcel in parcels]
    back = through_javascript(answer)

    assert back == answer
    assert [each.public_id for each in TypeAdapter(list[ParcelOut]).validate_json(back)] == ids
    assert [type(each["public_id"]) for each in json.loads(answer)] == [str] * 3
    assert ParcelOut.model_json_schema()["properties"]["public_id"]["type"] == "string"


def test_numbers_in_requests(through_javascript: Callable[[str], str]) -> None:
    """A Snowflake that a client sends as a number is refused, because it may have lost its last digits before."""
    _, ParcelOut = declare(Snowflake(1))
    sent = through_javascript('{"public_id": 9223372036854775807}')

    assert sent != '{"public_id":9223372036854775807}'
    for text in (sent, '{"public_id": 9223372036854775807}'):
        with pytest.raises(ValidationError, match=r"it is of type (int|float)"):
            ParcelOut.model_validate_json(text)


@pytest.mark.backend
def test_json_of_the_database(engine: Engine, create: Any, session: Session) -> None:
    """JSON that the database builds has the stored number, unless ids are stored as text, as the cookbook says."""
    for storage, kind in (("native", int), ("text", str)):
        Parcel, _ = declare(Snowflake(1, storage=storage))
        Parcel.__table__.drop(session.connection(), checkfirst=True)
        Parcel.__table__.create(session.connection())
        session.add(Parcel())
        session.flush()
        build = func.jsonb_build_object if engine.dialect.name == "postgresql" else func.json_object
        built = session.scalar(select(build("id", Parcel.public_id)))
        found = built if isinstance(built, dict) else json.loads(built)
        Parcel.__table__.drop(session.connection())
        session.commit()

        assert type(found["id"]) is kind
