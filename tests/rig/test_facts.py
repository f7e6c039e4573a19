"""Answers of the API server on which the product's design rests; a new Kubernetes version may change them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rig.client import JSON_PATCH, MERGE, STRATEGIC, Api, ApiError
from tests.rig.kubelet import MakeNodes
from tests.rig.objects import GATE, gated_pod, paths, pin_patch

pytestmark = pytest.mark.rig


def term(node: str, zone: str = "") -> dict[str, Any]:
    expressions = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} if zone else {}
    fields = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} if node else {}
    return {**expressions, **fields}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


async def refused(api: Api, path: str, patch: object, content_type: str = MERGE) -> ApiError:
    with pytest.raises(ApiError) as error:
        await api.patch(path, patch, content_type)
    return error.value


async def test_a_pin_goes_into_every_term_of_the_user(admin: Api, namespace: str) -> None:
    _, pods = paths(namespace)
    await admin.create(pods, gated_pod("a", affinity=required(term("", "x"), term("", "y"))))
    third = {"spec": {"affinity": required(term("", "x"), term("", "y"), term("n"))}}
    assert (await refused(admin, f"{pods}/a", third)).status == 422
    both = {"spec": {"affinity": required(term("n", "x"), term("n", "y")), "schedulingGates": None}}
    assert "schedulingGates" not in (await admin.patch(f"{pods}/a", both))["spec"]


async def test_a_merge_patch_takes_foreign_gates_too(admin: Api, namespace: str) -> None:
    _, pods = paths(namespace)
    await admin.create(pods, gated_pod("a", gates=["example.com/mine", GATE]))
    assert "schedulingGates" not in (await admin.patch(f"{pods}/a", {"spec": {"schedulingGates": None}}))["spec"]


async def test_removing_a_gate_that_is_gone(admin: Api, namespace: str) -> None:
    _, pods = paths(namespace)
    pod = await admin.create(pods, gated_pod("a"))
    for _ in range(2):
        assert "schedulingGates" not in (await admin.patch(f"{pods}/a", {"spec": {"schedulingGates": None}}))["spec"]
    tested = [step for step in pin_patch(pod, "n", JSON_PATCH) if "Version" not in step["path"]]
    assert (await refused(admin, f"{pods}/a", tested, JSON_PATCH)).status == 422


async def test_no_pin_without_a_gate(admin: Api, namespace: str) -> None:
    _, pods = paths(namespace)
    await admin.create(pods, gated_pod("a", gates=()))
    assert (await refused(admin, f"{pods}/a", {"spec": {"affinity": required(term("n"))}})).status == 422


async def test_an_older_version_loses_to_an_annotation(admin: Api, namespace: str) -> None:
    """The fence that stops a paused writer."""
    _, pods = paths(namespace)
    seen = await admin.create(pods, gated_pod("a"))
    await admin.patch(f"{pods}/a", {"metadata": {"annotations": {"queuectl.io/fence": "2"}}})
    assert (await refused(admin, f"{pods}/a", pin_patch(seen, "n"), STRATEGIC)).status == 409


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"limits": {"nvidia.com/gpu": "200m"}}, "must be an integer"),
        ({"requests": {"nvidia.com/gpu": "1"}}, "Limit must be set for non overcommitable resources"),
        ({"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "2"}}, "must be equal to nvidia.com/gpu"),
    ],
)
async def test_gpus_are_whole_and_not_overcommitted(
    resources: dict[str, Any], message: str, admin: Api, namespace: str
) -> None:
    _, pods = paths(namespace)
    container = {"name": "main", "image": "example.com/none", "resources": resources}
    with pytest.raises(ApiError, match=message):
        await admin.create(pods, gated_pod("a", containers=[container]))


async def test_no_gate_on_a_pod_that_names_its_node(admin: Api, namespace: str) -> None:
    _, pods = paths(namespace)
    with pytest.raises(ApiError, match="422"):
        await admin.create(pods, gated_pod("a", nodeName="n"))


async def test_a_budget_does_not_protect_a_pending_pod(admin: Api, namespace: str) -> None:
    _, pods = paths(namespace)
    await admin.create(pods, gated_pod("a", labels={"app": "x"}))
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "x"}}},
    }
    where = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    await admin.create(where, budget)
    await admin.wait(f"{where}/b", lambda b: b.get("status", {}).get("observedGeneration"))
    await admin.create(f"{pods}/a/eviction", eviction("a"))
    await admin.wait_gone(f"{pods}/a")


async def test_an_eviction_holds_for_one_uid(admin: Api, namespace: str, fake_nodes: MakeNodes) -> None:
    await fake_nodes(1)
    _, pods = paths(namespace)
    await admin.create(pods, gated_pod("a", gates=()))
    await admin.wait(f"{pods}/a", lambda p: p["status"]["phase"] == "Running")
    with pytest.raises(ApiError) as error:
        await admin.create(f"{pods}/a/eviction", eviction("a", "00000000-0000-0000-0000-000000000000"))
    assert error.value.status == 409
    assert "deletionTimestamp" not in (await admin.get(f"{pods}/a"))["metadata"]


async def test_a_watch_that_begins_with_a_list(admin: Api, namespace: str) -> None:
    _, pods = paths(namespace)
    await admin.create(pods, gated_pod("a"))
    query = {"sendInitialEvents": True, "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": True}
    seen = []
    async for event in admin.watch(pods, **query):
        seen.append(event["type"])
        if event["type"] == "BOOKMARK":
            assert event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
            break
    assert seen == ["ADDED", "BOOKMARK"]


def eviction(name: str, uid: str = "") -> dict[str, Any]:
    options = {"deleteOptions": {"preconditions": {"uid": uid}}} if uid else {}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, **options}
