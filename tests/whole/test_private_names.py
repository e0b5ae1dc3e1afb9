"""Rename private names of SQLAlchemy one by one: the library must still work, and must not fail silently.

A sample of the names is renamed on SQLite. ``PUBLIC_ID_ALL_NAMES=1 pytest tests/whole/test_private_names.py -n 2``
renames each of them, on SQLite and on PostgreSQL.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import sqlalchemy

from conftest import url_of
from sqlalchemy_public_id import _private

PROGRAM = Path(__file__).with_name("renamed_names.py")
TABLE = Path(__file__).with_name("names-of-sqlalchemy.md")
NAMES = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", TABLE.read_text(), re.MULTILINE))
"""Name that the library reads → what happens without it."""

SAMPLE = """
    _values effective_returning fetchall_for_returning _register_persistent _strong_obj _insertmanyvalues
    insert_prefetch compiled_parameters execute_style INSERTMANYVALUES positiontup _capture_exception
    update_values_to_set _instance_dict root_connection _sentinel_column dispatch
"""
ON_POSTGRESQL = "_multi_values _values"
EVERY = "PUBLIC_ID_ALL_NAMES" in os.environ

slow = pytest.mark.slow
of_this_release = pytest.mark.skipif(sqlalchemy.__version__ < "2.1", reason="the names are those of SQLAlchemy 2.1")


def test_every_name_is_listed() -> None:
    """The list has every private name of SQLAlchemy that the library reads, and no other names."""
    source = Path(_private.__file__).read_text()
    nodes = [*ast.walk(ast.parse(source))]
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    read = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    read |= {word for text in texts if re.fullmatch(r"[\w ]+", text) for word in text.split()}
    private = {name for name in read if re.match("_[a-z]", name)} - {"_fields"}  # _fields of named tuples is public

    assert private - NAMES.keys() == set()
    assert [name for name in NAMES if not re.search(rf"\b{name}\b", source)] == []


@slow
@of_this_release
@pytest.mark.parametrize(
    ("database", "name"),
    [
        *product(["sqlite"], NAMES if EVERY else SAMPLE.split()),
        *product(["postgresql"], NAMES if EVERY else ON_POSTGRESQL.split()),
    ],
    indirect=["database"],
)
def test_another_name(database: str, name: str) -> None:
    """Flush, lookup, bulk insert and refusals work if SQLAlchemy renames *name*, with a warning if the list says
    so."""
    warned = run(database, [rf"\b{name}\b", f"{name}_renamed", ""])

    other = {"sqlite": "PostgreSQL", "postgresql": "SQLite"}[database]
    assert bool(warned) == ("warning" in NAMES[name] and not NAMES[name].startswith(other))


def run(database: str, *rules: list[str]) -> list[str]:
    """Use the library on *database* after these replacements, and return its warnings."""
    url = "sqlite://" if database == "sqlite" else url_of(database).render_as_string(hide_password=False)
    command = [sys.executable, str(PROGRAM), json.dumps(rules), url]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert found["rewritten"], f"SQLAlchemy has nothing of {rules} any more: take it from the list"
    assert found["failures"] == []
    assert len(found["warned"]) == len(set(found["warned"])), "it warns twice of one effect"
    return list(found["warned"])


CONVENTIONS = {
    "rows of a batch": [
        [r"__\{i\}", "_row{i}", r"sql/compiler\.py$"],
        ["__EXECMANY_INDEX__", "_rowEXECMANY_INDEX__", r"sql/compiler\.py$"],
    ],
    "rows of values()": [["_m%d", "_row%d", r"crud\.py$"], [r"_m\{", "_row{", r"crud\.py$"]],
    "columns of values()": [[r"\boriginal\b", "column", r"crud\.py$"]],
}
"""SQLAlchemy's names for the parameters of many rows, and for the columns of their defaults."""


@slow
@of_this_release
@pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True)
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_names_of_another_form(database: str, convention: str) -> None:
    """INSERTs of many rows work if SQLAlchemy names their parameters differently."""
    run(database, *CONVENTIONS[convention])
