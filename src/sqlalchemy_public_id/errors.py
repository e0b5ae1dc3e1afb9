"""Every error of this library, in one tree.

.. code-block:: text

    PublicIdError
    ├── InvalidPublicId (ValueError)      a text is not a public id of the expected format
    ├── PublicIdNotFound (LookupError)    a well-formed public id belongs to no row
    ├── ReferenceNotReadable (LookupError)  a foreign key is set, and no public id can be read
    ├── PublicIdCollision                 no free public id was found in max_retries attempts
    ├── PublicIdConflict                  a repeated insert differs from the row that has its public id
    ├── ImmutablePublicId                 the public id of a stored row would change
    ├── ConfigurationError                a declaration that cannot work
    │   └── DuplicatePrefix               two owners of one prefix, or of two that cannot be told apart
    ├── BackfillIncomplete                rows have no public id yet, so that the column cannot become NOT NULL
    ├── LockNotAvailable                  others kept a table busy, and a migration did not get its turn
    ├── LeaseNotAvailable                 no block of keys could be leased in time
    ├── KeySpaceExhausted                 a key generator has issued its last key
    ├── ClockMovedBack                    the clock of this machine went back further than an id can wait for
    └── MissingExtra (ModuleNotFoundError)  an optional dependency is not installed

The first six, ``LockNotAvailable``, ``LeaseNotAvailable`` and ``ClockMovedBack`` are met while a program runs; the
others say that the program itself has to change. Each carries its facts as attributes, and survives pickling.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "BackfillIncomplete",
    "ClockMovedBack",
    "ConfigurationError",
    "DuplicatePrefix",
    "ImmutablePublicId",
    "InvalidPublicId",
    "KeySpaceExhausted",
    "LeaseNotAvailable",
    "LockNotAvailable",
    "MissingExtra",
    "PublicIdCollision",
    "PublicIdConflict",
    "PublicIdError",
    "PublicIdNotFound",
    "ReferenceNotReadable",
]

_SHOWN = 60


def shown(value: object) -> str:
    """The ``repr`` of *value*, cut: a hostile text must not fill the log."""
    if isinstance(value, (str, bytes)) and len(value) > _SHOWN:
        return f"{value[:_SHOWN]!r}... ({len(value)} long)"
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python likes to print
        text = f"{type(value).__name__} too large to print"
    return text if len(text) <= 4 * _SHOWN else f"{text[: 4 * _SHOWN]}..."


def _rebuild(cls: type[PublicIdError], state: dict[str, Any], args: tuple[Any, ...]) -> PublicIdError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class PublicIdError(Exception):
    """The base of every error of this library."""

    _pickled_as: ClassVar[type[PublicIdError] | None] = None
    """The class to restore, where the class of the error itself is made at run time."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by facts: the constructors take keywords, which the default would lose."""
        return _rebuild, (self._pickled_as or type(self), dict(self.__dict__), self.args)


class InvalidPublicId(PublicIdError, ValueError):
    """The text is not a public id of the expected format.

    >>> from sqlalchemy_public_id import InvalidPublicId, NanoId
    >>> try:
    ...     NanoId(prefix="cus").validate("ord_izkpm55j334u", field="customer")
    ... except InvalidPublicId as error:
    ...     print(error)
    customer: 'ord_izkpm55j334u' is not a public id: the prefix is 'ord' (expected cus_ and 12 of 0-9 a-z)
    """

    def __init__(self, value: object, *, expected: str, reason: str, field: str | None = None) -> None:
        where = f"{field}: " if field else ""
        super().__init__(f"{where}{shown(value)} is not a public id: {reason} (expected {expected})")
        self.value: object = value
        """What was given, whole."""
        self.expected: str = expected
        """The expected format, in words."""
        self.reason: str = reason
        """What is wrong with the value."""
        self.field: str | None = field
        """The name of the field the value was given for, if the caller said so."""


