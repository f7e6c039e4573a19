"""From decisions to the bodies of writes. Pure; every body carries our fence, and its precondition where there is one.

Pods and Jobs take strategic merge patches, our own resources JSON merge patches (lists are replaced whole there).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from queuectl.contract import names
from queuectl.contract.foreign import Custom, Expression, SelectorTerm, Workload
from queuectl.contract.owners import InvalidAnnotation, Owner, key, pod_group_name, size
from queuectl.contract.times import to_wire
from queuectl.contract.v1alpha1 import API_VERSION, format_slots
from queuectl.model.gangs import Place
from queuectl.model.plan import Withdraw
from queuectl.model.reasons import Misfit, Reason, remedy, sentence

Body = dict[str, Any]


# ---- pods


def _expressions(expressions: Sequence[Expression]) -> list[Body]:
    return [
        {"key": e.key, "operator": e.operator, **({"values": list(e.values)} if e.values is not None else {})}
        for e in expressions
    ]


def pin(terms: Sequence[SelectorTerm] | None, node: str) -> list[Body]:
    """The terms of a required node affinity, each tightened to one node.

    The API lets requirements be appended to non-empty terms only, in place; an empty term matches no node and stays.
    """
    name = {"key": names.FIELD_NAME, "operator": "In", "values": [node]}
    if not terms:
        return [{"matchFields": [name]}]
    pinned: list[Body] = []
    for term in terms:
        body: Body = {}
        if term.match_expressions:
            body["matchExpressions"] = _expressions(term.match_expressions)
        if term.match_expressions or term.match_fields:
            body["matchFields"] = [*_expressions(term.match_fields or ()), name]
        pinned.append(body)
    return pinned


def release(
    uid: str, version: str, terms: Sequence[SelectorTerm] | None, node: str, fence: int, record: str | None = None
) -> Body:
    """Pin a pod to its node and remove our gate, in one patch. ``record`` rides along where the pod carries its own.

    Where it does not, whatever stands in that place goes: somebody else wrote it.
    """
    annotations = {names.FENCE: str(fence), names.RECORD: record}
    return {
        "metadata": {"uid": uid, "resourceVersion": version, "annotations": annotations},
        "spec": {
            "schedulingGates": [{"$patch": "delete", "name": names.GATE}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": pin(terms, node)}
                }
            },
        },
    }


def void(uid: str, version: str, fence: int) -> Body:
    """Change the version of a gated pod and nothing that counts: what was sent for ``version`` is refused from then on.

    The place of the pod's own record says so, which means nothing while the gate is there; the release clears it. It names
    the version, so that no two such patches are alike: one that changes nothing would leave the version as it is.
    """
    note = json.dumps({"void": version}, separators=(",", ":"))
    return {
        "metadata": {
            "uid": uid,
            "resourceVersion": version,
            "annotations": {names.FENCE: str(fence), names.RECORD: note},
        }
    }


def own_record(round_: int, fence: int, slot: int, node: str, decided_at: int) -> str:
    """The admission that a pod carries itself, as the annotation's text."""
    return json.dumps(
        {"round": round_, "fence": fence, "slot": slot, "node": node, "decidedAt": to_wire(decided_at)},
        separators=(",", ":"),
    )


# ---- owners


def suspension(owner: Workload, group_uid: str, round_: int, fence: int, *, suspend: bool) -> Body:
    """Suspend or resume an owner, if it is still as it was seen.

    The annotation says, in the same write, that it was us, for which PodGroup and in which round.
    """
    step = f"{group_uid}:{round_}:{'suspended' if suspend else 'resumed'}"
    return {
        "metadata": {
            "uid": owner.metadata.uid,
            "resourceVersion": owner.metadata.resource_version,
            "annotations": {names.FENCE: str(fence), names.SUSPENSION: step},
        },
        "spec": {"suspend": suspend},
    }


