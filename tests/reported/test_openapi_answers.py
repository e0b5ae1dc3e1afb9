"""What ``install(app)`` writes into the OpenAPI document of an application."""

from __future__ import annotations

from fastapi import FastAPI
from marks import known_defect
from pydantic import BaseModel

from sqlalchemy_public_id.ext.fastapi import install


class Login(BaseModel):
    user: str
    password: str


@known_defect("edge", "each operation with a body is documented to answer 409", raises=AssertionError)
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
