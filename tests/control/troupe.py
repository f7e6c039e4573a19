"""What the tests of a whole controller on the real API server share: one scene with nodes, a tenant and a controller."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.proofs.judge import judge
from tests.proofs.stage import NAMESPACE, QUEUE_LABEL, USER, Running, Stage, gated, groups, job, jobs, pods
from tests.rig.audit import Event
from tests.rig.client import Api, ApiError, eventually
from tests.rig.controlplane import ADMIN_GROUPS
from tests.rig.kubelet import FakeKubelet
from tests.rig.nodes import NodeSpec, gpu_nodes
from tests.rig.objects import Object, gated_pod

POD_GROUP_LABEL = "queuectl.io/pod-group"
RECORD = "queuectl.io/admission"
BY_FORCE = {"gracePeriodSeconds": 0}
IDLE = 3.0  # seconds in which a controller with nothing to do must renew its lease and do nothing else


class Scene:
    """A namespace with nodes, its tenant, and the controller that leads."""

    def __init__(self, stage: Stage, namespace: str, tenant: Api, kubelet: FakeKubelet, controller: Running) -> None:
        self.stage, self.namespace, self.tenant, self.kubelet = stage, namespace, tenant, kubelet
        self.controller = controller
        self.admin = stage.admin
        self.jobs, self.pods, self.groups = jobs(namespace), pods(namespace), groups(namespace)

    async def job(self, name: str, count: int, *, queue: str = "", **options: Any) -> Object:
        """The tenant creates a Job."""
        return dict(await self.tenant.create(self.jobs, job(name, queue or self.namespace, count, **options)))

    async def pod(self, name: str, gpus: int = 1, *, group: str = "", queue: str = "", **options: Any) -> Object:
        """The tenant creates a pod, of a hand-written group where one is named."""
        labels = {QUEUE_LABEL: queue or self.namespace, **({POD_GROUP_LABEL: group} if group else {})}
        labels |= options.pop("labels", {})
        return dict(await self.tenant.create(self.pods, gated_pod(name, gpus, labels=labels, **options)))

    async def pod_group(self, name: str, **spec: Any) -> Object:
        """The tenant writes a PodGroup."""
        body = {"apiVersion": "queuectl.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": name}}
        return dict(await self.tenant.create(self.groups, {**body, "spec": {"queue": self.namespace, **spec}}))

    async def on_nodes(self, prefix: str = "") -> dict[str, str]:
        """Released pods that have a node and have not ended, by name."""
        return {
            p["metadata"]["name"]: p["spec"]["nodeName"]
            for p in await self.admin.list(self.pods)
            if p["metadata"]["name"].startswith(prefix)
            and not gated(p)
            and p["spec"].get("nodeName")
            and p["status"].get("phase") not in ("Succeeded", "Failed")
        }

    async def run(self, count: int, prefix: str = "", deadline: float = 30.0) -> dict[str, str]:
        """Wait until exactly so many pods hold a node."""

        async def look() -> dict[str, str]:
            found = await self.on_nodes(prefix)
            assert len(found) == count, found
            return found or {"": ""}

        return await eventually(look, deadline, f"{count} pods {prefix}* of {self.namespace} on nodes")

    async def group(self, name: str) -> Object:
        """A PodGroup by its name or by its owner's."""
        for found in await self.admin.list(self.groups):
            owners = [r["name"] for r in found["metadata"].get("ownerReferences") or ()]
            if name in (found["metadata"]["name"], *owners):
                return dict(found)
        return {}

    async def status(self, name: str, look: Callable[[Object], object], deadline: float = 30.0) -> Object:
        """Wait until a PodGroup's status satisfies ``look``, and return it."""

        async def found() -> Object:
            status: Object = (await self.group(name)).get("status") or {}
            assert look(status), json.dumps(status)[:1500]
            return status

        return await eventually(found, deadline, f"PodGroup of {name} in {self.namespace}")

    async def waits_for(self, name: str, reason: str, deadline: float = 30.0) -> str:
        """Wait until a PodGroup's blocker is this reason; its message."""
        status = await self.status(name, lambda s: (s.get("blocker") or {}).get("reason") == reason, deadline)
        return str(status["blocker"]["message"])

    async def suspend(self, name: str, *, suspend: bool = True) -> None:
        """The tenant suspends or resumes a Job."""
        await self.tenant.patch(f"{self.jobs}/{name}", {"spec": {"suspend": suspend}})

    async def delete(self, path: str, **options: Any) -> None:
        """The tenant deletes an object; the pods of a Job go too."""
        await self.tenant.delete(path, {"propagationPolicy": "Background", **options})

    async def charged(self) -> tuple[int, int]:
        """GPUs that the controller charges to the namespace's queue, and GPUs that released pods hold."""
        view = await self.controller.get("/api/v1/queues")
        queue = next(q for q in view["items"] if q["metadata"]["name"] == self.namespace)
        used = next((int(r["used"]) for r in queue["resources"] if r["name"] == "nvidia.com/gpu"), 0)
        held = 0
        for pod in await self.admin.list(self.pods):
            if not gated(pod) and pod["status"].get("phase") not in ("Succeeded", "Failed"):
                held += int(pod["spec"]["containers"][0]["resources"]["requests"].get("nvidia.com/gpu", 0))
        return used, held

    async def settled(self, gpus: int, deadline: float = 30.0) -> None:
        """Wait until charge and truth are both this."""

        async def look() -> bool:
            found = await self.charged()
            assert found == (gpus, gpus), found
            return True

        await eventually(look, deadline, f"{gpus} GPUs charged to and held by {self.namespace}")

    async def restart(self, **configuration: Any) -> None:
        """Kill the controller and start another."""
        self.controller.kill()
        no_trouble(self.controller)
        self.controller = self.stage.controller(**{**QUICK, **configuration})
        await self.controller.leads()

    def events(self) -> list[Event]:
        """The audit log so far."""
        return self.stage.audit.events()


