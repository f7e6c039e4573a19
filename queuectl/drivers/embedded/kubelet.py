"""The kubelets of all nodes: they make their Node ready, run what is bound to it, and end what is deleted.

What a pod does is said by its annotations, which are those of the tests' fake kubelet on a real control plane, and by the
scripted failures here. Time passes by timers of the event loop only. O(1) a step. There are no restarts, init containers or
probes; ``RUN_SECONDS`` ends a pod whatever its restartPolicy, and without it a pod runs until it is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from queuectl.contract.foreign import NODES, PODS
from queuectl.drivers.embedded.merge import Json
from queuectl.drivers.embedded.nodes import NodeController
from queuectl.drivers.embedded.store import Store, Stored
from queuectl.drivers.embedded.workqueue import WorkQueue

PREFIX = "rig.queuectl.io/"
RUN_SECONDS = PREFIX + "run-seconds"  # ends this long after it started; absent: runs until it is deleted
EXIT_CODE = PREFIX + "exit-code"  # of that end; not 0: the pod is Failed
START_SECONDS = PREFIX + "start-seconds"  # from bound to running (pulling an image, say), instead of the kubelet's own
STOP_SECONDS = PREFIX + "stop-seconds"  # from deletion to gone, default 0, at most the pod's grace period
STOP_CODE = PREFIX + "stop-code"  # exit code at deletion, default 143: ended by SIGTERM, as most programs are
NEVER_START = PREFIX + "never-start"  # "true": stays in ContainerCreating
REJECT = PREFIX + "reject"  # "true": refused by the kubelet after it was bound

USER = "system:nodes"
TERMINATED = 143  # exit code: 128 and SIGTERM
FOREVER = 1e9  # seconds: no timer is set for what takes that long
START = 0.5  # seconds from bound to running where nothing else is said: an image that is there already
_TERMINAL = ("Succeeded", "Failed")
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")

Match = Callable[[Json], bool]


class Script(Struct, eq=False):
    """A scripted failure: pods that match are refused or held, ``times`` times (None: always)."""

    match: Match
    action: str
    times: int | None
    reason: str = ""
    message: str = ""
    hits: int = 0


class _Pod(Struct, eq=False):
    """A bound pod. Times are the event loop's."""

    body: Json
    node: str
    bound_at: float
    running_at: float | None = None
    stop_at: float | None = None
    script: Script | None = None
    waiting: bool = False  # ContainerCreating was reported


