"""Alembic operations for cluster keys, and their part of autogenerate."""
