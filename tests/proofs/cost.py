"""Claims about cost: decoding what a start must read, release against bare patches, and what an idle controller uses."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from benchmarks.decode import pages
from queuectl.contract import foreign, patches
from queuectl.control.ports import Upserted
from queuectl.control.source import Source
from queuectl.drivers.kube.decode import decoders
from tests.proofs.stage import QUEUES, ROOT, USER, Running, Stage, groups, job, jobs, pods
from tests.proofs.table import Proof
from tests.rig.audit import AuditLog, gate_removals
from tests.rig.client import STRATEGIC, Api, eventually
from tests.rig.controlplane import ADMIN_GROUPS
from tests.rig.nodes import NodeSpec, gpu_nodes

PODS, SIZE, IN_FLIGHT = 2000, 16, 16
TICKS = os.sysconf("SC_CLK_TCK")


# ---- decode


def decode_and_keep(count: int, *, gangs: bool, compare: bool = False) -> dict[str, float]:
    """Pages of pods to what the controller keeps of each, and with ``gangs`` of all together: CPU seconds and MB.

    Run in a process of its own. Making the pages is not timed. ``compare``: also what ``json.loads`` of each page takes.
    """
    gc.disable()  # as the controller does until its mirror is complete
    source, kept, decode = Source(), [], decoders(foreign.PODS.type).page
    before, seconds, plain = _resident(), 0.0, 0.0
    for page in pages(count):
        if compare:
            start = time.process_time()
            json.loads(page)
            plain += time.process_time() - start
        start = time.process_time()
        for event in decode(page)[0]:
            if isinstance(event, Upserted):
                if gangs:
                    source.apply(foreign.PODS, event)
                else:
                    kept.append(source.tracked(event.object))
        seconds += time.process_time() - start
    gc.collect()
    if max(len(source.pods), len(kept)) != count:
        raise AssertionError(f"{len(source.pods)} of {count} kept")
    return {"seconds": seconds, "mb": (_resident() - before) / 1e6, "plain": plain}


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _decoded(count: int, *, gangs: bool, compare: bool = False) -> dict[str, float]:
    arguments = f"{count}, gangs={gangs}, compare={compare}"
    code = f"import json; from tests.proofs.cost import decode_and_keep as d; print(json.dumps(d({arguments})))"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    out, _ = await process.communicate()
    measured: dict[str, float] = json.loads(out)
    return measured


async def decode(proof: Proof) -> None:
    """CPU seconds and kept memory, the best of three runs: other work on the machine only ever adds.

    The sample compares with what the standard library takes for the same pages, page by page: how fast the machine is
    must not decide whether a test passes. Memory: 10 MB do not grow with the number of pods.
    """
    if proof.sample:
        kept, compared = await _decoded(30_000, gangs=False), await _decoded(10_000, gangs=False, compare=True)
        ratio = compared["seconds"] / compared["plain"]
        proof.row(
            "decode pods of 5.9 KB with managedFields, 500 a page, to what is kept of each",
            f"{ratio:.2f} of the CPU that json.loads takes for the same 10,000; {kept['mb']:.0f} MB kept of 30,000",
            "< 0.45, < 37 MB",
            ratio < 0.45 and kept["mb"] < 37,
        )
        return
    count, found = 100_000, {}
    for gangs in (False, True):
        runs = [await _decoded(count, gangs=gangs) for _ in range(3)]
        found[gangs] = min(r["seconds"] for r in runs), max(r["mb"] for r in runs)
    (seconds, small), (whole, large) = found[False], found[True]
    most = max(small, large)
    proof.row(
        f"decode {count:,} pods of 5.9 KB with managedFields, 500 a page, to what is kept of each",
        f"{seconds:.2f} s of CPU ({whole:.2f} s with their gangs told to the engine's input), {most:.0f} MB kept of all",
        "< 2 s, < 100 MB",
        seconds < 2.0 and most < 100,
    )


# ---- release


@asynccontextmanager
async def field(stage: Stage, nodes: Sequence[NodeSpec]) -> AsyncIterator[tuple[str, Api]]:
    """A namespace with a held queue, and nodes played by a process of their own, so that they cost this one nothing."""
    number = next(stage.serial)
    namespace = stage.control_plane.namespace(f"s{number}")
    await stage.queue(namespace, {"state": "Held"})
    spec = Path(stage.control_plane.folder) / f"nodes-{number}.json"
    spec.write_bytes(msgspec.json.encode(list(nodes)))
    config = stage.control_plane.kubeconfig("rig-kubelet", ADMIN_GROUPS)
    argv = [sys.executable, "-m", "tests.rig.kubelet", "--kubeconfig", str(config), "--nodes", str(spec)]
    kubelet = stage.control_plane.spawn(f"kubelet-{number}", argv, {**os.environ, "PYTHONPATH": str(ROOT)})
    try:

        async def ready() -> bool:
            found = {n["metadata"]["name"]: n for n in await stage.admin.list("/api/v1/nodes")}
            return all(n.name in found and not found[n.name]["spec"].get("taints") for n in nodes)

        await eventually(ready, 60, f"{len(nodes)} nodes ready")
        yield namespace, stage.admin
    finally:
        await empty(stage, namespace)
        kubelet.stop()
        for node in nodes:
            await stage.admin.delete(f"/api/v1/nodes/{node.name}")
        await stage.admin.delete(f"{QUEUES}/{namespace}")


async def empty(stage: Stage, namespace: str) -> None:
    """Delete all Jobs and wait until nothing is left of them."""
    await stage.admin.delete(jobs(namespace), {"propagationPolicy": "Background"})

    async def look() -> bool:
        return not await stage.admin.list(pods(namespace), limit=1) and not await stage.admin.list(groups(namespace))

    await eventually(look, 240, "the namespace to be empty")


async def fill(stage: Stage, namespace: str, count: int, prefix: str) -> None:
    """So many pods in Jobs of 16, all behind our gate, because their queue is held."""
    await stage.admin.patch(f"{QUEUES}/{namespace}", {"spec": {"state": "Held"}})
    for number in range(count // SIZE):
        await stage.admin.create(jobs(namespace), job(f"{prefix}-{number}", namespace, SIZE))
    await reach(stage, namespace, "active", count)


async def reach(stage: Stage, namespace: str, what: str, count: int) -> None:
    """Wait until the Jobs' status sums up to so many pods ``active`` or ``ready``: cheaper to ask than all the pods."""

    async def look() -> bool:
        found = await stage.admin.list(jobs(namespace))
        return sum(int((one.get("status") or {}).get(what) or 0) for one in found) == count

    await eventually(look, 240, f"{count} pods {what}")


