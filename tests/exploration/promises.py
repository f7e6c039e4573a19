"""What must hold of every write of ours, of every moment of rest, and of the end: read from the store alone.

P1 to P5 and L1, L3 are those of the release protocol; R1 and S1 are the two sentences about records and owners on which
they rest. Charges are counted here anew from the objects, by other code than the engine's.
"""

from __future__ import annotations

import json as plain
from collections import Counter
from collections.abc import Iterator

from queuectl.contract import names
from queuectl.contract.v1alpha1 import parse_slots
from queuectl.drivers.embedded.admission import USER
from queuectl.drivers.embedded.store import Json, Stored
from tests.exploration.server import Snapshot
from tests.exploration.surroundings import (
    GPU,
    controller,
    ended,
    gated,
    gpus,
    group_of,
    leaving,
    on,
    over,
    owners,
    place,
    replicas,
    true,
)

Slots = dict[int, str]
"""Slot → node, as an admission has it."""


# ---- what the objects say


def slots(admission: Json | None) -> Slots:
    """The places of an admission."""
    return {
        slot: str(one["node"])
        for one in (admission or {}).get("assignments") or ()
        for slot in parse_slots(one["slots"])
    }


def _admission(group: Json) -> Json:
    return (group.get("status") or {}).get("admission") or {}


def _label(body: Json, name: str) -> str:
    return str((body["metadata"].get("labels") or {}).get(name, ""))


def _own(pod: Json) -> Json | None:
    """The admission that a pod carries itself."""
    text = (pod["metadata"].get("annotations") or {}).get(names.RECORD)
    return plain.loads(text) if text and not gated(pod) else None


def _rank(pod: Json) -> int | None:
    text = (
        (pod["metadata"].get("annotations") or {}).get(names.COMPLETION_INDEX) or _label(pod, names.POD_INDEX) or None
    )
    return int(text) if text is not None else None


def _slot(pod: Json) -> int | None:
    own = _own(pod)
    return int(own["slot"]) if own is not None else _rank(pod)


def belongs(pod: Json, group: Json) -> bool:
    """Whether a pod is a member of this PodGroup."""
    if named := _label(pod, names.POD_GROUP_LABEL):
        return named == str(group["metadata"]["name"])
    return bool(controller(pod)) and controller(pod) == controller(group)


def holds(pod: Json) -> bool:
    """Whether a pod is released and has not ended: it is on a node, or may go there at any moment."""
    return not gated(pod) and not ended(pod) and bool(place(pod)) and not (leaving(pod) and not on(pod))


def charged(state: Snapshot) -> tuple[Counter[str], Counter[str]]:
    """GPUs charged to every node and to every queue: what is released where it is, and what is recorded and not there yet."""
    nodes: Counter[str] = Counter()
    queues: Counter[str] = Counter()
    taken: set[str] = set()
    for group in state.all("podgroups"):
        members = [pod for pod in state.all("pods") if belongs(pod, group)]
        owner = _owned(state, group)
        recorded = slots(_admission(group)) if not _over(group, owner, members) else {}
        if owner is not None and "replicas" in owner["spec"]:
            recorded = {
                slot: at for slot, at in recorded.items() if slot < replicas(owner)
            }  # scaled down: free at once
        size = max((gpus(pod["spec"]) for pod in members), default=_template(owner))
        for pod in members:
            taken.add(pod["metadata"]["uid"])
            if pod["status"].get("phase") == "Succeeded" and (slot := _slot(pod)) is not None:
                recorded.pop(slot, None)
            elif pod["status"].get("phase") == "Succeeded":
                recorded.pop(next(iter(recorded), -1), None)
            if holds(pod):
                _vacate(recorded, _slot(pod), place(pod))
                nodes[place(pod)] += gpus(pod["spec"])
                queues[group["spec"]["queue"]] += gpus(pod["spec"])
        for at in recorded.values():
            nodes[at] += size
            queues[group["spec"]["queue"]] += size
    for pod in state.all("pods"):
        if pod["metadata"]["uid"] not in taken and _label(pod, names.QUEUE_LABEL) and holds(pod):
            nodes[place(pod)] += gpus(pod["spec"])
            queues[_label(pod, names.QUEUE_LABEL)] += gpus(pod["spec"])
    return nodes, queues


def sizeless(state: Snapshot) -> bool:
    """Whether some gang holds places of which no object tells the size any more: written by hand, and its pods are gone."""
    return any(
        _admission(group) and not controller(group) and not any(belongs(pod, group) for pod in state.all("pods"))
        for group in state.all("podgroups")
    )


def _vacate(recorded: Slots, slot: int | None, at: str) -> None:
    """A released member holds its slot, wherever it is; one without a number any slot of its node."""
    if slot is None:
        slot = next((one for one, node in recorded.items() if node == at), None)
    if slot is not None:
        recorded.pop(slot, None)


def _owned(state: Snapshot, group: Json) -> Json | None:
    """What a PodGroup was derived from, while it exists."""
    uid = controller(group)
    return next((owner for owner in owners(state) if uid and owner["metadata"]["uid"] == uid), None)


