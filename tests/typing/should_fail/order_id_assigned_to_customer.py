# expect mypy assignment, pyright reportAttributeAccessIssue
from __future__ import annotations

from models import Customer, OrderId

customer = Customer()
customer.public_id = OrderId()  # wrong
