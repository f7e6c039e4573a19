"""What others may read of the engine: frozen copies of queues, gangs and nodes at one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from queuectl.engine.branches import Branch
from queuectl.engine.counts import Count
from queuectl.engine.lines import Offer
from queuectl.engine.standing import LIVE, Phase, Standing
from queuectl.engine.state import State
from queuectl.model.gangs import Stage
from queuectl.model.pools import DEFAULT_POOL, Pool
from queuectl.model.queues import Entry
from queuectl.model.reasons import Misfit
from queuectl.model.resources import Amounts, amounts
from queuectl.model.topology import ABSENT, DEFAULT_TOPOLOGY, Level, Node, path

GANGS_A_STEP, NODES_A_STEP = 20, 50


class QueueView(Struct, frozen=True, kw_only=True):
    """One queue. ``usage`` includes everything below it; ``pending`` is what its waiting gangs ask for.

    ``pools`` has what of ``usage`` is on the nodes of each pool where something is; pools may overlap.
    """

    name: str
    parent: str | None
    leaf: bool
    weight: int
    priority: int
    usage: Amounts
    entries: tuple[Entry, ...]
    pools: tuple[tuple[str, Amounts], ...] = ()
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
    """One node. ``domains`` are (level, name) pairs, coarse to fine, of the levels it lies in; ``pools`` those it belongs to."""

    name: str
    allocatable: Amounts
    used: Amounts
    ready: bool
    cordoned: bool
    labels: tuple[tuple[str, str], ...]
    domains: tuple[tuple[str, str], ...]
    pools: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether a pod may be placed there."""
        return self.ready and not self.cordoned


class PoolView(Struct, frozen=True, kw_only=True):
    """One pool; its nodes' own views say that they are its. ``allocatable`` is what they have together.

    While nobody has declared a pool there is one, of all nodes, which is not ``declared``. ``problem`` says why its
    topology does not apply, and the default one does; "" where it applies.
    """

    name: str
    declared: bool
    selector: tuple[tuple[str, str], ...]
    resources: tuple[str, ...]
    topology: str
    problem: str
    allocatable: Amounts


class View(Struct, frozen=True):
    """The whole engine at one moment; each tuple sorted by name (gangs by UID)."""

    queues: tuple[QueueView, ...]
    gangs: tuple[GangView, ...]
    nodes: tuple[NodeView, ...]
    pools: tuple[PoolView, ...] = ()


class Snapshots:
    """Views of gangs and nodes as they were made last, given again where nothing has changed since.

    What they cost in memory is what a ``View`` costs. ``said`` tells what is known against a gang now.
    """

    def __init__(self, state: State, said: Callable[[Standing], tuple[Misfit, ...]]) -> None:
        self._state, self._said = state, said
        self._gangs: dict[str, tuple[Standing, int, GangView]] = {}
        self._nodes: dict[str, _Taken] = {}
        self._listed: list[NodeView] = []  # by name, as of the rows of ``_era`` and their changes up to ``_tick``
        self._place: dict[int, int] = {}  # row → its place in the list
        self._era, self._tick = -1, -1

    def prepare(self) -> Iterator[None]:
        """Make what has changed, a few at a time, so that ``gangs`` and ``nodes`` find little to do; steps take about 0.3 ms.

        Things may change between two steps: whatever does is made later, once it has settled.
        """
        for number, uid in enumerate([*self._state.gangs]):
            if number % GANGS_A_STEP == 0:
                yield
            standing = self._state.gangs.get(uid)
            if standing is not None and standing.gang is not None and uid not in self._state.dirty:
                kept = self._gangs.get(uid)
                # Its place in the queue may be another by now; that is seen to when the view is made.
                self._gang(standing, kept[2].position if kept is not None else 0)
        if self._era != self._state.fleet.era:
            yield from self._arrange()
        for number, name in enumerate(self._changed()):
            if number % NODES_A_STEP == 0:
                yield
            if name in self._state.fleet.nodes and name in self._state.fleet.row:
                self._renew(name)

    def gangs(self, positions: dict[str, int]) -> tuple[GangView, ...]:
        """All gangs by UID. O(gangs), and O(members) for each that has changed."""
        standings = [one for _, one in sorted(self._state.gangs.items()) if one.gang is not None]
        found = tuple([self._gang(standing, positions.get(standing.uid, 0)) for standing in standings])
        if len(self._gangs) > len(found):
            self._gangs = {one.uid: self._gangs[one.uid] for one in found}
        return found

    def nodes(self) -> tuple[NodeView, ...]:
        """All nodes by name. O(levels + resources) for each that has changed; O(nodes) when one came, went or moved."""
        fleet = self._state.fleet
        if self._era != fleet.era:
            for _ in self._arrange():
                pass  # nothing can come between its steps here
        for name in self._changed():
            self._listed[self._place[fleet.row[name]]] = self._renew(name)
        self._tick = fleet.ticks
        return tuple(self._listed)

    def _arrange(self) -> Iterator[None]:
        """All nodes by name, as of rows that were numbered anew; left undone when they are again, between two steps."""
        fleet = self._state.fleet
        era, tick, names = fleet.era, fleet.ticks, sorted(fleet.row)
        listed: list[NodeView] = []
        for number, name in enumerate(names):
            if number % NODES_A_STEP == 0:
                yield
            if fleet.era != era or name not in fleet.nodes:
                return
            listed.append(self._renew(name))
        self._listed, self._place = listed, {fleet.row[name]: place for place, name in enumerate(names)}
        self._nodes = {name: self._nodes[name] for name in names}
        self._era, self._tick = era, tick

    def _renew(self, name: str) -> NodeView:
        fleet = self._state.fleet
        return self._node(fleet.nodes[name], (fleet.era, int(fleet.touched[fleet.row[name]])))

    def _changed(self) -> list[str]:
        """Nodes that are there and whose rows have changed since the last view."""
        fleet = self._state.fleet
        names = (fleet.tree.nodes[row] for row in np.flatnonzero(fleet.touched > self._tick).tolist())
        return [name for name in names if name in fleet.nodes]

    def _gang(self, standing: Standing, position: int) -> GangView:
        kept = self._gangs.get(standing.uid)
        misfits = () if standing.well else self._said(standing)
        if kept is None or kept[0] is not standing or kept[1] != standing.edition:
            view = gang_view(standing, misfits, position)
        elif kept[2].position != position or kept[2].misfits != misfits:
            view = replace(kept[2], misfits=misfits, position=position)
        else:
            return kept[2]
        self._gangs[standing.uid] = standing, standing.edition, view
        return view

    def _node(self, node: Node, stamp: tuple[int, int]) -> NodeView:
        """``stamp``: the era of the rows, and the last change of this one."""
        kept, fleet = self._nodes.get(node.name), self._state.fleet
        where = fleet.levels, fleet.own_levels(node), fleet.pools.of.get(node.name, ())
        same = kept is not None and kept.node is node and kept.where == where
        if kept is not None and same and kept.stamp == stamp:
            return kept.view
        used = amounts(self._state.fleet.used.get(node.name, {}))
        if kept is None or not same:
            view = node_view(node, used, *where)
        elif kept.view.used != used:
            view = replace(kept.view, used=used)
        else:
            view = kept.view
        self._nodes[node.name] = _Taken(node, stamp, where, view)
        return view


