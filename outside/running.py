"""One run of pytest in the source distribution of a suite."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from outside import databases, environments
from outside.comparing import Broken, Outcome, read
from outside.suites import HERE, Suite

__all__ = ["Facts", "Run", "Runner"]

_PLUGINS = HERE / "plugins"
_DONE = {0, 1}  # exit statuses of pytest: all passed, some failed


@dataclass(frozen=True)
class Facts:
    """What the plugin has seen: guarded engines, and listeners that the suite had removed."""

    engines: int = 0
    revived: int = 0


@dataclass(frozen=True)
class Run:
    """What one process of pytest has shown."""

    outcomes: dict[str, Outcome]
    seconds: float
    facts: Facts


@dataclass(frozen=True)
class Runner:
    """Runs suites; *tick* is called every second with the number of outcomes so far."""

    server: str
    processes: int
    timeout: float
    tick: Callable[[int], None]

    def run(self, suite: Suite, database: str, tests: Sequence[str], *, loaded: bool, again: bool = False) -> Run:
        """Run *tests* of *suite*, with the library or without it; *again* keeps the logs of the first time.

        :raises Broken: if the outcomes prove nothing.
        """
        python, folder = environments.prepare(suite), environments.unpack(suite)
        name = f"{suite.name}-{suite.series}-{database}-{'with' if loaded else 'without'}{'-again' if again else ''}"
        logs = environments.CACHE / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        log, outcomes, facts = (logs / f"{name}.{kind}" for kind in ("log", "outcomes", "facts"))
        for path in (outcomes, facts):
            path.unlink(missing_ok=True)
        with databases.create(database, self.server) as url:
            command = [python, "-m", "pytest", *self._options(suite, database, folder, loaded=loaded), *tests]
            variables = {key: _fill(value, url) for key, value in suite.environment.get(database, {}).items()}
            variables["PATH"] = os.pathsep.join((str(python.parent), os.environ["PATH"]))  # suites start programs
            environment = _environment({**os.environ, **variables}, outcomes, facts, loaded=loaded)
            begun = time.monotonic()
            status = self._wait([_fill(str(part), url) for part in command], environment, folder, log, outcomes)
        seconds = time.monotonic() - begun
        if status not in _DONE:
            raise Broken(f"pytest ended with {status} after {seconds:.0f} s; its output is in {log}")
        with outcomes.open(encoding="utf-8") as lines:
            return Run(read(lines), seconds, _read_facts(facts) if loaded else Facts())

    def _options(self, suite: Suite, database: str, folder: Path, *, loaded: bool) -> list[str]:
        plugins = ["public_id_outcomes", *(["public_id_loaded"] if loaded else [])]
        own = next(name for name in ("pytest.ini", "pyproject.toml") if (folder / name).exists())
        return [
            *("-c", own),  # or a suite without a section for pytest gets ours
            *(part for plugin in plugins for part in ("-p", plugin)),
            *("-p", "no:cacheprovider", "--tb=native", "-q", "--maxfail=0", "--continue-on-collection-errors"),
            *(("-n", str(self.processes)) if suite.xdist and self.processes > 1 else ()),
            *suite.databases[database],
        ]

    def _wait(
        self, command: list[str], environment: dict[str, str], folder: Path, log: Path, outcomes: Path
    ) -> int | str:
        """Return pytest's exit status, or why there is none."""
        with log.open("w") as output:
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
            )
            try:
                end = time.monotonic() + self.timeout
                while time.monotonic() < end:
                    try:
                        return process.wait(timeout=1)
                    except subprocess.TimeoutExpired:
                        self.tick(_count_lines(outcomes))
                return "nothing but a timeout"
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


def _fill(text: str, url: str) -> str:
    """Put *url*, that without a driver, and the name of the database into their places in *text*."""
    places = {"{url}": url, "{dsn}": url.replace("+psycopg:", ":"), "{name}": url.rpartition("/")[2]}
    for place, value in places.items():
        text = text.replace(place, value)
    return text


def _environment(variables: dict[str, str], outcomes: Path, facts: Path, *, loaded: bool) -> dict[str, str]:
    path = [_PLUGINS, environments.LIBRARY] if loaded else [_PLUGINS]
    return {
        **{key: value for key, value in variables.items() if not key.startswith("PYTEST_")},
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "PYTHONNOUSERSITE": "1",  # or SQLAlchemy's suite prefers the sources to what is installed
        "PUBLIC_ID_OUTCOMES": str(outcomes),
        "PUBLIC_ID_LOADED": str(facts),
    }


def _read_facts(path: Path) -> Facts:
    processes = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    if not processes or not all(process["works"] for process in processes):
        raise Broken(f"the library was not at work to the end: {processes}")
    if not all(Path(process["library"]).is_relative_to(environments.LIBRARY) for process in processes):
        raise Broken(f"another copy of the library was at work: {processes}")
    return Facts(sum(each["engines"] for each in processes), sum(each["revived"] for each in processes))


def _count_lines(path: Path) -> int:
    if not path.exists():
        return 0
    with path.open("rb") as file:
        return sum(1 for _ in file)
