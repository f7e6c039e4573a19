"""The audit log as judge: what was promised must hold in the order in which the API server stored the writes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from queuectl.contract.v1alpha1 import parse_slots
from tests.proofs.stage import gated
from tests.rig.audit import Event, bindings, gate_removals, in_order

RECORD = "queuectl.io/admission"
POD_GROUP_LABEL = "queuectl.io/pod-group"
JOB_SET, REPLICATED_JOB = (f"jobset.sigs.k8s.io/{name}" for name in ("jobset-name", "replicatedjob-name"))
SET_NAME, GROUP_INDEX, WORKER_INDEX = (
    f"leaderworkerset.sigs.k8s.io/{name}" for name in ("name", "group-index", "worker-index")
)
GPU = "nvidia.com/gpu"


class Verdict(Struct):
    """What was found. All lists of offences must be empty."""

    removals: int = 0
    before_record: list[str] = []
    by_others: list[str] = []
    strange_bindings: list[str] = []
    most_over: int = 0  # GPUs over a node's allocatable, at the worst event
    events: int = 0

    @property
    def clean(self) -> bool:
        """No promise was broken."""
        return not (self.before_record or self.by_others or self.strange_bindings or self.most_over)

    def text(self) -> str:
        """In one line."""
        return (
            f"{self.removals} gates removed: {len(self.before_record)} before their record, {len(self.by_others)} by others; "
            f"{len(self.strange_bindings)} bindings not by kube-scheduler; at most {self.most_over} GPUs over on a node "
            f"in {self.events} events"
        )


def judge(events: Iterable[Event], namespace: str, account: str, gpus: Mapping[str, int]) -> Verdict:
    """Judge one namespace. ``account`` may remove gates; ``gpus`` is each node's allocatable.

    A gate may go when the latest stored status of the pod's PodGroup (by label or owner) holds, in the current round, a slot on
    the node that the pod is pinned to; or when the same write leaves on the pod its own record for that node. The pods of JobSets
    and LeaderWorkerSets say by labels whose they are.

    A writer that is killed leaves requests that the API server may have committed without an answer to log (504, no
    object). Such a release is the account's; such a record counts from then on if a later version of the PodGroup shows it.
    """
    events = [e for e in events if e.object_ref.namespace == namespace]
    seen = in_order(events)
    verdict = Verdict(events=len(seen))
    removed = {(r.event.audit_id, r.uid): r for r in gate_removals(seen)}
    unanswered = [
        e for e in events if e.user.username == account and e.verb == "patch" and e.response_status.code >= 500
    ]
    released_unanswered = {e.name for e in unanswered if e.what == "pods" and not e.dry_run}
    shown = _shown(seen)
    homes: dict[str, str] = {}  # what a pod knows its PodGroup by → the PodGroup's UID
    roles: dict[str, list[Any]] = {}  # PodGroup UID → its roles
    admissions: dict[str, dict[str, Any]] = {}  # PodGroup UID → admission
    holding: dict[str, tuple[str, int]] = {}
    used: dict[str, int] = defaultdict(int)
    for event in seen:
        obj, resource = event.response_object, event.object_ref.resource
        if resource == "podgroups" and obj.get("kind") == "PodGroup":
            uid = obj["metadata"]["uid"]
            homes |= dict.fromkeys(_known_as(obj["metadata"]), uid)
            roles[uid] = obj["spec"].get("roles") or []
            admissions[uid] = (obj.get("status") or {}).get("admission") or {}
        if resource != "pods" or obj.get("kind") != "Pod":
            continue
        removal = removed.get((event.audit_id, event.uid))
        if removal is not None:
            verdict.removals += 1
            if removal.user != account and removal.name not in released_unanswered:
                verdict.by_others.append(f"{removal.name} by {removal.user}")
            known = dict(admissions)
            for late in unanswered:
                admission = _admission(late)
                if admission and late.request_received_timestamp < event.request_received_timestamp:
                    group, fact = shown.get(late.name, ("", []))
                    if admission["decidedAt"] in fact:
                        known[group] = admission
            home = next((homes[key] for key in _looks_for(obj) if key in homes), "")
            slots = _slots(obj, roles.get(home, []))
            if not any(_recorded(obj, one.get(home), slots) for one in (admissions, known)):
                verdict.before_record.append(removal.name)
        _hold(obj, event, holding, used)
        for node, amount in used.items():
            verdict.most_over = max(verdict.most_over, amount - gpus.get(node, 0))
    verdict.strange_bindings = [f"{b.name} by {b.user}" for b in bindings(events) if b.user != "system:kube-scheduler"]
    return verdict


def _shown(seen: Iterable[Event]) -> dict[str, tuple[str, list[str]]]:
    """PodGroup name → its UID, and the times of decision of all admissions that it ever showed."""
    shown: dict[str, tuple[str, list[str]]] = {}
    for event in seen:
        obj = event.response_object
        if event.object_ref.resource == "podgroups" and obj.get("kind") == "PodGroup":
            admission = (obj.get("status") or {}).get("admission") or {}
            shown.setdefault(event.name, (obj["metadata"]["uid"], []))[1].append(str(admission.get("decidedAt")))
    return shown


def _known_as(meta: Mapping[str, Any]) -> list[str]:
    """By what pods know a PodGroup: its name, or its owner; of one group of a set, the number in its name too."""
    owners = meta.get("ownerReferences") or ()
    found = [f"name {meta['name']}", *(one["uid"] for one in owners)]
    found += [f"{one['kind']} {one['name']}" for one in owners]
    number = ["", *meta["name"].rsplit("-", 2)][-2]
    return found + [f"{one['kind']} {one['name']} {number}" for one in owners]


def _looks_for(pod: Mapping[str, Any]) -> list[str]:
    """The same from the pod's side."""
    meta, labels = pod["metadata"], pod["metadata"].get("labels") or {}
    if POD_GROUP_LABEL in labels:
        return [f"name {labels[POD_GROUP_LABEL]}"]
    if JOB_SET in labels:
        return [f"JobSet {labels[JOB_SET]}"]
    if SET_NAME in labels:
        return [f"LeaderWorkerSet {labels[SET_NAME]} {labels[GROUP_INDEX]}"]
    return [one["uid"] for one in meta.get("ownerReferences") or ()]


