"""Serve the helpdesk: ``python -m examples.helpdesk [URL [PORT]]``."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn
from sqlalchemy.ext.asyncio import create_async_engine

from .app import create_app
from .sample import USERS, some_rows, tables


def main(url: str, port: int) -> None:
    """Serve the helpdesk on the database at *url* until it is interrupted."""
    logins: dict[str, str] = {}
    engine, rows = create_async_engine(url, hide_parameters=True), some_rows(logins)
    app = create_app(engine, lifespan=lambda _: tables(engine, rows))
    address = f"http://127.0.0.1:{port}/"
    print(f"The helpdesk is at {address}, its endpoints are at {address}docs. Sign in as one of", flush=True)
    for organization, names in USERS.items():
        print(f"{names[0]}, of {organization}: {address}#{logins[names[0]]}", flush=True)
    uvicorn.run(app, port=port, log_level="warning")


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        own = f"sqlite+aiosqlite:///{Path(folder, 'helpdesk.db')}"
        arguments = dict(enumerate(sys.argv))
        main(arguments.get(1, own), int(arguments.get(2, 8000)))