def derived_pod_group(table: Owner, owner: Any, queue: str) -> Body:
    """The PodGroup of an owner. An annotation that cannot be used is reported on the gang, not here."""
    meta = owner.metadata
    annotations: Mapping[str, str] = meta.annotations or {}
    try:
        sizes = size(table, owner)
        minimum, maximum = sizes.minimum, sizes.maximum
    except InvalidAnnotation:
        minimum, maximum = 1, max(table.parallelism(owner), 1)
    parts = table.parts(owner)
    members: Body = {"minMember": minimum, "maxMember": maximum}
    if len(parts) != 1 or parts[0].name:
        members = {
            "roles": [
                {"name": one.name, "minMember": max(one.least, 1), "maxMember": max(one.count, 1)} for one in parts
            ]
        }
    levels = {
        key: annotations[name]
        for key, name in (("required", names.TOPOLOGY_REQUIRED), ("preferred", names.TOPOLOGY_PREFERRED))
        if annotations.get(name)
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "PodGroup",
        "metadata": {
            "name": pod_group_name(table.kind.kind, meta.name, key(owner)),
            "namespace": meta.namespace,
            "ownerReferences": [
                {
                    "apiVersion": table.kind.api_version,
                    "kind": table.kind.kind,
                    "name": meta.name,
                    "uid": meta.uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": {
            "queue": queue,
            **members,
            **({"topology": levels} if levels else {}),
        },
    }


# ---- status of PodGroups and Queues


def conditions(status: Mapping[str, Any] | None, changes: Mapping[str, tuple[bool, str, str]], now: int) -> list[Body]:
    """The whole list of conditions after ``changes`` (type → true?, reason, message); unchanged ones keep their time."""
    before = {c["type"]: c for c in (status or {}).get("conditions") or () if "type" in c}
    for kind, (true, reason, message) in changes.items():
        value = "True" if true else "False"
        old = before.get(kind)
        if old is None and not true:
            continue
        same = old is not None and old.get("status") == value
        before[kind] = {
            "type": kind,
            "status": value,
            "reason": reason,
            "message": message,
            "lastTransitionTime": old["lastTransitionTime"] if same and old else to_wire(now),
        }
    return [before[kind] for kind in sorted(before)]


def _status(group: Custom, fence: int, fields: Body) -> Body:
    return {
        "metadata": {"resourceVersion": group.metadata.resource_version},
        "status": {"fence": fence, "observedGeneration": group.metadata.generation, **fields},
    }


def record(group: Custom, round_: int, decided_at: int, places: Sequence[Place], fence: int, *, resumes: bool) -> Body:
    """The admission record: the decision itself, compared and set on the version it was decided on."""
    by_node: dict[str, list[int]] = defaultdict(list)
    for place in places:
        by_node[place.node].append(place.slot)
    status = group.status or {}
    return _status(
        group,
        fence,
        {
            "round": round_,
            "queuedAt": status.get("queuedAt") or group.metadata.creation_timestamp,
            "conditions": conditions(
                status,
                {
                    "QuotaReserved": (True, "Admitted", ""),
                    "Placed": (True, "Admitted", f"round {round_}"),
                    "Released": (False, "Admitted", ""),
                    "Running": (False, "Admitted", ""),
                    "Evicted": (False, "Admitted", ""),
                },
                decided_at,
            ),
            # A requeue asked for while it waited is answered by this: after a restart it must not end what runs.
            "requeue": {
                **(status.get("requeue") or {}),
                "reason": "",
                "suspendedByUs": resumes,
                "requested": _requested(group),
            },
            "admission": {
                "round": round_,
                "fence": fence,
                "decidedAt": to_wire(decided_at),
                "assignments": [
                    {"node": node, "slots": format_slots(slots)} for node, slots in sorted(by_node.items())
                ],
            },
            "blocker": None,
        },
    )


def note(group: Custom, counts: Mapping[str, int], fence: int, now: int) -> Body:
    """All members have started."""
    started = {"Released": (True, "AllReleased", ""), "Running": (True, "AllStarted", "")}
    return _status(
        group,
        fence,
        {"conditions": conditions(group.status, started, now), "startedAt": to_wire(now), "counts": dict(counts)},
    )


def finished(group: Custom, counts: Mapping[str, int], fence: int, now: int, reason: str) -> Body:
    """The gang is over; nothing of it is charged any more."""
    over = {"Finished": (True, reason, ""), "Running": (False, reason, "")}
    return _status(group, fence, {"conditions": conditions(group.status, over, now), "counts": dict(counts)})


def evicted(group: Custom, withdraw: Withdraw, fence: int, now: int) -> Body:
    """The gang is being given back, and when it may start again.

    ``suspendedByUs`` stays as the record has it: only that tells an owner that its user suspends in this very moment from
    one that was queued suspended and not resumed yet.
    """
    status = group.status or {}
    before = status.get("requeue") or {}
    by_hand = withdraw.cause.value == "Requested"
    changes = {
        "Evicted": (True, withdraw.cause.value, withdraw.detail[:1000]),
        "Deactivated": (withdraw.deactivate, withdraw.cause.value, withdraw.detail[:1000]),
    }
    return _status(
        group,
        fence,
        {
            "conditions": conditions(status, changes, now),
            "requeue": {
                "count": 0 if by_hand else int(before.get("count") or 0) + 1,
                "notBefore": None if by_hand else to_wire(withdraw.not_before),
                "reason": withdraw.cause.value,
                "suspendedByUs": bool(before.get("suspendedByUs")),
                "requested": _requested(group),
            },
        },
    )


def returned(group: Custom, fence: int, now: int, reason: str) -> Body:
    """Nothing of the gang is left in the cluster: it is back in its queue at its old place."""
    away = (False, reason, "")
    changes = dict.fromkeys(("QuotaReserved", "Placed", "Released", "Running", "Evicted"), away)
    requeue = {**((group.status or {}).get("requeue") or {}), "reason": reason}
    return _status(
        group,
        fence,
        {
            "conditions": conditions(group.status, changes, now),
            "admission": None,
            "startedAt": None,
            "counts": None,
            "requeue": requeue,
        },
    )


def reset(group: Custom, fence: int, now: int) -> Body:
    """A waiting gang that somebody requeued by hand or edited: no back-off, no count, active again.

    One that its user has suspended stays so: only its user's resume ends that.
    """
    before = ((group.status or {}).get("requeue") or {}).get("reason")
    reason = before if before == Reason.SUSPENDED else "Requested"
    requeue = {"count": 0, "notBefore": None, "reason": reason, "requested": _requested(group)}
    changes = {"Deactivated": (False, "Requested", "")}
    return _status(group, fence, {"conditions": conditions(group.status, changes, now), "requeue": requeue})


def _requested(group: Custom) -> str:
    return (group.metadata.annotations or {}).get(names.REQUEUE, "")[:64]


def worded(misfits: Sequence[Misfit]) -> tuple[str, str] | None:
    """The dominant reason and its message, with what would free it; None for no reason."""
    if not misfits:
        return None
    first = misfits[0]
    advice = remedy(first)
    message = sentence(first) + (f"; {advice}" if advice else "")
    return first.reason.value, message[:1000]


def blocker(group: Custom, misfits: Sequence[Misfit], fence: int) -> Body:
    """Why the gang waits: the dominant reason in full; no reasons clear it."""
    found = worded(misfits)
    return _status(group, fence, {"blocker": {"reason": found[0], "message": found[1]} if found else None})


def waiting(uid: str, version: str, before: tuple[str, str] | None, now: tuple[str, str] | None, wall: int) -> Body:
    """A group of one has no status of its own: why it waits, as a condition of its pod; None when it waits no more.

    ``before`` is what the condition says, None where it says nothing. Without a fence: whoever wrote to the pod since, the
    write is refused, so an earlier leader says nothing of a pod that a later one has released.
    """
    condition: Body = {"type": names.WAITING, "status": "True" if now else "False"}
    reason, message = now or ("Admitted", "")
    condition |= {"reason": reason, "message": message or None}
    if (before is None) != (now is None):
        condition["lastTransitionTime"] = to_wire(wall)
    return {"metadata": {"uid": uid, "resourceVersion": version}, "status": {"conditions": [condition]}}


def queue_status(queue: Custom, fields: Body, problem: Misfit | None, fence: int, now: int) -> Body:
    """What a queue holds, and whether it is in use. Not compared: the fence alone decides who writes."""
    active = (problem is None, problem.reason.value if problem else "InUse", sentence(problem) if problem else "")
    listed = conditions(queue.status, {"Active": active}, now)
    if problem is not None and not any(c["type"] == "Active" for c in listed):
        listed.append(
            {
                "type": "Active",
                "status": "False",
                "reason": active[1],
                "message": active[2],
                "lastTransitionTime": to_wire(now),
            }
        )
    return {"status": {"fence": fence, "observedGeneration": queue.metadata.generation, "conditions": listed, **fields}}
