"""Many ids from threads and forked processes at once, and no two alike."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.formats import Format


def fork(format: Format, path: Path, count: int) -> int:
    """Fork a child, which writes the *count* ids it makes to *path*."""
    child = os.fork()
    if child == 0:
        one_by_one = [format.generate() for _ in range(count // 2)]
        path.write_text("\n".join(one_by_one + format.generate_many(count // 2)))
        os._exit(0)
    return child


@pytest.mark.slow
@pytest.mark.usefixtures("restless")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("format", [NanoId(), NanoId(prefix="cus", check_digit=True)], ids=repr)
@pytest.mark.parametrize(
    ("threads", "by_thread", "children", "by_child"),
    [
        pytest.param(30, 1_000, 4, 2_000, id="thousands"),
        pytest.param(200, 2_495, 8, 62_500, id="a million"),
    ],
)
def test_ids_of_threads_and_children(
    format: Format, threads: int, by_thread: int, children: int, by_child: int, tmp_path: Path
) -> None:
    """Threads and the children forked in their midst never share an id, and none is lost."""
    made: list[list[str]] = [[] for _ in range(threads)]
    together = threading.Barrier(threads + 1)

    def work(ids: list[str]) -> None:
        together.wait()
        ids += [format.generate() for _ in range(by_thread - 495)]
        for _ in range(99):
            ids += format.generate_many(5)

    workers = [threading.Thread(target=work, args=(ids,)) for ids in made]
    for worker in workers:
        worker.start()
    together.wait()
    before = [format.generate()]  # from now on, ids wait in the parent
    forked = [fork(format, tmp_path / str(number), by_child) for number in range(children)]
    made.append(before + format.generate_many(999))  # among them those that waited
    for worker in workers:
        worker.join()
    assert [os.waitpid(child, 0)[1] for child in forked] == [0] * children

    by_threads = {id for ids in made for id in ids}
    by_children = [(tmp_path / str(number)).read_text().splitlines() for number in range(children)]

    assert len(by_threads) == sum(map(len, made)) == threads * by_thread + 1_000
    assert [len(ids) for ids in by_children] == [by_child] * children
    assert len(by_threads.union(*by_children)) == threads * by_thread + 1_000 + children * by_child
    assert all(map(format.is_valid, by_threads))
