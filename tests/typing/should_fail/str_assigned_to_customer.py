# expect mypy assignment, pyright reportAttributeAccessIssue
from __future__ import annotations

from models import Customer

customer = Customer()
customer.public_id = "cus_izkpm55j334u"  # wrong
