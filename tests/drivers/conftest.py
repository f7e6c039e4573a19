"""Fixtures of the kube driver's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from queuectl.drivers.kube.cluster import KubeCluster
from tests.drivers.fake_server import QUICK, FakeServer, serving


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with serving() as running:
        yield running


@pytest.fixture
async def cluster(server: FakeServer, tmp_path: Path) -> AsyncIterator[KubeCluster]:
    """A cluster whose API server is ``server``."""
    async with KubeCluster.connect(server.kubeconfig(tmp_path), timing=QUICK) as connected:
        yield connected
