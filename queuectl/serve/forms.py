"""From the engine's views to the JSON API's objects: pure functions, one for each part of an object."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from functools import lru_cache

from queuectl.contract.times import to_wire
from queuectl.engine.view import GangView, NodeView, PoolView, QueueView
from queuectl.model import gangs as model
from queuectl.model.pools import ALL_POOLS
from queuectl.model.reasons import Reason
from queuectl.model.resources import PODS, Amounts, amounts, plus, show, times
from queuectl.serve import objects

_PUBLIC = {"Running": "Running", "Leaving": "Evicting", "Finished": "Finished"}  # all others are Admitted
NEAREST, LOOKED_AT = 3, 2000  # names offered after a 404; names compared for it: about 20 ms of work


def public_phase(gang: GangView) -> str:
    """The published word for the engine's phase."""
    if gang.phase == "Pending":
        return "Deactivated" if any(misfit.reason is Reason.DEACTIVATED for misfit in gang.misfits) else "Pending"
    return _PUBLIC.get(gang.phase, "Admitted")


def path(name: str, queues: dict[str, QueueView]) -> list[QueueView]:
    """The queue and those above it, as far as they exist; a cycle is walked once."""
    found: list[QueueView] = []
    seen: set[str] = set()
    above: str | None = name
    while above is not None and above in queues and above not in seen:
        seen.add(above)
        found.append(queues[above])
        above = queues[above].parent
    return found


def resources(queue: QueueView) -> Iterator[objects.QueueResource]:
    """Every resource that the queue uses, lists or is asked for, but for the count of pods; over all nodes."""
    used, pending = dict(queue.usage), dict(queue.pending)
    listed = {entry.resource: entry for entry in queue.entries if entry.pool == ALL_POOLS}
    names = {*used, *pending, *(entry.resource for entry in queue.entries)}
    for name in sorted(names - {PODS}):
        entry = listed.get(name)
        quota, limit = (entry.quota, entry.limit) if entry is not None else (None, None)
        yield objects.QueueResource(
            name=name,
            used=show(name, used.get(name, 0)),
            quota=None if quota is None else show(name, quota),
            limit=None if limit is None else show(name, limit),
            pending=show(name, pending.get(name, 0)),
        )


def pools(queue: QueueView) -> Iterator[objects.QueuePool]:
    """The same for each pool in which the queue uses or lists something."""
    usage = {pool: dict(used) for pool, used in queue.pools}
    listed = {(entry.pool, entry.resource): entry for entry in queue.entries if entry.pool != ALL_POOLS}
    keys = {(pool, name) for pool, used in usage.items() for name in used if name != PODS} | listed.keys()
    for pool, name in sorted(keys):
        entry = listed.get((pool, name))
        quota, limit = (entry.quota, entry.limit) if entry is not None else (None, None)
        yield objects.QueuePool(
            pool=pool,
            name=name,
            used=show(name, usage.get(pool, {}).get(name, 0)),
            quota=None if quota is None else show(name, quota),
            limit=None if limit is None else show(name, limit),
        )


def counts(view: GangView) -> objects.GangCounts:
    """How far the members have come."""
    return objects.GangCounts(
        members=view.members,
        released=view.released,
        bound=view.bound,
        running=view.running,
        succeeded=view.succeeded,
    )


def summary(gang: objects.Gang) -> str:
    """One sentence that says where the gang stands."""
    pods = "1 pod" if gang.min_member == 1 else f"{gang.min_member} pods"
    spread = f"{len(gang.nodes)} node{'' if len(gang.nodes) == 1 else 's'}"
    match gang.phase:
        case "Pending" if gang.position:
            return f"waits in queue {gang.queue}, position {gang.position}, for a place for {pods} at once"
        case "Pending":
            return f"waits in queue {gang.queue} and is not ready to be placed"
        case "Deactivated":
            return f"was given back {gang.requeues} times and is not tried again"
        case "Admitted":
            started = f"{gang.counts.bound} of {gang.counts.members} pods bound, {gang.counts.running} running"
            return f"is admitted to {spread} and starts: {started}"
        case "Running":
            return f"runs on {spread}: {gang.counts.running} of {gang.counts.members} pods running"
        case "Evicting":
            return f"is being given back: {gang.counts.released} pods are still there"
        case _:
            return "is finished"


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """At most three names like this one: those it begins, then those that differ by a few letters."""
    names = sorted(set(known))
    begins = [one for one in names if name and one.startswith(name)]
    alike = difflib.get_close_matches(name, names[:LOOKED_AT], NEAREST) if len(name) <= 253 else []
    return list(dict.fromkeys([*begins, *alike]))[:NEAREST]


