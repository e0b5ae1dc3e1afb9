"""Run the example: ``python -m examples.two_identifiers [URL]``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table
from sqlalchemy import create_engine, event, func, insert, select
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session
from sqlalchemy.schema import CreateIndex, CreateTable

from examples.two_identifiers.models import Album, Artist, ArtistId, Base, Locker
from sqlalchemy_public_id import ImmutablePublicId, InvalidPublicId, PublicIdCollision, bulk, lookup, testing

ARTISTS = ["Nina Simone", "Fela Kuti", "Clara Schumann", "Ali Farka Touré", "Björk", "坂本 龍一"]


def main(url: str) -> int:
    """Run all steps on the database at *url*; return 0 if every check passed."""
    console = Console()
    engine = create_engine(url)
    with tables(engine), Session(engine) as session:
        shop = Demo(console, session, engine)
        shop.show_tables()
        shop.write()
        shop.collide()
        shop.look_up()
        shop.refuse()
        return shop.verdict()


@contextmanager
def tables(engine: Engine) -> Iterator[None]:
    """Create the tables of the example, and drop them at the end."""
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    try:
        yield
    finally:
        Base.metadata.drop_all(engine)
        engine.dispose()


class Demo:
    """The steps of the example, and the checks that failed."""

    def __init__(self, console: Console, session: Session, engine: Engine) -> None:
        self.console = console
        self.session = session
        self.engine = engine
        self.sent: list[str] = []
        self.failures: list[str] = []
        event.listen(engine, "before_cursor_execute", lambda *arguments: self.sent.append(arguments[2]))

    def show_tables(self) -> None:
        """Print the two columns that every model gets."""
        version = ".".join(map(str, self.engine.dialect.server_version_info or ()))
        self.console.rule(f"[bold]{self.engine.dialect.name} {version}[/] through {self.engine.dialect.driver}")
        table = Artist.__table__
        print(str(CreateTable(table).compile(self.engine)).strip())  # type: ignore[arg-type]
        for index in table.indexes:  # type: ignore[attr-defined]
            print(str(CreateIndex(index).compile(self.engine)))

    def write(self) -> None:
        """Write rows in every supported way."""
        session = self.session
        nina = Artist(name=ARTISTS[0])
        early = nina.public_id
        fela, clara, ali = (Artist(name=name) for name in ARTISTS[1:4])
        albums = [Album(title=f"Volume {number}", artist=fela) for number in range(1, 4)]
        many = [Album(title=f"Song book {number}", artist_id=1) for number in range(1000)]
        rows = [{"name": name} for name in ARTISTS[4:]]
        given = ArtistId("art_000000000000")

        ways: dict[str, Callable[[], object]] = {
            "session.add(), id known before": lambda: (session.add(nina), session.flush()),
            "add_all() with a cascade to 3 albums": lambda: (session.add_all([fela, *albums]), session.flush()),
            "session.merge()": lambda: (session.merge(clara), session.flush()),
            "execute(insert(Artist), [2 rows])": lambda: session.execute(insert(Artist), rows),
            "Core insert().values([2 rows])": lambda: session.connection().execute(
                insert(Artist.__table__).values(rows)  # type: ignore[arg-type]
            ),
            "bulk_insert_mappings(2 rows)": lambda: session.bulk_insert_mappings(Artist, rows),  # type: ignore[arg-type]
            "an id that the caller gives": lambda: (
                setattr(ali, "public_id", given),
                session.add(ali),
                session.flush(),
            ),
            "bulk.insert(1000 albums)": lambda: bulk.insert(session, many),
        }
        shown = Table("way to write", "statements", "rows in all", title="Writing")
        for way, write in ways.items():
            self.sent.clear()
            write()
            inserts = [statement for statement in self.sent if statement.startswith(("INSERT", "SELECT"))]
            shown.add_row(way, str(len(inserts)), str(self.count(Artist) + self.count(Album)))
        session.commit()
        self.console.print(shown)
        self.check("the id seen before the flush is the stored one", nina.public_id == early)
        self.check("the given id is kept", ali.public_id == given)
        self.check("1000 albums have a key and an id", len({album.public_id for album in many if album.id}) == 1000)

    def collide(self) -> None:
        """Force collisions inside one transaction, which stays usable."""
        session = self.session
        taken = session.scalars(select(Artist.public_id).limit(1)).one()
        shown = Table("collision", "what happened", title="Collisions, inside one transaction")
        with testing.collisions(Artist, taken, times=7):
            artist = Artist(name="Seven collisions")
            session.add(artist)
            session.flush()
        shown.add_row("7 times with a committed row", f"{taken} → {artist.public_id}")
        self.check("the collided row has another id", artist.public_id != taken)

        lockers = [Locker(holder=f"holder {number}") for number in range(36)]
        session.add_all(lockers[:30])
        session.flush()
        bulk.insert(session, lockers[30:])
        shown.add_row("36 rows into a space of 36", " ".join(locker.public_id for locker in lockers))
        try:
            with session.begin_nested():
                session.add(Locker(holder="one too many"))
                session.flush()
        except PublicIdCollision as error:
            shown.add_row("one more", f"PublicIdCollision: {error.capacity} possible ids, {error.attempts} attempts")
        session.commit()
        self.console.print(shown)
        self.check("36 lockers and the artist are committed", self.count(Locker) == 36 and artist.id is not None)

    def look_up(self) -> None:
        """Look up rows by public id; malformed ids send no statement."""
        session = self.session
        artist = session.scalars(select(Artist).where(Artist.name == ARTISTS[1])).one()
        album_ids = session.scalars(select(Album.public_id)).all()
        asked: dict[str, Callable[[], object]] = {
            f"get(Artist, {artist.public_id!r})": lambda: lookup.get(session, Artist, artist.public_id),
            f"resolve({artist.albums[0].public_id!r})": lambda: lookup.resolve(session, artist.albums[0].public_id),
            f"get_many(Album, {len(album_ids)} ids)": lambda: lookup.get_many(session, Album, album_ids),
            "get(Artist, another type's id)": lambda: lookup.get(session, Artist, artist.albums[0].public_id),
            "get(Artist, '1')": lambda: lookup.get(session, Artist, "1"),
            "get(Artist, '…; DROP TABLE')": lambda: lookup.get(session, Artist, "'; DROP TABLE demo_artist"),
            "get(Artist, 10 MB of text)": lambda: lookup.get(session, Artist, "x" * 10_000_000),
        }
        shown = Table("lookup", "statements", "answer", title="Looking up")
        for question, ask in asked.items():
            self.sent.clear()
            answer = ask()
            summary = f"{len(answer)} rows" if isinstance(answer, dict) else type(answer).__name__ if answer else "None"
            shown.add_row(question, str(len(self.sent)), summary)
        self.console.print(shown)
        self.check("the artist is found", lookup.get_one(session, Artist, artist.public_id) is artist)

    def refuse(self) -> None:
        """Show the errors that mistakes raise before a statement is sent."""
        artist = self.session.scalars(select(Artist).limit(1)).one()
        album = self.session.scalars(select(Album).limit(1)).one()
        mistyped = album.public_id[:-2] + ("0" if album.public_id[-2] != "0" else "1") + album.public_id[-1]
        shown = Table("mistake", "error", title="Refused")
        for mistake, make in {
            "another id for a stored row": lambda: setattr(artist, "public_id", ArtistId()),
            "a mistyped album id": lambda: setattr(Album(), "public_id", mistyped),
            "an album's id for an artist": lambda: ArtistId(album.public_id),
        }.items():
            try:
                make()
                self.check(f"{mistake} is refused", False)
            except (ImmutablePublicId, InvalidPublicId) as error:
                shown.add_row(mistake, f"{type(error).__name__}: {error}")
        self.console.print(shown)

    def verdict(self) -> int:
        """Check that every row has a unique public id, which finds the row; return 0 if no check failed."""
        for model in (Artist, Album, Locker):
            self.session.expire_all()
            rows = self.session.scalars(select(model)).all()
            self.check(f"every {model.__name__} has its own id", len({row.public_id for row in rows}) == len(rows) > 0)
            for row in rows:
                if lookup.get(self.session, model, row.public_id) is not row:
                    self.check(f"{row.public_id} leads to its row", False)
                    break
        for failure in self.failures:
            self.console.print(f"[red]FAILED:[/] {failure}")
        if not self.failures:
            self.console.print("[green]All rows have a key and a public id of their own.[/]")
        return 1 if self.failures else 0

    def count(self, model: type[Base]) -> int:
        """Return the number of rows of *model*."""
        return self.session.scalar(select(func.count()).select_from(model)) or 0

    def check(self, claim: str, holds: bool) -> None:
        """Record *claim* as a failure if it does not hold."""
        if not holds:
            self.failures.append(claim)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "sqlite://"))
