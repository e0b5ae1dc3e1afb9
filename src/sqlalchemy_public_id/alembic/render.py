"""Rendering of migrations: operations with the arguments that differ from the defaults, columns as plain types.

By default, a migration contains ``sa.String(length=12)`` and does not depend on this library. With
``context.configure(public_id_render="type")``, it contains ``sqlalchemy_public_id.PublicIdType(…)`` and its import.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from alembic.autogenerate.render import renderers  # alembic.autogenerate itself may be half imported
from alembic.operations.ops import DropColumnOp
from sqlalchemy.types import TypeEngine

from sqlalchemy_public_id import formats
from sqlalchemy_public_id.alembic.directives import Directive
from sqlalchemy_public_id.alembic.ops import AddPublicIdOp, DropPublicIdOp, ExpandPublicIdOp, PublicIdOp
from sqlalchemy_public_id.alembic.stored_columns import StoredDefault
from sqlalchemy_public_id.declare import PublicIdType
from sqlalchemy_public_id.dialects import Traits, traits_for
from sqlalchemy_public_id.dialects.mysql import MySQL
from sqlalchemy_public_id.dialects.postgresql import PostgreSQL
from sqlalchemy_public_id.dialects.sqlite import SQLite
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format, alphabets
from sqlalchemy_public_id.formats.single import SingleId
from sqlalchemy_public_id.formats.snowflake import Snowflake, import_name, no_machine
from sqlalchemy_public_id.key_types import BigIntegerKey
from sqlalchemy_public_id.keys.coprime.keyed import KeyedStep
from sqlalchemy_public_id.keys.coprime.step import KeySpace
from sqlalchemy_public_id.keys.ranges import Range
from sqlalchemy_public_id.messages import safe_repr
from sqlalchemy_public_id.references import AnyPublicIdType
from sqlalchemy_public_id.stored_ids import column_type, text_type
from sqlalchemy_public_id.tokens import TokenType
from sqlalchemy_public_id.tokens.token import DIGEST_BYTES
from sqlalchemy_public_id.types import IdColumnType

if TYPE_CHECKING:
    from alembic.autogenerate.api import AutogenContext

RenderItem: TypeAlias = "Callable[[str, Any, AutogenContext], str | Literal[False]]"

_PACKAGE = "sqlalchemy_public_id"
_POSITIONAL = {"table", "column"}
_VARIANTS: dict[tuple[str, ...], Traits] = {
    ("postgresql",): PostgreSQL(),
    ("mysql", "mariadb"): MySQL(),
    ("sqlite",): SQLite(),
}
"""The databases that a rendered type supports if the program may use them: a migration often runs on two of them."""

_DRIVERS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("postgresql",): ("psycopg", "psycopg2", "asyncpg", "pg8000", "psycopg2cffi"),
    ("mysql", "mariadb"): ("pymysql", "MySQLdb", "mysql", "mariadb", "asyncmy", "aiomysql", "cymysql"),
    ("sqlite",): ("sqlite3",),
}
"""The modules of which a program that uses a database has one."""

_WIDTH = 96
"""The length of a line, without the indentation of a function."""


@renderers.dispatch_for(Directive)
def _render(context: AutogenContext, op: Directive) -> list[str]:
    if find_spec("alembic.runtime.plugins") is None:  # before Alembic 1.18, this import adds the method to op
        context.imports.add(f"import {_PACKAGE}.alembic  # noqa: F401")
    in_batch = isinstance(op, PublicIdOp) and _is_in_batch(context)
    omitted = {"table", "schema"} if in_batch else set[str]()
    if isinstance(op, DropPublicIdOp):
        omitted |= {"format", "server_default"}  # not needed to drop a column
    if isinstance(op, PublicIdOp) and not isinstance(op, (AddPublicIdOp, ExpandPublicIdOp)):
        omitted.add("sql_type")  # which the column has already
    arguments = [
        f"{'' if name in _POSITIONAL else f'{name}='}{_literal(context, value)}"
        for name, value in op.arguments().items()
        if name not in omitted
    ]
    prefix = "batch_op." if in_batch else context.opts["alembic_module_prefix"] or ""
    width = _WIDTH - 4 if in_batch else _WIDTH
    notes = getattr(op, "notes", ())
    comments = [f"# {line}" for note in notes for line in wrap(note, width - 2)]
    return [*comments, *_laid_out(f"{prefix}{op.name}({', '.join(arguments)})", width)]


def _laid_out(code: str, width: int, end: str = "") -> list[str]:
    """Return the lines of a call, or of an argument, as Black and Ruff would format it."""
    source = f"_({code})"
    outer: Any = ast.parse(source, mode="eval").body
    (value,) = outer.args or [keyword.value for keyword in outer.keywords]
    parts: list[Any] = [*value.args, *value.keywords] if isinstance(value, ast.Call) else []
    if len(code) + len(end) <= width or not parts:
        return [code + end]
    head = source.encode()[2 : parts[0].col_offset].decode()
    arguments = [str(ast.get_source_segment(source, part)) for part in parts]
    body = [", ".join(arguments)]
    if len(body[0]) > width - 4:
        body = [line for argument in arguments for line in _laid_out(argument, width - 4, ",")]
    return [head, *(f"    {line}" for line in body), f"){end}"]


def _is_in_batch(context: AutogenContext) -> bool:
    """Return True inside ``with op.batch_alter_table()``, which shows only in how Alembic renders its operations."""
    own = DropColumnOp("table", "column")
    return str(renderers.dispatch(own)(context, own)).startswith("batch_op.")


def _literal(context: AutogenContext, value: object) -> str:
    if isinstance(value, Format):
        return _format(context, value)
    if isinstance(value, Range):
        context.imports.add("from sqlalchemy_public_id.keys import Range")
    return repr(str(value) if isinstance(value, str) else value)  # a name may be a quoted_name, which has its own repr


def _format(context: AutogenContext, format: Format) -> str:
    """Return the constructor call of *format*, and add its imports."""
    format = _importable(format)
    for part in format._chain():  # pyright: ignore[reportPrivateUsage]
        steps = [value for value in part._settings().values() if isinstance(value, KeySpace)]  # pyright: ignore[reportPrivateUsage]
        if any(isinstance(step, KeyedStep) for step in steps):
            raise ConfigurationError(
                "a KeyedStep has a secret, which must not be in a migration; render the column as a plain type, with "
                'public_id_render="plain", the default'
            )
        if isinstance(part, Snowflake) and (function := import_name(part.machine_id)):
            context.imports.add(f"import {function[0]}")
        for kind in map(type, (part, *steps)):
            if kind is not SingleId:
                public = getattr(formats, kind.__name__, None) is kind
                context.imports.add(f"from {_PACKAGE if public else kind.__module__} import {kind.__name__}")
    written = repr(format)
    for name in alphabets.__all__:
        argument = f"alphabet={getattr(alphabets, name)!r}"
        if argument in written:
            written = written.replace(argument, f"alphabet={name}")
            context.imports.add(f"from {_PACKAGE}.formats import {name}")
    return written


def _importable(format: Format) -> Format:
    """Replace functions that a migration cannot import: the format then validates ids, but generates none."""
    older = tuple(map(_importable, format._accepted))  # pyright: ignore[reportPrivateUsage]
    if isinstance(format, Snowflake) and callable(format.machine_id):
        module, _ = import_name(format.machine_id) or ("__main__", "")
        if module == "__main__":  # which is another program when the migration runs
            format = type(format)(**dict(format._settings(), machine_id=no_machine))  # pyright: ignore[reportPrivateUsage]
    return format._with_accepted(older) if older else format  # pyright: ignore[reportPrivateUsage]


def render_types(context: AutogenContext, *schemas: object) -> None:
    """Add the rendering of public ids to ``render_item`` of env.py, and compare nothing."""
    own = context.opts.get("render_item")
    if getattr(own, "func", None) is not _render_item:
        context.opts["render_item"] = partial(_render_item, own)


def _render_item(own: RenderItem | None, kind: str, item: Any, context: AutogenContext) -> str | Literal[False]:
    rendered = own(kind, item, context) if own is not None else False
    if rendered is False and isinstance(item, StoredDefault):
        return f"{context.opts['sqlalchemy_module_prefix'] or ''}text({item.sql!r})"
    if rendered is not False or kind != "type":
        return rendered
    if isinstance(item, BigIntegerKey):
        return _plain(context, lambda traits: traits.key_type(item.unsigned))
    if isinstance(item, TokenType):
        return _plain(context, lambda traits: traits.integer_type(8 * DIGEST_BYTES))
    if isinstance(item, AnyPublicIdType):
        return _plain(context, lambda traits: text_type(item.length, traits, sql_type=item.sql_type))
    if not isinstance(item, IdColumnType):
        return False
    style = context.opts.get("public_id_render") or "plain"
    if style == "plain":
        return _plain(context, lambda traits: column_type(item.id_format, traits, sql_type=item.sql_type))
    if style != "type":
        raise ConfigurationError(f'public_id_render is {safe_repr(style)}, expected "plain" or "type"')
    if type(item) is not PublicIdType:
        return False  # a subclass is rendered by the render_item of its authors
    context.imports.add(f"import {_PACKAGE}")
    setting = "" if item.sql_type is None else f", sql_type={item.sql_type!r}"
    return f"{_PACKAGE}.PublicIdType({_format(context, item.id_format)}{setting})"


def _plain(context: AutogenContext, stored: Callable[[Traits], TypeEngine[Any]]) -> str:
    """Return a plain type of SQLAlchemy, with a variant for each database of the program whose type differs."""
    written = plain = _written(context, stored(Traits()))
    variants = dict(_VARIANTS)
    assert context.dialect is not None
    if all(context.dialect.name not in names for names in variants):
        variants[context.dialect.name,] = traits_for(context.dialect)
    for names, traits in variants.items():
        if context.dialect.name not in names and not _has_driver(names):
            continue
        variant = _written(context, stored(traits))
        if variant != plain:
            written += f".with_variant({variant}, {', '.join(map(repr, names))})"
    return written


def _has_driver(names: tuple[str, ...]) -> bool:
    return any(find_spec(module) for module in _DRIVERS[names])


def _written(context: AutogenContext, type_: TypeEngine[Any]) -> str:
    place = type(type_).__module__.split(".")
    if place[:2] != ["sqlalchemy", "dialects"]:
        return f"{context.opts['sqlalchemy_module_prefix'] or ''}{type_!r}"
    context.imports.add(f"from sqlalchemy.dialects import {place[2]}")
    return f"{place[2]}.{type_!r}"
