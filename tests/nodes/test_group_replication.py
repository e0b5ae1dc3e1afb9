"""Three MySQL servers with group replication: a certification that fails is an error of the COMMIT."""

from __future__ import annotations

import pytest
from cluster_stories import OfClusters
from private_clusters import GroupReplication


class TestGroupReplication(OfClusters):
    """What holds in every cluster."""

    @pytest.fixture
    def cluster(self, group: GroupReplication) -> GroupReplication:
        """The cluster, which all tests share."""
        return group
