"""The function that gives a Snowflake's machine id: who asks it, how often, and how the format is shown."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sqlalchemy_public_id import ConfigurationError, NanoId, Snowflake, Ulid
from sqlalchemy_public_id.formats.snowflake import no_machine

WAIT = 20
"""Seconds after which something hangs."""


def lease() -> int:
    """A machine id for this process."""
    return os.getpid() % 1024


class Leases:
    """What gives machine ids, as its own."""

    @staticmethod
    def take() -> int:
        return 11

    def held(self) -> int:
        return 12


def in_threads(count: int, work: Callable[[], object]) -> list[object]:
    """What *work* answers in so many threads that begin at once."""
    answers: list[object] = []
    barrier = threading.Barrier(count)

    def run() -> None:
        barrier.wait(WAIT)
        answers.append(work())

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    return answers


def test_asked_once_by_all_threads() -> None:
    """Threads that make the first ids at once ask for one machine id together."""
    asked: list[int] = []

    def take() -> int:
        asked.append(len(asked))
        threading.Event().wait(0.05)
        return asked[-1]

    ids = in_threads(8, Snowflake(take).generate)

    assert asked == [0]
    assert len(set(ids)) == 8


def test_other_ids_do_not_wait() -> None:
    """While the function is at work, the first ids of other formats are made; the function may make some itself."""
    began, goes_on = threading.Event(), threading.Event()
    made: list[str] = []

    def take() -> int:
        made.append(Ulid().generate())
        began.set()
        assert goes_on.wait(WAIT)
        return 13

    format = Snowflake(take)
    thread = threading.Thread(target=format.generate)
    thread.start()
    assert began.wait(WAIT)
    in_threads(2, lambda: made.append(Snowflake(lambda: 14).generate()))
    goes_on.set()
    thread.join(WAIT)

    assert len(made) == 3


def test_asked_again_after_a_failure() -> None:
    """Where the function fails, the next id asks it again, in another thread, too."""
    answers = iter([None, 15])

    def take() -> int:
        answer = next(answers)
        if answer is None:
            raise ConnectionError("no database")
        return answer

    format = Snowflake(take)
    with pytest.raises(ConnectionError):
        format.generate()

    assert len(in_threads(1, format.generate)) == 1


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_while_it_is_asked(tmp_path: Path) -> None:
    """A child that is forked while another thread waits for the machine id does not wait with it, and asks itself."""
    began, goes_on = threading.Event(), threading.Event()
    parent = os.getpid()

    def take() -> int:
        if os.getpid() == parent:
            began.set()
            assert goes_on.wait(WAIT)
        return 17

    format = Snowflake(take)
    thread = threading.Thread(target=format.generate)
    thread.start()
    assert began.wait(WAIT)
    child = os.fork()
    if child == 0:
        import signal

        signal.alarm(WAIT)
        (tmp_path / "id").write_text(format.generate())
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    goes_on.set()
    thread.join(WAIT)

    assert status == 0
    assert int((tmp_path / "id").read_text()) >> 12 & 1023 == 17


# --- how it is shown


@pytest.mark.parametrize("function", [lease, Leases.take], ids=["function", "static method"])
def test_shown_by_name(function: Callable[[], int]) -> None:
    """A function that can be imported is shown by its name, which eval reads where its module was imported."""
    format = NanoId().accepting(Snowflake(function, prefix="s").accepting(Snowflake(1)))

    assert repr(format) == (
        f"NanoId().accepting(Snowflake(machine_id={__name__}.{function.__qualname__}, prefix='s')"
        ".accepting(Snowflake(machine_id=1)))"
    )
    module = {__name__.split(".")[0]: __import__(__name__)}
    assert eval(repr(format), {"NanoId": NanoId, "Snowflake": Snowflake, **module}) == format


def test_shown_as_it_is() -> None:
    """What cannot be imported by its name is shown as Python shows it."""
    for function in (lambda: 5, Leases().held, type("Call", (), {"__call__": lambda self: 5})()):
        assert repr(Snowflake(function)) == f"Snowflake(machine_id={function!r})"


def test_no_machine() -> None:
    """A format without a machine checks ids, and makes none."""
    format = Snowflake(no_machine)

    assert format.is_valid(Snowflake(3).generate())
    with pytest.raises(ConfigurationError, match="it has no machine id; pass machine_id=<int unique to this process>"):
        format.generate()


def test_a_script(tmp_path: Path) -> None:
    """The function of a script is shown by the name it has in there."""
    script = tmp_path / "script.py"
    script.write_text(
        "from sqlalchemy_public_id import Snowflake\n"
        "def take(): return 3\n"
        "import __main__\n"
        "print(repr(Snowflake(take)), eval(repr(Snowflake(take))) == Snowflake(take))\n"
    )
    said = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True).stdout

    assert said == "Snowflake(machine_id=__main__.take) True\n"
