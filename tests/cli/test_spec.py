"""``public-id spec`` and ``Format.spec()``: formats as data for other programs."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from support.command import run
from support.every_format import one_of_each

from sqlalchemy_public_id import Format, NanoId, Uuid7
from sqlalchemy_public_id.formats import Ulid
from sqlalchemy_public_id.formats._bits import BitsFormat

MODELS = """
from sqlalchemy import ForeignKey
from sqlalchemy.orm import DeclarativeBase, mapped_column
from sqlalchemy_public_id import NanoId, PublicIdMixin, Uuid7, public_id_column

class Base(DeclarativeBase): ...

class Crate(PublicIdMixin, Base):
    __tablename__ = "crate"
    __public_id__ = NanoId(prefix="speccrate")
    label = public_id_column(Uuid7(prefix="speclabel"), name="label_id")

class Fässer(PublicIdMixin, Base):
    __tablename__ = "fass"
    __table_args__ = {"schema": "depot"}
    __public_id__ = NanoId(prefix="specfass")
    zweite = public_id_column(NanoId(prefix="speczwei"), name="second_id")

class LargeCrate(Crate):
    __tablename__ = "large_crate"
    id = mapped_column(ForeignKey("crate.id"), primary_key=True)
"""


MAPPED = """
from sqlalchemy.orm import registry
from sqlalchemy_public_id import NanoId, PublicIdMixin

mapper_registry = registry()

@mapper_registry.mapped
class Jar(PublicIdMixin):
    __tablename__ = "jar"
    __public_id__ = NanoId(prefix="specjar")

mapper = Jar.__mapper__
"""


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a module, whose classes are in the working directory."""
    (tmp_path / "spec_models.py").write_text(MODELS)
    (tmp_path / "spec_empty.py").write_text(
        "from sqlalchemy import Table\nfrom sqlalchemy.orm import declarative_base\n"
        "Base = declarative_base()\nTable('crate', Base.metadata)"
    )
    monkeypatch.chdir(tmp_path)
    for name in ("spec_models", "spec_empty"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "spec_models:Base"


def test_models(models: str) -> None:
    """Each public id of each model is described once, by the class that declares it."""
    result = run("spec", models)
    printed = json.loads(result.stdout)

    assert (result.exit_code, printed["spec"]) == (0, 1)
    assert [(each["model"], each["attribute"], each["table"], each["column"]) for each in printed["public_ids"]] == [
        ("Crate", "label", "crate", "label_id"),
        ("Crate", "public_id", "crate", "public_id"),
        ("Fässer", "public_id", "depot.fass", "public_id"),
        ("Fässer", "zweite", "depot.fass", "second_id"),
    ]
    assert '"model": "Fässer"' in result.stdout
    assert [each["ids"] for each in printed["public_ids"]] == [
        Uuid7(prefix="speclabel").spec(),
        NanoId(prefix="speccrate").spec(),
        NanoId(prefix="specfass").spec(),
        NanoId(prefix="speczwei").spec(),
    ]


def test_model_without_a_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that a registry has mapped shows no metadata; the registry has it."""
    (tmp_path / "spec_mapped.py").write_text(MAPPED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "spec_mapped", raising=False)

    for name in ("Jar", "mapper_registry"):
        described = json.loads(run("spec", f"spec_mapped:{name}").stdout)["public_ids"]
        assert [each["model"] for each in described] == ["Jar"]
    assert "expected a declarative base, a registry or a model" in run("spec", "spec_mapped:mapper").stderr


@pytest.mark.parametrize("name", ["Base.registry", "Crate"])
def test_registry(models: str, name: str) -> None:
    """A registry, and each of its models, stand for all models that it has."""
    assert run("spec", f"spec_models:{name}").stdout == run("spec", models).stdout


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("spec_models", "is not module:Base"),
        ("spec_empty:Base", "no model of Base has a public id"),
        ("spec_empty:Base.registry", "no model of the registry has a public id"),
        ("there.is.none:Base", "there is no module 'there'"),
    ],
)
def test_models_that_are_none(models: str, argument: str, message: str) -> None:
    """A mistake ends with status 2, and prints no JSON."""
    result = run("spec", argument)

    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


@pytest.mark.parametrize("format", [*one_of_each(), *one_of_each(prefix="spec")], ids=repr)
def test_every_format(format: Format) -> None:
    """The description of a format is JSON, fits its ids, and says how a body of numbers is written."""
    spec: Any = json.loads(json.dumps(format.spec()))
    ids = [format.example() for _ in range(20)]
    lead = f"{spec['prefix'] or ''}{spec['separator']}"

    assert {len(id) for id in ids} == {spec["length"]}
    assert all(re.fullmatch(spec["pattern"], id) and id.startswith(lead) for id in ids)
    assert (spec["order"] == "time", spec["is_counted"]) == (format.ordered, format.counted)
    body = spec["body"]
    assert body is not None
    if body["kind"] == "text":
        assert {*"".join(id[len(lead) :] for id in ids)} <= {*body["alphabet"]}
        assert len(ids[0]) - len(lead) == body["length"] + (body["check_digit"] is not None)
    else:
        assert isinstance(format, BitsFormat)
        mask, value = (int(each, 16) for each in body["fixed_bits"].values())
        for id in ids:
            number = 0
            for digit in id[len(lead) :].replace("-", ""):
                number = number * len(body["digits"]) + body["digits"].index(digit)
            assert (number == format.to_int(id), number >> body["bits"], number & mask) == (True, 0, value)


def test_older_formats_and_cases() -> None:
    """Older formats follow the newest one, each by itself; formats that ignore case name the case of stored ids."""
    format = NanoId(prefix="cus").accepting(NanoId(length=8), Ulid())
    spec = format.spec()

    assert [each["pattern"] for each in (spec, *spec["accepts"])] == [each.pattern for each in format.forms]
    assert [each["written_in"] for each in (spec, *spec["accepts"])] == [None, None, "upper"]
    assert NanoId(ignore_case=True).spec()["written_in"] == "lower"
    assert [NanoId(check_digit=digit).spec()["pattern_is_exact"] for digit in (False, True)] == [True, False]
