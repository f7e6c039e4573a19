"""From objects on the wire to the engine's nouns. Pure: nothing here remembers anything but interned shapes.

What is wrong with an object becomes a ``Misfit`` on that object; no function here raises for what users can write.
"""

from __future__ import annotations

import json
from sys import intern
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from queuectl.contract import names, owners, seats
from queuectl.contract.foreign import (
    Custom,
    Meta,
    OwnerReference,
    Pod,
    PodSpec,
    WorkerGroup,
    Workload,
    conditions_of,
)
from queuectl.contract.owners import InvalidAnnotation, shorten, size
from queuectl.contract.patches import derived_pod_group
from queuectl.contract.pins import pinnable, pinned, unpinned
from queuectl.contract.shapes import Shapes
from queuectl.contract.times import from_wire
from queuectl.contract.v1alpha1 import MAX_MEMBERS, InvalidObject, parse_slots, validate
from queuectl.model.gangs import Gang, GiveBack, Member, Place, Record, Role, Stage
from queuectl.model.quantity import QuantityError
from queuectl.model.reasons import Misfit, Reason, TextEvidence

_RECORD_LENGTH = 600  # characters of a pod's own record: ours have about 100 and a node's name
_ROUNDS = 1_000_000_000


def invalid(message: str) -> Misfit:
    """The object itself cannot be used."""
    return Misfit(Reason.INVALID_REQUEST, TextEvidence(shorten(message, 300)))


def raw(custom: Custom, kind: str) -> dict[str, Any]:
    """What people wrote of our own resource as a plain mapping, for validation; the status is ours."""
    meta = custom.metadata
    return {
        "apiVersion": "queuectl.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": meta.name, **({"namespace": meta.namespace} if meta.namespace else {})},
        "spec": custom.spec or {},
    }


# ---- gangs


def conditions(status: dict[str, Any] | None) -> dict[str, bool]:
    """Condition type → whether it is True, from the raw status."""
    return {c.get("type", ""): c.get("status") == "True" for c in (status or {}).get("conditions") or ()}


class Crew(Struct, frozen=True):
    """What a gang's members say of it as a whole; ``priority`` is the template's class where there are none.

    ``cleaned`` and ``present`` as in owners.left. ``problem`` is what is wrong with one of them, "" when nothing is.
    """

    priority: int = 0
    conflicting: bool = False
    empty: bool = True
    cleaned: int = 0
    present: int = 0
    problem: str = ""


