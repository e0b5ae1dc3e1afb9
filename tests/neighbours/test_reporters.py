"""Sentry, loguru and structlog: the option that keeps keys in variables out of reports."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import loguru
import pytest
import sentry_sdk
import structlog
from sentry_sdk.transport import Transport

KEY = 777_001
"""It is written in another way than reports write it, because Sentry also sends lines of the source."""


def fail() -> None:
    key = KEY
    raise RuntimeError("no connection" if key else "no key")


def by_loguru(is_hidden: bool) -> str:
    written = io.StringIO()
    logger = loguru.logger
    logger.remove()
    number = logger.add(written, **({"diagnose": False} if is_hidden else {}))
    try:
        fail()
    except RuntimeError:
        logger.exception("failed")
    logger.remove(number)
    return written.getvalue()


def by_structlog(is_hidden: bool) -> str:
    written = io.StringIO()
    options = {"show_locals": False} if is_hidden else {}
    formatter = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(**options))
    logger = structlog.wrap_logger(
        structlog.PrintLogger(written), processors=[formatter, structlog.processors.JSONRenderer()]
    )
    try:
        fail()
    except RuntimeError:
        logger.exception("failed")
    return written.getvalue()


def by_sentry(is_hidden: bool) -> str:
    sent: list[str] = []

    class Kept(Transport):
        def capture_envelope(self, envelope: Any) -> None:
            sent.append(envelope.serialize().decode())

    options: dict[str, Any] = {"include_local_variables": False} if is_hidden else {}
    sentry_sdk.init("http://key@127.0.0.1/1", transport=Kept, default_integrations=False, **options)
    try:
        fail()
    except RuntimeError as error:
        sentry_sdk.capture_exception(error)
    sentry_sdk.flush()
    sentry_sdk.init()
    return "".join(sent)


@pytest.mark.parametrize("report", [by_loguru, by_structlog, by_sentry])
def test_variables(report: Callable[[bool], str]) -> None:
    """A report of an error shows variables of functions, but not with the option of the documentation."""
    shown, hidden = report(False), report(True)

    assert str(KEY) in shown
    assert "no connection" in hidden
    assert str(KEY) not in hidden