async def _quiet(stage: Stage) -> None:
    """Wait until the control plane has digested what was made for the measurement: it would be measured too."""

    async def settled() -> bool:
        processes = stage.control_plane.processes
        before = sum(cpu_seconds(one.pid) for one in processes)
        await asyncio.sleep(1)
        return sum(cpu_seconds(one.pid) for one in processes) - before < 0.3

    await eventually(settled, 120, "the control plane to settle")


async def _rate(audit: AuditLog, prefix: str, count: int) -> float:
    """Pods a second from the first gate that was removed to the last, once all are in the audit log.

    Looked at once a second: reading the log costs time that the measured ones would miss.
    """
    for _ in range(180):
        removals = [r for r in gate_removals(audit.events()) if r.name.startswith(prefix + "-")]
        if len(removals) == count:
            times = [r.event.request_received_timestamp for r in removals]
            return count / float((max(times) - min(times)).total_seconds())
        await asyncio.sleep(1)
    raise AssertionError(f"{len(removals)} of {count} released")


async def _ours(stage: Stage, namespace: str, count: int, prefix: str) -> float:
    """By the controller, all gangs being ready at once."""
    async with stage.leader(leaseDuration="15s"):
        await fill(stage, namespace, count, prefix)
        await _quiet(stage)
        audit = AuditLog(stage.control_plane.audit_path, from_end=True)
        await stage.admin.patch(f"{QUEUES}/{namespace}", {"spec": {"state": "Open"}})
        return await _rate(audit, prefix, count)