QUICK = {"blockerInterval": "1s", "bindTimeout": "6s"}


@asynccontextmanager
async def scene(
    stage: Stage,
    nodes: Sequence[NodeSpec] | int,
    queues: Mapping[str, Object] | None = None,
    *,
    kubeconfig: Path | None = None,
    **configuration: Any,
) -> AsyncIterator[Scene]:
    """Play one scene: at its end the controller must have nothing to complain of, be idle, and leave cleanly.

    ``nodes`` as a number means so many nodes of 4 GPUs.
    """
    async with (
        stage.scenario([], queues) as namespace,
        stage.tenant(namespace) as tenant,
        Api(stage.control_plane.kubeconfig("rig-kubelet", ADMIN_GROUPS)) as api,
    ):
        specs = gpu_nodes(namespace, nodes) if isinstance(nodes, int) else list(nodes)
        kubelet = FakeKubelet(api, specs, heartbeat=stage.control_plane.node_grace / 4)
        await kubelet.start()
        controller = stage.controller(kubeconfig=kubeconfig, **{**QUICK, **configuration})
        play = Scene(stage, namespace, tenant, kubelet, controller)
        try:
            await controller.leads()
            yield play
            await quiet(stage)
            no_trouble(play.controller)
            verdict = judge(stage.audit.events(), namespace, USER, {n.name: n.gpus for n in specs})
            assert verdict.clean, verdict
            await ended(play.controller)
            lease = await stage.admin.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/queuectl")
            assert not lease["spec"].get("holderIdentity"), lease["spec"]
        finally:
            play.controller.kill()
            await kubelet.stop(remove=True)


async def ended(controller: Running) -> None:
    """Ask a controller to end, as a supervisor does, and expect that it does so well."""
    controller.process.terminate()
    await eventually(lambda: controller.process.returncode is not None, 10, "the controller to end")
    assert controller.process.returncode == 0, controller.process.tail()
    no_trouble(controller)


async def quiet(stage: Stage, deadline: float = 20.0) -> None:
    """Wait for a while in which our account sends nothing but renewals of its lease; a hot loop never has one."""
    last: list[str] = []

    async def look() -> bool:
        before = len(stage.audit.events())
        await asyncio.sleep(IDLE)
        last[:] = [
            f"{e.verb} {e.request_uri}"
            for e in stage.audit.events()[before:]
            if e.user.username == USER and e.object_ref.resource != "leases"
        ]
        assert not last, Counter(last).most_common(5)
        return True

    await eventually(look, deadline, "an idle controller")


def complaints(controller: Running) -> list[str]:
    """What a controller logged as an error, or in a way that is no log line at all (a traceback)."""
    found = []
    for line in controller.process.log.read_text(errors="replace").splitlines():
        try:
            level = str(json.loads(line)["level"]).lower()
        except (ValueError, KeyError, TypeError):
            level = "no log line"
        if level not in ("debug", "info", "warn"):
            found.append(line[:2000])
    return found


def no_trouble(controller: Running) -> None:
    """A controller logged no error and did not end by itself."""
    assert complaints(controller) == []


async def gone(api: Api, path: str) -> None:
    """Delete by force whatever is there."""
    try:
        await api.delete(path, BY_FORCE)
    except ApiError as error:
        if error.status != 404:
            raise
