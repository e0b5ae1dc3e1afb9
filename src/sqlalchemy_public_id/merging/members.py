"""Which databases are compared, and what they are called in the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from sqlalchemy import Engine, make_url
from sqlalchemy.engine import URL

from sqlalchemy_public_id.errors import ConfigurationError, shown

__all__ = ["Database", "named_databases"]

Database: TypeAlias = "URL | Engine"


def named_databases(databases: Any) -> dict[str, Database]:
    """Name → URL or engine; those without a name by their URLs, without password and options.

    :raises ConfigurationError: where there are fewer than two, one is there twice, or it is neither.
    """
    given: Any = databases
    if isinstance(databases, (str, bytes)) or not isinstance(databases, Iterable):
        raise ConfigurationError(f"databases is {shown(databases)}, expected URLs or engines, two or more")
    members: list[tuple[Any, Any]] = (
        list(given.items()) if isinstance(databases, Mapping) else [(None, each) for each in given]
    )
    if len(members) < 2:
        raise ConfigurationError(f"there are {len(members)} databases to compare, expected two or more")
    named: dict[str, Database] = {}
    seen: list[Database] = []
    for name, each in members:
        database, url = _read(each)
        known = url.set(query={}).render_as_string(hide_password=True)
        same: Database = database if _is_in_memory(url) else url
        if same in seen and not (same is url and _is_in_memory(url)):
            raise ConfigurationError(f"{known} is given twice; a database clashes with itself")
        seen.append(same)
        if name is None:
            name = f"{known} ({len(named) + 1})" if known in named else known
        named[name] = database
    return named


def _read(given: Any) -> tuple[Database, URL]:
    if isinstance(given, Engine):
        return given, given.url
    if not isinstance(given, (str, URL)):
        raise ConfigurationError(f"a database is {shown(given)}, expected a URL or an Engine")
    url = make_url(given)
    return url, url


def _is_in_memory(url: URL) -> bool:
    """Whether each engine of *url* has a database of its own."""
    return url.get_backend_name() == "sqlite" and url.database in {None, "", ":memory:"}
