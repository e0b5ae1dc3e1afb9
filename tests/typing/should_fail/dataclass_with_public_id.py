# expect mypy call-arg, pyright reportCallIssue
from __future__ import annotations

from models import Ticket, TicketId

Ticket(title="Broken lamp", public_id=TicketId())  # wrong
