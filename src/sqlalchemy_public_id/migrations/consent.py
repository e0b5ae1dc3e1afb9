"""The options of an operation on a column of public ids: each with its type, its default and its text.

Alembic's operations, ``public-id … --help`` and the reference are made from :class:`Options` and the dataclasses below,
which hold the values of one operation. :class:`~sqlalchemy_public_id.migrations.PublicIdColumn` holds those that
describe the column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args, get_origin

from sqlalchemy import Connection
from typing_extensions import Doc, TypedDict, get_type_hints

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.stored_ids import SqlType
from sqlalchemy_public_id.typed import TypedId

ServerDefault: TypeAlias = Literal["keep", "drop", "none", "replace"]
Keeps: TypeAlias = Literal["unique", "not null", "all"]
Triggers: TypeAlias = Literal["refuse", "fire", "skip"]
OnDuplicate: TypeAlias = Literal["refuse", "replace"]
OnInvalid: TypeAlias = Literal["refuse", "keep", "replace"]
OnStoredCode: TypeAlias = Literal["refuse", "ignore"]


class Options(TypedDict, total=False):
    """The keyword arguments of the operations. All times are in seconds."""

    format: Annotated[Format | type[TypedId] | None, Doc("The format of the ids; by default ``NanoId()``.")]
    schema: Annotated[str | None, Doc("The schema of the table; by default the default schema of the connection.")]
    unique_name: Annotated[
        str | None,
        Doc(
            "The name for the unique index or constraint if the migration creates it. By default, it comes from the "
            "model or its naming convention; without models, it is ``uq_<table>_<column>``."
        ),
    ]
    unique_with: Annotated[
        Sequence[str],
        Doc(
            "The other columns of the unique index: the key by which the table is partitioned, or distributed over "
            "servers. By default, they come from the model. ``--unique-with`` may be repeated."
        ),
    ]
    sql_type: Annotated[
        SqlType | None,
        Doc(
            "The type of a new column of text: ``TEXT``, which has no length, on PostgreSQL and SQLite. By default, it "
            "comes from the model; without models, it is a ``VARCHAR`` for the format."
        ),
    ]
    collation: Annotated[
        str | None,
        Doc(
            "The new collation of an existing column: ``bytes``, which new columns get, or the name of a collation. By "
            "default, an existing column keeps its collation."
        ),
    ]
    keeps: Annotated[
        Keeps | None, Doc("What loosening leaves in place, because the column had it before it was adopted.")
    ]
    server_default: Annotated[
        ServerDefault,
        Doc(
            "Whether the database generates ids that writers omit: always (``keep``), until the column is complete "
            "(``drop``), or never (``none``): then all writers must pass ids, and loosening removes a default. "
            "``replace`` keeps on generating them, by a new default instead of one for another format."
        ),
    ]
    comment: Annotated[str | None, Doc("A comment for the column, on databases that store comments.")]
    invisible: Annotated[
        bool | None,
        Doc(
            "Whether MySQL (8.0.23) or MariaDB hides the column from ``*`` and from an INSERT without a list of "
            "columns, so that old statements go on; ``False`` shows it again. By default, a new column is visible, and "
            "an existing one stays as it is. MySQL ignores the default of a hidden column in such an INSERT: the "
            'contract has to show it, unless each INSERT lists its columns (``stored_code="ignore"``).'
        ),
    ]
    update_triggers: Annotated[
        Triggers,
        Doc(
            "What to do if an UPDATE of the backfill would fire triggers of the table. PostgreSQL lets superusers skip "
            "them, and SQLite any user."
        ),
    ]
    on_duplicate: Annotated[
        OnDuplicate,
        Doc("What to do if several rows share an id. ``replace`` keeps it in the first row, and logs the others."),
    ]
    on_invalid: Annotated[OnInvalid, Doc("What to do with stored ids that the format does not accept.")]
    stored_code: Annotated[
        OnStoredCode,
        Doc(
            "What to do if triggers, functions or views of the database would fail, or store values in other columns, "
            "because the table gets or loses a column."
        ),
    ]
    allow_lock: Annotated[
        bool,
        Doc(
            "Allow steps that make writers wait, where the database has no other way. MySQL then copies the table, "
            "because its rebuild in place can lose rows (bug 115608)."
        ),
    ]
    lock_timeout: Annotated[
        float,
        Doc(
            "How long a statement waits for a strong lock on the table, while other sessions queue behind it. Then "
            "these run before the next attempt. Partitions of PostgreSQL are locked one after the other, so each lock "
            "gets a fifth of this time. MySQL and MariaDB cannot repeat the end of a rewrite, so it waits as "
            "long as all attempts together."
        ),
    ]
    attempts: Annotated[int, Doc("How often a statement tries to get its lock before it gives up.")]
    index_timeout: Annotated[
        float,
        Doc(
            "How long the build of the unique index waits for open transactions to end, and the operation for another "
            "migration of the table."
        ),
    ]
    batch_seconds: Annotated[float, Doc("How long a batch of the backfill should take. The number of its rows adapts.")]
    pause: Annotated[float, Doc("How long to pause after a batch, as a share of its duration.")]
    wait_while: Annotated[
        Callable[[Connection], bool] | None,
        Doc(
            "Called before each batch with the connection. The backfill waits while it returns ``True``, for a replica "
            "or a busy server."
        ),
    ]
    online: Annotated[
        bool,
        Doc("``False`` runs all steps inside the open transaction, which locks the table until it ends."),
    ]
    dry_run: Annotated[
        bool,
        Doc(
            "Change nothing, and end the migration with :class:`~sqlalchemy_public_id.errors.DryRun`, which has a "
            "report of all steps. No version is stored."
        ),
    ]


class Option(NamedTuple):
    """What is known about an option."""

    type: Any
    text: str


def describe_options() -> dict[str, Option]:
    """Return name → type and text of each option, in the order of :class:`Options`."""
    described: dict[str, Option] = {}
    for name, annotated in get_type_hints(Options, include_extras=True).items():
        type_, doc = get_args(annotated)
        described[name] = Option(type_, doc.documentation)
    return described


def choices_of(type_: Any) -> tuple[str, ...]:
    """Return the values of an option that has only some; an empty tuple for any other *type_*."""
    literals = [part for part in (type_, *get_args(type_)) if get_origin(part) is Literal]
    return get_args(literals[0]) if literals else ()


def defaults_of(cls: Any) -> dict[str, Any]:
    """Return the fields of the dataclass *cls* that are options, each with its default."""
    return {
        field.name: None if field.default is MISSING else field.default
        for field in fields(cls)
        if field.name in Options.__annotations__
    }


Held = TypeVar("Held")


def take_fields(cls: type[Held], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of *options* that are fields of the dataclass *cls*."""
    return {name: options[name] for name in defaults_of(cls) if name in options}