def gang(group: Custom, owner: Workload | None, shapes: Shapes, crew: Crew) -> Gang:
    """The gang of a PodGroup, and of the owner it was derived from where there is one."""
    meta, status = group.metadata, group.status or {}
    requeue, flags = status.get("requeue") or {}, conditions(status)
    table = owners.of(owner) if owner is not None else None
    created = from_wire(meta.creation_timestamp)
    # Its owner may have waited for a controller: whoever came first in an outage is still the first. Not so the groups of
    # a set: those that it is scaled up by came later.
    since = created if owner is None or isinstance(owner, WorkerGroup) else from_wire(owner.metadata.creation_timestamp)
    recorded = record(status)
    # What the status says stands even when the spec cannot be used: what runs stays charged.
    common: dict[str, Any] = {
        "uid": meta.uid,
        "namespace": meta.namespace,
        "name": meta.name,
        "created": created,
        "priority": crew.priority,
        "queued_at": from_wire(status.get("queuedAt") or "") or since or created,
        "round": int(status.get("round") or 0),
        "record": recorded,
        "evicted": bool(flags.get("Evicted")),
        "finished": bool(flags.get("Finished"))
        or (owner is not None and table is not None and table.finished(owner))
        or (recorded is not None and crew.empty and (deserted(group) or outlived(group, owner))),
        "requeues": int(requeue.get("count") or 0),
        "not_before": from_wire(requeue.get("notBefore") or ""),
        "requested": (meta.annotations or {}).get(names.REQUEUE, "")[:64],
        "handled": str(requeue.get("requested") or ""),
        "give_back": table.give_back if table is not None else _give_back(group),
        "resumes": awaits_resume(owner),
        "rolling": owner is not None and table is not None and table.remaining(owner) is not None,
        "best_effort": _annotation(owner, meta, names.BEST_EFFORT) == "true",
    }
    blocked: list[Misfit] = []
    try:
        spec = validate("PodGroup", raw(group, "PodGroup")).spec
    except InvalidObject as problem:
        queue_name = str((group.spec or {}).get("queue") or "")
        return Gang(**common, queue=queue_name, roles=(), blocked=(invalid(str(problem)),))
    own_roles, problem_of_template = _roles(owner, shapes)
    if problem_of_template is not None:
        blocked.append(problem_of_template)
    minimum, maximum = spec.min_member or 1, spec.max_member or spec.min_member or 1
    if owner is not None and table is not None:
        try:
            sizes = size(table, owner, crew.cleaned, crew.present)
            minimum, maximum = sizes.minimum, sizes.maximum
        except InvalidAnnotation as problem_of_size:
            blocked.append(invalid(str(problem_of_size)))
            # Scaled below its gang, it makes no more pods than that: what it held beyond is free.
            maximum = min(max(table.parallelism(owner), 1), MAX_MEMBERS)
            minimum = min(minimum, maximum)
    several = len(own_roles) > 1 or any(role.name for role in own_roles)
    if several and table is not None and owners.left(table, owner, crew.cleaned, crew.present):
        roles = own_roles
        if (slots := sum(role.maximum for role in roles)) > MAX_MEMBERS:
            roles = ()
            blocked.append(invalid(f"{slots} pods; a gang has at most {MAX_MEMBERS}"))
    elif spec.roles and not several:
        roles = tuple(
            Role(
                role.name,
                role.min_member,
                role.max_member or role.min_member,
                None,
                role.topology.required if role.topology else None,
                role.topology.preferred if role.topology else None,
            )
            for role in spec.roles
        )
        if (slots := sum(role.maximum for role in roles)) > MAX_MEMBERS:
            text = f"spec.roles: {slots} members; a gang has at most {MAX_MEMBERS}"
            return Gang(**common, queue=spec.queue, roles=(), blocked=(invalid(text),))
    elif owner is not None and table is not None and not owners.left(table, owner, crew.cleaned, crew.present):
        # No slot at all; of a record, none any more.
        roles = tuple(replace(role, minimum=0, maximum=0) for role in own_roles) if recorded is not None else ()
        text = f"{named(owner)} asks for no pods"
        blocked.append(Misfit(Reason.SUSPENDED, TextEvidence(text)))
    else:
        (role,) = own_roles or (Role("", 0, 0),)
        roles = (replace(role, minimum=minimum, maximum=maximum),)
    if spec.hold or names.OPERATOR_HOLD in (meta.annotations or {}):
        blocked.append(Misfit(Reason.HELD, TextEvidence("spec.hold is true" if spec.hold else "by the operator")))
    if crew.problem:
        blocked.append(invalid(crew.problem))
    if crew.conflicting:
        blocked.append(invalid("its members have different priorities; give them one priority class"))
    if flags.get("Deactivated"):
        text = f"given back {common['requeues']} times, last for {requeue.get('reason', '')}"
        blocked.append(Misfit(Reason.DEACTIVATED, TextEvidence(text)))
    if owner is not None and awaits_resume(owner) and own_suspend(group, owner):
        blocked.append(Misfit(Reason.SUSPENDED, TextEvidence(named(owner))))
    return Gang(
        **common,
        queue=spec.queue,
        roles=roles,
        required=(spec.topology.required if spec.topology else None) or None,
        preferred=(spec.topology.preferred if spec.topology else None) or None,
        blocked=tuple(blocked),
    )


