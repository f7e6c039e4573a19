"""A scenario on a cluster with objects and the real controller: the same on both, given a pair of hands.

The controller runs in the test's own process, so that its engine can be asked; all else goes through objects. Here things
take their time: a look waits until what is expected holds, and the scenario's clock stands still meanwhile.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

from queuectl.contract import names
from queuectl.contract.config import Configuration
from queuectl.contract.foreign import (
    JOBS,
    LEADER_WORKER_SETS,
    NODES,
    POD_GROUPS,
    PODS,
    POOLS,
    PRIORITY_CLASSES,
    QUEUES,
    REPLICA_SETS,
    STATEFUL_SETS,
    TOPOLOGIES,
    Kind,
)
from queuectl.control.loop import Controller
from queuectl.control.release import Release
from queuectl.control.source import Source
from queuectl.drivers.replay import format as wire
from queuectl.drivers.replay.play import Named
from queuectl.drivers.replay.reading import Scenario
from queuectl.drivers.replay.snapshot import Snapshot, differences, look
from queuectl.model.plan import Action, Withdraw
from tests.tiers import objects

Json = dict[str, Any]
FOREVER = 100.0  # seconds that a look may wait; nothing in a scenario takes so long, and what is wrong stays wrong
INTERVAL = 0.25  # seconds between two looks
KEEPERS = {"StatefulSet": STATEFUL_SETS, "ReplicaSet": REPLICA_SETS, "LWS": LEADER_WORKER_SETS}
SETTLE = 2.0  # seconds after a step before the first look: what it must not change would be changed by then
TICK = 1.1  # seconds between two creations whose order counts: creation times are whole seconds


PLAYABLE = {"start", "stop"}  # delays that a kubelet can be told; the others only the engine's own tier has


def playable(scenario: Scenario) -> bool:
    """Whether a scenario asks for nothing but what a cluster with objects can do."""
    return scenario.file.delays.model_fields_set <= PLAYABLE


class Hands(Protocol):
    """What a person at a cluster can do. ``TICK`` and the like are in its own seconds, virtual or real."""

    async def create(self, kind: Kind, namespace: str, body: Json) -> None: ...
    async def patch(
        self, kind: Kind, namespace: str, name: str, body: Json, *, merge: bool = True, status: bool = False
    ) -> None: ...
    async def delete(self, kind: Kind, namespace: str, name: str, *, force: bool = False) -> None: ...
    async def list(self, kind: Kind, namespace: str) -> list[Json]: ...
    async def add_node(self, body: Json) -> None: ...
    async def end(self, namespace: str, name: str, *, failed: bool) -> None: ...
    async def silence(self, node: str) -> None: ...
    async def revive(self, node: str) -> None: ...
    def controller(self, configuration: Configuration, release: Callable[[Source], Release]) -> Controller: ...


class Noted(Release):
    """The real thing, which also notes what is given back."""

    def __init__(self, view: Source, given_back: list[tuple[str, str]]) -> None:
        super().__init__(view)
        self._given_back = given_back

    def accept(self, action: Action) -> None:
        known = self._view.gang(action.gang)
        if isinstance(action, Withdraw) and known is not None and known.record is not None:
            self._given_back.append((known.name, action.cause.value))
        super().accept(action)


class Clerk(Release):
    """Makes PodGroups for owners, as it comes with every round of the loop, and admits nobody."""

    def accept(self, action: Action) -> None:
        pass


class WiredTier:
    """Plays a scenario through ``hands``. ``close`` ends the controller."""

    def __init__(self, hands: Hands) -> None:
        self.hands = hands
        self.refused: list[str] = []
        self._given_back: list[tuple[str, str]] = []  # PodGroup and cause
        self._task: asyncio.Task[None] | None = None
        self._zero = 0.0
        self._stirred = -1  # the moment (ms) in which something was done last
        self._later: list[tuple[int, Named]] = []

    # ---- the tier

    async def begin(self, scenario: Scenario, absent: frozenset[Named]) -> None:
        self.scenario, file = scenario, scenario.file
        settings = file.settings.model_dump(exclude_none=True)
        self._configuration = Configuration().model_copy(
            update={**settings, "fence_grace": 0, "blocker_interval": 1000}
        )
        self._gangs = {gang.name: gang for gang in file.gangs}
        if file.topology is not None:
            await self.hands.create(TOPOLOGIES, "", objects.topology(file.topology))
        for topology in file.topologies:
            await self.hands.create(TOPOLOGIES, "", objects.topology(topology, topology.name))
        for value in sorted({gang.priority for gang in file.gangs if gang.priority}):
            body = {"metadata": {"name": objects.priority_class(value)}, "value": value}
            await self.hands.create(PRIORITY_CLASSES, "", body)
        pools, queues = [pool.name for pool in file.pools], [queue.name for queue in file.queues]
        for kind, listed in (("node", list(scenario.nodes)), ("pool", pools), ("queue", queues)):
            for name in listed:
                if (kind, name) not in absent:
                    await self._create((kind, name))
        present = [("gang", gang.name) for gang in file.gangs if ("gang", gang.name) not in absent]
        present += [("pod", pod.name) for pod in file.unmanaged if ("pod", pod.name) not in absent]
        self._later = sorted((self._created(named), named) for named in present if self._created(named))
        self._later.sort(key=lambda one: one[0])
        for named in present:
            if named[0] == "pod" and not self._created(named):
                await self._create(named)
        await self._already_running([named[1] for named in present if named[0] == "gang" and not self._created(named)])
        await self._start(Clerk)
        for named in present:
            if named[0] == "gang" and not self._created(named) and self._gangs[named[1]].state != "Running":
                await self._create(named)
                await asyncio.sleep(TICK)
        await self.close()
        await self._start()
        self._zero = asyncio.get_running_loop().time()
        self._stirred = 0

    async def until(self, at: int) -> None:
        while self._later and self._later[0][0] <= at:
            due, named = self._later.pop(0)
            await self._wait(due)
            await self._create(named)
            self._stirred = due
        await self._wait(at)

    async def do(self, step: wire.Step, what: Named) -> None:
        self._stirred = step.at
        await self._do(step, what)

    async def look(self, at: int, expected: wire.Expectation | None) -> Snapshot:
        """The clock of the scenario stands still until what is expected holds, or no longer can."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        if self._stirred == at:
            await asyncio.sleep(SETTLE)
            self._stirred = -1
        found = self._snapshot(at)
        while expected is not None and list(differences(expected, found)) and loop.time() < began + FOREVER:
            await asyncio.sleep(INTERVAL)
            self._alive()
            found = self._snapshot(at)
        self._zero += loop.time() - began
        return found

    async def close(self) -> None:
        """End the controller."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    # ---- time, and the controller

    async def _wait(self, at: int) -> None:
        await asyncio.sleep(max(0.0, self._zero + at / 1000 - asyncio.get_running_loop().time()))

    async def _eventually(self, what: str, look: Callable[[], Awaitable[bool]]) -> None:
        until = asyncio.get_running_loop().time() + FOREVER
        while not await look():
            self._alive()
            if asyncio.get_running_loop().time() > until:
                raise AssertionError(f"never: {what}")
            await asyncio.sleep(INTERVAL)

    async def _start(self, release: Callable[[Source], Release] | None = None) -> None:
        noted = partial(Noted, given_back=self._given_back)
        self.controller = self.hands.controller(self._configuration, release or noted)
        self._task = asyncio.create_task(self.controller.run())

        async def decided() -> bool:
            return self.controller.leading and bool(self.controller.decided_at)

        await self._eventually("the controller leads", decided)

    def _alive(self) -> None:
        if self._task is not None and self._task.done():
            self._task.result()
            raise AssertionError("the controller ended")

    def _snapshot(self, at: int) -> Snapshot:
        given = [(self._name(group), None, cause) for group, cause in self._given_back]
        return look(self.controller.engine, at, given, self._name)

    def _name(self, group: str) -> str:
        """The gang that a PodGroup or pod of this name is."""
        match = re.fullmatch(
            r"(?:job|statefulset|replicaset)-(.+)-[0-9a-f]{5}|leaderworkerset-(.+)-0-[0-9a-f]{5}", group
        )
        name = (match[1] or match[2]) if match else group
        return name if name in self._gangs else group

    # ---- making things

    def _created(self, named: Named) -> int:
        if named[0] == "gang":
            return self._gangs[named[1]].created
        return next(pod.created for pod in self.scenario.file.unmanaged if pod.name == named[1])

    def _namespace(self, gang: str) -> str:
        return self._gangs[gang].namespace

    async def _create(self, what: Named) -> None:
        kind, name = what
        match kind:
            case "node":
                await self.hands.add_node(objects.node(self.scenario.nodes[name][0], name, self.scenario.asked))
            case "queue":
                spec = next(queue for queue in self.scenario.file.queues if queue.name == name)
                await self.hands.create(QUEUES, "", objects.queue(spec))
            case "pool":
                pool = next(pool for pool in self.scenario.file.pools if pool.name == name)
                await self.hands.create(POOLS, "", objects.pool(pool))
            case "pod":
                pod = next(pod for pod in self.scenario.file.unmanaged if pod.name == name)
                await self.hands.create(PODS, "default", objects.unmanaged(pod))
            case _:
                await self._submit(self._gangs[name])

    async def _submit(self, spec: wire.Gang, node: str | None = None) -> None:
        delays = self.scenario.file.delays
        if spec.kind == "Job":
            whole = any(
                step.do == "fail" and not step.with_ and self.scenario.kind_of(step.target) == ("gang", spec.name)
                for step in self.scenario.file.steps
            )
            await self.hands.create(JOBS, spec.namespace, objects.job(spec, delays, fails_at_once=whole, node=node))
            return
        if (kind := KEEPERS.get(spec.kind)) is not None:
            made = objects.worker_set if kind is LEADER_WORKER_SETS else objects.service
            await self.hands.create(kind, spec.namespace, made(spec, delays, node))
            return
        if (group := objects.pod_group(spec)) is not None:
            await self.hands.create(POD_GROUPS, spec.namespace, group)
        for pod in objects.pods(spec, delays, node):
            await self.hands.create(PODS, spec.namespace, pod)

    async def _already_running(self, gangs: list[str]) -> None:
        """Gangs that run when the scenario begins: admitted by a controller before this one, or past it."""
        found = [self._gangs[name] for name in gangs if self._gangs[name].state == "Running"]
        if not found:
            return
        for spec in found:
            await self._submit(spec, spec.nodes[0])
            if not spec.record:
                await self._bypass(spec)
        await self._start()

        async def running() -> bool:
            expected = {spec.name for spec in found if spec.record}
            return expected <= set(self._snapshot(0).running)

        await self._eventually("what runs already runs", running)
        await self.close()

    async def _bypass(self, spec: wire.Gang) -> None:
        async def made() -> bool:
            return len(await self._pods(spec.name)) == self.scenario.gangs[spec.name].size

        await self._eventually("its pods are there", made)
        for pod in await self._pods(spec.name):
            gates = [{"name": names.GATE, "$patch": "delete"}]
            body = {"spec": {"schedulingGates": gates}}
            await self.hands.patch(PODS, spec.namespace, pod["metadata"]["name"], body, merge=False)

    async def _pods(self, gang: str) -> list[Json]:
        spec = self._gangs[gang]
        found = []
        for pod in await self.hands.list(PODS, spec.namespace):
            labels = pod["metadata"].get("labels") or {}
            known = ("batch.kubernetes.io/job-name", names.POD_GROUP_LABEL, objects.APP)
            owner = next((labels[label] for label in known if label in labels), pod["metadata"]["name"])
            if owner == gang:
                found.append(pod)
        return found

    # ---- steps

    async def _do(self, step: wire.Step, what: Named) -> None:
        kind, name = what
        match step.do, kind:
            case "restart", _:
                await self.close()
                await self._start()
            case "create", _:
                await self._create(what)
            case _, "node":
                await self._node(step, name)
            case "delete", "queue":
                await self.hands.delete(QUEUES, "", name)
            case "edit", "queue":
                await self.hands.patch(QUEUES, "", name, {"spec": step.with_})
            case "delete", "pool":
                await self.hands.delete(POOLS, "", name)
            case "edit", "pool":
                before = next(pool for pool in self.scenario.file.pools if pool.name == name).node_selector
                selector = step.with_.get("nodeSelector")  # a merge keeps keys that are not named
                more = {} if selector is None else {"nodeSelector": {**dict.fromkeys(before), **selector}}
                await self.hands.patch(POOLS, "", name, {"spec": {**step.with_, **more}})
            case "finish", "pod":
                await self.hands.end("default", name, failed=False)
            case "delete", "pod":
                await self.hands.delete(PODS, "default", name, force=True)
            case _:
                await self._gang(step, name)

    async def _node(self, step: wire.Step, name: str) -> None:
        async def ready(wanted: bool) -> bool:
            view = {node.name: node for node in self.controller.view().nodes}
            return view[name].usable is wanted

        match step.do:
            case "cordon" | "uncordon":
                await self.hands.patch(NODES, "", name, {"spec": {"unschedulable": step.do == "cordon"}})
            case "lose":
                await self.hands.silence(name)
                await self._eventually("the node is not ready", lambda: ready(False))
            case "return":
                await self.hands.revive(name)
                await self._eventually("the node is ready", lambda: ready(True))
            case "delete":
                await self.hands.delete(NODES, "", name)
                for namespace in sorted({gang.namespace for gang in self._gangs.values()}):
                    for pod in await self.hands.list(PODS, namespace):
                        if pod["spec"].get("nodeName") == name:
                            await self.hands.delete(PODS, namespace, pod["metadata"]["name"], force=True)
            case _:
                if "allocatable" in step.with_:
                    amounts = {key: str(value) for key, value in step.with_["allocatable"].items()}
                    await self.hands.patch(NODES, "", name, {"status": {"allocatable": amounts}}, status=True)
                if "labels" in step.with_:
                    await self.hands.patch(NODES, "", name, {"metadata": {"labels": step.with_["labels"]}})
                if "taints" in step.with_:
                    await self.hands.patch(NODES, "", name, {"spec": {"taints": step.with_["taints"]}})

    async def _group(self, name: str) -> Json:
        found = await self.hands.list(POD_GROUPS, self._namespace(name))
        return next(group for group in found if self._name(group["metadata"]["name"]) == name)

    async def _patch_group(self, name: str, body: Json) -> None:
        group = await self._group(name)
        await self.hands.patch(POD_GROUPS, self._namespace(name), group["metadata"]["name"], body)

    async def _gang(self, step: wire.Step, name: str) -> None:
        spec = self._gangs[name]
        match step.do:
            case "finish" | "fail":
                await self._ends(step, name)
            case "delete" if spec.kind != "Pods":
                await self.hands.delete(KEEPERS.get(spec.kind, JOBS), spec.namespace, name)

                async def gone() -> bool:
                    return not await self._pods(name)

                await self._eventually("its pods are gone", gone)
            case "delete":
                for pod in await self._pods(name):
                    await self.hands.delete(PODS, spec.namespace, pod["metadata"]["name"], force=True)
                if objects.grouped(spec):
                    await self.hands.delete(POD_GROUPS, spec.namespace, name)
            case "requeue":
                await self._patch_group(name, {"metadata": {"annotations": {names.REQUEUE: f"at-{step.at}"}}})
            case "hold" | "resume":
                await self._patch_group(name, {"spec": {"hold": step.do == "hold"}})
            case _:
                await self._edit(step.with_, spec)

    async def _edit(self, fields: Json, spec: wire.Gang) -> None:
        if "queue" in fields:
            await self._patch_group(spec.name, {"spec": {"queue": fields["queue"]}})
        kind = KEEPERS.get(spec.kind, JOBS)
        if "size" in fields and spec.kind != "Pods":
            size = fields["size"]
            body = {"parallelism": size, "completions": size} if kind is JOBS else {"replicas": size}
            await self.hands.patch(kind, spec.namespace, spec.name, {"spec": body})
        if "min" in fields and spec.kind != "Pods":
            note = {"metadata": {"annotations": {names.MIN_MEMBER: str(fields["min"])}}}
            await self.hands.patch(kind, spec.namespace, spec.name, note)
        if "gates" in fields:
            for pod in await self._pods(spec.name):
                gates = [{"name": gate, "$patch": "delete"} for gate in spec.gates if gate not in fields["gates"]]
                body = {"spec": {"schedulingGates": gates}}
                await self.hands.patch(PODS, spec.namespace, pod["metadata"]["name"], body, merge=False)

    async def _ends(self, step: wire.Step, name: str) -> None:
        spec = self._gangs[name]
        for pod in await self._pods(name):
            meta = pod["metadata"]
            role, index = _seat(meta)
            wanted = not step.with_ or (role, index) == (step.with_.get("role", ""), str(step.with_["member"]))
            if wanted and pod["status"].get("phase") == "Running":
                await self.hands.end(spec.namespace, meta["name"], failed=step.do == "fail")


def _seat(meta: Json) -> tuple[str, str]:
    """Role and number of a pod, as a step names it."""
    labels = meta.get("labels") or {}
    if worker := labels.get(names.WORKER_INDEX):
        return ("leader", "0") if worker == "0" else ("worker", str(int(worker) - 1))
    index = (meta.get("annotations") or {}).get(names.COMPLETION_INDEX) or meta["name"].rpartition("-")[2]
    return labels.get(names.ROLE_LABEL, ""), index