class PublicIdNotFound(PublicIdError, LookupError):
    """No row has this public id.

    Raised for a malformed text as well: to whoever asks, both mean that there is no such thing.
    """

    def __init__(self, value: object, *, model: str, field: str | None = None) -> None:
        where = f"{field}: " if field else ""
        super().__init__(f"{where}no {model} has the public id {shown(value)}")
        self.value: object = value
        """The public id that was asked for, whole."""
        self.model: str = model
        """The name of the model that was searched."""
        self.field: str | None = field
        """The name of the field or attribute the value was given for, where there is one."""


class ReferenceNotReadable(PublicIdError, LookupError):
    """A foreign key is set, and no public id can be read: there is no such row, the database hides it, or it has none.

    The message does not contain the key, since it may reach a client.
    """

    def __init__(self, *, field: str, model: str, key: object) -> None:
        super().__init__(
            f"{field}: the foreign key is set, but no row of {model} with that key and a public id can be read: it "
            f"does not exist, the database hides it from this connection (row-level security), or it was not filled "
            f"yet; assign another public id, grant the right to read the row, or backfill the table"
        )
        self.field: str = field
        """The reference, with its model: ``Order.customer_public_id``."""
        self.model: str = model
        """The name of the model that the foreign key points to."""
        self.key: object = key
        """The value of the foreign key."""


class PublicIdCollision(PublicIdError):
    """No free public id was found for a row in ``max_retries`` attempts.

    The row is not stored, and the transaction stays usable. Either the format is too small for the table (see
    :attr:`rows` and :attr:`capacity`), or the generator is not random.
    """

    def __init__(
        self, *, model: str, column: str, format: object, attempts: int, capacity: int, rows: int | None = None
    ) -> None:
        if rows is None:
            space = f"it has about 10**{len(str(capacity)) - 1} possible ids, so what makes them may not be random"
        else:
            space = (
                f"{rows} rows of {capacity} possible ids are taken ({rows / capacity:.0%}); "
                f"use a longer format (old ids stay valid with new_format.accepting(old_format))"
            )
        super().__init__(f"{model}.{column}: no free public id in {attempts} attempts with {format!r}: {space}")
        self.model: str = model
        """The name of the model, or of the table where none is mapped."""
        self.column: str = column
        """The name of the public-id column."""
        self.format: object = format
        """The format that made the ids."""
        self.attempts: int = attempts
        """How many ids were tried for the row."""
        self.capacity: int = capacity
        """How many ids the format can make."""
        self.rows: int | None = rows
        """How many ids are taken: the rows of the table that can be seen, the ids of the other rows of the statement,
        and those met on the way. ``None`` where the space is too large for this to be the cause, or the role may not
        count.
        """


class PublicIdConflict(PublicIdError):
    """An insert was repeated with a public id that is there already, but with other contents. Nothing was written."""

    def __init__(self, public_id: str, *, model: str, differing: tuple[str, ...]) -> None:
        super().__init__(
            f"{model} {shown(public_id)} is there already, with another {', '.join(differing)}: "
            f"a repeated insert must bring the same contents; for other contents, make another public id"
        )
        self.public_id: str = public_id
        """The public id of both."""
        self.model: str = model
        """The name of the model."""
        self.differing: tuple[str, ...] = differing
        """The names of the attributes whose values differ."""


class ImmutablePublicId(PublicIdError):
    """The public id of a stored row would change, and with it every link to the row."""

    def __init__(self, message: str, *, model: str, attribute: str, old: object = None, new: object = None) -> None:
        super().__init__(message)
        self.model: str = model
        """The name of the model or table."""
        self.attribute: str = attribute
        """The name of the attribute or column."""
        self.old: object = old
        """The public id the row has, where it is known."""
        self.new: object = new
        """The public id that was refused, where it is known."""


class ConfigurationError(PublicIdError):
    """A declaration that cannot work; the message says what to write instead."""


