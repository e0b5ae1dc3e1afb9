"""Run pytest in the source distribution of a suite, on a separate database."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

import psycopg

from tools.outside.comparing import Broken, Outcome, read
from tools.outside.suites import CACHE, HERE, LIBRARY, Suite

__all__ = ["Run", "Runner"]

_PLUGINS = HERE / "plugins"
_DONE = {0, 1}  # exit statuses of pytest: all passed, some failed
_numbers = count(1)


@dataclass(frozen=True)
class Run:
    """The result of one run of pytest."""

    outcomes: dict[str, Outcome]
    seconds: float


@dataclass(frozen=True)
class Runner:
    """Runs suites."""

    server: str
    processes: int
    timeout: float

    def run(self, suite: Suite, database: str, tests: Sequence[str], *, loaded: bool, again: bool = False) -> Run:
        """Run *tests* of *suite*, with the library or without it; *again* keeps the logs of the first run.

        :raises Broken: if the outcomes prove nothing.
        """
        python, folder = suite.prepare(), suite.unpack()
        name = f"{suite.name}-{suite.series}-{database}-{'with' if loaded else 'without'}{'-again' if again else ''}"
        logs = CACHE / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        log, outcomes, facts = (logs / f"{name}.{kind}" for kind in ("log", "outcomes", "facts"))
        for path in (outcomes, facts):
            path.unlink(missing_ok=True)
        plugins = ["public_id_outcomes", *(["public_id_loaded"] if loaded else [])]
        own = next(name for name in ("pytest.ini", "pyproject.toml") if (folder / name).exists())
        command = [
            *(str(python), "-m", "pytest", "-c", own),  # otherwise pytest finds our configuration if a suite has none
            *(part for plugin in plugins for part in ("-p", plugin)),
            *("-p", "no:cacheprovider", "--tb=native", "-q", "--maxfail=0", "--continue-on-collection-errors"),
            *(("-n", str(self.processes)) if suite.xdist and self.processes > 1 else ()),
            *(*suite.databases[database], *tests),
        ]
        path = [_PLUGINS, LIBRARY] if loaded else [_PLUGINS]
        with _database(database, self.server) as url, log.open("w") as output:
            environment = {
                **{key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")},
                **{key: _fill(value, url) for key, value in suite.environment.get(database, {}).items()},
                "PATH": os.pathsep.join((str(python.parent), os.environ["PATH"])),  # suites start programs
                "PYTHONPATH": os.pathsep.join(map(str, path)),
                "PYTHONNOUSERSITE": "1",  # otherwise SQLAlchemy's suite prefers the sources to the installed package
                "PUBLIC_ID_OUTCOMES": str(outcomes),
                "PUBLIC_ID_LOADED": str(facts),
            }
            streams = {"stdout": output, "stderr": output, "start_new_session": True}
            begun, arguments = time.monotonic(), [_fill(part, url) for part in command]
            process = subprocess.Popen(arguments, cwd=folder, env=environment, **streams)
            try:
                status = process.wait(self.timeout)
            except subprocess.TimeoutExpired:
                status = "nothing but a timeout"
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        seconds = time.monotonic() - begun
        if status not in _DONE:
            raise Broken(f"pytest ended with {status} after {seconds:.0f} s; its output is in {log}")
        if loaded:
            processes = [json.loads(line) for line in facts.read_text().splitlines()] if facts.exists() else []
            if not processes or not all(each["works"] for each in processes):
                raise Broken(f"the library was not at work to the end: {processes}")
            if not all(each["library"].startswith(f"{LIBRARY}{os.sep}") for each in processes):
                raise Broken(f"another copy of the library was at work: {processes}")
        with outcomes.open(encoding="utf-8") as lines:
            return Run(read(lines), seconds)


def _fill(text: str, url: str) -> str:
    """Replace the placeholders in *text* by *url*, the URL without a driver, and the name of the database."""
    places = {"{url}": url, "{dsn}": url.replace("+psycopg:", ":"), "{name}": url.rpartition("/")[2]}
    for place, value in places.items():
        text = text.replace(place, value)
    return text


@contextmanager
def _database(kind: str, server: str) -> Iterator[str]:
    """Yield the URL of a new database with the schemas that SQLAlchemy's suite expects; drop it afterwards."""
    if kind == "sqlite":
        yield "sqlite://"
        return
    name = f"public_id_outside_{os.getpid()}_{next(_numbers)}"
    with _connect(f"{server}/postgres") as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING 'utf8' TEMPLATE template0")
        connection.execute(f"ALTER DATABASE {name} SET default_text_search_config = 'pg_catalog.english'")
        try:
            with _connect(f"{server}/{name}") as inside:
                for schema in ("test_schema", "test_schema_2"):
                    inside.execute(f"CREATE SCHEMA {schema}")
            yield f"{server}/{name}".replace("postgresql:", "postgresql+psycopg:", 1)
        finally:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _connect(url: str) -> psycopg.Connection:
    try:
        return psycopg.connect(url, autocommit=True)
    except psycopg.OperationalError as error:
        raise Broken(f"no database: {error}") from error