def _give_back(group: Custom) -> GiveBack:
    """How a gang is given back that nobody makes again: not, unless that is accepted. What was begun is carried through."""
    if controller(group.metadata) is not None or deserted(group):
        return GiveBack.NONE
    accepts = (group.metadata.annotations or {}).get(names.PREEMPTIBLE) == "true"
    return GiveBack.EVICT if accepts or conditions(group.status).get("Evicted") else GiveBack.NONE


def deserted(group: Custom) -> bool:
    """Whether a derived PodGroup has lost its owner: deleted with ``--cascade=orphan``, so that its pods are their own."""
    meta = group.metadata
    return owners.derived(meta.name) and not any(r.controller for r in meta.owner_references)


def outlived(group: Custom, owner: Workload | None) -> bool:
    """Whether the owner that a PodGroup was derived from is gone, and the garbage collector has not come by yet.

    It looks for new resource types every half minute; what the gang held is free at once.
    """
    return owner is None and controller(group.metadata) is not None


def named(owner: Workload) -> str:
    """An owner by kind, namespace and name, for people."""
    number = f" group {owner.index}" if isinstance(owner, WorkerGroup) else ""
    return f"{owners.of(owner).kind.kind} {owner.metadata.namespace}/{owner.metadata.name}{number}"


def awaits_resume(owner: Workload | None) -> bool:
    """Whether an owner makes no pods before somebody resumes it, which we do when its gang is admitted."""
    return owner is not None and owners.of(owner).give_back is GiveBack.SUSPEND and owners.of(owner).suspended(owner)


def own_suspend(group: Custom, owner: Workload | None) -> bool:
    """Whether a suspended owner was suspended by its user although it had been admitted.

    Not the user's: suspended before it was admitted (the record says that it was, the resume of that round is not marked
    yet), and suspended by us to give back, which is marked likewise. Once its pods are gone the record goes too, and
    ``requeue.reason`` keeps the mark. What cannot be suspended is taken away by scaling it to 0.
    """
    if owner is None or not owners.of(owner).suspended(owner):
        return False
    status = group.status or {}
    requeue = status.get("requeue") or {}
    if not status.get("admission"):
        return requeue.get("reason") == Reason.SUSPENDED
    step = suspension_step(owner, group.metadata.uid, int(status.get("round") or 0))
    if step == "suspended":
        return False
    if conditions(status).get("Running"):
        return True  # whoever resumed it, it ran
    return not requeue.get("suspendedByUs") or step == "resumed"


def suspension_step(owner: Workload, group_uid: str, round_: int) -> str:
    """What we last did to an owner in that round of that PodGroup: "suspended", "resumed", or "" where we did nothing.

    The annotation names the PodGroup, because people make a Job from another one's YAML, annotations and all.
    """
    before, _, step = (owner.metadata.annotations or {}).get(names.SUSPENSION, "").rpartition(":")
    return step if before == f"{group_uid}:{round_}" and step in ("suspended", "resumed") else ""


def resumed(owner: Workload, group_uid: str, round_: int) -> bool:
    """Whether the owner says that we have resumed it in that round of that PodGroup."""
    return suspension_step(owner, group_uid, round_) == "resumed"


def _annotation(owner: Workload | None, meta: Meta, key: str) -> str:
    found = (meta.annotations or {}).get(key)
    return found or (((owner.metadata.annotations or {}).get(key, "")) if owner is not None else "")


def _roles(owner: Workload | None, shapes: Shapes) -> tuple[tuple[Role, ...], Misfit | None]:
    """A role for each template of an owner, with what of it is still to be done, and what is wrong with one of them."""
    roles: list[Role] = []
    problem: Misfit | None = None
    for part in owners.of(owner).parts(owner) if owner is not None else ():
        shape, spec = None, part.template.spec
        try:
            shape = shapes.of(spec)
        except QuantityError as wrong:
            problem = problem or invalid(f"the pod template{f' {part.name}' if part.name else ''}: {wrong}")
        gates = tuple(sorted({gate.name for gate in spec.scheduling_gates or ()} - {names.GATE}))
        roles.append(Role(part.name, max(part.least - part.done, 0), part.count, shape, gates=gates))
    return tuple(roles), problem


