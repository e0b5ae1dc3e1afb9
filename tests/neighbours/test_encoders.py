"""msgspec, orjson, msgpack and PyYAML: what they write for a typed id, and what they need for it."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import msgspec
import orjson
import pytest
import yaml
from neighbours.models import ADA, FIRST, CustomerId

from sqlalchemy_public_id import TypedId


class Wanted(msgspec.Struct):
    customer: CustomerId


def decode(target: type[Any], value: Any) -> Any:
    """Decode a typed id, as the ``dec_hook`` of the documentation."""
    return target(value)


@pytest.mark.parametrize(
    ("encode", "decode"),
    [
        (json.dumps, json.loads),
        (orjson.dumps, orjson.loads),
        (lambda value: msgspec.json.encode(value, enc_hook=str), msgspec.json.decode),
        (lambda value: msgspec.msgpack.encode(value, enc_hook=str), msgspec.msgpack.decode),
        (msgpack.packb, msgpack.unpackb),
        (lambda value: msgpack.packb(value, strict_types=True, default=str), msgpack.unpackb),
    ],
)
def test_values(encode: Any, decode: Any) -> None:
    """A typed id is written as its text, by default or with ``str`` as the hook."""
    assert decode(encode({"id": ADA})) == {"id": str(ADA)}


def test_keys() -> None:
    """orjson needs its option for keys to write typed ids as keys; json and msgspec do not."""
    assert orjson.dumps({ADA: 1}, option=orjson.OPT_NON_STR_KEYS) == msgspec.json.encode({ADA: 1})
    assert json.loads(json.dumps({ADA: 1})) == {str(ADA): 1}
    with pytest.raises(TypeError):
        orjson.dumps({ADA: 1})


def test_msgspec_needs_hooks() -> None:
    """msgspec refuses subclasses of str without hooks, and validates the id with a ``dec_hook``."""
    with pytest.raises(TypeError, match="CustomerId is unsupported"):
        msgspec.json.encode(ADA)
    wanted = msgspec.json.decode(f'{{"customer": "{ADA}"}}', type=Wanted, dec_hook=decode)
    assert type(wanted.customer) is CustomerId
    for wrong in (f'"{FIRST}"', '"nonsense"', "1", "null"):
        with pytest.raises(msgspec.ValidationError, match="is not a public id"):
            msgspec.json.decode(f'{{"customer": {wrong}}}', type=Wanted, dec_hook=decode)


def test_yaml_needs_a_representer() -> None:
    """PyYAML's safe dumper writes typed ids once one representer is registered for all of them."""

    class Dumper(yaml.SafeDumper): ...

    with pytest.raises(yaml.representer.RepresenterError):
        yaml.dump({"id": ADA}, Dumper=Dumper)
    Dumper.add_multi_representer(TypedId, lambda dumper, value: dumper.represent_str(str(value)))
    assert yaml.safe_load(yaml.dump({"id": ADA}, Dumper=Dumper)) == {"id": str(ADA)}
