"""The options that a function of this library sets for its column, and that nothing may change before it has a table.

SQLAlchemy merges a column in ``Annotated`` into the ``mapped_column()`` beside it, whose own options win. The merge
keeps ``Column.info``, and loses the listeners of the column: therefore, all columns are listened to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import unwrap
from typing import Any

from sqlalchemy import Column, Table

from sqlalchemy_public_id._private import has_info
from sqlalchemy_public_id.columns import set_info
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.listeners import Listener, Listeners

_DECLARED = "sqlalchemy_public_id.declared_options"
"""Key in ``Column.info`` until the column has a table: the function that declares it, and its options."""


def _default(column: Column[Any]) -> Any:
    default: Any = column.default
    return unwrap(getattr(default, "arg", default))  # SQLAlchemy wraps a function without an argument in each copy


_READ: dict[str, Callable[[Column[Any]], Any]] = {
    "the type": lambda column: repr(column.type),
    "default": _default,
    "insert_default": _default,
    "server_default": lambda column: type(column.server_default),
    "onupdate": lambda column: column.onupdate,
    "server_onupdate": lambda column: column.server_onupdate,
    "nullable": lambda column: column.nullable,
    "unique": lambda column: column.unique,
    "index": lambda column: column.index,
    "primary_key": lambda column: column.primary_key,
    "autoincrement": lambda column: column.autoincrement,
}


def keep_options(column: Column[Any], function: str, names: Iterable[str] = ()) -> None:
    """Let *column* be refused if its type, or one of the options *names*, is another one when it gets its table.

    :param function: the function that declares the column, for the error.
    """
    set_info(column, _DECLARED, (function, {name: _READ[name](column) for name in ("the type", *names)}))
    _LISTENERS.install()


def _refuse_others(column: Column[Any], table: Any) -> None:
    """Refuse options that differ from the declared ones. Runs when *column* is attached to *table*.

    The copy of a table, such as one for former versions of its rows, may have other options.
    """
    if not (isinstance(table, Table) and has_info(column) and _DECLARED in column.info):
        return
    function, options = column.info.pop(_DECLARED)
    for name, value in options.items():
        if _READ[name](column) != value:
            hint = ", or write init=False in a dataclass" if name == "default" else ""
            raise ConfigurationError(
                f"{table.name}.{column.name}: {function} in Annotated sets {name} itself; leave it out of the "
                f"mapped_column() beside it{hint}"
            )


_LISTENERS = Listeners(Listener(Column, "after_parent_attach", _refuse_others))
