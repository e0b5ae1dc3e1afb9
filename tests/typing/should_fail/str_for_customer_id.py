# expect mypy arg-type, pyright reportArgumentType
from __future__ import annotations

from models import CustomerId


def charge(customer: CustomerId) -> None: ...


charge("cus_izkpm55j334u")  # wrong
