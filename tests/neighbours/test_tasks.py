"""Celery and Dramatiq: typed ids as arguments of tasks."""

from __future__ import annotations

from typing import Any

import dramatiq
from celery import Celery
from celery.contrib.testing.worker import start_worker
from dramatiq.brokers.stub import StubBroker
from neighbours.models import ADA


def test_celery() -> None:
    """A task receives a typed id as plain text, with the default serializer."""
    app = Celery("neighbours", broker="memory://", backend="cache+memory://")

    @app.task(name="neighbours.kind")
    def kind(public_id: Any) -> list[str]:
        return [type(public_id).__name__, public_id]

    with start_worker(app, perform_ping_check=False, pool="solo", shutdown_timeout=30):
        assert kind.delay(ADA).get(timeout=30) == ["str", str(ADA)]


def test_dramatiq() -> None:
    """An actor receives a typed id as plain text."""
    broker = StubBroker()
    received: list[Any] = []

    def keep(public_id: Any) -> None:
        received.append(public_id)

    actor = dramatiq.actor(keep, broker=broker)
    worker = dramatiq.Worker(broker, worker_timeout=100)
    worker.start()
    try:
        actor.send(ADA)
        broker.join(actor.queue_name, timeout=30_000)
        worker.join()
    finally:
        worker.stop()
    assert [(type(text), text) for text in received] == [(str, str(ADA))]
