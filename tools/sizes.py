"""Count what a reader of the library meets: lines, modules, names that stand for several things, and one operation.

``python -m tools.sizes [URL]``
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FrameType

import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations

import sqlalchemy_public_id

import_module("sqlalchemy_public_id.alembic")  # which adds the methods of op

PACKAGE = Path(str(sqlalchemy_public_id.__file__)).parent


def modules() -> list[Path]:
    """Return the modules of the library."""
    return sorted(PACKAGE.rglob("*.py"))


def defined_in(path: Path) -> Iterator[str]:
    """Yield the classes of a module, and its functions that other modules may use."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) or (isinstance(node, ast.FunctionDef) and not node.name.startswith("_")):
            yield node.name


def names_of_several() -> dict[str, list[str]]:
    """Return the names that several modules define, but for the asynchronous functions, which do the same."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in modules():
        place = path.relative_to(PACKAGE)
        for name in defined_in(path) if place.parts[0] != "asyncio" else ():
            found[name].append(place.as_posix())
    return {name: places for name, places in sorted(found.items()) if len(places) > 1}


def passed_by_an_operation(url: str) -> tuple[int, int]:
    """Return how many modules and functions one ``op.add_public_id()`` passes in the database at *url*."""
    passed: set[tuple[str, str, int]] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)) and not code.co_name.startswith("<"):
            passed.add((code.co_filename, code.co_name, code.co_firstlineno))

    engine, table = sa.create_engine(url), "public_id_sizes"
    with engine.connect() as connection:
        connection.execute(sa.text(f"DROP TABLE IF EXISTS {table}"))
        connection.execute(sa.text(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY)"))
        connection.execute(sa.text(f"INSERT INTO {table} VALUES (1), (2), (3)"))
        connection.commit()
        context = MigrationContext.configure(connection)
        with context.begin_transaction(), Operations.context(context) as op:
            sys.setprofile(note)
            try:
                op.add_public_id(table)  # type: ignore[attr-defined]
            finally:
                sys.setprofile(None)
        connection.execute(sa.text(f"DROP TABLE {table}"))
        connection.commit()
    return len({file for file, _, _ in passed}), len(passed)


def main(url: str = "sqlite://") -> None:
    """Print the numbers."""
    lines = sum(path.read_text(encoding="utf-8").count("\n") for path in modules())
    several = names_of_several()
    print(f"{lines:,} lines, {len(modules())} modules")
    print(f"{len(several)} names that several modules define: {', '.join(several)}")
    print("op.add_public_id() passes {} modules, {} functions".format(*passed_by_an_operation(url)))


if __name__ == "__main__":
    main(*sys.argv[1:])
