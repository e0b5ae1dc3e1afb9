"""How migrations are written: the operations with what differs from their defaults, and columns as plain types.

A migration that says ``sa.String(length=12)`` works as long as SQLAlchemy does, whatever becomes of this library. With
``context.configure(public_id_render="type")`` it says ``sqlalchemy_public_id.PublicIdType(…)``. Imports are added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from alembic.autogenerate.render import renderers  # alembic.autogenerate has no such name while it is imported itself
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id import formats
from sqlalchemy_public_id.alembic._compat import is_in_batch
from sqlalchemy_public_id.alembic.ops import (
    DropPublicIdOp,
    PublicIdOp,
)
from sqlalchemy_public_id.dialects import Traits
from sqlalchemy_public_id.dialects.mysql import MySQL
from sqlalchemy_public_id.dialects.postgresql import PostgreSQL
from sqlalchemy_public_id.errors import ConfigurationError, shown
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.formats.snowflake import Snowflake, named, no_machine
from sqlalchemy_public_id.keys.coprime.keyed import KeyedStep
from sqlalchemy_public_id.keys.coprime.step import KeySpace
from sqlalchemy_public_id.tokens.column import TokenType
from sqlalchemy_public_id.tokens.token import DIGEST_BYTES
from sqlalchemy_public_id.types import PublicIdType, column_type_for

if TYPE_CHECKING:
    from alembic.autogenerate.api import AutogenContext

__all__ = ["render_plain_types"]

RenderItem: TypeAlias = "Callable[[str, Any, AutogenContext], str | Literal[False]]"

_PACKAGE = "sqlalchemy_public_id"
_DROPPING = {"format", "server_default"}
"""What there is no need to know of a column that goes."""


# --- operations


@renderers.dispatch_for(PublicIdOp)
def _render(context: AutogenContext, op: PublicIdOp) -> str:
    # on Alembic before 1.18 this is what gives ``op`` the method
    context.imports.add(f"import {_PACKAGE}.alembic")
    in_batch: bool = is_in_batch(context)
    arguments = [] if in_batch else [repr(str(op.table_name))]
    if op.column_name != "public_id":
        arguments.append(repr(str(op.column_name)))
    arguments += [
        f"{name}={_written(context, value)}"
        for name, value in _unusual(op)
        if not (in_batch and name == "schema") and not (isinstance(op, DropPublicIdOp) and name in _DROPPING)
    ]
    prefix = "batch_op." if in_batch else context.opts["alembic_module_prefix"] or ""
    return f"{prefix}{op.name}({', '.join(arguments)})"


def _unusual(op: PublicIdOp) -> Iterator[tuple[str, object]]:
    """The options that *op* would not have by itself. A function, ``wait_while``, cannot be written down."""
    usual = type(op)(op.table_name, op.column_name)
    for name in op.options:
        if name != "wait_while" and (value := _option(op, name)) != _option(usual, name):
            yield name, value


def _option(op: PublicIdOp, name: str) -> object:
    for holder in (op.target, op.patience, op):
        if hasattr(holder, name):
            return getattr(holder, name)
    raise AssertionError(name)


def _written(context: AutogenContext, value: object) -> str:
    if isinstance(value, Format):
        return _format(context, value)
    return repr(str(value) if isinstance(value, str) else value)  # a name may be one of SQLAlchemy's kinds of str


def _format(context: AutogenContext, format: Format) -> str:
    """The constructor call of *format*, with the imports that it takes."""
    format = _importable(format)
    for one in format._chain():  # pyright: ignore[reportPrivateUsage]
        steps = [value for value in one._settings().values() if isinstance(value, KeySpace)]  # pyright: ignore[reportPrivateUsage]
        if any(isinstance(step, KeyedStep) for step in steps):
            raise ConfigurationError(
                "a KeyedStep has a secret, which belongs into no migration; write the type of the column as plain "
                'types, public_id_render="plain", which is the default'
            )
        if isinstance(one, Snowflake) and (function := named(one.machine_id)):
            context.imports.add(f"import {function[0]}")
        for kind in map(type, (one, *steps)):
            public = getattr(formats, kind.__name__, None) is kind
            context.imports.add(f"from {_PACKAGE if public else kind.__module__} import {kind.__name__}")
    return repr(format)


def _importable(format: Format) -> Format:
    """*format* without functions that a migration cannot import: it checks the same ids, and makes none."""
    older = tuple(map(_importable, format._accepted))  # pyright: ignore[reportPrivateUsage]
    if isinstance(format, Snowflake) and callable(format.machine_id):
        module, _ = named(format.machine_id) or ("__main__", "")
        if module == "__main__":  # of the program that writes the migration, not of the one that runs it
            format = type(format)(**dict(format._settings(), machine_id=no_machine))  # pyright: ignore[reportPrivateUsage]
    return format._with_accepted(older) if older else format  # pyright: ignore[reportPrivateUsage]


# --- types


def render_plain_types(context: AutogenContext, *schemas: object) -> bool:
    """Have columns of public ids rendered, beside what ``render_item`` in env.py renders. Nothing is compared."""
    own = context.opts.get("render_item")
    if not isinstance(own, _RenderItem):
        context.opts["render_item"] = _RenderItem(own)
    return False


class _RenderItem:
    """``render_item``, with what *own* does first."""

    def __init__(self, own: RenderItem | None) -> None:
        self.own = own

    def __call__(self, kind: str, item: Any, context: AutogenContext) -> str | Literal[False]:
        rendered = self.own(kind, item, context) if self.own is not None else False
        if rendered is False and kind == "type" and isinstance(item, TokenType):
            return _plain(context, lambda traits: traits.integer_type(8 * DIGEST_BYTES))
        if rendered is not False or kind != "type" or not isinstance(item, PublicIdType):
            return rendered
        how = context.opts.get("public_id_render") or "plain"
        if how == "plain":
            return _plain(context, lambda traits: column_type_for(item.id_format, traits))
        if how != "type":
            raise ConfigurationError(f'public_id_render is {shown(how)}, expected "plain" or "type"')
        if type(item) is not PublicIdType:
            return False  # a subclass is known to those who wrote it
        context.imports.add(f"import {_PACKAGE}")
        return f"{_PACKAGE}.PublicIdType({_format(context, item.id_format)})"


def _plain(context: AutogenContext, stored: Callable[[Traits], TypeEngine[Any]]) -> str:
    """What each database has, in words of SQLAlchemy alone."""
    sa = context.opts["sqlalchemy_module_prefix"] or ""
    usual, postgresql, mysql = (repr(stored(traits)) for traits in (Traits(), PostgreSQL(), MySQL()))
    plain = f"{sa}{usual}"
    if postgresql != usual:
        plain += f".with_variant({sa}{postgresql}, 'postgresql')"
    if mysql != usual:
        context.imports.add("from sqlalchemy.dialects import mysql")
        plain += f".with_variant(mysql.{mysql}, 'mysql', 'mariadb')"
    return plain
