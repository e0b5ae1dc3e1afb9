"""``python -m sqlalchemy_public_id.cli``: the ``public-id`` command without a script on the path."""

from sqlalchemy_public_id.cli import main

if __name__ == "__main__":
    main()
