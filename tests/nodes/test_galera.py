"""A Galera cluster of three nodes: a certification that fails is a deadlock."""

from __future__ import annotations

import pytest
from support.cluster_stories import OfClusters
from support.private_clusters import Galera


class TestGalera(OfClusters):
    """The tests of all clusters."""

    @pytest.fixture
    def cluster(self, galera: Galera) -> Galera:
        """The cluster, which all tests share."""
        return galera
