"""FastAPI, Flask, Starlette, Litestar and SQLModel with FastAPI answer the same requests in the same way.

What differs stands in ``DIFFERENCES``, with its reason, and in the table of ``docs/guides/integrations.md``.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import pytest
from support.shop_services import SERVICES, Answer, Service

ADA, NOBODY = "{al}cus_000000000ada", "{al}cus_000000nobody"
FIRST, SECOND, THIRD = (f"{{al}}ord_00000000000{number}" for number in (1, 2, 3))
UNKNOWN, NEW, OTHER = "{al}ord_000000000000", "{al}ord_000000000new", "{al}ord_000000000oth"


class Case(NamedTuple):
    method: str
    path: str
    json: Any
    status: int
    place: str | None = None
    """Where the answer says that the mistake is: ``body: gifts[0].receivers[0]``."""
    headers: dict[str, str] | None = None


def to_customer(value: Any, **more: Any) -> dict[str, Any]:
    return {"customer_public_id": value, **more}


def gift(value: Any) -> dict[str, Any]:
    return {"gifts": [{"receivers": [ADA, value]}]}


REFERENCE = "body: customer_public_id"
CASES: dict[str, Case] = {
    "list": Case("GET", "/orders", None, 200),
    "page": Case("GET", "/orders?limit=1", None, 200),
    "next page": Case("GET", f"/orders?limit=1&after={FIRST}", None, 200),
    "previous page": Case("GET", f"/orders?before={SECOND}", None, 200),
    "unknown cursor": Case("GET", f"/orders?after={UNKNOWN}", None, 422, "query: after"),
    "malformed cursor": Case("GET", "/orders?before=nonsense", None, 422, "query: before"),
    "cursor of another order": Case("GET", f"/orders?after={FIRST}~abcd", None, 422, "query: after"),
    "two cursors": Case("GET", f"/orders?after={FIRST}&before={THIRD}", None, 422, "query: before"),
    "limit 0": Case("GET", "/orders?limit=0", None, 422, "query: limit"),
    "limit -1": Case("GET", "/orders?limit=-1", None, 422, "query: limit"),
    "huge limit": Case("GET", "/orders?limit=1000000000", None, 422, "query: limit"),
    "limit of text": Case("GET", "/orders?limit=many", None, 422, "query: limit"),
    "filter": Case("GET", f"/orders?customer_public_id={ADA}", None, 200),
    "filter, unknown": Case("GET", f"/orders?customer_public_id={NOBODY}", None, 200),
    "filter, malformed": Case("GET", "/orders?customer_public_id=nonsense", None, 422, "query: customer_public_id"),
    "row": Case("GET", f"/orders/{FIRST}", None, 200),
    "row, unknown": Case("GET", f"/orders/{UNKNOWN}", None, 404),
    "row, malformed": Case("GET", "/orders/nonsense", None, 404),
    "row, key": Case("GET", "/orders/1", None, 404),
    "row, other model": Case("GET", f"/orders/{ADA}", None, 404),
    "get_one": Case("GET", f"/found/{FIRST}", None, 200),
    "get_one, unknown": Case("GET", f"/found/{UNKNOWN}", None, 404),
    "get_one, malformed": Case("GET", "/found/nonsense", None, 404),
    "get_one, key": Case("GET", "/found/1", None, 404),
    "add": Case("POST", "/orders", to_customer(ADA), 201),
    "add, unknown": Case("POST", "/orders", to_customer(NOBODY), 422, REFERENCE),
    "add, malformed": Case("POST", "/orders", to_customer("nonsense"), 422, REFERENCE),
    "add, other model": Case("POST", "/orders", to_customer(FIRST), 422, REFERENCE),
    "add, null": Case("POST", "/orders", to_customer(None), 422, REFERENCE),
    "add, key": Case("POST", "/orders", to_customer(1), 422, REFERENCE),
    "add, object": Case("POST", "/orders", to_customer({"id": ADA}), 422, REFERENCE),
    "put": Case("PUT", f"/orders/{NEW}", to_customer(ADA), 200),
    "put again": Case("PUT", f"/orders/{FIRST}", to_customer(ADA, total=1), 200),
    "put, other contents": Case("PUT", f"/orders/{FIRST}", to_customer(ADA, total=7), 409),
    "put, unknown": Case("PUT", f"/orders/{OTHER}", to_customer(NOBODY), 422, REFERENCE),
    "put, malformed": Case("PUT", "/orders/nonsense", to_customer(ADA), 422, "path: order_id"),
    "patch": Case("PATCH", f"/orders/{SECOND}", to_customer(ADA), 200),
    "patch, unknown": Case("PATCH", f"/orders/{SECOND}", to_customer(NOBODY), 422, REFERENCE),
    "patch, no row": Case("PATCH", f"/orders/{UNKNOWN}", to_customer(ADA), 404),
    "delete, no row": Case("DELETE", f"/orders/{UNKNOWN}", None, 404),
    "delete": Case("DELETE", f"/orders/{THIRD}", None, 204),
    "list in a body": Case("POST", "/gifts", gift(ADA), 201),
    "list in a body, unknown": Case("POST", "/gifts", gift(NOBODY), 422, "body: receivers"),
    "list in a body, malformed": Case("POST", "/gifts", gift("nonsense"), 422, "body: gifts[0].receivers[1]"),
    "keys of an object": Case("POST", "/quantities", {"quantities": {ADA: 1}}, 201),
    "keys of an object, malformed": Case(
        "POST", "/quantities", {"quantities": {"nonsense": 1}}, 422, "body: quantities.nonsense.[key]"
    ),
    "path": Case("GET", f"/path/{ADA}", None, 200),
    "path, malformed": Case("GET", "/path/nonsense", None, 422, "path: customer"),
    "query": Case("GET", f"/query?customer={ADA}", None, 200),
    "query, malformed": Case("GET", "/query?customer=nonsense", None, 422, "query: customer"),
    "header": Case("GET", "/header", None, 200, None, {"X-Customer": ADA}),
    "header, malformed": Case("GET", "/header", None, 422, "header: x-customer", {"X-Customer": "nonsense"}),
    "id of the settings": Case("GET", "/settings", None, 404),
}
"""Name of a request → request, and the answer of FastAPI. The last three orders are changed by other requests."""

BY_HAND = (
    "Flask and Starlette validate neither the query nor the body: the error names the attribute, or the type of the id"
)
CLAMPED = "request.args.get(type=int) takes the default for a text, and min() lowers a large limit"
NO_RULE = "no rule matches a malformed id, so it is Flask's own 404"
CONVERTED = "the handler makes a typed id of the text in the path; with by_public_id(), it would be a 404"
AS_TEXT = "the text of the query is compared with the reference, and no row has it"
DIFFERENCES: dict[tuple[str, str], tuple[int, str | None, str]] = {
    ("flask", "huge limit"): (200, None, CLAMPED),
    ("flask", "limit of text"): (200, None, CLAMPED),
    ("flask", "filter, malformed"): (200, None, AS_TEXT),
    ("flask", "put, malformed"): (404, None, NO_RULE),
    ("flask", "path, malformed"): (404, None, NO_RULE),
    ("flask", "list in a body, unknown"): (422, REFERENCE, BY_HAND),
    ("flask", "list in a body, malformed"): (422, REFERENCE, BY_HAND),
    ("flask", "keys of an object, malformed"): (422, "body: CustomerId", BY_HAND),
    ("flask", "query, malformed"): (422, "query: CustomerId", BY_HAND),
    ("flask", "header, malformed"): (422, "query: CustomerId", BY_HAND),
    ("starlette", "huge limit"): (200, None, "min() lowers a large limit"),
    ("starlette", "limit of text"): (422, None, "the handler converts the text, and answers itself"),
    ("starlette", "filter, malformed"): (200, None, AS_TEXT),
    ("starlette", "put, malformed"): (422, "body: OrderId", CONVERTED),
    ("starlette", "path, malformed"): (422, "query: CustomerId", CONVERTED),
    ("starlette", "list in a body, unknown"): (422, REFERENCE, BY_HAND),
    ("starlette", "list in a body, malformed"): (422, REFERENCE, BY_HAND),
    ("starlette", "keys of an object, malformed"): (422, "body: CustomerId", BY_HAND),
    ("starlette", "query, malformed"): (422, "query: CustomerId", BY_HAND),
    ("starlette", "header, malformed"): (422, "query: CustomerId", BY_HAND),
    ("litestar", "keys of an object, malformed"): (
        400,
        "None: quantities.nonsense.[key]",
        "Litestar names no source for the errors of a Pydantic model, which this body has to be",
    ),
    ("litestar", "header, malformed"): (400, "header: x_customer", "Litestar names the parameter, not the header"),
}
"""Framework and request → status, place, and the reason why they differ from those of FastAPI.

