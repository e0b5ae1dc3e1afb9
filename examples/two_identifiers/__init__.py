"""The two-identifier model at work: every way to write a row, forced collisions, lookups.

``python -m examples.two_identifiers [URL]`` makes the tables in the database at URL (SQLite in memory where none is
given), prints what it does as tables, checks every row, and takes the tables away again.
"""
