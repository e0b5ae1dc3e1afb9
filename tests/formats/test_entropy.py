"""The random source: every character equally likely, no byte used twice."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from sqlalchemy_public_id import NanoId
from sqlalchemy_public_id.formats.pool import IdPool, RandomText

PRINTABLE = "".join(map(chr, range(33, 127)))


class Bytes:
    """A source of known bytes in place of ``os.urandom``, one chunk a call; it counts the calls."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = list(chunks)
        self.asked: list[int] = []

    def __call__(self, size: int) -> bytes:
        self.asked.append(size)
        return self.chunks.pop(0)


def test_no_character_is_favoured() -> None:
    """Of the 256 bytes, equally many lead to each character, and the rest to none."""
    for size in range(1, len(PRINTABLE) + 1):
        texts = RandomText(PRINTABLE[:size], 1)(1, Bytes(bytes(range(256))))

        assert dict.fromkeys(PRINTABLE[:size], 256 // size) == Counter(texts)


def test_texts_are_cut_from_the_source_in_order() -> None:
    """Every byte is used at one place only."""
    texts = RandomText("0123456789abcdef", 3)(2, Bytes(bytes(range(16))))

    assert texts == ["012", "345", "678", "9ab", "cde"]


@pytest.mark.parametrize("length", [1, 5, 12, 21, 200])
def test_groups_are_cut_in_order(length: int) -> None:
    """Many texts are cut in groups, and what is left over one by one: together they are the source."""
    source = os.urandom(4096)
    texts = RandomText("0123456789abcdef", length)(1, Bytes(source))
    whole = "".join(f"{byte % 16:x}" for byte in source)

    assert {len(text) for text in texts} == {length}
    assert "".join(texts) == whole[: 4096 // length * length]


def test_asks_again_until_there_is_enough() -> None:
    """Where too many bytes were dropped, more are drawn."""
    source = Bytes(b"\xff" * 100, b"\x00\x01", b"\x02\x03")  # 256 is 3 * 85 + 1, so only the last byte is dropped

    assert RandomText("abc", 4)(1, source) == ["abca"]
    assert len(source.asked) == 3


def test_large_bites() -> None:
    """The operating system is asked once for hundreds of ids."""
    source = Bytes(os.urandom(4096))
    texts = RandomText(PRINTABLE[:36], 12)(1, source)

    assert source.asked == [4096]
    assert len(texts) > 300


@pytest.mark.parametrize("count", [1, 2, 341, 342, 10_000])
def test_at_least_as_many_as_wanted(count: int) -> None:
    """There are never fewer texts than asked for, each of the right length."""
    texts = RandomText(PRINTABLE[:36], 12)(count)

    assert len(texts) >= count
    assert {len(text) for text in texts} == {12}


def test_pools_are_told_apart_by_identity() -> None:
    """Two pools with equal content are two members of a set."""
    assert len({IdPool(), IdPool()}) == 2


def in_child(path: Path, work: Callable[[], list[str]]) -> list[str]:
    """What *work* answers in a forked child process."""
    child = os.fork()
    if child == 0:
        path.write_text("\n".join(work()))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    return path.read_text().splitlines()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_child_starts_with_an_empty_pool(tmp_path: Path) -> None:
    """Ids that wait in the parent are the parent's alone."""
    format = NanoId()
    format.generate()
    waiting = set(format._pool)
    childs = set(in_child(tmp_path / "ids", lambda: format.generate_many(len(waiting))))

    assert len(waiting) == len(childs) > 300
    assert not waiting & childs
    assert waiting >= set(format.generate_many(len(waiting)))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_grandchild_starts_with_an_empty_pool(tmp_path: Path) -> None:
    """A child of a child repeats neither of them."""
    format = NanoId()

    def work() -> list[str]:
        mine = format.generate_many(500)
        return in_child(tmp_path / "grandchild", lambda: format.generate_many(500)) + mine + format.generate_many(500)

    ids = in_child(tmp_path / "child", work) + format.generate_many(500)

    assert len(ids) == len(set(ids)) == 2000


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_fork_while_the_bytes_are_drawn(tmp_path: Path) -> None:
    """A process that forks between drawing bytes and cutting ids (in a signal handler, say) uses them in one only."""
    path = tmp_path / "ids"
    child = None

    def forking(size: int) -> bytes:
        nonlocal child
        drawn = os.urandom(size)
        if child is None:
            child = os.fork()
        return drawn

    texts = RandomText(PRINTABLE[:36], 12)(1, forking)
    if child == 0:
        path.write_text("\n".join(texts))
        os._exit(0)
    assert child is not None
    assert os.waitpid(child, 0)[1] == 0

    assert not set(texts) & set(path.read_text().splitlines())
