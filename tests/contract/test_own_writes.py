"""What our own account may write on the real API server, and the fence against a leader who was replaced."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from queuectl.contract.home import LEASE, NAMESPACE
from queuectl.contract.names import (
    FENCE,
    GATE,
    QUEUE_LABEL,
    RECORD,
    SUSPENSION,
    WAITING,
)
from tests.contract.support import (
    FOREIGN,
    LEASES,
    NOW,
    PIN,
    UNGATE,
    Json,
    fenced,
    gates,
    job,
    queued,
    refused,
    service,
    stale,
)
from tests.rig import crds
from tests.rig.client import MERGE, STRATEGIC, Api, ApiError
from tests.rig.controlplane import ControlPlane
from tests.rig.objects import paths

pytestmark = pytest.mark.rig


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
    "status": ({"status": {"phase": "Failed"}}, "/status", "the controller changes a pod's status alone"),
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


def said(kind: str, status: str = "True") -> Json:
    """A condition, as a status patch."""
    return {"status": {"conditions": [{"type": kind, "status": status, "reason": "NoCapacity", "message": "no room"}]}}


FORBIDDEN_STATUS: dict[str, tuple[Json, str]] = {
    "phase": ({"status": {"phase": "Failed"}}, f"no more of a pod's status than {WAITING}"),
    "nomination": ({"status": {"nominatedNodeName": "n"}}, f"no more of a pod's status than {WAITING}"),
    "another": (said("Ready"), f"no condition but {WAITING}"),
    "changed": (said("PodScheduled"), f"no condition but {WAITING}"),
    "gone": (
        {"status": {"conditions": [{"type": "PodScheduled", "$patch": "delete"}]}}, f"no condition but {WAITING}"
    ),
    "label": ({"metadata": {"labels": {"app": "x"}}}, "changes a pod's status alone"),
}  # fmt: skip


async def test_our_account_says_why_a_pod_waits(ours: Api, admin: Api, pod: str) -> None:
    """And takes it back, on the version that it saw."""
    version = (await admin.get(pod))["metadata"]["resourceVersion"]
    await ours.patch(f"{pod}/status", {"metadata": {"resourceVersion": version}, **said(WAITING)}, STRATEGIC)
    with pytest.raises(ApiError) as error:
        await ours.patch(
            f"{pod}/status", {"metadata": {"resourceVersion": version}, **said(WAITING, "False")}, STRATEGIC
        )
    assert error.value.status == 409
    found = await ours.patch(f"{pod}/status", said(WAITING, "False"), STRATEGIC)
    assert [(c["type"], c["status"]) for c in found["status"]["conditions"]] == [
        (WAITING, "False"),
        ("PodScheduled", "False"),
    ]


@pytest.mark.parametrize("what", FORBIDDEN_STATUS)
async def test_our_account_says_nothing_else_of_pods(ours: Api, pod: str, what: str) -> None:
    body, says = FORBIDDEN_STATUS[what]
    await refused(ours.patch(f"{pod}/status", body, STRATEGIC), says)


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


async def test_our_account_evicts_the_very_pod_it_means(ours: Api, admin: Api, pod: str) -> None:
    """By its UID, and not without one: a pod of that name may have been made since."""
    uid = (await admin.get(pod))["metadata"]["uid"]
    body: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "one"}}
    unnamed: tuple[Json, ...] = ({}, {"deleteOptions": {}}, {"deleteOptions": {"preconditions": {"uid": ""}}})
    for options in unnamed:
        await refused(
            ours.create(f"{pod}/eviction", {**body, **options}), "the controller evicts a pod only by its UID"
        )
    other = {"deleteOptions": {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}}
    with pytest.raises(ApiError) as error:
        await ours.create(f"{pod}/eviction", {**body, **other})
    assert error.value.status == 409
    assert "deletionTimestamp" not in (await admin.get(pod))["metadata"]
    await ours.create(f"{pod}/eviction", {**body, "deleteOptions": {"preconditions": {"uid": uid}}})
    await admin.wait_gone(pod)


async def test_others_evict_as_they_did(tenant: Api, admin: Api, pod: str) -> None:
    """A drain names no UID. (The role `edit` may evict.)"""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "one"}}
    await tenant.create(f"{pod}/eviction", body)
    await admin.wait_gone(pod)


async def test_our_account_writes_no_sets(ours: Api, tenant: Api, namespace: str) -> None:
    sets = f"/apis/apps/v1/namespaces/{namespace}/statefulsets"
    await tenant.create(sets, service("StatefulSet", "web"))
    await refused(ours.patch(f"{sets}/web", fenced(NOW, spec={"replicas": 0})), "cannot patch resource")


@pytest.fixture
async def job_set(admin: Api, namespace: str) -> AsyncIterator[str]:
    """Path of a JobSet. Its definition is gone after the test."""
    async with crds.installed(admin, crds.JOB_SETS):
        path = crds.collection(crds.JOB_SETS, namespace)
        one = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "train"}}
        await admin.create(path, {**one, "spec": {"suspend": True, "replicatedJobs": [{"name": "a"}]}})
        yield f"{path}/train"


async def test_our_account_suspends_and_resumes_jobsets_only(ours: Api, job_set: str, lease: str) -> None:
    """Fenced as with Jobs."""
    assert lease
    await stale(ours, job_set, fenced(3, spec={"suspend": False}))
    await ours.patch(job_set, fenced(4, spec={"suspend": False}, metadata={"annotations": {SUSPENSION: "u:1:resumed"}}))
    await refused(ours.patch(job_set, fenced(4, spec={"replicatedJobs": []})), "only suspends and resumes JobSets")
    await refused(ours.patch(job_set, {"spec": {"suspend": True}, "metadata": {"labels": {"a": "b"}}}), "no label but")
    await refused(ours.delete(job_set), "cannot delete resource")


# --- the fence -----------------------------------------------------------------------------------------------------


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


async def test_our_account_leads_with_its_own_rights(ours: Api, admin: Api) -> None:
    await ours.create(LEASES, {"metadata": {"name": LEASE}, "spec": {"holderIdentity": "a", "leaseTransitions": 0}})
    await ours.patch(f"{LEASES}/{LEASE}", {"spec": {"leaseDurationSeconds": 15, "leaseTransitions": 1}})
    await refused(ours.delete(f"{LEASES}/{LEASE}"), "cannot delete resource")
    await admin.delete(f"{LEASES}/{LEASE}")


async def test_nobody_deletes_the_lease(control_plane: ControlPlane, admin: Api, namespace: str, lease: str) -> None:
    """It carries the fence: a new one would begin at 0, which every earlier leader's writes pass."""
    user = f"owner-of-{NAMESPACE}-in-{namespace}"
    async with Api(control_plane.tenant(NAMESPACE, user)) as owner:
        await owner.create(LEASES, {"metadata": {"name": "another"}, "spec": {"holderIdentity": "b"}})
        await owner.delete(f"{LEASES}/another")
        for path in (lease, LEASES):  # one by one, or all
            await refused(owner.delete(path), "this Lease holds the fence that keeps earlier leaders from writing")
    assert (await admin.get(lease))["spec"]["leaseTransitions"] == 4
