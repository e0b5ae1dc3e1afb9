"""Two identifiers per row: every way to write a row, forced collisions, lookups.

``python -m examples.two_identifiers [URL]`` creates the tables in the database at URL (by default SQLite in memory),
prints each step as a table, checks every row, and drops the tables.
"""
