"""A million ids from 200 threads and 8 forked processes at once, and no two alike."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.formats import Format

THREADS, BY_THREAD = 200, 2_495
CHILDREN, BY_CHILD = 8, 62_500


def fork(format: Format, path: Path) -> int:
    """Fork a child, which writes the ids it makes to *path*."""
    child = os.fork()
    if child == 0:
        one_by_one = [format.generate() for _ in range(BY_CHILD // 2)]
        path.write_text("\n".join(one_by_one + format.generate_many(BY_CHILD // 2)))
        os._exit(0)
    return child


@pytest.mark.usefixtures("restless")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("format", [NanoId(), NanoId(prefix="cus", check_digit=True)], ids=repr)
def test_a_million_ids(format: Format, tmp_path: Path) -> None:
    """Threads and the children forked in their midst never share an id, and none is lost."""
    made: list[list[str]] = [[] for _ in range(THREADS)]
    together = threading.Barrier(THREADS + 1)

    def work(ids: list[str]) -> None:
        together.wait()
        ids += [format.generate() for _ in range(BY_THREAD - 495)]
        for _ in range(99):
            ids += format.generate_many(5)

    threads = [threading.Thread(target=work, args=(ids,)) for ids in made]
    for thread in threads:
        thread.start()
    together.wait()
    before = [format.generate()]  # from now on, ids wait in the parent
    forked = [fork(format, tmp_path / str(number)) for number in range(CHILDREN)]
    made.append(before + format.generate_many(999))  # among them those that waited
    for thread in threads:
        thread.join()
    assert [os.waitpid(child, 0)[1] for child in forked] == [0] * CHILDREN

    by_threads = {id for ids in made for id in ids}
    by_children = [(tmp_path / str(number)).read_text().splitlines() for number in range(CHILDREN)]

    assert len(by_threads) == sum(map(len, made)) == THREADS * BY_THREAD + 1_000
    assert [len(ids) for ids in by_children] == [BY_CHILD] * CHILDREN
    assert len(by_threads.union(*by_children)) == 1_000_000
    assert all(map(format.is_valid, by_threads))
