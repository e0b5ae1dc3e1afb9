"""What the library costs, side by side with others: ``python -m benchmarks``. See README.md for method and caveats."""
