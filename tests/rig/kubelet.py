"""A fake kubelet for any number of nodes: it runs what others have bound, and it never binds.

One watch over all bound pods feeds a queue; a bounded number of writers work it off, one pod at a time each, one status
patch per step. What a pod does is said by its annotations (:mod:`tests.rig.nodes`) and by the scripted failures below.
``python -m tests.rig.kubelet --kubeconfig F --nodes spec.json`` runs it as a process of its own, for measurements.

Unlike a real one it knows no restarts (``run-seconds`` ends a pod whatever its restartPolicy), no init containers and no
probes, and it does not check that pods fit their node.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Literal

import aiohttp
import msgspec

from tests.rig import nodes as say
from tests.rig.client import MERGE, STRATEGIC, Api, ApiError, eventually
from tests.rig.nodes import NodeSpec, Patch, Pod

WRITERS = (
    16  # writes in flight: enough to keep the API server busy on two cores, few enough to leave it room for others
)
HEARTBEAT = 2.0  # seconds between two leases of a node: a quarter of the control plane's grace of 8 s
RETRY_SECONDS = 0.3  # before a write or a watch is tried again after an outage
HEALING = {429, 500, 502, 503, 504}  # answers that mean "later"

Match = Callable[[Pod], bool]


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str


class _PodList(msgspec.Struct):
    metadata: _ListMeta
    items: list[Pod]


class _Bookmark(msgspec.Struct):
    metadata: _ListMeta


_event = msgspec.json.Decoder(_Event)
_pod = msgspec.json.Decoder(Pod)
_pods = msgspec.json.Decoder(_PodList)
_bookmark = msgspec.json.Decoder(_Bookmark)


class Script(msgspec.Struct, eq=False):
    """A scripted failure: pods that match are refused or held, ``times`` times (None: always)."""

    match: Match
    action: Literal["reject", "hold"]
    times: int | None
    reason: str
    message: str
    hits: int = 0


class _Known(msgspec.Struct, eq=False):
    """What the kubelet remembers of a pod. Times are the event loop's."""

    pod: Pod
    queued: bool = False
    busy: bool = False
    dirty: bool = False  # something happened while a writer was at it
    seen_at: float = 0.0
    running_at: float | None = None
    stop_at: float | None = None
    held: Script | None = None
    waiting: bool = False  # ContainerCreating was reported
    gone: bool = False  # the final delete was sent
    timer: asyncio.TimerHandle | None = None