Besides, Litestar answers invalid input with 400, where FastAPI does with 422.
"""


@cache
def service_of(framework: str) -> Service:
    return SERVICES[framework]()


def with_prefix(value: Any, prefix: str) -> Any:
    if isinstance(value, dict):
        return {with_prefix(name, prefix): with_prefix(inner, prefix) for name, inner in value.items()}
    if isinstance(value, list):
        return [with_prefix(inner, prefix) for inner in value]
    return value.replace("{al}", prefix) if isinstance(value, str) else value


def place_in(answer: Answer) -> str | None:
    """Return the place that an answer names, in one spelling for all frameworks."""
    content = answer.content if isinstance(answer.content, dict) else {}
    details = content.get("detail")
    if isinstance(details, list):
        source, *names = details[0]["loc"]
        text = "".join(f"[{name}]" if isinstance(name, int) else f".{name}" for name in names)
        return f"{source}: {text.lstrip('.')}"
    extra = content.get("extra")
    if isinstance(extra, list) and extra:
        return f"{extra[0].get('source')}: {extra[0].get('key')}"
    return None


def answer(framework: str, case: Case) -> Answer:
    service = service_of(framework)
    method, path, json, headers = (
        with_prefix(each, service.prefix) for each in (case.method, case.path, case.json, case.headers)
    )
    return service.ask(method, path, json, headers)


@pytest.mark.parametrize("request_", CASES)
@pytest.mark.parametrize("framework", SERVICES)
def test_answer(framework: str, request_: str) -> None:
    """A request has the same status, and names the same place, in each framework; else, the difference is known."""
    case = CASES[request_]
    got = answer(framework, case)
    status = 400 if framework == "litestar" and case.status == 422 else case.status
    expected = DIFFERENCES.get((framework, request_), (status, case.place, ""))[:2]

    assert (got.status, place_in(got)) == expected, got.text


@pytest.mark.parametrize("framework", SERVICES)
def test_content_of_answers(framework: str) -> None:
    """A 404 says which model has no such row, and a 409 which attributes differ; neither has the id, or a key."""
    missing, conflict = (answer(framework, CASES[name]) for name in ("row, unknown", "put, other contents"))
    model = "Sale" if framework == "sqlmodel" else "Order"

    assert missing.content["detail"] == f"no such {model}"
    assert conflict.content["detail"] == f"the {model} with this public id exists, with other contents"
    assert conflict.content.get("extra", conflict.content)["differing"] == ["total"]
    assert "ord_" not in missing.text + conflict.text


@pytest.mark.parametrize("framework", ["fastapi", "litestar", "sqlmodel"])
def test_described_answers(framework: str) -> None:
    """OpenAPI has a 404 for each id in a path, and a 409 for an insert whose id a client may send."""
    paths = service_of(framework).document()["paths"]
    described = {
        f"{method} {path}": {status for status in operation["responses"] if status in ("404", "409")}
        for path, operations in paths.items()
        for method, operation in operations.items()
        if path.startswith(("/orders", "/path", "/gifts", "/header"))
    }

    assert described == {
        "get /orders": set(),
        "post /orders": {"409"},
        "get /orders/{order_id}": {"404"},
        "put /orders/{order_id}": {"404", "409"},
        "patch /orders/{order_id}": {"404"},
        "delete /orders/{order_id}": {"404"},
        "post /gifts": {"409"},
        "get /path/{customer}": {"404"},
        "get /header": set(),
    }


def test_response_models_with_an_async_session() -> None:
    """A model of SQLModel shows a reference loaded with the row; a table hides its key and excluded foreign keys."""
    shown = answer("sqlmodel", Case("GET", f"/shown/{FIRST}", None, 200))
    table = answer("sqlmodel", Case("GET", f"/table/{FIRST}", None, 200))

    assert shown.content == {"public_id": "smord_000000000001", "customer_public_id": "smcus_000000000ada"}
    assert table.content == {"public_id": "smord_000000000001", "total": 1}
