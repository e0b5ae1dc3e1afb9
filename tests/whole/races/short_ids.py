"""How many objects show the id of another row if a listener inserts by Core, and ids are short enough to collide.

.. code-block:: sh

    python tests/whole/races/short_ids.py sqlite:// --tickets 1500 --length 4

The ids are random, so this is no test; ``tests/faults`` has the histories that show it each time.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from sqlalchemy import Connection, String, create_engine, event, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from sqlalchemy_public_id import NanoId, public_id_column


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--tickets", type=int, default=1500)
    parser.add_argument("--length", type=int, default=4)
    options = parser.parse_args()

    sys.stdout.write(f"{count_wrong(options.url, options.tickets, options.length)} of {options.tickets} are wrong\n")


def count_wrong(url: str, tickets: int, length: int) -> int:
    class Base(DeclarativeBase): ...

    ticket: Any = type(
        "Ticket",
        (Base,),
        {
            "__tablename__": "race_ticket",
            "__annotations__": {"id": Mapped[int], "name": Mapped[str]},
            "id": mapped_column(primary_key=True),
            "name": mapped_column(String(20)),
            "public_id": public_id_column(NanoId(length=length)),
        },
    )

    def write_another(mapper: object, connection: Connection, target: Any) -> None:
        connection.execute(insert(ticket.__table__), {"name": f"copy of {target.name}"})

    event.listen(ticket, "after_insert", write_another)
    engine = create_engine(url)
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    with Session(engine, expire_on_commit=False) as session:
        session.add_all(objects := [ticket(name=str(number)) for number in range(tickets)])
        session.commit()
        stored = dict(session.execute(select(ticket.name, ticket.public_id).execution_options(no_autoflush=True)).all())
    Base.metadata.drop_all(engine)
    return sum(stored[each.name] != each.public_id for each in objects)


if __name__ == "__main__":
    main()
