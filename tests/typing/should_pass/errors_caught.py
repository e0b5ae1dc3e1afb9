"""The attributes of errors, and the built-in errors that they derive from."""

from __future__ import annotations

from typing_extensions import assert_type

from sqlalchemy_public_id import (
    ConfigurationError,
    ImmutablePublicId,
    InvalidPublicId,
    PublicIdCollision,
    PublicIdError,
    PublicIdNotFound,
)
from sqlalchemy_public_id.errors import DuplicatePrefix, KeySpaceExhausted, MissingExtra


def invalid(error: InvalidPublicId) -> ValueError:
    assert_type(error.value, object)
    assert_type(error.expected, str)
    assert_type(error.reason, str)
    assert_type(error.field, str | None)
    return error


def not_found(error: PublicIdNotFound) -> LookupError:
    assert_type(error.value, object)
    assert_type(error.model, str)
    return error


def collision(error: PublicIdCollision) -> PublicIdError:
    assert_type(error.model, str)
    assert_type(error.column, str)
    assert_type(error.format, object)
    assert_type(error.attempts, int)
    assert_type(error.capacity, int)
    return error


def immutable(error: ImmutablePublicId) -> PublicIdError:
    assert_type(error.model, str)
    assert_type(error.attribute, str)
    assert_type(error.old, object)
    assert_type(error.new, object)
    return error


def duplicate(error: DuplicatePrefix) -> ConfigurationError:
    assert_type(error.prefix, str)
    assert_type(error.holder, str)
    assert_type(error.newcomer, str)
    return error


def exhausted(error: KeySpaceExhausted) -> PublicIdError:
    return error


def missing(error: MissingExtra) -> ModuleNotFoundError:
    assert_type(error.extra, str)
    return error
