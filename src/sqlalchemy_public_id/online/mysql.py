"""MySQL and MariaDB: every ALTER names its algorithm, so that the server refuses instead of locking the table.

``MODIFY`` forgets what it is not told: each one repeats the whole definition, with character set, default and comment.
It runs in strict mode, because otherwise the server turns NULL into the empty text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.online.making import expression, is_made_here, trigger_body
from sqlalchemy_public_id.online.state import State
from sqlalchemy_public_id.online.steps import Plan, Step, statements

__all__ = ["MySQLPlan"]

_INSTANT, _INPLACE = ", ALGORITHM=INSTANT", ", ALGORITHM=INPLACE, LOCK=NONE"
_NOT_CUT = 32
"""How many bytes of a name are left by what MySQL puts before it, at least."""


class MySQLPlan(Plan):
    """The steps for MySQL and MariaDB."""

    def expand(self) -> list[Step]:
        add = f"ALTER TABLE {self.table} ADD COLUMN {self.column} {self.type} NULL{self._comment(None)}"
        return [
            Step(
                "add the column",
                self._only_where(f"NOT {self._column_where()}", add + _INSTANT),
                lambda state: not state.exists,
                instead=statements(add + _INPLACE),
            ),
            *self._make_ids(),
        ]

    def contract(self) -> list[Step]:
        return [
            Step(
                "compare byte by byte",
                self._collate,
                lambda state: not state.collated,
            ),
            Step(
                "build the unique index",
                self._only_where(
                    f"NOT {self._index_where()}",
                    f"ALTER TABLE {self.table} ADD UNIQUE INDEX {self.unique} ({self.column}){_INPLACE}",
                ),
                lambda state: not state.index,
            ),
            Step(
                "forbid NULL",
                lambda connection, state: self._only_where(
                    self._column_where(" AND IS_NULLABLE = 'YES'"), self._modify(state, "NOT NULL", _INPLACE)
                )(connection, state),
                lambda state: state.nullable,
            ),
            *(self._stop_making_ids() if self.target.server_default == "drop" else ()),
        ]

    def loosen(self) -> list[Step]:
        return [
            Step(
                "allow NULL",
                lambda connection, state: [self._modify(state, "NULL", _INPLACE)],
                lambda state: not state.nullable,
            ),
            *self._make_ids(),
            self._drop_index(),
        ]

    def drop(self) -> list[Step]:
        drop = f"ALTER TABLE {self.table} DROP COLUMN {self.column}"
        name = self.target.column
        # INSTANT renames the column, and MySQL fails (3507) if it cuts the longer name inside of a character
        algorithm = _INSTANT if name.isascii() or len(name.encode()) <= _NOT_CUT else _INPLACE
        return [
            self._drop_trigger(),
            self._drop_index(),
            Step(
                "drop the column",
                self._only_where(self._column_where(), drop + algorithm),
                lambda state: state.exists,
                instead=statements(drop + _INPLACE),
            ),
        ]

    def fill(self) -> list[str]:
        """A procedure that commits after each batch; the client needs a delimiter of its own for it."""
        made, name = self._expression, f"{self.schema}{self.helper}"
        if made is None:
            raise ConfigurationError(
                f"a script for {self.dialect.name} cannot make ids with a check digit for the rows that are there; "
                f"run op.backfill_public_id() or 'public-id backfill' with a connection"
            )
        create = (
            f"CREATE PROCEDURE {name}()\nBEGIN\n  REPEAT\n"
            f"    UPDATE {self.table} SET {self.column} = {made} WHERE {self.column} IS NULL LIMIT 5000;\n"
            f"  UNTIL ROW_COUNT() = 0 END REPEAT;\nEND"
        )
        return [
            f"DROP PROCEDURE IF EXISTS {name}",
            *_delimited(create),
            f"CALL {name}()",
            f"DROP PROCEDURE {name}",
        ]

    # --- parts

    @property
    def _expression(self) -> str | None:
        version = self.dialect.server_version_info
        if getattr(self.dialect, "is_mariadb", False) and version is not None and version < (10, 10):
            raise ConfigurationError(
                f"MariaDB {'.'.join(map(str, version[:2]))} has no RANDOM_BYTES() to make ids with, 10.10 has; "
                f'say server_default="none", and let every program give the ids'
            )
        return expression(self.target.format, self.dialect.name)

    def _make_ids(self) -> list[Step]:
        if not self.makes_ids:
            return []
        made = self._expression
        if made is not None:
            set_default = f"ALTER TABLE {self.table} ALTER COLUMN {self.column} SET DEFAULT ({made})"
            return [
                Step(
                    "set the default",
                    statements(set_default + _INSTANT),
                    lambda state: state.default is None and self._wants_ids(state),
                    instead=statements(set_default + _INPLACE),
                )
            ]
        name = f"{self.schema}{self.helper}"
        body = f"BEFORE INSERT ON {self.table} FOR EACH ROW {trigger_body(self.target.format, self.column)}"
        return [
            Step(
                "create the trigger that makes ids",
                lambda connection, state: (
                    [f"CREATE TRIGGER {name} {body}"]
                    if connection is not None
                    else _delimited(f"CREATE TRIGGER IF NOT EXISTS {name} {body}")
                ),
                lambda state: not state.trigger and self._wants_ids(state),
            )
        ]

    def _wants_ids(self, state: State) -> bool:
        return not (state.complete and self.target.server_default == "drop")

    def _stop_making_ids(self) -> list[Step]:
        if self._expression is None:
            return [self._drop_trigger()]
        drop = f"ALTER TABLE {self.table} ALTER COLUMN {self.column} DROP DEFAULT"
        return [Step("drop the default", statements(drop), lambda state: self._is_ours(state.default))]

    def _drop_trigger(self) -> Step:
        drop = f"DROP TRIGGER IF EXISTS {self.schema}{self.helper}"
        return Step("drop the trigger that makes ids", statements(drop), lambda state: state.trigger)

    def _drop_index(self) -> Step:
        drop = f"ALTER TABLE {self.table} DROP INDEX {self.unique}{_INPLACE}"
        return Step("drop the unique index", self._only_where(self._index_where(), drop), lambda state: state.index)

    def _only_where(self, condition: str, sql: str) -> Callable[[Connection | None, State], Sequence[str]]:
        """*sql*; in a script, which may be run again, behind a *condition*."""
        in_script = [
            f"SET @public_id_do = IF({condition}, {self.literal(sql)}, 'DO 0')",
            "PREPARE public_id_do FROM @public_id_do",
            "EXECUTE public_id_do",
            "DEALLOCATE PREPARE public_id_do",
        ]
        return lambda connection, state: [sql] if connection is not None else in_script

    def _column_where(self, also: str = "") -> str:
        return self._there("COLUMNS", f"COLUMN_NAME = {self.literal(self.target.column)}{also}")

    def _index_where(self) -> str:
        return self._there("STATISTICS", f"INDEX_NAME = {self.literal(self.target.unique_name)}")

    def _there(self, kind: str, condition: str) -> str:
        """A condition: whether the table has something of this *kind*, in the words of ``information_schema``."""
        schema = self.literal(self.target.schema) if self.target.schema else "DATABASE()"
        return (
            f"EXISTS (SELECT 1 FROM information_schema.{kind} WHERE TABLE_SCHEMA = {schema} "
            f"AND TABLE_NAME = {self.literal(self.target.table)} AND {condition})"
        )

    def _collate(self, connection: Connection | None, state: State) -> list[str]:
        """For a column of other origin. The server copies the table for it, and writers wait."""
        return [self._modify(state, "NULL" if state.nullable else "NOT NULL", "")] if connection is not None else []

    def _is_ours(self, default: str | None) -> bool:
        return default is not None and is_made_here(default, self.dialect.name)

    def _comment(self, there: str | None) -> str:
        """The comment of the column, the wanted one or the one that is there, as part of its definition."""
        comment = self.target.comment if self.target.comment is not None else there
        return f" COMMENT {self.literal(comment)}" if comment else ""

    def _modify(self, state: State, null: str, algorithm: str) -> str:
        """The whole definition of the column."""
        made = self._expression if self.makes_ids else None
        if state.default is not None and not self._is_ours(state.default):
            made = state.default
        default = f" DEFAULT ({made})" if made is not None else ""
        comment = self._comment(state.comment)
        return f"ALTER TABLE {self.table} MODIFY COLUMN {self.column} {self.type} {null}{default}{comment}{algorithm}"


def _delimited(statement: str) -> list[str]:
    """A statement with ``;`` in it, for a script."""
    return ["DELIMITER //", f"{statement}//", "DELIMITER ;"]
