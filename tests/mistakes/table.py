"""The table of mistakes: what a user writes, what was meant, and what happens.

A mistake is harmless if the library does what was meant, or it is refused with a sentence that names what to write
instead. If the library cannot notice it, the documentation says what happens. None is silent.

Each row of the table is a test: its docstring says what the user meant.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"


class Silent(AssertionError):
    """Nobody notices the mistake."""


class Useless(AssertionError):
    """There is an error, and it does not say what to write instead."""


def mistake(
    written: str, *, says: str | None = None, warns: str | None = None, documented: tuple[str, str] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function a row of the table. Without one of the last three arguments, it must do what was meant.

    :param written: what the user writes.
    :param says: what the error says, as a regular expression. The function may also return a text that users read, such
        as the output of a command.
    :param warns: what the warning says, as a regular expression.
    :param documented: a page with a heading, such as ``"guides/pages#limits"``, and what that section says.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def test(*args: Any, **kwargs: Any) -> None:
            call = functools.partial(function, *args, **kwargs)
            if says is not None:
                _expect(written, says, call)
            elif warns is not None:
                _expect_warning(written, warns, call)
            else:
                _do(written, call)
            if documented is not None and not _is_on_page(*documented):
                raise (Useless if says else Silent)(f"{written}: docs/{documented[0]} does not say {documented[1]!r}")

        return test

    return decorate


def _expect(written: str, says: str, call: Callable[[], Any]) -> None:
    try:
        answer = call()
    except AssertionError as error:
        raise Silent(f"{written}: {error}") from error
    except (Exception, SystemExit) as error:
        answer = "\n".join(_texts(error))
    if answer is None:
        raise Silent(f"{written}: no error, expected one that says {says!r}")
    if not re.search(says, answer, re.DOTALL):
        raise Useless(f"{written}: {says!r} is not in {answer!r}")


def _expect_warning(written: str, says: str, call: Callable[[], Any]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    if not caught:
        raise Silent(f"{written}: no warning, expected one that says {says!r}")
    if not any(re.search(says, str(each.message), re.DOTALL) for each in caught):
        raise Useless(f"{written}: {says!r} is not in {[str(each.message) for each in caught]}")


def _texts(error: BaseException) -> Iterator[str]:
    """Yield the messages that the end of a traceback shows: of the error, and of its cause."""
    for each in (error, error.__cause__):
        if each is not None:
            yield f"{type(each).__name__}: {each}"
            yield from getattr(each, "__notes__", ())


def _do(written: str, call: Callable[[], Any]) -> None:
    try:
        call()
    except AssertionError as error:
        raise Silent(f"{written}: {error}") from error
    except Exception as error:
        raise Useless(f"{written}: {type(error).__name__}: {error}") from error


def _is_on_page(place: str, says: str) -> bool:
    page, _, anchor = place.partition("#")
    text = (DOCS / f"{page}.md").read_text()
    if anchor:
        parts = re.split(r"^#+ (.*)$", text, flags=re.MULTILINE)
        names = [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in parts[1::2]]
        text = dict(zip(names, parts[2::2], strict=True)).get(anchor, "")
    return re.search(says, text, re.DOTALL) is not None
