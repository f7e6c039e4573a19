"""The JSON API's objects. Quantities are Kubernetes text, times RFC 3339, names as in the cluster; absent values are null.

They look like Kubernetes objects (``kind``, ``metadata``, ``items``), so that the same jq lines and habits work, but they
are views: live, read-only, and gone with the controller. What must last is in the resources' own status.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec
from msgspec import UNSET, Struct, UnsetType

from queuectl.model.pools import ALL_POOLS
from queuectl.model.reasons import (
    CountEvidence,
    LevelEvidence,
    Misfit,
    NodesEvidence,
    QueueEvidence,
    Reason,
    TextEvidence,
    remedy,
    sentence,
)
from queuectl.model.resources import show


class Object(Struct, rename="camel", kw_only=True):
    """Fields are camelCase on the wire."""


class Single(Object, kw_only=True):
    """What can be asked for by name: alone, it tells when it was so, and whether a leader says it, as lists do."""

    as_of: str | UnsetType = UNSET
    leading: bool | UnsetType = UNSET


class Metadata(Object, kw_only=True):
    """``namespace`` is empty for what has none."""

    name: str
    namespace: str = ""
    uid: str = ""


class Owner(Object, kw_only=True):
    """What made a gang's pods."""

    kind: str
    name: str


class Where(Object, kw_only=True):
    """Where a blocker sits: a queue, a domain of a topology level, the nodes, or the gang itself.

    ``pool`` is the one it counts in, "-" the nodes of none; absent where it counts on all nodes.
    """

    type: str
    name: str
    level: str | UnsetType = UNSET
    pool: str | UnsetType = UNSET


class Short(Object, kw_only=True):
    """The resource that gives out first in the best domain."""

    resource: str
    per_pod: str
    free: str


class Blocker(Object, kw_only=True):
    """One reason why a gang waits. ``need`` and ``have`` count what ``of`` names; null where there is nothing to count."""

    reason: str
    sentence: str
    remedy: str
    where: Where
    need: str | None = None
    have: str | None = None
    of: str | None = None
    limit: str | UnsetType = UNSET
    used: str | UnsetType = UNSET
    ever: str | UnsetType = UNSET
    domains: int | UnsetType = UNSET
    required: bool | UnsetType = UNSET
    short: Short | UnsetType = UNSET
    what: str | UnsetType = UNSET


class QueueResource(Object, kw_only=True):
    """One resource of a queue: in use by it and all below, entitled to, never more than, asked for by those that wait."""

    name: str
    used: str
    quota: str | None
    limit: str | None
    pending: str


class QueuePool(Object, kw_only=True):
    """One resource of a queue in one pool: in use there, entitled to there, never more than that there."""

    pool: str
    name: str
    used: str
    quota: str | None
    limit: str | None


class QueueCounts(Object, kw_only=True):
    """Gangs of this queue and those below it, each counted once."""

    pending: int
    admitted: int
    running: int


class Queue(Single, kw_only=True):
    """A queue. ``path`` goes from the root's child down to this queue; ``blockers`` say why it admits nothing.

    ``resources`` count on all nodes; ``pools`` has what of them is on the nodes of each pool, which may overlap.
    """

    kind: str = "Queue"
    metadata: Metadata
    parent: str | None
    path: list[str]
    leaf: bool
    weight: int
    priority: int
    state: str
    counts: QueueCounts
    resources: list[QueueResource]
    pools: list[QueuePool]
    blockers: list[Blocker]


class GangCounts(Object, kw_only=True):
    """Members by how far they have come; each stage includes those after it, but for the last."""

    members: int
    released: int
    bound: int
    running: int
    succeeded: int


class Share(Object, kw_only=True):
    """So many pods of a gang on a node, or of a node's gang."""

    name: str
    pods: int
    namespace: str | UnsetType = UNSET


class Role(Object, kw_only=True):
    """Members of one kind, and what each asks for; null when no member or template tells yet."""

    name: str
    min_member: int
    max_member: int
    requests: dict[str, str] | None
    required: str | None
    preferred: str | None


class Pod(Object, kw_only=True):
    """A member."""

    name: str
    role: str
    rank: int | None
    stage: str
    node: str | None
    gates: list[str]
    trouble: str


class Gang(Single, kw_only=True):
    """A gang. ``reason`` and ``message`` are the first of its blockers; ``pods`` are given for a single gang only.

    ``need`` is what ``min_member`` pods ask for together; null while no template or member tells.
    """

    kind: str = "Gang"
    metadata: Metadata
    owner: Owner | None
    single: bool
    queue: str
    phase: str
    reason: str
    message: str
    position: int | None
    priority: int
    min_member: int
    max_member: int
    counts: GangCounts
    nodes: list[Share]
    need: dict[str, str] | None
    required: str | None
    preferred: str | None
    created_at: str | None
    queued_at: str | None
    admitted_at: str | None
    round: int
    requeues: int
    roles: list[Role]
    pods: list[Pod] | UnsetType = UNSET


class Domain(Object, kw_only=True):
    """A domain that a node lies in."""

    level: str
    name: str


class NodeResource(Object, kw_only=True):
    """One resource of a node. ``free`` is never negative."""

    name: str
    allocatable: str
    used: str
    free: str


class Node(Single, kw_only=True):
    """A node as placement sees it. ``gangs`` are given for a single node only.

    ``status`` is Ready, Cordoned, NotReady, or both of the latter; only Ready ones are ``usable``.
    """

    kind: str = "Node"
    metadata: Metadata
    usable: bool
    status: str
    domains: list[Domain]
    pools: list[str]
    resources: list[NodeResource]
    gangs: list[Share] | UnsetType = UNSET