class Kubelet:
    """Plays all nodes of a store. ``close`` ends it."""

    def __init__(
        self,
        store: Store,
        failed: Callable[[Exception], None],
        nodes: NodeController,
        *,
        start: float = START,
    ) -> None:
        """``nodes`` is told of a node that falls silent and of one that is back.

        ``failed`` is told of an exception of our own; ``start`` is seconds from bound to running. Needs a running loop.
        """
        self._store = store
        self._nodes = nodes
        self._start = start
        self._loop = asyncio.get_running_loop()
        self._pods: dict[str, _Pod] = {}
        self._scripts: list[Script] = []
        self._silent: set[str] = set()
        self._addresses = 0
        self._queue = WorkQueue(self._step, failed)
        self._registrations = WorkQueue(self._register, failed)
        store.listen(self._committed)

    def close(self) -> None:
        """Do nothing from now on."""
        self._store.unlisten(self._committed)
        self._queue.close()
        self._registrations.close()

    # ---- scripted failures

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
        """Keep matching pods in ContainerCreating until ``lift``."""
        return self._add(Script(match, "hold", times))

    def lift(self, script: Script) -> None:
        """End a scripted failure; pods that it held start."""
        if script in self._scripts:
            self._scripts.remove(script)
        for uid, pod in self._pods.items():
            if pod.script is script:
                pod.script = None
                self._queue.add(uid)

    def silence(self, node: str) -> None:
        """The node says nothing from now on. What follows is the node controller's (``nodes.py``)."""
        self._silent.add(node)
        self._nodes.lost(node)

    def revive(self, node: str) -> None:
        """The node is back: Ready, and whatever its pods have to say."""
        self._silent.discard(node)
        self._nodes.heard(node)
        self._registrations.add(node)
        for uid, pod in self._pods.items():
            if pod.node == node:
                self._queue.add(uid)

    def _add(self, script: Script) -> Script:
        self._scripts.append(script)
        return script

    # ---- what happens

    def _committed(self, stored: Stored) -> None:
        match stored.kind.plural:
            case "pods":
                self._pod(stored)
            case "nodes" if stored.verb == "ADDED":
                self._registrations.add(stored.object["metadata"]["name"])

    def _pod(self, stored: Stored) -> None:
        node = stored.object["spec"].get("nodeName")
        if not node:
            return
        uid = stored.object["metadata"]["uid"]
        if stored.verb == "DELETED":
            self._pods.pop(uid, None)
            self._queue.forget(uid)
            return
        pod = self._pods.get(uid)
        if pod is None:
            self._pods[uid] = _Pod(stored.object, node, self._loop.time())
        else:
            pod.body = stored.object
        if stored.user != USER:  # of what we write ourselves, each step sees to what comes next
            self._queue.add(uid)

    def _register(self, name: str) -> None:
        """Report a Node that was made, or that is back, as Ready."""
        node = self._found(name)
        if node is None or name in self._silent:
            return
        now = self._store.time()
        said = [("Ready", "True", "KubeletReady"), *((name, "False", f"KubeletHasNo{name}") for name in _PRESSURES)]
        known = {one["type"]: one for one in (node.get("status") or {}).get("conditions") or ()}
        conditions = [
            {"type": kind, "status": status, "reason": reason, "lastHeartbeatTime": now, "lastTransitionTime": now}
            for kind, status, reason in said
            if known.get(kind, {}).get("status") != status
        ]
        if conditions:
            patch = {"status": {"conditions": conditions}}
            self._store.patch(NODES, "", name, patch, f"system:node:{name}", subresource="status")

    def _found(self, name: str) -> Json | None:
        return self._store.find(NODES, "", name)

    # ---- one step of one pod

    def _step(self, uid: str) -> None:
        """Bring a pod as far as it can go now; set its timer for what comes later."""
        pod = self._pods.get(uid)
        if pod is None or pod.node in self._silent or self._found(pod.node) is None:
            return
        now = self._loop.time()
        status = pod.body["status"]
        if "deletionTimestamp" in pod.body["metadata"]:
            self._end(uid, pod, now)
            return
        if status.get("phase") in _TERMINAL or (status.get("phase") == "Pending" and not self._begin(uid, pod, now)):
            return
        run = _seconds(pod.body, RUN_SECONDS)
        if run is None:
            return
        if pod.running_at is None:
            pod.running_at = now
        if now < pod.running_at + run:
            self._queue.at(uid, pod.running_at + run)
            return
        self._report(pod, finished(pod.body, _code(pod.body, EXIT_CODE, 0), self._store.time()))

    def _begin(self, uid: str, pod: _Pod, now: float) -> bool:
        """Start a bound pod; False when it is refused, held or not yet due."""
        script = pod.script or next((s for s in self._scripts if s.times != s.hits and s.match(pod.body)), None)
        if script is not None and pod.script is None:
            script.hits += 1
        if _note(pod.body, REJECT) == "true":
            script = Script(lambda _: True, "reject", None, "UnexpectedAdmissionError", "asked for by annotation")
        if script is not None and script.action == "reject":
            self._report(pod, rejected(script.reason, script.message, self._store.time()))
            return False
        pod.script = script
        delay = _seconds(pod.body, START_SECONDS)
        due = pod.bound_at + (self._start if delay is None else delay)
        if script is not None or _note(pod.body, NEVER_START) == "true" or now < due:
            if not pod.waiting and (script is not None or now >= due or delay is not None):
                pod.waiting = True  # of its own short delay a kubelet says nothing
                self._report(pod, creating(pod.body, self._store.time()))
            if script is None and now < due:
                self._queue.at(uid, due)
            return False
        self._addresses += 1
        address = f"10.{128 + self._addresses // 65536 % 64}.{self._addresses // 256 % 256}.{self._addresses % 256}"
        self._report(pod, running(pod.body, address, self._store.time()))
        pod.running_at = now
        return True

    def _end(self, uid: str, pod: _Pod, now: float) -> None:
        """Graceful deletion: wait, report a terminal phase (the Job controller counts by it), delete for good."""
        meta = pod.body["metadata"]
        if pod.stop_at is None:
            grace = float(meta.get("deletionGracePeriodSeconds") or 0)
            pod.stop_at = now + min(_seconds(pod.body, STOP_SECONDS) or 0.0, grace)
        if now < pod.stop_at:
            self._queue.at(uid, pod.stop_at)
            return
        if pod.body["status"].get("phase") not in _TERMINAL:
            self._report(pod, finished(pod.body, _code(pod.body, STOP_CODE, TERMINATED), self._store.time()))
        if uid in self._pods:
            self._store.delete(PODS, meta["namespace"], meta["name"], USER, uid=uid, grace=0)

    def _report(self, pod: _Pod, status: Json) -> None:
        """Write a status; what it does not name stays."""
        meta, before = pod.body["metadata"], pod.body["status"]
        fresh = {one["type"] for one in status.get("conditions") or ()}
        kept = [one for one in before.get("conditions") or () if one["type"] not in fresh]
        whole = {**before, **status, "conditions": [*kept, *(status.get("conditions") or ())]}
        whole["observedGeneration"] = meta.get("generation", 0)
        self._store.replace(PODS, {**pod.body, "status": whole}, USER, subresource="status")


