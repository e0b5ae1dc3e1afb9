"""CockroachDB: PostgreSQL's protocol, and another database behind it. Its DDL is tested, a server was not at hand."""

from __future__ import annotations

from sqlalchemy_public_id.dialects.postgresql import PostgresProtocol

__all__ = ["CockroachDB"]


class CockroachDB(PostgresProtocol):
    """CockroachDB, through any driver of ``sqlalchemy-cockroachdb``.

    The careful answers, because none was tried: a collision is an ``IntegrityError``. Ids stand in a plain ``VARCHAR``,
    which is compared byte by byte there. Whole transactions are run again as its documentation asks for (SQLSTATE
    40001, and 40003 where a commit is ambiguous).
    """
