"""Integrations with other packages: import the module of yours, such as ``sqlalchemy_public_id.ext.fastapi``."""
