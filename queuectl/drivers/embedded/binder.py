"""What kube-scheduler does for our pods: it binds each where its affinity lets it go, if it fits there; else it says why not.

Pods without gates are tried in the order of their priority, then of their coming. A pod that is pinned to a node costs
O(1), any other O(nodes), first fit. What does not fit is parked and tried again when its node (for a pod that is not
pinned: any node) gets room or changes. Neither preemption nor scoring, volumes, ports or inter-pod affinity.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

from msgspec import Struct

from queuectl.contract.foreign import PODS
from queuectl.contract.names import FIELD_NAME, SCHEDULER
from queuectl.drivers.embedded.merge import Json
from queuectl.drivers.embedded.rules import SCHEDULER as USER
from queuectl.drivers.embedded.store import Store, Stored
from queuectl.drivers.embedded.workqueue import WorkQueue
from queuectl.model.quantity import parse
from queuectl.model.resources import unit

TURN = 100  # pods before other tasks get a turn
ANYWHERE = ""  # where pods are parked that no node's name is required of
_TERMINAL = ("Succeeded", "Failed")
_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class _Node(Struct, eq=False):
    """A node and what its pods take of it."""

    body: Json
    allocatable: dict[str, int]


class _Pod(Struct, eq=False):
    """A pod that waits for a node. ``names``: of nodes that it may go to, None when by name it may go to any."""

    body: Json
    serial: int
    requests: dict[str, int]
    names: tuple[str, ...] | None
    parked: bool = False


class Binder:
    """Binds the pods of a store. ``close`` ends it."""

    def __init__(self, store: Store, failed: Callable[[Exception], None]) -> None:
        """``failed`` is told of an exception of our own. Needs a running event loop."""
        self._store = store
        self._nodes: dict[str, _Node] = {}
        self._used: dict[str, Counter[str]] = defaultdict(Counter)  # by node; also of nodes that are gone
        self._held: dict[str, tuple[str, dict[str, int]]] = {}  # pod UID -> its node, and what it takes there
        self._waiting: dict[str, _Pod] = {}
        self._parked: dict[str, dict[str, None]] = defaultdict(dict)  # node name or ANYWHERE -> UIDs
        self._heap: list[tuple[int, int, str]] = []
        self._serial = 0
        self._queue = WorkQueue(self._round, failed)
        store.listen(self._committed)

    def close(self) -> None:
        """Do nothing from now on."""
        self._store.unlisten(self._committed)
        self._queue.close()

    # ---- what happens

    def _committed(self, stored: Stored) -> None:
        match stored.kind.plural:
            case "pods":
                self._pod(stored)
            case "nodes":
                self._node(stored)

    def _node(self, stored: Stored) -> None:
        name = stored.object["metadata"]["name"]
        if stored.verb == "DELETED":
            self._nodes.pop(name, None)
            return
        allocatable = (stored.object.get("status") or {}).get("allocatable") or {}
        amounts = {resource: parse(str(text), unit(resource)) for resource, text in allocatable.items()}
        self._nodes[name] = _Node(stored.object, amounts)
        self._wake(name)

    def _pod(self, stored: Stored) -> None:
        body = stored.object
        meta, spec = body["metadata"], body["spec"]
        uid, node = meta["uid"], spec.get("nodeName")
        live = stored.verb != "DELETED" and body["status"].get("phase") not in _TERMINAL
        if live and node:
            self._forget(uid)
            if uid not in self._held:
                taken = requests(spec)
                self._held[uid] = (node, taken)
                self._used[node].update(taken)
        elif (held := self._held.pop(uid, None)) is not None:
            self._used[held[0]].subtract(held[1])
            self._wake(held[0])
        if node or not live or spec.get("schedulingGates") or "deletionTimestamp" in meta:
            self._forget(uid)
        elif spec.get("schedulerName") == SCHEDULER:
            self._wants(uid, body)

    def _wants(self, uid: str, body: Json) -> None:
        known = self._waiting.get(uid)
        if known is not None and known.body["metadata"]["generation"] == body["metadata"]["generation"]:
            known.body = body
            return
        self._forget(uid)
        self._serial += 1
        pod = self._waiting[uid] = _Pod(body, self._serial, requests(body["spec"]), named(body["spec"]))
        self._enqueue(uid, pod)

    def _forget(self, uid: str) -> None:
        pod = self._waiting.pop(uid, None)
        if pod is not None and pod.parked:
            self._unpark(uid, pod)

    def _unpark(self, uid: str, pod: _Pod) -> None:
        pod.parked = False
        for place in _places(pod):
            self._parked[place].pop(uid, None)

    def _wake(self, node: str) -> None:
        """The node has changed or has more room."""
        for place in (node, ANYWHERE):
            for uid in list(self._parked[place]) if place in self._parked else ():
                pod = self._waiting[uid]
                self._unpark(uid, pod)
                self._enqueue(uid, pod)

    def _enqueue(self, uid: str, pod: _Pod) -> None:
        heapq.heappush(self._heap, (-int(pod.body["spec"].get("priority") or 0), pod.serial, uid))
        self._queue.add("")

    # ---- one round

    def _round(self, key: str) -> None:
        for _ in range(min(TURN, len(self._heap))):
            _, serial, uid = heapq.heappop(self._heap)
            pod = self._waiting.get(uid)
            if pod is not None and pod.serial == serial and not pod.parked:
                self._place(uid, pod)
        if self._heap:
            self._queue.add(key)

    def _place(self, uid: str, pod: _Pod) -> None:
        meta = pod.body["metadata"]
        names = self._nodes if pod.names is None else pod.names
        reasons: Counter[str] = Counter()
        looked = 0
        for name in names:
            node = self._nodes.get(name)
            if node is None:
                continue
            looked += 1
            if not (found := self._misfits(pod, name, node)):
                self._store.bind(PODS, meta["namespace"], meta["name"], name, USER)
                return
            reasons.update(found)
        if looked < len(self._nodes):
            reasons["node(s) didn't satisfy plugin(s) [NodeAffinity]"] = len(self._nodes) - looked
        pod.parked = True
        for place in _places(pod):
            self._parked[place][uid] = None
        self._say(pod, f"0/{len(self._nodes)} nodes are available: {_listed(reasons)}.")

    def _misfits(self, pod: _Pod, name: str, node: _Node) -> list[str]:
        """Why it cannot go there, in the scheduler's words, filter by filter as there; empty when it can."""
        spec, state = pod.body["spec"], node.body.get("spec") or {}
        tolerations = spec.get("tolerations") or ()
        if state.get("unschedulable") and not tolerated(_UNSCHEDULABLE, tolerations):
            return ["node(s) were unschedulable"]
        for taint in state.get("taints") or ():
            if taint["effect"] in ("NoSchedule", "NoExecute") and not tolerated(taint, tolerations):
                return ["node(s) had untolerated taint(s)"]
        if not selected(spec, node.body):
            return ["node(s) didn't match Pod's node affinity/selector"]
        used, short = self._used[name], []
        if used["pods"] + 1 > node.allocatable.get("pods", 0):
            short.append("Too many pods")
        for resource, amount in pod.requests.items():
            if resource != "pods" and amount and used[resource] + amount > node.allocatable.get(resource, 0):
                short.append(f"Insufficient {resource}")
        return short

    def _say(self, pod: _Pod, message: str) -> None:
        """Write why it waits, where that is news."""
        conditions = pod.body["status"].get("conditions") or ()
        before: Json = next((one for one in conditions if one["type"] == "PodScheduled"), {})
        if before.get("reason") == "Unschedulable" and before.get("message") == message:
            return
        since = before.get("lastTransitionTime") if before.get("status") == "False" else None
        said = {
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
            "lastTransitionTime": since or self._store.time(),
        }  # fmt: skip
        meta = pod.body["metadata"]
        patch = {"metadata": {"uid": meta["uid"]}, "status": {"conditions": [said]}}
        self._store.patch(PODS, meta["namespace"], meta["name"], patch, USER, subresource="status")


