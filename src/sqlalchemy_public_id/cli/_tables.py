"""The tables that a command works on: named tables, all tables of a schema, or the tables of models."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click
from sqlalchemy import Engine, inspect

from sqlalchemy_public_id.columns import public_id_columns
from sqlalchemy_public_id.migrating import PublicIdColumn
from sqlalchemy_public_id.migrating.declared import read_declared, take_fields


def base_argument(text: str) -> Any:
    """Import the declarative base that an argument names, ``package.module:Base``."""
    module_name, _, name = text.partition(":")
    if not module_name or not name:
        raise click.BadParameter(f"{text!r} is not module:Base, such as shop.models:Base")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as "python -m" does; a script has its own folder there
    try:
        base = getattr(importlib.import_module(module_name), name)
    except ModuleNotFoundError as error:
        raise click.BadParameter(f"there is no module {error.name!r}") from None
    except AttributeError:
        raise click.BadParameter(f"the module {module_name!r} has no {name!r}") from None
    if not hasattr(getattr(base, "registry", None), "mappers"):
        raise click.BadParameter(
            f"{text} is not a declarative base; expected a class such as class Base(DeclarativeBase)"
        )
    return base


def fields_of(cls: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return the options that are fields of the dataclass *cls*, without those that were left out."""
    return take_fields(cls, {name: value for name, value in given.items() if value is not None})


def chosen_targets(engine: Engine, given: dict[str, Any], *, needs_models: bool) -> list[PublicIdColumn]:
    """Return the column of each table that the arguments of a command name.

    :param needs_models: True to refuse ``--all`` without models, which would change tables that nobody named.
    """
    tables, base = given["place"].tables, given["models"]
    described = fields_of(PublicIdColumn, given)
    if bool(tables) == given["all_tables"]:
        raise click.UsageError(
            "name the tables, or pass --all" if not tables else "pass either tables or --all, not both"
        )
    if base is None and given["all_tables"] and needs_models:
        raise click.UsageError("--all needs --models MODULE:BASE; without models, name the tables")
    if base is None:
        names = tables or inspect(engine).get_table_names(schema=given["schema"])
        return [PublicIdColumn.of(name, **described) for name in names]
    if described:
        raise click.UsageError(f"the models already describe the column, so leave out {', '.join(sorted(described))}")
    columns = [column for table in base.metadata.tables.values() for column in public_id_columns(table)]
    declared = [target for column in columns if (target := read_declared(column, engine.dialect)) is not None]
    targets = [target for target in declared if not tables or target.table in tables]
    if unknown := {*tables} - {target.table for target in targets}:
        raise click.UsageError(f"the models declare no unique public id for {', '.join(sorted(unknown))}")
    return targets
