"""The built site: no link is broken, the search finds pages, and pages are accessible, on phones, too."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urldefrag, urlsplit
from urllib.request import urlopen

import pytest
from axe_core_python.selenium import Axe
from bs4 import BeautifulSoup
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

GENERATED = {"404.html", "genindex.html", "py-modindex.html", "search.html"}
DRAWINGS = sorted((Path(__file__).parents[3] / "docs" / "_static").glob("*.svg"))
DESKTOP, PHONE = (1280, "light"), (390, "dark")
WIDTHS = [
    *(360, 375, 390, 412, 480, 600, 768, 820, 1009, 1024),
    *(1100, 1136, 1200, 1280, 1313, 1366, 1400, 1439, 1536, 1920),
]
"""Widths of phones, tablets and desktops, and those at which the sidebars of the theme appear."""
FIRST = [
    "index.html",
    "at-a-glance.html",
    "tutorial/first-model.html",
    "guides/choosing-a-format.html",
    "guides/collisions.html",
    "guides/command-line.html",
    "guides/live-tables.html",
    "databases.html",
]
"""The most read pages, with everything that the site adds to the theme: calculator, drawings, options and tables."""

SEARCHES = {
    "background/how-it-is-fast": ["benchmark", "performance"],
    "background/why-two-identifiers": ["hide id", "primary key"],
    "databases": ["collation", "postgres"],
    "errors#keys-in-errors-and-logs": ["logging"],
    "guides/adopting-ids": ["hashids"],
    "guides/alembic": ["alembic"],
    "guides/async": ["async"],
    "guides/at-scale#a-schema-for-each-tenant": ["schema per tenant"],
    "guides/bulk-and-upsert": ["bulk insert"],
    "guides/bulk-and-upsert#a-csv-file-with-some-ids": ["csv", "import csv"],
    "guides/bulk-and-upsert#change-an-id-on-purpose": ["change id"],
    "guides/choosing-a-format": ["ksuid", "length", "nanoid", "short id", "snowflake", "ulid", "uuid", "uuid7"],
    "guides/choosing-a-format#prefix-and-check-digit": ["prefix"],
    "guides/collisions": ["collision"],
    "guides/coming-from": ["django"],
    "guides/cookbook#a-title-slug-in-the-url": ["slug"],
    "guides/cookbook#fixed-ids-in-seed-data": ["seed"],
    "guides/cookbook#ids-that-people-type": ["case insensitive", "uppercase"],
    "guides/cookbook#log-lines-and-repr": ["repr"],
    "guides/cookbook#questions": ["jwt"],
    "guides/cookbook#soft-deleted-rows": ["soft delete"],
    "guides/declaring-ids#typed-ids": ["mypy", "type hints"],
    "guides/feeds": ["feed", "outbox", "sse"],
    "guides/foreign-keys": ["foreign key"],
    "guides/foreign-keys#assign-an-id": ["assign object"],
    "guides/foreign-keys#read-ids-without-n-1-queries": ["export", "n+1", "streaming"],
    "guides/foreign-keys#a-row-of-any-model": ["audit log", "polymorphic"],
    "guides/foreign-keys#many-to-many": ["many to many", "many-to-many"],
    "guides/graphql": ["dataloader", "graphql", "relay", "scalar"],
    "guides/history-and-listeners": ["clone", "copy row"],
    "guides/idempotency": ["idempotency", "idempotent"],
    "guides/integrations": ["celery", "flask", "sqlmodel"],
    "guides/integrations#admin-interfaces": ["admin", "flask-admin", "starlette-admin"],
    "guides/integrations#fastapi-users": ["fastapi-users"],
    "guides/integrations#pandas": ["dataframe", "pandas", "read_sql"],
    "guides/integrations#polyfactory": ["polyfactory"],
    "guides/keys-before-the-insert": ["sequential"],
    "guides/live-tables": ["backfill", "downtime", "existing table", "migrate"],
    "guides/other-languages": ["javascript", "typescript"],
    "guides/pages": ["cursor", "pagination", "stripe"],
    "guides/pages#lists-in-lists": ["connection", "nested"],
    "guides/pages#sort": ["backwards", "last", "reverse"],
    "guides/pydantic-and-fastapi": ["404", "fastapi", "openapi"],
    "guides/pydantic-and-fastapi#web-sockets": ["websocket", "websockets"],
    "guides/removing": ["uninstall"],
    "guides/several-databases": ["sharding"],
    "guides/tenants": ["multi-tenant", "tenant"],
    "guides/tenants#a-composite-foreign-key": ["composite foreign key"],
    "guides/testing": ["deterministic", "fixtures"],
    "guides/tokens": ["download", "expire", "secret"],
    "reference/index": ["api reference"],
    "tutorial/a-service": ["tutorial"],
    "tutorial/first-model": ["getting started", "install", "quickstart"],
}
"""Page, or section → what people type to find it: it must be among the first three results, and come before others
for the thirty words in :data:`FIRST_RESULTS`."""

FIRST_RESULTS = {
    *("performance", "type hints", "case insensitive", "jwt", "pandas", "typescript", "install", "prefix", "short id"),
    *("change id", "fixtures", "getting started", "slug", "clone", "soft delete", "primary key", "celery", "seed"),
    *("django", "hashids", "stripe", "mypy", "sharding", "csv", "many-to-many", "websocket", "migrate", "logging"),
    *("schema per tenant", "graphql"),
}
"""What newcomers typed: the first result must answer."""


def pages(site: Path) -> list[str]:
    """Return the pages of the site, without the theme's files."""
    paths = (path.relative_to(site).as_posix() for path in sorted(site.rglob("*.html")))
    return [path for path in paths if not path.startswith("_")]


