"""The admission policies on the real API server: who gets the gate, and who may take it away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from queuectl.contract.names import (
    DEFAULT_QUEUE_LABEL,
    FENCE,
    GATE,
    OPERATOR_HOLD,
    QUEUE_LABEL,
    RECORD,
    SUSPENSION,
    UNMANAGED_LABEL,
)
from queuectl.contract.publish import manifests
from tests.contract.support import (
    FOREIGN,
    NOW,
    OURS,
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
from tests.rig.apply import apply
from tests.rig.client import STRATEGIC, Api, ApiError, eventually
from tests.rig.controlplane import ControlPlane
from tests.rig.objects import condition, gated_pod, paths

pytestmark = pytest.mark.rig


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


async def test_a_kubelets_report_of_a_static_pod(control_plane: ControlPlane, namespace: str) -> None:
    """It already runs where it says; and a tenant cannot pretend to be a kubelet, which is a matter of certificates."""
    user = f"system:node:of-{namespace}"
    control_plane.grant(user, "edit", namespace)
    static = queued(nodeName="gpu-1")
    static["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "hash"
    pods = paths(namespace)[1]
    async with Api(control_plane.kubeconfig(user, ["system:nodes"])) as kubelet:
        assert gates(await kubelet.create(pods, static, dryRun="All")) == []
    async with Api(control_plane.kubeconfig(user)) as other:
        await refused(other.create(pods, static, dryRun="All"), "must not name its node")


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


# --- Deployments, StatefulSets, ReplicaSets --------------------------------------------------------------------------


def sets(namespace: str, kind: str) -> str:
    """URL path of the namespace's sets of this kind."""
    return f"/apis/apps/v1/namespaces/{namespace}/{kind.lower()}s"


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
async def test_pods_of_a_service_are_labelled_and_gated(admin: Api, tenant: Api, namespace: str, kind: str) -> None:
    """Its label goes to the template; and a Deployment does not make one ReplicaSet after another for it."""
    pods, here = paths(namespace)[1], sets(namespace, kind)
    await tenant.create(here, service(kind, labels={QUEUE_LABEL: "vision"}))
    (found,) = (await admin.wait(pods, lambda seen: seen["items"]))["items"]
    assert (gates(found), found["metadata"]["labels"][QUEUE_LABEL]) == ([GATE], "vision")
    answer = await tenant.patch(f"{here}/web", {"spec": {"template": {"metadata": {"labels": {QUEUE_LABEL: None}}}}})
    assert answer["spec"]["template"]["metadata"]["labels"][QUEUE_LABEL] == "vision"
    if kind == "Deployment":
        (made,) = (await admin.get(sets(namespace, "ReplicaSet")))["items"]
        assert made["metadata"]["labels"][QUEUE_LABEL] == "vision"


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
async def test_a_service_whose_template_names_another_queue(tenant: Api, namespace: str, kind: str) -> None:
    other = service(kind, labels={QUEUE_LABEL: "vision"}, inner={QUEUE_LABEL: "language"})
    await refused(tenant.create(sets(namespace, kind), other), "must be the owner's own")


async def test_the_queue_of_a_set_cannot_change(tenant: Api, namespace: str) -> None:
    """Its PodGroup would keep the old one. A Deployment may: it makes another ReplicaSet."""
    move = {"spec": {"template": {"metadata": {"labels": {QUEUE_LABEL: "language"}}}}}
    for kind in ("StatefulSet", "ReplicaSet", "Deployment"):
        here = sets(namespace, kind)
        await tenant.create(here, service(kind, kind.lower(), inner={QUEUE_LABEL: "vision"}, count=0))
        if kind == "Deployment":
            await tenant.patch(f"{here}/deployment", move)
            continue
        await refused(tenant.patch(f"{here}/{kind.lower()}", move), f"label {QUEUE_LABEL} cannot change")
        gone = {"spec": {"template": {"metadata": {"labels": {QUEUE_LABEL: None}}}}}
        await refused(tenant.patch(f"{here}/{kind.lower()}", gone), f"label {QUEUE_LABEL} cannot change")


async def test_a_set_without_a_queue_may_be_given_one(tenant: Api, namespace: str) -> None:
    here = sets(namespace, "StatefulSet")
    await tenant.create(here, service("StatefulSet", count=0))
    moved = await tenant.patch(f"{here}/web", {"spec": {"template": {"metadata": {"labels": {QUEUE_LABEL: "vision"}}}}})
    assert moved["spec"]["template"]["metadata"]["labels"][QUEUE_LABEL] == "vision"


async def test_a_service_without_a_queue_is_left_alone(admin: Api, tenant: Api, namespace: str) -> None:
    await tenant.create(sets(namespace, "Deployment"), service("Deployment"))
    (found,) = (await admin.wait(paths(namespace)[1], lambda seen: seen["items"]))["items"]
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


