"""The rig's own tests: what the control plane does with gates, pins, Jobs and nodes, as far as we build on it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.rig import nodes as say
from tests.rig.audit import AuditLog, reads
from tests.rig.client import JSON_PATCH, MERGE, STRATEGIC, Api, ApiError, eventually
from tests.rig.controlplane import ControlPlane
from tests.rig.kubelet import MakeNodes
from tests.rig.objects import GATE, condition, gated_pod, indexed_job, paths, pin_patch

pytestmark = pytest.mark.rig


async def test_version(admin: Api) -> None:
    version = await admin.get("/version")
    assert version["gitVersion"] == "v1.37.2"
    assert (version["major"], version["minor"]) == ("1", "37")


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC, JSON_PATCH])
async def test_one_patch_pins_and_ungates(content_type: str, admin: Api, namespace: str, fake_nodes: MakeNodes) -> None:
    kubelet = await fake_nodes(3)
    _, pods = paths(namespace)
    target = sorted(kubelet.nodes)[1]
    pod = await admin.create(pods, gated_pod("a", gpus=1, annotations={say.RUN_SECONDS: "0.2"}))
    await admin.patch(f"{pods}/a", pin_patch(pod, target, content_type), content_type)
    done = await admin.wait(f"{pods}/a", lambda p: p["status"]["phase"] == "Succeeded")
    assert done["spec"]["nodeName"] == target
    await eventually(lambda: kubelet.counts["succeeded"] == 1)  # the reply reaches the kubelet after the store


async def test_refusals_of_a_patch(admin: Api, namespace: str) -> None:
    _, pods = paths(namespace)
    old = await admin.create(pods, gated_pod("a"))
    other = await admin.create(pods, gated_pod("b"))
    new = await admin.patch(f"{pods}/a", {"metadata": {"annotations": {"x": "y"}}})
    stale = await refusal(admin, f"{pods}/a", pin_patch(old, "n"))
    assert (stale.status, stale.reason) == (409, "Conflict")
    stranger = {**new, "metadata": {**new["metadata"], "uid": other["metadata"]["uid"]}}
    mistaken = await refusal(admin, f"{pods}/a", pin_patch(stranger, "n"))
    assert mistaken.status == 422
    assert "field is immutable" in mistaken.message


async def test_dry_run_stores_nothing(admin: Api, namespace: str) -> None:
    _, pods = paths(namespace)
    pod = await admin.create(pods, gated_pod("a"))
    shown = await admin.patch(f"{pods}/a", pin_patch(pod, "n"), STRATEGIC, dryRun="All")
    assert "schedulingGates" not in shown["spec"]
    stored = await admin.get(f"{pods}/a")
    assert stored["spec"]["schedulingGates"] == [{"name": GATE}]
    assert stored["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]


async def test_a_gate_cannot_come_back(admin: Api, namespace: str) -> None:
    _, pods = paths(namespace)
    pod = await admin.create(pods, gated_pod("a"))
    await admin.patch(f"{pods}/a", pin_patch(pod, "n"), STRATEGIC)
    refused = await refusal(admin, f"{pods}/a", {"spec": {"schedulingGates": [{"name": GATE}]}})
    assert refused.status == 422
    assert "only deletion is allowed" in refused.message


async def test_a_gated_pod_cannot_be_bound(admin: Api, namespace: str) -> None:
    _, pods = paths(namespace)
    await admin.create(pods, gated_pod("a"))
    target = {"apiVersion": "v1", "kind": "Node", "name": "n"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": target}
    with pytest.raises(ApiError) as refused:
        await admin.create(f"{pods}/a/binding", binding)
    assert refused.value.status == 409


async def test_a_foreign_gate_survives(admin: Api, namespace: str) -> None:
    _, pods = paths(namespace)
    pod = await admin.create(pods, gated_pod("a", gates=["example.com/mine", GATE]))
    after = await admin.patch(f"{pods}/a", pin_patch(pod, "n"), STRATEGIC)
    assert after["spec"]["schedulingGates"] == [{"name": "example.com/mine"}]


async def refusal(api: Api, path: str, patch: object) -> ApiError:
    with pytest.raises(ApiError) as refused:
        await api.patch(path, patch, STRATEGIC)
    return refused.value


async def test_a_job_that_is_created_suspended_has_no_pods(admin: Api, namespace: str) -> None:
    jobs, pods = paths(namespace)
    await admin.create(jobs, indexed_job("j", 2, suspend=True))
    suspended = await admin.wait(f"{jobs}/j", lambda j: condition(j, "Suspended") == "True")
    assert "startTime" not in suspended["status"]
    assert await admin.list(pods) == []


async def test_suspend_and_resume_do_not_count_as_failures(admin: Api, namespace: str, fake_nodes: MakeNodes) -> None:
    await fake_nodes(2)
    jobs, pods = paths(namespace)
    await admin.create(jobs, indexed_job("j", 4, gpus=1, backoffLimit=0))
    await admin.wait(f"{jobs}/j", lambda j: j["status"].get("ready") == 4)
    before = {p["metadata"]["uid"] for p in await admin.list(pods)}
    await admin.patch(f"{jobs}/j", {"spec": {"suspend": True}})
    await admin.wait(pods, lambda found: not found["items"])
    await admin.patch(f"{jobs}/j", {"spec": {"suspend": False}})
    job = await admin.wait(f"{jobs}/j", lambda j: j["status"].get("ready") == 4)
    assert not job["status"].get("failed")
    assert before.isdisjoint({p["metadata"]["uid"] for p in await admin.list(pods)})


async def test_an_evicted_pod_counts_as_a_failure(admin: Api, namespace: str, fake_nodes: MakeNodes) -> None:
    await fake_nodes(1)
    jobs, pods = paths(namespace)
    await admin.create(jobs, indexed_job("j", 2))
    await admin.wait(f"{jobs}/j", lambda j: j["status"].get("ready") == 2)
    victim = (await admin.list(pods))[0]["metadata"]
    await admin.create(
        f"{pods}/{victim['name']}/eviction",
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": victim["name"]},
            "deleteOptions": {"preconditions": {"uid": victim["uid"]}},
        },
    )
    await admin.wait(f"{jobs}/j", lambda j: j["status"].get("failed") == 1)


async def test_a_job_completes_or_fails_by_its_pods(admin: Api, namespace: str, fake_nodes: MakeNodes) -> None:
    await fake_nodes(1)
    jobs, _ = paths(namespace)
    await admin.create(jobs, indexed_job("good", 3, annotations={say.RUN_SECONDS: "0.1"}))
    await admin.create(
        jobs, indexed_job("bad", 1, annotations={say.RUN_SECONDS: "0.1", say.EXIT_CODE: "3"}, backoffLimit=0)
    )
    await admin.wait(f"{jobs}/good", lambda j: condition(j, "Complete") == "True" and j["status"]["succeeded"] == 3)
    await admin.wait(f"{jobs}/bad", lambda j: condition(j, "Failed") == "True" and j["status"]["failed"] == 1)


async def test_a_deleted_pod_ends_first(admin: Api, namespace: str, fake_nodes: MakeNodes) -> None:
    """As with a real kubelet: it runs on for its time, is reported as ended, and only then is gone."""
    await fake_nodes(1)
    _, pods = paths(namespace)
    await admin.create(pods, gated_pod("a", gates=(), annotations={say.STOP_SECONDS: "0.5"}))
    running = await admin.wait(f"{pods}/a", lambda p: p["status"]["phase"] == "Running")
    phases: list[tuple[str, str]] = []

    async def follow() -> None:
        version = running["metadata"]["resourceVersion"]
        async for event in admin.watch(pods, resourceVersion=version):
            phases.append((event["type"], event["object"]["status"]["phase"]))
            if event["type"] == "DELETED":
                return

    following = asyncio.create_task(follow())
    await admin.delete(f"{pods}/a")
    await asyncio.wait_for(following, 20)
    # The final delete may show as one more change, of the grace period.
    assert list(dict.fromkeys(phases)) == [("MODIFIED", "Running"), ("MODIFIED", "Failed"), ("DELETED", "Failed")]


async def test_scripted_failures_of_a_pod(admin: Api, namespace: str, fake_nodes: MakeNodes) -> None:
    kubelet = await fake_nodes(1)
    _, pods = paths(namespace)
    kubelet.reject(lambda pod: pod.metadata.name == "refused")
    hold = kubelet.hold(lambda pod: pod.metadata.name == "held")
    for name in ("refused", "held", "free"):
        await admin.create(pods, gated_pod(name, gates=()))
    refused = await admin.wait(f"{pods}/refused", lambda p: p["status"]["phase"] == "Failed")
    assert refused["status"]["reason"] == "UnexpectedAdmissionError"
    held = await admin.wait(f"{pods}/held", lambda p: p["status"].get("containerStatuses"))
    assert held["status"]["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
    await admin.wait(f"{pods}/free", lambda p: condition(p, "Ready") == "True")
    assert (await admin.get(f"{pods}/held"))["status"]["phase"] == "Pending"
    kubelet.lift(hold)
    started = await admin.wait(f"{pods}/held", lambda p: condition(p, "Ready") == "True")
    assert list(started["status"]["containerStatuses"][0]["state"]) == ["running"]


async def test_a_silent_node_is_tainted_and_comes_back(admin: Api, namespace: str, fake_nodes: MakeNodes) -> None:
    kubelet = await fake_nodes(3)
    lost = min(kubelet.nodes)
    path = f"/api/v1/nodes/{lost}"

    def tainted(node: Any) -> bool:
        return any(t["key"] == "node.kubernetes.io/unreachable" for t in node["spec"].get("taints") or [])

    kubelet.silence(lost)
    node = await admin.wait(path, tainted)
    assert condition(node, "Ready") == "Unknown"
    alive = [await admin.get(f"/api/v1/nodes/{name}") for name in kubelet.nodes if name != lost]
    assert not any(tainted(other) for other in alive)
    await kubelet.revive(lost)
    await admin.wait(path, lambda n: not tainted(n) and condition(n, "Ready") == "True")


async def test_the_audit_log_tells_who_removed_the_gate_and_who_bound(
    admin: Api, control_plane: ControlPlane, namespace: str, fake_nodes: MakeNodes
) -> None:
    kubelet = await fake_nodes(1)
    (node,) = kubelet.nodes
    _, pods = paths(namespace)
    log = AuditLog(control_plane.audit_path, from_end=True)
    control_plane.grant("queuectl", "edit", namespace)
    async with Api(control_plane.kubeconfig("queuectl")) as ours:
        await ours.list(pods)
        for name in ("a", "b"):
            pod = await admin.create(pods, gated_pod(name))
            await ours.patch(f"{pods}/{name}", pin_patch(pod, node), STRATEGIC)
    removals = await log.gate_removals(2, namespace)
    assert [(r.name, r.user) for r in removals] == [("a", "queuectl"), ("b", "queuectl")]
    assert removals[0].version < removals[1].version
    bound = await log.bindings(2, namespace)
    assert {(b.name, b.node, b.user) for b in bound} == {(n, node, "system:kube-scheduler") for n in "ab"}
    assert len(list(reads(log.events(), "queuectl"))) == 1


async def test_a_tenant_has_rights_in_its_namespace_only(
    control_plane: ControlPlane, namespace: str, admin: Api
) -> None:
    _, pods = paths(namespace)
    async with Api(control_plane.tenant(namespace, f"tenant-of-{namespace}")) as tenant:
        # The authorizer learns of a new binding by a watch.
        async def allowed() -> bool:
            status, _, _ = await tenant.raw("POST", pods, gated_pod("a"))
            assert status == 201
            return True

        await eventually(allowed)
        with pytest.raises(ApiError, match="403"):
            await tenant.list("/api/v1/pods")
        # Without a policy the role is enough to take our gate: the reason why there is one.
        pod = await admin.get(f"{pods}/a")
        assert "schedulingGates" not in (await tenant.patch(f"{pods}/a", pin_patch(pod, "n"), STRATEGIC))["spec"]


async def test_hundreds_of_pods_run_through(admin: Api, namespace: str, fake_nodes: MakeNodes) -> None:
    kubelet = await fake_nodes(5)
    jobs, _ = paths(namespace)
    await admin.create(jobs, indexed_job("many", 300, annotations={say.RUN_SECONDS: "0.1"}))
    await admin.wait(f"{jobs}/many", lambda j: condition(j, "Complete") == "True", 120)
    assert (kubelet.counts["succeeded"], kubelet.counts["failed"]) == (300, 0)
