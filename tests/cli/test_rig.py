"""``queuectl`` as its users start it, against a real API server: run, read, explain, requeue, end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from msgspec import Struct

from tests.rig.apply import apply
from tests.rig.client import Api, DeadlineError, eventually
from tests.rig.controlplane import ADMIN_GROUPS, ControlPlane
from tests.rig.kubelet import FakeKubelet
from tests.rig.nodes import gpu_nodes
from tests.rig.objects import Object, indexed_job
from tests.rig.process import Process

pytestmark = pytest.mark.rig

USER = "cli-controller"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/queuectl-system/leases/queuectl"
CUSTOM = "/apis/queuectl.io/v1alpha1"


class Done(Struct):
    """How a command ended."""

    code: int
    out: str
    err: str


async def queuectl(*arguments: object, **environment: str) -> Done:
    """Run it to its end."""
    clean = {key: value for key, value in os.environ.items() if key not in {"KUBECONFIG", "QUEUECTL_SERVER"}}
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "queuectl.cli.main", *map(str, arguments)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**clean, **environment},
    )
    out, err = await asyncio.wait_for(child.communicate(), 60)
    return Done(child.returncode or 0, out.decode(), err.decode())


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    """One for this file: the admission policies would change other tests' world."""
    with ControlPlane() as running:
        done = asyncio.run(queuectl("crds", "--user", USER))
        assert done.code == 0, done.err
        apply(running, [document for document in yaml.safe_load_all(done.out) if document])
        yield running


