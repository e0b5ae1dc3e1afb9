"""How often a time limit, raised by a signal handler, leaves a connection in the pool that does not work any more.

.. code-block:: sh

    python tests/whole/races/pool_after_time_limits.py postgresql+psycopg://postgres@127.0.0.1/test --tries 1500
    python tests/whole/races/pool_after_time_limits.py postgresql+psycopg://postgres@127.0.0.1/test --plain

The second one is the control: the table without the library. The moment is random, so this is no test.
"""

from __future__ import annotations

import argparse
import logging
import random
import signal
import sys
import time
from contextlib import suppress
from typing import Any

from sqlalchemy import Engine, String, create_engine, insert, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from sqlalchemy_public_id import PublicIdMixin


class TimeLimit(Exception):
    """What a task queue raises when a task takes too long."""


class Base(DeclarativeBase): ...


class Job(PublicIdMixin, Base):
    __tablename__ = "race_job"
    name: Mapped[str | None] = mapped_column(String(10))


class PlainBase(DeclarativeBase): ...


class PlainJob(PlainBase):
    __tablename__ = "race_plain_job"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str | None] = mapped_column(String(10))


def write(session: Session, model: type[Any]) -> None:
    session.execute(insert(model).values([{"name": "a"}, {"name": "b"}]))


def works(engine: Engine) -> bool:
    try:
        with engine.begin() as connection:
            return connection.scalar(text("SELECT 42")) == 42
    except Exception:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--tries", type=int, default=1500)
    parser.add_argument("--plain", action="store_true")
    options = parser.parse_args()
    model = PlainJob if options.plain else Job
    logging.disable(logging.CRITICAL)
    engine = create_engine(options.url, pool_size=1, max_overflow=0, pool_timeout=3)
    model.metadata.create_all(engine)
    is_armed = False

    def raise_limit(*_: object) -> None:
        if is_armed:
            raise TimeLimit

    signal.signal(signal.SIGALRM, raise_limit)
    began = time.perf_counter()
    for _ in range(20):
        with Session(engine) as session:
            write(session, model)
    usual, broken = (time.perf_counter() - began) / 20, 0
    for _ in range(options.tries):
        with Session(engine) as session:
            session.connection()  # a limit in SQLAlchemy's pool, which loses a connection, is not what is counted
            try:
                signal.setitimer(signal.ITIMER_REAL, random.random() * usual + 1e-6)
                is_armed = True
                write(session, model)
            except Exception:
                with suppress(Exception):  # a connection that does not work any more may refuse
                    session.rollback()
            finally:
                is_armed = False
                signal.setitimer(signal.ITIMER_REAL, 0)
        if not works(engine):
            broken += 1
            engine.dispose()
    model.metadata.drop_all(engine)
    sys.stdout.write(f"{broken} of {options.tries} time limits left a connection that does not work\n")


if __name__ == "__main__":
    main()
