"""What mends a finding: the statements of a migration, a command, or the declaration of a model."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection

from sqlalchemy_public_id.audit.report import Remedy
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.formats import Format
from sqlalchemy_public_id.formats.guess import guesses
from sqlalchemy_public_id.migrating.column import Patience, PublicIdColumn
from sqlalchemy_public_id.migrating.plan import Consent, Scene
from sqlalchemy_public_id.migrating.run import list_statements, plan_for
from sqlalchemy_public_id.preflight import find_obstacles

_OF_THE_FORMAT = {"wrong-type", "too-short"}
"""The codes of obstacles that are none if the format of the target is a guess."""
_OF_ROWS = ("schema", "format")
_OF_COLUMNS = ("unique_name", "collation", "server_default")


def contract(connection: Connection, target: PublicIdColumn, *, is_format_known: bool) -> Remedy | None:
    """Return what completes the column, or what stands in the way of that; ``None`` if no step is left."""
    try:
        scene = contract_of(connection, target)
    except ConfigurationError as error:  # such as a name that the operations do not take
        return Remedy("text", (str(error),))
    obstacles = find_obstacles(scene, catalogs_only=True)
    if in_the_way := [one for one in obstacles if is_format_known or one.code not in _OF_THE_FORMAT]:
        return Remedy("text", tuple(map(str, in_the_way)))
    steps = [step for _, step in scene.steps]
    if not steps:
        return None
    if connection.dialect.name == "sqlite":
        # a shell goes on after an error: if a row had no id, it would drop the old table and keep an empty copy
        return command("contract", scene.target)
    lines = list_statements(steps, connection, scene.state, Patience())
    return Remedy("sql", tuple(line if line.startswith("-- ") else f"{line};" for line in lines))


def contract_of(connection: Connection, target: PublicIdColumn) -> Scene:
    """Return what the contract of *target* would find.

    :raises ConfigurationError: if the operations do not take its names.
    """
    plan, state = plan_for(target, connection.dialect), target.read_state(connection)
    if plan.has_own_default(state):  # which stays
        plan = plan_for(replace(target, server_default="keep"), connection.dialect)
    return Scene(connection, plan, ["contract"], Consent(), state)


def command(name: str, target: PublicIdColumn) -> Remedy:
    """Return the command ``public-id <name>`` for *target*."""
    usual = PublicIdColumn.of(target.table, target.column)
    names = _OF_ROWS if name == "backfill" else (*_OF_ROWS, *_OF_COLUMNS)
    said = {each: getattr(target, each) for each in names if getattr(target, each) != getattr(usual, each)}
    if target.column != "public_id":
        said["column"] = target.column
    options = [word for option, value in said.items() for word in (f"--{option.replace('_', '-')}", str(value))]
    options += ["--"] if target.table.startswith("-") else []  # what follows is no option
    return Remedy("sh", (f'public-id {name} "$DATABASE_URL" {shlex.join([*options, target.table])}',))


def accept(format: Format, older: Sequence[str]) -> Remedy | None:
    """Return the declaration of *format* that accepts the *older* ids, too; ``None`` if none can be constructed."""
    for guess in guesses(older[0]):
        try:
            wider = format.accepting(guess)
        except ConfigurationError:
            continue
        if all(map(wider.is_valid, older)):
            return Remedy("python", (f"__public_id__ = {wider!r}",))
    return None