def _over(group: Json, owner: Json | None, members: list[Json]) -> bool:
    """Whether nothing is charged for a gang any more but what runs."""
    if true(group, "Finished"):
        return True
    return bool(controller(group)) and (over(owner) if owner is not None else not members)


def _template(owner: Json | None) -> int:
    return gpus(owner["spec"]["template"]["spec"]) if owner is not None else 0


# ---- history that no object shows


def remember(notes: dict[str, object], stored: Stored) -> None:
    """Keep the admission of a PodGroup that is deleted: releases that were on their way are still its own.

    Of its successor nothing was admitted yet: a Job that is suspended counts as queued so, whenever that was done.
    """
    if stored.kind.plural != "podgroups" or stored.verb != "DELETED":
        return
    notes |= {key: "waiting" for key in notes if key.startswith("suspended/")}
    if _admission(stored.object):
        meta = stored.object["metadata"]
        reduced = {key: meta[key] for key in ("name", "ownerReferences") if key in meta}
        notes[f"grave/{meta['uid']}"] = {"metadata": reduced, "status": {"admission": _admission(stored.object)}}


# ---- every write of ours


def judge(before: Snapshot, after: Snapshot, stored: Stored) -> Iterator[str]:
    """What is wrong with one write that was committed."""
    if stored.user != USER:
        return
    meta = stored.object["metadata"]
    old = before.get(stored.kind.plural, meta["name"])
    match stored.kind.plural:
        case "pods" if old is not None:
            yield from _touched(old, stored.object)
            if gated(old) and not gated(stored.object):
                yield from _released(before, after, stored.object)
                yield from _exceeded(before, after)
            if leaving(stored.object) and not leaving(old):
                yield from _evicted(before, old)
        case "jobs" if old is not None:
            yield from _owner(before, old, stored.object)
        case "podgroups" if old is not None and _admission(stored.object) and not _admission(old):
            yield from _recorded(old, stored.object)
            yield from _exceeded(before, after)
        case "podgroups" if (
            old is not None and _admission(stored.object) != _admission(old) and _admission(stored.object)
        ):
            yield f"R1: the admission of PodGroup {meta['name']} was written over another"
        case _:
            return


def _released(before: Snapshot, after: Snapshot, pod: Json) -> Iterator[str]:
    """P1: after a recorded decision for that gang and round; of a group of one, an extra or a replacement in the same write."""
    name, at, own = pod["metadata"]["name"], place(pod), _own(pod)
    graves = (body for key, body in before.notes.items() if key.startswith("grave/"))
    groups = [group for group in (*before.all("podgroups"), *graves) if belongs(pod, group)]
    if own is not None:
        rounds = {int(_admission(group).get("round") or 0) for group in groups}
        if own["node"] != at or (rounds and int(own["round"]) not in rounds):
            yield f"P1: pod {name} was released to {at} with a record for {own['node']} in round {own['round']}"
        return
    for group in groups:
        recorded = slots(_admission(group))
        rank = _rank(pod)
        if rank is not None and recorded.get(rank) == at:
            return
        here = sum(node == at for node in recorded.values())
        others = [one for one in after.all("pods") if belongs(one, group) and holds(one) and place(one) == at]
        if rank is None and len([one for one in others if _own(one) is None]) <= here:
            return
    yield f"P1: the gate of pod {name} went, to {at}, without a recorded decision for its gang"


