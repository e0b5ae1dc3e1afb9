"""Safety advice: complete, filled with the user's names, and the same on the page of the documentation."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TypeGuard, get_args

import pytest

from sqlalchemy_public_id import advice
from sqlalchemy_public_id.advice import ADVICE, Advice, Database, about

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "dangerous-migrations.md"

every_piece = pytest.mark.parametrize("piece", ADVICE.values(), ids=list(ADVICE))


def pieces_in(language: str) -> pytest.MarkDecorator:
    """The pieces whose lines are written in *language*; that there is none is a mistake."""
    pieces = {slug: piece for slug, piece in ADVICE.items() if piece.language == language}
    assert pieces
    return pytest.mark.parametrize("piece", pieces.values(), ids=list(pieces))


def test_the_page_is_what_the_pieces_say() -> None:
    """The page of the documentation is generated:
    ``python -m sqlalchemy_public_id.advice > docs/guides/dangerous-migrations.md``."""
    assert PAGE.read_text() == advice.as_markdown()


def test_the_page_is_written_by_the_module() -> None:
    """The module, run as a program, prints the page."""
    command = [sys.executable, "-W", "error", "-m", "sqlalchemy_public_id.advice"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout == advice.as_markdown()


@every_piece
def test_pieces_are_complete(piece: Advice) -> None:
    """Each piece has all of its parts, in whole sentences where it is prose."""
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", piece.slug)
    assert piece.title
    assert not piece.title.endswith(".")
    assert piece.danger.endswith(".")
    assert piece.lock.endswith(".")
    assert piece.bad
    assert piece.good
    assert piece.bad != piece.good
    assert piece.databases
    assert set(piece.databases) <= set(get_args(Database))


@every_piece
def test_names_are_filled_in(piece: Advice) -> None:
    """The lines to paste have the names that were given, and no place is left open."""
    names = {"index": "I1", "check": "CK1", "new": "New()", "old": "Old()"}
    filled = about(piece.slug, table="T1", column="C1", key="K1", length=77, **names)
    ours = piece.bad + piece.good

    assert "{" not in filled.bad + filled.good
    assert "customer" not in filled.bad + filled.good
    assert ("customer" in ours) == ("T1" in filled.bad + filled.good)
    assert re.findall(r"\b12\b", filled.bad + filled.good) == []


@pieces_in("text")
def test_python_is_python(piece: Advice) -> None:
    """Lines that are neither SQL nor for a shell can be read by Python."""
    ast.parse(piece.bad)
    ast.parse(piece.good)


@pieces_in("sql")
def test_strong_locks_have_a_timeout(piece: Advice) -> None:
    """Lines that take a strong lock set the lock timeout first, as the guide to live tables demands."""
    lines = piece.good.splitlines()
    strong = [at for at, line in enumerate(lines) if line.startswith("ALTER TABLE")]
    if not strong or piece.databases == ("sqlite",):
        return
    timeout = (
        r"SET (LOCAL )?lock_timeout = '1s';"
        if "postgresql" in piece.databases
        else r"SET SESSION lock_wait_timeout = 1\b"
    )
    before = [at for at, line in enumerate(lines) if re.match(timeout, line)]

    assert before
    assert before[0] < strong[0]
    if piece.databases == ("postgresql",):
        assert lines[-1] == "RESET lock_timeout;"
        assert not any("CONCURRENTLY" in line for line in lines[before[0] :])


@pieces_in("sh")
def test_shells_can_read_it(piece: Advice) -> None:
    """Lines for a shell can be read by one."""
    for lines in (piece.bad, piece.good):
        subprocess.run(["sh", "-n", "-c", lines], check=True)


ODD = """we"ird $(touch reached) `touch reached` 'n \\ all"""
"""A name of a table that neither Python nor a shell takes as it is."""


@every_piece
def test_names_are_escaped_for_python(piece: Advice) -> None:
    """Names end up whole inside the strings of Python lines."""
    if piece.language == "text" and '"customer"' in piece.good:
        names = [node.value for node in ast.walk(ast.parse(about(piece.slug, table=ODD).good)) if is_string(node)]
        assert ODD in names


def is_string(node: ast.AST) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


@every_piece
def test_names_are_escaped_for_shells(piece: Advice, tmp_path: Path) -> None:
    """Names end up whole in the arguments of a shell's commands, and nothing in them is run."""
    if piece.language != "sh":
        return
    for name in ("gh-ost", "mysql", "psql", "public-id"):
        (tmp_path / name).write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    filled, plain = (about(piece.slug, table=name, column=name, index=name) for name in (ODD, "NAME"))
    for lines, expected in ((filled.bad, plain.bad), (filled.good, plain.good)):
        command = ["sh", "-c", lines]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.count(ODD) == expected.count("NAME")
    assert not (tmp_path / "reached").exists()


def test_our_operations_take_what_is_written() -> None:
    """The operations that the pieces name are there."""
    from sqlalchemy_public_id.alembic import ops

    named = {name for piece in ADVICE.values() for name in re.findall(r"op\.(\w+_public_id)\(", piece.bad + piece.good)}

    assert named
    assert named <= set(vars(ops))


def test_unknown_slugs() -> None:
    """There is no advice on what nobody wrote about."""
    with pytest.raises(KeyError):
        about("nothing")


def test_slugs_are_keys() -> None:
    """Each piece is found under its own slug, and none can be changed."""
    assert {slug: piece.slug for slug, piece in ADVICE.items()} == dict(zip(ADVICE, ADVICE, strict=True))
    with pytest.raises(TypeError):
        ADVICE["mine"] = about("invalid-index")  # type: ignore[index]
