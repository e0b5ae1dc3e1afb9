"""Whether a column, as the database stores it, holds the ids of a declaration: their kind, width and blanks.

This is the one judgement of all operations, of autogenerate and of audits, for columns of public ids, primary keys of
``PublicIdType``, foreign keys to them, and ``AnyPublicIdType``. A column that holds the ids keeps its type: another one
would rewrite the table while others wait, and a join of two columns with different collations uses no index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlalchemy import BINARY, CHAR, VARBINARY, VARCHAR, BigInteger, Enum, Integer, Numeric, String, Uuid
from sqlalchemy.engine import Dialect
from sqlalchemy.types import NullType, TypeEngine

from sqlalchemy_public_id.dialects import traits_for
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.formats._bits import BitsFormat
from sqlalchemy_public_id.migrations.databases import database_of
from sqlalchemy_public_id.references import AnyPublicIdType
from sqlalchemy_public_id.stored_ids import column_type
from sqlalchemy_public_id.types import IdColumnType


@dataclass(frozen=True)
class Fit:
    """How a stored column holds ids. It is true if each id is read as it was written, and found by its text alone."""

    code: Literal["", "too-short", "wrong-type"] = ""
    """The code of the obstacle."""
    why: str = ""
    """Why the column does not hold the ids, to follow its type: ``", but ids have up to 12 characters"``."""
    better: TypeEngine[Any] | None = None
    """The type to which the column can be changed, which keeps what it holds."""
    instead: Format | None = None
    """The format whose ids the column holds as it is, with the same texts."""
    is_other_kind: bool = False
    """True if ids are numbers and the column has text, or the other way round: no ALTER converts one to the other."""

    def __bool__(self) -> bool:
        return not self.code

    @property
    def advice(self) -> str:
        """What to do if the type cannot be changed."""
        if self.instead is not None:
            return f"take the format {self.instead!r}, whose ids the column holds"
        return "rename it and add a new one, or pass the format that its ids have"


@dataclass(frozen=True)
class StoredIds:
    """The ids that a column should hold."""

    format: Format | None
    """``None`` for ids of any model, which are text."""
    length: int
    lengths: frozenset[int]
    """The lengths of all ids, if they are few."""

    @classmethod
    def of(cls, declared: object) -> StoredIds | None:
        """Return the ids of a *declared* type, or of a format; ``None`` for a type of another kind."""
        if isinstance(declared, AnyPublicIdType):
            return cls(None, declared.length, frozenset())
        format = declared.id_format if isinstance(declared, IdColumnType) else declared
        if not isinstance(format, Format):
            return None
        return cls(format, format.max_length, frozenset(form.max_length for form in format.forms))

    def in_words(self) -> str:
        return "ids of any model" if self.format is None else f"ids of {self.format!r}"


def fit_of(existing: TypeEngine[Any], ids: StoredIds, dialect: Dialect, *, is_key: bool = False) -> Fit:
    """Judge a column of the reflected type *existing*.

    :param is_key: True for a column that has an index of its own, as public ids and primary keys have.
    """
    existing = getattr(existing, "data_type", existing)  # a domain of PostgreSQL
    fit = _judge(existing, ids, dialect, is_key=is_key)
    return replace(fit, instead=_in_other_storage(existing, ids, dialect)) if fit.is_other_kind else fit


def _judge(existing: TypeEngine[Any], ids: StoredIds, dialect: Dialect, *, is_key: bool = False) -> Fit:
    """Judge a column as :func:`fit_of` does, without looking for another format."""
    if ids.format is not None and ids.format.is_native:
        return _fit_of_numbers(existing, ids, ids.format, dialect)
    plan = database_of(dialect).plan
    if isinstance(existing, NullType) and plan.stores_any_type:
        return Fit()  # the column was declared without a type
    if isinstance(existing, Uuid) and plan.reads_uuids_as_text and _are_hyphenated_uuids(ids):
        return Fit()
    if not is_text(existing):
        why = f", but {ids.in_words()} are stored as {_expected(ids, dialect)}"
        return Fit("wrong-type", why, is_other_kind=True)
    if isinstance(existing, Enum) or _kind(existing) == "CITEXT":
        return Fit("wrong-type", f", but {ids.in_words()} are stored as {_expected(ids, dialect)}")
    return _fit_of_width(existing, ids, dialect, is_key=is_key)


def has_width_of(existing: TypeEngine[Any], format: Format) -> bool:
    """Return True if a column of the type *existing* has text as long as ids of *format*, or of any length.

    Otherwise, the command line does not guess the format, and commands have to name it.
    """
    return isinstance(existing, String) and existing.length in (None, format.max_length)


def is_text(existing: TypeEngine[Any]) -> bool:
    """Return True if a column of the type *existing* has text."""
    return isinstance(existing, String) or _kind(existing) == "CITEXT"


def _fit_of_width(existing: TypeEngine[Any], ids: StoredIds, dialect: Dialect, *, is_key: bool) -> Fit:
    plan, length = database_of(dialect).plan, getattr(existing, "length", None)
    if isinstance(existing, CHAR):
        length = length or 1
        if ids.lengths == frozenset({length}):
            return Fit()  # every id fills it, so that no blanks are added
    if length is not None and length < ids.length:
        wider = existing.adapt(type(existing), length=ids.length)
        return Fit("too-short", f", but ids have up to {ids.length} characters", better=wider)
    if isinstance(existing, CHAR) and plan.pads_char:
        unpadded = VARCHAR(length, collation=getattr(existing, "collation", None))
        return Fit("wrong-type", f", which adds blanks to {ids.in_words()}", better=unpadded)
    if is_key and not plan.indexes_whole_texts and _kind(existing).endswith("TEXT"):
        why = f", of which {dialect.name} indexes a prefix only, so that it needs a length"
        return Fit("wrong-type", why, better=traits_for(dialect).text_type(ids.length))
    return Fit()


def _fit_of_numbers(existing: TypeEngine[Any], ids: StoredIds, format: Format, dialect: Dialect) -> Fit:
    expected, stores_any_type = column_type(format, traits_for(dialect)), database_of(dialect).plan.stores_any_type
    if is_text(existing):
        why = f", but {ids.in_words()} are stored as {_expected(ids, dialect)}"
        return Fit("wrong-type", why, is_other_kind=True)
    if isinstance(expected, BigInteger):
        # the type that is reflected from MariaDB has a display width; an INTEGER of SQLite has 64 bits
        if isinstance(existing, BigInteger) or (stores_any_type and isinstance(existing, (Integer, Numeric, NullType))):
            return Fit()
        if isinstance(existing, Integer):
            why = f", but {ids.in_words()} are stored as {_expected(ids, dialect)}"
            return Fit("wrong-type", why, better=BigInteger())
    elif stores_any_type or _stores_same_bytes(existing, expected, dialect):
        return Fit()
    why = f", but {ids.in_words()} are stored as {_expected(ids, dialect)}"
    return Fit("wrong-type", why, is_other_kind=True)


def _stores_same_bytes(existing: TypeEngine[Any], expected: TypeEngine[Any], dialect: Dialect) -> bool:
    if isinstance(expected, BINARY) and isinstance(existing, VARBINARY):
        return existing.length is None or existing.length >= (expected.length or 0)
    return existing.compile(dialect).upper() == expected.compile(dialect).upper()


def _are_hyphenated_uuids(ids: StoredIds) -> bool:
    return ids.format is not None and all(
        isinstance(form, BitsFormat) and form.encoding == "hyphenated" and form.prefix is None
        for form in ids.format.forms
    )


def _in_other_storage(existing: TypeEngine[Any], ids: StoredIds, dialect: Dialect) -> Format | None:
    """Return the format with another storage or encoding whose ids the column holds, if there is one."""
    if not isinstance(ids.format, BitsFormat):
        return None
    for format in _in_storage(ids.format, "text" if ids.format.is_native else "native"):
        if (stored := StoredIds.of(format)) is not None and _judge(existing, stored, dialect):
            return format
    return None


def _in_storage(format: BitsFormat, storage: str) -> Iterator[Format]:
    settings = format._settings()  # pyright: ignore[reportPrivateUsage]  # private to users, not to us
    older = format._accepted  # pyright: ignore[reportPrivateUsage]
    encodings = [format.encoding, "hyphenated", "hex"] if "encoding" in settings else []  # only UUIDs have several
    for of_encoding in [{"encoding": each} for each in dict.fromkeys(encodings)] or [{}]:
        try:
            other: Format = type(format)(**{**settings, "storage": storage, **of_encoding})
            yield other._with_accepted(older) if older else other  # pyright: ignore[reportPrivateUsage]
        except ConfigurationError:  # it has no such encoding, or cannot store those that it accepts
            continue


def _expected(ids: StoredIds, dialect: Dialect) -> str:
    traits = traits_for(dialect)
    expected = traits.text_type(ids.length) if ids.format is None else column_type(ids.format, traits)
    return dialect.type_compiler_instance.process(expected)


def in_revision(type_: TypeEngine[Any]) -> str:
    """Return *type_* as a revision writes it, for a message; a collation is left out."""
    length = getattr(type_, "length", None)
    return f"sa.String({length})" if isinstance(type_, String) else f"sa.{type(type_).__name__}()"


def _kind(existing: TypeEngine[Any]) -> str:
    return type(existing).__name__.upper()
