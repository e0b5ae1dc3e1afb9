"""The cost of the library, compared with the same by hand: ``python -m tools.benchmarks``. README.md has the method."""
