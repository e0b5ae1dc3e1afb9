"""Two indexes, turns or reports exist at once: which one an audit names, and what is said about both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from types import SimpleNamespace

import pytest
from sqlalchemy import Column, Connection, MetaData, Table
from support.command import run as command
from support.connections import number_of
from support.marks import SERVERS
from support.of_two import MYSQL, NAMESAKE, OWN, PARTIAL, OfTwo, answer, of_two, other_name, unique
from support.people import People, send

from sqlalchemy_public_id import NanoId, PublicIdType, audit, backfill
from sqlalchemy_public_id.backfill import MaxLoad, Progress
from sqlalchemy_public_id.cli._display import Display
from sqlalchemy_public_id.migrations import PublicIdColumn
from sqlalchemy_public_id.migrations.databases import database_of

pytestmark = pytest.mark.backend


# --- questions


def fact(problem: str, *names: str) -> Callable[[People], object]:
    """Ask for the facts of the finding *problem*."""

    def ask(people: People) -> object:
        [found] = [each for each in audit.run(people.engine, tables=["person"]).findings if each.problem == problem]
        return [found.facts[name] for name in names]

    return ask


def name_in_the_remedy(people: People) -> object:
    """Ask for the name of the unique index that an audit proposes."""
    findings = audit.run(people.engine, tables=["person"]).findings
    [remedy] = {str(each.remedy) for each in findings if each.problem == "unique-missing"}
    return next(word for word in remedy.split() if word.startswith("uq_"))


def formats_of_two_models(people: People) -> object:
    """Ask for the prefixes that an audit with two models expects, in both orders of the models."""
    models: list[MetaData] = []
    for prefix in ("one", "two"):
        models.append(MetaData())
        format = NanoId(prefix=prefix)
        Table("person", models[-1], Column("public_id", PublicIdType(format), default=format.generate))
    reports = [audit.run(people.engine, tables=["person"], models=each) for each in (models, models[::-1])]
    return [str(report.tables[0].format)[:3] for report in reports]


def turn_beside_a_namesake(people: People) -> object:
    """Ask whether a migration gets its turn while the table of the same name in the other schema is migrated."""
    with people.engine.connect() as one, people.engine.connect() as two:
        sessions = [database_of(each.dialect).session(isolated(each)) for each in (one, two)]
        with sessions[0].take_turn("person", other_name(people.engine), timeout=0):
            return sessions[1].try_to_take_turn("person", None) == number_of(two)


def isolated(connection: Connection) -> Connection:
    return connection.execution_options(isolation_level="AUTOCOMMIT")


def holder_of_the_turn(people: People) -> object:
    """Ask who has the turn of the table while two migrations have turns of two tables."""
    with people.engine.connect() as one, people.engine.connect() as two, people.engine.connect() as three:
        sessions = [database_of(each.dialect).session(isolated(each)) for each in (one, two, three)]
        with sessions[0].take_turn("visit", timeout=0), sessions[1].take_turn("person", timeout=0):
            assert sessions[2].try_to_take_turn("person", None) == 0
            return [number_of(one), number_of(two)].index(sessions[2].read_holder())


def slept(people: People) -> object:
    """Ask how long a backfill pauses whose batches take two seconds, with a pause of a quarter."""
    now, pauses = 0.0, list[float]()

    def monotonic() -> float:
        nonlocal now
        now += 2.0
        return now

    with pytest.MonkeyPatch.context() as patch:
        clock = SimpleNamespace(monotonic=monotonic, sleep=pauses.append)
        patch.setattr("sqlalchemy_public_id.migrations.backfill.time", clock)
        backfill.run(people.engine, "person", pause=0.25)
    return {*pauses}


def load(people: People) -> object:
    """Ask for how many statements fewer the load has than the server reports, beside the scheduler of events."""
    with people.engine.connect() as connection:
        has_scheduler = send(connection, "SELECT @@GLOBAL.event_scheduler = 'ON'").scalar()
        reported = "SHOW GLOBAL STATUS LIKE 'Threads_running'"  # with this statement, and those of other tests
        readings = [(int(send(connection, reported).one()[1]), MaxLoad(0).running(connection)) for _ in range(199)]
    # the statements of other tests begin and end between two readings, but seldom
    [(difference, _)] = Counter(of_all - of_others for of_all, of_others in readings).most_common(1)
    return difference - has_scheduler


def tables_with_progress(people: People) -> object:
    """Ask which tables have a line of progress if two begin at the same time."""
    display, stderr = Display(), StringIO()
    with redirect_stderr(stderr):
        shows = [display.on_progress(PublicIdColumn.of(name)) for name in ("person", "visit")]
        for show in shows * 2:
            show(Progress("", filled=1))
    return [line.partition(":")[0] for line in stderr.getvalue().splitlines()]


def exit_statuses(people: People) -> object:
    """Ask for the exit status of a command for two tables, of which the second or the first one fails."""
    url = people.engine.url.render_as_string(hide_password=False)
    orders = (("person", "visit"), ("a_visit", "person"))
    return [command("loosen", url, *names).exit_code for names in orders]


# --- cases

AUDIT = {
    "named, and another one": OfTwo(
        (unique("a_own"), unique(OWN)), fact("index-redundant", "index", "beside"), ["a_own", OWN]
    ),
    "of a constraint, and named": OfTwo(
        (unique(OWN), "ALTER TABLE person ADD CONSTRAINT zz_own UNIQUE (public_id)"),
        fact("index-redundant", "index", "beside"),
        [OWN, "zz_own"],
        ("postgresql",),
    ),
    "of some rows, and named": OfTwo(
        (unique(OWN, rest=" WHERE id > 1"), unique("zz_own")),
        fact("index-redundant", "index", "beside"),
        [OWN, "zz_own"],
        PARTIAL,
    ),
    "of some rows, and not named": OfTwo(
        (unique("a_some", rest=" WHERE id > 1"), unique(OWN)),
        fact("index-redundant", "index", "beside"),
        ["a_some", OWN],
        PARTIAL,
    ),
    "deferrable, and not": OfTwo(
        ("ALTER TABLE person ADD CONSTRAINT a_late UNIQUE (public_id) DEFERRABLE", unique("zz_own")),
        fact("index-redundant", "index", "beside"),
        ["a_late", "zz_own"],
        ("postgresql",),
    ),
    "of two columns and of three": OfTwo(
        (unique("a_three", "public_id, id, tenant"), unique("zz_two", "public_id, tenant")),
        fact("unique-with-others", "unique_with"),
        [["tenant"]],
    ),
    "by another collation, alone": OfTwo(
        (unique("a_coarse", "public_id COLLATE nocase"), "CREATE INDEX zz_plain ON person (public_id)"),
        fact("unique-missing", "indexes"),
        [["zz_plain", "a_coarse"]],
        ("sqlite",),
    ),
    "a plain index of the name": OfTwo((f"CREATE INDEX {OWN} ON person (public_id)",), name_in_the_remedy, f"{OWN}_2"),
    "plain indexes of both names": OfTwo(
        (f"CREATE INDEX {OWN} ON person (public_id)", f"CREATE INDEX {OWN}_2 ON person (name)"),
        name_in_the_remedy,
        f"{OWN}_3",
    ),
    "a plain index of the name in capitals": OfTwo(
        (f"CREATE INDEX {OWN.upper()} ON person (public_id)",), name_in_the_remedy, f"{OWN}_2", (*MYSQL, "sqlite")
    ),
}


REPORTS = {
    "formats of two models": OfTwo((), formats_of_two_models, ["one", "two"], ("sqlite",)),
    "turns of two tables of one name": OfTwo((NAMESAKE,), turn_beside_a_namesake, True, SERVERS),
    "holders of two turns": OfTwo((), holder_of_the_turn, 1, SERVERS),
    "a share of a batch and seconds": OfTwo((), slept, {0.5}, ("sqlite",)),
    "the own statement and those of others": OfTwo((), load, 1, MYSQL),
    "progress of two tables": OfTwo((), tables_with_progress, ["person", "visit"], ("sqlite",)),
    "exit statuses of two tables": OfTwo(("CREATE TABLE a_visit (person bigint)",), exit_statuses, [2, 2], ("sqlite",)),
}


@of_two(
    {f"audit {name}": case for name, case in AUDIT.items()} | {f"report {name}": case for name, case in REPORTS.items()}
)
def test_which_one_is_taken(new_people: Callable[..., People], case: OfTwo) -> None:
    """Of two things that exist at once, the library takes the right one."""
    assert answer(case, new_people) == case.taken
