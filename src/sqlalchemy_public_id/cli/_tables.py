"""The tables that a command works on: those that are named, all of a schema, or those of models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import click
from sqlalchemy import Column, DefaultClause, Dialect, Engine, inspect

from sqlalchemy_public_id.columns import public_id_columns, public_id_type
from sqlalchemy_public_id.migrating import PublicIdColumn, Unique
from sqlalchemy_public_id.migrating.server_defaults import can_generate
from sqlalchemy_public_id.migrating.unique_names import name_in_database, unique_of


def fields_of(cls: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return the options that are fields of the dataclass *cls*, without those that were left out."""
    names = [field.name for field in fields(cls)]
    return {name: given[name] for name in names if given.get(name) is not None}


def chosen_targets(engine: Engine, given: dict[str, Any], *, needs_models: bool) -> list[PublicIdColumn]:
    """Return the column of each table that the arguments of a command name.

    :param needs_models: True to refuse ``--all`` without models, which would change tables that nobody named.
    """
    tables, base = given["place"].tables, given["models"]
    described = fields_of(PublicIdColumn, given)
    if bool(tables) == given["all_tables"]:
        raise click.UsageError("name tables, or write --all" if not tables else "--all leaves no table to name")
    if base is None and given["all_tables"] and needs_models:
        raise click.UsageError("--all needs --models MODULE:BASE; without models, name the tables")
    if base is None:
        names = tables or inspect(engine).get_table_names(schema=given["schema"])
        return [PublicIdColumn.of(name, **described) for name in names]
    if described:
        raise click.UsageError(f"the models describe the column: leave out {', '.join(sorted(described))}")
    targets = [target for target in _targets_of(base, engine.dialect) if not tables or target.table in tables]
    if unknown := {*tables} - {target.table for target in targets}:
        raise click.UsageError(f"no model has a unique public id in {', '.join(sorted(unknown))}")
    return targets


def _targets_of(base: Any, dialect: Dialect) -> Iterator[PublicIdColumn]:
    kinds: tuple[Unique, Unique] = ("index", "constraint")
    for table in base.metadata.tables.values():
        for column in public_id_columns(table):
            uniques = {kind: unique for kind in kinds if (unique := unique_of(table, column.name, kind)) is not None}
            for kind, unique in [*uniques.items()][:1]:
                yield PublicIdColumn.of(
                    table.name,
                    column.name,
                    format=public_id_type(column).id_format,
                    schema=table.schema,
                    unique=kind,
                    unique_name=name_in_database(unique, dialect),
                    server_default=_server_default(column, dialect),
                    comment=column.comment,
                )


def _server_default(column: Column[Any], dialect: Dialect) -> str:
    has_own = isinstance(column.server_default, DefaultClause)
    return "none" if has_own or not can_generate(public_id_type(column).id_format, dialect.name) else "keep"