async def _bare(stage: Stage, namespace: str, count: int, prefix: str) -> float:
    """The same pods by bare patches with identical bodies and concurrency, over the account of the controller."""
    async with stage.leader(leaseDuration="15s"):  # makes the PodGroups, as in the other run; then it is gone
        await fill(stage, namespace, count, prefix)
    found = await stage.admin.list(pods(namespace))
    nodes = [n["metadata"]["name"] for n in await stage.admin.list("/api/v1/nodes")]
    lease = await stage.admin.get("/apis/coordination.k8s.io/v1/namespaces/queuectl-system/leases/queuectl")
    fence = lease["spec"]["leaseTransitions"]
    await _quiet(stage)
    audit = AuditLog(stage.control_plane.audit_path, from_end=True)
    waiting = iter(enumerate(found))
    async with Api(stage.control_plane.kubeconfig(USER)) as api:

        async def work() -> None:
            for number, pod in waiting:
                meta = pod["metadata"]
                node = nodes[(number // SIZE) % len(nodes)]
                body = patches.release(meta["uid"], meta["resourceVersion"], None, node, fence)
                await api.patch(f"{pods(namespace)}/{meta['name']}", body, STRATEGIC, fieldManager="queuectl")

        await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    return await _rate(audit, prefix, count)


async def release_rate(proof: Proof, stage: Stage) -> None:
    """Interleaved, five runs of each, each going first in turn; kube-scheduler binds what is released in both."""
    nodes = gpu_nodes("rate", 24, 100)
    ours: list[float] = []
    bare: list[float] = []
    async with field(stage, nodes) as (namespace, _):
        for run in range(5):
            for measure, into in ((_ours, ours), (_bare, bare))[:: 1 if run % 2 else -1]:
                into.append(await measure(stage, namespace, PODS, f"{measure.__name__.strip('_')}{run}"))
                print(f"# {measure.__name__} {into[-1]:.0f}/s", file=sys.stderr, flush=True)
                await empty(stage, namespace)
    ratios = [one / other for one, other in zip(ours, bare, strict=True)]
    ratio = statistics.median(ratios)
    rates = f"{statistics.median(ours):.0f}/s against {statistics.median(bare):.0f}/s"
    proof.row(
        f"release of {PODS} pods in gangs of {SIZE} against bare patches (same bodies, {IN_FLIGHT} at once, interleaved, n = 5)",
        f"ratio {ratio:.2f} ({min(ratios):.2f}–{max(ratios):.2f}); {rates}",
        "median ≥ 0.87",
        ratio >= 0.87,
    )


# ---- idle


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def _share(controller: Running, seconds: float) -> float:
    before, start = cpu_seconds(controller.process.pid), time.monotonic()
    await asyncio.sleep(seconds)  # not a wait for something to happen: the length of the measurement
    return (cpu_seconds(controller.process.pid) - before) / (time.monotonic() - start)


async def idle(proof: Proof, stage: Stage) -> None:
    """4,000 running pods, settled; and again with a gang waiting that can never be placed."""
    count, seconds = (400, 10.0) if proof.sample else (4000, 60.0)
    nodes = gpu_nodes("idle", max(6, count // 80), 100)
    async with field(stage, nodes) as (namespace, admin):
        leading = stage.leader(leaseDuration="15s", queueStatusInterval="10s")
        async with leading as controller:
            await fill(stage, namespace, count, "idle")
            await admin.patch(f"{QUEUES}/{namespace}", {"spec": {"state": "Open"}})

            await reach(stage, namespace, "ready", count)

            async def settled() -> bool:
                before = cpu_seconds(controller.process.pid)
                await asyncio.sleep(4)
                return cpu_seconds(controller.process.pid) - before < 0.04

            await _quiet(stage)
            await eventually(settled, 60, "the controller to settle")
            alone = await _share(controller, seconds)
            await admin.create(jobs(namespace), job("impossible", namespace, 2, gpus=101))
            group = await stage.group_of(namespace, "impossible")

            async def said() -> bool:
                found = await admin.get(f"{groups(namespace)}/{group['metadata']['name']}")
                return ((found.get("status") or {}).get("blocker") or {}).get("reason") == "NeverFits"

            await eventually(said, 30, "the impossible gang's reason")
            await eventually(settled, 60, "the controller to settle")
            waiting = await _share(controller, seconds)
    for what, share in (("", alone), (", and an impossible gang waiting", waiting)):
        proof.row(
            f"idle with {count:,} running pods{what}",
            f"{share:.4f} of a core over {seconds:.0f} s",
            "< 0.005",
            share < 0.005,
        )
