"""Apply the remedy of a finding, as a user who pastes it."""

from __future__ import annotations

import shlex
from collections.abc import Callable

import pytest
from sqlalchemy import Engine
from support import command
from support.people import send

from sqlalchemy_public_id.audit import Finding, Remedy, Report


def paste(engine: Engine, remedy: Remedy | None) -> None:
    """Run the lines of *remedy*."""
    assert remedy is not None
    if remedy.language == "sh":
        (line,) = remedy.lines
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DATABASE_URL", engine.url.render_as_string(hide_password=False))
            assert command.run(*shlex.split(line)[1:]).exit_code == 0
    else:
        assert remedy.language == "sql", remedy
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for line in remedy.lines:
                if not line.startswith("--"):
                    send(connection, line)


def mend(engine: Engine, look: Callable[[], Report]) -> list[Finding]:
    """Paste the remedy of the first finding that has one, and audit again, until none has; return what is left."""
    for _ in range(10):
        findings = look().findings
        remedies = [one.remedy for one in findings if one.remedy is not None and one.remedy.language != "text"]
        if not remedies:
            break
        paste(engine, remedies[0])
    return findings
