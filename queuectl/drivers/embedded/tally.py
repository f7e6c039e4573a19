"""Counts what happened, from the history of objects alone: the controller is not asked how well it did.

A ``Tally`` reads every committed write of a ``Store``. Its promises are those of the release protocol: P1 a gate goes only
after a recorded decision for that very node, P2 nobody's limit and no node is exceeded, P4 what is not ours is left alone.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict

from msgspec import Struct

from queuectl.contract import names
from queuectl.contract.times import from_wire
from queuectl.contract.v1alpha1 import parse_slots
from queuectl.drivers.embedded.admission import USER
from queuectl.drivers.embedded.merge import Json
from queuectl.drivers.embedded.rules import gates
from queuectl.drivers.embedded.store import Stored
from queuectl.model.resources import GPU

TORN = 60_000  # milliseconds: a gang that is released in part for longer than this has come to rest so
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_OVER = ("Succeeded", "Failed")


class Report(Struct):
    """What one run came to. Waits are seconds from a gang's creation to the moment when the last of its members runs."""

    gangs: int = 0
    finished: int = 0
    failed: int = 0
    waiting: int = 0
    gpu_utilisation: float = 0.0
    wait_p50_s: float = 0.0
    wait_p95_s: float = 0.0
    partial_releases: int = 0
    double_charges: int = 0
    violations: int = 0


class _Gang(Struct):
    """A gang by its owner. ``minimum`` members are released together."""

    created: int
    queue: str
    minimum: int = 1
    record: dict[tuple[int, str], None] = {}  # (slot, node) of the admission in force
    round: int = 0
    released: int = 0  # members that are released and have not failed or gone
    ran: set[str] = set()  # ranks, or UIDs of members without one, that have run
    torn_since: int | None = None
    started: int | None = None
    ended: str = ""


class _Pod(Struct):
    """A pod as it was last seen."""

    gang: str
    slot: int | None
    node: str = ""  # where it is pinned, or bound
    gpus: int = 0
    gated: bool = True
    running: bool = False
    over: bool = False


