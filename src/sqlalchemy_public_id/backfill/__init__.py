"""Give public ids to the rows of a table that is in use: in short batches, side by side, and again after a kill.

>>> from sqlalchemy import text
>>> from sqlalchemy_public_id import NanoId, backfill
>>> with engine.begin() as connection:
...     _ = connection.execute(text("CREATE TABLE book (id INTEGER PRIMARY KEY, title TEXT, public_id VARCHAR(12))"))
...     _ = connection.execute(text("INSERT INTO book (title) VALUES ('Emma'), ('Persuasion')"))
>>> progress = backfill.run(engine, "book", format=NanoId())
>>> progress.filled, progress.finished
(2, True)

The rows themselves say what is left to do: those without an id. So there is nothing to clean up after a process was
killed, and any number of processes may work on one table (on PostgreSQL, MySQL and MariaDB); each takes a window of
neighbouring rows, under an advisory lock that goes with its connection.
"""

from __future__ import annotations

from sqlalchemy_public_id.backfill.run import Progress, run

__all__ = ["Progress", "run"]
