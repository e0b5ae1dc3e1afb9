"""Alembic operations for cluster keys."""
