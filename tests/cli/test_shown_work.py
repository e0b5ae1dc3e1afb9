"""What commands show of their work, and what they take from Ctrl-C, step by step in this process."""

from __future__ import annotations

import logging
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import groupby
from typing import Any

import pytest
from sqlalchemy import Engine, event
from support.command import run
from support.marks import SERVERS, on
from support.people import people

from sqlalchemy_public_id.backfill import Progress
from sqlalchemy_public_id.cli import _display
from sqlalchemy_public_id.cli._display import Display
from sqlalchemy_public_id.cli._interrupts import Interrupts, Stopped
from sqlalchemy_public_id.migrations import PublicIdColumn

log = logging.getLogger("sqlalchemy_public_id")
PERSON, ORDER = PublicIdColumn.of("person"), PublicIdColumn.of("order", schema="shop")


class Clock:
    """The time that the display reads."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(_display, "time", made)
    return made


def frames(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what the live line has shown since the last call, and the lines above it."""
    return [frame for frame, _ in groupby(filter(None, capsys.readouterr().err.split("\r")))]


@contextmanager
def live(display: Display) -> Iterator[None]:
    """Let *display* run as on a terminal, but for the thread that draws the line twice a second."""
    with display.running():
        display.is_live = True
        yield


def batch(rows: int, seconds: float = 1.0, **facts: Any) -> Progress:
    return Progress("person", filled=rows, seen=rows, seconds=seconds, **facts)


# --- a terminal, and a pipe


