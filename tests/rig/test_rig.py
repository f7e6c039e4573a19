"""The rig's own tests: what the control plane does with gates, pins, Jobs and nodes, as far as we build on it."""

from __future__ import annotations

import pytest

from tests.rig import nodes as say
from tests.rig.client import JSON_PATCH, MERGE, STRATEGIC, Api, ApiError, eventually
from tests.rig.kubelet import MakeNodes
from tests.rig.objects import GATE, gated_pod, pin_patch

pytestmark = pytest.mark.rig


async def test_version(admin: Api) -> None:
    version = await admin.get("/version")
    assert version["gitVersion"] == "v1.37.2"
    assert (version["major"], version["minor"]) == ("1", "37")


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC, JSON_PATCH])
async def test_one_patch_pins_and_ungates(content_type: str, admin: Api, namespace: str, fake_nodes: MakeNodes) -> None:
    kubelet = await fake_nodes(3)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    target = sorted(kubelet.nodes)[1]
    pod = await admin.create(pods, gated_pod("a", gpus=1, annotations={say.RUN_SECONDS: "0.2"}))
    await admin.patch(f"{pods}/a", pin_patch(pod, target, content_type), content_type)
    done = await admin.wait(f"{pods}/a", lambda p: p["status"]["phase"] == "Succeeded")
    assert done["spec"]["nodeName"] == target
    await eventually(lambda: kubelet.counts["succeeded"] == 1)  # the reply reaches the kubelet after the store


async def test_refusals_of_a_patch(admin: Api, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    old = await admin.create(pods, gated_pod("a"))
    other = await admin.create(pods, gated_pod("b"))
    new = await admin.patch(f"{pods}/a", {"metadata": {"annotations": {"x": "y"}}})
    assert await _refusal(admin, f"{pods}/a", pin_patch(old, "n")) == (409, "Conflict")
    stranger = {**new, "metadata": {**new["metadata"], "uid": other["metadata"]["uid"]}}
    assert await _refusal(admin, f"{pods}/a", pin_patch(stranger, "n")) == (422, "Invalid")
    await admin.patch(f"{pods}/a", pin_patch(new, "n"), STRATEGIC, dryRun="All")
    assert (await admin.get(f"{pods}/a"))["metadata"]["resourceVersion"] == new["metadata"]["resourceVersion"]
    binding = {"metadata": {"name": "a"}, "target": {"apiVersion": "v1", "kind": "Node", "name": "n"}}
    with pytest.raises(ApiError) as bound:
        await admin.create(f"{pods}/a/binding", {"apiVersion": "v1", "kind": "Binding", **binding})
    assert bound.value.status == 409
    await admin.patch(f"{pods}/a", pin_patch(new, "n"), STRATEGIC)
    assert await _refusal(admin, f"{pods}/a", {"spec": {"schedulingGates": [{"name": GATE}]}}) == (422, "Invalid")
    assert (
        "only deletion is allowed"
        in (await _error(admin, f"{pods}/a", {"spec": {"schedulingGates": [{"name": GATE}]}})).message
    )


async def test_a_foreign_gate_survives(admin: Api, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    pod = await admin.create(pods, gated_pod("a", gates=["example.com/mine", GATE]))
    after = await admin.patch(f"{pods}/a", pin_patch(pod, "n"), STRATEGIC)
    assert after["spec"]["schedulingGates"] == [{"name": "example.com/mine"}]


async def _error(api: Api, path: str, patch: object) -> ApiError:
    with pytest.raises(ApiError) as refused:
        await api.patch(path, patch, STRATEGIC)
    return refused.value


async def _refusal(api: Api, path: str, patch: object) -> tuple[int, str]:
    error = await _error(api, path, patch)
    return error.status, error.reason
