"""Fill in missing public ids while a table stays in use: in short batches, in several processes, and resumable.

>>> from sqlalchemy import text
>>> from sqlalchemy_public_id import NanoId, backfill
>>> with engine.begin() as connection:
...     _ = connection.execute(text("CREATE TABLE book (id INTEGER PRIMARY KEY, title TEXT, public_id VARCHAR(12))"))
...     _ = connection.execute(text("INSERT INTO book (title) VALUES ('Emma'), ('Persuasion')"))
>>> progress = backfill.run(engine, "book", format=NanoId())
>>> progress.filled, progress.finished
(2, True)

If a process is killed, start it again: it continues with the rows that still have no id, and there is nothing to clean
up. On PostgreSQL, MySQL and MariaDB, you can run any number of processes on one table. Each process claims a window of
neighboring rows with an advisory lock, which ends with its connection. On PostgreSQL the lock ends with the batch,
because a pooler may run the next batch in another session.
"""

from sqlalchemy_public_id.migrations import Pace
from sqlalchemy_public_id.migrations.backfill import Progress, run
from sqlalchemy_public_id.migrations.waits import MaxLag, MaxLoad, PauseFile

__all__ = ["MaxLag", "MaxLoad", "Pace", "PauseFile", "Progress", "run"]
