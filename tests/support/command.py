"""The ``public-id`` command, run inside this process."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from click.testing import CliRunner, Result

from sqlalchemy_public_id.cli.commands import public_id

_APART: dict[str, Any] = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
"""The option that separates stdout and stderr, which Click does by default since 8.2."""


def run(*arguments: object, given: str | bytes | None = None) -> Result:
    """Run the command, with *given* as its input. Any exception other than an exit fails the test.

    What the command has printed is part of the report of a test that fails.
    """
    words = [str(argument) for argument in arguments]
    result = CliRunner(**_APART).invoke(public_id, words, input=given, prog_name="public-id")
    sys.stdout.write(f"$ public-id {' '.join(words)}\n{result.stdout}{result.stderr}")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
