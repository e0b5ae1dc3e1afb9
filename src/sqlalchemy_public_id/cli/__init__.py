"""The ``public-id`` command: ids, formats, and databases that contain them. Needs the extra ``cli``.

Results go to stdout, notes and errors to stderr. The exit status is 0 for success, 1 if a problem was found or rows
remain, 2 if the command could not run, and 130 after Ctrl-C.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from sqlalchemy_public_id.errors import MissingExtra

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command with *arguments*, by default those of the process, and exit."""
    try:
        from sqlalchemy_public_id.cli.commands import public_id
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.stderr.write(f"public-id: {MissingExtra('click', extra='cli')}\n")
        sys.exit(2)
    except KeyboardInterrupt:  # Python has not read all modules yet
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    public_id.main(args=arguments, prog_name="public-id")