@cache
def parsed(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(), "html.parser")


@cache
def anchors(path: Path) -> set[str]:
    return {str(tag["id"]) for tag in parsed(path).find_all(id=True)}


def broken(site: Path, page: str) -> Iterator[str]:
    """Yield the broken links of *page* within the site."""
    for tag in parsed(site / page).find_all(["a", "img", "link", "script"]):
        link = str(tag.get("href") or tag.get("src") or "")
        address, anchor = urldefrag(link)
        if urlsplit(address).scheme or address.startswith("/"):  # another site; the 404 page has absolute paths
            continue
        target = (site / page).parent / unquote(urlsplit(address).path) if address else site / page
        if not target.is_file() or (anchor and target.suffix == ".html" and unquote(anchor) not in anchors(target)):
            yield link


def test_no_link_is_broken(site: Path) -> None:
    """Each link within the site points to a file and an anchor that exist."""
    assert {page: links for page in pages(site) if (links := list(broken(site, page)))} == {}


def test_every_page_introduces_itself(site: Path) -> None:
    """Each page has a unique title, a description and one ``h1``; headings skip no level, and images have ``alt``."""
    soups = {page: parsed(site / page) for page in set(pages(site)) - GENERATED}
    titles = Counter(soup.title and soup.title.get_text() for soup in soups.values())
    assert [title for title, number in titles.items() if number > 1 or not title] == []
    descriptions = {page: soup.select_one("meta[name=description]") for page, soup in soups.items()}
    assert [page for page, tag in descriptions.items() if tag is None or len(str(tag["content"])) <= 40] == []
    headings = {page: soup.select("article h1, article h2, article h3, article h4") for page, soup in soups.items()}
    levels = {page: [int(tag.name[1]) for tag in tags] for page, tags in headings.items()}
    assert [page for page, each in levels.items() if each.count(1) != 1] == []
    assert [(page, up, down) for page, each in levels.items() for up, down in pairwise(each) if down - up > 1] == []
    images = [(page, image) for page, soup in soups.items() for image in soup.select("article img")]
    assert [(page, image) for page, image in images if not image.get("alt")] == []


def test_addresses_of_one_version(site: Path) -> None:
    """The canonical URL of each page, for search engines, is that of the stable version."""
    wanted = {page: f"head > link[rel=canonical][href$='/en/stable/{page}']" for page in set(pages(site)) - GENERATED}
    assert [page for page, selector in wanted.items() if not parsed(site / page).select(selector)] == []


