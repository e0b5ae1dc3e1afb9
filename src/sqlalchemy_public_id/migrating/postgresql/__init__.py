"""Everything that a migration knows of PostgreSQL."""
