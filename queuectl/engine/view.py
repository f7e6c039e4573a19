"""What others may read of the engine: frozen copies of queues, gangs and nodes at one moment."""

from __future__ import annotations

from msgspec import Struct

from queuectl.engine.branches import Branch
from queuectl.engine.counts import Count
from queuectl.engine.lines import Offer
from queuectl.engine.standing import LIVE, Phase, Standing
from queuectl.engine.state import State
from queuectl.model.gangs import Stage
from queuectl.model.queues import Entry
from queuectl.model.reasons import Misfit
from queuectl.model.resources import Amounts, amounts
from queuectl.model.topology import path


class QueueView(Struct, frozen=True, kw_only=True):
    """One queue. ``usage`` includes everything below it; ``pending`` is what its waiting gangs ask for."""

    name: str
    parent: str | None
    leaf: bool
    weight: int
    priority: int
    usage: Amounts
    entries: tuple[Entry, ...]
    pending: Amounts
    gangs_pending: int
    gangs_admitted: int
    gangs_running: int
    misfits: tuple[Misfit, ...]


class GangView(Struct, frozen=True, kw_only=True):
    """One gang. ``position`` counts from 1 in its leaf's pending order, 0 when it is not waiting or not ready."""

    uid: str
    namespace: str
    name: str
    queue: str
    phase: Phase
    minimum: int
    members: int
    released: int
    bound: int
    running: int
    succeeded: int
    nodes: tuple[tuple[str, int], ...]
    misfits: tuple[Misfit, ...]
    position: int
    queued_at: int
    priority: int
    round: int


class NodeView(Struct, frozen=True, kw_only=True):
    """One node. ``domains`` are (level, name) pairs, coarse to fine, of the levels it lies in."""

    name: str
    allocatable: Amounts
    used: Amounts
    usable: bool
    labels: tuple[tuple[str, str], ...]
    domains: tuple[tuple[str, str], ...]


class View(Struct, frozen=True):
    """The whole engine at one moment; each tuple sorted by name (gangs by UID)."""

    queues: tuple[QueueView, ...]
    gangs: tuple[GangView, ...]
    nodes: tuple[NodeView, ...]


def node_views(state: State) -> tuple[NodeView, ...]:
    """All nodes seen."""
    levels = state.fleet.levels
    return tuple(
        NodeView(
            name=node.name,
            allocatable=node.allocatable,
            used=amounts(state.fleet.used.get(node.name, {})),
            usable=node.ready and not node.cordoned,
            labels=node.labels,
            domains=tuple(
                (level.name, name) for level, name in zip(levels, path(node, levels), strict=False) if name is not None
            ),
        )
        for _, node in sorted(state.fleet.nodes.items())
    )


def gang_view(standing: Standing, misfits: tuple[Misfit, ...], position: int) -> GangView:
    """One gang whose object was seen."""
    gang = standing.seen
    stages = [member.stage for member in standing.members.values()]
    nodes: dict[str, int] = {}
    for charge in standing.charges.values():
        nodes[charge.node] = nodes.get(charge.node, 0) + 1
    return GangView(
        uid=gang.uid,
        namespace=gang.namespace,
        name=gang.name,
        queue=gang.queue,
        phase=standing.phase,
        minimum=gang.minimum,
        members=len(stages),
        released=sum(stage in LIVE for stage in stages),
        bound=sum(stage in (Stage.BOUND, Stage.RUNNING) for stage in stages),
        running=sum(stage is Stage.RUNNING for stage in stages),
        succeeded=sum(stage is Stage.SUCCEEDED for stage in stages),
        nodes=tuple(sorted(nodes.items())),
        misfits=misfits,
        position=position,
        queued_at=gang.queued_at,
        priority=gang.priority,
        round=standing.round or gang.round,
    )


def queue_views(state: State) -> tuple[QueueView, ...]:
    """All queues by name, from the counters. O(queues × (depth + resources))."""
    branches = state.branches.branches
    totals: dict[str, Count] = {name: Count() for name in branches}
    for name, count in state.counts.queues.items():
        for node in branches[name].path if name in branches else ():
            totals[node.queue.name].add(count)
    return tuple(_queue_view(branch, totals[name]) for name, branch in sorted(branches.items()))


def _queue_view(branch: Branch, count: Count) -> QueueView:
    queue, phases = branch.queue, count.phases
    apart = (Phase.PENDING, Phase.RUNNING, Phase.FINISHED)
    return QueueView(
        name=queue.name,
        parent=queue.parent,
        leaf=branch.leaf,
        weight=queue.weight,
        priority=queue.priority,
        usage=amounts(branch.usage),
        entries=queue.entries,
        pending=amounts(count.pending),
        gangs_pending=phases.get(Phase.PENDING, 0),
        gangs_admitted=sum(number for phase, number in phases.items() if phase not in apart),
        gangs_running=phases.get(Phase.RUNNING, 0),
        misfits=branch.misfits,
    )


def positions(offers: list[Offer]) -> dict[str, int]:
    """Gang -> its place in a leaf's pending order, from 1; extras are not gangs and do not count."""
    return {offer.gang: place for place, offer in enumerate((one for one in offers if one.slot < 0), start=1)}