@lru_cache(maxsize=65_536)
def time(at: int) -> str | None:
    """Milliseconds as RFC 3339; 0 is no time."""
    return to_wire(at) if at else None


def admitted(gang: model.Gang | None, members: list[model.Member]) -> str | None:
    """When the admission in force was decided."""
    if gang is None:
        return None
    record = gang.record or next((member.record for member in members if gang.lone and member.record), None)
    return time(record.decided_at) if record is not None else None


def shape(role: model.Role, members: list[model.Member]) -> model.Shape | None:
    """What a role's pods ask for: its template's shape, or a member's; None when neither is there yet."""
    return role.shape or next((member.shape for member in members if member.role == role.name), None)


def need(gang: model.Gang | None, members: list[model.Member]) -> dict[str, str] | None:
    """What the members of the minimum ask for together, but for the count of pods; None when a role's shape is unknown."""
    total: Amounts = ()
    for role in gang.roles if gang is not None else ():
        known = shape(role, members)
        if known is None and role.minimum:
            return None
        total = plus(total, times(known.requests, role.minimum) if known is not None else ())
    return {name: show(name, amount) for name, amount in total if name != PODS} or None


def role(role: model.Role, members: list[model.Member]) -> objects.Role:
    """A role, with its template's requests or a member's."""
    known = shape(role, members)
    return objects.Role(
        name=role.name,
        min_member=role.minimum,
        max_member=role.maximum,
        requests=None if known is None else {name: show(name, amount) for name, amount in known.requests},
        required=role.required,
        preferred=role.preferred,
    )


def by_rank(member: model.Member) -> tuple[str, int, str]:
    """Members by role, then rank, then name."""
    return member.role, -1 if member.rank is None else member.rank, member.name


def pod(member: model.Member) -> objects.Pod:
    """A member; before it is bound, ``node`` is where it is pinned."""
    return objects.Pod(
        name=member.name,
        role=member.role,
        rank=member.rank,
        stage="Leaving" if member.leaving else member.stage.name.capitalize(),
        node=member.node or member.pinned,
        gates=list(member.foreign_gates),
        trouble=member.trouble,
    )


def status(node: NodeView) -> str:
    """Whether a node can be used, and why not."""
    causes = [word for word, so in (("NotReady", not node.ready), ("Cordoned", node.cordoned)) if so]
    return ",".join(causes) or "Ready"


def node(view: NodeView) -> objects.Node:
    """A node, with every resource that it has or that is used there."""
    return objects.Node(
        metadata=objects.Metadata(name=view.name),
        usable=view.usable,
        status=status(view),
        domains=[objects.Domain(level=level, name=name) for level, name in view.domains],
        pools=list(view.pools),
        resources=had(view.allocatable, view.used),
    )


def pool(view: PoolView, nodes: Iterable[NodeView]) -> objects.Pool:
    """A pool, with every resource that its nodes have or that is used there. ``nodes`` are all nodes; O(nodes × resources)."""
    mine = [node for node in nodes if not view.declared or view.name in node.pools]
    used: dict[str, int] = {}
    for node in mine:
        for name, amount in node.used:
            used[name] = used.get(name, 0) + amount
    return objects.Pool(
        metadata=objects.Metadata(name=view.name),
        declared=view.declared,
        selector=dict(view.selector),
        counted=list(view.resources),
        topology=view.topology,
        problem=view.problem,
        nodes=len(mine),
        usable=sum(node.usable for node in mine),
        resources=had(view.allocatable, amounts(used)),
    )


def had(allocatable: Amounts, used: Amounts) -> list[objects.NodeResource]:
    """What there is, in use and free of every resource of both; ``free`` is never negative."""
    has, taken = dict(allocatable), dict(used)
    return [
        objects.NodeResource(
            name=name,
            allocatable=show(name, has.get(name, 0)),
            used=show(name, taken.get(name, 0)),
            free=show(name, max(0, has.get(name, 0) - taken.get(name, 0))),
        )
        for name, _ in union(allocatable, used)
    ]


def union(one: Amounts, other: Amounts) -> Amounts:
    """All resources of both."""
    return amounts({**dict(other), **dict(one)})
