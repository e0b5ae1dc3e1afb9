"""A feature that a program first uses in one thread, while another one configures its models."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import threading
from sqlalchemy import create_engine, event
from sqlalchemy.orm import DeclarativeBase, Mapper, configure_mappers
from sqlalchemy_public_id import InvalidPublicId, PublicIdMixin, public_ref
from sqlalchemy_public_id.keys import BlockAllocator, block_key

def import_models(mapper, model):
    other = threading.Thread(target=lambda: {first_use})
    other.start()
    other.join()

event.listen(Mapper, "mapper_configured", import_models)

class Base(DeclarativeBase): ...

class Customer(PublicIdMixin, Base):
    __tablename__ = "customer"

configure_mappers()
assert Customer().public_id is not None
try:
    Customer(public_id="malformed!")
except InvalidPublicId:
    print("validated")
"""
"""A program whose listener takes a while. Other tests of this process have used each feature before."""


FIRST_USES = {
    "reference": "public_ref('customer')",
    "key": "block_key(BlockAllocator(create_engine('sqlite:///keys.db'), 'key'))",
}


@pytest.mark.parametrize("first_use", FIRST_USES)
def test_models_are_configured_meanwhile(first_use: str) -> None:
    """The models of the other thread are configured completely: their ids are generated and validated."""
    program = PROGRAM.replace("{first_use}", FIRST_USES[first_use])

    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert (ran.stdout, ran.stderr) == ("validated\n", "")


INTERRUPTED = """
import sys
from sqlalchemy import event
from sqlalchemy.orm import DeclarativeBase, configure_mappers
from sqlalchemy_public_id import InvalidPublicId, NanoId, PublicIdMixin, PublicIdType

def interrupt(frame, what, argument):
    if frame.f_code is event.listen.__code__ and frame.f_locals["identifier"] == "mapper_configured":
        sys.setprofile(None)
        raise TimeoutError

sys.setprofile(interrupt)
try:
    PublicIdType(NanoId())
except TimeoutError:
    print("interrupted")

class Base(DeclarativeBase): ...

class Customer(PublicIdMixin, Base):
    __tablename__ = "customer"

configure_mappers()
try:
    Customer(public_id="malformed!")
except InvalidPublicId:
    print("validated")
"""
"""A program with a time limit, which ends its first use of the library."""


def test_models_are_declared_after_an_interruption() -> None:
    """If a signal interrupts the first use, the next one is complete."""
    ran = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)

    assert (ran.stdout, ran.stderr) == ("interrupted\nvalidated\n", "")