class FakeKubelet:
    """Plays ``nodes`` through ``api`` (which needs the rights of an administrator). Start, script, stop."""

    def __init__(
        self, api: Api, nodes: Sequence[NodeSpec], *, writers: int = WRITERS, heartbeat: float = HEARTBEAT
    ) -> None:
        self.api = api
        self.nodes = {node.name: node for node in nodes}
        self.counts: Counter[str] = Counter()  # running, succeeded, failed, rejected, deleted, retries, relists
        self._writers = writers
        self._heartbeat = heartbeat
        self._silent: set[str] = set()
        self._scripts: list[Script] = []
        self._known: dict[str, _Known] = {}
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._addresses = 0

    async def start(self, seconds: float = 30.0) -> None:
        """Register the nodes and wait until they are free of the not-ready taint that every new node gets."""
        await self._each_node(self._register)
        loops = [self._watch(), self._beat(), *(self._work() for _ in range(self._writers))]
        self._tasks = [asyncio.create_task(loop) for loop in loops]

        async def untainted() -> bool:
            self.check()
            found = {node["metadata"]["name"]: node for node in await self.api.list("/api/v1/nodes")}
            return all(
                name in found
                and not any("not-ready" in t["key"] or "unreachable" in t["key"] for t in _taints(found[name]))
                for name in self.nodes
            )

        await eventually(untainted, seconds, f"{len(self.nodes)} nodes ready")

    async def stop(self, *, remove: bool = False) -> None:
        """End all activity. ``remove`` also takes the pods (by force) and the nodes away. Raises what a task died of."""
        try:
            self.check()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for known in self._known.values():
                if known.timer:
                    known.timer.cancel()
        if remove:
            await self._each(list(self._known.values()), self._force)
            await self._each_node(self._unregister)

    def check(self) -> None:
        """Raise the exception that ended one of the tasks, if any."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()):
                raise error

    def silence(self, node: str) -> None:
        """The node says nothing from now on: no lease, no status. Keep most nodes alive: with more than 55 % of a zone
        lost, Kubernetes stops evicting, and with all of them it takes the taints back.
        """
        self._silent.add(node)

    async def revive(self, node: str) -> None:
        """The node is back: lease, Ready, and whatever its pods have to say."""
        self._silent.discard(node)
        await self._ready(node)
        for uid, known in self._known.items():
            if known.pod.spec.node_name == node:
                self._enqueue(uid)

    def reject(
        self,
        match: Match,
        times: int | None = 1,
        reason: str = "UnexpectedAdmissionError",
        message: str = "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices",
    ) -> Script:
        """Refuse matching pods after they were bound: phase Failed with this reason."""
        return self._add(Script(match, "reject", times, reason, message))

    def hold(self, match: Match, times: int | None = None) -> Script:
        """Keep matching pods in ContainerCreating until :meth:`lift`."""
        return self._add(Script(match, "hold", times, "", ""))

    def lift(self, script: Script) -> None:
        """End a scripted failure; pods that it held start."""
        if script in self._scripts:
            self._scripts.remove(script)
        for uid, known in self._known.items():
            if known.held is script:
                known.held = None
                self._enqueue(uid)

    def _add(self, script: Script) -> Script:
        self._scripts.append(script)
        return script

    # -- nodes ---------------------------------------------------------------------------------------------------------

    async def _register(self, name: str) -> None:
        try:
            node = await self.api.create("/api/v1/nodes", say.node_object(self.nodes[name]))
        except ApiError as error:
            if error.status != 409:
                raise
            node = await self._ready(name)  # a kubelet that starts again finds its node
        lease = say.lease_object(name, node["metadata"]["uid"], max(1, round(4 * self._heartbeat)))
        try:
            await self.api.create("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", lease)
        except ApiError as error:
            if error.status != 409:
                raise
            await self._renew(name)

    async def _ready(self, name: str) -> Patch:
        await self._renew(name, missing_is_fine=True)
        status = {"status": {"conditions": say.node_conditions()}}
        node: Patch = await self.api.patch(f"/api/v1/nodes/{name}/status", status, STRATEGIC)
        return node

    async def _unregister(self, name: str) -> None:
        await self._quietly("DELETE", f"/api/v1/nodes/{name}")
        await self._quietly("DELETE", f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}")

    async def _renew(self, name: str, *, missing_is_fine: bool = True) -> None:
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"
        try:
            await self.api.patch(path, {"spec": {"renewTime": say.microstamp()}}, MERGE)
        except ApiError as error:
            if error.status not in HEALING and not (error.status == 404 and missing_is_fine):
                raise
        except (aiohttp.ClientError, TimeoutError):
            self.counts["retries"] += 1  # the next beat comes soon

    async def _beat(self) -> None:
        """Renew every lease once per heartbeat, in ten slices: hundreds of nodes must not write in one burst."""
        slices = 10
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            for i in range(slices):
                due += self._heartbeat / slices
                await asyncio.sleep(max(0.0, due - loop.time()))
                await self._each([n for n in list(self.nodes)[i::slices] if n not in self._silent], self._renew)

    # -- pods ----------------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        version = ""
        while True:
            try:
                version = version or await self._list()
                async for line in self.api.watch_lines(
                    "/api/v1/pods",
                    fieldSelector="spec.nodeName!=",
                    resourceVersion=version,
                    allowWatchBookmarks=True,
                ):
                    event = _event.decode(line)
                    if event.type == "ERROR":  # 410: too old
                        version = ""
                        break
                    if event.type == "BOOKMARK":
                        version = _bookmark.decode(event.object).metadata.resource_version
                        continue
                    pod = _pod.decode(event.object)
                    version = pod.metadata.resource_version
                    self._saw(pod, deleted=event.type == "DELETED")
            except ApiError as error:
                if error.status == 410:
                    version = ""
                elif error.status not in HEALING:
                    raise
                await asyncio.sleep(RETRY_SECONDS)
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(RETRY_SECONDS)

    async def _list(self) -> str:
        self.counts["relists"] += 1
        status, headers, content = await self.api.raw("GET", "/api/v1/pods", fieldSelector="spec.nodeName!=")
        if status != 200:
            raise ApiError(status, content.decode(errors="replace"), "LIST pods", headers)
        found = _pods.decode(content)
        alive = {pod.metadata.uid for pod in found.items}
        for known in [k for uid, k in self._known.items() if uid not in alive]:
            self._saw(known.pod, deleted=True)
        for pod in found.items:
            self._saw(pod, deleted=False)
        return found.metadata.resource_version

    def _saw(self, pod: Pod, *, deleted: bool) -> None:
        uid = pod.metadata.uid
        if pod.spec.node_name not in self.nodes:
            return
        known = self._known.get(uid)
        if deleted:
            if known is not None:
                self.counts["deleted"] += 1
                if known.timer:
                    known.timer.cancel()
                del self._known[uid]
            return
        if known is None:
            known = self._known[uid] = _Known(pod, seen_at=asyncio.get_running_loop().time())
        # Our own patch's reply may have been newer than this event.
        elif int(pod.metadata.resource_version) > int(known.pod.metadata.resource_version):
            known.pod = pod
        else:
            return
        self._enqueue(uid)

    def _enqueue(self, uid: str) -> None:
        known = self._known.get(uid)
        if known is None or known.queued:
            return
        if known.busy:
            known.dirty = True
            return
        known.queued = True
        self._queue.put_nowait(uid)

    def _later(self, known: _Known, when: float) -> None:
        if known.timer:
            known.timer.cancel()
        known.timer = asyncio.get_running_loop().call_at(when, self._enqueue, known.pod.metadata.uid)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            uid = await self._queue.get()
            known = self._known.get(uid)
            if known is None:
                continue
            known.queued, known.busy, known.dirty = False, True, False
            try:
                await self._step(known)
            except ApiError as error:
                # 404: gone; 409 and 422: a namesake with another UID, or a write in between whose event comes.
                if error.status in HEALING:
                    self.counts["retries"] += 1
                    self._later(known, loop.time() + RETRY_SECONDS)
                elif error.status not in {404, 409, 422}:
                    raise
                else:
                    self.counts[f"refused {error.status}"] += 1
            except (aiohttp.ClientError, TimeoutError):
                self.counts["retries"] += 1
                self._later(known, loop.time() + RETRY_SECONDS)
            finally:
                known.busy = False
            if known.dirty:
                self._enqueue(uid)

    async def _step(self, known: _Known) -> None:
        """Bring one pod as far as it can go now; set its timer for what comes later."""
        now = asyncio.get_running_loop().time()
        pod = known.pod
        if pod.spec.node_name in self._silent or known.gone:
            return
        if pod.metadata.deletion_timestamp is not None:
            await self._end(known, now)
            return
        if pod.terminal:
            return
        if pod.status.phase == "Pending":
            if not await self._begin(known, now):
                return
            pod = known.pod
        run = pod.seconds(say.RUN_SECONDS)
        if run is None:
            return
        if known.running_at is None:  # this kubelet was started after the pod: it counts from now
            known.running_at = now
        if now < known.running_at + run:
            self._later(known, known.running_at + run)
            return
        code = int(pod.metadata.annotations.get(say.EXIT_CODE, "0"))
        await self._report(known, say.finished(pod, code), "failed" if code else "succeeded")

    async def _begin(self, known: _Known, now: float) -> bool:
        """Start a bound pod; False when it is refused, held or not yet due."""
        pod = known.pod
        notes = pod.metadata.annotations
        script = known.held or next((s for s in self._scripts if s.times != s.hits and s.match(pod)), None)
        if script is not None and known.held is None:
            script.hits += 1
        if notes.get(say.REJECT) == "true":
            script = Script(lambda _: True, "reject", None, "UnexpectedAdmissionError", "asked for by annotation")
        if script is not None and script.action == "reject":
            await self._report(known, say.rejected(pod, script.reason, script.message), "rejected")
            return False
        known.held = script
        due = known.seen_at + (pod.seconds(say.START_SECONDS) or 0.0)
        if script is not None or notes.get(say.NEVER_START) == "true" or now < due:
            if not known.waiting:
                known.waiting = True
                await self._report(known, say.creating(pod), "creating")
            if script is None and now < due:
                self._later(known, due)
            return False
        self._addresses += 1
        address = f"10.{128 + self._addresses // 65536 % 64}.{self._addresses // 256 % 256}.{self._addresses % 256}"
        await self._report(known, say.running(pod, address), "running")
        known.running_at = asyncio.get_running_loop().time()
        return True

    async def _end(self, known: _Known, now: float) -> None:
        """Graceful deletion: wait, report a terminal phase (the Job controller counts by it), delete for good."""
        pod = known.pod
        if known.stop_at is None:
            grace = pod.metadata.deletion_grace_period_seconds or 0.0
            known.stop_at = now + min(pod.seconds(say.STOP_SECONDS) or 0.0, grace)
        if now < known.stop_at:
            self._later(known, known.stop_at)
            return
        if not pod.terminal:
            code = int(pod.metadata.annotations.get(say.STOP_CODE, "143"))
            await self._report(known, say.finished(pod, code), "stopped")
        await self._force(known)
        known.gone = True  # a finalizer may keep it a while; that is for others to take away

    async def _force(self, known: _Known) -> None:
        pod = known.pod
        await self._quietly("DELETE", pod.path, {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}})

    async def _report(self, known: _Known, status: Patch, what: str) -> None:
        path = known.pod.path + "/status"
        code, headers, content = await self.api.raw("PATCH", path, status, content_type=STRATEGIC)
        if code >= 400:
            raise ApiError(code, msgspec.json.decode(content), f"PATCH {path}", headers)
        reply = _pod.decode(content)
        if int(reply.metadata.resource_version) > int(known.pod.metadata.resource_version):
            known.pod = reply  # else the watch has overtaken it, with the pod's deletion perhaps
            known.dirty = True  # the reply may bring the deletion itself, whose event then is no news
        self.counts[what] += 1

    async def _quietly(self, method: str, path: str, body: object = None) -> None:
        """A request for which "not there" (404) and "another by that name" (409) are as good as done."""
        try:
            await self.api.request(method, path, body)
        except ApiError as error:
            if error.status not in {404, 409}:
                raise

    async def _each_node(self, act: Callable[[str], object]) -> None:
        await self._each(list(self.nodes), act)

    async def _each(self, things: Sequence[object], act: Callable[..., object]) -> None:
        """Await ``act`` for each thing, at most ``writers`` at a time."""
        limit = asyncio.Semaphore(self._writers)

        async def one(thing: object) -> None:
            async with limit:
                await act(thing)  # type: ignore[misc]  # either of two callables, each called with its own kind of thing

        await asyncio.gather(*(one(thing) for thing in things))


MakeNodes = Callable[..., Coroutine[Any, Any, FakeKubelet]]  # the type of the fixture `fake_nodes`


def _taints(node: Patch) -> list[dict[str, str]]:
    taints: list[dict[str, str]] = node["spec"].get("taints") or []
    return taints


async def _serve(kubeconfig: Path, nodes: list[NodeSpec], writers: int, heartbeat: float) -> Counter[str]:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Api(kubeconfig, connections=2 * writers + 2) as api:  # pods, leases, the watch
        kubelet = FakeKubelet(api, nodes, writers=writers, heartbeat=heartbeat)
        # 0.5 s a node on top: registering thousands of them takes a while
        await kubelet.start(30.0 + 0.5 * len(nodes))
        print(f"ready: {len(nodes)} nodes", flush=True)
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), 1.0)
            kubelet.check()
        await kubelet.stop()
        return kubelet.counts


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line: play the nodes of a JSON file (a list of node descriptions) until SIGTERM; then print counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.rig.kubelet", description=main.__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument(
        "--nodes", type=Path, required=True, help="JSON: [{name, gpus, labels, taints, allocatable}, …]"
    )
    parser.add_argument("--writers", type=int, default=WRITERS, help="writes in flight (default %(default)s)")
    parser.add_argument("--heartbeat", type=float, default=HEARTBEAT, help="seconds between leases of a node")
    options = parser.parse_args(arguments)
    nodes = msgspec.json.decode(options.nodes.read_bytes(), type=list[NodeSpec])
    counts = asyncio.run(_serve(options.kubeconfig, nodes, options.writers, options.heartbeat))
    print(msgspec.json.encode(dict(counts)).decode(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
