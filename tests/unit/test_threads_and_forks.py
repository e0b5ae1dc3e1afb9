"""A million ids from 200 threads and 8 forked processes at once, and no two alike."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sqlalchemy_public_id import NanoId, TypedId
from sqlalchemy_public_id.formats import Format

THREADS, BY_THREAD = 200, 2_500
CHILDREN, BY_CHILD = 8, 62_500


class CarriageId(TypedId, prefix="carriage"): ...


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    """Threads take turns a thousand times more often than usual."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(usual)


def children(format: Format, folder: Path) -> Iterator[int]:
    """Fork the children; each writes the ids it made into a file of its own."""
    for number in range(CHILDREN):
        child = os.fork()
        if child == 0:
            one_by_one = [format.generate() for _ in range(BY_CHILD // 2)]
            (folder / str(number)).write_text("\n".join(one_by_one + format.generate_many(BY_CHILD // 2)))
            os._exit(0)
        yield child


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("format", [NanoId(), CarriageId.id_format], ids=["NanoId", "TypedId"])
def test_a_million_ids(format: Format, tmp_path: Path) -> None:
    """Threads and the children forked in their midst never share an id, and none is lost."""
    made: list[list[str]] = [[] for _ in range(THREADS)]
    together = threading.Barrier(THREADS + 1)

    def work(ids: list[str]) -> None:
        together.wait()
        ids += [format.generate() for _ in range(BY_THREAD - 500)]
        for _ in range(100):
            ids += format.generate_many(5)

    threads = [threading.Thread(target=work, args=(ids,)) for ids in made]
    for thread in threads:
        thread.start()
    together.wait()
    forked = list(children(format, tmp_path))
    for thread in threads:
        thread.join()
    assert [os.waitpid(child, 0)[1] for child in forked] == [0] * CHILDREN

    by_threads = {id for ids in made for id in ids}
    by_children = [(tmp_path / str(number)).read_text().splitlines() for number in range(CHILDREN)]

    assert THREADS * BY_THREAD == len(by_threads) == sum(map(len, made))
    assert [BY_CHILD] * CHILDREN == [len(ids) for ids in by_children]
    assert len(by_threads.union(*by_children)) == 1_000_000
    assert all(map(format.is_valid, by_threads))
