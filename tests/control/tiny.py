"""A few objects in memory behind the release machine: enough of the API to step through the protocol by hand."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import msgspec

from queuectl.contract import foreign
from queuectl.contract.foreign import Kind
from queuectl.control.ports import ClusterError, Conflict, Deleted, NotFound, Refused, Upserted
from queuectl.control.release import Release
from queuectl.control.source import Source
from queuectl.control.steps import Step, Write, derive
from queuectl.model.changes import Change
from queuectl.model.plan import Admit, Assignment

FENCE = 7
NOW = 1_790_000_000_000
Json = dict[str, Any]


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386, with the one strategic directive that we use (deleting a gate by name)."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    out = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key == "schedulingGates":
            gone = {gate["name"] for gate in value if gate.get("$patch") == "delete"}
            out[key] = [gate for gate in out.get(key) or () if gate["name"] not in gone]
        elif value is None:
            out.pop(key, None)
        else:
            out[key] = merged(out.get(key), value)
    return out


class Tiny:
    """Objects by (plural, namespace, name); every write takes the next version and is shown to the Source at once."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Json] = {}
        self.source = Source()
        self.release = Release(self.source)
        self.changes: list[Change] = []
        self.refusals: dict[Step, ClusterError] = {}
        self.written: list[Step] = []
        self._version = itertools.count(1)
        self._uid = itertools.count(1)

    def put(self, kind: Kind, body: Json) -> Json:
        """Store an object (a UID is given to a new one) and show it."""
        meta = body["metadata"]
        key = (kind.plural, meta.get("namespace", ""), meta["name"])
        meta.setdefault("uid", f"uid-{next(self._uid)}")
        meta["resourceVersion"] = str(next(self._version))
        meta.setdefault("creationTimestamp", "2026-11-30T10:00:00Z")
        self.objects[key] = body
        self.changes += self.source.apply(kind, Upserted(_shown(kind, body)))
        return body

    def drop(self, kind: Kind, namespace: str, name: str) -> None:
        """Delete an object and show it."""
        body = self.objects.pop((kind.plural, namespace, name))
        self.changes += self.source.apply(kind, Deleted(_shown(kind, body)))

    def get(self, kind: Kind, namespace: str, name: str) -> Json:
        """An object as stored."""
        return self.objects[kind.plural, namespace, name]

    # ---- the actors

    def job(self, name: str, count: int, *, queue: str = "q", suspend: bool = False, gang: str = "all") -> Json:
        """A tenant's Job."""
        return self.put(
            foreign.JOBS,
            {
                "metadata": {
                    "name": name,
                    "namespace": "ns",
                    "labels": {"queuectl.io/queue": queue},
                    "annotations": {"queuectl.io/min-member": gang},
                },
                "spec": {
                    "parallelism": count,
                    "completions": count,
                    "suspend": suspend,
                    "template": {"spec": spec()},
                },
                "status": {},
            },
        )

    def pods(self, job: Json, count: int, *, generation: str = "a") -> list[Json]:
        """What the Job controller does: indexed pods, behind our gate."""
        meta = job["metadata"]
        return [
            self.put(
                foreign.PODS,
                {
                    "metadata": {
                        "name": f"{meta['name']}-{rank}-{generation}",
                        "namespace": "ns",
                        "labels": {"queuectl.io/queue": meta["labels"]["queuectl.io/queue"]},
                        "annotations": {"batch.kubernetes.io/job-completion-index": str(rank)},
                        "ownerReferences": [
                            {
                                "apiVersion": "batch/v1",
                                "kind": "Job",
                                "name": meta["name"],
                                "uid": meta["uid"],
                                "controller": True,
                            }
                        ],
                    },
                    "spec": {**spec(), "schedulingGates": [{"name": "queuectl.io/admission"}]},
                    "status": {"phase": "Pending"},
                },
            )
            for rank in range(count)
        ]

    def service(self, kind: Kind, name: str, count: int, *, gang: str = "1") -> Json:
        """A tenant's StatefulSet or ReplicaSet."""
        labels = {"queuectl.io/queue": "q"}
        template = {"metadata": {"labels": labels}, "spec": spec()}
        meta = {"name": name, "namespace": "ns", "annotations": {"queuectl.io/min-member": gang}}
        return self.put(kind, {"metadata": meta, "spec": {"replicas": count, "template": template}})

    def replica(self, kind: Kind, owner: Json, name: str, *, rank: int | None = None) -> Json:
        """What its controller makes, and makes again: a pod behind our gate, numbered or not."""
        meta = owner["metadata"]
        labels = {"queuectl.io/queue": "q", **({"apps.kubernetes.io/pod-index": str(rank)} if rank is not None else {})}
        reference = {"apiVersion": kind.api_version, "kind": kind.kind, "name": meta["name"], "uid": meta["uid"]}
        return self.put(
            foreign.PODS,
            {
                "metadata": {
                    "name": name,
                    "namespace": "ns",
                    "labels": labels,
                    "annotations": {},
                    "ownerReferences": [{**reference, "controller": True}],
                },
                "spec": {**spec(), "schedulingGates": [{"name": "queuectl.io/admission"}]},
                "status": {"phase": "Pending"},
            },
        )

    def run(self, pod: Json, phase: str = "Running") -> None:
        """What scheduler and kubelet do."""
        current = self.get(foreign.PODS, "ns", pod["metadata"]["name"])
        current["spec"]["nodeName"] = "n0"
        current["status"] = {"phase": phase}
        self.put(foreign.PODS, current)

    def group(self, job: str = "") -> Json:
        """The only PodGroup, or the only one of this Job."""
        (found,) = (b for (kind, _, name), b in self.objects.items() if kind == "podgroups" and job in name)
        return found

    def admit(self, count: int, round_: int = 1, node: str = "n0", job: str = "") -> Admit:
        """The engine's decision for the only PodGroup (of this Job), with the members that exist."""
        uid = self.group(job)["metadata"]["uid"]
        ranked = {self.source.pods[pod].member.rank: pod for pod in self.source.members.get(uid, ())}
        action = Admit(uid, round_, NOW, tuple(Assignment(slot, node, ranked.get(slot)) for slot in range(count)))
        self.release.accept(action)
        return action

    # ---- stepping

    def next(self, now: int = NOW) -> list[Write]:
        """All writes that the present state calls for. One that makes a lost release void goes before others to its pod."""
        voids = list(self.release.lost.voids(self.source, FENCE, self.release.due))
        writes = [w for job, q in list(self.source.underived.items()) if (w := derive(self.source, job, q)) is not None]
        for gang in [*self.source.groups, *(uid for uid in self.source.pods if uid in self.source.members)]:
            writes += self.release.next_writes(gang, FENCE, now)
        taken = {write.target for write in voids}
        return sorted([*voids, *(w for w in writes if w.target not in taken)], key=lambda write: write.step)

    def send(self, write: Write) -> None:
        """Send one write, show the result, and hand the answer to the machine."""
        reply = self._answer(write)
        if not isinstance(reply, ClusterError) and not write.dry_run:
            self.written.append(write.step)
        self.changes += self.release.on_reply(write, reply)

    def _answer(self, write: Write) -> Any:
        refusal = self.refusals.get(write.step)
        if refusal is not None:
            return refusal
        if write.step is Step.CREATE:
            return self.put(write.kind, copy.deepcopy(write.body))
        if write.step is Step.BUDGETS:
            return None
        current = self.objects.get(write.target)
        if current is None:
            return NotFound("not found", 404)
        wanted = write.body.get("metadata", {})
        if "uid" in wanted and wanted["uid"] != current["metadata"]["uid"]:
            return Refused("metadata.uid: field is immutable", 422)
        if (
            wanted.get("resourceVersion", current["metadata"]["resourceVersion"])
            != current["metadata"]["resourceVersion"]
        ):
            return Conflict("the object has been modified", 409)
        if write.dry_run:
            return current
        if write.step is Step.EVICT:
            self.put(write.kind, merged(current, {"metadata": {"deletionTimestamp": "2026-11-30T10:01:00Z"}}))
            return None
        return self.put(write.kind, merged(current, write.body))

    def settle(self, most: int = 200) -> list[Step]:
        """Send until nothing is called for; returns the steps in order. Raises when it does not come to rest."""
        before = len(self.written)
        for _ in range(most):
            writes = self.next()
            if not writes:
                return self.written[before:]
            self.send(writes[0])
        raise AssertionError(f"no rest after {most} writes: {self.written[-10:]}")


def _shown(kind: Kind, body: Json) -> Any:
    """As it comes over the wire."""
    return msgspec.json.decode(msgspec.json.encode(body), type=kind.type)


def spec() -> Json:
    """A pod's spec: one GPU."""
    return {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}}]}
