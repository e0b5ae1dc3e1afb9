"""The documentation is complete, and all its examples are run."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.public_modules import PUBLIC
from sybil import Sybil

from sqlalchemy_public_id import errors, lookup

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FRONT = sorted(ROOT.glob("*.md"))
APART = [DOCS / "guides/history-and-listeners.md", DOCS / "guides/graphql.md", DOCS / "tutorial/a-service.md"]
"""Pages that tests/packaging (test_pages_apart.py, test_ten_minutes.py) and tests/neighbours run as whole programs."""
SITE = "https://sqlalchemy-public-id.readthedocs.io/en/stable/"
PAGES = [*FRONT, *sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)]
REFERENCE = sorted((DOCS / "reference").glob("*.md"))

BUDGETS = {
    "index": 350,
    "at-a-glance": 400,
    "tutorial/first-model": 700,
    "tutorial/a-service": 900,
    "background/why-two-identifiers": 900,
    "guides/cookbook": 1030,
    "guides/choosing-a-format": 1500,
    "guides/declaring-ids": 1100,
    "guides/foreign-keys": 1400,
    "guides/looking-up": 1050,
    "guides/pages": 1700,
    "guides/feeds": 700,
    "guides/tenants": 1150,
    "guides/idempotency": 900,
    "guides/bulk-and-upsert": 1000,
    "guides/async": 250,
    "guides/tokens": 800,
    "guides/history-and-listeners": 700,
    "guides/pydantic-and-fastapi": 1700,
    "guides/integrations": 1500,
    "guides/graphql": 1300,
    "guides/other-languages": 1600,
    "guides/testing": 1000,
    "guides/live-tables": 1250,
    "guides/alembic": 1150,
    "guides/adopting-ids": 1500,
    "guides/coming-from": 500,
    "guides/migration-hazards": 1450,
    "guides/removing": 400,
    "guides/several-databases": 1860,
    "guides/at-scale": 1100,
    "guides/keys-before-the-insert": 1100,
    "guides/collisions": 1500,
    "databases": 1500,
    "guides/command-line": 900,
    "errors": 1450,
    "background/how-it-is-fast": 800,
    "background/tried-in": 620,
    "contributing/how-the-guard-works": 1000,
    "contributing/how-it-is-proven": 1000,
    "contributing/forty-tasks": 620,
    "design": 5200,
}
"""The word limit of each page, including code and tables. A page may exceed it by 15 percent."""
CONTRIBUTORS = {page for page in BUDGETS if page == "design" or page.startswith("contributing/")}
"""Pages for contributors, which stand apart in the table of contents."""
WORDS = 43_800
"""The word limit of all pages for users."""

DIRECTIVE = re.compile(r"^\.\. auto(?P<kind>module|class):: (?P<name>\S+)\n(?P<options>(?: +:.*\n)*)", re.MULTILINE)


class Fence(NamedTuple):
    language: str
    first: int
    last: int


def name(page: Path) -> str:
    return page.relative_to(DOCS).with_suffix("").as_posix()


def fences(page: Path) -> list[Fence]:
    """Return the fences of *page*, with the numbers of their first and last lines."""
    marks = [
        (number, line.strip(" `~"))
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if re.match(r"\s*(```|~~~)", line)
    ]
    assert len(marks) % 2 == 0
    return [Fence(opening[1], opening[0], closing[0]) for opening, closing in zip(marks[::2], marks[1::2], strict=True)]


def documented() -> Iterator[Any]:
    """Yield the objects that the directives of the reference show."""
    for page in REFERENCE:
        for directive in DIRECTIVE.finditer(page.read_text()):
            shown = pkgutil.resolve_name(directive["name"])
            yield shown
            if directive["kind"] == "module" and ":no-members:" not in directive["options"]:
                yield from (getattr(shown, name) for name in shown.__all__)


def words(page: Path) -> int:
    """Return the number of words of *page*, without the bars of tables and code that readers do not see."""
    shown = re.sub(r"<!--.*?-->|^:::\{toctree\}.*?^:::$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return sum(bool(re.search(r"\w", word)) for word in shown.split())


def sentences(page: Path) -> Iterator[str]:
    """Yield the sentences of *page*, without code, tables, headings and the addresses of links."""
    text = re.sub(r"^```.*?^```$|^:::.*?^:::$|<!--.*?-->", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for line in text.splitlines():
        if not line.startswith(("|", "#", "![")):
            yield from re.split(r"(?<=[.!?]) ", re.sub(r"\]\([^)]*\)", "]", line))


@pytest.fixture(name="sybils")
def _sybils(pytestconfig: pytest.Config) -> list[Sybil]:
    """Return the collectors of examples: see ``conftest.py`` in the root folder."""
    found = [plugin.EXAMPLES for plugin in pytestconfig.pluginmanager.get_plugins() if hasattr(plugin, "EXAMPLES")]
    assert len(found) == 1
    return list(found[0])


def test_reference_shows_every_public_name() -> None:
    """Each name of a public module's ``__all__`` is on a page of the reference."""
    shown = {id(thing) for thing in documented()}
    modules = [importlib.import_module(f"sqlalchemy_public_id{module}") for module in PUBLIC]
    missing = [
        f"{module.__name__}.{name}"
        for module in modules
        for name in module.__all__
        if id(getattr(module, name)) not in shown
    ]

    assert not missing, f"show {missing} on a page of docs/reference"


