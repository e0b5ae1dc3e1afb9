# expect mypy call-arg, pyright reportCallIssue
from __future__ import annotations

from sqlalchemy_public_id import NanoId

NanoId().generate(5)  # wrong
