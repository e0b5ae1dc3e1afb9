"""The helpdesk on SQLite; ``tests/helpdesk`` runs it on the other databases too."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

from httpx import ASGITransport, AsyncClient
from sqlalchemy.ext.asyncio import create_async_engine

from examples.helpdesk.app import create_app
from examples.helpdesk.models import TicketId
from examples.helpdesk.sample import some_rows, tables
from sqlalchemy_public_id.ext.fastapi import lint_app

ROOT = Path(__file__).parents[2]


def test_a_ticket(tmp_path: Path) -> None:
    """A ticket that a client sends twice with an id it generated is created once; another tenant cannot see it."""

    async def story() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/desk.db")
        app, logins = create_app(engine), dict[str, str]()
        async with (
            tables(engine, some_rows(logins)),
            AsyncClient(transport=ASGITransport(app), base_url="http://desk") as client,
        ):
            ada, eve = ({"Authorization": f"Bearer {logins[name]}"} for name in ("Ada", "Eve"))
            me = (await client.get("/me", headers=ada)).json()["public_id"]
            ticket = {"subject": "by noon, please", "assignee_public_id": me}
            path = f"/tickets/{TicketId()}"
            sent = [(await client.put(path, json=ticket, headers=ada)).status_code for _ in range(2)]
            newest, before = (await client.get("/tickets", params={"limit": 2}, headers=ada)).json()["items"]

            assert sent == [201, 200]
            assert path == f"/tickets/{newest['public_id']}"
            assert ticket.items() <= newest.items()
            assert before["subject"].endswith("no. 30")
            assert (await client.get(path, headers=eve)).status_code == 404

    asyncio.run(story())


def test_a_copy_of_the_folder(tmp_path: Path) -> None:
    """The folder can be copied into another project, because it imports nothing from this one except the library."""
    folder = Path(__file__).parent
    shutil.copytree(folder, tmp_path / "our_desk", ignore=shutil.ignore_patterns("test_*", "__pycache__"))
    program = "import sys, our_desk.app, our_desk.sample; print('examples' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("False\n", "")


def test_a_model_that_belongs_to_nobody() -> None:
    """A new model without an organization is refused before anything can be read, each time, unless it is shared."""
    program = (
        "from sqlalchemy.orm import Mapped, configure_mappers\n"
        "from examples.helpdesk.models import Base, OfOrganization, Shared\n"
        "from sqlalchemy_public_id import bigint_key\n"
        "class Rating({}):\n"
        "    __tablename__ = 'desk_rating'\n"
        "    id: Mapped[int] = bigint_key()\n"
        "for _ in range(2):\n"
        "    try: configure_mappers()\n"
        "    except TypeError as error: print(error)\n"
    )
    refusal = "Rating must be either OfOrganization or Shared\n" * 2
    for bases, expected in {
        "Base": refusal,
        "OfOrganization, Shared, Base": refusal,
        "OfOrganization, Base": "",
        "Shared, Base": "",
    }.items():
        command = [sys.executable, "-c", program.format(bases)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == (expected, "")


def test_no_key_is_declared() -> None:
    """No response, body or parameter of the helpdesk is an integer key."""
    assert lint_app(create_app(create_async_engine("sqlite+aiosqlite://"))) == []
