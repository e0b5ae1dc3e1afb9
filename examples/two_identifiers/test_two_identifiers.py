"""The example runs; ``.ci/run`` runs it on the other databases too."""

from __future__ import annotations

import pytest


def test_every_check_holds(capsys: pytest.CaptureFixture[str]) -> None:
    """The program checks every row and reports success."""
    pytest.importorskip("rich")
    from examples.two_identifiers.__main__ import main

    status = main("sqlite://")

    assert status == 0
    assert "All rows have a key and a public id of their own." in capsys.readouterr().out
