"""A small cluster to tell stories with: nodes, queues and gangs in one line each, and a control loop that obeys.

``World`` keeps the cluster's side of the story (what the API server would hold) and tells the engine of every change.
``obey`` does to it what the controller does with a plan: records, releases, pins.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from queuectl.engine.engine import Engine
from queuectl.engine.view import Snapshots
from queuectl.model import changes as c
from queuectl.model.gangs import Gang, GiveBack, Member, Place, Record, Role, Shape, Stage, Toleration
from queuectl.model.plan import Admit, AdmitExtra, Assignment, Plan, Refuse, Withdraw
from queuectl.model.pools import ALL_POOLS, Pool
from queuectl.model.queues import Entry, Queue
from queuectl.model.reasons import Reason
from queuectl.model.resources import CPU, GPU, MEMORY, PODS, Amounts, amounts
from queuectl.model.settings import Settings
from queuectl.model.topology import HOSTNAME, Level, Node

ZONE, RACK, NODE = Level("zone", ("zone",)), Level("rack", ("rack",)), Level("node", (HOSTNAME,))
LEVELS = (ZONE, RACK, NODE)
GI = 2**30


def resources(gpu: int = 0, cpu: int = 0, memory: int = 0, pods: int = 0) -> Amounts:
    """A vector in everyday units: whole GPUs, whole CPUs, GiB."""
    return amounts({GPU: gpu * 1000, CPU: cpu * 1000, MEMORY: memory * GI, PODS: pods})


def shape(gpu: int = 1, cpu: int = 1, memory: int = 1, **rest: Any) -> Shape:
    """A pod of ``gpu`` GPUs."""
    return Shape(requests=resources(gpu, cpu, memory, 1), **rest)


def node(
    name: str, gpu: int = 8, *, cpu: int = 64, rack: str | None = None, zone: str | None = None, **rest: Any
) -> Node:
    """A node of 8 GPUs, 64 CPUs, 512 GiB and 110 pods."""
    labels = {HOSTNAME: name, "rack": rack, "zone": zone, **dict(rest.pop("labels", {}))}
    return Node(
        name=name,
        allocatable=resources(gpu, cpu, 512, 110),
        labels=tuple(sorted((key, value) for key, value in labels.items() if value is not None)),
        **rest,
    )


def queue(
    name: str, parent: str | None = None, *, quota: int | None = None, limit: int | None = None, **rest: Any
) -> Queue:
    """A queue with a quota and a limit of whole GPUs."""
    entries: tuple[Entry, ...] = ()
    if quota is not None or limit is not None:
        thousandths = (None if one is None else one * 1000 for one in (quota, limit))
        entries = (Entry(GPU, quota=next(thousandths), limit=next(thousandths)),)
    return Queue(name=name, uid=f"q-{name}", parent=parent, entries=rest.pop("entries", entries), **rest)


def pool(name: str, counted: tuple[str, ...] = (), topology: str = "default", **labels: str | None) -> Pool:
    """A pool of the nodes with these labels; None is no label."""
    selector = tuple(sorted((key, value) for key, value in labels.items() if value is not None))
    return Pool(name=name, selector=selector, resources=counted, topology=topology)


def entry(pool: str = ALL_POOLS, *, quota: int | None = None, limit: int | None = None, of: str = GPU) -> Entry:
    """Quota and limit of whole GPUs (or CPUs) in a pool."""
    whole = [None if one is None else one * 1000 for one in (quota, limit)]
    return Entry(of, pool, quota=whole[0], limit=whole[1])


def gang(
    name: str, size: int = 1, queue: str = "q", *, maximum: int | None = None, each: Shape | None = None, **rest: Any
) -> Gang:
    """A gang of ``size`` equal members of one GPU, known from its template."""
    roles = rest.pop("roles", (Role("", size, maximum or size, each or shape()),))
    rest.setdefault("give_back", GiveBack.EVICT)
    return Gang(uid=name, namespace="default", name=name, queue=queue, roles=roles, **rest)


def pods(of: Gang, count: int | None = None, *, start: int = 0, **rest: Any) -> list[Member]:
    """Gated members with ranks, role after role."""
    found = []
    for role in of.roles:
        for rank in range(start, role.minimum if count is None else start + count):
            name = f"{of.name}-{role.name}{rank}"
            found.append(
                Member(
                    uid=name, gang=of.uid, name=name, role=role.name, rank=rank, stage=Stage.GATED,
                    shape=rest.get("shape", role.shape or shape()), **{k: v for k, v in rest.items() if k != "shape"},
                )
            )  # fmt: skip
    return found


class World:
    """The cluster, an engine that watches it, and a clock in seconds."""

    def __init__(self, *things: object, settings: Settings | None = None, levels: tuple[Level, ...] = LEVELS) -> None:
        self.engine = Engine(settings or Settings())
        self.now = 1_000
        self.facts: dict[tuple[str, str], c.Change] = {}
        self.log: list[c.Change] = []
        self.tell(c.LevelsSeen(levels))
        self.add(*things)

    # -- telling -------------------------------------------------------------------------------------------------------

    def add(self, *things: object) -> World:
        """Nodes, queues, gangs, members, or lists of them, appear or change."""
        for thing in things:
            match thing:
                case Node():
                    self.tell(c.NodeSeen(thing))
                case Pool():
                    self.tell(c.PoolSeen(thing))
                case Queue():
                    self.tell(c.QueueSeen(thing))
                case Gang():
                    self.tell(c.GangSeen(thing))
                case Member():
                    self.tell(c.MemberSeen(thing))
                case _ if isinstance(thing, Iterable):
                    self.add(*thing)
                case _:
                    raise TypeError(thing)
        return self

    def tell(self, change: c.Change) -> None:
        """One change, to the engine and to the record of what holds now."""
        self.log.append(change)
        match change:
            case c.NodeSeen(one):
                self.facts["node", one.name] = change
            case c.NodeGone(name):
                self.facts.pop(("node", name), None)
            case c.LevelsSeen(_, topology):
                self.facts["levels", topology] = change
            case c.LevelsGone(topology):
                self.facts.pop(("levels", topology), None)
            case c.PoolSeen(one):
                self.facts["pool", one.name] = change
            case c.PoolGone(name):
                self.facts.pop(("pool", name), None)
            case c.QueueSeen(one):
                self.facts["queue", one.name] = change
            case c.QueueGone(name):
                self.facts.pop(("queue", name), None)
            case c.GangSeen(one):
                self.facts["gang", one.uid] = change
            case c.GangGone(uid):
                self.facts.pop(("gang", uid), None)
            case c.MemberSeen(one):
                self.facts["member", one.uid] = change
            case c.MemberGone(uid):
                self.facts.pop(("member", uid), None)
            case c.OccupantSeen(uid, _, _):
                self.facts["occupant", uid] = change
            case c.OccupantGone(uid):
                self.facts.pop(("occupant", uid), None)
            case _:
                pass
        self.engine.observe(change)

    def tell_gone(self, uid: str) -> None:
        """A pod is deleted."""
        self.tell(c.MemberGone(uid))

    def gang(self, uid: str) -> Gang:
        """The gang as the cluster holds it."""
        change = self.facts["gang", uid]
        assert isinstance(change, c.GangSeen)
        return change.gang

    def member(self, uid: str) -> Member:
        """The pod as the cluster holds it."""
        change = self.facts["member", uid]
        assert isinstance(change, c.MemberSeen)
        return change.member

    def members(self, gang: str) -> list[Member]:
        """The gang's pods by uid."""
        return [
            self.member(uid) for kind, uid in sorted(self.facts) if kind == "member" and self.member(uid).gang == gang
        ]

    def change(self, uid: str, **what: object) -> None:
        """A gang or a pod changes in some fields."""
        one = self.gang(uid) if ("gang", uid) in self.facts else self.member(uid)
        self.add(msgspec.structs.replace(one, **what))

    def occupy(self, uid: str, node: str, gpu: int = 0, cpu: int = 0) -> None:
        """A pod of somebody else uses a node."""
        self.tell(c.OccupantSeen(uid, node, resources(gpu, cpu, 0, 1)))

    # -- deciding and obeying ------------------------------------------------------------------------------------------

    def decide(self, after: int = 0) -> Plan:
        """The engine's plan, ``after`` seconds later, with every aggregate checked, and that its view is as if made anew."""
        self.now += after
        plan = self.engine.decide(self.now * 1000)
        self.engine._state.check()
        view = self.engine.view()
        anew = Snapshots(self.engine._state, self.engine._said)
        assert view.gangs == anew.gangs({one.uid: one.position for one in view.gangs})
        assert view.nodes == anew.nodes()
        return plan

    def obey(self, plan: Plan) -> Plan:
        """Record, then release and pin, as the controller would; the plan for further reading."""
        for action in plan.actions:
            match action:
                case Admit():
                    self.record(action)
                    for one in action.assignments:
                        if one.member is not None and self.member(one.member).stage is Stage.GATED:
                            self.change(one.member, stage=Stage.RELEASED, pinned=one.node)
                case AdmitExtra():
                    record = Record(action.round, (Place(action.slot, action.node),), action.decided_at)
                    self.change(action.member, stage=Stage.RELEASED, pinned=action.node, record=record)
                case _:
                    pass
        return plan

    def record(self, action: Admit) -> None:
        """The record is committed and seen."""
        record = Record(action.round, action.places, action.decided_at)
        if self.gang(action.gang).record != record:
            self.tell(c.RecordSeen(action.gang, record))
            self.change(action.gang, record=record, round=action.round)

    def run(self, gang: str, stage: Stage = Stage.RUNNING) -> None:
        """Every released pod of a gang comes this far, on the node it is pinned to."""
        for one in self.members(gang):
            if one.stage in (Stage.RELEASED, Stage.BOUND):
                self.change(one.uid, stage=stage, node=one.node or one.pinned)

    def start(self, *things: object) -> Plan:
        """These appear, are decided upon, and all that is admitted runs."""
        plan = self.obey(self.add(*things).decide())
        for action in plan.actions:
            if isinstance(action, Admit | AdmitExtra):
                self.run(action.gang)
        return plan

    # -- reading -------------------------------------------------------------------------------------------------------

    def used(self, node: str, resource: str = GPU) -> int:
        """Whole GPUs charged to a node."""
        one = next(view for view in self.engine.view().nodes if view.name == node)
        return dict(one.used).get(resource, 0) // 1000

    def usage(self, queue: str) -> int:
        """Whole GPUs charged to a queue."""
        one = next(view for view in self.engine.view().queues if view.name == queue)
        return dict(one.usage).get(GPU, 0) // 1000

    def usage_in(self, queue: str) -> dict[str, int]:
        """Whole GPUs charged to a queue in each pool."""
        one = next(view for view in self.engine.view().queues if view.name == queue)
        return {pool: dict(used).get(GPU, 0) // 1000 for pool, used in one.pools}

    def phase(self, gang: str) -> str:
        """The gang's phase."""
        return next(view.phase.value for view in self.engine.view().gangs if view.uid == gang)

    def why(self, gang: str) -> list[Reason]:
        """Reasons of ``explain``, dominant first."""
        return [misfit.reason for misfit in self.engine.explain(gang)]


def told(plan: Plan) -> list[str]:
    """A plan in short: ``admit g1 a=n1 b=n1``, ``extra``, ``withdraw``, ``refuse g2 OverLimit``."""
    lines = []
    for action in plan.actions:
        match action:
            case Admit():
                lines.append(" ".join(["admit", action.gang, *(_seat(one) for one in action.assignments)]))
            case AdmitExtra():
                lines.append(f"extra {action.gang} {action.slot}:{action.member}={action.node}")
            case Withdraw():
                lines.append(f"withdraw {action.gang} {action.cause}")
            case Refuse():
                lines.append(" ".join(["refuse", action.gang, *(one.reason for one in action.misfits)]))
    return lines


def _seat(one: Assignment) -> str:
    return f"{one.slot}{':' + one.member if one.member else ''}={one.node}"


def tolerate(key: str) -> Toleration:
    """A toleration of any value and effect of one key."""
    return Toleration(key=key, operator="Exists")
