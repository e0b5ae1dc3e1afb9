# expect mypy arg-type, pyright reportArgumentType
from __future__ import annotations

from models import User

from sqlalchemy_public_id import testing

with testing.fixed_ids(User, 5):  # wrong
    pass