def record(status: dict[str, Any]) -> Record | None:
    """The admission in a PodGroup's status; None when absent."""
    admission = status.get("admission")
    if not admission:
        return None
    places: list[Place] = []
    for assignment in admission.get("assignments") or ():
        try:
            slots = parse_slots(str(assignment.get("slots", "")))
        except ValueError:
            continue  # never written by us, and the schema refuses it
        places += [Place(slot, str(assignment.get("node", ""))) for slot in slots]
    places.sort(key=lambda place: place.slot)
    return Record(int(admission.get("round") or 0), tuple(places), from_wire(admission.get("decidedAt") or ""))


def lone(pod: Pod, entry: Member, crew: Crew) -> Gang:
    """A group of one: a managed pod without PodGroup and without an owner that we know. Its UID is the pod's."""
    meta = pod.metadata
    annotations = meta.annotations or {}
    return Gang(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        queue=(meta.labels or {}).get(names.QUEUE_LABEL, ""),
        roles=(Role("", 1, 1, entry.shape),),
        required=annotations.get(names.TOPOLOGY_REQUIRED) or None,
        preferred=annotations.get(names.TOPOLOGY_PREFERRED) or None,
        priority=crew.priority,
        created=from_wire(meta.creation_timestamp),
        queued_at=from_wire(meta.creation_timestamp),
        round=entry.record.round if entry.record else 0,
        record=entry.record,
        finished=entry.stage in (Stage.SUCCEEDED, Stage.FAILED),
        give_back=GiveBack.EVICT if annotations.get(names.PREEMPTIBLE) == "true" else GiveBack.NONE,
        best_effort=annotations.get(names.BEST_EFFORT) == "true",
        lone=True,
        blocked=(invalid(crew.problem),) if crew.problem else (),
    )


def stand_in(uid: str, namespace: str, name: str, queue: str, problem: str = "") -> Gang:
    """Stands in for a PodGroup that members name, or an owner lacks: it is charged for what runs, admits nothing.

    ``problem`` is why the owner can have none, "" where it only does not exist.
    """
    name = shorten(name, 63)
    what = Misfit(Reason.POD_GROUP_MISSING, TextEvidence(f"{namespace}/{name}"))
    blocked = (invalid(problem) if problem else what,)
    return Gang(uid=uid, namespace=namespace, name=name, queue=queue, roles=(), blocked=blocked)


def queue_of(owner: Workload) -> str:
    """The queue that an owner's pods will name: its own label, else its template's; empty when it makes no gang of its own.

    Its pods are unmanaged then, or members of a PodGroup that somebody wrote by hand. Of what keeps pods alive only the
    template's labels count, and while it is scaled to 0 it has none to make a gang of (a Deployment's old revisions).
    """
    row = owners.of(owner)
    if row.give_back is GiveBack.EVICT and row.suspended(owner):
        return ""
    labels = (owner.metadata.labels or {}) if row.labelled else {}
    templates = [part.labels for part in row.parts(owner)]
    if any(one.get(names.UNMANAGED_LABEL) == "true" or one.get(names.POD_GROUP_LABEL) for one in templates):
        return ""
    if labels.get(names.UNMANAGED_LABEL) == "true":
        return ""
    queues = {one.get(names.QUEUE_LABEL, "") for one in templates}
    return labels.get(names.QUEUE_LABEL) or (queues.pop() if len(queues) == 1 else "")


def underivable(owner: Workload, queue: str) -> str:
    """Why an owner can have no PodGroup: its templates disagree, or the API server would refuse it. "" when it can."""
    if problem := owners.disagreement(owner):
        return problem
    try:
        validate("PodGroup", derived_pod_group(owners.of(owner), owner, queue))
    except InvalidObject as refusal:
        return f"its PodGroup would be refused: {refusal}"
    return ""


