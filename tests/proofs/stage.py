"""The stage of a proof: a real control plane with our contract installed, fake nodes, tenants, and controllers as processes."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml

from queuectl.contract.publish import manifests
from tests.rig.apply import apply
from tests.rig.audit import AuditLog
from tests.rig.client import Api, DeadlineError, eventually
from tests.rig.controlplane import ADMIN_GROUPS, ControlPlane, free_port
from tests.rig.kubelet import FakeKubelet
from tests.rig.nodes import RUN_SECONDS, NodeSpec
from tests.rig.objects import GATE, Object, pod_spec
from tests.rig.process import Process

ROOT = Path(__file__).resolve().parents[2]
USER = "queuectl"  # the controller's account on this control plane
NAMESPACE = "queuectl-system"
QUEUES = "/apis/queuectl.io/v1alpha1/queues"
QUEUE_LABEL = "queuectl.io/queue"
SETS = ("deployments", "replicasets", "statefulsets")  # a Deployment first: it would make its ReplicaSet anew


def groups(namespace: str) -> str:
    """Path of a namespace's PodGroups."""
    return f"/apis/queuectl.io/v1alpha1/namespaces/{namespace}/podgroups"


def jobs(namespace: str) -> str:
    """Path of a namespace's Jobs."""
    return f"/apis/batch/v1/namespaces/{namespace}/jobs"


def sets(namespace: str, plural: str) -> str:
    """Path of what keeps pods alive in a namespace: one of ``SETS``."""
    return f"/apis/apps/v1/namespaces/{namespace}/{plural}"


def pods(namespace: str) -> str:
    """Path of a namespace's pods."""
    return f"/api/v1/namespaces/{namespace}/pods"


def job(
    name: str,
    queue: str,
    count: int,
    *,
    gpus: int = 1,
    gang: str | None = "all",
    required: str | None = None,
    seconds: float | None = None,
    suspend: bool = False,
    completions: int | None = None,
    **spec: Any,
) -> Object:
    """An Indexed Job as a tenant writes it: labels and annotations on the Job, nothing on its pods but the run time."""
    annotations = {} if gang is None else {"queuectl.io/min-member": gang}
    if required:
        annotations["queuectl.io/topology-required"] = required
    run = {} if seconds is None else {RUN_SECONDS: str(seconds)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {QUEUE_LABEL: queue}, "annotations": annotations},
        "spec": {
            "completionMode": "Indexed",
            "completions": count if completions is None else completions,
            "parallelism": count,
            "suspend": suspend,
            "template": {"metadata": {"annotations": run}, "spec": pod_spec(gpus, **spec)},
        },
    }


def gated(pod: Object) -> bool:
    """Whether our gate is still on a pod."""
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates") or ())


def live(pod: Object) -> bool:
    """Whether a pod holds, or may come to hold, a node."""
    return not gated(pod) and pod["status"].get("phase") not in ("Succeeded", "Failed")


class Running:
    """A controller process."""

    def __init__(self, process: Process, url: str) -> None:
        self.process = process
        self.url = url

    async def ready(self, deadline: float = 30.0) -> None:
        """Wait for /readyz; raises with the end of its log when it dies or never is."""

        async def look() -> bool:
            if self.process.returncode is not None:
                raise self.process.failure("ended")
            try:
                async with aiohttp.ClientSession() as session, session.get(f"{self.url}/readyz") as reply:
                    return reply.status == 200
            except aiohttp.ClientError:
                return False

        await eventually(look, deadline, "the controller to be ready")

    async def get(self, path: str) -> Any:
        """A document of the JSON API."""
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as reply:
            return await reply.json()

    async def leads(self, deadline: float = 30.0) -> None:
        """Wait until this process decides."""

        async def look() -> bool:
            async with aiohttp.ClientSession() as session, session.get(f"{self.url}/metrics") as reply:
                return "queuectl_leading 1.0" in await reply.text()

        await self.ready(deadline)
        await eventually(look, deadline, "the controller to lead")

    def kill(self) -> None:
        """SIGKILL by pid, and wait for the end."""
        if self.process.returncode is None:
            self.process.signal(signal.SIGCONT)
            self.process.signal(signal.SIGKILL)
            self.process.wait(5)


