"""The models of an application, and their rows."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import click
from sqlalchemy import Engine, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Mapper, configure_mappers

from sqlalchemy_public_id.cli._console import UsageProblem
from sqlalchemy_public_id.columns import public_id_type
from sqlalchemy_public_id.errors import PublicIdError
from sqlalchemy_public_id.orm.inspection import id_attributes, mapped_classes


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
        raise click.BadParameter(f"{text} is no declarative base; expected a class such as class Base(DeclarativeBase)")
    return base


def columns_of(base: Any, text: str) -> Iterator[tuple[Mapper[Any], Any]]:
    """Yield the models of *base* that can have the id *text*, each with the column of the id."""
    try:
        configure_mappers()
    except (SQLAlchemyError, PublicIdError) as error:
        raise UsageProblem(f"the models cannot be configured: {' '.join(str(error).split())}") from None
    for mapper in mapped_classes(base.registry):
        for column in id_attributes(mapper).values():
            is_own = column.table is mapper.local_table  # not inherited
            if is_own and public_id_type(column).id_format.is_valid(text):
                yield mapper, column


def has_row(engine: Engine, column: Any, text: str) -> bool:
    """Return True if a row has the id *text*."""
    with engine.connect() as connection:
        return connection.execute(select(column).where(column == text)).first() is not None
