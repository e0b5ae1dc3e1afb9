"""Renames private names of SQLAlchemy one by one: nothing may die, and nothing may be wrong in silence.

A sample of the names is renamed on SQLite. ``PUBLIC_ID_ALL_NAMES=1 pytest tests/whole/test_private_names.py -n 2``
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

from conftest import url_of

PROGRAM = Path(__file__).parent / "renamed_names.py"

NAMES = """
    EXECUTEMANY INSERTMANYVALUES PASSIVE_NO_INITIALIZE _InsertManyValuesBatch _autobegin_t _begin _bind_processors
    _cached_result_processor _capture_exception _collected_params _compiler _deannotate
    _deliver_insertmanyvalues_batches _dict _emit_insert_statements _for_update_arg _generate _generate_cache_key
    _get_sentinel_column_for_table _group_number _has_row_limiting_clause _identity_class
    _inserted_primary_key_from_lastrowid_getter _inserted_primary_key_from_returning_getter _insertmanyvalues
    _insertmanyvalues_rows _instance_dict _managers _memo _multi_values _new _numeric_binds _order_by_clauses
    _orphaned_outside_of_session _pending_mutations _post_values_clause _register_persistent _rowcount _save_impl
    _select_names _sentinel_column _strong_obj _transaction _values _with_options _wr batchnum bind_names bindtemplate
    column_keys committed_state compiled_parameters construct_params current_batch_size current_column dispatch
    effective_returning element_list embed_values_counter escaped_bind_names execute_style expired_attributes
    fetchall_for_returning hash_key implicit_returning implicit_sentinel in_greenlet insert_crud_params insert_prefetch
    insert_single_values_expr isinsert num_positional_params_counted positiontup replaced_parameters replaced_statement
    result_tuple root_connection sentinel_columns sentinel_param_keys sentinel_values session_id statement_compiler
    total_batches type_compiler_instance update_values_to_set
"""
"""Names that SQLAlchemy does not promise to keep, of the parts that the library has used in one of its versions."""

SAMPLE = """
    _values effective_returning fetchall_for_returning _register_persistent _strong_obj _insertmanyvalues
    insert_prefetch compiled_parameters execute_style INSERTMANYVALUES positiontup _capture_exception
    update_values_to_set _order_by_clauses _instance_dict root_connection _sentinel_column dispatch
"""
"""Names without which the library does something in another way, or not at all."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sqlalchemy.__version__ < "2.1", reason="the names are those of SQLAlchemy 2.1"),
]


EVERY = "PUBLIC_ID_ALL_NAMES" in os.environ


@pytest.mark.parametrize("database", ["sqlite", "postgresql"] if EVERY else ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", (NAMES if EVERY else SAMPLE).split())
def test_another_name(database: str, name: str) -> None:
    """Import, declaration, flush, lookup and the refusal of mistakes work if SQLAlchemy calls *name* something else."""
    assert failures(database, [rf"\b{name}\b", f"{name}_renamed", ""]) == []


def failures(database: str, *rules: list[str]) -> list[str]:
    """Return what does not work on *database* after these replacements: an expression, another text, and files."""
    url = "sqlite://" if database == "sqlite" else url_of(database).render_as_string(hide_password=False)
    run = subprocess.run(
        [sys.executable, str(PROGRAM), json.dumps(rules), url], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(run.stdout)
    if not found["rewritten"]:
        pytest.fail(f"SQLAlchemy has nothing of {rules} any more: take it from the list")
    failed: list[str] = found["failures"]
    return failed


CONVENTIONS = {
    "rows of a batch": [
        [r"__\{i\}", "_row{i}", r"sql/compiler\.py$"],
        ["__EXECMANY_INDEX__", "_rowEXECMANY_INDEX__", r"sql/compiler\.py$"],
    ],
    "rows of values()": [["_m%d", "_row%d", r"crud\.py$"], [r"_m\{", "_row{", r"crud\.py$"]],
    "columns of values()": [[r"\boriginal\b", "column", r"crud\.py$"]],
}
"""What the parameters of many rows, and the columns of their defaults, are called."""


@pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True)
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_names_of_another_form(database: str, convention: str) -> None:
    """INSERTs of many rows work if SQLAlchemy forms the names of their parameters in another way."""
    assert failures(database, *CONVENTIONS[convention]) == []
