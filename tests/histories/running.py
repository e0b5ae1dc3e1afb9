"""Run a history from its beginning to its end, and report the findings."""

from __future__ import annotations

import array
import fcntl
import multiprocessing
import os
import signal
import tempfile
import termios
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from histories.checking import NEVER, Operation, check
from histories.operations import Settings, create_tables, stored_rows
from histories.places import Place
from histories.plans import troubles_of
from histories.recording import TICKET, history_of, logs_of, work
from histories.troubles import LANES, Happened, Lane
from support.judge import Finding

__all__ = ["Report", "run"]

_AHEAD = 1000
"""The number of tickets in the pipe."""
_STUCK = 60
"""Seconds without a record after which the workers count as stuck."""


@dataclass
class Report:
    """The result of a history."""

    seed: int
    database: str
    seconds: float
    operations: Sequence[Operation]
    happened: Sequence[Happened]
    findings: Sequence[Finding] = field(default_factory=list)

    def outcomes(self) -> Counter[str]:
        """Return the number of "ok", "failed" and "unknown" operations."""
        return Counter(operation.outcome for operation in self.operations)

    def __str__(self) -> str:
        outcomes, troubles = self.outcomes(), Counter(each.name for each in self.happened)
        errors = Counter(
            f"{each.failure.name} {each.failure.code}".strip() + " (lost)" * each.failure.lost
            for each in self.operations
            if each.failure is not None
        )
        created = Counter(
            f"insert_once, {'new' if touch.told[0] else 'stored already'}"
            for each in self.operations
            for touch in each.touches
            if touch.verb == "once" and each.outcome == "ok"
        )
        lines = [
            f"seed {self.seed} on {self.database}: {len(self.operations)} operations in {self.seconds:.1f} s",
            f"  acknowledged {outcomes['ok']}, failed {outcomes['failed']}, unknown {outcomes['unknown']}",
            f"  {_counted(created)}",
            f"  errors: {_counted(errors)}",
            f"  troubles: {_counted(troubles)}; refused: {sum(bool(each.refused) for each in self.happened)}",
            f"  findings: {len(self.findings)}",
            *(f"  {number}. {finding}{self._beside(finding)}" for number, finding in enumerate(self.findings[:10], 1)),
        ]
        return "\n".join(lines)

    def _beside(self, finding: Finding) -> str:
        """Return the troubles that happened during the operations of *finding*."""
        begin = min((each.begin for each in finding.operations), default=NEVER)
        end = max((each.end for each in finding.operations), default=0)
        beside = [str(each) for each in self.happened if each.begin <= end and begin <= each.end]
        return f"\n    meanwhile: {'; '.join(beside)}" if beside else ""


def _counted(names: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in names.most_common()) or "none"


def run(
    place: Place, seed: int, operations: int, *, processes: int = 2, threads: int = 4, careless: bool = False
) -> Report:
    """Run a history at *place*, and check it."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="public-id-history-records-") as records:
        settings = Settings(seed, place.url, place.counters, records, threads, careless)
        create_tables(place.url, place.counters)
        workers = _Workers(settings, operations, processes)
        planned = troubles_of(seed, operations, place.troubles)
        lanes = [Lane(place, workers, [each for each in planned if each[1] in names]) for names in LANES]
        for lane in lanes:
            lane.start()
        try:
            found = workers.run()
        finally:
            for lane in lanes:
                lane.over.set()
            for lane in lanes:
                lane.join()
        place.heal()
        for lane in lanes:
            if lane.failure is not None:
                raise lane.failure
        place.wait_for_silence()
        history = history_of(settings)
        findings = [*found, *check(history, stored_rows(place.url))]
        if found:
            findings[:0] = [Finding("log", told) for told in logs_of(settings)]
    first = workers.begin
    happened = [
        replace(each, begin=each.begin - first, end=each.end - first) for lane in lanes for each in lane.happened
    ]
    return Report(seed, place.database, time.monotonic() - begin, history, happened, findings)


class _Workers:
    """Processes that perform the operations, and are restarted when they are killed."""

    def __init__(self, settings: Settings, operations: int, processes: int) -> None:
        self._settings, self._operations = settings, operations
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["sqlalchemy_public_id.idempotency", "psycopg", "pymysql"])
        read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._tickets = Connection(read, writable=False)
        self._fed = 0
        self._running: dict[int, BaseProcess | None] = dict.fromkeys(range(processes))
        self._born = [0] * processes
        self.begin = 0

    def run(self) -> list[Finding]:
        """Perform all operations; return findings about the processes."""
        self.begin = time.monotonic_ns()
        for number in self._running:
            self._start(number)
        try:
            return self._watch()
        finally:
            for process in self._running.values():
                if process is not None and process.is_alive():
                    process.kill()
            self._tickets.close()
            if self._fed < self._operations:
                os.close(self._write)

    def _watch(self) -> list[Finding]:
        findings: list[Finding] = []
        recorded, moved = 0, time.monotonic()
        while any(process is not None for process in self._running.values()):
            self._feed()
            for number, process in self._running.items():
                if process is None or process.is_alive():
                    continue
                code = process.exitcode
                if code:
                    if code != -signal.SIGKILL:
                        findings.append(Finding("process", f"process {number} ended with {code}"))
                    self._start(number)
                else:
                    self._running[number] = None
            now = sum(path.stat().st_size for path in Path(self._settings.records).glob("*.jsonl"))
            if now != recorded:
                recorded, moved = now, time.monotonic()
            elif time.monotonic() - moved > _STUCK:
                for pid in self.pids():
                    os.kill(pid, signal.SIGUSR1)  # makes the process print the stacks of its threads
                time.sleep(1)
                return [*findings, Finding("stuck", f"nothing happened for {_STUCK} seconds")]
            time.sleep(0.01)
        return findings

    def _feed(self) -> None:
        while self._fed < self._operations and self._fed - self.done() < _AHEAD:
            last = min(self._fed + 250, self._operations)
            os.write(self._write, b"".join(each.to_bytes(TICKET, "big") for each in range(self._fed, last)))
            self._fed = last
            if last == self._operations:
                os.close(self._write)

    def _start(self, number: int) -> None:
        self._born[number] += 1
        name = f"{number}.{self._born[number]}"
        process = self._context.Process(target=work, args=(self._settings, name, self._tickets), daemon=True)
        process.start()
        self._running[number] = process

    def pids(self) -> list[int]:
        return [process.pid for process in self._running.values() if process is not None and process.pid]

    def done(self) -> int:
        """Return the number of tickets that were taken."""
        unread = array.array("i", [0])
        try:
            fcntl.ioctl(self._tickets.fileno(), termios.FIONREAD, unread)
        except OSError:  # the pipe is closed at the end
            return self._operations
        return self._fed - unread[0] // TICKET
