"""Print the page "Dangerous migrations" of the documentation."""

from __future__ import annotations

import sys

from sqlalchemy_public_id.advice import as_markdown

if __name__ == "__main__":
    sys.stdout.write(as_markdown())
