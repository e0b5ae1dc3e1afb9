"""How much work a call is, counted instead of timed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def at_each_step(call: Callable[[], object], step: Callable[[FrameType], None]) -> None:
    """Call *call*, and *step* before every instruction of Python that it executes."""

    def trace(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if event == "opcode":
            step(frame)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)


def steps_of(call: Callable[[], object]) -> int:
    """Return how many instructions of Python *call* executes, those of the functions that it calls included."""
    steps = 0

    def count(frame: FrameType) -> None:
        nonlocal steps
        steps += 1

    at_each_step(call, count)
    return steps
