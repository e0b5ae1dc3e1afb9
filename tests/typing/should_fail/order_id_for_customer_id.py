# expect mypy arg-type, pyright reportArgumentType
from __future__ import annotations

from models import CustomerId, Order


def charge(customer: CustomerId) -> None: ...


charge(Order().public_id)  # wrong