class QueueShare(Object, kw_only=True):
    """One resource of one queue in a pool, as in ``QueuePool``."""

    queue: str
    name: str
    used: str
    quota: str | None
    limit: str | None


class Pool(Single, kw_only=True):
    """A pool. ``used`` of its resources is by all pods on its nodes; ``queues`` are given for a single pool only.

    ``declared`` is false for the one of all nodes that there is while nobody has declared any. ``problem`` says why the
    default topology applies instead of its own; empty where its own does.
    """

    kind: str = "Pool"
    metadata: Metadata
    declared: bool
    selector: dict[str, str]
    counted: list[str]
    topology: str
    problem: str
    nodes: int
    usable: int
    resources: list[NodeResource]
    queues: list[QueueShare] | UnsetType = UNSET


class Explanation(Object, kw_only=True):
    """Why a gang waits, or where it runs. ``path`` goes from its leaf queue up."""

    kind: str = "Explanation"
    as_of: str
    leading: bool
    metadata: Metadata
    owner: Owner | None
    queue: str
    phase: str
    summary: str
    position: int | None
    waiting: int
    queued_at: str | None
    admitted_at: str | None
    counts: GangCounts
    min_member: int
    nodes: list[Share]
    path: list[Queue]
    blockers: list[Blocker]


class Part(Object, kw_only=True):
    """What one gang holds of a node: ``label`` is the name that people know it by, its owner's where it has one."""

    namespace: str
    name: str
    label: str
    queue: str
    pods: int
    amount: str


class Host(Object, kw_only=True):
    """A node in the occupancy of one resource. ``other`` is what is used there by pods that are no gang's."""

    name: str
    usable: bool
    status: str
    allocatable: str
    used: str
    free: str
    other: str
    parts: list[Part]


class Block(Object, kw_only=True):
    """The nodes that share all their domains, coarse to fine; ``domains`` is empty for those outside every level."""

    domains: list[Domain]
    allocatable: str
    used: str
    free: str
    nodes: list[Host]


class Occupancy(Single, kw_only=True):
    """Who holds how much of one resource where. ``free`` counts usable nodes only, ``unusable`` is free on the others."""

    kind: str = "Occupancy"
    resource: str
    resources: list[str]
    allocatable: str
    used: str
    free: str
    unusable: str
    blocks: list[Block]


class Controller(Object, kw_only=True):
    """The controller itself. ``revision`` grows when lists may have changed; ``behind`` is seconds without events."""

    kind: str = "Controller"
    as_of: str
    revision: int
    leading: bool
    role: str
    leader: str
    ready: bool
    missing: list[str]
    behind: int


class Listing(Object, kw_only=True):
    """Many of one kind, at one moment. Only a leader decides: elsewhere positions and reasons may be old or missing."""

    kind: str
    as_of: str
    leading: bool
    items: list[Queue] | list[Node] | list[Pool]


class GangListing(Object, kw_only=True):
    """Gangs that were asked for: ``total`` of them, of which ``items`` are the first; ``reasons`` count those that wait."""

    kind: str = "GangList"
    as_of: str
    leading: bool
    total: int
    reasons: dict[str, int]
    items: list[Gang]


class Details(Object, kw_only=True):
    """What may help after a 404."""

    nearest: list[str]


class Status(Object, kw_only=True):
    """An error, in the form of the Kubernetes API."""

    kind: str = "Status"
    api_version: str = "v1"
    status: str = "Failure"
    code: int
    reason: str
    message: str
    details: Details | UnsetType = UNSET


_encoder = msgspec.json.Encoder()


def encode(obj: Struct) -> bytes:
    """An object, or a part of one, as JSON."""
    return _encoder.encode(obj)


def encoded(obj: Struct) -> bytes:
    """A whole answer, with a line break for those who read it in a terminal."""
    return encode(obj) + b"\n"


@lru_cache(maxsize=4096)  # gangs of one queue and shape share their misfits
def blocker(misfit: Misfit) -> Blocker:
    """A misfit, put into words and typed fields. Shared between answers: nobody changes it."""
    reason, it = misfit.reason, misfit.evidence
    found = Blocker(
        reason=reason.value, sentence=sentence(misfit), remedy=remedy(misfit), where=Where(type="gang", name="")
    )
    match it:
        case QueueEvidence():
            found.where = Where(type="queue", name=it.queue, pool=it.pool if it.pool != ALL_POOLS else UNSET)
            if it.resource:
                found.need, found.have, found.of = show(it.resource, it.need), show(it.resource, it.have), it.resource
                found.limit, found.used = show(it.resource, it.limit), show(it.resource, it.usage)
            if it.detail:
                found.what = it.detail
        case LevelEvidence():
            pool = it.pool or UNSET
            found.where = Where(type="cluster", name="", pool=pool)
            if it.level:
                found.where = Where(type="domain", name=it.best, level=it.level, pool=pool)
            found.need, found.have, found.of = str(it.need), str(it.have), "pods"
            found.ever, found.domains, found.required = str(it.ever), it.domains, it.required
            if it.resource:
                needed, free = show(it.resource, it.short_need), show(it.resource, it.short_have)
                found.short = Short(resource=it.resource, per_pod=needed, free=free)
        case NodesEvidence():
            found.where = Where(type="nodes", name="")
            found.have, found.of, found.what = str(it.total - it.nodes), "nodes", it.what
        case CountEvidence() if reason is not Reason.BACKOFF:
            found.need, found.have, found.of = str(it.need), str(it.have), it.what or "members"
        case TextEvidence():
            found.what = it.what
    return found
