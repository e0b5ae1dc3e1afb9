"""The library in programs of others: what their statements see while a migration runs."""