# ---- pods


def managed(pod: Pod) -> bool:
    """Whether a pod is ours to release: it names a queue and does not opt out."""
    labels = pod.metadata.labels or {}
    return bool(labels.get(names.QUEUE_LABEL)) and labels.get(names.UNMANAGED_LABEL) != "true"


def controller(meta: Meta) -> OwnerReference | None:
    """The reference to the known owner that controls an object."""
    for reference in meta.owner_references:
        if reference.controller and (reference.api_version, reference.kind) in owners.OWNERS:
            return reference
    return None


_NONE: frozenset[str] = frozenset()


def member(pod: Pod, gang_uid: str, shapes: Shapes) -> tuple[Member, str]:
    """A pod as a member of a gang, and what is wrong with its requests ("" when nothing is)."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    annotations = meta.annotations or {}
    gates = {gate.name for gate in spec.scheduling_gates} if spec.scheduling_gates else _NONE
    stage = _stage(status.phase, spec, gated=names.GATE in gates)
    role, rank = seats.seat(meta)
    required = spec.affinity.node_affinity.required if spec.affinity and spec.affinity.node_affinity else None
    ours = stage is not Stage.GATED and names.FENCE in annotations
    shape, problem = shapes.shaped(unpinned(spec) if ours else spec)
    found = Member(
        uid=meta.uid,
        gang=gang_uid,
        name=meta.name,
        shape=shape,
        stage=stage,
        role=role,
        rank=rank,
        node=intern(spec.node_name) if spec.node_name else None,
        pinned=pinned(required) if stage is Stage.RELEASED else None,
        # Ours comes with the write that takes the gate away: what a gated pod carries, somebody else wrote.
        record=pod_record(annotations[names.RECORD])
        if names.RECORD in annotations and stage is not Stage.GATED
        else None,
        foreign_gates=tuple(sorted(gates - {names.GATE})) if gates else (),
        leaving=meta.deletion_timestamp is not None,
        created=from_wire(meta.creation_timestamp),
        pinnable=required is None or pinnable(required),
        trouble=_trouble(pod) if stage in (Stage.RELEASED, Stage.BOUND) else "",
    )
    return found, f"pod {meta.name}: {problem}" if problem else ""


def _stage(phase: str, spec: PodSpec, *, gated: bool) -> Stage:
    if phase == "Succeeded":
        return Stage.SUCCEEDED
    if phase == "Failed":
        return Stage.FAILED
    if spec.node_name:
        return Stage.RUNNING if phase == "Running" else Stage.BOUND
    return Stage.GATED if gated else Stage.RELEASED


def pod_record(text: str) -> Record | None:
    """The admission that a pod carries itself; None when absent or unreadable, for its owner may write there too."""
    if not text or len(text) > _RECORD_LENGTH:
        return None
    try:
        found = json.loads(text)
        slot, round_ = seats.number(str(found["slot"]), MAX_MEMBERS), seats.number(str(found["round"]), _ROUNDS)
        if slot is None or round_ is None:
            return None
        return Record(round_, (Place(slot, str(found["node"])),), from_wire(str(found.get("decidedAt", ""))))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


_WAITING = names.WAITING.encode()


def waiting(pod: Pod) -> tuple[str, str] | None:
    """Reason and message of our condition on a group of one; None where it has none, or it is not True."""
    for condition in conditions_of(pod) if _WAITING in bytes(pod.status.conditions) else ():
        if condition.type == names.WAITING and condition.status == "True":
            return condition.reason or "", condition.message or ""
    return None


def _trouble(pod: Pod) -> str:
    """Why a released pod does not come further, in the scheduler's or kubelet's own words."""
    for condition in conditions_of(pod) if b'"False"' in bytes(pod.status.conditions) else ():
        if condition.type == "PodScheduled" and condition.status == "False" and condition.message:
            return shorten(condition.message, 200)
    return shorten(pod.status.message or pod.status.reason or "", 200)
