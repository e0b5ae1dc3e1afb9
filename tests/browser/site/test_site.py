"""The site: its links lead somewhere, its search answers, and its pages can be read by all, on a phone, too."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urldefrag, urlsplit

import pytest
from axe_core_python.selenium import Axe
from bs4 import BeautifulSoup
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

GENERATED = {"404.html", "genindex.html", "py-modindex.html", "search.html"}
DESKTOP, PHONE = (1280, "light"), (390, "dark")
FIRST = ["index.html", "tutorial/ten-minutes.html", "guides/choosing-a-format.html", "background/compared.html"]
"""Pages that most readers see; the theme is the same in all others."""


def pages(site: Path) -> list[str]:
    """The pages of the site, without the theme's files."""
    paths = (path.relative_to(site).as_posix() for path in sorted(site.rglob("*.html")))
    return [path for path in paths if not path.startswith("_")]


@cache
def parsed(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(), "html.parser")


@cache
def anchors(path: Path) -> set[str]:
    return {str(tag["id"]) for tag in parsed(path).find_all(id=True)}


def broken(site: Path, page: str) -> Iterator[str]:
    """Return the links of *page* into the site that lead nowhere."""
    for tag in parsed(site / page).find_all(["a", "img", "link", "script"]):
        link = str(tag.get("href") or tag.get("src") or "")
        address, anchor = urldefrag(link)
        if urlsplit(address).scheme or address.startswith("/"):  # another site; the 404 page has whole paths
            continue
        target = (site / page).parent / unquote(urlsplit(address).path) if address else site / page
        if not target.is_file() or (anchor and target.suffix == ".html" and unquote(anchor) not in anchors(target)):
            yield link


def test_no_link_is_broken(site: Path) -> None:
    """Each link into the site leads to a file of it, and to a heading that is there."""
    assert {page: links for page in pages(site) if (links := list(broken(site, page)))} == {}


def test_every_page_introduces_itself(site: Path) -> None:
    """A page has a title and a description of its own, one first heading, and no heading skips a level."""
    titles: dict[str, str] = {}
    for page in set(pages(site)) - GENERATED:
        soup = parsed(site / page)
        assert soup.title is not None
        title = soup.title.get_text()
        assert titles.setdefault(title, page) == page, title
        description = soup.find("meta", attrs={"name": "description"})
        assert description is not None, page
        assert len(str(description["content"])) > 40, page
        levels = [int(tag.name[1]) for tag in soup.select("article h1, article h2, article h3, article h4")]
        assert levels.count(1) == 1, page
        assert all(below - above <= 1 for above, below in itertools.pairwise(levels)), (page, levels)
        assert all(image.get("alt") for image in soup.select("article img")), page


def test_addresses_of_one_version(site: Path) -> None:
    """Search engines get one address for each page, that of the stable version."""
    for page in set(pages(site)) - GENERATED:
        link = parsed(site / page).find("link", rel="canonical")
        assert link is not None
        assert str(link["href"]).endswith(f"/en/stable/{page}")


def test_programs_find_the_pages(site: Path) -> None:
    """``llms.txt`` lists every page that was written."""
    listed = re.findall(r"\]\(([^)]+)\)", (site / "llms.txt").read_text())
    written = {page.removesuffix(".html") for page in set(pages(site)) - GENERATED}
    assert {re.sub(r".*/en/stable/(_sources/)?|\.(html|md|md\.txt|rst|txt)$", "", link) for link in listed} >= written


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("pagination", "guides/pages.html"),
        ("sort", "guides/pages.html"),
        ("advanced-alchemy", "background/compared.html"),
        ("uuid7", "guides/choosing-a-format.html"),
        ("uuidv7 key", "background/why-two-identifiers.html"),
        ("tenant", "guides/tenants.html"),
        ("AsyncSession", "guides/async.html"),
        ("live table", "guides/live-tables.html"),
        ("which format", "guides/choosing-a-format.html"),
    ],
)
def test_search(browser: Any, address: str, words: str, page: str) -> None:
    """A newcomer who searches for what they need sees its page among the first results."""
    browser.set_window_size(1280, 1000)
    browser.get(f"{address}search.html?q={quote(words)}")
    summary = WebDriverWait(browser, 20).until(
        lambda chrome: chrome.find_elements(By.CSS_SELECTOR, "#search-results .search-summary")
    )[0]
    WebDriverWait(browser, 20).until(lambda _: "finished" in summary.text)
    results = [link.get_attribute("href") for link in browser.find_elements(By.CSS_SELECTOR, "#search-results li > a")]
    found = [re.sub(r"[?#].*", "", result).removeprefix(address) for result in results]
    assert page in list(dict.fromkeys(found))[:6]


@pytest.mark.parametrize(("width", "scheme"), [DESKTOP, PHONE])
def test_pages_fit(browser: Any, address: str, site: Path, width: int, scheme: str) -> None:
    """No page is wider than the window: what is wide is scrolled in its own frame."""
    show(browser, width, scheme)
    wide = []
    for page in set(pages(site)) - {"404.html"}:
        browser.get(address + page)
        if browser.execute_script("return document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            wide.append(page)
    assert wide == []


@pytest.mark.parametrize(("width", "scheme"), [DESKTOP, PHONE])
@pytest.mark.parametrize("page", FIRST)
def test_pages_can_be_read(browser: Any, address: str, page: str, width: int, scheme: str) -> None:
    """Contrast, labels and the keyboard are as the guidelines for accessibility (WCAG 2, A and AA) want them."""
    show(browser, width, scheme)
    browser.get(address + page)
    options = {"runOnly": ["wcag2a", "wcag2aa"]}
    violations = Axe().run(browser, options=options)["violations"]
    assert [(found["id"], [node["html"] for node in found["nodes"]]) for found in violations] == []


def show(browser: Any, width: int, scheme: str) -> None:
    """Give the page a width, and the colours of the day or of the night."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