def _places(pod: _Pod) -> tuple[str, ...]:
    """Where it is parked: with each node that it may go to, with none when no name will do."""
    return (ANYWHERE,) if pod.names is None else pod.names


def _listed(reasons: Counter[str]) -> str:
    return ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))


# ---- what a pod asks for


def requests(spec: Json) -> dict[str, int]:
    """What a pod takes of its node, itself as one of ``pods`` included (KEP-753's sum with sidecars, and overhead)."""
    total: Counter[str] = Counter()
    for container in spec.get("containers") or ():
        total.update(_amounts(container))
    sidecars: Counter[str] = Counter()
    highest: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        here = _amounts(container)
        if container.get("restartPolicy") == "Always":
            sidecars.update(here)
            here = dict(sidecars)
        else:
            here = dict(sidecars + Counter(here))
        highest = {name: max(highest.get(name, 0), here.get(name, 0)) for name in {**highest, **here}}
    total.update(sidecars)
    found = {name: max(total[name], highest.get(name, 0)) for name in {**total, **highest}}
    found.update(_amounts(spec))  # a pod's own, where it says so, stands for its containers'
    for name, text in (spec.get("overhead") or {}).items():
        found[name] = found.get(name, 0) + parse(str(text), unit(name))
    return {**found, "pods": 1}


def _amounts(part: Json) -> dict[str, int]:
    asked = (part.get("resources") or {}).get("requests") or {}
    return {name: parse(str(text), unit(name)) for name, text in asked.items()}


# ---- where it may go


def _terms(spec: Json) -> list[Json] | None:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get(_REQUIRED)
    return None if required is None else required.get("nodeSelectorTerms") or []


def named(spec: Json) -> tuple[str, ...] | None:
    """Names of the only nodes that a pod's required affinity can match, None when it can match any name."""
    terms = _terms(spec)
    if terms is None:
        return None
    found: dict[str, None] = {}
    for term in terms:
        fields = [one for one in term.get("matchFields") or () if one["key"] == FIELD_NAME and one["operator"] == "In"]
        if not fields:
            if term.get("matchExpressions") or term.get("matchFields"):
                return None
            continue  # an empty term matches no node
        if len({tuple(one["values"]) for one in fields}) == 1:
            found.update(dict.fromkeys(fields[0]["values"]))
    return tuple(found)


def selected(spec: Json, node: Json) -> bool:
    """Whether node selector and required affinity match a node."""
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    terms = _terms(spec)
    return terms is None or any(_term(term, labels, node["metadata"]["name"]) for term in terms)


def _term(term: Json, labels: dict[str, str], name: str) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(_matches(one, labels) for one in expressions) and all(
        _matches(one, {FIELD_NAME: name}) for one in fields
    )


def _matches(one: Json, labels: dict[str, str]) -> bool:
    value: str | None = labels.get(one["key"])
    values: list[str] = one.get("values") or []
    match one["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    if value is None or not value.lstrip("-").isdigit():
        return False
    return int(value) > int(values[0]) if one["operator"] == "Gt" else int(value) < int(values[0])


def tolerated(taint: Json, tolerations: Iterable[Json]) -> bool:
    """Whether one of the tolerations covers a taint."""
    return any(tolerates(one, taint) for one in tolerations)


def tolerates(toleration: Json, taint: Json) -> bool:
    """Whether a toleration covers a taint."""
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    key = toleration.get("key") or ""
    if key and key != taint["key"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(key) and (toleration.get("value") or "") == (taint.get("value") or "")