async def test_an_empty_label_counts_as_none(admin: Api, tenant: Api, defaulted: str) -> None:
    jobs, pods = paths(defaulted)
    made = await tenant.create(pods, queued(queue=""), dryRun="All")
    assert (made["metadata"]["labels"][QUEUE_LABEL], gates(made)) == ("shared", [GATE])
    for labels in ({}, {QUEUE_LABEL: ""}):
        empty = job(labels=labels, suspend=True)
        empty["spec"]["template"]["metadata"]["labels"] = {QUEUE_LABEL: ""}
        made = await tenant.create(jobs, empty, dryRun="All")
        found = made["metadata"]["labels"], made["spec"]["template"]["metadata"]["labels"]
        assert [one[QUEUE_LABEL] for one in found] == ["shared"] * 2
    await admin.patch(f"/api/v1/namespaces/{defaulted}", {"metadata": {"labels": {DEFAULT_QUEUE_LABEL: ""}}})

    async def gone() -> bool:
        return gates(await tenant.create(pods, gated_pod("probe", gates=()), dryRun="All")) == []

    await eventually(gone, what="an empty default is none")


async def test_a_pod_with_an_empty_label_is_left_alone(tenant: Api, namespace: str) -> None:
    jobs, pods = paths(namespace)
    assert gates(await tenant.create(pods, queued(queue=""), dryRun="All")) == []
    assert gates(await tenant.create(pods, queued(queue="", nodeName="gpu-1"), dryRun="All")) == []
    other = job(labels={QUEUE_LABEL: ""})
    other["spec"]["template"]["metadata"]["labels"] = {QUEUE_LABEL: "vision"}
    await tenant.create(jobs, other, dryRun="All")  # as one without the label may
    named = job(labels={QUEUE_LABEL: "vision"})
    named["spec"]["template"]["metadata"]["labels"] = {QUEUE_LABEL: ""}
    made = await tenant.create(jobs, named, dryRun="All")
    assert made["spec"]["template"]["metadata"]["labels"][QUEUE_LABEL] == "vision"


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


async def test_a_held_group_stays(control_plane: ControlPlane, admin: Api, tenant: Api, namespace: str) -> None:
    """Else the next one of its Job would be derived without the hold."""
    groups = f"/apis/queuectl.io/v1alpha1/namespaces/{namespace}/podgroups"
    jobs = paths(namespace)[0]
    owner = (await tenant.create(jobs, job(suspend=True)))["metadata"]
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": owner["uid"]}
    body = {"apiVersion": "queuectl.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "g"},
            "spec": {"queue": "vision", "minMember": 1}}  # fmt: skip
    await tenant.create(groups, body)
    await tenant.delete(f"{groups}/g")
    body["metadata"] = {"name": "g", "ownerReferences": [reference]}
    await tenant.create(groups, body)
    await admin.patch(f"{groups}/g", {"metadata": {"annotations": {OPERATOR_HOLD: "broken"}}})
    for path in (f"{groups}/g", groups):  # one by one, or all
        await refused(tenant.delete(path), f"it carries the annotation {OPERATOR_HOLD}: only who may 'release'")
    gone = {"metadata": {"ownerReferences": [{**reference, "uid": "of-nobody"}]}}
    await refused(tenant.patch(f"{groups}/g", gone), "changes its owners")
    await tenant.patch(f"{groups}/g", {"metadata": {"labels": {"app": "x"}}})
    await tenant.delete(f"{jobs}/train", {"propagationPolicy": "Background"})
    await admin.wait(groups, lambda seen: not seen["items"])  # with its Job it goes


# --- the controller's own annotations ------------------------------------------------------------------------------


def annotated(obj: Json, name: str) -> Json:
    obj["metadata"].setdefault("annotations", {})[name] = "1"
    return obj


OWN_OF_PODS, OWN_OF_JOBS, OWN_OF_TEMPLATES = (FENCE, RECORD), (FENCE, SUSPENSION), (FENCE, RECORD)
OWN = "is the controller's own"


async def test_a_tenant_forges_no_record_on_pods(admin: Api, tenant: Api, ours: Api, namespace: str, pod: str) -> None:
    pods = paths(namespace)[1]
    for name in OWN_OF_PODS:
        await refused(tenant.create(pods, annotated(queued("forged"), name), dryRun="All"), OWN)
        await refused(tenant.create(pods, annotated(gated_pod("forged", gates=()), name), dryRun="All"), OWN)
        await refused(tenant.patch(pod, {"metadata": {"annotations": {name: "1"}}}), f"the annotation {name} {OWN}")
    await ours.patch(pod, fenced(NOW, metadata={"annotations": {RECORD: "{}"}}))
    for name in OWN_OF_PODS:
        for value in ("1", None):
            await refused(tenant.patch(pod, {"metadata": {"annotations": {name: value}}}), OWN)
    changed = await tenant.patch(pod, {"metadata": {"annotations": {"example.com/note": "x"}, "labels": {"app": "x"}}})
    assert changed["metadata"]["annotations"] | {FENCE: str(NOW), RECORD: "{}"} == changed["metadata"]["annotations"]


