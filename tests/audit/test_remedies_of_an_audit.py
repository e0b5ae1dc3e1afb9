"""What ``public-id audit`` proposes for the declaration of a model."""

from __future__ import annotations

import re
from collections.abc import Callable
from uuid import UUID

from sqlalchemy import Column, Engine, Integer, MetaData, Table, Uuid, insert

import sqlalchemy_public_id
from sqlalchemy_public_id import Uuid4, audit

STORED = UUID("7d444840-9dc0-41d1-b245-5ffdce74fad2")


def test_proposed_format(engine: Engine, create: Callable[[MetaData], None]) -> None:
    """The format that an audit proposes for UUIDs that are stored as text accepts them."""
    metadata = MetaData()
    id_column = Column("public_id", Uuid, unique=True, nullable=False)
    document = Table("document", metadata, Column("id", Integer, primary_key=True), id_column)
    create(metadata)
    with engine.begin() as connection:
        connection.execute(insert(document).values(public_id=STORED))

    findings = audit.run(engine, formats={"document": Uuid4(encoding="hyphenated")}).at_least("warning")
    remedies = "\n".join(str(finding.remedy) for finding in findings)
    proposed = re.findall(r"__public_id__ = (.*)", remedies)

    assert "column-type" in {finding.problem for finding in findings}  # it has text, and the format stores numbers
    assert [eval(each, vars(sqlalchemy_public_id)).is_valid(STORED.hex) for each in proposed] == [True]
