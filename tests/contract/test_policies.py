"""The admission policies on the real API server: who gets the gate, who may take it, and what our account may not do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from queuectl.contract.admission import LEASE
from queuectl.contract.names import (
    DEFAULT_QUEUE_LABEL,
    FENCE,
    GATE,
    OPERATOR_HOLD,
    QUEUE_LABEL,
    RECORD,
    UNMANAGED_LABEL,
)
from queuectl.contract.policies import NAMESPACE
from tests.contract.conftest import fenced
from tests.rig.client import MERGE, STRATEGIC, Api, ApiError, eventually
from tests.rig.controlplane import ControlPlane
from tests.rig.objects import gated_pod, indexed_job, paths

pytestmark = pytest.mark.rig

Json = dict[str, Any]
FOREIGN = "example.com/quota"
NOW = 1_000_000  # a fence that no test's lease reaches, for writes that are not about the fence
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
UNGATE: Json = {"schedulingGates": [{"name": GATE, "$patch": "delete"}]}
PIN: Json = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-1"]}]}
                ]
            }
        }
    }
}


def gates(pod: Json) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", [])]


def queued(name: str = "one", queue: str = "vision", *, gated: tuple[str, ...] = (), **spec: Any) -> Json:
    return gated_pod(name, gates=gated, labels={QUEUE_LABEL: queue}, **spec)


def job(name: str = "train", count: int = 2, *, labels: Json | None = None, **spec: Any) -> Json:
    made: Json = indexed_job(name, count, **spec)
    made["metadata"]["labels"] = labels or {}
    return made


@pytest.fixture
async def pod(admin: Api, namespace: str) -> str:
    """Path of a gated pod of a queue, with a foreign gate and a foreign annotation beside."""
    made = queued(gated=(FOREIGN,))
    made["metadata"]["annotations"] = {"example.com/note": "theirs"}
    await admin.create(f"/api/v1/namespaces/{namespace}/pods", made)
    return f"/api/v1/namespaces/{namespace}/pods/one"


async def refused(request: Any, says: str) -> None:
    with pytest.raises(ApiError) as error:
        await request
    assert error.value.status in {403, 422}
    assert says in error.value.message


# --- where the gate comes from -------------------------------------------------------------------------------------


async def test_a_labelled_pod_gets_the_gate(tenant: Api, namespace: str) -> None:
    made = await tenant.create(paths(namespace)[1], queued())
    assert gates(made) == [GATE]


async def test_a_foreign_gate_is_kept(tenant: Api, namespace: str) -> None:
    made = await tenant.create(paths(namespace)[1], queued(gated=(FOREIGN,)))
    assert sorted(gates(made)) == sorted([FOREIGN, GATE])


async def test_a_gate_that_is_there_stays_the_only_one(tenant: Api, namespace: str) -> None:
    made = await tenant.create(paths(namespace)[1], queued(gated=(GATE, FOREIGN)))
    assert gates(made) == [GATE, FOREIGN]


async def test_pods_without_a_queue_are_left_alone(tenant: Api, namespace: str) -> None:
    pods = paths(namespace)[1]
    assert gates(await tenant.create(pods, gated_pod("plain", gates=()))) == []
    escaped = gated_pod("escaped", gates=(), labels={QUEUE_LABEL: "vision", UNMANAGED_LABEL: "true"})
    assert gates(await tenant.create(pods, escaped)) == []
    assert gates(await tenant.create(pods, gated_pod("bound", gates=(), nodeName="gpu-1"), dryRun="All")) == []


async def test_a_managed_pod_cannot_name_its_node(tenant: Api, namespace: str) -> None:
    await refused(tenant.create(paths(namespace)[1], queued(nodeName="gpu-1")), "must not name its node")


async def test_pods_of_a_job_are_labelled_and_gated(admin: Api, tenant: Api, namespace: str) -> None:
    jobs, pods = paths(namespace)
    made = await tenant.create(jobs, job(labels={QUEUE_LABEL: "vision"}))
    assert made["spec"]["template"]["metadata"]["labels"][QUEUE_LABEL] == "vision"
    found = (await admin.wait(pods, lambda seen: len(seen["items"]) == 2))["items"]
    assert [(gates(one), one["metadata"]["labels"][QUEUE_LABEL]) for one in found] == [([GATE], "vision")] * 2


async def test_a_job_whose_template_names_another_queue(tenant: Api, namespace: str) -> None:
    other = job(labels={QUEUE_LABEL: "vision"})
    other["spec"]["template"]["metadata"]["labels"] = {QUEUE_LABEL: "language"}
    await refused(tenant.create(paths(namespace)[0], other), "must be the Job's own")


async def test_an_unmanaged_template_is_no_contradiction(admin: Api, tenant: Api, namespace: str) -> None:
    jobs, pods = paths(namespace)
    other = job(count=1, labels={QUEUE_LABEL: "vision"})
    other["spec"]["template"]["metadata"]["labels"] = {UNMANAGED_LABEL: "true"}
    await tenant.create(jobs, other)
    (found,) = (await admin.wait(pods, lambda seen: seen["items"]))["items"]
    assert gates(found) == []


# --- the namespace's default queue ---------------------------------------------------------------------------------


@pytest.fixture
async def defaulted(admin: Api, namespace: str) -> str:
    """A namespace with a default queue, once the API server's policies see the label."""
    await admin.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {DEFAULT_QUEUE_LABEL: "shared"}}})

    async def seen() -> bool:
        return gates(await admin.create(paths(namespace)[1], gated_pod("probe", gates=()), dryRun="All")) == [GATE]

    await eventually(seen, what="the default queue applies")
    return namespace


