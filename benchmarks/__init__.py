"""The cost of the library, compared with others: ``python -m benchmarks``. See README.md for method and caveats."""