def test_policy_names_every_public_module() -> None:
    """SECURITY.md lists the modules whose names are stable: each public one, or the package that it is in."""
    listed = set(re.findall(r"`([a-z_.]+)`", (ROOT / ".github/SECURITY.md").read_text()))
    modules = [module[1:] for module in PUBLIC if module]

    missing = [module for module in modules if not {module, module.partition(".")[0]} & listed]

    assert not missing, f"add {missing} to the public modules in .github/SECURITY.md"


def test_pages_are_in_the_table_of_contents() -> None:
    """Each page of the documentation is in the table of contents of the first page."""
    trees = re.findall(
        r"^:::\{toctree\}\n(?::[^\n]*\n)+\n(.*?)^:::$", (DOCS / "index.md").read_text(), re.DOTALL | re.MULTILINE
    )
    entries = [entry for tree in trees for entry in tree.splitlines() if not entry.endswith(">")]

    assert sorted(entries) == sorted(BUDGETS.keys() - {"index"} | {name(page) for page in REFERENCE})
    assert BUDGETS.keys() == {name(page) for page in PAGES if DOCS in page.parents} - {name(page) for page in REFERENCE}


def test_documentation_stays_small() -> None:
    """The documentation has at most 40 pages for users besides the reference, each within its word limit."""
    counted = {page: words(DOCS / f"{page}.md") for page in BUDGETS}

    assert len(BUDGETS.keys() - CONTRIBUTORS) <= 40
    assert {page: count for page, count in counted.items() if count > 1.15 * BUDGETS[page]} == {}
    assert counted["design"] <= BUDGETS["design"]
    assert sum(count for page, count in counted.items() if page not in CONTRIBUTORS) <= WORDS


@pytest.mark.parametrize("page", sorted(BUDGETS.keys() - {"design"}))
def test_sentences_are_short(page: str) -> None:
    """No sentence has more than 40 words."""
    assert [sentence for sentence in sentences(DOCS / f"{page}.md") if len(sentence.split()) > 40] == []


def test_links_name_their_destination() -> None:
    """The text of a link names its destination."""
    vague = r"\[(?:how|here|this|that|why|reason|reasons|more|link)\]\(\S+"

    assert {page.name: found for page in PAGES if (found := re.findall(vague, page.read_text(), re.IGNORECASE))} == {}


def test_every_python_fence_is_run(sybils: list[Sybil]) -> None:
    """Pytest collects an example in each Python fence, and none on a page without Python fences."""
    not_run, not_python = [], []
    for page in PAGES:
        if not fences(page) or page in APART:
            continue
        [sybil] = [sybil for sybil in sybils if sybil.should_parse(page)]
        lines = [example.line for example in sybil.parse(page)]
        python = [fence for fence in fences(page) if fence.language == "python"]
        not_run += [
            f"{page}:{fence.first}" for fence in python if not any(fence.first <= line <= fence.last for line in lines)
        ]
        if lines and not python:
            not_python.append(f"{page}:{lines[0]}")

    assert (not_run, not_python) == ([], [])


def test_fences_are_in_known_languages() -> None:
    """Fences use only known languages, so that all Python is run; only the reference has directives."""
    known = {"python", "sh", "text", "sql", "toml"}
    others = {"typescript", "go", "ruby"}  # run by tests/formats/test_other_languages.py
    strange = [
        f"{page}:{fence.first}: {fence.language}"
        for page in PAGES
        for fence in fences(page)
        if fence.language not in (known | others if page.name == "other-languages.md" else known)
        and not fence.language.startswith("{options} ")
        and not (fence.language == "{eval-rst}" and page in REFERENCE)
    ]

    assert strange == []


def test_every_error_has_a_heading() -> None:
    """The page on errors has a section for each error except the base class."""
    headings = re.findall(r"^### (\w+)$", (DOCS / "errors.md").read_text(), re.MULTILINE)

    assert sorted(set(errors.__all__) - {"PublicIdError", "PublicIdWarning"}) == sorted(headings)


def test_every_lookup_function_is_in_the_guide() -> None:
    """The guide to looking up names every function of ``lookup``."""
    functions = [name for name in lookup.__all__ if inspect.isfunction(getattr(lookup, name))]
    guide = (DOCS / "guides" / "looking-up.md").read_text()

    assert functions
    assert not [name for name in functions if f"`{name}" not in guide and f"lookup.{name}(" not in guide]


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of *page*."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_readme_leads_to_the_site() -> None:
    """The README links the site in its first lines, and each link into it leads to a page and a heading that exist."""
    text = (ROOT / "README.md").read_text()
    links = re.findall(rf"\]\({re.escape(SITE)}([^)]*)\)", text)

    assert f"[Documentation]({SITE})" in "".join(text.splitlines()[:8])
    assert len(links) > 20
    for link in filter(None, links):
        address, _, anchor = link.partition("#")
        page = DOCS / f"{address.removesuffix('.html')}.md"
        assert page.exists(), link
        assert not anchor or anchor in anchors(page), link
    assert "](docs/" not in text.replace("](docs/_static/", "")


def test_links_of_the_front_pages_lead_somewhere() -> None:
    """Links to files lead to files that exist. (Sphinx checks the links inside the documentation.)"""
    links = [(page.name, link) for page in FRONT for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())]

    assert links
    assert [(page, link) for page, link in links if not (ROOT / link).exists()] == []
