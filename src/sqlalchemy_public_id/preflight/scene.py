"""What the checks of one migration have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, get_args

from sqlalchemy import Connection

from sqlalchemy_public_id.backfill.triggers import Triggers
from sqlalchemy_public_id.errors import ConfigurationError, safe_repr
from sqlalchemy_public_id.migrating.column_state import State, estimate_rows
from sqlalchemy_public_id.migrating.plan import Plan, PublicIdColumn, Step

OnDuplicate: TypeAlias = Literal["refuse", "replace"]
OnInvalid: TypeAlias = Literal["refuse", "keep", "replace"]


@dataclass(frozen=True)
class Consent:
    """What a migration may do to rows that it finds, and to others that use the table."""

    update_triggers: Triggers = "refuse"
    on_duplicate: OnDuplicate = "refuse"
    on_invalid: OnInvalid = "refuse"
    allow_lock: bool = False

    def __post_init__(self) -> None:
        for name, choices in (
            ("update_triggers", get_args(Triggers)),
            ("on_duplicate", get_args(OnDuplicate)),
            ("on_invalid", get_args(OnInvalid)),
        ):
            value: object = getattr(self, name)
            if value not in choices:
                expected = ", ".join(map(repr, choices))
                raise ConfigurationError(f"{name} is {safe_repr(value)}, expected one of {expected}")


@dataclass(frozen=True)
class Scene:
    """What the checks of one migration have in common."""

    connection: Connection
    plan: Plan
    phases: Sequence[str]
    """``expand``, ``backfill``, ``contract``, ``relax`` or ``drop``."""
    consent: Consent
    state: State
    runs: bool = False
    """True if the phases run afterwards."""

    @property
    def target(self) -> PublicIdColumn:
        return self.plan.target

    @cached_property
    def rows(self) -> int | None:
        """The number of rows of the table, as the database estimates it."""
        return estimate_rows(self.connection, self.target.table, self.target.schema)

    @cached_property
    def steps(self) -> list[tuple[str, Step]]:
        """The phase of each step that is needed, and the step; without those of the backfill."""
        phases = [phase for phase in self.phases if phase != "backfill"]
        every = [(phase, step) for phase in phases for step in getattr(self.plan, phase)()]
        return [(phase, step) for phase, step in every if step.needed(self.state)]

    @property
    def begins_with_index(self) -> bool:
        """True if the phases run now, and change nothing before the unique index is built."""
        is_contract = [*self.phases] == ["contract"] and self.plan.online and self.consent.on_invalid != "replace"
        return self.runs and is_contract and not self.plan.changes_collation(self.state)

    @cached_property
    def fills_rows(self) -> bool:
        """True if the backfill will change rows."""
        return "backfill" in self.phases and self.target.has_rows_to_fill(self.connection)
