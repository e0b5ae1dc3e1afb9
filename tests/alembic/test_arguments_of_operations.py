"""Operations of Alembic refuse unusable arguments before they send anything, and the error says so."""

from __future__ import annotations

from typing import Any

import pytest

from sqlalchemy_public_id import ConfigurationError, NanoId
from sqlalchemy_public_id.alembic import AddPublicIdOp, ExpandPublicIdOp, PublicIdOp
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.consent import HOLDERS, defaults_of

TIMES = "expected times above 0 and at least one attempt"
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"comment": NanoId()}, "comment is NanoId(), expected text; write format=NanoId()"),
    ({"schema": 5}, "schema is 5, expected a name"),
    ({"wait_while": 5}, "wait_while is 5, expected a function"),
    ({"online": "no"}, "online is 'no', expected True or False"),
    ({"dry_run": "false"}, "dry_run is 'false', expected True or False"),
    ({"allow_lock": "false"}, "allow_lock is 'false', expected True or False"),
    ({"server_default": True}, "server_default is True, expected one of 'keep', 'drop', 'none'"),
    ({"server_default": None}, "server_default is None, expected one of 'keep', 'drop', 'none'"),
    ({"keeps": "index"}, "keeps is 'index', expected one of 'unique', 'not null', 'all'"),
    ({"update_triggers": "ignore"}, "update_triggers is 'ignore', expected one of 'refuse'"),
    ({"on_duplicate": "ignore"}, "on_duplicate is 'ignore', expected one of 'refuse'"),
    ({"on_invalid": None}, "on_invalid is None, expected one of 'refuse'"),
    ({"on_invalid": "ignore"}, "on_invalid is 'ignore', expected one of 'refuse'"),
    ({"attempts": 0}, TIMES),
    ({"attempts": 1.5}, TIMES),
    ({"lock_timeout": 0}, TIMES),
    ({"lock_timeout": "1s"}, TIMES),
    ({"index_timeout": -1}, TIMES),
    ({"index_timeout": 0}, TIMES),
    ({"batch_seconds": 0}, "batch_seconds=0, pause=0.1 cannot work"),
    ({"batch_seconds": "1"}, "batch_seconds='1', pause=0.1 cannot work"),
    ({"pause": -1}, "batch_seconds=0.5, pause=-1 cannot work"),
]


@pytest.mark.parametrize(("options", "error"), WRONG, ids=[str(options) for options, _ in WRONG])
def test_option_that_cannot_work(options: dict[str, Any], error: str) -> None:
    """An option with a wrong type or an impossible value is refused, and the error says what is expected."""
    with pytest.raises(ConfigurationError) as caught:
        AddPublicIdOp("invoice", **options)

    assert error in str(caught.value)
    assert repr(next(iter(options.values()))) in str(caught.value)


@pytest.mark.parametrize("operation", [AddPublicIdOp, ExpandPublicIdOp])
def test_format_in_the_place_of_the_column(operation: type[PublicIdOp]) -> None:
    """A format in the place of the column name is refused."""
    with pytest.raises(ConfigurationError, match=r"column is NanoId\(length=10\), expected a name; write format="):
        operation("invoice", NanoId(length=10))


def test_option_that_is_unknown() -> None:
    """A misspelled option raises an error that lists the valid ones."""
    with pytest.raises(TypeError, match=r"add_public_id\(\) takes no formt; it takes format, schema"):
        AddPublicIdOp("invoice", formt=NanoId())


def test_defaults() -> None:
    """Without an option, an operation changes no row in a way that was not asked for, and waits briefly for locks."""
    held = [defaults_of(holder) for holder in HOLDERS]
    assert {name: value for holder in held for name, value in holder.items()} == {
        **dict.fromkeys(("update_triggers", "on_duplicate", "on_invalid", "stored_code"), "refuse"),
        "allow_lock": False,
        "lock_timeout": 1.0,
        "attempts": 30,
        "index_timeout": 600.0,
        "batch_seconds": 0.5,
        "pause": 0.1,
        "wait_while": None,
        "online": True,
        "dry_run": False,
    }
    assert defaults_of(PublicIdColumn) == {
        **dict.fromkeys(("format", "schema", "sql_type", "collation", "keeps", "comment", "invisible")),
        "unique_name": "",
        "unique_with": (),
        "server_default": "keep",
    }
    assert PublicIdColumn.of("invoice") == PublicIdColumn(
        "invoice", "public_id", NanoId(), unique_name="uq_invoice_public_id"
    )


@pytest.mark.parametrize(
    ("keeps", "unique", "not_null"),
    [(None, False, False), ("unique", True, False), ("not null", False, True), ("all", True, True)],
)
def test_what_loosening_keeps(keeps: Any, unique: bool, not_null: bool) -> None:
    """``keeps`` names what loosening leaves in place, and ``"all"`` is both of it."""
    column = PublicIdColumn.of("invoice", keeps=keeps)

    assert (column.keeps_unique, column.keeps_not_null) == (unique, not_null)


def test_name_in_messages() -> None:
    """A message names a column with its table, and with the schema if there is one."""
    assert str(PublicIdColumn.of("invoice")) == "invoice.public_id"
    assert str(PublicIdColumn.of("invoice", "number", schema="shop")) == "shop.invoice.number"
