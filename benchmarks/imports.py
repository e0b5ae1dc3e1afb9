"""The time to import the library after ``sqlalchemy.orm``. Each sample is a new process, and reads compiled modules.

The garbage collector is off. Its first full collection takes half as long as our import, and belongs to whatever makes
the last of some 80 000 objects: behind ``sqlalchemy.orm`` that is us, and without us it is the next module.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.databases import Bench
from benchmarks.measure import Comparison

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
    """Compare the two programs, ms."""
    ours, rival = _PROGRAM.format(more="import sqlalchemy_public_id"), _PROGRAM.format(more="")
    taken: dict[str, list[tuple[float, float]]] = {ours: [], rival: []}
    for turn in range(-1, bench.times(40, 5)):
        for program in (ours, rival) if turn % 2 else (rival, ours):
            sample = _milliseconds(program)
            if turn >= 0:  # the first round fills the caches
                taken[program].append(sample)
    (our_wall, our_cpu), (rival_wall, rival_cpu) = (map(list, zip(*taken[program], strict=True)) for program in taken)
    yield Comparison(
        "sqlalchemy.orm and …",
        *("sqlalchemy_public_id", "nothing more", "ms"),
        *(our_wall, rival_wall),
        goal=25,
        difference=True,
        cpu=(our_cpu, rival_cpu),
    )


def _milliseconds(program: str) -> tuple[float, float]:
    """Return wall and CPU time of the imports of *program*, without the start of Python itself."""
    # pip has compiled SQLAlchemy; an editable install is compiled by the first round, if Python may write the result
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    wall, cpu = map(float, done.stdout.split())
    return wall * 1000, cpu * 1000
