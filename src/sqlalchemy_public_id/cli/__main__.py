"""``python -m sqlalchemy_public_id.cli``, which is ``public-id`` where that is not on the path."""

from __future__ import annotations

from sqlalchemy_public_id.cli import main

if __name__ == "__main__":
    main()
