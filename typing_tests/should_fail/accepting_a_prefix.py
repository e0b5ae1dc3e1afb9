# expect mypy arg-type, pyright reportArgumentType
from __future__ import annotations

from sqlalchemy_public_id import NanoId

NanoId(prefix="cus").accepting("customer")  # wrong
