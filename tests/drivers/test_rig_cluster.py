"""The driver on the real API server: every call of the port, and what the server says to the wrong ones."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from queuectl.contract.foreign import JOBS, LEASES, NODES, PODS, PRIORITY_CLASSES, QUEUES, Gate, conditions_of
from queuectl.control.ports import Bookmark, Conflict, NotFound, Refused, Throttled, Unreachable, Upserted
from queuectl.drivers.kube.cluster import KubeCluster
from queuectl.drivers.kube.session import Session, Timing
from tests.rig.client import Api
from tests.rig.controlplane import ControlPlane
from tests.rig.kubelet import MakeNodes
from tests.rig.proxy import Proxy

pytestmark = pytest.mark.rig

OURS, FOREIGN = "queuectl.io/admission", "example.com/other"


def gated(name: str, *gates: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "example.com/c"}
    return {
        "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {"schedulingGates": [{"name": gate} for gate in gates], "containers": [container], **spec},
    }


@pytest.fixture
async def cluster(control_plane: ControlPlane) -> AsyncIterator[KubeCluster]:
    async with KubeCluster.connect(control_plane.admin_kubeconfig) as connected:
        yield connected


async def test_create_get_list_delete(cluster: KubeCluster, namespace: str, admin: Api) -> None:
    made = await cluster.create(PODS, namespace, gated("a", OURS))
    assert made.metadata.uid
    assert made.spec.scheduling_gates == (Gate(OURS),)
    assert await cluster.get(PODS, namespace, "a") == made
    with pytest.raises(Conflict, match="already exists"):
        await cluster.create(PODS, namespace, gated("a"))
    assert [p.metadata.name for p in await cluster.list(PODS, namespace)] == ["a"]
    assert "a" in [p.metadata.name for p in await cluster.list(PODS) if p.metadata.namespace == namespace]
    with pytest.raises(Conflict, match="UID in the precondition"):
        await cluster.delete(PODS, namespace, "a", "11111111-1111-1111-1111-111111111111")
    await cluster.delete(PODS, namespace, "a", made.metadata.uid)
    with pytest.raises(NotFound):
        await cluster.get(PODS, namespace, "a")
    with pytest.raises(NotFound):
        await cluster.delete(PODS, namespace, "a", made.metadata.uid)


async def test_every_kind_is_listed_with_its_own_path(cluster: KubeCluster, namespace: str) -> None:
    for kind in (PODS, NODES, JOBS, PRIORITY_CLASSES, LEASES):
        await cluster.list(kind)
    classes = {c.metadata.name: c.value for c in await cluster.list(PRIORITY_CLASSES)}
    assert classes["system-cluster-critical"] == 2_000_000_000
    with pytest.raises(NotFound):
        await cluster.list(replace(QUEUES, version="v0"))


async def test_a_strategic_patch_takes_our_gate_and_leaves_the_foreign_one(
    cluster: KubeCluster, namespace: str
) -> None:
    await cluster.create(PODS, namespace, gated("a", OURS, FOREIGN))
    patch = {"spec": {"schedulingGates": [{"name": OURS, "$patch": "delete"}]}, "metadata": {"annotations": {"a": "1"}}}
    asked = await cluster.patch(PODS, namespace, "a", patch, dry_run=True)
    assert asked.spec.scheduling_gates == (Gate(FOREIGN),)
    stored = await cluster.get(PODS, namespace, "a")
    assert stored.spec.scheduling_gates == (Gate(OURS), Gate(FOREIGN))
    assert stored.metadata.annotations is None
    done = await cluster.patch(PODS, namespace, "a", patch)
    assert done.spec.scheduling_gates == (Gate(FOREIGN),)
    assert done.metadata.annotations == {"a": "1"}
    again = await cluster.patch(PODS, namespace, "a", patch)  # already gone is success
    assert again.spec.scheduling_gates == (Gate(FOREIGN),)


async def test_preconditions_of_a_patch(cluster: KubeCluster, namespace: str) -> None:
    made = await cluster.create(PODS, namespace, gated("a", OURS))
    label = {"labels": {"b": "1"}}
    newer = await cluster.patch(PODS, namespace, "a", {"metadata": label})
    with pytest.raises(Conflict, match="object has been modified"):
        await cluster.patch(
            PODS,
            namespace,
            "a",
            {"metadata": {"resourceVersion": made.metadata.resource_version, "annotations": {"x": "y"}}},
        )
    with pytest.raises(Refused, match="immutable") as caught:
        await cluster.patch(PODS, namespace, "a", {"metadata": {"uid": "11111111-1111-1111-1111-111111111111"}})
    assert caught.value.status == 422
    with pytest.raises(NotFound):
        await cluster.patch(PODS, namespace, "b", {"metadata": label})
    assert await cluster.get(PODS, namespace, "a") == newer


async def test_a_field_that_the_server_does_not_know_is_refused_not_dropped(
    cluster: KubeCluster, namespace: str
) -> None:
    await cluster.create(PODS, namespace, gated("a", OURS))
    with pytest.raises(Refused, match="unknown field"):
        await cluster.patch(PODS, namespace, "a", {"spec": {"schedulingGate": []}})
    with pytest.raises(Refused, match="unknown field"):
        await cluster.create(PODS, namespace, gated("b", nonsense=1))


async def test_a_subresource(cluster: KubeCluster, namespace: str) -> None:
    await cluster.create(PODS, namespace, gated("a", OURS))
    condition = {"type": "queuectl.io/Preempting", "status": "True", "reason": "r", "message": "m"}
    after = await cluster.patch(PODS, namespace, "a", {"status": {"conditions": [condition]}}, subresource="status")
    assert "queuectl.io/Preempting" in [c.type for c in conditions_of(after)]


async def test_a_job_is_deleted_with_its_pods(cluster: KubeCluster, namespace: str, admin: Api) -> None:
    template = {"spec": {**gated("x", OURS)["spec"], "restartPolicy": "Never"}}
    job = await cluster.create(JOBS, namespace, {"metadata": {"name": "j"}, "spec": {"template": template}})
    pods = f"/api/v1/namespaces/{namespace}/pods"
    await admin.wait(pods, lambda found: found["items"])
    await cluster.delete(JOBS, namespace, "j", job.metadata.uid)
    await admin.wait(pods, lambda found: not found["items"])


async def test_eviction(cluster: KubeCluster, namespace: str, fake_nodes: MakeNodes, unique: str, admin: Api) -> None:
    await fake_nodes(1)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    uids = {}
    for name in ("a", "b"):
        body = gated(name, nodeSelector={"example.com/pool": unique}, tolerations=[{"operator": "Exists"}])
        uids[name] = (await cluster.create(PODS, namespace, body)).metadata.uid
    for name in uids:
        await admin.wait(f"{pods}/{name}", lambda pod: pod["status"]["phase"] == "Running")
    with pytest.raises(Conflict, match="UID in the precondition"):
        await cluster.evict(namespace, "a", "11111111-1111-1111-1111-111111111111")
    await cluster.evict(namespace, "a", uids["a"])
    await admin.wait_gone(f"{pods}/a")
    with pytest.raises(NotFound):
        await cluster.evict(namespace, "a", uids["a"])

    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    budget = {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}}
    await admin.create(budgets, {"metadata": {"name": "one"}, **budget})
    await admin.wait(f"{budgets}/one", lambda b: b.get("status", {}).get("currentHealthy") == 1)
    with pytest.raises(Throttled, match="disruption budget"):
        await cluster.evict(namespace, "b", uids["b"])
    await admin.create(budgets, {"metadata": {"name": "two"}, **budget})
    await admin.wait(f"{budgets}/two", lambda b: b.get("status", {}).get("currentHealthy") == 1)
    with pytest.raises(Refused, match="more than one PodDisruptionBudget"):
        await cluster.evict(namespace, "b", uids["b"])


async def test_who_may_not_is_refused_and_who_is_unknown_too(control_plane: ControlPlane, namespace: str) -> None:
    async with KubeCluster.connect(control_plane.kubeconfig("nobody")) as cluster:
        with pytest.raises(Refused, match=r"nobody.*cannot list resource"):
            await cluster.list(PODS)
        with pytest.raises(Refused, match=r"cannot watch resource|cannot list resource"):
            async with aclosing(cluster.watch(PODS, None)) as events:
                await anext(events)


@pytest.mark.parametrize("action", ["cut_before", "cut_after_commit"])
async def test_a_write_that_is_cut_off_has_an_unknown_outcome(
    control_plane: ControlPlane, namespace: str, cluster: KubeCluster, action: str
) -> None:
    await cluster.create(PODS, namespace, gated("a", OURS))
    async with (
        Proxy(control_plane.pki, control_plane.admin_kubeconfig) as proxy,
        KubeCluster.connect(proxy.kubeconfig) as cut,
    ):
        getattr(proxy, action)("PATCH", "/pods/a")
        with pytest.raises(Unreachable):
            await cut.patch(PODS, namespace, "a", {"metadata": {"labels": {"seen": "yes"}}})
        labels = (await cut.get(PODS, namespace, "a")).metadata.labels
        assert labels.get("seen") == ("yes" if action == "cut_after_commit" else None)
        assert sum(r.method == "PATCH" for r in proxy.requests) == 1  # not sent again behind our back


async def test_a_reply_that_does_not_come_and_throttling(
    control_plane: ControlPlane, namespace: str, cluster: KubeCluster
) -> None:
    await cluster.create(PODS, namespace, gated("a", OURS))
    async with (
        Proxy(control_plane.pki, control_plane.admin_kubeconfig) as proxy,
        KubeCluster.connect(proxy.kubeconfig, timing=Timing(request=2)) as slow,
    ):
        proxy.stall_reply("PATCH", "/pods/a", times=1)
        began = asyncio.get_running_loop().time()
        with pytest.raises(Unreachable, match="timed out"):
            await slow.patch(PODS, namespace, "a", {"metadata": {"labels": {"seen": "yes"}}})
        assert asyncio.get_running_loop().time() - began < 10
        assert (await slow.get(PODS, namespace, "a")).metadata.labels["seen"] == "yes"
        proxy.answer(429, "GET", "/pods/a", retry_after=9)
        with pytest.raises(Throttled) as throttled:
            await slow.get(PODS, namespace, "a")
        assert throttled.value.retry_after == 9
        proxy.answer(503, "GET", "/pods/a")
        with pytest.raises(Unreachable):
            await slow.get(PODS, namespace, "a")
        proxy.down()
        with pytest.raises(Unreachable):
            await slow.get(PODS, namespace, "a")
        proxy.up()
        await slow.get(PODS, namespace, "a")


async def test_lists_of_more_than_a_page(cluster: KubeCluster, namespace: str) -> None:
    await asyncio.gather(*(cluster.create(LEASES, namespace, {"metadata": {"name": f"lease-{n}"}}) for n in range(520)))
    assert len(await cluster.list(LEASES, namespace)) == 520
    for watch_list in (True, False):
        cluster.session.watch_list = watch_list
        names = set()
        async with aclosing(cluster.watch(LEASES, None)) as events:
            async for event in events:
                if isinstance(event, Upserted) and event.object.metadata.namespace == namespace:
                    names.add(event.object.metadata.name)
                if isinstance(event, Bookmark) and event.synced:
                    break
        assert len(names) == 520
        assert cluster.session.watch_list == watch_list


async def test_a_rotated_client_certificate_is_used_on_new_connections(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    config = json.loads(control_plane.kubeconfig("first").read_text())
    users = {
        name: json.loads(control_plane.kubeconfig(name).read_text())["users"][0]["user"] for name in ("first", "second")
    }
    files = {"client-certificate": tmp_path / "client.crt", "client-key": tmp_path / "client.key"}

    def install(user: str) -> None:
        for key, file in files.items():
            file.write_bytes(base64.b64decode(users[user][f"{key}-data"]))

    install("first")
    config["users"][0]["user"] = {key: str(file) for key, file in files.items()}
    (tmp_path / "config").write_text(json.dumps(config))
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}

    async with Session.connect(tmp_path / "config") as session:

        async def who() -> str:
            path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
            name: str = json.loads(await session.request("POST", path, None, review))["status"]["userInfo"]["username"]
            return name

        assert await who() == "first"
        install("second")
        assert await who() == "first"  # looked at once a minute
        session.credentials._check_at = 0.0
        assert await who() == "second"
