"""Problem details repeat nothing of what was sent."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from sqlalchemy_public_id import Format, InvalidPublicId, NanoId, TypedId
from sqlalchemy_public_id.ext.fastapi import install
from sqlalchemy_public_id.formats import JetifyTypeId, ObjectId, Snowflake, Ulid, Uuid4, Uuid7

SECRET = "s3cr3tT0kenBody"


class ParcelId(TypedId, prefix="fapparcel"): ...


FORMATS: list[Any] = [
    NanoId(),
    NanoId(prefix="fapa", separator="."),
    NanoId(prefix="fapb", check_digit=True),
    NanoId(prefix="fapc").accepting(NanoId(prefix="fapd", length=8)),
    Uuid7(prefix="fape"),
    Uuid7(),
    Uuid4(prefix="fapf", encoding="hyphenated"),
    JetifyTypeId("fapg"),
    Ulid(),
    Snowflake(machine_id=1),
    ObjectId(prefix="faph"),
    ParcelId.id_format,
]


def answered(check: Any, text: object) -> dict[str, Any]:
    app = FastAPI()
    install(app, problem_details=True)

    @app.post("/it")
    def it() -> None:
        check(text)

    async def asking() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return await client.post("/it", json=text)

    response = asyncio.run(asking())
    assert response.status_code == 422
    return dict(response.json())


TEMPLATES = ["{0}", "sess_{0}_x", "{0}_x", "{0}.x", "{0}-x", "a.{0}.b", "'{0}'_x", "\"{0}'_x", "{0}\n_x", "_{0}"]


@pytest.mark.parametrize("format", FORMATS, ids=repr)
def test_value_is_not_repeated(format: Format) -> None:
    """Whatever text was taken for an id, no part of it is in the answer: it may be somebody's token."""
    for template in TEMPLATES:
        answer = answered(format.validate, template.format(SECRET))

        assert SECRET not in str(answer)
        assert answer["detail"].startswith("not a public id: ")
        assert answer["detail"].endswith(f"(expected {format.expected})")


@pytest.mark.parametrize("check", [ParcelId, ParcelId.parse])
def test_typed_ids(check: Any) -> None:
    """Typed ids keep to that as well."""
    assert SECRET not in str(answered(check, f"{SECRET}_000000000000"))


def test_what_is_wrong_is_told() -> None:
    """The answer says what is wrong nevertheless."""
    format = NanoId(prefix="fapi")

    assert answered(format.validate, f"{SECRET}_x")["detail"] == (
        "not a public id: it has another prefix (expected fapi_ and 12 of 0-9 a-z)"
    )
    assert answered(format.validate, "x")["detail"].startswith("not a public id: it does not begin with 'fapi_'")
    assert answered(format.validate, "fapi_x")["detail"].startswith("not a public id: it has 6 characters")


def test_error_keeps_its_words() -> None:
    """The error itself, which the program may log, has the prefix that was found."""
    with pytest.raises(InvalidPublicId, match=f"the prefix is '{SECRET}'"):
        NanoId(prefix="fapj").validate(f"{SECRET}_x")
