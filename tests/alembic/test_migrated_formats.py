"""An operation that is written by hand, and a model whose ids have another format."""

from __future__ import annotations

import pytest
from support.projects import Project
from support.shops import shop

from sqlalchemy_public_id import NanoId


def warned(project: Project, caplog: pytest.LogCaptureFixture, declared: NanoId, written: str) -> bool:
    """Return True if the operation *written* logs a warning while the model has ids of the format *declared*."""
    project.config.attributes["metadata"] = shop(declared)
    project.write(written)
    project.upgrade()
    return "which look-ups do not find" in caplog.text


@pytest.mark.parametrize(
    "written",
    [
        "op.add_public_id('customer')",
        "op.expand_public_id('customer')",
        "op.add_public_id('customer', format=__import__('sqlalchemy_public_id').NanoId(prefix='cst'))",
        "op.execute('ALTER TABLE customer ADD public_id varchar(16)'); op.backfill_public_id('customer')",
    ],
)
def test_other_format(project: Project, caplog: pytest.LogCaptureFixture, written: str) -> None:
    """Ids that the model does not accept are announced in the log, with the format to write."""
    assert warned(project, caplog, NanoId(prefix="cus"), written)
    assert "write format=NanoId(prefix='cus')" in caplog.text


@pytest.mark.parametrize("declared", [NanoId(), NanoId(prefix="cus").accepting(NanoId())])
def test_accepted_format(project: Project, caplog: pytest.LogCaptureFixture, declared: NanoId) -> None:
    """Ids that the model accepts, now or still, are no reason for a warning."""
    assert not warned(project, caplog, declared, "op.add_public_id('customer')")


def test_dropped_column(project: Project, caplog: pytest.LogCaptureFixture) -> None:
    """An operation that generates no ids warns of nothing."""
    project.write("op.add_public_id('customer')")
    project.upgrade()
    assert not warned(project, caplog, NanoId(prefix="cus"), "op.drop_public_id('customer')")
