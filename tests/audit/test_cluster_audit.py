"""An audit of cluster keys: when their range runs out, and which keys are outside of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import BigInteger, Column, Engine, MetaData, String, Table, insert
from support.cluster_models import models
from support.command import run
from support.marks import on

from sqlalchemy_public_id import ConfigurationError, audit
from sqlalchemy_public_id.audit import Finding
from sqlalchemy_public_id.keys import ClusterKey, Range, Ranges, cluster_key, range_of

pytestmark = pytest.mark.backend

SIZE = 2**48 - 1


@pytest.fixture
def add(engine: Engine, create: Callable[[MetaData], None]) -> Callable[..., None]:
    """Return a function that creates the tables of depots, and inserts depots with these keys."""

    def make(*keys: int, key_range: Range | None = None, **options: Any) -> None:
        own = [cluster_key(key_range=key_range) for _ in range(2)] if key_range else []
        metadata, Depot, _ = models(*own, **({} if key_range else {"cluster": 10, **options}))
        create(metadata)
        with engine.begin() as connection:
            if engine.name in {"mysql", "mariadb"}:
                connection.exec_driver_sql("SET @any_cluster = 1")
            for key in keys:
                connection.execute(insert(Depot.__table__), {"id": key, "name": "x"})
            if engine.name in {"mysql", "mariadb"}:
                connection.exec_driver_sql("SET @any_cluster = NULL")
            # as if the counter had issued the last key of its own
            last = max((key for key in keys if key in (key_range or range_of(10))), default=None)
            part = last & (2**48 - 1) if last is not None and "strategy" in options else last
            if engine.name in {"mysql", "mariadb"} and "strategy" in options and part is not None:
                connection.exec_driver_sql(f"ALTER TABLE cluster_sequence_depot AUTO_INCREMENT = {part + 1}")
            elif engine.name == "postgresql" and keys:
                query = "SELECT setval(pg_get_serial_sequence('depot', 'id')::regclass, CAST(%s AS bigint))"
                connection.exec_driver_sql(query, (part,))

    return make


def found(engine: Engine, **options: Any) -> dict[str, Finding]:
    """Return the findings on the depots, by problem, with the cluster passed to the audit."""
    report = audit.run(engine, tables=["depot"], clusters={"depot": 10}, **options)
    return {finding.problem: finding for finding in report.findings}


def test_nothing(engine: Engine, add: Callable[..., None]) -> None:
    """A cluster that has generated few keys has no finding, whatever its number; nor has a table without keys."""
    add()
    assert found(engine) == {}

    add(ClusterKey.of(9, 5), ClusterKey.of(10, 1), ClusterKey.of(10, 1000))  # the first key comes from a merge
    assert found(engine) == {}


@pytest.mark.parametrize(("share", "severity"), [(0.49, None), (0.5, "warning"), (0.89, "warning"), (0.91, "error")])
def test_the_range_runs_out(engine: Engine, add: Callable[..., None], share: float, severity: str | None) -> None:
    """From half of the range on, there is a warning, and from nine tenths on an error, with the figures."""
    key = ClusterKey.of(10, int(SIZE * share) + 1)
    add(key)

    finding = found(engine).get("key-range-nearly-full")

    assert (finding.severity if finding else None) == severity
    if finding:
        assert finding.message.startswith(f"the keys of cluster 10 are {share:.0%} used up, at {int(key)}; ")
        assert finding.facts["used"] == pytest.approx(share)
        assert finding.facts["cluster"] == 10


def test_range_that_is_used_up(engine: Engine, add: Callable[..., None]) -> None:
    """After the last key, the next one is refused by the database, so that the counter is not outside of its range."""
    add(ClusterKey.of(10, SIZE))

    assert found(engine).keys() == {"key-range-nearly-full"}


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("options", [{"strategy": "function"}, {"enforce_range": True}], ids=["function", "guarded"])
def test_the_database_tells(engine: Engine, add: Callable[..., None], options: dict[str, Any]) -> None:
    """If the database stores the cluster, it does not have to be passed."""
    add(ClusterKey.of(10, SIZE), **options)

    (finding,) = audit.run(engine, tables=["depot"]).findings

    assert (finding.problem, finding.severity, finding.facts["cluster"]) == ("key-range-nearly-full", "error", 10)


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("options", [{}, {"strategy": "function"}, {"enforce_range": True}], ids=str)
def test_keys_with_a_tenant(engine: Engine, create: Callable[[MetaData], None], options: dict[str, Any]) -> None:
    """A key that is one column of the primary key, as in a partitioned table, is audited like any other."""
    metadata = tenanted(10, **options)
    create(metadata)
    with engine.begin() as connection:
        connection.execute(insert(metadata.tables["crate"]), {"tenant_id": 1})

    def problems(**told: Any) -> list[str]:
        return [finding.problem for finding in audit.run(engine, tables=["crate"], **told).findings]

    assert problems(models=metadata) == problems() == problems(clusters={"crate": 10}) == []
    assert problems(models=tenanted(11, **options)) == ["key-counter-outside"]
    with pytest.raises(ConfigurationError, match="whose primary key has no column with a counter"):
        audit.run(engine, clusters={"crate_of_text": 10})


def tenanted(cluster: int, **options: Any) -> MetaData:
    """Return the table of crates, with a tenant in its primary key, and one whose primary key is not counted."""
    metadata = MetaData()
    own: Any = cluster_key(cluster=cluster, **options).column
    own.name = own.key = "id"
    Table("crate", metadata, own, Column("tenant_id", BigInteger, primary_key=True))
    keys = [Column(name, String(9), primary_key=True) for name in ("region", "name")]
    Table("crate_of_text", metadata, *keys)
    return metadata


@on("mysql", "mariadb", "sqlite")
def test_a_cluster_that_the_database_does_not_store(engine: Engine, add: Callable[..., None]) -> None:
    """Keys of a high cluster seem to fill half of a BIGINT; the finding names the option for the cluster."""
    add(ClusterKey.of(20_000, 1), cluster=20_000)

    (finding,) = audit.run(engine, tables=["depot"]).findings

    assert finding.problem == "key-nearly-full"
    assert finding.message.endswith("pass the cluster: clusters=, or --cluster")
    assert audit.run(engine, tables=["depot"], clusters={"depot": 20_000}).findings == []


def test_a_counter_that_others_move(engine: Engine, add: Callable[..., None]) -> None:
    """After a larger key of another cluster, a counter that follows the keys generates keys of that cluster."""
    add(ClusterKey.of(10, 5), ClusterKey.of(20, 5))

    problems = found(engine)

    if engine.name == "postgresql":
        assert problems == {}
    else:
        assert problems.keys() == {"key-counter-outside"}
        assert problems["key-counter-outside"].severity == "error"
        assert problems["key-counter-outside"].facts["value"] == ClusterKey.of(20, 5)


@on("mysql", "mariadb")
def test_a_function_has_its_own_counter(engine: Engine, add: Callable[..., None]) -> None:
    """The counter of a function does not move when keys of other clusters are inserted."""
    add(ClusterKey.of(10, 5), ClusterKey.of(20, 5), strategy="function")

    assert found(engine) == {}


def test_keys_of_no_cluster(engine: Engine, add: Callable[..., None]) -> None:
    """Small keys, from before the cluster was set or after a TRUNCATE, are found, because others may have them, too."""
    add(7, ClusterKey.of(10, 5))

    finding = found(engine)["keys-outside"]

    assert finding.severity == "warning"
    assert finding.facts["example"] == 7


def test_ranges(engine: Engine, add: Callable[..., None]) -> None:
    """Plain ranges of keys are audited in the same way."""
    add(1095, 5, key_range=Range(1001, 1101))

    report = audit.run(engine, tables=["depot"], clusters={"depot": Range(1001, 1101)})

    assert [finding.problem for finding in report.findings] == ["key-range-nearly-full", "keys-outside"]
    assert report.findings[0].message.startswith("the keys of the range 1001 to 1100 are 95% used up")
    assert "such as 5, from before the cluster was set, after a TRUNCATE, or from a merge" in report.findings[1].message


@on("postgresql")
@pytest.mark.parametrize(
    "key",
    [{"cluster": 32767}, {"key_range": Ranges(shards=7)[6]}, {"key_range": Ranges(shards=7)[0]}],
    ids=["cluster", "last range", "first range"],
)
def test_the_ends_of_all_keys(engine: Engine, create: Callable[[MetaData], None], key: dict[str, Any]) -> None:
    """A range that ends with the last possible key, or begins with the first one, is recognized by its sequence."""
    metadata, Depot, _ = models(**key)
    create(metadata)
    keys = key.get("key_range") or range_of(key["cluster"])
    with engine.begin() as connection:
        connection.execute(insert(Depot.__table__), {"id": keys.last, "name": "x"})

    found = audit.run(engine, tables=["depot"]).findings
    (finding,) = [each for each in found if each.problem != "key-counter-behind"]

    assert finding.problem == "key-range-nearly-full"
    assert (finding.facts["start"], finding.facts["last"]) == (keys.start, keys.last)


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("way", ["identity", "function"])
def test_names_with_a_percent_sign(engine: Engine, create: Callable[[MetaData], None], way: str) -> None:
    """A table whose name contains a percent sign is audited like any other."""
    metadata, Depot, _ = models(table="a%b", cluster=10, strategy=way, enforce_range=way == "identity")
    create(metadata)
    with engine.begin() as connection:
        connection.execute(insert(Depot.__table__), {"id": ClusterKey.of(10, SIZE), "name": "x"})

    problems = {finding.problem for finding in audit.run(engine, tables=["a%b"]).findings}

    assert problems - {"key-counter-behind"} == {"key-range-nearly-full"}
    # an AUTO_INCREMENT of MySQL and MariaDB follows the rows
    assert ("key-counter-behind" in problems) == (engine.name == "postgresql" or way == "function")


ANOTHER = ["DROP TABLE cluster_config", "CREATE TABLE cluster_config (cluster int)"]
BROKEN = {
    "empty": ["DELETE FROM cluster_config"],
    "missing": ["DROP TABLE cluster_config"],
    "another": ["DROP TABLE cluster_config", "CREATE TABLE cluster_config (number int)"],
    "null": [*ANOTHER, "INSERT INTO cluster_config VALUES (NULL)"],
    "negative": [*ANOTHER, "INSERT INTO cluster_config VALUES (-1)"],
    "two": [*ANOTHER, "INSERT INTO cluster_config VALUES (10), (20)"],
}


@on("postgresql", "mysql", "mariadb")
@pytest.mark.parametrize("statements", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("clusters", [None, {"depot": 10}], ids=["not told", "told"])
def test_a_broken_configuration(engine: Engine, add: Callable[..., None], statements: list[str], clusters: Any) -> None:
    """If the database does not know its cluster, no row can be inserted, and this is the finding."""
    add(strategy="function")
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)

    (finding,) = audit.run(engine, tables=["depot"], clusters=clusters).findings

    assert (finding.problem, finding.severity) == ("cluster-unknown", "error")
    assert "INSERT INTO cluster_config (cluster) VALUES (10)" in finding.message


@on("sqlite")
def test_what_is_no_cluster(engine: Engine, add: Callable[..., None]) -> None:
    """A number that is not a cluster, and a table that does not exist, are refused."""
    add()

    with pytest.raises(ConfigurationError, match=r"clusters\['depot'\]: 32768 is not a cluster number"):
        audit.run(engine, clusters={"depot": 32768})
    with pytest.raises(ConfigurationError, match="there is no table 'depto'"):
        audit.run(engine, clusters={"depto": 1})


# --- the command


@pytest.mark.parametrize("cluster", ["depot=10", f"depot={range_of(10).start}-{range_of(10).last}"])
def test_command(engine: Engine, add: Callable[..., None], cluster: str) -> None:
    """``public-id audit`` takes the cluster, or the keys, of a table, and reports findings even without public ids."""
    add(ClusterKey.of(10, SIZE // 2 + 1))
    url = engine.url.render_as_string(hide_password=False)

    result = run("audit", url, "--table", "depot", "--cluster", cluster)

    assert result.exit_code == 1
    assert result.stdout.startswith(
        "depot: no public_id\n  warning  key-range-nearly-full  the keys of cluster 10 are 50%"
    )


@pytest.mark.parametrize(
    ("cluster", "refusal"),
    [
        ("depot", "names no table and cluster; write TABLE=CLUSTER"),
        ("=10", "names no table and cluster"),
        ("depot=ten", "names no table and cluster"),
        ("depot=32768", "32768 is not a cluster number"),
        ("depot=9-8", "there are no keys from 9 up to 9"),
        ("nosuch=10", "there is no table 'nosuch'"),
    ],
)
@on("sqlite")
def test_command_with_a_wrong_cluster(engine: Engine, add: Callable[..., None], cluster: str, refusal: str) -> None:
    """An invalid ``--cluster`` is refused in one line."""
    add()

    result = run("audit", engine.url, "--cluster", cluster)

    assert result.exit_code == 2
    assert refusal in result.stderr
