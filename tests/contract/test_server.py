"""The same cases against the real API server: what the models accept it accepts, what they refuse it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from queuectl.contract.crd import DEFINITIONS
from queuectl.contract.v1alpha1 import InvalidObject, validate
from queuectl.model.quantity import parse
from queuectl.model.resources import MAX, unit
from tests.contract.cases import CASES, Case, amount
from tests.contract.support import fenced
from tests.contract.test_validate import STATUS
from tests.rig.client import Api, ApiError
from tests.rig.controlplane import ControlPlane

pytestmark = pytest.mark.rig

Json = dict[str, Any]
PLURALS = {definition.kind: definition.plural for definition in DEFINITIONS}
GROUPS = "/apis/queuectl.io/v1alpha1/namespaces/{}/podgroups"
VECTORS = Path(__file__).parents[1] / "model" / "quantity_vectors.json"
EXAMPLES = sorted((Path(__file__).parents[2] / "api").glob("*/examples/*.yaml"))


def collection(manifest: Json) -> str:
    namespace = manifest["metadata"].get("namespace")
    if manifest["apiVersion"] == "queuectl.io/v1alpha1":
        plural, root = PLURALS[manifest["kind"]], "/apis/queuectl.io/v1alpha1"
    else:
        plural, root = {"Pod": ("pods", "/api/v1"), "Job": ("jobs", "/apis/batch/v1")}[manifest["kind"]]
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


def load(path: Path) -> list[Json]:
    return list(yaml.safe_load_all(path.read_text()))


async def create(api: Api, manifest: Json) -> Json:
    """Dry run, with unknown fields refused, as kubectl does."""
    made: Json = await api.create(collection(manifest), manifest, dryRun="All", fieldValidation="Strict")
    return made


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}-{case.name}")
async def test_cases(admin: Api, case: Case) -> None:
    if case.path is None:
        made = await create(admin, case.manifest())
        validate(case.kind, made)  # with the server's defaults
        return
    with pytest.raises(ApiError) as refused:
        await create(admin, case.manifest())
    assert refused.value.status in {400, 422}
    # An unknown field or a list key twice is told without an index; the rest names the field itself, or the object
    # that holds it.
    field = re.sub(r"\[\d+\]$", "", case.path)
    holder = field.rpartition(".")[0]
    assert field in refused.value.message or f"{holder}:" in refused.value.message


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
async def test_examples(admin: Api, path: Path) -> None:
    for manifest in load(path):
        made = await create(admin, manifest)
        if made["apiVersion"].startswith("queuectl.io/"):
            validate(made["kind"], made)


async def test_a_rules_message_reaches_the_user(admin: Api) -> None:
    spec = {"resources": [{"name": "nvidia.com/gpu", "quota": "0.5"}]}
    with pytest.raises(ApiError) as refused:
        await create(
            admin, {"apiVersion": "queuectl.io/v1alpha1", "kind": "Queue", "metadata": {"name": "a"}, "spec": spec}
        )
    assert refused.value.message == (
        'Queue.queuectl.io "a" is invalid: spec.resources[0].quota: Invalid value: must be a whole number: only cpu comes in'
        " fractions (a shared GPU is a resource of its own)"
    )


async def group(admin: Api, namespace: str) -> str:
    manifest = {
        "apiVersion": "queuectl.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"queue": "a", "minMember": 8},
    }
    await admin.create(GROUPS.format(namespace), manifest)
    return f"{GROUPS.format(namespace)}/g"


async def test_the_whole_status_is_kept(admin: Api, namespace: str) -> None:
    path = await group(admin, namespace)
    await admin.patch(f"{path}/status", {"status": STATUS})
    kept = await admin.get(path)
    assert kept["status"] == STATUS
    assert validate("PodGroup", kept).status is not None


async def test_nothing_is_added_to_a_status(admin: Api, namespace: str) -> None:
    path = await group(admin, namespace)
    await admin.patch(f"{path}/status", {"status": {"fence": 1, "requeue": {"count": 1}}})
    assert (await admin.get(path))["status"] == {"fence": 1, "requeue": {"count": 1}}


async def test_the_queue_of_a_placed_gang_cannot_change(admin: Api, namespace: str) -> None:
    path = await group(admin, namespace)
    await admin.patch(path, {"spec": {"queue": "b"}})
    await admin.patch(f"{path}/status", {"status": STATUS})
    with pytest.raises(ApiError, match=r"spec\.queue: .*cannot change while the gang is placed"):
        await admin.patch(path, {"spec": {"queue": "c"}})
    await admin.patch(path, {"spec": {"minMember": 4}})
    await admin.patch(f"{path}/status", {"status": {"conditions": []}})
    await admin.patch(path, {"spec": {"queue": "c"}})


async def test_the_status_changes_only_by_its_subresource(admin: Api, namespace: str) -> None:
    path = await group(admin, namespace)
    await admin.patch(path, {"status": {"fence": 99}})
    assert "status" not in await admin.get(path)


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ({"fence": -1}, "status.fence"),
        ({"queuedAt": "yesterday"}, "status.queuedAt"),
        ({"admission": {"round": 1}}, "status.admission.fence: Required"),
        ({"conditions": STATUS["conditions"] * 2}, "status.conditions[1]: Duplicate"),
        ({"blocker": {"reason": "two words"}}, "status.blocker.reason"),
    ],
)
async def test_a_broken_status_is_refused(admin: Api, namespace: str, status: Json, says: str) -> None:
    path = await group(admin, namespace)
    with pytest.raises(ApiError) as refused:
        await admin.patch(f"{path}/status", {"status": status})
    assert refused.value.status == 422
    assert says in refused.value.message


async def test_get_shows_the_columns(admin: Api, namespace: str, control_plane: ControlPlane) -> None:
    path = await group(admin, namespace)
    await admin.patch(f"{path}/status", {"status": STATUS})
    context = admin._session
    assert context is not None
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    async with context.get(admin.server + path, headers=accept) as reply:
        table = await reply.json()
    shown = dict(zip((one["name"] for one in table["columnDefinitions"]), table["rows"][0]["cells"], strict=True))
    wanted = {"Name": "g", "Queue": "a", "Min": 8, "Placed": "True", "Reason": "NoCapacity", "Requeues": 2}
    assert {name: shown[name] for name in wanted} == wanted


async def test_get_shows_what_a_pool_selects(admin: Api) -> None:
    """Maps and lists come as JSON; what was left out is filled in, or empty."""
    path = "/apis/queuectl.io/v1alpha1/pools"
    spec = {"nodeSelector": {"gpu": "h100", "team": "a"}, "resources": ["nvidia.com/gpu", "cpu"]}
    for name, body in (("shown", spec), ("bare", {})):
        await admin.create(
            path, {"apiVersion": "queuectl.io/v1alpha1", "kind": "Pool", "metadata": {"name": name}, "spec": body}
        )
    try:
        context = admin._session
        assert context is not None
        accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        async with context.get(admin.server + path, headers=accept) as reply:
            table = await reply.json()
        names = [one["name"] for one in table["columnDefinitions"]]
        found = [dict(zip(names, row["cells"], strict=True)) for row in table["rows"]]
        shown = {one["Name"]: (one["Selector"], one["Topology"], one["Resources"]) for one in found}
        assert shown["shown"] == ('{"gpu":"h100","team":"a"}', "default", '["nvidia.com/gpu","cpu"]')
        assert shown["bare"][1] == "default"
    finally:
        for name in ("shown", "bare"):
            await admin.delete(f"{path}/{name}")


async def test_short_name_and_category(admin: Api) -> None:
    resources = {one["name"]: one for one in (await admin.get("/apis/queuectl.io/v1alpha1"))["resources"]}
    assert resources["podgroups"]["shortNames"] == ["gang", "gangs"]
    assert all(resources[plural]["categories"] == ["queuectl"] for plural in PLURALS.values())


def test_fenced_is_a_patch() -> None:
    assert fenced(3, spec={"suspend": True}) == {
        "metadata": {"annotations": {"queuectl.io/fence": "3"}},
        "spec": {"suspend": True},
    }


async def test_quantities_are_judged_alike(admin: Api) -> None:
    """Several hundred texts, good and bad: the server takes what the models take, in every sort of unit.

    Two differences are known. Beyond 2^53 only the models see that a value is not whole; and the server refuses the very
    last value, 2^63-1 units, because Go also gives that for anything larger with a binary suffix.
    """
    differences = []
    for text, *_ in json.loads(VECTORS.read_text()):
        for name in ("cpu", "nvidia.com/gpu", "memory"):
            case = amount("", name, text)
            try:
                validate("Queue", case.manifest())
                ours = True
            except InvalidObject as refused:
                ours = "must be a whole number" in str(refused) and parse(text) > 2**53
            if ours and parse(text, unit(name)) == MAX:
                ours = False
            status, _, _ = await admin.raw("POST", "/apis/queuectl.io/v1alpha1/queues", case.manifest(), dryRun="All")
            if ours != (status == 201):
                differences.append((text, name, ours, status))
    assert differences == []
