"""The shop on SQLite; ``tests/shop`` runs it on the other databases too."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

from httpx import ASGITransport, AsyncClient
from sqlalchemy.ext.asyncio import create_async_engine

from examples.fastapi_shop.app import create_app
from examples.fastapi_shop.models import OrderId
from examples.fastapi_shop.sample import some_rows, tables
from sqlalchemy_public_id.ext.fastapi import lint_app


def test_an_order(tmp_path: Path) -> None:
    """A client generates the id of an order and sends the order twice; the page shows one order."""

    async def story() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/shop.db")
        app = ASGITransport(create_app(engine))
        async with tables(engine, some_rows()), AsyncClient(transport=app, base_url="http://shop") as shop:
            customer = (await shop.get("/customers")).json()["items"][0]["public_id"]
            order = {"customer_public_id": customer, "note": "by noon, please"}
            path = f"/orders/{OrderId()}"
            sent = [(await shop.put(path, json=order)).status_code for _ in range(2)]
            newest, before = (await shop.get("/orders", params={"limit": 2})).json()["items"]

            assert sent == [201, 200]
            assert path == f"/orders/{newest.pop('public_id')}"
            assert newest == order
            assert before["note"] == "order number 30"

    asyncio.run(story())


def test_a_copy_of_the_folder(tmp_path: Path) -> None:
    """The folder can be copied into another project: it imports nothing of this one but the library."""
    folder = Path(__file__).parent
    shutil.copytree(folder, tmp_path / "our_shop", ignore=shutil.ignore_patterns("test_*", "__pycache__"))
    program = "import sys, our_shop.app, our_shop.sample; print('examples' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("False\n", "")


def test_no_key_is_declared() -> None:
    """No response, body or parameter of the shop is an integer key."""
    assert lint_app(create_app(create_async_engine("sqlite+aiosqlite://"))) == []
