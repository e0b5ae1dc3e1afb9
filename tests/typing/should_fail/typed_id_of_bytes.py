# expect mypy arg-type, pyright reportArgumentType
from __future__ import annotations

from models import CustomerId

CustomerId(b"cus_izkpm55j334u")  # wrong
