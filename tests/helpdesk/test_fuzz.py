"""Thousands of requests that Schemathesis generates from the OpenAPI document of the helpdesk."""

from __future__ import annotations

import asyncio
import copy
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from sqlalchemy.ext.asyncio import AsyncEngine
from support.web_helpdesk import FIRST_KEY, Desk, numbers_in, opened

from examples.helpdesk.models import Tag, Ticket, User

schemathesis = pytest.importorskip("schemathesis")
from schemathesis import Case, GenerationMode  # noqa: E402
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi.checks import (  # noqa: E402
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

pytestmark = pytest.mark.slow

CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


ENGINES = [("sqlite", "aiosqlite"), ("postgresql", "asyncpg"), ("mysql", "asyncmy"), ("mariadb", "aiomysql")]
MOST = {"sqlite": (75, 2000)}
"""How many requests of one kind each operation gets, and the minimum in total; other databases get about a tenth."""


@pytest.mark.timeout(900)  # the number of requests is fixed: on a busy machine, two thousand took five minutes
@pytest.mark.parametrize("async_engine", ENGINES, indirect=True, ids=next(zip(*ENGINES, strict=True)))
def test_no_answer_is_an_error_of_the_server_or_has_a_key(async_engine: AsyncEngine) -> None:
    """No response is a 500 or contains a key, each conforms to the document, and each operation succeeds."""
    count, in_all = MOST.get(async_engine.dialect.name, (9, 200))
    answers: Counter[tuple[str, int]] = Counter()
    texts: list[str] = []

    async def story() -> tuple[dict[str, Any], set[int]]:
        async with opened(async_engine) as desk:
            document = desk.app.openapi()
            known = [each for model in (User, Tag, Ticket) for each in await desk.ids(model)]
            await asyncio.to_thread(send, desk, count, known, answers, texts)
            return document, await desk.keys()

    document, keys = asyncio.run(story())
    operations = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}

    assert sum(answers.values()) >= in_all
    assert sum(count for (_, status), count in answers.items() if status < 300) >= in_all / 4
    assert {operation for operation, status in answers if status < 300} == operations
    assert min(keys) == FIRST_KEY
    assert not numbers_in("\n".join(texts)) & keys


def send(desk: Desk, count: int, known: list[str], answers: Counter[tuple[str, int]], texts: list[str]) -> None:
    """Send requests, and collect the responses.

    Send up to *count* requests to each operation with ids in the database only, ten times *count* with any ids, and as
    many that the document does not allow.
    """
    document = desk.app.openapi()
    anything, existing = (schemathesis.openapi.from_dict(each) for each in (document, with_ids(document, known)))
    anything.app = existing.app = desk.app

    def request(case: Case) -> None:
        response = case.call(headers={"Authorization": desk.ada.headers["Authorization"]})
        answers[case.operation.label, response.status_code] += 1
        texts.append(f"{response.headers} {response.text}")
        case.validate_response(response, checks=CHECKS)

    positive, negative = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
    kinds = [
        (operation.ok().as_strategy(generation_mode=positive), count) for operation in existing.get_all_operations()
    ]
    kinds += [(anything.as_strategy(mode), 10 * count) for mode in (positive, negative)]
    for cases, most in kinds:
        rules = settings(
            max_examples=most,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        rules(seed(20_240_229)(given(case=cases)(request)))()


def with_ids(document: dict[str, Any], known: list[str]) -> dict[str, Any]:
    """Return *document* so that it allows only ids in the database, except for the id of a new ticket."""
    found = copy.deepcopy(document)
    for operations in found["paths"].values():
        for method, operation in operations.items():
            if method != "put":
                replace_ids(operation.get("parameters", []), known)
    replace_ids(
        [schema for name, schema in found["components"]["schemas"].items() if name.endswith(("In", "Change"))], known
    )
    return found


def replace_ids(schema: Any, known: list[str]) -> None:
    """Restrict each id in *schema* to the known ids of its type."""
    if isinstance(schema, dict) and schema.get("format") == "public-id":
        found = [each for each in known if re.search(schema["pattern"], each)]
        schema.clear()
        schema["enum"] = found
    elif isinstance(schema, (dict, list)):
        for each in schema.values() if isinstance(schema, dict) else schema:
            replace_ids(each, known)