def _exceeded(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """P2: no admission makes charges exceed a node or a queue's limit, or worsens an excess."""
    (nodes, queues), (nodes_before, queues_before) = charged(after), charged(before)
    for node in after.all("nodes"):
        name, most = node["metadata"]["name"], int(node["status"]["allocatable"][GPU])
        if nodes[name] > max(most, nodes_before[name]):
            yield f"P2: node {name} has {most} GPUs, and {nodes[name]} are charged to it"
    for queue in after.all("queues"):
        name = queue["metadata"]["name"]
        for entry in queue["spec"].get("resources") or ():
            limit = entry.get("limit")
            if limit is not None and queues[name] > max(int(limit), queues_before[name]):
                yield f"P2: the limit of queue {name} is {limit} GPUs, and {queues[name]} are charged to it"


def _touched(old: Json, new: Json) -> Iterator[str]:
    """P4: foreign gates, unmanaged pods, and whatever is not ours of managed ones."""
    name = old["metadata"]["name"]
    if not _label(old, names.QUEUE_LABEL) or _label(old, names.UNMANAGED_LABEL) == "true":
        yield f"P4: pod {name} is not managed, and was written to"
    gates = [
        [g["name"] for g in pod["spec"].get("schedulingGates") or () if g["name"] != names.GATE] for pod in (old, new)
    ]
    if gates[0] != gates[1]:
        yield f"P4: pod {name} had the foreign gates {gates[0]}, and has {gates[1]}"
    ours = ("affinity", "schedulingGates")
    if any(old["spec"].get(key) != new["spec"].get(key) for key in {*old["spec"], *new["spec"]} - {*ours}):
        yield f"P4: more of pod {name} was changed than gate and affinity"


def _evicted(before: Snapshot, pod: Json) -> Iterator[str]:
    """P5: we have nobody go but what was released, of a gang that says that it is given back."""
    name = pod["metadata"]["name"]
    going = [group for group in before.all("podgroups") if belongs(pod, group) and true(group, "Evicted")]
    if gated(pod) or not any(map(_admission, going)):
        yield f"P5: pod {name} was evicted, and its gang is not being given back"


def _recorded(old: Json, new: Json) -> Iterator[str]:
    """R1: a record is set on the very state it was decided on, in a round that was never used."""
    name, status = new["metadata"]["name"], new["status"]
    if status["observedGeneration"] != new["metadata"]["generation"]:
        yield (
            f"R1: PodGroup {name} was recorded as decided on generation {status['observedGeneration']}, "
            f"and its generation is {new['metadata']['generation']}"
        )
    before = int((old.get("status") or {}).get("round") or 0)
    if int(status["round"]) <= before:
        yield f"R1: PodGroup {name} was recorded in round {status['round']} after round {before}"


def _owner(before: Snapshot, old: Json, new: Json) -> Iterator[str]:
    """S1: we suspend and resume the gang's own owner only, and never resume what its user suspended while it was admitted."""
    name = old["metadata"]["name"]
    uid, _, _ = str((new["metadata"].get("annotations") or {}).get(names.SUSPENSION, "")).partition(":")
    group = next((one for one in before.all("podgroups") if one["metadata"]["uid"] == uid), None)
    if group is not None and controller(group) != old["metadata"]["uid"]:
        yield f"S1: Job {name} was written to for PodGroup {group['metadata']['name']}, which is another Job's"
    resumed = old["spec"].get("suspend") and not new["spec"].get("suspend")
    if resumed and before.notes.get(f"suspended/{name}") == "admitted":
        yield f"S1: its user suspended Job {name} while it was admitted, and we resumed it"


# ---- at rest, and at the end


def torn(state: Snapshot) -> Iterator[str]:
    """P3 and L1 where nothing is on its way any more: of every gang nothing lives, or enough."""
    for group in state.all("podgroups"):
        name, least = group["metadata"]["name"], int(group["spec"].get("minMember") or 1)
        members = [pod for pod in state.all("pods") if belongs(pod, group)]
        well = [
            pod for pod in members if (holds(pod) and not leaving(pod)) or pod["status"].get("phase") == "Succeeded"
        ]
        if true(group, "Finished") or _excused(state, group):
            continue
        if 0 < len(well) < least:
            yield f"P3: {len(well)} of the {least} members that gang {name} needs are released, and nothing is on its way"


def unmarked(state: Snapshot) -> Iterator[str]:
    """S1 at rest: an owner that its gang's admission resumed says so, or its user's next suspend would be taken for ours."""
    for group in state.all("podgroups"):
        status = group.get("status") or {}
        ours = (status.get("requeue") or {}).get("suspendedByUs") and not true(group, "Evicted", "Finished")
        owner = next((job for job in state.all("jobs") if job["metadata"]["uid"] == controller(group)), None)
        if not ours or not status.get("admission") or owner is None or over(owner):
            continue
        if resumed_in(owner) != f"{group['metadata']['uid']}:{status['round']}":
            yield f"S1: gang {group['metadata']['name']} goes on, and Job {owner['metadata']['name']} does not say who resumed it"


def resumed_in(job: Json) -> str:
    """PodGroup and round in which we last resumed a Job, "" when the last thing that we did to it was another."""
    told, _, step = str((job["metadata"].get("annotations") or {}).get(names.SUSPENSION, "")).rpartition(":")
    return told if step == "resumed" else ""


def stuck(state: Snapshot) -> Iterator[str]:
    """L2 and L3 when everything that ran has ended: nobody is left waiting who need not."""
    for group in state.all("podgroups"):
        if not true(group, "Finished") and not _excused(state, group):
            yield f"L3: gang {group['metadata']['name']} neither ended nor has a reason to wait, and nothing happens any more"
    for job in state.all("jobs"):
        if not over(job) and not job["spec"].get("suspend") and group_of(state, job["metadata"]["name"]) is None:
            yield f"L3: Job {job['metadata']['name']} has no PodGroup"
    for pod in state.all("pods"):
        alone = not controller(pod) and not _label(pod, names.POD_GROUP_LABEL)
        if alone and _label(pod, names.QUEUE_LABEL) and not ended(pod):
            yield f"L3: pod {pod['metadata']['name']} waits, and nothing happens any more"


def _excused(state: Snapshot, group: Json) -> bool:
    """Whether people keep the gang as it is: held, given up, suspended, scaled to 0, or short of members for good."""
    if group["spec"].get("hold") or true(group, "Deactivated"):
        return True
    if controller(group):
        owner = _owned(state, group)
        if owner is None or owner["spec"].get("replicas") == 0:
            return True
        return bool(owner["spec"].get("suspend") and f"suspended/{owner['metadata']['name']}" in state.notes)
    members = [pod for pod in state.all("pods") if belongs(pod, group) and pod["status"].get("phase") != "Failed"]
    return len(members) < int(group["spec"].get("minMember") or 1)
