"""Run by Alembic for each of its commands: connects, and names the metadata of the tables."""

import asyncio
from logging.config import fileConfig
from typing import Any

from alembic import context
from alembic.config import Config
from sqlalchemy import Connection, Engine, engine_from_config, event, make_url, pool
from sqlalchemy.ext.asyncio import AsyncEngine, async_engine_from_config

from sqlalchemy_public_id.alembic import take_turn

config: Config = context.config
if config.config_file_name is not None:
    fileConfig(config.config_file_name, disable_existing_loggers=False)

# your models, for --autogenerate:
# from yourapp.models import Base
# target_metadata = Base.metadata
target_metadata = None

LOCK_TIMEOUT = 5
"""The seconds that a statement waits for a lock. All later statements wait behind it, so it has to be short.

The operations of sqlalchemy-public-id set a shorter one for each of their steps, and retry.
"""

TURN_TIMEOUT = 3600
"""The seconds that a process waits while another one migrates the same database, as replicas do that begin at once."""

IN_EACH_TRANSACTION = {
    # LOCAL: the setting of a session would remain in a pooler such as PgBouncer, for the application
    "postgresql": f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}s'",
}

ON_CONNECT = {
    "mysql": f"SET SESSION lock_wait_timeout = {LOCK_TIMEOUT}",
    "mariadb": f"SET SESSION lock_wait_timeout = {LOCK_TIMEOUT}",
    # SQLite changes a table by copying it and dropping the old one. With foreign keys on, the drop would delete the
    # rows of other tables that refer to it.
    "sqlite": "PRAGMA foreign_keys = OFF",
}


def run_migrations_offline() -> None:
    """Write SQL instead of running it: ``alembic upgrade head --sql``."""
    context.configure(
        url=config.get_main_option("sqlalchemy.url"),
        target_metadata=target_metadata,
        transaction_per_migration=True,
        literal_binds=True,
        dialect_opts={"paramstyle": "named"},
    )
    with context.begin_transaction():
        context.run_migrations()


def set_up_connections_of(engine: Engine) -> None:
    """Execute the statement in ``ON_CONNECT`` on each new connection, and ``IN_EACH_TRANSACTION`` after each BEGIN."""

    @event.listens_for(engine, "connect")
    def set_up(connection: Any, record: object) -> None:
        if engine.dialect.name in ON_CONNECT:
            cursor = connection.cursor()
            cursor.execute(ON_CONNECT[engine.dialect.name])
            cursor.close()
            connection.commit()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        autocommit = connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT"
        if engine.dialect.name in IN_EACH_TRANSACTION and not autocommit:
            connection.exec_driver_sql(IN_EACH_TRANSACTION[engine.dialect.name])


def migrate(connection: Connection) -> None:
    """Run the migrations, each in its own transaction.

    op.add_public_id() commits between its steps. If a later migration of the same run fails, the version of this one
    is stored already.
    """
    with take_turn(connection, timeout=TURN_TIMEOUT):
        context.configure(connection=connection, target_metadata=target_metadata, transaction_per_migration=True)
        with context.begin_transaction():
            context.run_migrations()


def run_migrations_online() -> None:
    """Connect, with a synchronous or an asynchronous driver, and run the migrations."""
    engine = config.attributes.get("connection")  # pytest-alembic passes the engine of its fixture
    if engine is None:
        section = config.get_section(config.config_ini_section, {})
        is_async = make_url(section["sqlalchemy.url"]).get_dialect().is_async
        from_config = async_engine_from_config if is_async else engine_from_config
        engine = from_config(section, poolclass=pool.NullPool)
    if isinstance(engine, AsyncEngine):
        asyncio.run(run_async_migrations(engine))
        return
    set_up_connections_of(engine)
    # not engine.begin(): inside a transaction that Alembic did not begin, no step can commit
    with engine.connect() as connection:
        migrate(connection)


async def run_async_migrations(engine: AsyncEngine) -> None:
    """Run the migrations on a connection of an asynchronous driver."""
    set_up_connections_of(engine.sync_engine)
    async with engine.connect() as connection:
        await connection.run_sync(migrate)
    await engine.dispose()


if context.is_offline_mode():
    run_migrations_offline()
else:
    run_migrations_online()
