"""Finding the row of a token."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from sqlalchemy import inspect
from sqlalchemy.orm import InstanceState, Mapper, Session
from typing_extensions import Unpack

from sqlalchemy_public_id.errors import ConfigurationError, shown
from sqlalchemy_public_id.lookup import How
from sqlalchemy_public_id.lookup.rows import one_row
from sqlalchemy_public_id.orm.inspection import require_session
from sqlalchemy_public_id.tokens.column import TokenType
from sqlalchemy_public_id.tokens.token import concealed

__all__ = ["check_options", "digest_for", "find", "get"]

M = TypeVar("M")
"""A model."""


def get(
    session: Session, model: type[M], text: object, *, attribute: str | None = None, **how: Unpack[How]
) -> M | None:
    """The row of *model* that has this token, or ``None``.

    What is no token, is mistyped, or was signed with none of the keys is answered without a statement. Whether the
    token has expired is for the program to say.

    :param text: what somebody sent; anything may be asked about.
    :param attribute: which token, where a model has several; ``token`` by default.
    :param how: as with :func:`sqlalchemy_public_id.lookup.get`: ``options``, ``with_for_update`` and so on.
    """
    require_session(session)
    check_options(how)
    key, digest = digest_for(model, text, attribute)
    del text  # what follows may fail, and reports of errors show the variables
    return None if digest is None else find(session, model, key, digest, **how)


def check_options(how: Mapping[str, object]) -> None:
    """Refuse what is no option of :func:`get`, with the error of any function that does not know an argument."""
    unknown = [name for name in how if name not in How.__annotations__]
    if unknown:
        raise TypeError(f"get() has no option {', '.join(unknown)}; expected {', '.join(How.__annotations__)}")


def digest_for(model: type[Any], text: object, attribute: str | None) -> tuple[str, bytes | None]:
    """The name of the attribute that is meant, and the digest it has in the row of *text*."""
    mapper = cast("Mapper[Any] | InstanceState[Any] | None", inspect(model, raiseerr=False))
    if not isinstance(mapper, Mapper):
        what = shown(model) if isinstance(model, type) else concealed(model)
        raise ConfigurationError(f"{what} is not a mapped class")
    types = {prop.key: prop.columns[0].type for prop in mapper.column_attrs}
    tokens = {key: type_.token for key, type_ in types.items() if isinstance(type_, TokenType)}
    if not tokens:
        raise ConfigurationError(f"{model.__name__} has no token; add a token_column() to it")
    if attribute is None:
        attribute = next(iter(tokens)) if len(tokens) == 1 else "token"
        if attribute not in tokens:
            raise ConfigurationError(
                f"{model.__name__} has several tokens; name one of {', '.join(tokens)} with attribute=…"
            )
    if not isinstance(attribute, str) or attribute not in tokens:
        raise ConfigurationError(
            f"attribute is {concealed(attribute)}, expected the name of a token of {model.__name__}: "
            f"{', '.join(map(repr, tokens))}"
        )
    return attribute, tokens[attribute].digest(text)


def find(session: Session, model: type[M], key: str, digest: bytes, **how: Unpack[How]) -> M | None:
    """The row of *model* with this *digest*.

    The index may be quicker with a digest that begins as another one does, but nobody can choose how a digest begins.
    """
    found = one_row(session, model, getattr(model, key) == digest, **how)
    if found is None or not hmac.compare_digest(getattr(found, key), digest):
        return None
    return found
