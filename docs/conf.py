"""How Sphinx builds the documentation: ``python -m sphinx -W -n --keep-going -b html docs docs/_build/html``."""

from __future__ import annotations

import os
import pkgutil
import warnings
from typing import TYPE_CHECKING, Any, TypeVar

import click
from docutils.nodes import Text, bullet_list, list_item, literal, paragraph
from docutils.nodes import section as section_node
from sphinx.addnodes import index
from sphinx.util.docutils import SphinxDirective
from sqlalchemy.exc import SAWarning

from sqlalchemy_public_id import __version__
from sqlalchemy_public_id.cli.commands import public_id
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.consent import HOLDERS, choices_of, defaults_of, describe_options

if TYPE_CHECKING:
    from docutils.nodes import Element, Node, document
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

project = "sqlalchemy-public-id"
author = "The sqlalchemy-public-id founders"
copyright = author
release = version = __version__

extensions = [
    "myst_parser",
    "notfound.extension",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "sphinx_llms_txt",
    "sphinxext.opengraph",
]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

_REPOSITORY = "https://github.com/sqlalchemy-public-id/sqlalchemy-public-id"

_COLORED = ("color-brand-primary", "color-brand-content", "color-admonition-title")

html_theme = "furo"
html_title = f"{project} {release}"
html_logo = "_static/mark.svg"
html_favicon = "_static/mark.svg"
html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL", "https://sqlalchemy-public-id.readthedocs.io/en/stable/")
html_static_path = ["_static"]
pygments_dark_style = "github-dark-high-contrast"
html_css_files = ["site.css"]
html_js_files = [("calculator.js", {"type": "module"}), ("site.js", {"type": "module"})]
html_theme_options = {
    # the green that public ids have in the drawings
    "light_css_variables": dict.fromkeys(_COLORED, "#0b6e4f") | {"color-admonition-title-background": "#e3f1eb"},
    "dark_css_variables": dict.fromkeys(_COLORED, "#5fd6a7") | {"color-admonition-title-background": "#16352b"},
    "source_repository": _REPOSITORY,
    "source_branch": "main",
    "source_directory": "docs/",
}

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
notfound_urls_prefix = "/en/stable/"
ogp_site_url = html_baseurl
ogp_enable_meta_description = True
ogp_social_cards = {"enable": False}
llms_txt_title = project
llms_txt_summary = "Public ids for SQLAlchemy: a BIGINT key inside the database, an opaque, unique id outside."
llms_txt_full_file = True

add_module_names = False
autodoc_default_options = {"members": True}
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"

