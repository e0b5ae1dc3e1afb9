"""``tests/README.md`` lists what the tests share, from its docstrings, and no test repeats a supported model.

``python tests/packaging/test_index_of_support.py`` writes the lists anew.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

TESTS = Path(__file__).parents[1]
SUPPORT = sorted((TESTS / "support").glob("*.py"))
FIXTURES = [TESTS / "conftest.py", TESTS / "support/fixtures.py", TESTS / "support/invoices.py"]
README = TESTS / "README.md"
BEGIN, END = "<!-- from the docstrings of tests/support -->\n", "<!-- end -->\n"

APART = {"whole/test_drivers.py"}
"""Modules that declare a copy of a supported model for now."""

Described: TypeAlias = ast.Module | ast.ClassDef | ast.FunctionDef


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def columns_of(model: ast.ClassDef) -> dict[str, str]:
    """Return name → declaration of the columns, relationships and settings of a model."""
    found = {}
    for node in model.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = ast.unparse(node)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = ast.unparse(node)
    return found


def models_of(module: ast.Module) -> Iterator[ast.ClassDef]:
    """Yield the models that a module defines at its top level, and their subclasses."""
    names = set()
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            is_subclass = any(isinstance(base, ast.Name) and base.id in names for base in node.bases)
            is_of_sqlmodel = any(keyword.arg == "table" for keyword in node.keywords)
            if is_subclass or is_of_sqlmodel or {"__tablename__", "__public_id__"} & columns_of(node).keys():
                names.add(node.name)
                yield node


def fixtures_of(module: ast.Module) -> Iterator[ast.FunctionDef]:
    """Yield the fixtures that a test may request by name."""
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and "pytest.fixture" in map(ast.unparse, node.decorator_list):
            yield node


def first_line(of: Described) -> str:
    """Return the first line of the docstring in Markdown."""
    return re.sub(r":\w+:(`[^`]*`)", r"\1", (ast.get_docstring(of) or "").split("\n")[0].replace("``", "`"))


def rows(*titles: str) -> list[str]:
    return [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]


def index() -> str:
    """Return the tables of ``tests/README.md``."""
    modules = {path.stem: parsed(path) for path in SUPPORT}
    models = sorted((model.name, name, first_line(model)) for name, of in modules.items() for model in models_of(of))
    fixtures = sorted((each.name, first_line(each)) for path in FIXTURES for each in fixtures_of(parsed(path)))
    return "\n".join(
        [
            *rows("model", "of `support`", "what it is"),
            *(f"| `{model}` | `{module}` | {what} |" for model, module, what in models),
            "",
            *rows("module of `support`", "what it gives"),
            *(f"| `{name}` | {first_line(module)} |" for name, module in modules.items()),
            "",
            *rows("fixture", "what it gives"),
            *(f"| `{name}` | {what} |" for name, what in fixtures),
            "",
        ]
    )


def test_index() -> None:
    """The lists in ``tests/README.md`` are those of the docstrings."""
    written = README.read_text().split(BEGIN)[1].split(END)[0]

    assert written == index(), f"run: python {Path(__file__).relative_to(TESTS.parent)}"


def test_docstrings() -> None:
    """Each module of ``tests/support``, each of its models, and each fixture says in one line what it is."""
    silent = []
    for path in {*SUPPORT, *FIXTURES}:
        module = parsed(path)
        shared: list[Described] = [module, *models_of(module), *(fixtures_of(module) if path in FIXTURES else ())]
        silent += [f"{path.name}: {getattr(each, 'name', 'module')}" for each in shared if not first_line(each)]

    assert silent == []


def test_no_copy_of_a_supported_model() -> None:
    """No test declares a model with the name, the bases and all columns of a supported one: it imports it."""
    declared: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for path in [*SUPPORT, *sorted(TESTS.rglob("test_*.py"))]:
        for model in models_of(parsed(path)) if str(path.relative_to(TESTS)) not in APART else ():
            columns = columns_of(model)
            if len(columns) > 1:  # one line more than an import
                key = (model.name, *map(ast.unparse, model.bases), *sorted(columns.values()))
                declared[key].append(str(path.relative_to(TESTS)))

    assert [paths for paths in declared.values() if len(paths) > 1 and paths[0].startswith("support")] == []


if __name__ == "__main__":
    before, _, rest = README.read_text().partition(BEGIN)
    README.write_text(before + BEGIN + index() + END + rest.partition(END)[2])
