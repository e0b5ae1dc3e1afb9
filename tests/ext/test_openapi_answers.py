"""What ``install(app)`` writes into the OpenAPI document of an application."""

# FastAPI reads the annotations of routes, which name what is local to a test: they must not be put off

from typing import Any

import pytest
from fastapi import FastAPI
from pydantic import BaseModel

from sqlalchemy_public_id import TypedId
from sqlalchemy_public_id.ext.fastapi import install


class NoteId(TypedId, prefix="oanote"): ...


class Login(BaseModel):
    user: str
    password: str


def test_operations_without_public_ids() -> None:
    """An operation that has nothing to do with public ids keeps the answers that FastAPI documents for it."""

    def application() -> FastAPI:
        app = FastAPI()

        @app.post("/login")
        def login(body: Login) -> None: ...

        return app

    plain, installed = application(), application()
    install(installed)

    assert plain.openapi()["paths"] == installed.openapi()["paths"]


class Text(BaseModel):
    text: str
    after: "Text | None" = None


class Note(BaseModel):
    id: NoteId
    text: str


class Notes(BaseModel):
    notes: list[Note]


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("POST", "/notes", Text, False),
        ("POST", "/notes", Note, True),
        ("POST", "/notes", Notes, True),
        ("POST", "/notes/{note_id}", Text, False),
        ("PUT", "/notes/{note_id}", Text, True),
        ("PATCH", "/notes/{note_id}", Text, False),
        ("PATCH", "/notes/{note_id}", Note, False),
    ],
)
def test_operations_that_insert(method: str, path: str, body: type[BaseModel], expected: bool) -> None:
    """A 409 is documented where a client can send the id of a new row: in the body of a POST, or in the path of a PUT;
    the path of a POST names the row around it, and a PATCH changes rows."""
    app = FastAPI()
    install(app)

    def without_id(new: body) -> None: ...  # type: ignore[valid-type]  # a parameter of this test

    def with_id(note_id: NoteId, new: body) -> None: ...  # type: ignore[valid-type]

    route: Any = with_id if "{" in path else without_id
    app.api_route(path, methods=[method])(route)

    assert ("409" in app.openapi()["paths"][path][method.lower()]["responses"]) == expected