class Stage:
    """One control plane for a whole proof. Scenarios run one after the other, each on its own nodes and namespace."""

    def __init__(self, control_plane: ControlPlane, admin: Api) -> None:
        self.control_plane = control_plane
        self.admin = admin
        self.audit = AuditLog(Path(control_plane.folder) / "audit.log")
        self.serial = itertools.count(1)
        self._controllers: list[Running] = []

    @classmethod
    @asynccontextmanager
    async def up(cls) -> AsyncIterator[Self]:
        """Start the control plane and install the contract; everything is ended afterwards."""
        with ControlPlane() as control_plane:
            apply(control_plane, manifests(USER, NAMESPACE))
            async with Api(control_plane.kubeconfig("rig-admin", ADMIN_GROUPS)) as admin:
                stage = cls(control_plane, admin)
                try:
                    yield stage
                finally:
                    for controller in stage._controllers:
                        controller.kill()

    @asynccontextmanager
    async def leader(self, **options: Any) -> AsyncIterator[Running]:
        """A controller that leads (options as of ``controller``), killed afterwards whatever happens."""
        running = self.controller(**options)
        try:
            await running.leads()
            yield running
        finally:
            running.kill()

    def controller(self, *, mutant: str = "none", kubeconfig: Path | None = None, **configuration: object) -> Running:
        """Start ``queuectl run`` as a process of its own. Returns at once; see ``Running.leads``."""
        number = next(self.serial)
        config = Path(self.control_plane.folder) / f"queuectl-{number}.yaml"
        config.write_text(
            yaml.safe_dump(
                {
                    "leaseDuration": "4s",  # on a busy machine a process may not run for a second or two
                    "fenceGrace": "0s",
                    "backoff": "1s",
                    "queueStatusInterval": "1s",
                    **configuration,
                }
            )
        )
        port = free_port()
        argv = [sys.executable, "-m", "tests.proofs.controller", mutant, "--", "run"]
        argv += ["--kubeconfig", str(kubeconfig or self.control_plane.kubeconfig(USER)), "--config", str(config)]
        argv += ["--listen", f"127.0.0.1:{port}"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = self.control_plane.spawn(f"queuectl-{number}", argv, environment)
        running = Running(process, f"http://127.0.0.1:{port}")
        self._controllers.append(running)
        return running

    @asynccontextmanager
    async def scenario(
        self, nodes: Sequence[NodeSpec], queues: Mapping[str, Object] | None = None
    ) -> AsyncIterator[str]:
        """A namespace with nodes and queues (default: one queue of the namespace's name, without limits); gone afterwards."""
        namespace = self.control_plane.namespace(f"s{next(self.serial)}")
        wanted = {namespace: {}} if queues is None else dict(queues)
        for name, spec in wanted.items():
            await self.queue(name, spec)
        async with Api(self.control_plane.kubeconfig("rig-kubelet", ADMIN_GROUPS)) as api:
            kubelet = FakeKubelet(api, nodes, heartbeat=self.control_plane.node_grace / 4)
            await kubelet.start()
            try:
                yield namespace
            finally:
                owners = (jobs(namespace), *(sets(namespace, plural) for plural in SETS))
                for path in (*owners, groups(namespace)):
                    await self.admin.delete(path, {"propagationPolicy": "Background"})

                async def empty() -> bool:
                    # Each time: a controller that has not heard yet that its set is gone makes one more.
                    await self.admin.delete(pods(namespace), {"gracePeriodSeconds": 0})
                    return not await self.admin.list(pods(namespace)) and not await self.admin.list(groups(namespace))

                await eventually(empty, 60, f"namespace {namespace} to be empty")
                await kubelet.stop(remove=True)
                for name in wanted:
                    await self.admin.delete(f"{QUEUES}/{name}")
                await self.admin.delete(f"/api/v1/namespaces/{namespace}")

    async def queue(self, name: str, spec: Object) -> Any:
        """Create a queue."""
        body = {"apiVersion": "queuectl.io/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
        return await self.admin.create(QUEUES, body)

    def tenant(self, namespace: str) -> Api:
        """A client of an ordinary user, who holds ``edit`` in the namespace."""
        return Api(self.control_plane.tenant(namespace, f"tenant-{namespace}"))

    async def job_pods(self, namespace: str, name: str) -> list[Object]:
        """The pods of a Job."""
        return await self.admin.list(pods(namespace), labelSelector=f"batch.kubernetes.io/job-name={name}")

    async def end(self, tenant: Api, namespace: str, name: str) -> None:
        """A tenant deletes a Job and its pods.

        Not left to the garbage collector: for half a minute after a CRD was installed it learns of the new kinds first.
        """
        await tenant.delete(f"{jobs(namespace)}/{name}", {"propagationPolicy": "Background"})
        await tenant.delete(pods(namespace), labelSelector=f"batch.kubernetes.io/job-name={name}")

    async def bound(
        self, namespace: str, name: str, count: int, deadline: float = 30.0, *, after: Sequence[Object] = ()
    ) -> list[Object]:
        """Wait until so many pods of a Job are released and bound, and return them; ``after``: and none is one of these."""
        before = {pod["metadata"]["uid"] for pod in after}

        async def look() -> list[Object]:
            found = [p for p in await self.job_pods(namespace, name) if not gated(p) and p["spec"].get("nodeName")]
            return found if len(found) == count and not before & {p["metadata"]["uid"] for p in found} else []

        return await eventually(look, deadline, f"{count} pods of {namespace}/{name} bound")

    async def all_gated(self, namespace: str, name: str, count: int, deadline: float = 30.0) -> list[Object]:
        """Wait until a Job has so many pods, all behind our gate."""

        async def look() -> list[Object]:
            found = await self.job_pods(namespace, name)
            return found if len(found) == count and all(map(gated, found)) else []

        return await eventually(look, deadline, f"{count} pods of {namespace}/{name} gated")

    async def complete(self, namespace: str, name: str, deadline: float = 60.0) -> Object:
        """Wait until a Job is complete and return it; the error tells what every gang of the namespace then says."""

        async def look() -> Object:
            found: Object = await self.admin.get(f"{jobs(namespace)}/{name}")
            status = found.get("status") or {}
            complete = any(c["type"] == "Complete" and c["status"] == "True" for c in status.get("conditions") or ())
            assert complete, status
            return found

        try:
            return await eventually(look, deadline, f"Job {namespace}/{name} complete")
        except DeadlineError as error:
            gangs = {g["metadata"]["name"]: g.get("status") for g in await self.admin.list(groups(namespace))}
            raise DeadlineError(f"{error}; gangs: {json.dumps(gangs)}") from None

    async def finish(self, namespace: str, name: str) -> Object:
        """Let the pods of a Job that run end well, and return the Job once it is complete."""
        for pod in await self.job_pods(namespace, name):
            if live(pod):
                path = f"{pods(namespace)}/{pod['metadata']['name']}"
                await self.admin.patch(path, {"metadata": {"annotations": {RUN_SECONDS: "0"}}})
        return await self.complete(namespace, name)

    async def group_of(self, namespace: str, name: str, deadline: float = 30.0) -> Object:
        """The PodGroup derived from a Job."""

        async def look() -> Object:
            for found in await self.admin.list(groups(namespace)):
                if any(r["name"] == name for r in found["metadata"].get("ownerReferences") or ()):
                    return dict(found)
            return {}

        return await eventually(look, deadline, f"PodGroup of {namespace}/{name}")


async def queuectl(*arguments: str, kubeconfig: Path | None = None) -> tuple[int, str, str]:
    """The command line, as a user runs it: exit code, standard output, standard error."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    if kubeconfig is not None:
        environment["KUBECONFIG"] = str(kubeconfig)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "queuectl.cli.main",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


def parsed(text: str) -> Any:
    """JSON that a command printed."""
    return json.loads(text)
