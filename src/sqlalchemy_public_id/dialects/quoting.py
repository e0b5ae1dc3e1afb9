"""Quote names and strings for SQL that no compiler renders.

The statements are executed without parameters, so a ``%`` is not doubled, and ``:name`` is not a parameter.

>>> from sqlalchemy.dialects import mysql, postgresql
>>> quoted('we"ird', postgresql.dialect()), quoted("order", mysql.dialect()), quoted("a%b", postgresql.dialect())
('"we""ird"', '`order`', '"a%b"')
>>> literal("it's", postgresql.dialect())
"'it''s'"
>>> dollar_quoted("SELECT '$public_id$'", "public_id").splitlines()
['$public_id1$', "SELECT '$public_id$'", '$public_id1$']
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import count

from sqlalchemy import literal as sql_literal
from sqlalchemy.engine import Dialect

_POSTGRESQL = {"postgresql", "cockroachdb"}
_MYSQL = {"mysql", "mariadb"}


def quoted(name: str, dialect: Dialect) -> str:
    """Return *name* as an identifier."""
    preparer = dialect.identifier_preparer
    # quote() does not quote a plain name with a newline at its end
    quote = preparer.quote_identifier if name.endswith("\n") else preparer.quote
    return _with_single_percent(quote(name), dialect)


def unquoted(identifier: str, dialect: Dialect) -> str:
    """Return the name for an *identifier* that SQLAlchemy has written, as errors and catalogs show it."""
    preparer = dialect.identifier_preparer
    if identifier.startswith(preparer.initial_quote):
        identifier = identifier[1:-1].replace(preparer.final_quote * 2, preparer.final_quote)
    return _with_single_percent(identifier, dialect)


def _with_single_percent(identifier: str, dialect: Dialect) -> str:
    # some dialects double a "%", for drivers that interpolate parameters
    return identifier.replace("%%", "%") if "%%" in dialect.identifier_preparer.quote("%") else identifier


def quoted_table(name: str, schema: str | None, dialect: Dialect) -> str:
    """Return the *name* of a table, with its *schema* if it has one."""
    return f"{quoted(schema, dialect)}.{quoted(name, dialect)}" if schema else quoted(name, dialect)


def literal(text: str, dialect: Dialect) -> str:
    """Return *text* as a string literal.

    On PostgreSQL, the meaning of a backslash depends on ``standard_conforming_strings``, except in ``E'...'``. On MySQL
    and MariaDB, it depends on ``sql_mode``, which SQLAlchemy reads.
    """
    plain = "'" + text.replace("'", "''") + "'"
    if "\\" not in text:
        return plain
    doubled = plain.replace("\\", "\\\\")
    if dialect.name in _POSTGRESQL:
        return f"E{doubled}"
    backslash = str(sql_literal("\\").compile(dialect=dialect, compile_kwargs={"literal_binds": True}))
    return doubled if "\\\\" in backslash else plain


def dollar_quoted(body: str, tag: str) -> str:
    """Return *body* between dollar quotes of PostgreSQL. A number follows the *tag* if the body contains it."""
    quotes = (f"${tag}{number or ''}$" for number in count())
    quote = next(quote for quote in quotes if quote not in body)
    return f"{quote}\n{body}\n{quote}"


def in_script(statements: Iterable[str], dialect: Dialect) -> list[str]:
    """Return *statements* as lines of a script. MySQL's client would split a trigger at its first ``;``."""
    lines: list[str] = []
    for statement in statements:
        has_body = dialect.name in _MYSQL and statement.startswith("CREATE TRIGGER")
        lines += ["DELIMITER //", f"{statement}//", "DELIMITER ;"] if has_body else [f"{statement};"]
    return lines


def commented(text: str) -> str:
    """Return *text* as an SQL comment. Each line is commented out, because a name may contain a newline."""
    return "-- " + re.sub(r"(\r\n?|\n)", r"\1-- ", text)
