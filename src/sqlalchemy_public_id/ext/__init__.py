"""Integrations with other packages. Import the one that you need, such as ``sqlalchemy_public_id.ext.fastapi``."""
