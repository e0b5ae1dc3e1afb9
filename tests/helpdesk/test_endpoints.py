"""The endpoints of the helpdesk, with every asynchronous driver of every database."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from datetime import timedelta

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session
from support.web_helpdesk import FIRST_KEY, Desk, numbers_in, story

from examples.helpdesk.models import Base, Comment, Login, Organization, Tag, Ticket, TicketId, User, UserId, now
from examples.helpdesk.tenants import ALL_ORGANIZATIONS
from sqlalchemy_public_id.testing import assert_no_keys_in, assert_tenants_are_apart

AS_JSON = {"content-type": "application/json"}
UNKNOWN_TICKET, UNKNOWN_USER = "ticket_000000000000", "user_000000000000"


# --- statements


@pytest.mark.backend
@story
async def test_a_page_of_tickets_in_four_statements(desk: Desk) -> None:
    """A page of a hundred tickets takes four statements: login, tickets, tags and count, with or without a cursor."""
    users, tags = await desk.ids(User), await desk.ids(Tag)
    for _ in range(2):
        new = [
            {"subject": "new", "assignee_public_id": users[number % 3], "tags": tags[: number % 3]}
            for number in range(100)
        ]
        assert (await desk.ada.post("/tickets", json=new)).status_code == 201
    cursor: dict[str, str] = {}
    for _ in range(2):
        desk.statements.clear()
        page = (await desk.ada.get("/tickets", params={"limit": 100, **cursor})).json()
        assert len(page["items"]) == 100
        assert {ticket["assignee_public_id"] for ticket in page["items"]} == set(users)
        assert page["total"] == 230
        assert len(desk.statements) == 4
        cursor = {"after": page["next"]}


@story
async def test_a_hundred_new_tickets_and_one_select_of_their_users(desk: Desk) -> None:
    """The number of SELECTs does not depend on the number of new tickets, if INSERTs return keys."""
    users, tags = await desk.ids(User), await desk.ids(Tag)
    counts, made, wanted = [], [], []
    for count in (2, 100):
        new = [
            {"subject": f"{number}", "assignee_public_id": users[number % 3], "tags": [tags[number % 3]]}
            for number in range(count)
        ]
        desk.statements.clear()
        answer = await desk.ada.post("/tickets", json=new)
        counts.append(sum(statement.startswith("SELECT") for statement in desk.statements))
        made += [each | {"tags": [tag["public_id"] for tag in each["tags"]]} for each in answer.json()]
        wanted += new
    assert [{name: each[name] for name in wanted[0]} for each in made] == wanted
    assert counts[0] == counts[1]


# --- errors of the database


@pytest.mark.backend
@story
async def test_no_key_in_an_error_of_the_database(desk: Desk) -> None:
    """An unexpected error of the database is a 500, and neither the answer nor the log has a key of any row."""
    async with desk.engine.begin() as connection:
        await connection.execute(text("CREATE UNIQUE INDEX one_comment ON desk_comment (ticket_id)"))
    async with AsyncSession(desk.engine) as session:
        comments = list(await session.scalars(select(Comment)))
        tickets = list(await session.scalars(select(Ticket)))
    ticket = (await desk.ids(Ticket))[0]
    logged = io.StringIO()
    handler = logging.StreamHandler(logged)
    logging.getLogger().addHandler(handler)
    try:
        answer = await desk.ada.post(f"/tickets/{ticket}/comments", json={"text": "a second one"})
    finally:
        logging.getLogger().removeHandler(handler)

    assert (answer.status_code, answer.json()) == (500, {"detail": "internal server error"})
    assert f"in POST /tickets/{ticket}/comments" in logged.getvalue()
    assert "in add_comment" in logged.getvalue()
    assert_no_keys_in(answer.text + logged.getvalue(), [*comments, *tickets])


# --- organizations


@pytest.mark.backend
@story
async def test_organizations_are_apart(desk: Desk) -> None:
    """No function of the library reaches a row of another organization in the session of a request."""
    async with desk.app.state.sessions() as ours, desk.app.state.sessions() as theirs:
        keys = await ours.scalars(
            select(Organization.id).order_by(Organization.id), execution_options=ALL_ORGANIZATIONS
        )
        for session, key in zip((ours, theirs), keys, strict=True):
            session.info["organization_id"] = key

        def compare(session: Session) -> None:
            assert_tenants_are_apart(Base, session, theirs.sync_session)

        await ours.run_sync(compare)


@story
async def test_session_without_an_organization(desk: Desk) -> None:
    """Before somebody has signed in, a session finds no row of any model."""
    async with desk.app.state.sessions() as session:
        for model in (Comment, Login, Organization, Tag, Ticket, User):
            with pytest.raises(KeyError, match="organization_id"):
                await session.scalars(select(model))


# --- pages


@pytest.mark.backend
@story
async def test_all_tickets_page_by_page(desk: Desk) -> None:
    """Pages follow one another without a gap, the newest ticket first, while new tickets are created."""
    expected = (await desk.ids(Ticket))[::-1]
    seen: list[str] = []
    after = None
    while True:
        page = (await desk.ada.get("/tickets", params={"limit": 7} | ({"after": after} if after else {}))).json()
        seen += [ticket["public_id"] for ticket in page["items"]]
        if (after := page["next"]) is None:
            break
        await desk.ada.post("/tickets", json=[{"subject": "one more"}])

    assert seen == expected


@story
async def test_filters(desk: Desk) -> None:
    """Tickets can be filtered by status, assignee and tag, alone or combined, and are counted."""
    ada, *_ = await desk.ids(User)
    billing, *_ = await desk.ids(Tag)
    every = (await desk.ada.get("/tickets", params={"limit": 100})).json()["items"]
    found, expected = [], []
    for status, assignee, tag in (
        (["open"], None, None),
        (["open", "waiting"], ada, None),
        ([], None, billing),
        (["closed"], ada, billing),
    ):
        given = {"status": status, "assignee_public_id": assignee, "tag": tag, "limit": "100"}
        page = (await desk.ada.get("/tickets", params={name: value for name, value in given.items() if value})).json()
        found.append((page["items"], page["total"]))
        chosen = [
            ticket
            for ticket in every
            if (not status or ticket["status"] in status)
            and assignee in (None, ticket["assignee_public_id"])
            and tag in (None, *(one["public_id"] for one in ticket["tags"]))
        ]
        expected.append((chosen, len(chosen)))
    assert found == expected
    assert [0 < total < 30 for _, total in expected] == [True] * 4


@story
async def test_the_most_urgent_first(desk: Desk) -> None:
    """Tickets are sorted, across pages, by the field that the request names; an unknown field is rejected."""
    page = (await desk.ada.get("/tickets", params={"sort": "-priority", "limit": 20})).json()
    rest = (await desk.ada.get("/tickets", params={"sort": "-priority", "after": page["next"]})).json()
    priorities = [ticket["priority"] for ticket in page["items"] + rest["items"]]

    assert priorities == sorted(priorities, reverse=True)
    assert len(priorities) == 30
    assert (await desk.ada.get("/tickets", params={"sort": "id"})).status_code == 422


# --- writing


@story
async def test_a_change_of_a_ticket(desk: Desk) -> None:
    """PATCH changes the fields in the body; null, invalid and unknown values are a 422 that names the field."""
    path = f"/tickets/{(await desk.ids(Ticket))[0]}"
    before = (await desk.ada.get(path)).json()
    other, tags = (await desk.ids(User))[2], await desk.ids(Tag)
    assert (await desk.ada.patch(path, json={"subject": "later"})).json() == before | {"subject": "later"}
    changed = (await desk.ada.patch(path, json={"assignee_public_id": other, "tags": [tags[2], tags[0]]})).json()
    assert changed["assignee_public_id"] == other
    assert [tag["public_id"] for tag in changed["tags"]] == [tags[2], tags[0]]
    read = (await desk.ada.get(path)).json()
    assert [tag["name"] for tag in read["tags"]] == ["billing", "question"]
    assert (await desk.ada.patch(path, json={"assignee_public_id": None})).json()["assignee_public_id"] is None
    wrong = {"subject": None, "status": "lost", "assignee_public_id": UNKNOWN_USER, "tags": [tags[0], "tag_00000000"]}
    refused = [await desk.ada.patch(path, json={name: value}) for name, value in wrong.items()]
    assert [answer.status_code for answer in refused] == [422] * 4
    places = [["body", "subject"], ["body", "status"], ["body", "assignee_public_id"], ["body", "tags"]]
    assert [answer.json()["detail"][0]["loc"] for answer in refused] == places
    assert (await desk.ada.get(path)).json() == read | {"assignee_public_id": None}


@story
async def test_a_ticket_sent_twice_is_made_once(desk: Desk) -> None:
    """The first PUT creates the ticket, a repeated one gets the same response, and different contents are a 409."""
    one, other, *_ = await desk.ids(User)
    path = f"/tickets/{TicketId()}"
    first = await desk.ada.put(path, json={"subject": "blue", "assignee_public_id": one})
    again = await desk.ada.put(path, json={"subject": "blue", "assignee_public_id": one})
    subject = await desk.ada.put(path, json={"subject": "red", "assignee_public_id": one})
    assignee = await desk.ada.put(path, json={"subject": "blue", "assignee_public_id": other})

    assert [answer.status_code for answer in (first, again, subject, assignee)] == [201, 200, 409, 409]
    assert first.json() == again.json() == (await desk.ada.get(path)).json()
    assert subject.json()["differing"] == ["subject"]
    assert assignee.json()["differing"] == ["assignee_public_id"]
    assert len(await desk.ids(Ticket)) == 31


@pytest.mark.backend
@story
async def test_a_ticket_sent_ten_times_at_once(desk: Desk) -> None:
    """One of ten concurrent requests creates the ticket; the others find it."""
    path, ticket = f"/tickets/{TicketId()}", {"subject": "hurry", "priority": 4}
    answers = await asyncio.gather(*(desk.ada.put(path, json=ticket) for _ in range(10)))

    assert sorted(answer.status_code for answer in answers) == [200] * 9 + [201]
    assert len({answer.text for answer in answers}) == 1
    assert len(await desk.ids(Ticket)) == 31


@story
async def test_comments(desk: Desk) -> None:
    """The author of a comment is the user of the token, and the comment is listed after earlier ones."""
    ticket, (ada, *_) = (await desk.ids(Ticket))[0], await desk.ids(User)
    path = f"/tickets/{ticket}/comments"
    desk.statements.clear()
    added = await desk.ada.post(path, json={"text": "solved"})
    # login, ticket, its tags, and the comment: author and ticket are assigned as objects, so nothing looks them up
    verbs = [statement.split()[0] for statement in desk.statements]
    comments = (await desk.ada.get(path)).json()["items"]

    assert added.status_code == 201
    assert verbs == ["SELECT", "SELECT", "SELECT", "INSERT"]
    assert added.json() == comments[-1]
    assert (comments[-1]["author_public_id"], comments[-1]["text"]) == (ada, "solved")
    assert len(comments) == 2


@pytest.mark.backend
@story
async def test_the_name_of_a_tag_that_exists(desk: Desk) -> None:
    """A duplicate tag name is a 409 within an organization, and accepted in another one."""
    answers = [await client.post("/tags", json={"name": "urgent"}) for client in (desk.ada, desk.ada, desk.eve)]

    assert [answer.status_code for answer in answers] == [201, 409, 201]


# --- authentication


@story
async def test_requests_without_a_login(desk: Desk) -> None:
    """A missing, wrong or expired token always gets the same 401."""
    ticket = (await desk.ids(Ticket))[0]
    header = desk.ada.headers["Authorization"]
    async with desk.engine.begin() as connection:
        await connection.execute(update(Login).values(expires_at=now() - timedelta(seconds=1)))
    answers = [
        await desk.anyone.get(path, headers={"Authorization": value} if value else {})
        for value in ("", "Bearer", "Bearer login_guessed", "Basic YTpi", header[:-1], header)
        for path in ("/me", "/tickets", f"/tickets/{ticket}", f"/tickets/{UNKNOWN_TICKET}")
    ]
    assert {(answer.status_code, answer.text) for answer in answers} == {(401, '{"detail":"sign in first"}')}
    assert {answer.headers["www-authenticate"] for answer in answers} == {"Bearer"}


@pytest.mark.backend
@story
async def test_rows_of_another_organization(desk: Desk) -> None:
    """An id of another organization always gets the response of an unknown id, after as many statements."""
    (theirs, *_), (ours, *_) = await desk.ids(Ticket, "Difference & Sons"), await desk.ids(Ticket)
    (eve, *_), (their_tag, *_) = await desk.ids(User, "Difference & Sons"), await desk.ids(Tag, "Difference & Sons")
    attacks = [
        ("GET", "/tickets/{}", (theirs, UNKNOWN_TICKET), None),
        ("PATCH", "/tickets/{}", (theirs, UNKNOWN_TICKET), {"subject": "mine now"}),
        ("GET", "/tickets/{}/comments", (theirs, UNKNOWN_TICKET), None),
        ("POST", "/tickets/{}/comments", (theirs, UNKNOWN_TICKET), {"text": "hello"}),
        ("GET", "/tickets?after={}", (theirs, UNKNOWN_TICKET), None),
        ("GET", "/tickets?tag={}", (their_tag, "tag_00000000"), None),
        ("GET", "/tickets?assignee_public_id={}", (eve, UNKNOWN_USER), None),
        ("PATCH", f"/tickets/{ours}", (eve, UNKNOWN_USER), "assignee_public_id"),
        ("PATCH", f"/tickets/{ours}", (their_tag, "tag_00000000"), "tags"),
        ("PUT", f"/tickets/{TicketId()}", (eve, UNKNOWN_USER), "assignee_public_id"),
        ("PUT", f"/tickets/{TicketId()}", (their_tag, "tag_00000000"), "tags"),
    ]
    before = (await desk.eve.get(f"/tickets/{theirs}")).json()
    answers = []
    for method, path, ids, body in attacks:
        for public_id in ids:
            sent = body
            if isinstance(body, str):
                sent = {"subject": "attack", body: [public_id] if body == "tags" else public_id}
            desk.statements.clear()
            answer = await desk.ada.request(method, path.format(public_id), json=sent)
            answers.append((answer.status_code, answer.text, len(desk.statements)))
    assert answers[::2] == answers[1::2]
    assert [status for status, *_ in answers[::2]] == [404, 404, 404, 404, 422, 200, 200, 422, 422, 422, 422]
    assert [text for status, text, _ in answers if status == 200 and not text.startswith('{"items":[],')] == []
    assert (await desk.eve.get(f"/tickets/{theirs}")).json() == before
    assert len((await desk.eve.get(f"/tickets/{theirs}/comments")).json()["items"]) == 1
    assert len(await desk.ids(Ticket)) == 30


@story
async def test_an_id_that_another_organization_has_taken(desk: Desk) -> None:
    """PUT with the id of another organization's ticket is a 409, whether or not its contents are equal."""
    (theirs, *_) = await desk.ids(Ticket, "Difference & Sons")
    subject = (await desk.eve.get(f"/tickets/{theirs}")).json()["subject"]
    answers = [await desk.ada.put(f"/tickets/{theirs}", json={"subject": text}) for text in (subject, "a guess")]

    assert {answer.status_code for answer in answers} == {409}
    assert answers[0].json() == answers[1].json()
    assert answers[0].json()["differing"] == []


