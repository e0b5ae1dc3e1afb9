"""The tables that a command works on: named tables, all tables of a schema, or the tables of models."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import Any, NamedTuple

import click
from sqlalchemy import Column, Engine, MetaData, Table, inspect
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Mapper, configure_mappers

from sqlalchemy_public_id.cli._console import UsageProblem, echo_stderr
from sqlalchemy_public_id.columns import public_id_columns
from sqlalchemy_public_id.errors import ConfigurationError, PublicIdError
from sqlalchemy_public_id.migrations import Options, PublicIdColumn
from sqlalchemy_public_id.migrations.consent import take_fields
from sqlalchemy_public_id.migrations.from_models import read_declared
from sqlalchemy_public_id.orm.inspection import id_attributes, mapped_classes, registry_of


class Location(NamedTuple):
    """The database and the tables that a command line names."""

    url: str
    tables: tuple[str, ...]


@dataclass(frozen=True)
class Selection:
    """What a command line says about the tables to work on."""

    location: Location
    all_tables: bool
    models: Any
    """A declarative base, or None."""
    column: str | None
    options: Options


def base_argument(text: str) -> Any:
    """Import the declarative base that an argument names, ``package.module:Base`` or ``package.module:db.Model``."""
    module_name, _, name = text.partition(":")
    if not module_name or not name:
        raise click.BadParameter(f"{text!r} is not module:Base, such as shop.models:Base")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as "python -m" does; a script has its own folder there
    try:
        base: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise click.BadParameter(f"there is no module {error.name!r}") from None
    try:
        base = attrgetter(name)(base)
    except AttributeError:
        raise click.BadParameter(f"the module {module_name!r} has no {name!r}") from None
    try:
        registry_of(base, f"{text} is")
    except ConfigurationError as error:
        raise click.BadParameter(str(error)) from None
    if not any(metadata.tables for metadata in metadata_of(base)):
        raise click.BadParameter(f"{text} has no models; name a module that imports them all, such as shop.models:Base")
    return base


def name_of_base(base: Any) -> str:
    """Return the name of a declarative base, for a message."""
    return base.__name__ if isinstance(base, type) else "the registry"


def declared_ids(base: Any) -> Iterator[tuple[Mapper[Any], str, Column[Any]]]:
    """Yield the public ids of the models of *base*: the model that declares it, its attribute and its column."""
    try:
        configure_mappers()
    except (SQLAlchemyError, PublicIdError) as error:
        raise UsageProblem(f"the models cannot be configured: {' '.join(str(error).split())}") from None
    for mapper in mapped_classes(registry_of(base, "base is")):
        for name, column in id_attributes(mapper).items():
            if column.table is mapper.local_table:  # not inherited
                yield mapper, name, column


def metadata_of(base: Any) -> list[MetaData]:
    """Return the metadata of *base*, and that of each of its classes, which may have another one."""
    own = _own_metadata(base)
    below: type[Any] = base if isinstance(base, type) else object  # all classes of a registry
    mappers = mapped_classes(registry_of(base, "base is"))
    tables = [mapper.local_table for mapper in mappers if issubclass(mapper.class_, below)]
    return list(dict.fromkeys([own, *(table.metadata for table in tables if isinstance(table, Table))]))


def _own_metadata(base: Any) -> MetaData:
    # a model that a registry has mapped without a base shows none
    own: Any = getattr(base, "metadata", None)
    return own if isinstance(own, MetaData) else registry_of(base, "base is").metadata


def chosen_schemas(engine: Engine, pattern: str | None) -> Sequence[str | None]:
    """Return the schemas that match *pattern*, such as ``tenant_*``; *pattern* itself if it has no ``*`` and no ``?``.

    On MySQL and MariaDB, a schema is a database of the server.
    """
    if pattern is None or not {*"*?"} & {*pattern}:
        return [pattern]
    names = inspect(engine).get_schema_names()
    matching = sorted(name for name in names if fnmatchcase(name, pattern))
    if not matching:
        raise click.UsageError(f"no schema matches {pattern!r}; there are: {', '.join(sorted(names))}")
    return matching


def _leave_out_elsewhere(
    engine: Engine, targets: list[PublicIdColumn], own: Set[tuple[str, str | None]], schemas: Sequence[str | None]
) -> list[PublicIdColumn]:
    """Leave out tables that the database lacks, and say so, unless the metadata of the base has them (*own*).

    A metadata of its own is how models say that their tables are in another database.
    """
    inspector = inspect(engine)
    elsewhere = [
        target
        for target in targets
        if (target.table, target.schema) not in own
        and not any(inspector.has_table(target.table, target.schema or schema) for schema in schemas)
    ]
    if not elsewhere or len(elsewhere) == len(targets):
        return targets
    names = ", ".join(target.table for target in elsewhere)
    echo_stderr(f"left out: {names}, whose models have a metadata of their own, and which this database does not have")
    return [target for target in targets if target not in elsewhere]


def chosen_targets(engine: Engine, selection: Selection, *, needs_models: bool) -> list[PublicIdColumn]:
    """Return the column of each table that *selection* names.

    :param needs_models: True to refuse ``--all`` without models, which would change tables that nobody named.
    """
    tables, base, is_all = selection.location.tables, selection.models, selection.all_tables
    described = take_fields(PublicIdColumn, selection.options)
    if selection.column is not None:
        described["column"] = selection.column
    if bool(tables) == is_all:
        raise click.UsageError(
            "name the tables, or pass --all" if not tables else "pass either tables or --all, not both"
        )
    if base is None and is_all and needs_models:
        raise click.UsageError("--all needs --models MODULE:BASE; without models, name the tables")
    schemas = chosen_schemas(engine, described.pop("schema", None))
    if base is None:
        inspector = inspect(engine)
        return [
            PublicIdColumn.of(name, schema=schema, **described)
            for schema in schemas
            for name in tables or inspector.get_table_names(schema=schema)
        ]
    if described:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(described))
        raise click.UsageError(
            f"the models already describe the column; leave out {flags}, or leave out --models, and name the table and "
            f"the --format of its ids"
        )
    declaring = [table for metadata in metadata_of(base) for table in metadata.tables.values()]
    columns = [column for table in declaring for column in public_id_columns(table)]
    declared = [target for column in columns if (target := read_declared(column, engine.dialect)) is not None]
    targets = [target for target in declared if not tables or target.table in tables]
    if unknown := {*tables} - {target.table for target in targets}:
        raise click.UsageError(f"the models declare no unique public id for {', '.join(sorted(unknown))}")
    if not targets:
        raise click.UsageError(f"no model of {name_of_base(base)} has a unique public id")
    if is_all:
        own = {(table.name, table.schema) for table in _own_metadata(base).tables.values()}
        targets = _leave_out_elsewhere(engine, targets, own, schemas)
    if schemas == [None]:
        return targets
    if elsewhere := [target for target in targets if target.schema and (tables or target.schema in schemas)]:
        raise click.UsageError(
            f"the models declare the schema {elsewhere[0].schema!r} for {elsewhere[0].table}, and --schema is for "
            f"tables that are declared without one; leave out --schema, or leave out --models and name the tables"
        )
    return [replace(target, schema=schema) for schema in schemas for target in targets if target.schema is None]