SEARCHED = {
    "background/how-it-is-fast": ["benchmark", "overhead", "performance", "speed"],
    "background/tried-in": ["case study", "flask-sqlalchemy project", "in production", "real project"],
    "background/why-two-identifiers": ["enumerable", "hide id", "primary key", "sequential ids", "uuid primary key"],
    "databases": ["collation", "grant", "mariadb", "mysql", "oracle", "postgresql", "rights", "sqlite"],
    "errors#keys-in-errors-and-logs": ["log", "logging", "sentry"],
    "guides/adopting-ids": ["existing ids", "hashids", "sqids"],
    "guides/alembic": ["alembic", "autogenerate", "migration"],
    "guides/async": ["async", "asyncio"],
    "guides/at-scale": ["citus", "partition", "vitess"],
    "guides/at-scale#a-schema-for-each-tenant": ["schema per tenant", "schema_translate_map"],
    "guides/bulk-and-upsert": ["bulk insert", "on conflict", "upsert"],
    "guides/bulk-and-upsert#a-csv-file-with-some-ids": ["csv", "import", "import csv"],
    "guides/bulk-and-upsert#change-an-id-on-purpose": ["change id", "rename id"],
    "guides/choosing-a-format": [
        *("ksuid", "length", "nanoid", "short id", "snowflake", "ulid", "uuid", "uuid4", "uuid7", "uuidv7"),
    ],
    "guides/choosing-a-format#prefix-and-check-digit": ["check digit", "prefix"],
    "guides/choosing-a-format#which-characters": ["alphabet"],
    "guides/collisions": ["collision", "deadlock", "retry"],
    "guides/coming-from": ["django", "rails"],
    "guides/cookbook": ["faq", "recipe"],
    "guides/cookbook#a-title-slug-in-the-url": ["slug"],
    "guides/cookbook#a-tree-of-folders": ["tree"],
    "guides/cookbook#fixed-ids-in-seed-data": ["seed"],
    "guides/cookbook#ids-that-people-type": ["case insensitive", "uppercase"],
    "guides/cookbook#log-lines-and-repr": ["repr"],
    "guides/cookbook#questions": ["jwt", "recycle id", "reuse"],
    "guides/cookbook#soft-deleted-rows": ["soft delete"],
    "guides/declaring-ids": ["dataclass", "inheritance", "mixin"],
    "guides/declaring-ids#typed-ids": ["mypy", "pyright", "type hints", "typed id"],
    "guides/feeds": ["event", "feed", "outbox", "sse"],
    "guides/foreign-keys": ["foreign key", "relationship"],
    "guides/foreign-keys#assign-an-id": ["assign object"],
    "guides/foreign-keys#read-ids-without-n-1-queries": ["eager", "export", "n+1", "streaming"],
    "guides/foreign-keys#a-row-of-any-model": ["audit log", "generic foreign key", "polymorphic"],
    "guides/foreign-keys#many-to-many": ["many to many", "many-to-many"],
    "guides/graphql": ["dataloader", "graphql", "relay", "scalar", "strawberry"],
    "guides/history-and-listeners": ["clone", "continuum", "copy", "history", "listener", "merge"],
    "guides/idempotency": ["idempotency", "idempotent"],
    "guides/integrations": ["celery", "flask", "litestar", "sqlmodel", "starlette"],
    "guides/integrations#admin-interfaces": ["admin", "flask-admin", "sqladmin", "starlette-admin"],
    "guides/integrations#fastapi-users": ["fastapi-users"],
    "guides/integrations#pandas": ["data frame", "dataframe", "pandas", "read_sql", "to_sql"],
    "guides/integrations#polyfactory": ["polyfactory"],
    "guides/keys-before-the-insert": ["sequential"],
    "guides/live-tables": ["backfill", "downtime", "existing table", "migrate", "zero downtime"],
    "guides/other-languages": ["go", "javascript", "ruby", "typescript"],
    "guides/pages": ["cursor", "filter", "pagination"],
    "guides/pages#lists-in-lists": ["connection", "n+1 lists", "nested"],
    "guides/pages#sort": ["backwards", "last", "reverse", "sort"],
    "guides/pydantic-and-fastapi": ["404", "fastapi", "openapi", "pydantic"],
    "guides/pydantic-and-fastapi#find-keys-in-an-api": ["leak", "lint"],
    "guides/pydantic-and-fastapi#partial-responses": ["partial response"],
    "guides/pydantic-and-fastapi#web-sockets": ["websocket", "websockets"],
    "guides/removing": ["lock-in", "uninstall"],
    "guides/several-databases": ["galera", "shard", "sharding"],
    "guides/tenants": ["multi-tenant", "row-level security", "tenant"],
    "guides/tenants#a-composite-foreign-key": ["composite foreign key"],
    "guides/testing": ["deterministic", "factory", "fixture", "fixtures", "pytest"],
    "guides/tokens": ["download", "password reset", "secret", "signed url"],
    "reference/index": ["api", "api reference"],
    "tutorial/a-service": ["example", "tutorial"],
    "tutorial/first-model": ["getting started", "install", "quickstart"],
}
"""The page or section that answers → words that people type into the search. The tests of the site search for them."""

