"""The endpoints of the shop, with every asynchronous driver of every database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from web_shop import FIRST_KEY, Shop, numbers_in

from examples.fastapi_shop.models import Customer, CustomerId, Line, Order, OrderId, Product

AS_JSON = {"content-type": "application/json"}
Tell = Callable[[Callable[[Shop], Awaitable[None]]], None]


@pytest.mark.backend
def test_a_page_of_orders_in_two_statements(tell: Tell) -> None:
    """A hundred orders with the public ids of their customers are two statements, whatever page it is."""

    async def story(shop: Shop) -> None:
        customers = await shop.ids(Customer)
        for _ in range(2):
            new = [{"customer_public_id": customers[number % 6]} for number in range(100)]
            assert (await shop.client.post("/orders", json=new)).status_code == 201
        cursor: dict[str, str] = {}
        for _ in range(2):
            shop.statements.clear()
            page = (await shop.client.get("/orders", params={"limit": 100, **cursor})).json()
            assert len(page["items"]) == 100
            assert {order["customer_public_id"] for order in page["items"]} == set(customers)
            assert len(shop.statements) <= 2
            cursor = {"after": page["next"]}

    tell(story)


def test_a_hundred_new_orders_and_one_select(tell: Tell) -> None:
    """A hundred orders by the public ids of their customers need one SELECT; the rest are INSERTs."""

    async def story(shop: Shop) -> None:
        customers = await shop.ids(Customer)
        new = [{"customer_public_id": customers[number % 6], "note": f"{number}"} for number in range(100)]
        shop.statements.clear()
        answer = await shop.client.post("/orders", json=new)
        selects = [statement for statement in shop.statements if statement.startswith("SELECT")]
        rest = {statement.split()[0] for statement in shop.statements} - {"SELECT"}

        assert answer.status_code == 201
        assert [
            {"customer_public_id": each["customer_public_id"], "note": each["note"]} for each in answer.json()
        ] == new
        assert len(selects) == 1
        assert rest == {"INSERT"}

    tell(story)


@pytest.mark.backend
def test_all_orders_page_by_page(tell: Tell) -> None:
    """Pages follow one another without a gap, the newest order first, while new ones are made."""

    async def story(shop: Shop) -> None:
        expected = (await shop.ids(Order))[::-1]
        customer = (await shop.ids(Customer))[0]
        seen: list[str] = []
        after = None
        while True:
            page = (await shop.client.get("/orders", params={"limit": 7} | ({"after": after} if after else {}))).json()
            seen += [order["public_id"] for order in page["items"]]
            if (after := page["next"]) is None:
                break
            await shop.client.post("/orders", json=[{"customer_public_id": customer}])

        assert seen == expected

    tell(story)


def test_the_orders_of_one_customer(tell: Tell) -> None:
    """A customer's orders are found by the public id of the customer."""

    async def story(shop: Shop) -> None:
        customer = (await shop.ids(Customer))[2]
        page = (await shop.client.get("/orders", params={"customer_public_id": customer})).json()

        assert len(page["items"]) == 5
        assert {order["customer_public_id"] for order in page["items"]} == {customer}

    tell(story)


def test_products_by_price(tell: Tell) -> None:
    """Products are sorted by what the request names; another name is refused."""

    async def story(shop: Shop) -> None:
        page = (await shop.client.get("/products", params={"sort": "-price", "limit": 2})).json()
        rest = (await shop.client.get("/products", params={"sort": "-price", "after": page["next"]})).json()
        prices = [float(product["price"]) for product in page["items"] + rest["items"]]

        assert prices == sorted(prices, reverse=True)
        assert len(prices) == 4
        assert (await shop.client.get("/products", params={"sort": "id"})).status_code == 422

    tell(story)


def test_a_change_of_an_order(tell: Tell) -> None:
    """PATCH changes what the body names; null and an unknown customer are refused at their field."""

    async def story(shop: Shop) -> None:
        path = f"/orders/{(await shop.ids(Order))[0]}"
        before = (await shop.client.get(path)).json()
        other = (await shop.ids(Customer))[3]
        assert (await shop.client.patch(path, json={"note": "later"})).json() == before | {"note": "later"}
        changed = (await shop.client.patch(path, json={"customer_public_id": other})).json()
        assert changed == before | {"note": "later", "customer_public_id": other}
        for wrong in (None, "customer_000000000000"):
            refused = await shop.client.patch(path, json={"customer_public_id": wrong})
            assert refused.status_code == 422
            assert refused.json()["detail"][0]["loc"] == ["body", "customer_public_id"]

    tell(story)


