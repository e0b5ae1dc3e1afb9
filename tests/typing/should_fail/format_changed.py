# expect mypy misc, pyright reportAttributeAccessIssue
from __future__ import annotations

from sqlalchemy_public_id import NanoId

format = NanoId()
format.length = 16  # wrong
