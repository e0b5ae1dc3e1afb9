"""Pages over several databases."""

from __future__ import annotations

import pytest
from sqlalchemy import select
from sqlalchemy.ext.horizontal_shard import ShardedSession
from support.sharded import IDS, Account, Note, Shards, Word, stored

from sqlalchemy_public_id import ConfigurationError, lookup
from sqlalchemy_public_id.keys import ShardRouter


@pytest.mark.parametrize("newest_first", [False, True], ids=["oldest first", "newest first"])
@pytest.mark.parametrize("limit", [1, 5, 20])
def test_pages_go_through_all_shards(limit: int, newest_first: bool, db: ShardedSession) -> None:
    """Forward and backward, each row is returned once in the order of key and public id, despite equal keys."""
    accounts = stored(db)
    expected = sorted(accounts, key=lambda each: (each.id, each.public_id), reverse=newest_first)
    assert len({each.id for each in accounts}) < 12
    page = lookup.page(db, Account, limit=limit, newest_first=newest_first)
    forth = [*page]
    while page.next is not None:
        assert len(page) == limit
        page = lookup.page(db, Account, limit=limit, after=page.next, newest_first=newest_first)
        forth += page
    end = lookup.page(db, Account, limit=limit, after=forth[-1].public_id, newest_first=newest_first)
    back: list[Account] = []
    before: str | None = end.previous
    while before is not None:
        page = lookup.page(db, Account, limit=limit, before=before, newest_first=newest_first)
        back[:0] = page
        before = page.previous

    assert forth == expected
    assert (list(end), back) == ([], expected)


def test_a_page_asks_each_shard_once(shards: Shards, router: ShardRouter, db: ShardedSession) -> None:
    """A page takes one statement per shard; a cursor takes one more, to the shard of its row."""
    stored(db)

    assert shards.asked(lambda: lookup.page(db, Account, limit=5)) == list("abcd")
    cursor = str(router.shard_of_id(Account, IDS[3]))
    assert shards.asked(lambda: lookup.page(db, Account, limit=2, after=IDS[3])) == sorted([*"abcd", cursor])


def test_a_count_of_all_shards(db: ShardedSession) -> None:
    """``count=`` adds up the rows of all shards, and stops at its number, however many rows each shard has."""
    rows = len(stored(db))

    totals = [lookup.page(db, Account, limit=2, count=most).total for most in (True, 1, 5, rows - 1, rows, rows + 1)]

    assert totals == [rows, 1, 5, rows - 1, rows, rows]


def test_keys_without_a_common_order_cannot_be_paged(db: ShardedSession) -> None:
    """Databases sort texts differently, so pages in the order of a text over several shards are refused."""
    with pytest.raises(ConfigurationError, match="not an integer"):
        lookup.page(db, Word, limit=5)


@pytest.mark.parametrize("newest_first", [False, True], ids=["oldest first", "newest first"])
@pytest.mark.parametrize("limit", [1, 3, 7])
@pytest.mark.parametrize("larger", ["", "a", "bcd"])
def test_pages_over_a_join(
    limit: int, larger: str, newest_first: bool, router: ShardRouter, db: ShardedSession
) -> None:
    """If a join repeats rows in one shard, no later row is skipped, whichever shards have the *larger* keys."""
    accounts = stored(db)
    for account in accounts:
        account.id += 100 if router.shard_of(account) in larger else 0
    db.commit()
    for account in accounts:
        account.notes = [Note() for _ in range(3 if router.shard_of(account) == "a" else 1)]
    db.commit()
    joined = select(Account).join(Account.notes)
    page = lookup.page(db, joined, limit=limit, newest_first=newest_first)
    seen = [*page]
    while page.next is not None:
        page = lookup.page(db, joined, limit=limit, after=page.next, newest_first=newest_first)
        seen += page

    assert seen == sorted(accounts, key=lambda each: (each.id, each.public_id), reverse=newest_first)
