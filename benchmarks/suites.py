"""The suites, in the order in which they run.

Each is a module with ``run(bench)``, which is imported when the suite runs, so that a missing package stops no other.
"""

from __future__ import annotations

__all__ = ["BY_CASE", "LONG", "SUITES", "WITHOUT_DATABASE"]

SUITES = {
    "ids": "ids",
    "formats": "formats",
    "import": "imports",
    "statements": "statements",
    "flush": "flush",
    "others": "others",
    "rivals": "rivals",
    "async": "asynchronous",
    "bulk": "bulk",
    "lookup": "lookup",
    "many": "many",
    "joins": "joins",
    "spaces": "spaces",
    "core": "core",
    "network": "network",
    "storage": "storage",
    "references": "references",
    "blocks": "blocks",
    "cluster": "cluster",
    "growth": "growth",
    "live": "live",
    "live-history": "live_history",
    "schema": "schema",
}
"""Suites, and their modules."""
WITHOUT_DATABASE = {"ids", "import", "others"}
LONG = {"live", "live-history", "schema"}
"""What takes minutes with few rows, too: ``--quick`` leaves it out unless it is named."""
BY_CASE = {"rivals"}
"""Suites that are run in parts, by size: a new run replaces its own sizes only."""
