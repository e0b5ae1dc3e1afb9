"""Everything that a migration knows of SQLite."""
