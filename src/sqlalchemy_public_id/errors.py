"""Every error of this library, in one tree.

.. code-block:: text

    PublicIdError
    ├── InvalidPublicId (ValueError)      a string is not a public id of the expected format
    ├── InvalidKey (ValueError)           a public id, or another text, is given in place of an integer key
    ├── PublicIdNotFound (LookupError)    a well-formed public id belongs to no row
    │   └── InvalidCursor                 a page cannot begin at a cursor
    ├── AmbiguousPublicId (LookupError)   several rows have one public id, which is unique only with other columns
    ├── InvalidPage (ValueError)          the limit of a page is out of range, or it has two cursors
    ├── ReferenceNotReadable (LookupError)  a foreign key is set, and no public id can be read
    ├── PublicIdCollision                 no free public id was found in max_retries attempts
    ├── IdempotencyConflict               a repeated insert differs from the row that has its public id
    ├── ImmutablePublicId                 the public id of a stored row would change
    ├── ConfigurationError                a declaration that cannot work
    │   ├── DuplicatePrefix               two owners of one prefix, or of two ambiguous ones
    │   └── MigrationRefused              a migration cannot reach its end, and has changed nothing
    ├── DryRun                            the end of a migration that was only to be reported
    ├── BackfillIncomplete                rows have no public id yet, so the column cannot become NOT NULL
    ├── LockNotAvailable                  a migration could not lock a table in time
    ├── LeaseNotAvailable                 no block of keys could be leased in time
    ├── KeySpaceExhausted                 a key generator has issued its last key
    ├── ClockMovedBack                    the clock of this machine went back further than an id can wait for
    └── MissingExtra (ModuleNotFoundError)  an optional dependency is not installed

``ConfigurationError`` and its subclasses, ``BackfillIncomplete``, ``KeySpaceExhausted`` and ``MissingExtra`` require a
change to the program, its database or its installation. Each error has its details as attributes and can be pickled.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from sqlalchemy_public_id.messages import command_line, concealed, key_hint, safe_repr, who_keeps_the_lock

__all__ = [
    "AmbiguousPublicId",
    "BackfillIncomplete",
    "ClockMovedBack",
    "ConfigurationError",
    "DryRun",
    "DuplicatePrefix",
    "ImmutablePublicId",
    "InvalidCursor",
    "InvalidKey",
    "InvalidPage",
    "InvalidPublicId",
    "KeySpaceExhausted",
    "LeaseNotAvailable",
    "LockNotAvailable",
    "MigrationRefused",
    "MissingExtra",
    "PublicIdCollision",
    "IdempotencyConflict",
    "PublicIdError",
    "PublicIdNotFound",
    "PublicIdWarning",
    "ReferenceNotReadable",
]


class PublicIdWarning(UserWarning):
    """A call is probably a mistake of the program, but may be harmless, so it is not refused."""


class PublicIdError(Exception):
    """The base of every error of this library."""

    _pickled_as: ClassVar[type[PublicIdError] | None] = None
    """The class to restore, if the class of the error is made at run time."""

    def __init__(self, *args: object) -> None:
        Exception.__init__(self, *args)  # super() may be the error of a web framework, whose arguments are others

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the attributes: the constructors take keywords, which the default would lose."""
        cls = self._pickled_as or type(self)
        return cls.__new__, (cls, *self.args), dict(self.__dict__)


class InvalidPublicId(PublicIdError, ValueError):
    """The string is not a public id of the expected format.

    >>> from sqlalchemy_public_id import InvalidPublicId, NanoId
    >>> try:
    ...     NanoId(prefix="cus").validate("ord_izkpm55j334u", field="customer")
    ... except InvalidPublicId as error:
    ...     print(error)
    customer: 'ord_izkpm55j334u' is not a public id: the prefix is 'ord' (expected cus_ and 12 of 0-9 a-z)
    """

    def __init__(self, value: object, *, expected: str, reason: str, field: str | None = None) -> None:
        where = f"{field}: " if field else ""
        problem = f"{safe_repr(value)} is not a public id: {reason} (expected {expected})"
        super().__init__(f"{where}{problem}{key_hint(value)}")
        self.value: object = value
        """The whole value."""
        self.expected: str = expected
        """The expected format, in words."""
        self.reason: str = reason
        """The reason, in words."""
        self.field: str | None = field
        """The name of the field, if the caller passed one."""