class DuplicatePrefix(ConfigurationError):
    """Two owners of one prefix, or of two prefixes that cannot be told apart."""

    def __init__(self, prefix: str, *, holder: str, newcomer: str, why: str) -> None:
        super().__init__(
            f"the prefix {prefix!r} of {newcomer} {why} {holder}: a public id must lead to one type; "
            f"choose another prefix for one of them"
        )
        self.prefix: str = prefix
        """The prefix of the newcomer."""
        self.holder: str = holder
        """Who holds the prefix already."""
        self.newcomer: str = newcomer
        """Who asked for it now."""


class BackfillIncomplete(PublicIdError):
    """Rows have no public id yet. Nothing was changed; the message says what to run first."""

    def __init__(
        self, *, table: str, column: str, missing: int, format: object, schema: str | None = None, advice: str = ""
    ) -> None:
        import shlex  # for this error only

        where = f"{schema}.{table}" if schema else table
        options = f" --column {column} --id-format {shlex.quote(repr(format))}" + (
            f" --schema {schema}" if schema else ""
        )
        super().__init__(
            f"{missing} rows of {where} have no {column} yet; fill them first, with op.backfill_public_id({table!r}) "
            f"in an earlier migration, or with: public-id backfill URL {table}{options}"
            + (f"\nWhere there are new ones each time: {advice}" if advice else "")
        )
        self.table: str = table
        self.column: str = column
        self.schema: str | None = schema
        self.format: object = format
        """The format of the ids that are missing."""
        self.missing: int = missing
        """How many rows there are without an id."""


class LockNotAvailable(PublicIdError):
    """Others kept a table busy, and a migration did not get its turn. What was done stays done; run it again."""

    def __init__(self, *, step: str, table: str, attempts: int, timeout: float) -> None:
        super().__init__(
            f"{table}: could not {step}: the table was in use whenever it was tried, {attempts} times for {timeout:g} "
            f"s; find the transaction that stays open (pg_stat_activity, SHOW PROCESSLIST), end it, and run this again"
        )
        self.step: str = step
        """What was to be done."""
        self.table: str = table
        self.attempts: int = attempts
        self.timeout: float = timeout
        """How many seconds were waited each time."""


class LeaseNotAvailable(PublicIdError):
    """No block of keys could be leased in time. No key was issued twice, and none is lost; it may be tried again."""

    def __init__(self, name: str, *, timeout: float, reason: str, advice: str) -> None:
        super().__init__(f"no block of {name!r} could be leased within {timeout:g} s: {reason}; {advice}")
        self.name: str = name
        """The name of the sequence."""
        self.timeout: float = timeout
        """How many seconds were waited."""
        self.reason: str = reason
        """What stood in the way."""


class KeySpaceExhausted(PublicIdError):
    """A key generator has issued its last key."""


class ClockMovedBack(PublicIdError):
    """The clock of this machine went back further than an id can wait for. No id was made."""

    def __init__(self, *, behind: float, tolerance: float) -> None:
        super().__init__(
            f"the clock is {behind:.3f} s behind the last id that was made, and an id waits for {tolerance:g} s at "
            f"most: otherwise it might be one that was made before; set the clock by slewing (chrony, ntpd -x)"
        )
        self.behind: float = behind
        """By how many seconds the clock is behind the last id."""
        self.tolerance: float = tolerance
        """For how many seconds an id would have waited."""


class MissingExtra(PublicIdError, ModuleNotFoundError):
    """An optional dependency is not installed; the message is the command that installs it."""

    def __init__(self, package: str, *, extra: str) -> None:
        super().__init__(f"{package} is not installed; run: pip install 'sqlalchemy-public-id[{extra}]'", name=package)
        self.extra: str = extra
        """The extra of this distribution that brings the package."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by the arguments: an ImportError keeps its facts where ``__dict__`` does not see them."""
        return _missing, (self.name, self.extra)


def _missing(package: str, extra: str) -> MissingExtra:
    return MissingExtra(package, extra=extra)