# --- invalid ids and invalid text


@story
async def test_what_there_is_not(desk: Desk) -> None:
    """Unknown ids and integer keys are a 404 in a path, and a 422 as a cursor or in a body; nothing is written."""
    ticket = (await desk.ids(Ticket))[0]
    assert FIRST_KEY in await desk.keys()
    answers = [
        [
            await desk.ada.get(f"/tickets/{unknown}"),
            await desk.ada.get("/users", params={"after": user}),
            await desk.ada.put(f"/tickets/{TicketId()}", json={"subject": "x", "assignee_public_id": user}),
            await desk.ada.post("/tickets", json=[{"subject": "x", "assignee_public_id": user}]),
            await desk.ada.patch(f"/tickets/{ticket}", json={"tags": [tag]}),
        ]
        for user, tag, unknown in ((UserId(), "tag_unknown0", TicketId()), (FIRST_KEY, str(FIRST_KEY), FIRST_KEY))
    ]
    assert [[answer.status_code for answer in each] for each in answers] == [[404, 422, 422, 422, 422]] * 2
    assignees = ["body", "assignee_public_id"], ["body", 0, "assignee_public_id"]
    of_unknown = [["query", "after"], *[["body", "assignee_public_id"]] * 2, ["body", "tags"]]
    of_malformed = [["query", "after"], *assignees, ["body", "tags", 0]]  # FastAPI itself knows where it was
    assert [[answer.json()["detail"][0]["loc"] for answer in each[1:]] for each in answers] == [
        of_unknown,
        of_malformed,
    ]
    assert len(await desk.ids(Ticket)) == 30


@pytest.mark.backend
@story
async def test_any_text(desk: Desk) -> None:
    """Text that every database can store is returned unchanged; other text is rejected before it is sent."""
    subjects = ["坂本 龍一", "🦆", "' OR 1=1 --", "<script>", "x" * 200]
    answers = [await desk.ada.post("/tickets", json=[{"subject": subject}]) for subject in subjects]
    assert [answer.status_code for answer in answers] == [201] * 5
    assert [answer.json()[0]["subject"] for answer in answers] == subjects
    # httpx cannot serialize all of these values
    bodies = [json.dumps([{"subject": each}]) for each in ("", "x" * 201, "a\0b", "\ud800", None, 1, float("nan"))]
    refused = [await desk.ada.post("/tickets", content=body, headers=AS_JSON) for body in bodies]
    assert [answer.status_code for answer in refused] == [422] * 7


@story
async def test_no_key_in_the_document(desk: Desk) -> None:
    """The OpenAPI document and the page contain no key."""
    texts = {path: (await desk.anyone.get(path)).text for path in ("/openapi.json", "/", "/docs")}
    keys = await desk.keys()
    assert [(path, key) for path, text in texts.items() for key in numbers_in(text) & keys] == []