class InvalidKey(PublicIdError, ValueError):
    """A text that is no integer, such as a public id, is given in place of the internal key of a row.

    It is a mistake of the program: MySQL and MariaDB would read ``'7abcdefghijk'`` as the key 7.
    """

    def __init__(self, value: object) -> None:
        super().__init__(
            f"{safe_repr(value)} is compared with, or stored as, an integer key (the id of a model, or a foreign key); "
            f"to find a row by its public id, write lookup.get(session, Model, public_id); "
            f"to refer to a row, assign the object, or its public id to a public_ref()"
        )
        self.value: object = value
        """The whole value, or the expression."""


class PublicIdNotFound(PublicIdError, LookupError):
    """No row has this public id.

    A malformed string raises it, too: to a client, both mean that no such row exists. The message does not show a value
    that was looked up in a model with tokens, because it may be one.
    """

    def __init__(self, value: object, *, model: str, field: str | None = None, may_be_token: bool = False) -> None:
        where = f"{field}: " if field else ""
        shown = concealed(value) if may_be_token else safe_repr(value)
        super().__init__(f"{where}no {model} has the public id {shown}{key_hint(value)}")
        self.value: object = value
        """The whole public id."""
        self.model: str = model
        """The name of the model that was searched."""
        self.field: str | None = field
        """The name of the field or attribute, if there is one."""


class InvalidCursor(PublicIdNotFound):
    """The cursor is malformed, belongs to no row, or comes from a page with another ``order_by``."""

    def __init__(
        self, value: object, *, model: str, field: str, reason: str | None = None, may_be_token: bool = False
    ) -> None:
        super().__init__(value, model=model, field=field, may_be_token=may_be_token)
        self.reason: str = reason or f"no {model} has this public id"
        """What is wrong with the cursor."""
        if reason is not None:
            shown = concealed(value) if may_be_token else safe_repr(value)
            self.args: tuple[Any, ...] = (f"{field}: {shown} cannot be a cursor: {reason}; begin with the first page",)


class AmbiguousPublicId(PublicIdError, LookupError):
    """Several rows have the public id: it is unique only with other columns, whose values the lookup left open."""

    def __init__(self, public_ids: Sequence[object], *, model: str, columns: Sequence[str] = ()) -> None:
        shown, names = ", ".join(map(safe_repr, public_ids[:3])), ", ".join(f"{model}.{name}" for name in columns)
        why = f"it is unique only with {names}; compare it with one value in where=" if columns else "it is not unique"
        super().__init__(f"several rows of {model} have the public id {shown}: {why}")
        self.public_ids: tuple[object, ...] = tuple(public_ids)
        """The ids that several rows have."""
        self.model: str = model
        """The name of the model that was searched."""
        self.columns: tuple[str, ...] = tuple(columns)
        """The names of the attributes with which an id is unique; none if the table has no unique index."""


class InvalidPage(PublicIdError, ValueError):
    """The limit of a page is out of range, or the page has two cursors. Both usually come from a client."""

    def __init__(self, message: str, *, field: str, reason: str) -> None:
        super().__init__(message)
        self.field: str = field
        """The name of the argument of ``lookup.page``: ``limit``, ``after`` or ``before``."""
        self.reason: str = reason
        """What was expected, in words, without the value."""


class ReferenceNotReadable(PublicIdError, LookupError):
    """The public id behind a foreign key cannot be read: the row is missing, is hidden by the database, or has none.

    The message does not contain the key, because it may reach a client.
    """

    def __init__(self, *, field: str, model: str, key: object) -> None:
        super().__init__(
            f"{field}: the foreign key is set, but the public id of its {model} cannot be read, because the row does "
            f"not exist, row-level security hides it from this connection, or the backfill has not reached it yet; "
            f"assign another public id, grant the right to read the row, or backfill the table"
        )
        self.field: str = field
        """The reference, with its model: ``Order.customer_public_id``."""
        self.model: str = model
        """The name of the model that the foreign key points to."""
        self.key: object = key
        """The value of the foreign key."""