# --- checks


def check_flags(**arguments: object) -> None:
    """Raise an error if a value is neither ``True`` nor ``False``, because ``"false"`` would count as true."""
    for name, value in arguments.items():
        if not isinstance(value, bool):
            raise ConfigurationError(f"{name} is {safe_repr(value)}, expected True or False")


def check_choices(holder: object) -> None:
    """Raise an error if a field of *holder* is not one of the few values that its option has."""
    for name, option in describe_options().items():
        choices, value = choices_of(option.type), getattr(holder, name, None)
        if choices and hasattr(holder, name) and value not in (*choices, *_optional(option.type)):
            expected = ", ".join(map(repr, choices))
            raise ConfigurationError(f"{name} is {safe_repr(value)}, expected one of {expected}")


def _optional(type_: Any) -> tuple[None, ...]:
    return (None,) if type(None) in get_args(type_) else ()


def is_time(value: object) -> bool:
    """Return True for a number of seconds."""
    return isinstance(value, (int, float)) and value >= 0


# --- the values of one operation


@dataclass(frozen=True)
class Consent:
    """What a migration may do to existing rows and to other users of the table. By default, all of it is refused."""

    update_triggers: Triggers = "refuse"
    on_duplicate: OnDuplicate = "refuse"
    on_invalid: OnInvalid = "refuse"
    stored_code: OnStoredCode = "refuse"
    allow_lock: bool = False

    def __post_init__(self) -> None:
        check_choices(self)
        check_flags(allow_lock=self.allow_lock)


@dataclass(frozen=True)
class Timeouts:
    """How long a migration waits for locks, in seconds and attempts."""

    lock_timeout: float = 1.0
    attempts: int = 30  # with growing pauses between them
    index_timeout: float = 600.0

    def __post_init__(self) -> None:
        is_possible = all(map(is_time, (self.lock_timeout, self.index_timeout))) and isinstance(self.attempts, int)
        if not (is_possible and self.attempts >= 1 and self.lock_timeout > 0 and self.index_timeout > 0):
            raise ConfigurationError(f"{self!r} cannot work: expected times above 0 and at least one attempt")


@dataclass(frozen=True)
class Pace:
    """How fast a backfill works, and when it waits."""

    batch_seconds: float = 0.5
    """How many seconds a batch should take. The number of its rows adapts."""
    pause: float = 0.1
    """How long to pause after a batch, as a share of its duration."""
    wait_while: Callable[[Connection], bool] | None = None
    """Called before each batch with the connection. The backfill waits while it returns ``True``."""

    def __post_init__(self) -> None:
        if not (is_time(self.batch_seconds) and self.batch_seconds > 0 and is_time(self.pause)):
            raise ConfigurationError(
                f"batch_seconds={self.batch_seconds!r}, pause={self.pause!r} cannot work: expected seconds above 0, "
                f"and a pause of 0 or more"
            )
        if self.wait_while is not None and not callable(self.wait_while):
            raise ConfigurationError(f"wait_while is {safe_repr(self.wait_while)}, expected a function")


@dataclass(frozen=True)
class Mode:
    """Whether an operation commits each step, and whether it only reports. The command line always commits each."""

    online: bool = True
    dry_run: bool = False

    def __post_init__(self) -> None:
        check_flags(online=self.online, dry_run=self.dry_run)


HOLDERS: tuple[type[Any], ...] = (Consent, Timeouts, Pace, Mode)
"""The dataclasses that hold the options, but for those that describe the column."""
