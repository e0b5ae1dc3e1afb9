"""Ids of forked processes: whatever a format draws on, parent, children and grandchildren make different ones."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sqlalchemy_public_id import formats
from sqlalchemy_public_id.formats import Format, Snowflake
from sqlalchemy_public_id.tokens import Token

CHILDREN, GRANDCHILDREN, THREADS, EACH = 8, 2, 4, 500

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")]


@dataclass(frozen=True)
class Machines:
    """Machine ids, each for one process: a file is created once."""

    folder: Path

    def take(self) -> int:
        for machine_id in range(1024):
            try:
                (self.folder / f"machine {machine_id}").touch(exist_ok=False)
            except FileExistsError:
                continue
            return machine_id
        raise AssertionError("more processes than machine ids")


REQUIRED: dict[type[Format], Callable[[Path], dict[str, Any]]] = {
    Snowflake: lambda folder: {"machine_id": Machines(folder).take},
}
"""The settings without which a format cannot be made."""

EXPORTED = [
    each for name in formats.__all__ if isinstance(each := getattr(formats, name), type) and issubclass(each, Format)
]


@pytest.fixture(params=[each for each in EXPORTED if each is not Format], ids=lambda each: each.__name__)
def format(request: pytest.FixtureRequest, tmp_path: Path) -> Format:
    """Each format that the package exports."""
    made: Format = request.param(**REQUIRED.get(request.param, lambda _: {})(tmp_path))
    return made


def in_children(number: int, folder: Path, work: Callable[[Path], list[str]]) -> Callable[[], list[str]]:
    """Fork so many children, which wait for each other, and work; return what waits for them and collects their ids."""
    folder.mkdir()
    waiting, release = os.pipe()
    children = {}
    for each in range(number):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.read(waiting, 1)
                made = work(folder / f"of {each}")
                (folder / f"{each}.txt").write_text("\n".join(made))
                status = 0
            finally:
                os._exit(status)
        children[child] = each
    os.write(release, bytes(number))  # one byte for each: all begin
    os.close(release)
    os.close(waiting)

    def collected() -> list[str]:
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * number
        return [id for each in children.values() for id in (folder / f"{each}.txt").read_text().split("\n")]

    return collected


def in_threads(number: int, work: Callable[[], list[str]]) -> list[str]:
    made: list[str] = []
    threads = [threading.Thread(target=lambda: made.extend(work())) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return made


def test_children(format: Format, tmp_path: Path) -> None:
    """Children that are forked after the first id make other ids than their parent, and than each other."""

    def work(_: Path | None = None) -> list[str]:
        return [format.generate() for _ in range(EACH // 2)] + format.generate_many(EACH // 2)

    made = [format.generate(), *format.generate_many(3)]
    collected = in_children(CHILDREN, tmp_path / "children", work)
    made += work() + collected()

    assert len(made) == len(set(made)) == 4 + (1 + CHILDREN) * EACH


def test_grandchildren(format: Format, tmp_path: Path) -> None:
    """Children of children make other ids again, in the moment in which their parent goes on."""

    def work(_: Path) -> list[str]:
        return [format.generate(), *format.generate_many(EACH)]

    def fork_again(folder: Path) -> list[str]:
        mine = work(folder)
        collected = in_children(GRANDCHILDREN, folder, work)
        return mine + work(folder) + collected()

    made = work(tmp_path) + in_children(CHILDREN, tmp_path / "children", fork_again)()

    assert len(made) == len(set(made)) == (1 + CHILDREN * (2 + GRANDCHILDREN)) * (1 + EACH)


def test_forked_by_a_thread(format: Format, tmp_path: Path) -> None:
    """Threads that made ids before they fork, and threads of the children, share none either."""
    number = iter(range(THREADS))

    def work(_: Path | None = None) -> list[str]:
        return [format.generate() for _ in range(EACH)]

    def fork_in_thread() -> list[str]:
        before = work()
        folder = tmp_path / f"children of {next(number)}"
        return before + in_children(2, folder, lambda _: work() + in_threads(THREADS, work))() + work()

    made = format.generate_many(3) + in_threads(THREADS, fork_in_thread)

    assert len(made) == len(set(made)) == 3 + THREADS * (2 + 2 * (1 + THREADS)) * EACH


def test_tokens(tmp_path: Path) -> None:
    """Tokens of children differ as well."""
    token = Token("reset")

    def work(_: Path | None = None) -> list[str]:
        return [token.issue().reveal() for _ in range(EACH // 10)]

    made = work() + in_children(CHILDREN, tmp_path / "children", work)() + work()

    assert len(made) == len(set(made)) == (2 + CHILDREN) * EACH // 10