def _note(pod: Json, name: str) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(name, ""))


def _seconds(pod: Json, name: str) -> float | None:
    """The number in an annotation, None when absent or none: a stranger's typing error must not stop the cluster."""
    try:
        found = float(_note(pod, name))
    except ValueError:
        return None
    return found if 0.0 <= found < FOREVER else None


def _code(pod: Json, name: str, default: int) -> int:
    """The exit code in an annotation."""
    text = _note(pod, name)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 3 else default


# ---- what a kubelet says of a pod


def _status(pod: Json, phase: str, now: str, state: Json, **more: object) -> Json:
    ready = phase == "Running"
    reason = {"Succeeded": {"reason": "PodCompleted"}, "Failed": {"reason": "PodFailed"}}.get(phase, {})
    word = "True" if ready else "False"
    conditions = [
        {"type": "PodReadyToStartContainers", "status": word},
        {"type": "Initialized", "status": "True"},
        {"type": "ContainersReady", "status": word, **reason},
        {"type": "Ready", "status": word, **reason},
    ]
    begun = {} if phase == "Pending" else {"containerID": f"memory://{pod['metadata']['uid']}"}
    return {
        "phase": phase,
        "startTime": pod["status"].get("startTime") or now,
        "conditions": [{**one, "lastTransitionTime": now} for one in conditions],
        "containerStatuses": [
            {
                "name": one["name"], "image": one.get("image", ""), "imageID": "", "ready": ready, "started": ready,
                "restartCount": 0, "state": state, **begun,
            }
            for one in pod["spec"]["containers"]
        ],
        **more,
    }  # fmt: skip


def running(pod: Json, address: str, now: str) -> Json:
    """Running and ready, in one step."""
    where = {"hostIP": "127.0.0.1", "podIP": address, "podIPs": [{"ip": address}]}
    return _status(pod, "Running", now, {"running": {"startedAt": now}}, **where)


def creating(pod: Json, now: str) -> Json:
    """Bound and known to the kubelet, but no container has started."""
    return _status(pod, "Pending", now, {"waiting": {"reason": "ContainerCreating"}})


def finished(pod: Json, code: int, now: str) -> Json:
    """Ended with this exit code: Succeeded for 0, else Failed."""
    started = pod["status"].get("startTime") or now
    end = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "startedAt": started, "finishedAt": now}
    return _status(pod, "Succeeded" if code == 0 else "Failed", now, {"terminated": end})


def rejected(reason: str, message: str, now: str) -> Json:
    """Refused by the kubelet's own admission (a device plugin that lost a device, say): Failed, never started."""
    return {"phase": "Failed", "reason": reason, "message": message, "startTime": now}
