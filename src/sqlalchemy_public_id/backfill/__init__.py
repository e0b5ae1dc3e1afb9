"""Set public ids in the rows of a table in use: in short batches, side by side, and again after a kill.

>>> from sqlalchemy import text
>>> from sqlalchemy_public_id import NanoId, backfill
>>> with engine.begin() as connection:
...     _ = connection.execute(text("CREATE TABLE book (id INTEGER PRIMARY KEY, title TEXT, public_id VARCHAR(12))"))
...     _ = connection.execute(text("INSERT INTO book (title) VALUES ('Emma'), ('Persuasion')"))
>>> progress = backfill.run(engine, "book", format=NanoId())
>>> progress.filled, progress.finished
(2, True)

The rows without an id are what is left to do, so a killed process leaves nothing to clean up. On PostgreSQL, MySQL and
MariaDB, any number of processes may work on one table. Each takes a window of neighbouring rows under an advisory lock,
which ends with its connection.
"""

from __future__ import annotations

from sqlalchemy_public_id.backfill.run import Progress, run

__all__ = ["Progress", "run"]
