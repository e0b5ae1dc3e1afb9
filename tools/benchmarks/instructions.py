"""Instructions of the processor, counted by valgrind: the work of the client, without waits and without the server.

Times of a shared machine differ by a fifth from run to run, these counts by a few thousandths; of one object, by a
fiftieth. So a small change can be compared with the stored results.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.benchmarks.counted import SIDES
from tools.benchmarks.databases import Bench
from tools.benchmarks.measure import Comparison, Unavailable

__all__ = ["run"]

_UNIT = "k"
"""Thousands of instructions."""

_MARKS = """
#include <valgrind/callgrind.h>
void begin(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void end(void) { CALLGRIND_DUMP_STATS; CALLGRIND_STOP_INSTRUMENTATION; }
"""

_FLUSHES = ("library", "default"), ("library", "sentinel"), ("references", "library")
_FLUSH_GOALS = {("sentinel", 1000): 1.03}
"""Rival and number of objects → the largest acceptable ratio."""
_READS = {
    "get:1": ("one row", "lookup.get()", "hand-written SELECT", None),
    "malformed:1": ("a malformed id", "lookup.get()", "hand-written SELECT", 0.05),
    "get_many:100": ("100 ids", "lookup.get_many()", "hand-written SELECT", 1.05),
    "page:20": ("a page of 20 after a cursor", "lookup.page()", "hand-written SELECT", 1.03),
    "load:1000": ("1,000 rows loaded", "PublicIdMixin", "no library", 1.01),
}
"""What to count → its case, names and goal."""
_READ_ON = {"sqlite", "postgresql"}
"""The databases on which reads are counted; the drivers of the others are written in Python, and outweigh the rest."""

_REFERENCE = "page_with_reference:20"
_REFERENCE_NAMES = "a page of 20 with a reference", "lookup.page(references=…)", "a JOIN by hand", 1.03


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare flushes on all databases, reads on SQLite and PostgreSQL, and imports, in thousands of instructions."""
    if shutil.which("valgrind") is None:
        raise Unavailable("valgrind is not installed, which counts the instructions: apt install valgrind")
    counts = [1, 25, *([] if bench.quick else [1000])]
    flushes = {f"flush:{count}": count for count in counts}
    with _marks() as marks:
        for database in bench.on("sqlite", "postgresql", "mysql", "mariadb"):
            url = "sqlite://" if database.name == "sqlite" else database.url.render_as_string(hide_password=False)
            reads = {**_READS, _REFERENCE: _REFERENCE_NAMES} if database.name in _READ_ON else {}
            sides = {
                "library": [*flushes, *(key for key in reads if key != _REFERENCE)],
                "references": [*flushes, *(key for key in reads if key == _REFERENCE)],
                "default": [*flushes, *reads],
                "sentinel": [*flushes],
            }
            found = {side: _counted(marks, side, url, ways) for side, ways in sides.items()}
            for key, count in flushes.items():
                for one, rival in _FLUSHES:
                    what, names = f"flush of {count:,}, {database.name}", (SIDES[one], SIDES[rival], _UNIT)
                    goal = _FLUSH_GOALS.get((rival, count))
                    yield Comparison(what, *names, [found[one][key]], [found[rival][key]], goal)
            for key, (case, name, by_hand, goal) in reads.items():
                ours = found["references" if key == _REFERENCE else "library"]
                what = f"{case}, {database.name}"
                yield Comparison(what, name, by_hand, _UNIT, [ours[key]], [found["default"][key]], goal)
    nothing, orm, both = (_imported(program) for program in ("", "import sqlalchemy.orm", _IMPORT))
    yield Comparison(
        "import", "sqlalchemy_public_id", "sqlalchemy.orm", _UNIT, [both - orm], [orm - nothing], goal=0.12
    )


def _counted(marks: Path, side: str, url: str, ways: list[str]) -> dict[str, float]:
    """Return the thousands of instructions of each of *ways* in a process of *side*."""
    command = ["-m", "tools.benchmarks.counted", side, url, str(marks), *ways]
    *counts, nothing = _watched(command, "--instr-atstart=no")[: len(ways) + 1]
    return {way: (count - nothing) / 1000 for way, count in zip(ways, counts, strict=True)}


@contextmanager
def _marks() -> Iterator[Path]:
    """Compile the two functions that tell valgrind where to begin and to end."""
    with tempfile.TemporaryDirectory(prefix="public-id-marks-") as folder:
        source, library = Path(folder, "marks.c"), Path(folder, "marks.so")
        source.write_text(_MARKS)
        command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            why = str(getattr(error, "stderr", "") or error).strip().splitlines()[0]
            raise Unavailable(
                f"valgrind/callgrind.h and a C compiler are needed: apt install valgrind gcc ({why})"
            ) from None
        yield library


_IMPORT = "import sqlalchemy.orm, sqlalchemy_public_id"


def _imported(program: str) -> float:
    """Return the thousands of instructions of *program*, which reads compiled modules; without garbage collections."""
    command = ["-c", f"import gc; gc.disable(); {program or 'pass'}"]
    subprocess.run([sys.executable, *command], check=True, env=_environment())  # compiles them
    return sum(_watched(command)) / 1000


def _environment() -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**environment, "PYTHONHASHSEED": "0"}


def _watched(command: list[str], *options: str) -> list[int]:
    """Run Python under valgrind, and return what it has counted, part by part."""
    with tempfile.TemporaryDirectory(prefix="public-id-instructions-") as folder:
        out = Path(folder, "out")
        valgrind = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}", *options]
        done = subprocess.run(
            [*valgrind, sys.executable, *command], capture_output=True, text=True, env=_environment(), check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
        paths = sorted(Path(folder).iterdir(), key=lambda path: int(path.suffix[1:] or 10**9))
        texts = [path.read_text(encoding="utf-8", errors="replace") for path in paths]
    return [int(found[1]) for text in texts if (found := re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE))]
