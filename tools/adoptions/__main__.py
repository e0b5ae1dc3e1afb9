"""Run a migration of a program while other processes use its tables, and print what they saw: see ``README.md``."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from sqlalchemy import create_engine, make_url

from tools.benchmarks.live_load import Work, running, summary

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
QUIET = 3
"""Seconds of load before and after the command."""


def fill(url: str, statements: list[str]) -> None:
    """Write the rows of a program that was in use for a while."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


def measure(url: str, rows: int, work: Work, command: list[str]) -> dict[str, object]:
    """Run *command* beside the processes of *work*, and return what happened."""
    with running(make_url(url), rows, work) as load:
        time.sleep(QUIET)
        began = time.monotonic()
        ended_with = subprocess.run(command, check=False).returncode
        seconds = time.monotonic() - began
        time.sleep(QUIET)
    return {"exit code": ended_with, "seconds": round(seconds, 1), **summary(load.samples)}


def main() -> None:
    """Read the command line; ``fill`` as the command writes the rows."""
    parser = argparse.ArgumentParser(prog="python -m tools.adoptions", description=__doc__)
    parser.add_argument("program", choices=sorted(file.stem for file in HERE.glob("*.toml")))
    parser.add_argument("url", help="the database, with a driver of this environment")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="'fill', or a command, such as: alembic upgrade head")
    arguments = parser.parse_args()
    program = tomllib.loads((HERE / f"{arguments.program}.toml").read_text(encoding="utf-8"))
    if arguments.command == ["fill"]:
        fill(arguments.url, program["fill"])
        return
    work = Work(program["statements"], [(each["weights"], each["per_second"]) for each in program["processes"]])
    print(json.dumps(measure(arguments.url, program["rows"], work, arguments.command), indent=2))


if __name__ == "__main__":
    main()
