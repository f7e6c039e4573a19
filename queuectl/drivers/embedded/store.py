"""Objects with versions and a history: what an API server and its etcd promise, without either.

Every committed write takes the next version, whatever its kind, and is shown to all watches of its kind in that order. An
object is a JSON mapping that is never changed once it is stored, so watches and readers share it. What a kind's own rules
say (``rules.py``, ``job_rules.py``) and who may do what (``admission.py``) is asked before anything is stored.

Listeners are told of each commit before the write returns, so whoever listens is never behind; watches are told in their
own time, as over a network. Nothing is random: UIDs and generated names count, in a scattered order.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncGenerator, Callable
from functools import lru_cache

from msgspec import Struct

from queuectl.contract.foreign import Kind
from queuectl.contract.times import to_wire
from queuectl.control.ports import Clock, Conflict, Expired, NotFound, Refused
from queuectl.drivers.embedded.merge import Json, json_merge, strategic_merge

__all__ = ["Json", "Request", "Store", "Stored"]

HISTORY = 10_000  # versions that a watch may start from; an API server keeps about five minutes of them
SCATTER = 0x9E3779B1  # odd, and no multiple of 3: counting in its steps meets each number below 2^32 or 3^15 once
LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # of generated names, as the API server draws them
SUFFIX, LONGEST_BASE = 5, 58  # characters: how many of them, and how many before them
SYSTEM = {
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
}


class Stored(Struct, frozen=True):
    """One committed write: ``verb`` is ADDED, MODIFIED or DELETED, ``object`` the state after it (the last one when gone)."""

    version: int
    kind: Kind
    verb: str
    object: Json
    user: str


class Request(Struct, frozen=True):
    """A write on its way in. ``old`` is None at creation, ``new`` at deletion."""

    verb: str  # CREATE, UPDATE or DELETE
    kind: Kind
    subresource: str
    user: str
    old: Json | None
    new: Json | None


Check = Callable[[Request], Json | None]
"""Looks at a request; returns the object to store (perhaps changed). Raises Refused."""

Listener = Callable[[Stored], None]
"""Is told of a commit. Must not write: the write that it is told of has not returned yet."""


class Store:
    """All objects. ``checks`` are asked in order about every write, and may change what is created."""

    def __init__(self, clock: Clock, checks: tuple[Check, ...] = (), *, history: int | None = HISTORY) -> None:
        """``history``: how many commits ``log`` keeps; None keeps all."""
        self.clock = clock
        self.version = 0
        self.log: deque[Stored] = deque(maxlen=history)
        self._checks = checks
        self._objects: dict[str, dict[tuple[str, str], Json]] = {}
        self._watches: dict[str, list[asyncio.Queue[Stored | None]]] = {}
        self._listeners: tuple[Listener, ...] = ()
        self._serials = itertools.count(1)

    # ---- reading

    def get(self, kind: Kind, namespace: str, name: str) -> Json:
        """One object. Raises NotFound."""
        found = self.find(kind, namespace, name)
        if found is None:
            raise NotFound(f'{_resource(kind)} "{name}" not found', 404)
        return found

    def find(self, kind: Kind, namespace: str, name: str) -> Json | None:
        """One object, None where there is none."""
        return self._objects.get(kind.plural, {}).get((namespace, name))

    def list(self, kind: Kind, namespace: str = "") -> list[Json]:
        """Objects of a kind by namespace and name, as an API server lists them."""
        found = self._objects.get(kind.plural, {})
        return [found[key] for key in sorted(found) if not namespace or key[0] == namespace]

    async def watch(self, kind: Kind, since: int) -> AsyncGenerator[Stored, None]:
        """What is committed after ``since``, for ever or until ``disconnect``. Raises Expired."""
        oldest = self.log[0].version if self.log else self.version + 1
        if since + 1 < oldest and since < self.version:
            raise Expired(f"too old resource version: {since} ({oldest})", 410)
        queue: asyncio.Queue[Stored | None] = asyncio.Queue()
        for stored in self.log:
            if stored.version > since and stored.kind == kind:
                queue.put_nowait(stored)
        watches = self._watches.setdefault(kind.plural, [])
        watches.append(queue)
        try:
            while (event := await queue.get()) is not None:
                yield event
        finally:
            watches.remove(queue)

    def disconnect(self) -> None:
        """End all watches, as a server does that goes away; what was committed before is still delivered."""
        for queue in itertools.chain.from_iterable(self._watches.values()):
            queue.put_nowait(None)

    def listen(self, listener: Listener) -> None:
        """Tell ``listener`` of every commit from now on, in order, until ``unlisten``."""
        self._listeners = (*self._listeners, listener)

    def unlisten(self, listener: Listener) -> None:
        """Tell it no more."""
        self._listeners = tuple(one for one in self._listeners if one is not listener)

    def time(self, seconds: int = 0) -> str:
        """So many seconds from now, as a metav1.Time."""
        return _stamp(self.clock.now() // 1000 + seconds)

    # ---- writing

    def create(self, kind: Kind, namespace: str, body: Json, user: str, *, dry_run: bool = False) -> Json:
        """Store a new object. Raises Conflict when the name is taken."""
        meta = {name: value for name, value in (body.get("metadata") or {}).items() if name not in SYSTEM}
        serial = next(self._serials) * SCATTER
        uid = f"{serial % 2**32:08x}-0000-4000-8000-000000000000"
        if not meta.get("name"):
            if not meta.get("generateName"):
                raise Refused("name or generateName is required", 422)
            meta["name"] = meta["generateName"][:LONGEST_BASE] + _suffix(serial)
        if kind.namespaced:
            meta["namespace"] = namespace
        if (namespace if kind.namespaced else "", meta["name"]) in self._objects.get(kind.plural, {}):
            raise Conflict(f'{_resource(kind)} "{meta["name"]}" already exists', 409)
        new = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        new["metadata"] = {**meta, "uid": uid, "generation": 1, "creationTimestamp": self.time()}
        new = self._asked(Request("CREATE", kind, "", user, None, new))
        return new if dry_run else self._commit(kind, "ADDED", new, user)

    def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Json,
        user: str,
        *,
        subresource: str = "",
        dry_run: bool = False,
        strategic: bool | None = None,
    ) -> Json:
        """Merge into an object and return the result; what changes nothing is not committed.

        ``metadata.resourceVersion`` is a precondition (Conflict); another ``metadata.uid`` is Refused, as upstream has it.
        ``strategic``: which merge; by default the kind's own.
        """
        old = self.get(kind, namespace, name)
        try:
            new = (strategic_merge if (kind.strategic if strategic is None else strategic) else json_merge)(old, body)
        except ValueError as problem:
            raise Refused(str(problem), 400) from problem
        return self._update(kind, old, new, user, subresource, dry_run=dry_run)

    def replace(self, kind: Kind, body: Json, user: str, *, subresource: str = "") -> Json:
        """Update to a whole new state."""
        meta = body["metadata"]
        return self._update(kind, self.get(kind, meta.get("namespace", ""), meta["name"]), body, user, subresource)

    def bind(self, kind: Kind, namespace: str, name: str, node: str, user: str) -> Json:
        """What a scheduler's Binding does. Raises Conflict when the pod is gated, bound or going."""
        old = self.get(kind, namespace, name)
        others = [c for c in old["status"].get("conditions") or () if c["type"] != "PodScheduled"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self.time()}
        new = {
            **old,
            "spec": {**old["spec"], "nodeName": node},
            "status": {**old["status"], "conditions": [*others, scheduled]},
        }
        return self._update(kind, old, new, user, "binding")

    def _update(self, kind: Kind, old: Json, new: Json, user: str, subresource: str, *, dry_run: bool = False) -> Json:
        before, after = old["metadata"], dict(new["metadata"])
        what = f'{_resource(kind)} "{before["name"]}"'
        if after.get("uid", before["uid"]) != before["uid"]:
            raise Refused(f"{what} is invalid: metadata.uid: Invalid value: {after['uid']!r}: field is immutable", 422)
        if after.get("resourceVersion", before["resourceVersion"]) != before["resourceVersion"]:
            raise Conflict(f"Operation cannot be fulfilled on {what}: the object has been modified", 409)
        new = {**new, "metadata": {**after, **{key: before[key] for key in SYSTEM if key in before}}}
        for key in SYSTEM - before.keys():
            new["metadata"].pop(key, None)
        if subresource == "status":
            meta = new["metadata"] if kind.strategic else before
            new = {**old, "metadata": meta, **({"status": new["status"]} if "status" in new else {})}
        elif subresource == "binding":
            pass
        elif "status" in old:
            new["status"] = old["status"]
        else:
            new.pop("status", None)
        if new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = before["generation"] + 1
        new = self._asked(Request("UPDATE", kind, subresource, user, old, new))
        if dry_run or new == old:
            return new
        if "deletionTimestamp" in before and not new["metadata"].get("finalizers") and _ready_to_go(new):
            return self._commit(kind, "DELETED", new, user)
        return self._commit(kind, "MODIFIED", new, user)

    def delete(
        self, kind: Kind, namespace: str, name: str, user: str, *, uid: str = "", grace: int | None = None
    ) -> None:
        """Delete, or mark as going while a finalizer or a running pod's grace period keeps it. Raises Conflict for a UID."""
        old = self.get(kind, namespace, name)
        meta = old["metadata"]
        if uid and meta["uid"] != uid:
            raise Conflict(f"Precondition failed: UID in precondition: {uid}, UID in object meta: {meta['uid']}", 409)
        self._asked(Request("DELETE", kind, "", user, old, None))
        seconds = _grace(kind, old) if grace is None else grace
        if "deletionTimestamp" in meta:
            seconds = min(seconds, meta["deletionGracePeriodSeconds"])
        going = {
            **old,
            "metadata": {
                **meta,
                "generation": meta["generation"] + ("deletionTimestamp" not in meta),
                "deletionTimestamp": meta.get("deletionTimestamp") or self.time(seconds),
                "deletionGracePeriodSeconds": seconds,
            },
        }
        gone = not meta.get("finalizers") and _ready_to_go(going)
        if going != old and (not gone or kind.plural == "pods"):  # pods are marked first, even for no time at all
            going = self._commit(kind, "MODIFIED", going, user)
        if gone:
            self._commit(kind, "DELETED", going, user)

    # ---- committing

    def _asked(self, request: Request) -> Json:
        current = request
        for check in self._checks:
            changed = check(current)
            if changed is not None and changed is not current.new:
                current = Request(request.verb, request.kind, request.subresource, request.user, request.old, changed)
        return current.new or {}

    def _commit(self, kind: Kind, verb: str, new: Json, user: str) -> Json:
        self.version += 1
        meta = {**new["metadata"], "resourceVersion": str(self.version)}
        new = {**new, "metadata": meta}
        key = (meta.get("namespace", ""), meta["name"])
        if verb == "DELETED":
            del self._objects[kind.plural][key]
        else:
            self._objects.setdefault(kind.plural, {})[key] = new
        stored = Stored(self.version, kind, verb, new, user)
        self.log.append(stored)
        for queue in self._watches.get(kind.plural, ()):
            queue.put_nowait(stored)
        for listener in self._listeners:
            listener(stored)
        return new


@lru_cache(maxsize=4096)
def _stamp(second: int) -> str:
    return to_wire(second * 1000)[:19] + "Z"


def _suffix(serial: int) -> str:
    letters = []
    for _ in range(SUFFIX):
        serial, digit = divmod(serial, len(LETTERS))
        letters.append(LETTERS[digit])
    return "".join(letters)


def _resource(kind: Kind) -> str:
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def _grace(kind: Kind, old: Json) -> int:
    """Seconds that a deletion leaves to an object: only pods that are on a node, and have not ended, take any."""
    if kind.plural != "pods" or not old["spec"].get("nodeName"):
        return 0
    if (old.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    return int(old["spec"].get("terminationGracePeriodSeconds", 30))


def _ready_to_go(going: Json) -> bool:
    return not going["metadata"].get("deletionGracePeriodSeconds")
