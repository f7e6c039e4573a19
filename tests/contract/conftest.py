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
from tests.rig.objects import condition, gated_pod

FORCE_SECONDS = 30.0  # policies are in force after 1 to 2 s


def in_force(plane: ControlPlane) -> bool:
    """Whether one policy of each sort already decides: gate added, node refused, foreign write of ours refused."""
    pods = "/api/v1/namespaces/default/pods?dryRun=All"
    probe = gated_pod("probe", gates=(), labels={QUEUE_LABEL: "probe"})
    status, reply = plane.request("POST", pods, probe)
    if status != 201 or not any(gate["name"] == GATE for gate in reply["spec"].get("schedulingGates", [])):
        return False
    probe["spec"]["nodeName"] = "probe"
    return plane.request("POST", pods, probe)[0] == 422


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
