"""A real browser, found by ``scripts/chromium``, and the shop as a program of its own."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def browser(pytestconfig: pytest.Config) -> Iterator[webdriver.Chrome]:
    """Chromium, without a window. Where there is none, ``--require-all-databases`` makes that a failure."""
    found = subprocess.run([sys.executable, ROOT / "scripts/chromium", "paths"], capture_output=True, text=True)
    if found.returncode:
        missing = "no Chromium was found: run scripts/chromium up"
        pytest.fail(missing) if pytestconfig.getoption("--require-all-databases") else pytest.skip(missing)
    options = webdriver.ChromeOptions()
    options.binary_location, driver = found.stdout.splitlines()
    for switch in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1200,1000"):
        options.add_argument(switch)
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield chrome
    chrome.quit()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the shop, which is served as its README says, and ended as a user would."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-W", "error", "-m", "examples.fastapi_shop"]
    url = f"sqlite+aiosqlite:///{tmp_path_factory.mktemp('shop')}/shop.db"
    with subprocess.Popen([*command, url, str(port)], cwd=ROOT, stdout=subprocess.DEVNULL) as program:
        until = time.monotonic() + 30
        while not listens(port) and program.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
        program.send_signal(signal.SIGINT)
    assert program.returncode == 0


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
