# expect mypy arg-type, pyright reportArgumentType
from __future__ import annotations

from sqlalchemy_public_id import NanoId

NanoId(length="12")  # wrong