def test_programs_find_the_pages(site: Path) -> None:
    """``llms.txt`` lists every page that is not generated."""
    listed = re.findall(r"\]\(([^)]+)\)", (site / "llms.txt").read_text())
    written = {page.removesuffix(".html") for page in set(pages(site)) - GENERATED}
    assert {re.sub(r".*/en/stable/(_sources/)?|\.(html|md|md\.txt|rst|txt)$", "", link) for link in listed} >= written


def test_search(browser: Any, address: str) -> None:
    """Each search term finds its page among the first three results, and what newcomers typed as the first one."""
    browser.set_window_size(1280, 1000)
    missed = {}
    for page, words in ((page, words) for page, typed in SEARCHES.items() for words in typed):
        browser.get(f"{address}search.html?q={quote(words)}")
        wait = WebDriverWait(browser, 20)
        summary = wait.until(lambda chrome: chrome.find_element(By.CSS_SELECTOR, "#search-results .search-summary"))
        wait.until(lambda _, summary=summary: summary.text)
        links = browser.find_elements(By.CSS_SELECTOR, "#search-results li > a")[: 1 if words in FIRST_RESULTS else 3]
        found = [re.sub(r"\.html[^#]*", "", link.get_attribute("href")).removeprefix(address) for link in links]
        if page not in {*found, *(place.partition("#")[0] for place in found)}:
            missed[words] = found
    assert missed == {}


def test_pages_fit(browser: Any, address: str, site: Path) -> None:
    """No page is wider than the window; wide content scrolls in its own frame."""
    wide = []
    for page in sorted(set(pages(site)) - {"404.html"}):
        show(browser, WIDTHS[0], "light")
        browser.get(address + page)
        for width in WIDTHS:
            show(browser, width, "light")
            shown, needed = browser.execute_script(
                "return [document.documentElement.clientWidth, document.documentElement.scrollWidth]"
            )
            assert width - shown < 20  # a scroll bar
            if needed > shown:
                wide.append((page, width))
    assert wide == []


def test_landing_page_is_short(browser: Any, address: str) -> None:
    """The landing page is at most two laptop screens high, because the table of contents is beside it."""
    show(browser, 1366, "light")
    browser.get(address)
    assert browser.execute_script("return document.documentElement.scrollHeight") <= 2 * 900


@pytest.mark.parametrize(("width", "height", "scheme"), [(1366, 768, "light"), (390, 844, "dark")])
def test_first_screen(browser: Any, address: str, width: int, height: int, scheme: str) -> None:
    """The first screen of a laptop and of a phone shows the model and the answer, which is an id, and cuts no line."""
    show(browser, width, scheme)
    browser.get(address)
    model, answer = (browser.find_element(By.CSS_SELECTOR, f".first-screen .{name}") for name in ("model", "answer"))
    assert "class Customer(" in model.text
    assert "cus_izkpm55j334u" in answer.text
    assert max(part.rect["y"] + part.rect["height"] for part in (model, answer)) <= height
    programs = browser.find_elements(By.CSS_SELECTOR, ".first-screen pre")
    widths = browser.execute_script("return arguments[0].map(each => [each.scrollWidth, each.clientWidth])", programs)
    assert [needed for needed, shown in widths if needed > shown] == []


@pytest.mark.parametrize("width", WIDTHS)
def test_features_fill_their_rows(browser: Any, address: str, width: int) -> None:
    """No row of the features on the first page has fewer cards than the others."""
    show(browser, width, "light")
    browser.get(address)
    rows = Counter(card.rect["y"] for card in browser.find_elements(By.CSS_SELECTOR, ".features li"))
    assert len(set(rows.values())) == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_color(browser: Any, address: str, scheme: str) -> None:
    """The links of the site, its mark and the public ids of its drawings have one color, in each scheme."""
    show(browser, 1366, scheme)
    browser.get(address)
    script = "return getComputedStyle(document.body).getPropertyValue('--color-brand-primary').trim()"
    color = browser.execute_script(script)
    drawings = {path.name: path.read_text() for path in DRAWINGS}
    assert {"mark.svg", "lookup.svg"} <= drawings.keys()
    parts = {name: text.partition("@media (prefers-color-scheme: dark)") for name, text in drawings.items()}
    assert [
        name for name, (light, _, dark) in parts.items() if color not in (light if scheme == "light" else dark)
    ] == []


