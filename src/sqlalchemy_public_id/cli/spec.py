"""``public-id spec``: the formats of models as JSON, for programs in other languages."""

from __future__ import annotations

import json
from typing import Any

import click

from sqlalchemy_public_id.cli._console import UsageProblem, echo, example_lines
from sqlalchemy_public_id.cli._tables import base_argument, declared_ids, name_of_base
from sqlalchemy_public_id.columns import public_id_type


@click.command(epilog=example_lines("public-id spec shop.models:Base"))
@click.argument("models", type=base_argument, metavar="MODULE:BASE")
def spec(models: Any) -> None:
    """Print the formats of the models of MODULE:BASE as JSON, from which other programs make and check their ids."""
    described = [
        {
            "model": mapper.class_.__name__,
            "attribute": name,
            "table": getattr(column.table, "fullname", None),
            "column": column.name,
            "ids": public_id_type(column).id_format.spec(),
        }
        for mapper, name, column in declared_ids(models)
    ]
    if not described:
        raise UsageProblem(f"no model of {name_of_base(models)} has a public id")
    described.sort(key=lambda each: (str(each["model"]), str(each["attribute"])))
    echo(json.dumps({"spec": 1, "public_ids": described}, indent=2, ensure_ascii=False))
