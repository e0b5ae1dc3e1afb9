"""Mistakes on the command line: ``public-id``."""

import pytest
from mistakes.models import Customer
from mistakes.table import mistake
from sqlalchemy import Engine, text
from support.command import run
from support.projects import Project


def refused(*arguments: object) -> str:
    """Return what the command says when it does not do what it was told."""
    result = run(*arguments)
    assert result.exit_code != 0, result.stdout
    return str(result.stderr)


@pytest.fixture(autouse=True)
def no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave ``DATABASE_URL`` out of the environment."""
    monkeypatch.delenv("DATABASE_URL", raising=False)


@mistake("public-id neu", says=r"Did you mean 'new'\?|The commands are .*\bnew\b")
def test_misspelled_command() -> str:
    """An id should be printed."""
    return refused("neu")


@mistake("public-id new cus", says=r"such as NanoId\(prefix=\"cus\"\)")
def test_prefix_of_new() -> str:
    """An id with this prefix should be printed."""
    return refused("new", "cus")


@mistake("public-id new \"NanoId(12, 'cus')\"", says=r"expected NanoId\(length=…, alphabet=…, prefix=…")
def test_second_argument_of_a_format() -> str:
    """An id with this prefix should be printed."""
    return refused("new", "NanoId(12, 'cus')")


@mistake("public-id new NanoId")
def test_name_of_a_format() -> None:
    """An id of the default format should be printed."""
    assert len(run("new", "NanoId").stdout.strip()) == 12


@mistake("public-id plan customer", says=r"write it after the command, or set DATABASE_URL")
def test_no_url() -> str:
    """The table in the database of the project is meant."""
    return refused("plan", "customer")


@mistake("public-id plan customer sqlite:///x.db")
def test_url_after_the_table(engine: Engine, ada: Customer) -> None:
    """The table in this database is meant."""
    assert run("plan", "customer", engine.url).stdout.startswith("customer.public_id on sqlite")


@mistake("public-id plan one.db two.db", says=r"two database URLs")
def test_two_urls() -> str:
    """Two databases should be examined."""
    return refused("plan", "sqlite:///one.db", "customer", "sqlite:///two.db")


@mistake("public-id audit models.py", says=r"not the URL of a database; write postgresql\+psycopg://…")
def test_file_instead_of_a_url() -> str:
    """The models of this file should be checked."""
    return refused("audit", "models.py")


@mistake("public-id audit URL --models models.py", says=r"is not module:Base, such as shop\.models:Base")
def test_file_of_the_models(engine: Engine) -> str:
    """The models of this file are meant."""
    return refused("audit", engine.url, "--models", "models.py")


@mistake("public-id plan postgres://…", says=r"write postgresql\+psycopg://…")
def test_former_name_of_a_dialect() -> str:
    """A database on PostgreSQL is meant, as Heroku writes it."""
    return refused("plan", "postgres://localhost/shop", "customer")


@mistake("public-id plan postgresql+asyncpg://…", says=r"expected a synchronous one; write postgresql\+psycopg://…")
def test_asynchronous_driver() -> str:
    """The database of the service is meant, by its URL."""
    return refused("plan", "postgresql+asyncpg://localhost/shop", "customer")


@mistake("public-id plan sqlite:///no-such.db customer", says=r"there is no file 'no-such\.db'.*correct the path")
def test_file_that_does_not_exist() -> str:
    """The database in another folder is meant."""
    return refused("plan", "sqlite:///no-such.db", "customer")


@mistake("public-id plan URL customers", says=r"there is no table 'customers'; .*correct its name")
def test_table_that_does_not_exist(engine: Engine, ada: Customer) -> str:
    """The table ``customer`` is meant."""
    return refused("plan", engine.url, "customers")


@mistake("public-id add URL", says=r"name the tables, or pass --all")
def test_no_table(engine: Engine, ada: Customer) -> str:
    """All tables are meant."""
    return refused("add", engine.url)


@mistake("public-id plan URL customer --format nanoid", says=r"write one of .*NanoId")
def test_format_in_lower_case(engine: Engine, ada: Customer) -> str:
    """The default format is meant."""
    return refused("plan", engine.url, "customer", "--format", "nanoid")


@mistake("public-id drop URL customer, in a script", says=r"nothing was dropped; .*--yes")
def test_drop_without_an_answer(engine: Engine, ada: Customer) -> str:
    """The column should go, and nobody can answer the question."""
    return refused("drop", engine.url, "customer")


@mistake("public-id inspect 1")
def test_key_is_inspected() -> None:
    """The number in an old link is shown as what it is: a text of one character, whose format is a guess."""
    assert "(a guess)" in run("inspect", "1").stdout


@mistake("public-id add sqlite:///… customer, twice")
def test_command_twice(project: Project, engine: Engine) -> None:
    """The table should have ids; the second run changes nothing."""
    assert run("add", engine.url, "customer").exit_code == 0
    with engine.connect() as connection:
        before = connection.scalars(text("SELECT public_id FROM customer")).all()
    assert run("add", engine.url, "customer").exit_code == 0
    with engine.connect() as connection:
        assert connection.scalars(text("SELECT public_id FROM customer")).all() == before
