"""The time to import the library after ``sqlalchemy.orm``. Each sample is a new process, and reads compiled modules.

The garbage collector is off. Its first full collection takes half as long as our import, and is triggered by whichever
module creates the last of some 80 000 objects: after ``sqlalchemy.orm``, this is the next module to be imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

from tools.benchmarks.databases import Bench
from tools.benchmarks.measure import Comparison

__all__ = ["run"]

_PROGRAM = """
import gc, time
gc.disable()
wall, cpu = time.perf_counter(), time.process_time()
import sqlalchemy.orm
{more}
print(time.perf_counter() - wall, time.process_time() - cpu)
"""


def run(bench: Bench) -> Iterator[Comparison]:
    """Compare the two programs, in ms."""
    programs = [_PROGRAM.format(more=more) for more in ("import sqlalchemy_public_id", "")]
    rounds = [  # the first one fills the caches
        {program: _milliseconds(program) for program in (programs if turn % 2 else reversed(programs))}
        for turn in range(1 + bench.times(40, 5))
    ][1:]
    wall, cpu = ([[each[program][kind] for each in rounds] for program in programs] for kind in (0, 1))
    names = "sqlalchemy.orm and …", "sqlalchemy_public_id", "nothing more", "ms"
    yield Comparison(*names, *wall, goal=25, difference=True, cpu=(cpu[0], cpu[1]))


def _milliseconds(program: str) -> tuple[float, float]:
    """Return wall and CPU time of the imports of *program*, without the start of Python itself."""
    # pip has compiled SQLAlchemy; the first round compiles an editable install, if Python may write bytecode
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    wall, cpu = map(float, done.stdout.split())
    return wall * 1000, cpu * 1000
