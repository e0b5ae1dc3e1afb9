"""The table that knows the number of the cluster: its DDL, and the function of PostgreSQL that reads it."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import DDL
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import ExecutableDDLElement

from sqlalchemy_public_id.dialects.quoting import dollar_quoted, literal, quoted, quoted_table
from sqlalchemy_public_id.errors import ConfigurationError
from sqlalchemy_public_id.keys.ranges import LAST_CLUSTER

__all__ = ["CHECK", "CONFIG", "FUNCTION", "MYSQL", "POSTGRESQL", "TAG", "Config", "Quoting", "as_ddl"]

CONFIG = "cluster_config"
"""The table that knows the number of the cluster, in one row."""
CHECK = "ck_cluster_config"
"""The constraint that keeps it to one row, with a number that is one."""
FUNCTION = "this_cluster"
"""The function of PostgreSQL that tells the number of the cluster."""

TAG = "cluster"
"""The tag of dollar quotes."""

MYSQL = {"mysql", "mariadb"}
POSTGRESQL = {"postgresql", "cockroachdb"}


def as_ddl(statement: str) -> ExecutableDDLElement:
    """*statement* as it is: a :class:`~sqlalchemy.DDL` fills in what stands behind a ``%``."""
    make: Callable[[str], ExecutableDDLElement] = DDL
    return make(statement.replace("%", "%%"))


class Quoting:
    """Quotes names for statements that no compiler writes."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def name(self, name: str, schema: str | None = None) -> str:
        return quoted_table(name, schema, self.dialect)

    def column(self, name: str) -> str:
        return quoted(name, self.dialect)

    def text(self, value: str) -> str:
        """*value* as SQL writes it."""
        return literal(value, self.dialect)

    def refuse(self) -> ConfigurationError:
        return ConfigurationError(
            f"{self.dialect.name} has no functions, so it cannot look up its cluster for each key; "
            f'say way="identity", with the number of the cluster'
        )


class Config(Quoting):
    """The table with the number of the cluster, and the function of PostgreSQL that reads it."""

    def __init__(self, dialect: Dialect, name: str = CONFIG, schema: str | None = None) -> None:
        super().__init__(dialect)
        self.schema = schema
        self.table = self.name(name, schema)
        self.function = self.name(FUNCTION, schema)
        self.wrong = f"{name} must have one row with a cluster from 0 to {LAST_CLUSTER}"

    def create(self) -> list[str]:
        """The table: one row, and no other one."""
        return [
            (
                f"CREATE TABLE IF NOT EXISTS {self.table} ("
                f"singleton SMALLINT DEFAULT 1 NOT NULL, cluster SMALLINT NOT NULL, PRIMARY KEY (singleton), "
                f"CONSTRAINT {CHECK} CHECK (singleton = 1 AND cluster BETWEEN 0 AND {LAST_CLUSTER}))"
            )
        ]

    def drop(self) -> list[str]:
        return [f"DROP TABLE IF EXISTS {self.table}"]

    def begin(self, cluster: int) -> list[str]:
        """The row, where there is none."""
        return [
            (
                f"INSERT INTO {self.table} (singleton, cluster) SELECT 1, {cluster} "
                f"WHERE NOT EXISTS (SELECT 1 FROM {self.table})"
            )
        ]

    def set(self, cluster: int) -> list[str]:
        """The row, whatever it told before."""
        return [*self.begin(cluster), f"UPDATE {self.table} SET cluster = {cluster} WHERE singleton = 1"]

    def get(self) -> str:
        """A query for the number."""
        return f"SELECT cluster FROM {self.table}"

    def create_function(self) -> list[str]:
        """What a DEFAULT of PostgreSQL calls; nothing elsewhere.

        It is STABLE: all rows of a statement are of one cluster, also where another transaction changes the number in
        the meantime. SQLAlchemy counts on it: it tells the rows of a flush by the order of their keys.
        """
        if self.dialect.name not in POSTGRESQL:
            return []
        hint = f"INSERT INTO {self.table} (cluster) VALUES (10);"
        body = (
            f"DECLARE\n"
            f"    of_cluster bigint;\n"
            f"    many bigint;\n"
            f"BEGIN\n"
            f"    SELECT min(cluster), count(*) INTO of_cluster, many FROM {self.table};\n"
            f"    IF many <> 1 OR of_cluster IS NULL OR of_cluster NOT BETWEEN 0 AND {LAST_CLUSTER} THEN\n"
            f"        RAISE EXCEPTION USING ERRCODE = '55000',\n"
            f"            MESSAGE = {self.text(self.wrong)}, HINT = {self.text(hint)};\n"
            f"    END IF;\n"
            f"    RETURN of_cluster;\n"
            f"END"
        )
        return [
            (
                f"CREATE OR REPLACE FUNCTION {self.function}() RETURNS bigint\n"
                f"LANGUAGE plpgsql STABLE AS {dollar_quoted(body, TAG)}"
            )
        ]

    def drop_function(self) -> list[str]:
        if self.dialect.name not in POSTGRESQL:
            return []
        return [f"DROP FUNCTION IF EXISTS {self.function}()"]
