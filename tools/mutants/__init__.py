"""Mutants of the library, and the tests that kill them: ``make mutants``, README.md."""