def _slots(pod: Mapping[str, Any], roles: list[Any]) -> set[int] | None:
    """The slots that a pod may take: that of its number, or any of its role's; None for any of the gang's."""
    labels, annotations = pod["metadata"].get("labels") or {}, pod["metadata"].get("annotations") or {}
    if SET_NAME in labels:
        return {int(labels[WORKER_INDEX])}  # the leader's role comes first, and has one slot
    if JOB_SET in labels:
        first = 0
        for role in roles:
            if role["name"] == labels[REPLICATED_JOB]:
                return set(range(first, first + role["maxMember"]))
            first += role["maxMember"]
    rank = annotations.get("batch.kubernetes.io/job-completion-index")
    return None if rank is None else {int(rank)}


def _admission(event: Event) -> dict[str, Any]:
    """The admission that a request was to record, empty when none."""
    body = event.request_object if event.what == "podgroups/status" and isinstance(event.request_object, dict) else {}
    return (body.get("status") or {}).get("admission") or {}


def pinned(pod: Mapping[str, Any]) -> str:
    """The node that a pod's affinity pins it to, empty when none."""
    affinity = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    for term in affinity.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field["key"] == "metadata.name":
                return str(field["values"][0])
    return ""


def _recorded(pod: Mapping[str, Any], admission: Mapping[str, Any] | None, slots: set[int] | None) -> bool:
    """Whether a pod's place was recorded: in its gang's admission, at one of its slots; or on itself, in its gang's round."""
    node, annotations = pinned(pod), pod["metadata"].get("annotations") or {}
    if RECORD in annotations:
        own = json.loads(annotations[RECORD])
        # A group of one has no PodGroup; a gang that ran before we knew of it has no admission, which is round 0.
        return own["node"] == node and (admission is None or own["round"] == admission.get("round", 0))
    return any(
        assignment["node"] == node and (slots is None or not slots.isdisjoint(parse_slots(assignment["slots"])))
        for assignment in (admission or {}).get("assignments") or ()
    )


def _hold(pod: Mapping[str, Any], event: Event, holding: dict[str, tuple[str, int]], used: dict[str, int]) -> None:
    """Keep the sum of what released pods request on each node, from their release to their end."""
    uid = pod["metadata"]["uid"]
    before = holding.pop(uid, None)
    if before is not None:
        used[before[0]] -= before[1]
    node = pod["spec"].get("nodeName") or pinned(pod)
    # A pod whose grace is over goes with the write that leaves it without a finalizer.
    over_and_free = pod["metadata"].get("deletionGracePeriodSeconds") == 0 and not pod["metadata"].get("finalizers")
    gone = over_and_free or (event.verb == "delete" and pod["metadata"].get("deletionTimestamp") is None)
    unbound_and_leaving = pod["metadata"].get("deletionTimestamp") and not pod["spec"].get("nodeName")
    over = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    if gated(dict(pod)) or not node or over or gone or unbound_and_leaving:
        return
    amount = sum(
        int(((c.get("resources") or {}).get("requests") or {}).get(GPU, 0)) for c in pod["spec"].get("containers") or ()
    )
    holding[uid] = (node, amount)
    used[node] += amount
