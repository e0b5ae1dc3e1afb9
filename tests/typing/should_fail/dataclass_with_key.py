# expect mypy call-arg, pyright reportCallIssue
from __future__ import annotations

from models import Ticket

Ticket(title="Broken lamp", id=1)  # wrong
