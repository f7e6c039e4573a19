"""A control plane of its own, with our definitions, roles and policies in force: they would change other tests' world."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator

import pytest

from queuectl.contract.crd import DEFINITIONS
from queuectl.contract.home import LEASE
from queuectl.contract.names import GATE, QUEUE_LABEL
from queuectl.contract.publish import manifests
from tests.contract.support import FOREIGN, LEASES, OURS, queued
from tests.rig.apply import apply
from tests.rig.client import Api
from tests.rig.controlplane import ControlPlane
from tests.rig.objects import condition, gated_pod, pod_spec

FORCE_SECONDS = 30.0  # policies are in force after 1 to 2 s


LAST = "zz-applied-last"


def mark(plane: ControlPlane) -> None:
    """A policy applied after all others: the API server takes in all that are there at once, so when it decides, all do."""
    root = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    pods = {"apiGroups": [""], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["pods"]}
    policy = {
        "metadata": {"name": LAST},
        "spec": {
            "matchConstraints": {"resourceRules": [pods]},
            "validations": [{"expression": f"object.metadata.name != '{LAST}'"}],
        },
    }
    binding = {"metadata": {"name": LAST}, "spec": {"policyName": LAST, "validationActions": ["Deny"]}}
    for path, body in ((root, policy), (root[:-3] + "ybindings", binding)):
        status, reply = plane.request("POST", path, body)
        assert status == 201, reply


def in_force(plane: ControlPlane) -> bool:
    """Whether all policies decide: of each sort, the one that was applied last."""
    labels = {QUEUE_LABEL: "probe"}
    pod = gated_pod("probe", gates=(), labels=labels)
    status, reply = plane.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod)
    if status != 201 or not any(gate["name"] == GATE for gate in reply["spec"].get("schedulingGates", [])):
        return False
    if plane.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", gated_pod(LAST))[0] != 422:
        return False
    job = {"metadata": {"name": "probe", "labels": labels}, "spec": {"template": {"spec": pod_spec()}}}
    return plane.request("POST", "/apis/batch/v1/namespaces/default/jobs?dryRun=All", job)[0] == 201


def define(plane: ControlPlane) -> None:
    """Create our definitions and wait until they are established."""
    root = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    end = time.monotonic() + FORCE_SECONDS
    for definition in DEFINITIONS:
        manifest = definition.manifest()
        status, reply = plane.request("POST", root, manifest)
        assert status == 201, reply
        while condition(plane.request("GET", f"{root}/{manifest['metadata']['name']}")[1], "Established") != "True":
            if time.monotonic() > end:
                pytest.fail(f"{definition.kind} is not established after {FORCE_SECONDS:g} s")
            time.sleep(0.05)


@pytest.fixture(scope="package")
def control_plane() -> Iterator[ControlPlane]:
    """As everywhere, but with everything applied that we publish, for the user OURS."""
    with ControlPlane() as running:
        define(running)
        apply(running, manifests(user=OURS))
        mark(running)
        end = time.monotonic() + FORCE_SECONDS
        while not in_force(running):
            if time.monotonic() > end:
                pytest.fail(f"the policies are not in force after {FORCE_SECONDS:g} s")
            time.sleep(0.05)
        yield running


@pytest.fixture
async def ours(control_plane: ControlPlane) -> AsyncIterator[Api]:
    """A client of the controller's own account."""
    async with Api(control_plane.kubeconfig(OURS)) as api:
        yield api


@pytest.fixture
async def tenant(control_plane: ControlPlane, namespace: str) -> AsyncIterator[Api]:
    """A client of a user with the built-in role ``edit`` in the test's namespace."""
    async with Api(control_plane.tenant(namespace, f"tenant-of-{namespace}")) as api:
        yield api


@pytest.fixture
async def pod(admin: Api, namespace: str) -> str:
    """Path of a gated pod of a queue, with a foreign gate and a foreign annotation beside."""
    made = queued(gated=(FOREIGN,))
    made["metadata"]["annotations"] = {"example.com/note": "theirs"}
    await admin.create(f"/api/v1/namespaces/{namespace}/pods", made)
    return f"/api/v1/namespaces/{namespace}/pods/one"


@pytest.fixture
async def lease(admin: Api) -> AsyncIterator[str]:
    """Our lease after four take-overs; gone after the test."""
    await admin.create(LEASES, {"metadata": {"name": LEASE}, "spec": {"holderIdentity": "a", "leaseTransitions": 4}})
    yield f"{LEASES}/{LEASE}"
    await admin.delete(f"{LEASES}/{LEASE}")
