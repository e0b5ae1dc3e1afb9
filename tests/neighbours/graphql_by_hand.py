"""The queries of the page on GraphQL, written with plain SQLAlchemy, and how many statements each way sends.

``test_graphql.py`` runs it beside the page, which is the module ``page`` then.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

from page import QUERY, Base, Comment, Context, Issue, User, engine, schema  # type: ignore[import-not-found]
from sqlalchemy import event, func, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, aliased, joinedload, selectinload

Ways = tuple[Callable[[Session], Any], Callable[[Session], Any]]
"""Two ways to answer a query: each kind of row in a statement, and all that can be joined in one."""

ISSUES_WITH_AUTHOR_IDS = "{ issues(first: 3) { edges { node { id authorId } } } }"
LAST = "{ issues(last: 2) { pageInfo { hasPreviousPage } edges { node { title } } } }"
NODES = "query ($ids: [ID!]!) { nodes(ids: $ids) { __typename id } }"
NODE = "query ($id: ID!) { node(id: $id) { ... on Issue { author { id name } } } }"
CREATE = 'mutation ($author: UserId!) { createIssue(input: {title: "new", authorId: $author}) { author { name } } }'


def issues(author: Any) -> Callable[[Session], Any]:
    """Return a function that answers QUERY, and loads authors with the loader option *author*."""

    def answer(session: Session) -> Any:
        found = session.scalars(select(Issue).options(author(Issue.author)).order_by(Issue.id).limit(4)).all()
        shown = found[:3]
        number = func.row_number().over(partition_by=Comment.issue_id, order_by=Comment.id).label("number")
        numbered = select(Comment, number).where(Comment.issue_id.in_([issue.id for issue in shown])).subquery()
        first = aliased(Comment, numbered)
        query = select(first).options(author(first.author)).where(numbered.c.number <= 2).order_by(first.id)
        comments: dict[int, list[Any]] = {issue.id: [] for issue in shown}
        for comment in session.scalars(query):
            node = {"text": comment.text, "author": {"name": comment.author.name}}
            comments[comment.issue_id].append({"node": node})
        edges = []
        for issue in shown:
            node = {"id": issue.public_id, "title": issue.title, "author": {"name": issue.author.name}}
            node["comments"] = {"edges": comments[issue.id]}
            edges.append({"cursor": issue.public_id, "node": node})
        return {"pageInfo": {"hasNextPage": len(found) > 3, "endCursor": shown[-1].public_id}, "edges": edges}

    return lambda session: {"issues": answer(session)}


def issues_with_author_ids(author: Any) -> Callable[[Session], Any]:
    def answer(session: Session) -> Any:
        found = session.scalars(select(Issue).options(author(Issue.author)).order_by(Issue.id).limit(4))
        nodes = [{"id": issue.public_id, "authorId": issue.author.public_id} for issue in found]
        return {"issues": {"edges": [{"node": node} for node in nodes[:3]]}}

    return answer


def last(session: Session) -> Any:
    found = session.scalars(select(Issue).order_by(Issue.id.desc()).limit(3)).all()
    edges = [{"node": {"title": issue.title}} for issue in found[1::-1]]
    return {"issues": {"pageInfo": {"hasPreviousPage": len(found) > 2}, "edges": edges}}


def nodes(ids: list[str]) -> Callable[[Session], Any]:
    """Select issues only: the prefix of each id says so, and 777101 is no id."""

    def answer(session: Session) -> Any:
        wanted = [id for id in ids if id.startswith("iss_")]
        found = {issue.public_id: issue for issue in session.scalars(select(Issue).where(Issue.public_id.in_(wanted)))}
        return {"nodes": [{"__typename": "Issue", "id": id} if id in found else None for id in ids]}

    return answer


def node(id: str, author: Any) -> Callable[[Session], Any]:
    def answer(session: Session) -> Any:
        issue = session.scalars(select(Issue).options(author(Issue.author)).where(Issue.public_id == id)).one()
        return {"node": {"author": {"id": issue.author.public_id, "name": issue.author.name}}}

    return answer


def create(author_id: str) -> Callable[[Session], Any]:
    def answer(session: Session) -> Any:
        author = session.scalars(select(User).where(User.public_id == author_id)).one()
        session.add(Issue(title="new", author=author))
        session.flush()
        return {"createIssue": {"author": {"name": author.name}}}

    return answer


async def main() -> None:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with AsyncSession(engine) as session:
        people = [User(id=777001 + number, name=f"person {number}") for number in range(4)]
        for number in range(7):
            issue = Issue(id=777101 + number, title=f"issue {number}", author=people[number % 3])
            issue.comments = [Comment(text=f"{number}.{turn}", author=people[(turn + 2) % 4]) for turn in range(4)]
            session.add(issue)
        await session.commit()
        id = (await session.scalars(select(Issue.public_id).order_by(Issue.id))).first()
        author = (await session.scalars(select(User.public_id).order_by(User.id))).first()

    statements: list[str] = []
    event.listen(engine.sync_engine, "before_cursor_execute", lambda *given: statements.append(given[2]))

    async def count(answer: Callable[[AsyncSession], Any]) -> tuple[Any, int]:
        statements.clear()
        async with AsyncSession(engine) as session, session.begin():
            return await answer(session), len(statements)

    ids = [id, "iss_nothing", "777101"]
    queries: dict[str, tuple[str, dict[str, Any], Ways]] = {
        "`issues`, with authors, comments, and their authors": (
            QUERY,
            {},
            (issues(selectinload), issues(joinedload)),
        ),
        "`issues(last: 2)`": (LAST, {}, (last, last)),
        "`issues`, with `authorId`": (
            ISSUES_WITH_AUTHOR_IDS,
            {},
            (issues_with_author_ids(selectinload), issues_with_author_ids(joinedload)),
        ),
        "`nodes` of three ids": (NODES, {"ids": ids}, (nodes(ids), nodes(ids))),
        "`node`, with its author": (NODE, {"id": id}, (node(str(id), selectinload), node(str(id), joinedload))),
        "`createIssue`, with its author": (
            CREATE,
            {"author": author},
            (create(str(author)), create(str(author))),
        ),
    }
    counts: dict[str, list[int]] = {}
    for name, (query, variables, ways) in queries.items():

        async def send(session: AsyncSession, query: str = query, variables: Any = variables) -> Any:
            return await schema.execute(query, variables, context_value=Context(session))

        answer, count_of_page = await count(send)
        assert answer.errors is None, answer.errors
        counts[name] = [count_of_page]
        for way in ways:

            async def run(session: AsyncSession, way: Callable[[Session], Any] = way) -> Any:
                return await session.run_sync(way)

            by_hand, number = await count(run)
            assert by_hand == answer.data, name
            counts[name].append(number)
    await engine.dispose()
    sys.stdout.write(json.dumps(counts))


asyncio.run(main())