_Where = tuple[tuple[Level, ...], tuple[Level, ...] | None, tuple[str, ...]]
"""All levels, a node's own where they are others, and its pools."""


class _Taken(Struct, frozen=True):
    """A node's view, and what it was made of."""

    node: Node
    stamp: tuple[int, int]
    where: _Where
    view: NodeView


def node_view(
    node: Node, used: Amounts, levels: tuple[Level, ...], own: tuple[Level, ...] | None, pools: tuple[str, ...]
) -> NodeView:
    """One node: its domains of ``levels``, as far as they are its ``own``."""
    return NodeView(
        name=node.name,
        allocatable=node.allocatable,
        used=used,
        ready=node.ready,
        cordoned=node.cordoned,
        labels=node.labels,
        domains=tuple(
            (level.name, name)
            for level, name in zip(levels, path(node, levels, own), strict=False)
            if name not in (None, ABSENT)
        ),
        pools=pools,
    )


def pool_views(state: State) -> tuple[PoolView, ...]:
    """All pools by name. O(pools × resources)."""
    fleet, pools = state.fleet, state.fleet.pools
    return tuple(
        PoolView(
            name=name,
            declared=bool(pools),
            selector=pool.selector,
            resources=pool.resources,
            topology=pool.topology,
            problem=_problem(state, pool),
            allocatable=amounts(pools.capacity[name] if pools else fleet.capacity),
        )
        for name, pool in sorted((pools.pools or {DEFAULT_POOL: Pool(name=DEFAULT_POOL)}).items())
    )


def _problem(state: State, pool: Pool) -> str:
    name, fleet = pool.topology, state.fleet
    if name in fleet.contradicting:
        return f"Topology {name} has levels in another order than those before it; the default one applies"
    if name != DEFAULT_TOPOLOGY and name not in fleet.topologies:
        return f"there is no Topology {name}; the default one applies"
    return ""


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
    declared = bool(state.fleet.pools)
    return tuple(_queue_view(branch, totals[name], declared=declared) for name, branch in sorted(branches.items()))


def _queue_view(branch: Branch, count: Count, *, declared: bool) -> QueueView:
    queue, phases = branch.queue, count.phases
    apart = (Phase.PENDING, Phase.RUNNING, Phase.FINISHED)
    implied = not declared and any(entry.pool == DEFAULT_POOL for entry in queue.entries)
    used_in = {DEFAULT_POOL: branch.usage} if implied else branch.usage_in
    return QueueView(
        name=queue.name,
        parent=queue.parent,
        leaf=branch.leaf,
        weight=queue.weight,
        priority=queue.priority,
        usage=amounts(branch.usage),
        entries=queue.entries,
        pools=tuple((pool, amounts(used)) for pool, used in sorted(used_in.items())),
        pending=amounts(count.pending),
        gangs_pending=phases.get(Phase.PENDING, 0),
        gangs_admitted=sum(number for phase, number in phases.items() if phase not in apart),
        gangs_running=phases.get(Phase.RUNNING, 0),
        misfits=branch.misfits,
    )


def positions(offers: list[Offer]) -> dict[str, int]:
    """Gang -> its place in a leaf's pending order, from 1; extras are not gangs and do not count."""
    return {offer.gang: place for place, offer in enumerate((one for one in offers if one.slot < 0), start=1)}
