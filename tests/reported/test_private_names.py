"""Renames private names of SQLAlchemy one by one: nothing may die, and nothing may be wrong in silence.

``python tests/reported/renamed_names.py`` does the same with other names, and on PostgreSQL.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy
from marks import known_defect

PROGRAM = Path(__file__).parent / "renamed_names.py"

UNNOTICED = [
    "_multi_values",
    "_values",
    "_select_names",
    "_deannotate",
    "implicit_sentinel",
    "effective_returning",
    "fetchall_for_returning",
    "_register_persistent",
    "insert_crud_params",
    "_get_sentinel_column_for_table",
    "_managers",
    "_for_update_arg",
    "_strong_obj",
    "_pending_mutations",
    "_compiler",
]
"""Names that the library uses, and can do without on SQLite."""

NEEDED = [
    "_post_values_clause",
    "_insertmanyvalues",
    "num_positional_params_counted",
    "insert_prefetch",
    "compiled_parameters",
    "execute_style",
    "positiontup",
    "_rowcount",
    "_save_impl",
    "_autobegin_t",
    "_capture_exception",
    "committed_state",
    "_emit_insert_statements",
    "_memo",
    "statement_compiler",
    "_deliver_insertmanyvalues_batches",
    "update_values_to_set",
    "_order_by_clauses",
    "_instance_dict",
    "bind_names",
    "escaped_bind_names",
    "root_connection",
]
"""Names without which something does not work today."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sqlalchemy.__version__ < "2.1", reason="the names are those of SQLAlchemy 2.1"),
]


@pytest.mark.parametrize(
    "name",
    [
        *UNNOTICED,
        *[
            pytest.param(name, marks=known_defect("write path", "SQLAlchemy's name is needed", raises=AssertionError))
            for name in NEEDED
        ],
    ],
)
def test_another_name(name: str) -> None:
    """Import, declaration, flush, lookup and the refusal of mistakes work if SQLAlchemy calls *name* something else."""
    rule = [rf"\b{name}\b", f"{name}_renamed", ""]
    run = subprocess.run(
        [sys.executable, str(PROGRAM), json.dumps([rule]), "sqlite://"], capture_output=True, text=True, check=True
    )
    found = json.loads(run.stdout)
    if not found["rewritten"]:
        pytest.fail(f"SQLAlchemy has no {name} any more: take it from the list")
    assert found["failures"] == []
