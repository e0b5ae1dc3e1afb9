"""What a new dialect has to answer: nothing that could change rows or commit too much has an answer by default."""

from __future__ import annotations

from typing import Any

import pytest

from sqlalchemy_public_id.migrations.databases import DATABASES
from sqlalchemy_public_id.migrations.plan import Plan
from sqlalchemy_public_id.migrations.rows import Rows
from sqlalchemy_public_id.migrations.server_defaults import ServerDefaults
from sqlalchemy_public_id.migrations.session import MigrationSession
from sqlalchemy_public_id.migrations.table import LiveTable

NEEDED: dict[type[Any], set[str]] = {
    Plan: {"bytewise", "contract", "defaults_of", "drop", "expand", "loosen", "obstacles", "rights"},
    LiveTable: {
        *("_read_state", "columns_changed_by_updates", "estimate_rows", "read_constraints", "read_references"),
        *("obstacle_of_a_temporary_table", "update_triggers", "without_triggers"),
    },
    Rows: {"is_well_formed", "read_position_columns"},
    MigrationSession: {
        *("begin_step", "count_running", "end_turn", "has_written", "lock_setting", "read_holder", "read_lag"),
        *("read_settings", "try_to_take_turn", "wanted_settings"),
    },
    ServerDefaults: {
        *("as_number", "hyphenated", "milliseconds", "random_digits", "random_number", "seconds_since", "variant"),
    },
}


def test_answers_of_another_database() -> None:
    """Each database has its own answers: one that inherits another's would believe that, say, a lock is held."""
    inherited = {
        f"{cls.__name__}.{name}": answer.__module__
        for database in DATABASES.values()
        for cls, base in zip(database, (Plan, LiveTable, Rows, MigrationSession), strict=True)
        for name in NEEDED[base]
        for answer in [next(part for part in cls.__mro__ if name in vars(part))]
        if answer.__module__.split(".")[:3] != cls.__module__.split(".")[:3]
    }

    assert inherited == {}


@pytest.mark.parametrize("base", NEEDED)
def test_what_a_dialect_must_have(base: type[Any]) -> None:
    """A class without one of these cannot be created; the error names what it lacks, and mypy refuses it."""
    new: Any = type("New", (base,), {})

    assert new.__abstractmethods__ == NEEDED[base]
    with pytest.raises(TypeError, match="abstract"):
        new()
