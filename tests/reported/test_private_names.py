"""Renames private names of SQLAlchemy one by one: nothing may die, and nothing may be wrong in silence.

A sample of the names is renamed on SQLite. ``PUBLIC_ID_ALL_NAMES=1 pytest tests/reported/test_private_names.py -n 2``
renames each of them, on SQLite and on PostgreSQL, in about three minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from marks import known_defect

from conftest import url_of

PROGRAM = Path(__file__).parent / "renamed_names.py"

NEEDED = """
    _post_values_clause _insertmanyvalues escaped_bind_names sentinel_columns insert_prefetch update_values_to_set
    _save_impl _autobegin_t _begin _capture_exception _identity_class _dict _wr _transaction _new _instance_dict
    _orphaned_outside_of_session hash_key expired_attributes session_id committed_state _memo statement_compiler
    compiled_parameters execute_style INSERTMANYVALUES isinsert root_connection
"""
"""Names without which something does not work today."""

NEEDED_ON = {
    "sqlite": """
        positiontup num_positional_params_counted column_keys _bind_processors
        _deliver_insertmanyvalues_batches sentinel_values
    """,
    "postgresql": """
        _multi_values _values bind_names implicit_sentinel effective_returning _insertmanyvalues_rows
        fetchall_for_returning
    """,
}
"""Names without which something does not work on one database."""

UNNOTICED = """
    _select_names _deannotate element_list _register_persistent _strong_obj _pending_mutations
    _get_sentinel_column_for_table _order_by_clauses _has_row_limiting_clause _with_options _for_update_arg
"""
"""Names that the library uses, and can do without."""

SAMPLE = """
    _multi_values _values _select_names _deannotate effective_returning fetchall_for_returning _register_persistent
    _strong_obj _compiler _post_values_clause _insertmanyvalues insert_prefetch compiled_parameters
    execute_style positiontup _save_impl _capture_exception _memo statement_compiler
    _deliver_insertmanyvalues_batches update_values_to_set _with_options _for_update_arg _instance_dict
    bind_names root_connection
"""
"""Names of each kind: without some the import fails, without others the first flush, collision or page."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sqlalchemy.__version__ < "2.1", reason="the names are those of SQLAlchemy 2.1"),
]


def renamed(database: str, names: list[str]) -> list[Any]:
    """Give the parameters of tests: *database* and name, with a mark where the name is needed."""
    needed = {*NEEDED.split(), *NEEDED_ON[database].split()}
    defect = known_defect("write path", "SQLAlchemy's name is needed", raises=AssertionError)
    return [pytest.param(database, name, marks=defect if name in needed else []) for name in names]


def all_names() -> list[str]:
    return " ".join([NEEDED, *NEEDED_ON.values(), UNNOTICED]).split()


@pytest.mark.parametrize(
    ("database", "name"),
    [*renamed("sqlite", all_names()), *renamed("postgresql", all_names())]
    if "PUBLIC_ID_ALL_NAMES" in os.environ
    else renamed("sqlite", SAMPLE.split()),
    indirect=["database"],
)
def test_another_name(database: str, name: str) -> None:
    """Import, declaration, flush, lookup and the refusal of mistakes work if SQLAlchemy calls *name* something else."""
    rule = [rf"\b{name}\b", f"{name}_renamed", ""]
    url = "sqlite://" if database == "sqlite" else url_of(database).render_as_string(hide_password=False)
    run = subprocess.run(
        [sys.executable, str(PROGRAM), json.dumps([rule]), url], capture_output=True, text=True, check=True
    )
    found = json.loads(run.stdout)
    if not found["rewritten"]:
        pytest.fail(f"SQLAlchemy has no {name} any more: take it from the list")
    assert found["failures"] == []