class Controller:
    """``queuectl run`` as a process, and its log."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def log(self) -> list[dict[str, Any]]:
        """Every line that was written whole; each must be JSON."""
        lines = self.process.log.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]

    async def url(self) -> str:
        """Where it serves: the system chose the port."""
        return str((await self._said("serving"))["url"])

    async def leads(self) -> str:
        """Wait until it decides."""
        await self._said("leading")
        url = await self.url()

        async def ready() -> bool:
            async with aiohttp.ClientSession() as session, session.get(f"{url}/readyz") as reply:
                return reply.status == 200 and (await reply.json())["role"] == "leading"

        await eventually(ready, what="ready and leading")
        return url

    async def _said(self, message: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            if self.process.returncode is not None:
                raise DeadlineError(str(self.process.failure("ended early")))
            return next((line for line in self.log() if line["msg"] == message), None)

        found: dict[str, Any] | None = await eventually(look, what=f'"{message}" in the log')
        assert found is not None
        return found

    async def ends(self) -> int:
        """Its exit code."""
        return await asyncio.to_thread(self.process.wait, 20)


@pytest.fixture
async def controller(control_plane: ControlPlane, unique: str, tmp_path: Path) -> AsyncIterator[Controller]:
    """Started, not yet ready; killed afterwards if it still runs."""
    config = tmp_path / "queuectl.yaml"
    config.write_text("leaseDuration: 2s\nqueueStatusInterval: 1s\n")
    argv: list[str | Path] = [
        sys.executable,
        "-m",
        "queuectl.cli.main",
        "run",
        "--listen",
        "127.0.0.1:0",
        "--config",
        config,
    ]
    argv += ["--kubeconfig", control_plane.kubeconfig(USER), "--identity", unique]
    running = Controller(control_plane.spawn(f"queuectl-{unique}", argv))
    yield running
    running.process.stop(1.0)


async def holder(admin: Api) -> str:
    return str((await admin.get(LEASE))["spec"].get("holderIdentity", ""))


def managed(name: str, queue: str, count: int, gpus: int) -> Object:
    """A Job whose pods start together."""
    job = indexed_job(name, count, gpus=gpus)
    job["metadata"] |= {"labels": {"queuectl.io/queue": queue}, "annotations": {"queuectl.io/min-member": "all"}}
    return job


async def test_run_serves_and_ends_with_its_lease_given_back(controller: Controller, admin: Api, unique: str) -> None:
    url = await controller.leads()
    assert await holder(admin) == unique
    done = await queuectl("get", "queues", "-o", "json", QUEUECTL_SERVER=url)
    assert (done.code, json.loads(done.out)["kind"], json.loads(done.out)["leading"]) == (0, "QueueList", True)
    controller.process.signal(signal.SIGTERM)
    assert await controller.ends() == 0
    assert await holder(admin) == ""
    assert [line["msg"] for line in controller.log()][-2:] == ["ending", "ended"]
    assert all({"time", "level", "logger", "msg"} <= line.keys() for line in controller.log())


async def test_from_a_job_to_running_pods_and_back_in_the_queue(
    controller: Controller, control_plane: ControlPlane, admin: Api, namespace: str, unique: str
) -> None:
    url = await controller.leads()
    queue = {"metadata": {"name": unique}, "spec": {"resources": [{"name": "nvidia.com/gpu", "limit": "4"}]}}
    await admin.create(f"{CUSTOM}/queues", {"apiVersion": "queuectl.io/v1alpha1", "kind": "Queue", **queue})
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    space, server = ("-n", namespace), ("--server", url)
    tenant = ("--kubeconfig", control_plane.tenant(namespace, f"tenant-{unique}"))
    async with Api(control_plane.kubeconfig("rig-kubelet", ADMIN_GROUPS)) as api:
        kubelet = FakeKubelet(api, gpu_nodes(unique, 2, 4), heartbeat=control_plane.node_grace / 4)
        await kubelet.start()
        await admin.create(jobs, managed("train", unique, 4, gpus=1))

        async def phase(name: str) -> str:
            done = await queuectl("get", "gang", name, "-o", "json", *space, *server)
            return str(json.loads(done.out)["phase"]) if done.code == 0 else done.err

        async def is_in(name: str, wanted: str) -> bool:
            assert await phase(name) == wanted
            return True

        await eventually(lambda: is_in("train", "Running"), what="train to run")
        runs = await queuectl("explain", "job/train", *space, *server)
        assert "runs on 1 node: 4 of 4 pods running." in runs.out

        await admin.create(jobs, managed("next", unique, 2, gpus=2))
        await eventually(lambda: is_in("next", "Pending"), what="next to wait")
        waits = await queuectl("explain", "gang", "next", *space, *server)
        limit = f"OverLimit: queue {unique}: needs 4 nvidia.com/gpu, 0 left of its limit 4 (4 in use)."
        assert limit in waits.out, waits.out

        stranger = ("--kubeconfig", control_plane.kubeconfig("stranger"))
        refused = await queuectl("requeue", "gang", "train", *space, *stranger)
        assert refused.code == 1
        assert refused.err.startswith("error: ")
        assert "the role queuectl-edit allows it" in refused.err
        absent = await queuectl("requeue", "gang", "trian", *space, *tenant)
        assert (absent.code, absent.err) == (
            1,
            f'error: gang "trian" not found in namespace "{namespace}"\nnearest: train\n',
        )
        asked = await queuectl("requeue", "gang", "train", *space, *tenant)
        assert asked.code == 0, asked.err
        assert asked.out.startswith("podgroup.queuectl.io/job-train-")
        assert asked.out.endswith(" asked to be requeued\n")

        async def given_back() -> bool:
            done = await queuectl("get", "gang", "train", "-o", "json", *space, *server)
            assert json.loads(done.out)["round"] == 2 or json.loads(done.out)["phase"] == "Pending"
            return True

        await eventually(given_back, what="train to be given back")
        assert any(line["msg"].startswith("give back") and line.get("gang") for line in controller.log())
        assert any(line["msg"] == "admit" and line["round"] == 1 for line in controller.log())
        await kubelet.stop(remove=True)


async def test_losing_the_lease_is_exit_code_1_and_a_sentence(controller: Controller, admin: Api) -> None:
    await controller.leads()
    lease = await admin.get(LEASE)
    spec = {"holderIdentity": "somebody", "leaseTransitions": lease["spec"]["leaseTransitions"] + 1}
    await admin.patch(LEASE, {"spec": spec})

    def ended() -> bool:
        return controller.process.returncode is not None

    await eventually(ended, what="the controller to end")
    assert controller.process.returncode == 1
    last = controller.log()[-1]
    assert last["level"] == "error"
    assert last["msg"].startswith(("the lease is lost: taken over by somebody", "another process leads: "))
    assert last["advice"] == "start it again to stand by"
    assert not any("exception" in line for line in controller.log())
    await admin.patch(LEASE, {"spec": {"holderIdentity": ""}})
