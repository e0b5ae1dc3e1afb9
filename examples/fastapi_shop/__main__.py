"""Serve the shop: ``python -m examples.fastapi_shop [URL [PORT]]``."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn
from sqlalchemy.ext.asyncio import create_async_engine

from .app import create_app
from .sample import some_rows, tables


def main(url: str, port: int) -> None:
    """Serve the shop on the database at *url* until it is interrupted."""
    engine = create_async_engine(url)
    app = create_app(engine, lifespan=lambda _: tables(engine, some_rows()))
    print(f"The shop is at http://127.0.0.1:{port}/, its endpoints are at http://127.0.0.1:{port}/docs", flush=True)
    uvicorn.run(app, port=port, log_level="warning")


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        own = f"sqlite+aiosqlite:///{Path(folder, 'shop.db')}"
        arguments = dict(enumerate(sys.argv))
        main(arguments.get(1, own), int(arguments.get(2, 8000)))