class Tally:
    """Give it every ``Stored``, in order. O(1) each, but O(depth of the tree) for limits."""

    def __init__(self, gpus: int) -> None:
        """``gpus``: those of the whole cluster, for the utilisation."""
        self.gpus = gpus
        self.offences: list[str] = []
        self.doubles: list[str] = []
        self.partial: list[str] = []
        self.waits: list[float] = []
        self.running_gpus = 0
        self.first_running: float | None = None  # monotonic real seconds at which the first gang ran
        self._gangs: dict[str, _Gang] = {}  # by UID of the owner, or of the pod that is a group of one
        self._owner: dict[str, str] = {}  # PodGroup UID -> UID of its owner
        self._pods: dict[str, _Pod] = {}
        self._slots: dict[tuple[str, int], set[str]] = defaultdict(set)  # live released pods of a slot
        self._used: dict[str, int] = defaultdict(int)  # by node
        self._charged: dict[str, int] = defaultdict(int)  # by queue, those below included
        self._nodes: dict[str, int] = {}
        self._queues: dict[str, tuple[str, int | None]] = {}  # name -> parent, limit
        self._torn: set[str] = set()
        self._area = 0.0  # GPU-milliseconds
        self._at = 0

    def __call__(self, stored: Stored, now: int) -> None:
        """Take in one committed write, made at ``now`` (milliseconds)."""
        self._pass(now)
        body = stored.object
        match stored.kind.plural:
            case "pods":
                self._pod(stored, body, now)
            case "jobs":
                self._job(stored, body, now)
            case "podgroups":
                self._group(stored, body)
            case "nodes":
                self._nodes[body["metadata"]["name"]] = int((body["status"].get("allocatable") or {}).get(GPU, 0))
            case "queues":
                self._queue(body)

    def _pass(self, now: int) -> None:
        self._area += self.running_gpus * (now - self._at)
        self._at = now

    def report(self, now: int, since: int = 0) -> Report:
        """The figures up to ``now``; the utilisation from ``since`` on, when the cluster began to be used."""
        self._pass(now)
        self._rest(now + TORN)
        waits = sorted(self.waits)
        ended = [gang.ended for gang in self._gangs.values() if gang.ended]
        return Report(
            gangs=len(self._gangs),
            finished=ended.count("Complete"),
            failed=ended.count("Failed"),
            waiting=sum(gang.started is None and not gang.ended for gang in self._gangs.values()),
            gpu_utilisation=round(self._area / max(self.gpus * (now - since), 1), 4),
            wait_p50_s=quantile(waits, 0.50),
            wait_p95_s=quantile(waits, 0.95),
            partial_releases=len(self.partial),
            double_charges=len(self.doubles),
            violations=len(self.offences),
        )

    # ---- owners and their groups

    def _job(self, stored: Stored, job: Json, now: int) -> None:
        meta = job["metadata"]
        queue = (meta.get("labels") or {}).get(names.QUEUE_LABEL, "")
        if not queue:
            if stored.user == USER:
                self.offences.append(f"P4: Job {meta['name']} is not ours")
            return
        gang = self._gangs.get(meta["uid"])
        if gang is None:
            gang = self._gangs[meta["uid"]] = _Gang(from_wire(meta["creationTimestamp"]), queue)
        for condition in (job.get("status") or {}).get("conditions") or ():
            if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
                gang.ended = condition["type"]
        if stored.verb == "DELETED" and not gang.ended:
            gang.ended = "Deleted"
        self._whole(meta["uid"], gang, now)

    def _group(self, stored: Stored, group: Json) -> None:
        meta, spec, status = group["metadata"], group["spec"], group.get("status") or {}
        owners = [one["uid"] for one in meta.get("ownerReferences") or () if one.get("controller")]
        uid = self._owner[meta["uid"]] = owners[0] if owners else meta["uid"]
        if stored.verb == "DELETED":
            return
        gang = self._gangs.get(uid)
        if gang is None:
            gang = self._gangs[uid] = _Gang(from_wire(meta["creationTimestamp"]), spec.get("queue", ""))
        roles = spec.get("roles") or ()
        gang.minimum = int(spec.get("minMember") or sum(int(role["minMember"]) for role in roles) or 1)
        admission = status.get("admission") or {}
        gang.round = int(admission.get("round") or 0)
        gang.record = {
            (slot, one["node"]): None
            for one in admission.get("assignments") or ()
            for slot in parse_slots(one["slots"])
        }
        if not owners and any(
            c["type"] == "Finished" and c["status"] == "True" for c in status.get("conditions") or ()
        ):
            gang.ended = "Complete"

    def _queue(self, queue: Json) -> None:
        spec = queue["spec"]
        limits = [one.get("limit") for one in spec.get("resources") or () if one["name"] == GPU]
        limit = int(limits[0]) if limits and limits[0] is not None else None
        self._queues[queue["metadata"]["name"]] = spec.get("parent", ""), limit

    # ---- pods

    def _pod(self, stored: Stored, body: Json, now: int) -> None:
        meta, uid = body["metadata"], body["metadata"]["uid"]
        if not (meta.get("labels") or {}).get(names.QUEUE_LABEL):
            if stored.user == USER:
                self.offences.append(f"P4: pod {meta['name']} is not ours")
            return
        before = self._pods.get(uid)
        if before is None:
            before = _Pod(self._gang_of(body, now), slot(body))
        after = _Pod(
            before.gang,
            before.slot,
            pinned(body) or body["spec"].get("nodeName", ""),
            gpus(body),
            names.GATE in gates(body),
            body["status"].get("phase") == "Running",
            stored.verb == "DELETED" or body["status"].get("phase") in _OVER,
        )
        gang = self._gangs[before.gang]
        if before.gated and not after.gated:
            self._removed(stored, body, after, gang)
        self._hold(uid, before, after, gang)
        if after.running:
            gang.ran.add(uid if after.slot is None else str(after.slot))
        if before.gang == uid and body["status"].get("phase") in _OVER:
            gang.ended = "Complete" if body["status"]["phase"] == "Succeeded" else "Failed"
        failed = stored.verb == "DELETED" or body["status"].get("phase") == "Failed"
        gone = failed and body["status"].get("phase") != "Succeeded"
        if before.gated and not after.gated and not gone:
            gang.released += 1
        elif not before.gated and gone and uid in self._pods:
            gang.released -= 1
        if stored.verb == "DELETED" or gone:
            self._pods.pop(uid, None)
        else:
            self._pods[uid] = after
        self._whole(before.gang, gang, now)

    def _gang_of(self, pod: Json, now: int) -> str:
        meta = pod["metadata"]
        owners = [one["uid"] for one in meta.get("ownerReferences") or () if one.get("controller")]
        uid: str = owners[0] if owners else meta["uid"]
        if uid not in self._gangs:
            self._gangs[uid] = _Gang(now, meta["labels"][names.QUEUE_LABEL])
        return uid

    def _removed(self, stored: Stored, pod: Json, after: _Pod, gang: _Gang) -> None:
        """Our gate is gone: was that decided, recorded, and by us?"""
        name = pod["metadata"]["name"]
        if stored.user != USER:
            self.offences.append(f"P1: the gate of {name} was removed by {stored.user}")
        own = (pod["metadata"].get("annotations") or {}).get(names.RECORD)
        if own is not None:
            record = json.loads(own)
            recorded = record["node"] == after.node and (not gang.round or record["round"] == gang.round)
        elif after.slot is None:
            recorded = any(node == after.node for _, node in gang.record)
        else:
            recorded = (after.slot, after.node) in gang.record
        if not recorded:
            self.offences.append(f"P1: {name} was released to {after.node} without a record")

    def _hold(self, uid: str, before: _Pod, after: _Pod, gang: _Gang) -> None:
        """Charge and uncharge nodes, queues and slots."""
        held = not before.gated and not before.over
        holds = not after.gated and not after.over
        self.running_gpus += after.gpus * (after.running and not after.over) - before.gpus * before.running * held
        if held == holds:
            return
        sign = 1 if holds else -1
        one = after if holds else before
        self._used[one.node] += sign * after.gpus
        path = list(self._path(gang.queue))
        for queue in path:
            self._charged[queue] += sign * after.gpus
        if one.slot is not None:
            live = self._slots[one.gang, one.slot]
            (live.add if holds else live.discard)(uid)
            if len(live) > 1:
                self.doubles.append(f"{one.gang}/{one.slot}")
            if not live:
                del self._slots[one.gang, one.slot]
        if not holds:
            return
        if self._used[one.node] > self._nodes.get(one.node, 0):
            self.offences.append(f"P2: {self._used[one.node]} of {self._nodes.get(one.node, 0)} GPUs of {one.node}")
        for queue in path:
            limit = self._queues[queue][1]
            if limit is not None and self._charged[queue] > limit:
                self.offences.append(f"P2: {self._charged[queue]} of {limit} GPUs of queue {queue}")

    def _path(self, queue: str) -> list[str]:
        found: list[str] = []
        while queue in self._queues and queue not in found:
            found.append(queue)
            queue = self._queues[queue][0]
        return found

    def _whole(self, uid: str, gang: _Gang, now: int) -> None:
        """Whether a gang is released in part, and since when; whether it has started."""
        if gang.started is None and len(gang.ran) >= gang.minimum:
            gang.started = now
            self.first_running = self.first_running or time.monotonic()
            self.waits.append((now - gang.created) / 1000)
        torn = 0 < gang.released < gang.minimum and not gang.ended
        if torn and gang.torn_since is None:
            gang.torn_since = now
            self._torn.add(uid)
        elif not torn and gang.torn_since is not None:
            self._rest(now)
            gang.torn_since = None
            self._torn.discard(uid)

    def _rest(self, now: int) -> None:
        """Note every gang that has been torn for so long that nobody is about to make it whole."""
        for uid in sorted(self._torn):
            gang = self._gangs[uid]
            if gang.torn_since is not None and now - gang.torn_since > TORN:
                self.partial.append(uid)
                self._torn.discard(uid)


def quantile(ordered: list[float], part: float) -> float:
    """The value that ``part`` of all do not exceed; 0 of none."""
    return round(ordered[min(int(len(ordered) * part), len(ordered) - 1)], 1) if ordered else 0.0


def pinned(pod: Json) -> str:
    """The node that a pod's required affinity names; "" when none."""
    affinity = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    for term in affinity.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field["key"] == names.FIELD_NAME:
                return str(field["values"][0])
    return ""


def slot(pod: Json) -> int | None:
    """A pod's rank in its Job; None where it has none."""
    text = (pod["metadata"].get("annotations") or {}).get(names.COMPLETION_INDEX)
    return int(text) if text is not None else None


def gpus(pod: Json) -> int:
    """GPUs that a pod asks for."""
    found = ((one.get("resources") or {}).get("requests") or {} for one in pod["spec"]["containers"])
    return sum(int(requests.get(GPU, 0)) for requests in found)