def test_mark(browser: Any, address: str) -> None:
    """The tab and the side bar show the mark."""
    show(browser, 1366, "light")
    browser.get(address)
    [icon] = browser.find_elements(By.CSS_SELECTOR, "head > link[rel~=icon]")
    [logo] = browser.find_elements(By.CSS_SELECTOR, ".sidebar-logo")
    assert [each.rpartition("/")[2] for each in (icon.get_attribute("href"), logo.get_attribute("src"))] == [
        "mark.svg"
    ] * 2
    assert logo.size["width"] >= 24


@pytest.mark.parametrize("page", ["index.html", "guides/live-tables.html"])
def test_search_on_a_phone(browser: Any, address: str, page: str) -> None:
    """The header of a phone has a button that shows the field of the search, ready to type into."""
    show(browser, *PHONE)
    browser.get(address + page)
    browser.find_element(By.CSS_SELECTOR, ".mobile-header button[aria-label=Search]").click()
    field = browser.find_element(By.CSS_SELECTOR, ".sidebar-search")
    WebDriverWait(browser, 20).until(lambda _: field.rect["x"] >= 0)
    assert browser.switch_to.active_element == field


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_code_is_copied(browser: Any, address: str, scheme: str) -> None:
    """Each program of the first page has a button that copies it, and a contrast of at least 3 to the program."""
    show(browser, 390, scheme)
    browser.get(address)
    programs = browser.find_elements(By.CSS_SELECTOR, "article .highlight")
    buttons = [program.find_element(By.CSS_SELECTOR, "button.copybtn") for program in programs]
    assert len(buttons) > 2
    assert {button.value_of_css_property("opacity") for button in buttons} == {"1"}
    assert [
        (foreground, background)
        for program, button in zip(programs, buttons, strict=True)
        for foreground in [button.value_of_css_property("color")]
        for background in [program.value_of_css_property("background-color")]
        if contrast(foreground, background) < 3
    ] == []


@pytest.mark.parametrize(("page", "number"), [("at-a-glance", 10), ("guides/collisions", 1), ("guides/live-tables", 1)])
def test_drawings(browser: Any, address: str, page: str, number: int) -> None:
    """Drawings have a description, colors for dark mode, and text that is large enough to read on a phone."""
    show(browser, *PHONE)
    browser.get(f"{address}{page}.html")
    drawings = browser.find_elements(By.CSS_SELECTOR, "article img[src$='.svg']")
    assert len(drawings) == number
    for drawing in drawings:
        source = text_at(drawing.get_attribute("src"))
        [width] = re.findall(r'viewBox="0 0 (\d+) ', source)
        sizes = [int(size) for size in re.findall(r"font: (\d+)px", source)]
        assert len(drawing.get_attribute("alt").split()) > 4
        assert "<title" in source
        assert "prefers-color-scheme: dark" in source
        assert min(sizes) * drawing.size["width"] / int(width) >= 9.5


@pytest.mark.parametrize(("width", "scheme"), [DESKTOP, PHONE])
@pytest.mark.parametrize("page", FIRST)
def test_pages_can_be_read(browser: Any, address: str, page: str, width: int, scheme: str) -> None:
    """Pages meet the accessibility guidelines (WCAG 2, A and AA) for contrast, labels, the keyboard and more."""
    show(browser, width, scheme)
    browser.get(address + page)
    options = {"runOnly": ["wcag2a", "wcag2aa"]}
    violations = Axe().run(browser, options=options)["violations"]
    assert [(found["id"], [node["html"] for node in found["nodes"]]) for found in violations] == []


def contrast(*colors: str) -> float:
    """Return the contrast of two colors, such as ``rgb(0, 0, 0)``, as the accessibility guidelines define it."""
    lights = []
    for color in colors:
        shares = [int(number) / 255 for number in re.findall(r"\d+", color)[:3]]
        red, green, blue = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
        lights.append(0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)
    return max(lights) / min(lights)


def text_at(address: str) -> str:
    with urlopen(address) as answer:
        text: str = answer.read().decode()
    return text


def show(browser: Any, width: int, scheme: str) -> None:
    """Set the width of the page and its color scheme."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