class PublicIdCollision(PublicIdError):
    """No free public id was found for a row in ``max_retries`` attempts.

    The row is not stored, and the transaction remains usable. Either the format is too small for the table (see
    :attr:`capacity`), or its generator is not random.
    """

    def __init__(self, *, model: str, column: str, format: object, attempts: int, capacity: int) -> None:
        possible = f"{capacity}" if capacity < 10**9 else f"about 10**{len(str(capacity)) - 1}"
        super().__init__(
            f"{model}.{column}: no free public id in {attempts} attempts with {format!r}: nearly all of its {possible} "
            f"possible ids are taken, or its generator is not random; use a longer format (old ids stay valid with "
            f"new_format.accepting(old_format))"
        )
        self.model: str = model
        """The name of the model, or of the table if none is mapped."""
        self.column: str = column
        """The name of the public-id column."""
        self.format: object = format
        """The format that generated the ids."""
        self.attempts: int = attempts
        """The number of ids that were tried for the row."""
        self.capacity: int = capacity
        """The number of ids that the format can generate."""


class IdempotencyConflict(PublicIdError):
    """An insert was repeated with a public id that is stored with different contents. Nothing was written."""

    def __init__(self, public_id: str, *, model: str, differing: tuple[str, ...] = ()) -> None:
        how = f" with a different {', '.join(differing)}" if differing else ", but does not meet the condition"
        advice = "repeat the insert with the same values, or use a new public id for a new row"
        super().__init__(f"{model} {safe_repr(public_id)} already exists{how}; {advice}")
        self.public_id: str = public_id
        """The public id of the insert and of the stored row."""
        self.model: str = model
        """The name of the model."""
        self.differing: tuple[str, ...] = differing
        """The names of the attributes whose values differ; none if the row does not meet the caller's condition."""


class ImmutablePublicId(PublicIdError):
    """The public id of a stored row was about to change, which would break every link to the row."""

    def __init__(self, message: str, *, model: str, attribute: str, old: object = None, new: object = None) -> None:
        super().__init__(message)
        self.model: str = model
        """The name of the model or table."""
        self.attribute: str = attribute
        """The name of the attribute or column."""
        self.old: object = old
        """The public id of the row, if it is known."""
        self.new: object = new
        """The public id that was refused, if it is known."""


class ConfigurationError(PublicIdError):
    """The declaration is invalid. The message says how to fix it."""


class DuplicatePrefix(ConfigurationError):
    """A prefix is used twice, or is ambiguous with another one, so that an id could belong to two types."""

    def __init__(self, prefix: str, *, holder: str, newcomer: str, why: str) -> None:
        super().__init__(f"the prefix {prefix!r} of {newcomer} {why} {holder}: choose another prefix for one of them")
        self.prefix: str = prefix
        """The prefix of the newcomer."""
        self.holder: str = holder
        """The name of the owner of the prefix."""
        self.newcomer: str = newcomer
        """The name of the other class."""


class BackfillIncomplete(PublicIdError):
    """Some rows have no public id yet. Nothing was changed; the message contains the command to run first."""

    def __init__(self, *, table: str, column: str, missing: int, format: object, schema: str | None = None) -> None:
        full_name = f"{schema}.{table}" if schema else table
        rows = f"1 row of {full_name} has" if missing == 1 else f"{missing:,} rows of {full_name} have"
        command = command_line("backfill", table, column=column, format=format, schema=schema)
        first = f"fill them first, with op.backfill_public_id({table!r}) in an earlier migration, or with: {command}"
        super().__init__(f"{rows} no {column} yet; {first}")
        self.table: str = table
        self.column: str = column
        self.schema: str | None = schema
        self.format: object = format
        self.missing: int = missing
        """The number of rows without an id."""


