"""Marks that several test modules use."""

from __future__ import annotations

import re
import sys
import sysconfig
from typing import Any

import pytest
import sqlalchemy
from support import servers

from sqlalchemy_public_id._private import IS_FAST

SERVERS = ("postgresql", "mysql", "mariadb")


def on(*databases: str) -> pytest.MarkDecorator:
    """Run the test on these databases only."""
    return pytest.mark.parametrize("database", databases, indirect=True)


def on_async(*databases: str) -> pytest.MarkDecorator:
    """Run the test on these databases only, with each of their asynchronous drivers."""
    drivers = [pair for pair in servers.ASYNC_DRIVERS if pair[0] in databases]
    return pytest.mark.parametrize("async_engine", drivers, ids=map("-".join, drivers), indirect=True)


def since_mariadb(major: int, minor: int, feature: str) -> pytest.MarkDecorator:
    """Skip the test on older versions of MariaDB, which lack *feature*."""
    return pytest.mark.since_mariadb((major, minor), feature)


def before_sqlalchemy(*version: int) -> bool:
    """Return True if SQLAlchemy is older than *version*."""
    return tuple(map(int, re.findall(r"\d+", sqlalchemy.__version__)[:3])) < version


fast_ways = pytest.mark.skipif(
    not IS_FAST or before_sqlalchemy(2, 0, 29),
    reason="counts statements of a fast way, which is off: it needs names of SQLAlchemy that are not public",
)
"""Skip the test without the fast ways (``make public``), and before SQLAlchemy 2.0.29, which lacks a name for them."""

classes_die = pytest.mark.skipif(
    sys.version_info[:2] == (3, 13) and bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="the free-threaded build of Python 3.13 keeps every class for ever",
)
"""Skip the test where classes are never freed: https://docs.python.org/3.13/howto/free-threading-python.html."""


def known_defect(part: str, what: str, **options: Any) -> pytest.MarkDecorator:
    """Expect the test to fail because of a known defect; it counts as a failure if it passes.

    Remove the mark when you fix the defect. ``pytest -rx`` lists all marks.

    :param part: the part of the library with the defect: "write path", "live tables", "edge" or "house".
    :param what: what goes wrong, in one sentence.
    """
    return pytest.mark.xfail(reason=f"{part}: {what}", strict=True, **options)
