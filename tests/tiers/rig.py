"""A real control plane as a tier. Scenarios are played one after the other, for they own nodes and queues of the cluster."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec

from queuectl.contract import names
from queuectl.contract.config import Configuration
from queuectl.contract.foreign import (
    JOBS,
    LEADER_WORKER_SETS,
    POD_GROUPS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Kind,
)
from queuectl.control.clock import RealClock
from queuectl.control.loop import Controller
from queuectl.control.release import Release
from queuectl.control.source import Source
from queuectl.drivers.kube.cluster import KubeCluster
from queuectl.drivers.replay.play import Outcome, play
from queuectl.drivers.replay.reading import Scenario
from tests.proofs.stage import USER, Stage, pods
from tests.rig import staging
from tests.rig.client import MERGE, STRATEGIC, Api, ApiError, eventually
from tests.rig.controlplane import ADMIN_GROUPS
from tests.rig.kubelet import FakeKubelet
from tests.rig.nodes import NodeSpec, Pod, finished
from tests.tiers import objects
from tests.tiers.wired import WiredTier

Json = dict[str, Any]
OWNERS = (JOBS, STATEFUL_SETS, REPLICA_SETS, LEADER_WORKER_SETS)


class Rig:
    """Hands at a control plane. Namespaces of the scenario are new ones; everything that was made goes with ``clean``."""

    def __init__(self, stage: Stage, api: Api, cluster: KubeCluster, prefix: str) -> None:
        self._stage, self._api, self._cluster, self._prefix = stage, api, cluster, prefix
        self._made: list[str] = []  # paths of what is no part of a namespace
        self._namespaces: dict[str, str] = {}
        self._kubelets: dict[str, FakeKubelet] = {}
        self._serial = itertools.count(1)

    def namespace(self, name: str) -> str:
        """The namespace that stands for one of the scenario; made when it is first asked for."""
        if name and name not in self._namespaces:
            self._namespaces[name] = self._stage.control_plane.namespace(f"{self._prefix}-{name}")
        return self._namespaces[name] if name else ""

    async def create(self, kind: Kind, namespace: str, body: Json) -> None:
        whole = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        await self._api.create(kind.path(self.namespace(namespace)), whole)
        if not kind.namespaced:
            self._made.append(kind.path("", body["metadata"]["name"]))

    async def patch(
        self, kind: Kind, namespace: str, name: str, body: Json, *, merge: bool = True, status: bool = False
    ) -> None:
        path = kind.path(self.namespace(namespace), name, "status" if status else "")
        await self._api.patch(path, body, MERGE if merge else STRATEGIC)

    async def delete(self, kind: Kind, namespace: str, name: str, *, force: bool = False) -> None:
        options = {"gracePeriodSeconds": 0} if force else {"propagationPolicy": "Background"}
        path = kind.path(self.namespace(namespace), name)
        if kind.plural == "nodes":
            await self._kubelets.pop(name).stop(remove=True)
            return
        await self._api.delete(path, options)
        if kind in OWNERS:  # not left to the garbage collector, which learns of new kinds every half minute
            for group in await self.list(POD_GROUPS, namespace):
                if any(owner["name"] == name for owner in group["metadata"].get("ownerReferences") or ()):
                    await self._gone(kind_path(POD_GROUPS, self.namespace(namespace), group))
            for made in await self.list(STATEFUL_SETS, namespace) if kind is LEADER_WORKER_SETS else ():
                if (made["metadata"].get("labels") or {}).get(names.SET_NAME) == name:
                    await self._gone(kind_path(STATEFUL_SETS, self.namespace(namespace), made))
            for pod in await self.list(PODS, namespace):
                labels = pod["metadata"].get("labels") or {}
                if name in (labels.get("batch.kubernetes.io/job-name"), labels.get(objects.APP)):
                    await self._gone(kind_path(PODS, self.namespace(namespace), pod))

    async def list(self, kind: Kind, namespace: str) -> list[Json]:
        found: list[Json] = await self._api.list(kind.path(self.namespace(namespace)))
        return found

    async def add_node(self, body: Json) -> None:
        meta, spec = body["metadata"], body["spec"]
        node = NodeSpec(
            name=meta["name"],
            labels=meta["labels"],
            taints=spec["taints"],
            unschedulable=spec["unschedulable"],
            allocatable=body["status"]["allocatable"],
        )
        kubelet = FakeKubelet(self._api, [node], heartbeat=self._stage.control_plane.node_grace / 4)
        self._kubelets[node.name] = kubelet
        await kubelet.start()

    async def end(self, namespace: str, name: str, *, failed: bool) -> None:
        """As a kubelet says it: when it ended matters to the Job controller, which waits after a failure."""
        path = PODS.path(self.namespace(namespace), name)
        pod = msgspec.convert(await self._api.get(path), Pod)
        await self._api.patch(f"{path}/status", finished(pod, 1 if failed else 0), STRATEGIC)

    async def silence(self, node: str) -> None:
        self._kubelets[node].silence(node)

    async def revive(self, node: str) -> None:
        await self._kubelets[node].revive(node)

    def controller(self, configuration: Configuration, release: Callable[[Source], Release]) -> Controller:
        name = f"{self._prefix}-{next(self._serial)}"
        return Controller(self._cluster, RealClock(), configuration, name, release=release)

    async def clean(self) -> None:
        """Take everything away and wait until it is gone."""
        for namespace in self._namespaces.values():
            for kind in (JOBS, STATEFUL_SETS, REPLICA_SETS):
                await self._api.delete(kind.path(namespace), {"propagationPolicy": "Background"})
            await self._api.delete(POD_GROUPS.path(namespace))
            await self._api.delete(pods(namespace), {"gracePeriodSeconds": 0})

            async def empty(path: str = pods(namespace)) -> bool:
                return not await self._api.list(path)

            await eventually(empty, 60, f"namespace {namespace} to be empty")
        for kubelet in self._kubelets.values():
            await kubelet.stop(remove=True)
        for path in self._made:
            await self._gone(path)
        for namespace in self._namespaces.values():
            await self._gone(f"/api/v1/namespaces/{namespace}")

    async def _gone(self, path: str) -> None:
        try:
            await self._api.delete(path, {"gracePeriodSeconds": 0})
        except ApiError as error:
            if error.status != 404:
                raise


def kind_path(kind: Kind, namespace: str, obj: Json) -> str:
    """Path of an object that was listed."""
    return kind.path(namespace, obj["metadata"]["name"])


@asynccontextmanager
async def hands(stage: Stage, prefix: str) -> AsyncIterator[Rig]:
    """Hands for one scenario; what they made is gone afterwards."""
    control_plane = stage.control_plane
    async with (
        Api(control_plane.kubeconfig("rig-kubelet", ADMIN_GROUPS)) as api,
        KubeCluster.connect(control_plane.kubeconfig(USER)) as cluster,
    ):
        rig = Rig(stage, api, cluster, prefix)
        try:
            yield rig
        finally:
            await rig.clean()


async def played(stage: Stage, scenario: Scenario, prefix: str) -> Outcome:
    """Play a scenario from beginning to end."""
    sets = sorted({gang.namespace for gang in scenario.file.gangs if gang.kind == "LWS"})
    async with hands(stage, prefix) as rig, AsyncExitStack() as kinds:
        for namespace in sets[:1]:  # their kind is the cluster's, and one scenario needs no two namespaces of them
            await kinds.enter_async_context(staging.worker_sets(stage.admin, rig.namespace(namespace)))
        tier = WiredTier(rig)
        try:
            return await play(scenario, tier)
        finally:
            await tier.close()