nitpicky = True
nitpick_ignore = [
    ("py:class", "collections.abc.Mapping[str"),  # of a constant: Sphinx takes its type apart at the comma
    ("py:class", "types.Annotated"),  # Sphinx knows it by no name
    ("py:class", "PydanticUndefined"),  # in the signatures that SQLModel makes
    ("py:class", "sqlalchemy_public_id.formats._bits.PrefixedBits"),  # what formats of numbers have in common, inside
    ("py:class", "sqlalchemy_public_id.formats.uuids._Version7"),  # what two formats have in common, inside
    ("py:class", "sqlalchemy_public_id.references.polymorphic._Comparator"),  # of a column type, inside
    ("py:class", "sqlalchemy_public_id.references.reference.Source"),  # what two references have in common, inside
    ("py:class", "M"),  # in the signatures of asyncio, which are those of other modules
    ("py:class", "Rows"),
    ("py:class", "Select"),
    ("py:class", "Where"),
    ("py:class", "UUID"),  # within the type of an argument, it is looked for by no module
    ("py:class", "AnyAsyncSession"),  # for type checkers only, too
    ("py:class", "Engine"),  # within a dict, it is looked for by no module
    ("py:class", "MigrateOperation"),  # half imported while Alembic loads plugins, so within a string
    ("py:class", "MigrationContext"),
    ("py:class", "AsyncEngine"),  # imported for type checkers only: the guard must not import greenlet
]

# autodoc looks at every attribute of the mixins; SQLAlchemy minds, because they are no models themselves
warnings.filterwarnings("ignore", "Unmanaged access of declarative attribute", SAWarning)


def find_by_meaning(app: Sphinx, env: BuildEnvironment, reference: pending_xref, content: Element) -> Element | None:
    """Resolve a name as Python would where it stands: by the module of the docstring, or as an absolute name.

    Names of this library become links, wherever they were imported from. Names of other projects stay text: their
    inventories would have to be fetched, and a build needs no network. A name that does not exist is a warning.
    """
    if reference.get("refdomain") != "py":
        return None
    target = reference["reftarget"]
    for name in (f"{reference.get('py:module')}.{target}", target):
        try:
            thing: Any = pkgutil.resolve_name(name)
        except (AttributeError, ImportError, ValueError):
            continue
        home = f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', target)}"
        if isinstance(thing, TypeVar) or not home.startswith("sqlalchemy_public_id."):
            return content
        domain = env.domains.python_domain
        return domain.resolve_xref(env, reference["refdoc"], app.builder, "obj", home, reference, content)
    return None


def add_searched_words(app: Sphinx, document: document) -> None:
    """Let the words of :data:`SEARCHED` lead to their place: the search of the site ranks entries of the index highest.

    :raises ValueError: if a section does not exist.
    """
    first, *_ = document.findall(section_node)
    sections = {"": first} | {id: section for section in document.findall(section_node) for id in section["ids"]}
    for place, words in SEARCHED.items():
        page, _, id = place.partition("#")
        if page != app.env.docname:
            continue
        if id not in sections:
            raise ValueError(f"SEARCHED: {page} has no section {id}, but {sorted(sections)}")
        sections[id].insert(1, index(entries=[("single", word, id, "main", None) for word in words]))


class Options(SphinxDirective):
    """The options of commands, as ``public-id COMMAND --help`` shows them: each once, in the order of the commands."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[Node]:
        records: dict[tuple[str, str], None] = {}
        for name in self.arguments[0].split():
            command = public_id.commands[name]
            context = click.Context(command, info_name=name)
            found = [option.get_help_record(context) for option in command.params if isinstance(option, click.Option)]
            records |= dict.fromkeys(record for record in found if record)
        listed = bullet_list(support_smartquotes=False)  # two hyphens stay two
        for option, text in records:
            written = literal(text=option)
            listed += list_item("", paragraph("", "", written, Text(f": {text}")))
        return [listed]


class Keywords(SphinxDirective):
    """The options of Alembic's operations, each with its type, default and text, as the command line has them."""

    def run(self) -> list[Node]:
        defaults: dict[str, Any] = {}
        for holder in (PublicIdColumn, *HOLDERS):
            defaults |= defaults_of(holder)
        lines: list[str] = []
        for name, option in describe_options().items():
            default = defaults[name]
            lines += [f"``{name}``{'' if default in (None, '') else f' = ``{default!r}``'}", f"    {option.text}"]
            if choices := choices_of(option.type):
                lines[-1] += f" One of {', '.join(f'``{choice!r}``' for choice in choices)}."
        return self.parse_text_to_nodes("\n".join(lines))


def setup(app: Sphinx) -> None:
    """Connect the resolver and the words of the search, and add the directives for options."""
    app.connect("missing-reference", find_by_meaning)
    app.connect("doctree-read", add_searched_words)
    app.add_directive("options", Options)
    app.add_directive("keywords", Keywords)