def test_live_line(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """The live line tells what is done with a table, and since when; between batches, only if the last one is old."""
    display = Display()
    show = display.on_progress(PERSON)
    with live(display), display.working_on(PERSON):
        assert frames(capsys)[-1] == "person: examining the table (0 s)"
        log.info("person.public_id: build the unique index")
        clock.now = 61
        display.note("a note")
        assert frames(capsys) == [
            "person: build the unique index (0 s)",
            "person.public_id: build the unique index\n",
            "person: build the unique index (0 s)",
            "a note\n",
            "person: build the unique index (1 min 1 s)",
        ]
        show(batch(1_000, total=3_000))
        clock.now += 5
        display.note("a note")
        assert frames(capsys)[0] == "person: 1,000 rows, 1,000 rows/s, about 2 s left"
        clock.now += 1
        display.note("a note")
        assert frames(capsys)[-1] == "person: 1,000 rows, 1,000 rows/s, about 2 s left; 6 s since the last batch"
        show(batch(3_000, total=3_000, finished=True))
        assert frames(capsys)[-1] == "person: 3,000 rows, 3,000 rows/s (0 s)"


def test_live_line_of_several_tables(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """Each table has its part of the line until its work ends; what is logged later is of no table."""
    display = Display()
    with live(display):
        with display.working_on(ORDER):
            with display.working_on(PERSON):
                pass
            assert frames(capsys)[-2:] == [
                "shop.order: examining the table (0 s) | person: examining the table (0 s)",
                "shop.order: examining the table (0 s)",
            ]
        log.info("a message")
        assert frames(capsys) == ["a message\n"]


def test_lines_of_a_pipe(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe gets the first batch, a line every five seconds, and the last one, for each table with its schema."""
    display = Display()
    display.is_live = False
    show = display.on_progress(ORDER)
    for rows, clock.now in ((1, 10.0), (2, 14.9), (3, 15.0), (4, 19.9)):
        show(batch(rows))
    show(batch(5, finished=True))

    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"shop.order: {rows}, {n} rows/s" for n, rows in ((1, "1 row"), (3, "3 rows"), (5, "5 rows"))]


def test_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    """After the last line, nothing is printed, neither by other threads nor by the live line."""
    display = Display()
    display.is_live = True
    with display.working_on(PERSON):
        display.end("stopped")
        capsys.readouterr()
        display.note("a note")
        display.result("a result")

    assert "".join(capsys.readouterr()) == ""


@pytest.mark.parametrize("error", [None, ValueError], ids=["", "after an error"])
def test_logging_is_as_before(error: type[Exception] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a command runs, it prints what the library logs as INFO; then level and handlers are as before."""
    monkeypatch.setattr(log, "level", logging.ERROR)
    before = [*log.handlers]
    with ExitStack() as stack:
        if error is not None:
            stack.enter_context(pytest.raises(error))
        with Display().running():
            assert log.level == logging.INFO
            assert len(log.handlers) == len(before) + 1
            if error is not None:
                raise error

    assert (log.level, log.handlers) == (logging.ERROR, before)


# --- Ctrl-C


def ignore(number: int, frame: object) -> None:
    """Stand for the handler of a program."""


@pytest.fixture
def handler() -> Iterator[Any]:
    """The handler of SIGINT before the command, which is restored after the test."""
    before = signal.signal(signal.SIGINT, ignore)
    yield ignore
    signal.signal(signal.SIGINT, before)


def press(interrupts: Interrupts, capsys: pytest.CaptureFixture[str]) -> str:
    """Press Ctrl-C, and return what the command says."""
    capsys.readouterr()
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(Stopped):
        interrupts.check()
    return capsys.readouterr().err


@pytest.mark.parametrize(("waits", "said"), [(False, "finishing the batch"), (True, "stopping")])
def test_interrupted_batch(
    handler: Any, engine: Engine, capsys: pytest.CaptureFixture[str], waits: bool, said: str
) -> None:
    """Ctrl-C lets a batch end, or ends a pause; a second one stops at once, and the former handler comes back."""
    interrupts = Interrupts(Display(), in_threads=False)
    with engine.connect() as connection, interrupts.handled(), ExitStack() as stack:
        stack.enter_context(pytest.raises(KeyboardInterrupt))
        stack.enter_context(interrupts.working_on(PERSON, connection))
        interrupts.check()
        interrupts.fills(PERSON, waits=waits)
        assert press(interrupts, capsys) == f"{said}; Ctrl-C again stops at once\n"
        signal.raise_signal(signal.SIGINT)

    assert signal.getsignal(signal.SIGINT) is handler
    with engine.connect() as connection, pytest.raises(Stopped), interrupts.working_on(PERSON, connection):
        pytest.fail("no other table begins")


@pytest.mark.parametrize("end", ["has filled", "error"])
def test_interrupted_without_a_batch(handler: Any, engine: Engine, end: str) -> None:
    """When the rows are filled, or the work on a table has ended with an error, Ctrl-C stops at once."""
    interrupts = Interrupts(Display(), in_threads=False)
    with engine.connect() as connection, interrupts.handled():
        with pytest.raises(ValueError, match="the work"), interrupts.working_on(PERSON, connection):
            interrupts.fills(PERSON, waits=False)
            if end == "has filled":
                interrupts.has_filled(PERSON)
                with pytest.raises(KeyboardInterrupt):
                    signal.raise_signal(signal.SIGINT)
            raise ValueError("the work")
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.backend
@pytest.mark.parametrize("operation", ["add", "backfill"])
def test_interrupted_command(handler: Any, engine: Engine, operation: str) -> None:
    """Ctrl-C during a statement of a batch lets the batch end and nothing after it, in each command that fills rows."""
    url = engine.url.render_as_string(hide_password=False)

    def press_once(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if re.search(r"\bUPDATE\b.*\bSET\b", statement, re.DOTALL) and not pressed:
            pressed.append(statement)
            signal.raise_signal(signal.SIGINT)

    pressed: list[str] = []
    with people(engine, 30) as table:
        table.run("expand_public_id")
        event.listen(Engine, "before_cursor_execute", press_once)
        try:
            done = run(operation, url, "person")
        finally:
            event.remove(Engine, "before_cursor_execute", press_once)

        assert done.exit_code == 130
        assert "finishing the batch; Ctrl-C again stops at once\n" in done.stderr
        assert done.stderr.endswith("stopped; run the same command again to continue\n")
        assert None not in table.ids()  # it was the only batch
        assert not table.state().complete
        assert run(operation, url, "person").exit_code == 0


@pytest.mark.backend
@on(*SERVERS)
def test_interrupted_threads(handler: Any, engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
    """With several tables, Ctrl-C names those whose batch it lets end, and those whose statement it waits for."""
    interrupts = Interrupts(Display(), in_threads=True)
    names = [PublicIdColumn.of(name) for name in ("filled", "paused", "built", "done")]
    with ExitStack() as stack, interrupts.handled():
        for target in names:
            stack.enter_context(interrupts.working_on(target, stack.enter_context(engine.connect())))
        interrupts.fills(names[0], waits=False)
        interrupts.fills(names[1], waits=True)
        interrupts.fills(names[3], waits=False)
        interrupts.has_filled(names[3])

        said = press(interrupts, capsys)

    assert said == "finishing the batch of filled; waiting for built, done; Ctrl-C again stops at once\n"