async def test_a_tenant_forges_no_record_on_jobs(tenant: Api, ours: Api, namespace: str) -> None:
    jobs = paths(namespace)[0]

    def template(name: str) -> Json:
        made = job(labels={QUEUE_LABEL: "vision"})
        annotated(made["spec"]["template"], name)
        return made

    for name in OWN_OF_JOBS:
        await refused(tenant.create(jobs, annotated(job(), name), dryRun="All"), f"the annotation {name} {OWN}")
    for name in OWN_OF_TEMPLATES:
        await refused(tenant.create(jobs, template(name), dryRun="All"), f"the pod template's annotation {name} {OWN}")
    await tenant.create(jobs, job(suspend=True, labels={QUEUE_LABEL: "vision"}))
    path = f"{jobs}/train"
    for name in OWN_OF_JOBS:
        await refused(tenant.patch(path, {"metadata": {"annotations": {name: "1"}}}), OWN)
    for name in OWN_OF_TEMPLATES:
        inner = {"template": {"metadata": {"annotations": {name: "1"}}}}
        await refused(tenant.patch(path, {"spec": inner}), f"the pod template's annotation {name} {OWN}")
    await ours.patch(path, fenced(NOW, metadata={"annotations": {SUSPENSION: "1:resumed"}}, spec={"suspend": False}))
    for name in OWN_OF_JOBS:
        for value in ("1", None):
            await refused(tenant.patch(path, {"metadata": {"annotations": {name: value}}}), OWN)
    await tenant.patch(path, {"metadata": {"labels": {"app": "x"}}, "spec": {"suspend": True}})


async def test_pods_that_carry_records_run_and_end(admin: Api, ours: Api, tenant: Api, namespace: str) -> None:
    """Those who work on pods and Jobs besides us are not hindered: the Job controller takes its finalizer away."""
    jobs, pods = paths(namespace)
    await tenant.create(jobs, job(count=1, labels={QUEUE_LABEL: "vision"}))
    (made,) = (await admin.wait(pods, lambda seen: seen["items"]))["items"]
    path = f"{pods}/{made['metadata']['name']}"
    await ours.patch(path, fenced(NOW, metadata={"annotations": {RECORD: "{}"}}))
    await ours.patch(f"{jobs}/train", fenced(NOW, spec={"suspend": True}))
    await admin.wait(pods, lambda seen: not seen["items"])
    suspended = await admin.wait(f"{jobs}/train", lambda seen: condition(seen, "Suspended") == "True")
    assert suspended["metadata"]["annotations"][FENCE] == str(NOW)
    await tenant.delete(f"{jobs}/train", {"propagationPolicy": "Background"})


# --- the policies themselves ---------------------------------------------------------------------------------------


async def test_the_server_finds_nothing_wrong_with_them(admin: Api) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    found = await admin.wait(path, lambda seen: all("typeChecking" in one.get("status", {}) for one in seen["items"]))
    warnings = {
        one["metadata"]["name"]: one["status"]["typeChecking"].get("expressionWarnings")
        for one in found["items"]
        if one["metadata"]["name"].startswith("queuectl-")
    }
    assert len(warnings) == 19
    assert not any(warnings.values())


async def without(plane: ControlPlane, policy: str, attempt: Callable[[], Awaitable[int]]) -> None:
    """The attempt is refused because of this policy and of nothing else: it passes while the binding is away."""
    assert await attempt() == 422
    binding = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/{policy}"
    assert plane.request("DELETE", binding)[0] == 200

    async def answers(status: int) -> bool:
        return await attempt() == status

    try:
        await eventually(lambda: answers(200), what=f"without {policy} it passes")
    finally:
        apply(plane, [one for one in manifests(user=OURS) if one["metadata"]["name"] == policy])
        await eventually(lambda: answers(422), what=f"with {policy} it is refused again")


async def test_it_is_the_policy_that_guards_the_gate(control_plane: ControlPlane, tenant: Api, pod: str) -> None:
    async def attempt() -> int:
        return (await tenant.raw("PATCH", pod, {"spec": UNGATE}, content_type=STRATEGIC, dryRun="All"))[0]

    await without(control_plane, "queuectl-release", attempt)


async def test_it_is_the_policy_that_holds_the_fence(
    control_plane: ControlPlane, ours: Api, pod: str, lease: str
) -> None:
    assert lease
    late = fenced(3, spec=UNGATE)
    await stale(ours, pod, late)

    async def attempt() -> int:
        return (await ours.raw("PATCH", pod, late, content_type=STRATEGIC, dryRun="All"))[0]

    await without(control_plane, "queuectl-fence", attempt)


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
