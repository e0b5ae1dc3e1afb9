"""What the library says, in the words of the command line: it names the options of an operation as Python does."""

from __future__ import annotations

import re

from sqlalchemy_public_id.migrations.consent import describe_options

_NAMES = "|".join(describe_options())
_OPTION = re.compile(rf'\b({_NAMES})=(?:"([\w ]+)"|(True|False)\b|(?= with ))')
_OPERATION = re.compile(r"\bop\.([a-z]+)_public_id\('([^']+)'\)(?: in an earlier migration, or with: )?")


def as_typed(text: str) -> str:
    """Return *text* with options and operations as they are typed after ``public-id``.

    >>> as_typed('pass update_triggers="fire" to accept this')
    'pass --update-triggers fire to accept this'
    >>> as_typed("add it first, with op.expand_public_id('invoice')")
    'add it first, with public-id expand invoice'
    """
    return _OPERATION.sub(_command, _OPTION.sub(_option, text))


def _option(match: re.Match[str]) -> str:
    name, value, switch = match.groups()
    flag = name.replace("_", "-")
    return f"--no-{flag}" if switch == "False" else f"--{flag} {value}" if value else f"--{flag}"


def _command(match: re.Match[str]) -> str:
    # the sentence may go on with the command itself, which has all its options
    return "" if match[0].endswith(": ") else f"public-id {match[1]} {match[2]}"