@dataclass(frozen=True)
class Obstacle:
    """A condition in the database that prevents a migration."""

    code: str
    """A short name, such as ``"foreign-default"``."""
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.problem}; {self.remedy}"


class MigrationRefused(ConfigurationError):
    """A migration cannot complete, or would make a forbidden change. Nothing was changed."""

    def __init__(self, *, target: object, obstacles: Sequence[Obstacle]) -> None:
        count = "1 obstacle" if len(obstacles) == 1 else f"{len(obstacles)} obstacles"
        lines = "".join(f"\n- {obstacle}" for obstacle in obstacles)
        super().__init__(f"{target}: {count}, and nothing was changed:{lines}")
        self.target: str = str(target)
        """The column, with its table and schema."""
        self.obstacles: tuple[Obstacle, ...] = tuple(obstacles)


class DryRun(PublicIdError):
    """Raised at the end of an operation with ``dry_run=True``. Nothing was changed; the message is the report."""

    def __init__(self, report: object) -> None:
        super().__init__(str(report))
        self.report: Any = report
        """The :class:`~sqlalchemy_public_id.migrations.report.MigrationReport`."""


class LockNotAvailable(PublicIdError):
    """A migration could not lock a table in time. Completed steps are kept; run the migration again."""

    def __init__(
        self, *, step: str, table: str, attempts: int, timeout: float, holder: int | None = None, users: str = ""
    ) -> None:
        super().__init__(f"{table}: could not {step}: {who_keeps_the_lock(attempts, timeout, holder, users)}")
        self.step: str = step
        """The step that needed the lock."""
        self.table: str = table
        self.attempts: int = attempts
        self.timeout: float = timeout
        """The lock timeout of each attempt, in seconds."""
        self.holder: int | None = holder
        """The number of the connection that holds the lock, if it belongs to another migration."""
        self.users: str = users
        """Up to three connections that have locked the table, for people; empty if the database names none."""


class LeaseNotAvailable(PublicIdError):
    """No block of keys could be leased in time. No key was lost or issued twice, so the call can be repeated."""

    def __init__(self, name: str, *, timeout: float, reason: str, advice: str) -> None:
        super().__init__(f"no block of {name!r} could be leased within {timeout:g} s: {reason}; {advice}")
        self.name: str = name
        """The name of the sequence."""
        self.timeout: float = timeout
        """How many seconds the call waited."""
        self.reason: str = reason
        """The reason, in words."""


class KeySpaceExhausted(PublicIdError):
    """A key generator has issued its last key."""


class ClockMovedBack(PublicIdError):
    """The clock of this machine moved back too far to wait for it. No id was generated."""

    def __init__(self, *, behind: float, tolerance: float) -> None:
        super().__init__(
            f"the clock is {behind:.3f} s behind the last generated id, so a new id could repeat an earlier one, and "
            f"ids wait for {tolerance:g} s at most; let the time service slew the clock (chrony, ntpd -x)"
        )
        self.behind: float = behind
        """How many seconds the clock is behind the last id."""
        self.tolerance: float = tolerance
        """How many seconds ids wait at most."""


class MissingExtra(PublicIdError, ModuleNotFoundError):
    """An optional dependency is not installed; the message is the command that installs it."""

    def __init__(self, package: str, *, extra: str) -> None:
        command = f"pip install 'sqlalchemy-public-id[{extra}]'"
        ModuleNotFoundError.__init__(self, f"{package} is not installed; run: {command}", name=package)
        self.extra: str = extra
        """The extra of this distribution that brings the package."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle name and message as well, which an ImportError does not have in its ``__dict__``."""
        rebuild, arguments, state = super().__reduce__()
        return rebuild, arguments, {**state, "name": self.name, "msg": self.msg}


@contextmanager
def require(package: str, *, extra: str | None = None) -> Generator[None]:
    """Raise :class:`MissingExtra` if the block imports a missing module; *extra* defaults to *package*."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtra(package, extra=extra or package) from error
