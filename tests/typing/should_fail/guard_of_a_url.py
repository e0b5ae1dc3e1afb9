# expect mypy arg-type, pyright reportArgumentType
from __future__ import annotations

from sqlalchemy_public_id import guard

guard.install("sqlite://")  # wrong
