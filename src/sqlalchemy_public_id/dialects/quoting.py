"""Names and texts inside SQL that no compiler writes, quoted by the means of the dialect.

The statements are sent as they are, without parameters: a ``%`` stands once, and ``:name`` is no parameter.

>>> from sqlalchemy.dialects import mysql, postgresql
>>> quoted('we"ird', postgresql.dialect()), quoted("order", mysql.dialect()), quoted("a%b", postgresql.dialect())
('"we""ird"', '`order`', '"a%b"')
>>> literal("it's", postgresql.dialect())
"'it''s'"
>>> dollar_quoted("SELECT '$public_id$'", "public_id").splitlines()
['$public_id1$', "SELECT '$public_id$'", '$public_id1$']
"""

from __future__ import annotations

from itertools import count

from sqlalchemy import literal as sql_literal
from sqlalchemy.engine import Dialect

__all__ = ["dollar_quoted", "literal", "quoted", "quoted_table"]

_POSTGRESQL = {"postgresql", "cockroachdb"}


def quoted(name: str, dialect: Dialect) -> str:
    """Return *name* as an identifier."""
    preparer = dialect.identifier_preparer
    quote = preparer.quote_identifier if name.endswith("\n") else preparer.quote  # which takes it for a simple name
    return _without_doubling(quote(name), quote("%"))


def quoted_table(name: str, schema: str | None, dialect: Dialect) -> str:
    """Return the *name* of a table, with its *schema* if it has one."""
    return f"{quoted(schema, dialect)}.{quoted(name, dialect)}" if schema else quoted(name, dialect)


def literal(text: str, dialect: Dialect) -> str:
    """Return *text* as a literal.

    PostgreSQL reads a backslash by its setting ``standard_conforming_strings``, but never in ``E'...'``. How MySQL and
    MariaDB read it depends on ``sql_mode``, which SQLAlchemy looks at.
    """
    plain = "'" + text.replace("'", "''") + "'"
    if "\\" not in text:
        return plain
    doubled = plain.replace("\\", "\\\\")
    if dialect.name in _POSTGRESQL:
        return f"E{doubled}"
    return doubled if "\\\\" in _compiled("\\", dialect) else plain


def dollar_quoted(body: str, tag: str) -> str:
    """Return *body* between dollar quotes of PostgreSQL, with a number behind the *tag* if it occurs in the body."""
    quotes = (f"${tag}{number or ''}$" for number in count())
    quote = next(quote for quote in quotes if quote not in body)
    return f"{quote}\n{body}\n{quote}"


def _compiled(text: str, dialect: Dialect) -> str:
    return str(sql_literal(text).compile(dialect=dialect, compile_kwargs={"literal_binds": True}))


def _without_doubling(written: str, percent: str) -> str:
    """Return *written* with each ``%`` once, if the dialect writes it twice for drivers that replace parameters."""
    return written.replace("%%", "%") if "%%" in percent else written
