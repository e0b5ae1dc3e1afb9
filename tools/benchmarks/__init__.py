"""The cost of the library, compared with code by hand: ``python -m tools.benchmarks``. README.md has the method."""
