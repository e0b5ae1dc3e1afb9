"""Count the calls of the library's functions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls_of(call: Callable[[], object], *names: str, folder: str = "") -> int:
    """Return how many functions of the library *call* calls.

    :param names: the names of the functions; without one, those of all functions.
    :param folder: the package that they belong to; without one, the whole library.
    """
    calls = 0
    place = f"sqlalchemy_public_id/{folder}"

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        code = frame.f_code
        calls += event == "call" and (not names or code.co_name in names) and place in code.co_filename

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(before)
    return calls
