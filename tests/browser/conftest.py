"""Fixtures for a real browser, found by ``tools/chromium``, and for the helpdesk in its own process."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.web_helpdesk import Program

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def browser(pytestconfig: pytest.Config) -> Iterator[Chrome]:
    """Yield headless Chromium. Without it, tests are skipped, or fail with ``--require-all-databases``."""
    found = subprocess.run([sys.executable, ROOT / "tools/chromium", "paths"], capture_output=True, text=True)
    if found.returncode:
        missing = "no Chromium was found: run tools/chromium up"
        pytest.fail(missing) if pytestconfig.getoption("--require-all-databases") else pytest.skip(missing)
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location, driver = found.stdout.splitlines()
    for switch in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1200,1000"):
        options.add_argument(switch)
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield chrome
    chrome.quit()


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    """Yield the helpdesk with two organizations, started as its README says."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-W", "error", "-m", "examples.helpdesk", f"sqlite+aiosqlite:///{tmp_path}/desk.db"]
    with subprocess.Popen([*command, str(port)], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        until = time.monotonic() + 30
        while not listens(port) and process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        program = Program(process, dict(re.findall(r"^(\w+), of .*: (http.*)$", "".join(lines), re.MULTILINE)))
        yield program
        if process.poll() is None:
            program.end()


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
