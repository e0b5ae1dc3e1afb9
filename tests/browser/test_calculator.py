"""The calculator of the documentation in a real browser, compared with the library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.served_folders import served

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.formats import (
    BASE36,
    BASE58,
    BASE62,
    CROCKFORD32,
    URLSAFE64,
    Format,
    JetifyTypeId,
    Ksuid,
    ObjectId,
    Ulid,
    Uuid4,
    Uuid7,
)

pytest.importorskip("selenium")
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select

STATIC = Path(__file__).parents[2] / "docs/_static"
ALPHABETS = {
    "0-9 a-z": BASE36,
    "0-9 A-Z a-z": BASE62,
    "Base58": BASE58,
    "0-9 A-Z a-z _ -": URLSAFE64,
    "Crockford": CROCKFORD32,
    "0-9": "0123456789",
}


@pytest.fixture(scope="module")
def page(browser: Chrome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """Yield the browser with a page that contains only the calculator."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "calculator.js").write_bytes((STATIC / "calculator.js").read_bytes())
    script = (
        '<script type="module">import * as c from "./calculator.js"; window.calculator = c; window.ready = 1</script>'
    )
    (folder / "index.html").write_text(f'<!doctype html><meta charset="utf-8"><div id="calculator"></div>{script}')
    with served(folder) as address:
        browser.get(address)
        while not browser.execute_script("return window.ready"):
            pass
        yield browser


def call(page: Chrome, function: str, *arguments: Any) -> Any:
    return page.execute_script(f"return calculator.{function}(...arguments)", *arguments)


@pytest.mark.parametrize("name", ALPHABETS)
def test_alphabets(page: Chrome, name: str) -> None:
    """The alphabets are those of the library."""
    size = len(ALPHABETS[name])
    Select(page.find_element(By.NAME, "alphabet")).select_by_visible_text(name)
    rows = page.find_element(By.CSS_SELECTOR, ".result").text

    assert f"random bits {NanoId(length=12, alphabet=ALPHABETS[name]).entropy_bits:.1f}" in rows
    assert size == len(set(ALPHABETS[name]))


@pytest.mark.parametrize("length", [6, 8, 12, 16, 21])
@pytest.mark.parametrize("alphabet", [BASE36, URLSAFE64])
def test_arithmetic(page: Chrome, alphabet: str, length: int) -> None:
    """Numbers of ids and probabilities differ from the library's exact values by at most one part in a thousand."""
    budget = NanoId(length=length, alphabet=alphabet).budget()

    ids = [call(page, "idsAt", chance, len(alphabet), length) for chance in (0.01, 0.5)]
    assert ids == pytest.approx([*map(budget.ids_at, (0.01, 0.5))], rel=1e-3)
    numbers = 10_000, 10**8, 10**12
    chances = [call(page, "probability", number, len(alphabet), length) for number in numbers]
    assert chances == pytest.approx([*map(budget.probability, numbers)], rel=1e-3, abs=1e-12)


def test_what_is_shown(page: Chrome) -> None:
    """By default, the calculator shows the figures of the table beside it."""
    page.refresh()
    rows = page.find_element(By.CSS_SELECTOR, ".result").text

    assert "after 309 million ids, 35.2 years" in rows
    assert "12 bytes" in rows


FORMATS: list[tuple[Format, str]] = [
    (NanoId(prefix="cus"), "NanoId of 12 characters"),
    (Uuid7(), "Uuid7"),
    (Uuid4(), "Uuid4"),
    (Uuid7(encoding="hyphenated"), "UUID, version 7"),
    (Uuid4(encoding="hyphenated"), "UUID, version 4"),
    (JetifyTypeId("user"), "TypeID"),
    (Ulid(), "ULID"),
    (Ksuid(), "KSUID"),
    (ObjectId(), "ObjectId"),
]


@pytest.mark.parametrize(("format", "name"), FORMATS, ids=[name for _, name in FORMATS])
def test_inspected_ids(page: Chrome, format: Format, name: str) -> None:
    """The calculator names the format of an id, its prefix, and the time that the library reads from it."""
    public_id = format.generate()
    shown = call(page, "inspect", public_id)
    times = dict(shown["facts"])

    assert name in times
    assert shown["prefix"] == (format.prefix or "")
    if hasattr(format, "timestamp"):
        moment = format.timestamp(public_id)
        assert times[name] == f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"


def test_what_is_no_id(page: Chrome) -> None:
    """The calculator names no format for other text."""
    assert [text for text in ("", "?", "É", "a b", "x" * 100) if call(page, "inspect", text)["facts"] != []] == []
