"""Mutants of the library, and the tests that kill them: ``make mutants``, docs/testing.md."""