async def test_pods_without_a_queue_get_the_default(tenant: Api, defaulted: str) -> None:
    made = await tenant.create(paths(defaulted)[1], gated_pod("plain", gates=(FOREIGN,), labels={"app": "x"}))
    assert made["metadata"]["labels"] == {"app": "x", QUEUE_LABEL: "shared"}
    assert sorted(gates(made)) == sorted([FOREIGN, GATE])


async def test_who_escapes_the_default(admin: Api, tenant: Api, defaulted: str) -> None:
    pods = paths(defaulted)[1]
    named = await tenant.create(pods, queued("named"))
    assert named["metadata"]["labels"][QUEUE_LABEL] == "vision"
    unmanaged = await tenant.create(pods, gated_pod("unmanaged", gates=(), labels={UNMANAGED_LABEL: "true"}))
    bound = await tenant.create(pods, gated_pod("bound", gates=(), nodeName="gpu-1"), dryRun="All")
    daemon = gated_pod("daemon", gates=())
    daemon["metadata"]["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}]
    daemon = await admin.create(pods, daemon, dryRun="All")
    for one in (unmanaged, bound, daemon):
        assert gates(one) == []
        assert QUEUE_LABEL not in one["metadata"].get("labels", {})


async def test_a_suspended_job_gets_the_default_and_so_do_its_pods(admin: Api, tenant: Api, defaulted: str) -> None:
    jobs, pods = paths(defaulted)
    made = await tenant.create(jobs, job(suspend=True))
    assert made["metadata"]["labels"][QUEUE_LABEL] == "shared"
    assert made["spec"]["template"]["metadata"]["labels"][QUEUE_LABEL] == "shared"
    assert await admin.list(pods) == []
    await tenant.patch(f"{jobs}/train", {"spec": {"suspend": False}})
    found = (await admin.wait(pods, lambda seen: len(seen["items"]) == 2))["items"]
    assert [gates(one) for one in found] == [[GATE]] * 2


# --- who may take the gate away ------------------------------------------------------------------------------------


async def test_a_tenant_cannot_remove_the_gate(tenant: Api, pod: str) -> None:
    says = "only who may 'release' podgroups.queuectl.io in this namespace removes the gate"
    await refused(tenant.patch(pod, {"spec": UNGATE}, STRATEGIC), says)
    await refused(tenant.patch(pod, {"spec": {"schedulingGates": None}}), says)
    await tenant.patch(pod, {"metadata": {"annotations": {"example.com/note": "changed"}}})


async def test_a_tenant_with_the_virtual_verb_can(control_plane: ControlPlane, namespace: str, pod: str) -> None:
    role = {
        "metadata": {"name": "break-glass"},
        "rules": [{"apiGroups": ["queuectl.io"], "resources": ["podgroups"], "verbs": ["release"]}],
    }
    assert control_plane.request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", role)[0] == 201
    user = f"helper-of-{namespace}"
    control_plane.grant(user, "break-glass", namespace)
    async with Api(control_plane.tenant(namespace, user)) as helper:

        async def released() -> bool:
            try:
                made = await helper.patch(pod, {"spec": UNGATE}, STRATEGIC)
            except ApiError as error:
                if error.status not in {403, 422}:  # the server's view of roles lags a little
                    raise
                return False
            return gates(made) == [FOREIGN]

        await eventually(released, what="released by the helper")
    control_plane.request("DELETE", "/apis/rbac.authorization.k8s.io/v1/clusterroles/break-glass")


async def test_labels_cannot_change(tenant: Api, pod: str) -> None:
    for label in (QUEUE_LABEL, UNMANAGED_LABEL, "queuectl.io/pod-group", "queuectl.io/role"):
        await refused(tenant.patch(pod, {"metadata": {"labels": {label: "true"}}}), f"the label {label} cannot change")
    await refused(tenant.patch(pod, {"metadata": {"labels": {QUEUE_LABEL: None}}}), "cannot change")
    await tenant.patch(pod, {"metadata": {"labels": {"app": "x"}}})


async def test_a_jobs_labels_cannot_change(tenant: Api, namespace: str) -> None:
    jobs = paths(namespace)[0]
    await tenant.create(jobs, job(suspend=True, labels={QUEUE_LABEL: "vision"}))
    path = f"{jobs}/train"
    await refused(tenant.patch(path, {"metadata": {"labels": {QUEUE_LABEL: "language"}}}), "cannot change")
    template = {"template": {"metadata": {"labels": {QUEUE_LABEL: "language"}}}}
    await refused(tenant.patch(path, {"spec": template}), "the pod template's label queuectl.io/queue cannot change")
    await tenant.patch(path, {"spec": {"suspend": False}})


async def test_the_operators_hold_is_not_the_tenants(admin: Api, tenant: Api, namespace: str) -> None:
    groups = f"/apis/queuectl.io/v1alpha1/namespaces/{namespace}/podgroups"
    await tenant.create(groups, {"apiVersion": "queuectl.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "g"},
                                 "spec": {"queue": "vision", "minMember": 1}})  # fmt: skip
    await admin.patch(f"{groups}/g", {"metadata": {"annotations": {OPERATOR_HOLD: "true"}}})
    await refused(
        tenant.patch(f"{groups}/g", {"metadata": {"annotations": {OPERATOR_HOLD: None}}}), "changes the annotation"
    )
    await tenant.patch(f"{groups}/g", {"spec": {"hold": True}})
    await refused(tenant.patch(f"{groups}/g/status", {"status": {"fence": 9}}), "cannot patch resource")
    await refused(
        tenant.patch("/apis/queuectl.io/v1alpha1/queues/vision", {"spec": {"weight": 9}}), "cannot patch resource"
    )


# --- what our own account may do -----------------------------------------------------------------------------------


async def test_our_account_pins_and_releases(ours: Api, pod: str) -> None:
    released = await ours.patch(pod, fenced(NOW, spec={**UNGATE, **PIN}), STRATEGIC)
    assert gates(released) == [FOREIGN]
    assert released["spec"]["affinity"] == PIN["affinity"]


async def test_our_account_writes_its_records_and_moves(ours: Api, pod: str) -> None:
    await ours.patch(pod, fenced(NOW, metadata={"annotations": {RECORD: "{}"}}))
    await ours.patch(pod, fenced(NOW, metadata={"annotations": {RECORD: None}}))
    moved = await ours.patch(pod, fenced(NOW, metadata={"labels": {QUEUE_LABEL: "language"}}))
    assert moved["metadata"]["labels"][QUEUE_LABEL] == "language"
    waiting = {"conditions": [{"type": "queuectl.io/Waiting", "status": "True", "reason": "NoCapacity"}]}
    await ours.patch(f"{pod}/status", fenced(NOW, status=waiting), STRATEGIC)


OTHER_TERM = {"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}
PREFER = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [OTHER_TERM]}}}
FORBIDDEN: dict[str, tuple[Json, str, str]] = {
    "foreign-gate": (
        {"spec": {"schedulingGates": [{"name": FOREIGN, "$patch": "delete"}]}}, "", "no scheduling gate but its own"
    ),
    "image": ({"spec": {"containers": [{"name": "main", "image": "evil"}]}}, "", "only pins and releases"),
    "node-selector": ({"spec": {"nodeSelector": {"a": "b"}}}, "", "only pins and releases"),
    "preference": ({"spec": PREFER}, "", "only pins and releases"),
    "deadline": ({"spec": {"activeDeadlineSeconds": 5}}, "", "only pins and releases"),
    "annotation": ({"metadata": {"annotations": {"example.com/note": "ours"}}}, "", "no annotations but its own"),
    "annotation-gone": ({"metadata": {"annotations": {"example.com/note": None}}}, "", "no annotations but its own"),
    "label": ({"metadata": {"labels": {"app": "x"}}}, "", "no label but queuectl.io/queue"),
    "finalizer": ({"metadata": {"finalizers": ["example.com/f"]}}, "", "neither finalizers nor owners"),
    "phase": ({"status": {"phase": "Failed"}}, "/status", "no part of a pod's status"),
    "nomination": ({"status": {"nominatedNodeName": "gpu-1"}}, "/status", "no part of a pod's status"),
    "condition": (
        {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, "/status", "no part of a pod's status"
    ),
    "annotation-by-status": (
        {"metadata": {"annotations": {"example.com/note": "ours"}}}, "/status", "no annotations but its own"
    ),
}  # fmt: skip


async def test_the_largest_pods_can_be_released(admin: Api, ours: Api, namespace: str) -> None:
    """Policies have a budget: comparing what must not change has to fit into it for any pod that the server stores."""
    pods = paths(namespace)[1]
    large = queued(gated=tuple(f"example.com/gate-{n}" for n in range(50)))
    large["metadata"]["annotations"] = {f"example.com/{'k' * 40}-{n}": "v" * 30 for n in range(2500)}  # of 256 KiB
    large["metadata"]["labels"] |= {f"example.com/label-{n}": "v" * 60 for n in range(500)}
    large["metadata"]["finalizers"] = [f"example.com/{n}" for n in range(50)]
    container = large["spec"]["containers"][0]
    variables = [{"name": f"NAME_{n}", "value": "v" * 100} for n in range(100)]
    large["spec"]["containers"] = [{**container, "name": f"c{n}", "env": variables} for n in range(40)]
    large["spec"]["tolerations"] = [{"key": f"k{n}", "operator": "Exists"} for n in range(200)]
    await admin.create(pods, large)
    released = await ours.patch(f"{pods}/one", fenced(NOW, spec={**UNGATE, **PIN}), STRATEGIC)
    assert GATE not in gates(released)
    await admin.patch(f"{pods}/one", {"metadata": {"finalizers": None}})


@pytest.mark.parametrize("what", FORBIDDEN)
async def test_our_account_does_nothing_else_to_pods(ours: Api, pod: str, what: str) -> None:
    body, where, says = FORBIDDEN[what]
    await refused(ours.patch(pod + where, fenced(NOW, **body), STRATEGIC), says)


async def test_our_account_cannot_take_all_gates(ours: Api, pod: str) -> None:
    """The merge patch that an eager writer would send, which the API server itself accepts."""
    await refused(ours.patch(pod, fenced(NOW, spec={"schedulingGates": None}), MERGE), "no scheduling gate but its own")


async def test_our_account_cannot_delete_or_create_pods(ours: Api, namespace: str, pod: str) -> None:
    await refused(ours.delete(pod), "cannot delete resource")
    await refused(ours.create(paths(namespace)[1], queued("two")), "cannot create resource")


async def test_our_account_suspends_and_resumes_jobs_only(ours: Api, tenant: Api, namespace: str) -> None:
    jobs = paths(namespace)[0]
    await tenant.create(jobs, job(labels={QUEUE_LABEL: "vision"}, suspend=True))
    path = f"{jobs}/train"
    await ours.patch(path, fenced(NOW, spec={"suspend": False}))
    await ours.patch(path, fenced(NOW, spec={"suspend": True}))
    await ours.patch(path, fenced(NOW, metadata={"labels": {QUEUE_LABEL: "language"}}))
    await refused(ours.patch(path, fenced(NOW, spec={"parallelism": 1})), "only suspends and resumes")
    await refused(ours.patch(path, fenced(NOW, spec={"activeDeadlineSeconds": 9})), "only suspends and resumes")


# --- the fence -----------------------------------------------------------------------------------------------------


@pytest.fixture
async def lease(admin: Api) -> AsyncIterator[str]:
    """Our lease after four take-overs; gone after the test."""
    await admin.create(LEASES, {"metadata": {"name": LEASE}, "spec": {"holderIdentity": "a", "leaseTransitions": 4}})
    yield f"{LEASES}/{LEASE}"
    await admin.delete(f"{LEASES}/{LEASE}")


async def stale(ours: Api, path: str, body: Json, says: str = "stale fence") -> None:
    """Wait until this write is refused as stale: policies see a change of the lease a little later (30 ms measured)."""

    async def look() -> bool:
        try:
            await ours.patch(path, body, STRATEGIC if "/queuectl.io/" not in path else MERGE, dryRun="All")
        except ApiError as error:
            if error.status not in {403, 422}:
                raise
            return says in error.message
        return False

    await eventually(look, what=f"{says}: {path}")


async def test_a_stale_fence_releases_nothing(ours: Api, pod: str, admin: Api, lease: str) -> None:
    release = {**UNGATE, **PIN}
    await stale(ours, pod, fenced(3, spec=release))
    await stale(ours, pod, {"spec": release}, "every write of the controller carries the annotation")
    await admin.patch(lease, {"spec": {"leaseTransitions": 5}})
    await stale(ours, pod, fenced(4, spec=release))
    assert sorted(gates(await admin.get(pod))) == sorted([FOREIGN, GATE])
    assert gates(await ours.patch(pod, fenced(5, spec=release), STRATEGIC)) == [FOREIGN]


async def test_a_fence_that_is_no_number(ours: Api, pod: str, lease: str) -> None:
    assert lease
    await stale(ours, pod, {"metadata": {"annotations": {FENCE: "many"}}}, "every write of the controller carries")


async def test_a_stale_fence_suspends_nothing(ours: Api, tenant: Api, namespace: str, lease: str) -> None:
    assert lease
    jobs = paths(namespace)[0]
    await tenant.create(jobs, job(labels={QUEUE_LABEL: "vision"}))
    await stale(ours, f"{jobs}/train", fenced(3, spec={"suspend": True}))
    await ours.patch(f"{jobs}/train", fenced(4, spec={"suspend": True}), STRATEGIC)


async def test_a_stale_fence_records_nothing(ours: Api, admin: Api, namespace: str, unique: str, lease: str) -> None:
    assert lease
    root = "/apis/queuectl.io/v1alpha1"
    meta = {"apiVersion": "queuectl.io/v1alpha1", "metadata": {"name": unique}}
    groups, queues = f"{root}/namespaces/{namespace}/podgroups", f"{root}/queues"
    await ours.create(groups, {**meta, "kind": "PodGroup", "spec": {"queue": "vision", "minMember": 1}})
    await admin.create(queues, {**meta, "kind": "Queue", "spec": {}})
    for path in (f"{groups}/{unique}/status", f"{queues}/{unique}/status"):
        await stale(ours, path, {"status": {"fence": 3}})
        await stale(ours, path, {"status": {"observedGeneration": 1}})  # without any fence
        await ours.patch(path, {"status": {"fence": 4}})
        await ours.patch(path, {"status": {"observedGeneration": 1}})  # the stored fence is fresh
        await stale(ours, path, {"status": {"fence": 3}})
    await admin.delete(f"{queues}/{unique}")


async def test_others_need_no_fence(tenant: Api, pod: str, lease: str) -> None:
    assert lease
    await tenant.patch(pod, {"metadata": {"annotations": {"example.com/note": "theirs still"}}})


async def test_our_account_leads_with_its_own_rights(ours: Api) -> None:
    made = await ours.create(
        LEASES, {"metadata": {"name": LEASE}, "spec": {"holderIdentity": "a", "leaseTransitions": 0}}
    )
    made["spec"]["leaseTransitions"] = 1
    await ours.update(f"{LEASES}/{LEASE}", made)
    await ours.patch(f"{LEASES}/{LEASE}", {"spec": {"leaseDurationSeconds": 15}})
    await refused(ours.delete(f"{LEASES}/{LEASE}"), "cannot delete resource")


# --- the policies themselves ---------------------------------------------------------------------------------------


async def test_the_server_finds_nothing_wrong_with_them(admin: Api) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    found = await admin.wait(path, lambda seen: all("typeChecking" in one.get("status", {}) for one in seen["items"]))
    warnings = {
        one["metadata"]["name"]: one["status"]["typeChecking"].get("expressionWarnings")
        for one in found["items"]
        if one["metadata"]["name"].startswith("queuectl-")
    }
    assert len(warnings) == 9
    assert not any(warnings.values())


async def test_view_and_edit_include_our_kinds(control_plane: ControlPlane, tenant: Api, namespace: str) -> None:
    groups = f"/apis/queuectl.io/v1alpha1/namespaces/{namespace}/podgroups"
    body = {"apiVersion": "queuectl.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "g"},
            "spec": {"queue": "vision", "minMember": 1}}  # fmt: skip
    await tenant.create(groups, body)
    viewer = f"viewer-of-{namespace}"
    control_plane.grant(viewer, "view", namespace)
    control_plane.grant(viewer, "queuectl-queues-view")
    async with Api(control_plane.kubeconfig(viewer)) as api:

        async def seen() -> bool:
            try:
                await api.list("/apis/queuectl.io/v1alpha1/queues")
                return [one["metadata"]["name"] for one in await api.list(groups)] == ["g"]
            except ApiError as error:
                if error.status != 403:  # the server's view of roles lags a little
                    raise
                return False

        await eventually(seen, what="the viewer sees")
        await refused(api.delete(f"{groups}/g"), "cannot delete resource")
