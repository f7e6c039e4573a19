"""The in-memory cluster over HTTP: what our own commands ask for, and a clear answer to everything else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from queuectl.contract.foreign import JOBS, POD_GROUPS, QUEUES
from queuectl.control.clock import RealClock
from queuectl.drivers.embedded.rest import fronting
from queuectl.drivers.embedded.whole import managed
from queuectl.drivers.kube.cluster import KubeCluster
from queuectl.serve.ask import directly

JOB = {
    "metadata": {"name": "train", "labels": {"queuectl.io/queue": "q"}},
    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}},
}


@pytest.fixture
async def kubeconfig(tmp_path: Path) -> AsyncIterator[Path]:
    """Of a store with one queue."""
    store = managed(RealClock())
    store.create(QUEUES, "", {"metadata": {"name": "q"}, "spec": {}}, "admin")
    async with fronting(store, directly, tmp_path / "kubeconfig", "ns"):
        yield tmp_path / "kubeconfig"


def server_of(kubeconfig: Path) -> str:
    """Its URL."""
    return next(line.split()[1] for line in kubeconfig.read_text().splitlines() if "server:" in line)


async def test_our_own_driver_works_on_it(kubeconfig: Path) -> None:
    """Create, get, list, patch, delete, by the paths and merges of the real one."""
    async with KubeCluster.connect(kubeconfig) as cluster:
        made = await cluster.create(JOBS, "ns", JOB)
        assert (await cluster.get(JOBS, "ns", "train")).metadata.uid == made.metadata.uid
        body = {"metadata": {"uid": made.metadata.uid, "annotations": {"a": "b"}}}
        patched = await cluster.patch(JOBS, "ns", "train", body)
        assert patched.metadata.annotations["a"] == "b"
        assert [one.metadata.name for one in await cluster.list(JOBS, "ns")] == ["train"]
        assert await cluster.list(POD_GROUPS, "other") == []
        await cluster.delete(JOBS, "ns", "train", made.metadata.uid)
        assert await cluster.list(JOBS) == []


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("x", 400),
        ("[]", 400),
        ("{}", 422),
        ('{"metadata": null}', 422),
        ('{"metadata": {"name": "a"}}', 422),
        ('{"metadata": {"name": "a"}, "spec": {"template": 5}}', 422),
    ],
)
async def test_bad_bodies_are_refused_with_a_status(kubeconfig: Path, body: str, code: int) -> None:
    """And nothing is stored."""
    server = server_of(kubeconfig)
    path = f"{server}/apis/batch/v1/namespaces/ns/jobs"
    async with ClientSession() as session:
        async with session.post(path, data=body) as reply:
            found: dict[str, Any] = await reply.json()
            assert (reply.status, found["kind"], found["status"]) == (code, "Status", "Failure")
        async with session.get(path) as reply:
            assert (await reply.json())["items"] == []


async def test_what_only_a_real_one_would_serve_is_not_found(kubeconfig: Path) -> None:
    """No discovery, and no other path."""
    server = server_of(kubeconfig)
    async with ClientSession() as session, session.get(f"{server}/apis") as reply:
        assert reply.status == 404
