"""The top-level package: which names it exports, and which side effects its import does not have."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import subprocess
import sys
from types import ModuleType

from sqlalchemy.orm import DeclarativeBase

import sqlalchemy_public_id
from sqlalchemy_public_id import PublicIdMixin, declare, errors, formats, keys


def fresh(program: str, told: str = "") -> str:
    """Return the output of *program* in a new interpreter, with *told* as its input."""
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True, input=told)
    return done.stdout.strip()


def test_all_is_sorted() -> None:
    """``__all__`` is sorted without regard to case, and has no duplicates."""
    assert sorted(set(sqlalchemy_public_id.__all__), key=str.lower) == sqlalchemy_public_id.__all__


def test_nothing_else_is_public() -> None:
    """Every public name is in ``__all__``, except the modules of the package."""
    public = {
        name
        for name, value in vars(sqlalchemy_public_id).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }

    assert public <= set(sqlalchemy_public_id.__all__)


def test_front_door() -> None:
    """The package exports 34 names: all declarations, the formats, and the errors that an application handles."""
    names = set(sqlalchemy_public_id.__all__)

    assert len(names) == 34
    assert set(declare.__all__) <= names
    assert {each.__name__ for each in vars(formats).values() if isinstance(each, type)} - {"Budget"} <= names
    assert {name for name in names if isinstance(getattr(errors, name, None), type)} <= set(errors.__all__)


LISTENERS = """
import sqlalchemy.orm, sqlalchemy.ext.asyncio
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.event.registry import _key_to_collection as listeners

before = set(listeners)
import sqlalchemy_public_id
imported = set(listeners)
sqlalchemy_public_id.NanoId().generate()
class CustomerId(sqlalchemy_public_id.TypedId, prefix="cus"): ...
declared = set(listeners)
sqlalchemy_public_id.PublicIdType(CustomerId)
used = set(listeners)
sqlalchemy_public_id.PublicIdType(CustomerId)
print(len(imported - before), len(declared - imported), len(used - declared), len(set(listeners) - used))
"""


def test_importing_listens_to_nothing() -> None:
    """The library adds no listeners until the first column type is created, and then only once."""
    at_import, with_a_format, with_a_column, with_another = map(int, fresh(LISTENERS).split())

    assert (at_import, with_a_format, with_another) == (0, 0, 0)
    assert with_a_column > 0


TWO_THREADS = """
import threading, time
from sqlalchemy import event
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy_public_id import PublicIdMixin

def listen_slowly(*arguments, listen=event.listen, **options):
    time.sleep(0.02)
    listen(*arguments, **options)

event.listen, made, together = listen_slowly, [], threading.Barrier(3)

def declare(name):
    base = type("Base", (DeclarativeBase,), {})
    together.wait()
    model = type(name, (PublicIdMixin, base), {"__tablename__": name})
    made.append(len(model().public_id))

threads = [threading.Thread(target=declare, args=(name,)) for name in ("user", "invoice", "parcel")]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(made)
"""


def test_first_columns_of_several_threads() -> None:
    """If several threads create the first columns at the same time, all have the listeners."""
    assert fresh(TWO_THREADS) == "[12, 12, 12]"


UNPICKLED = """
import pickle, sys
from sqlalchemy.orm import registry
table = pickle.loads(bytes.fromhex(sys.stdin.read()))
class User: ...
registry().map_imperatively(User, table)
print(len(User().public_id))
"""


def test_table_of_another_process() -> None:
    """A model on a table that another process pickled gets ids like any other."""

    class Base(DeclarativeBase): ...

    class User(PublicIdMixin, Base):
        __tablename__ = "user"

    table = pickle.dumps(User.__table__).hex()

    assert fresh(UNPICKLED, table) == "12"


PATCHES = """
import sys, types
import sqlalchemy.orm, sqlalchemy.ext.asyncio
from sqlalchemy.dialects import mysql, postgresql, sqlite

kinds = (types.FunctionType, classmethod, staticmethod, property, type)
modules = [module for name, module in sys.modules.items() if name.startswith("sqlalchemy.")]
classes = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
owners = modules + [owner for owner in classes if owner.__module__.startswith("sqlalchemy.")]

def members():
    return {(owner, name): value for owner in owners for name, value in vars(owner).items() if isinstance(value, kinds)}

before = members()
import sqlalchemy_public_id
after = members()
print(len(before) > 10_000, [name for (_, name), value in before.items() if after.get((_, name)) is not value])
"""


def test_importing_patches_nothing() -> None:
    """Importing replaces no function, method or class of SQLAlchemy."""
    assert fresh(PATCHES) == "True []"


def test_dir() -> None:
    """Completion in a shell offers each name of ``__all__``."""
    assert set(sqlalchemy_public_id.__all__) <= set(dir(sqlalchemy_public_id))


def test_modules_of_keys() -> None:
    """``import sqlalchemy_public_id.keys.NAME as NAME`` binds the module, for each module of ``keys``."""
    modules = [importlib.import_module(f"{keys.__name__}.{name}") for _, name, _ in pkgutil.iter_modules(keys.__path__)]

    assert modules == [getattr(keys, module.__name__.rpartition(".")[2]) for module in modules]


def test_what_is_loaded_later() -> None:
    """Names that are loaded lazily are found in every way to import them, and unknown names are not."""
    program = """
import sqlalchemy_public_id as package
from sqlalchemy_public_id import public_ref, tokens
print(package.references.public_ref is public_ref, package.idempotency.__name__, hasattr(package, "nothing"))
"""

    assert fresh(program) == "True sqlalchemy_public_id.idempotency False"