def test_an_order_sent_twice_is_made_once(tell: Tell) -> None:
    """The first PUT makes the order, a repeat answers the same, and other contents are refused."""

    async def story(shop: Shop) -> None:
        one, other, *_ = await shop.ids(Customer)
        path = f"/orders/{OrderId()}"
        first = await shop.client.put(path, json={"customer_public_id": one, "note": "blue"})
        again = await shop.client.put(path, json={"customer_public_id": one, "note": "blue"})
        note = await shop.client.put(path, json={"customer_public_id": one, "note": "red"})
        customer = await shop.client.put(path, json={"customer_public_id": other, "note": "blue"})

        assert [answer.status_code for answer in (first, again, note, customer)] == [201, 200, 409, 409]
        assert first.json() == again.json() == (await shop.client.get(path)).json()
        assert note.json()["differing"] == ["note"]
        assert len(await shop.ids(Order)) == 31

    tell(story)


@pytest.mark.backend
def test_an_order_sent_ten_times_at_once(tell: Tell) -> None:
    """One of ten clients makes the order; the others find it."""

    async def story(shop: Shop) -> None:
        path, order = f"/orders/{OrderId()}", {"customer_public_id": (await shop.ids(Customer))[0], "note": "hurry"}
        answers = await asyncio.gather(*(shop.client.put(path, json=order) for _ in range(10)))

        assert sorted(answer.status_code for answer in answers) == [200] * 9 + [201]
        assert len({answer.text for answer in answers}) == 1
        assert len(await shop.ids(Order)) == 31

    tell(story)


def test_lines(tell: Tell) -> None:
    """A line names its product by public id, and comes back with the lines of its order."""

    async def story(shop: Shop) -> None:
        order, product = (await shop.ids(Order))[0], (await shop.ids(Product))[3]
        path = f"/orders/{order}/lines"
        added = await shop.client.post(path, json={"product_public_id": product, "quantity": 3})
        lines = (await shop.client.get(path)).json()

        assert added.status_code == 201
        assert added.json() == lines[-1]
        assert {"order_public_id": order, "product_public_id": product, "quantity": 3}.items() <= lines[-1].items()
        assert len(lines) == 2

    tell(story)


def test_what_there_is_not(tell: Tell) -> None:
    """Unknown ids are 404 in a path, and 422 as a cursor and in a body; nothing is written."""

    async def story(shop: Shop) -> None:
        unknown, order = CustomerId(), (await shop.ids(Order))[0]
        answers = [
            await shop.client.get(f"/customers/{unknown}"),
            await shop.client.get("/customers", params={"after": unknown}),
            await shop.client.put(f"/orders/{OrderId()}", json={"customer_public_id": unknown}),
            await shop.client.post("/orders", json=[{"customer_public_id": unknown}]),
            await shop.client.post(
                f"/orders/{order}/lines", json={"product_public_id": "product_unknown0", "quantity": 1}
            ),
        ]

        assert [answer.status_code for answer in answers] == [404, 422, 422, 422, 422]
        assert [answer.json()["detail"][0]["loc"] for answer in answers[1:]] == [
            ["query", "after"],
            ["body", "customer_public_id"],
            ["body", "customer_public_id"],
            ["body", "product_public_id"],
        ]
        assert len(await shop.ids(Order)) == len(await shop.ids(Line)) == 30

    tell(story)


@pytest.mark.backend
def test_any_text(tell: Tell) -> None:
    """A text that every database can store comes back as it was; another one is refused, and is no error of theirs."""

    async def story(shop: Shop) -> None:
        for name in ("坂本 龍一", "🦆", "' OR 1=1 --", "<script>", "x" * 100):
            answer = await shop.client.post("/customers", json={"name": name})
            assert (answer.status_code, answer.json()["name"]) == (201, name)
        for refused in ("", "x" * 101, "a\0b", "\ud800", None, 1, float("nan")):
            body = json.dumps({"name": refused})  # httpx would not send all of them
            assert (await shop.client.post("/customers", content=body, headers=AS_JSON)).status_code == 422

    tell(story)


def test_keys_are_not_taken(tell: Tell) -> None:
    """An integer key leads nowhere, be it in a path, as a cursor or in a body."""

    async def story(shop: Shop) -> None:
        key = FIRST_KEY
        answers = [
            await shop.client.get(f"/orders/{key}"),
            await shop.client.get("/orders", params={"after": key}),
            await shop.client.post("/orders", json=[{"customer_public_id": key}]),
            await shop.client.post("/orders", json=[{"customer_public_id": str(key)}]),
        ]

        assert key in await shop.keys()
        assert [answer.status_code for answer in answers] == [404, 422, 422, 422]

    tell(story)


def test_no_key_in_the_document(tell: Tell) -> None:
    """The OpenAPI document and the page hold no key."""

    async def story(shop: Shop) -> None:
        for path in ("/openapi.json", "/", "/docs"):
            assert not numbers_in((await shop.client.get(path)).text) & await shop.keys()

    tell(story)
