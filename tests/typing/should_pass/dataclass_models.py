"""The key and the public id of a dataclass are not arguments of its constructor."""

from __future__ import annotations

from models import Seat, Ticket, TicketId
from typing_extensions import assert_type

ticket = Ticket("Broken lamp")
assert_type(ticket, Ticket)
assert_type(ticket.public_id, TicketId)
assert_type(ticket.title, str)
Ticket(title="Broken lamp")

seat = Seat(id=1, row=7)
assert_type(seat.public_id, str)
assert_type(seat.row, int)
