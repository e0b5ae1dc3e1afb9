"""Retry transactions, as the guide "Several nodes" shows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from sqlalchemy.orm import Session
from tenacity import Retrying, retry_if_exception, stop_after_attempt, stop_after_delay, wait_random_exponential

from sqlalchemy_public_id.guard import is_retryable

T = TypeVar("T")


def run_transaction(
    session_factory: Callable[[], Session],
    fn: Callable[[Session], T],
    *,
    attempts: int = 10,
    timeout: float = 30.0,
    idempotent: bool = False,
) -> T:
    """Call *fn* in a transaction, commit it, and return the result; repeat all of it after a retryable error."""

    def once() -> T:
        with session_factory() as session, session.begin():
            return fn(session)

    retrying = Retrying(
        retry=retry_if_exception(partial(is_retryable, idempotent=idempotent)),
        stop=stop_after_attempt(attempts) | stop_after_delay(timeout),
        wait=wait_random_exponential(multiplier=0.01, max=1),
        reraise=True,
    )
    return retrying(once)
