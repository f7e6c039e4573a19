"""Our own resources, group ``queuectl.io/v1alpha1``: Queue, PodGroup, Pool, Topology. ``api/`` is generated from here.

Every rule stands once, beside its field: bounds and patterns in the annotations, rules between fields in ``rules``, with
their CEL for the API server and their Python for ``validate``. Specs refuse unknown fields; a status ignores them, so
that a controller rolled back to an older version still reads the records of the newer one.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, overload

from pydantic import Field, ValidationError

from queuectl.contract.home import GROUP
from queuectl.contract.schema import (
    AMOUNT_RULES,
    LABEL_KEY,
    Condition,
    Count,
    LabelValue,
    LevelName,
    Message,
    Metadata,
    Name,
    NodeName,
    Quantity,
    Resource,
    Rule,
    Spec,
    Status,
    Time,
    Word,
    describe,
    keyed,
)
from queuectl.contract.slots import MAX_MEMBERS, format_slots, parse_slots
from queuectl.model.pools import ALL_POOLS
from queuectl.model.queues import QueueState
from queuectl.model.resources import PODS
from queuectl.model.topology import DEFAULT_TOPOLOGY

__all__ = [
    "API_VERSION", "KINDS", "MAX_MEMBERS", "VERSION", "InvalidObject", "PodGroup", "Pool", "Queue", "Topology", "format_slots",
    "parse_slots", "placed", "validate",
]  # fmt: skip

VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

Slots = Annotated[str, Field(pattern=r"^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$", max_length=4096)]
Members = Annotated[int, Field(ge=1, le=MAX_MEMBERS)]


class InvalidObject(ValueError):
    """An object that cannot be used; the message names each field and what to do about it."""


# --- Queue ---------------------------------------------------------------------------------------------------------


class QueueResource(Spec):
    """Quota and limit of one resource in one pool. Unset is not 0."""

    name: Resource
    """The resource, as in pod requests: nvidia.com/gpu, cpu, memory."""
    pool: Annotated[str, Field(pattern=r"^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$", max_length=63)] = ALL_POOLS
    """The Pool whose nodes it counts on; "*": all nodes together. While there is no Pool, "default" is all nodes too."""
    quota: Quantity | None = None
    """What the queue is entitled to; the idle part is lent."""
    limit: Quantity | None = None
    """Never above this, borrowing included; unset means no limit of its own."""

    rules = AMOUNT_RULES


class QueueSpec(Spec):
    """What a queue is entitled to."""

    parent: Name | None = None
    """The queue above; unset: directly under the root."""
    weight: Annotated[int, Field(ge=0, le=1000)] = 1
    """Share of the surplus among siblings; 0 gets idle capacity only, last."""
    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] = 0
    """Among siblings: the higher is fed first and reclaimed last; it never changes quota."""
    resources: Annotated[list[QueueResource], keyed("name", "pool", at_most=64)] = Field(default_factory=list)
    """Quota and limit by resource."""
    state: Annotated[QueueState, Field(strict=False)] = QueueState.OPEN
    """Open admits whatever fits; Held admits nothing, and what runs goes on."""


class Amount(Status):
    """So much of one resource in one pool."""

    name: Resource
    pool: Annotated[str, Field(max_length=63)]
    amount: Quantity


class QueueCounts(Status):
    """Gangs of this queue and those below it."""

    pending: Count = 0
    admitted: Count = 0
    running: Count = 0


class QueueStatus(Status):
    """What the controller last saw of the queue; at most every 10 s. Live values come from its JSON API."""

    fence: Count = 0
    """The fence of the last writer; an older one is refused."""
    conditions: Annotated[list[Condition], keyed("type", at_most=16)] = Field(default_factory=list)
    """Active: whether the queue can be used, and if not, why."""
    allocated: Annotated[list[Amount], keyed("name", "pool", at_most=64)] = Field(default_factory=list)
    """Charged to admitted gangs."""
    pending: Annotated[list[Amount], keyed("name", "pool", at_most=64)] = Field(default_factory=list)
    """Asked for by waiting gangs."""
    counts: QueueCounts | None = None
    """Gangs of this queue and those below it."""
    observed_generation: Count = 0
    """The generation of the spec that this status is about."""


class Queue(Spec):
    """A queue for gangs of pods. Queues form a tree; only its leaves hold gangs."""

    api_version: str = API_VERSION
    kind: str = "Queue"
    metadata: Metadata
    spec: QueueSpec = QueueSpec()
    status: QueueStatus | None = None

    rules = (
        Rule(
            "!has(self.spec.parent) || self.spec.parent != self.metadata.name",
            ".spec.parent",
            "a queue cannot be its own parent; leave it out for a queue under the root",
            lambda self, _: self.spec.parent != self.metadata.name,
        ),
    )


# --- PodGroup ------------------------------------------------------------------------------------------------------


class TopologyConstraint(Spec):
    """Where members go relative to each other, by names of the Topology's levels."""

    required: LevelName | None = None
    """All in one domain of this level, or not at all."""
    preferred: LevelName | None = None
    """In as few domains of this level as possible."""


class Role(Spec):
    """Members of one kind, as leader, worker or prefill."""

    name: Name
    """As in the pods' label queuectl.io/role."""
    min_member: Annotated[int, Field(ge=0, le=MAX_MEMBERS)]
    """So many belong to the gang."""
    max_member: Members | None = None
    """Extras up to this are admitted one by one; unset: as minMember."""
    topology: TopologyConstraint | None = None
    """For this role alone, within that of the gang."""

    rules = (
        Rule(
            "!has(self.maxMember) || self.minMember <= self.maxMember",
            ".maxMember",
            "must not be below minMember",
            lambda self, _: self.max_member is None or self.min_member <= self.max_member,
        ),
        Rule(
            "has(self.maxMember) || self.minMember >= 1",
            ".minMember",
            "must be at least 1, or set maxMember for a role of extras only",
            lambda self, _: self.max_member is not None or self.min_member >= 1,
        ),
    )


class PodGroupSpec(Spec):
    """A gang: released together or not at all."""

    queue: Name
    """The leaf queue; unchangeable while the gang is placed."""
    min_member: Members | None = None
    """So many are released together; for gangs without roles."""
    max_member: Members | None = None
    """Extras up to this are admitted one by one; unset: as minMember."""
    roles: Annotated[list[Role], keyed("name", at_most=32), Field(min_length=1)] | None = None
    """Members by kind, instead of minMember and maxMember."""
    topology: TopologyConstraint | None = None
    """Where the members go relative to each other."""
    hold: bool = False
    """Do not admit; what runs goes on."""

    rules = (
        Rule(
            "has(self.roles) != has(self.minMember)",
            ".minMember",
            "set either minMember or roles, not both and not neither",
            lambda self, _: (self.roles is None) != (self.min_member is None),
        ),
        Rule(
            "!has(self.maxMember) || !has(self.roles)",
            ".maxMember",
            "not together with roles; give each role its own maxMember",
            lambda self, _: self.max_member is None or self.roles is None,
        ),
        Rule(
            "!has(self.maxMember) || !has(self.minMember) || self.minMember <= self.maxMember",
            ".maxMember",
            "must not be below minMember",
            lambda self, _: self.max_member is None or self.min_member is None or self.min_member <= self.max_member,
        ),
        Rule(
            "!has(self.roles) || self.roles.exists(r, r.minMember >= 1)",
            ".roles",
            "at least one role needs minMember of 1 or more",
            lambda self, _: self.roles is None or any(role.min_member >= 1 for role in self.roles),
        ),
    )


class Requeue(Status):
    """How often the gang was given back, and when it may start again."""

    count: Count = 0
    """Times given back without having finished."""
    not_before: Time | None = None
    """Not placed again before this time."""
    reason: Word = ""
    """Why it was given back last."""
    suspended_by_us: bool = False
    """Its owner was suspended when it was admitted, so we resume it."""
    requested: Annotated[str, Field(max_length=64)] = ""
    """The last annotation queuectl.io/requeue that was acted on."""


class Assignment(Status):
    """Slots on one node."""

    node: NodeName
    slots: Slots
    """Slot numbers as ranges: 0-3,7. Slots count through the roles in order, each by its maxMember."""


class Admission(Status):
    """The recorded decision; written once per round."""

    round: Annotated[int, Field(ge=1)]
    """Which admission of the gang this is."""
    fence: Count
    """The fence of the controller that decided."""
    decided_at: Time
    """When the engine decided it."""
    assignments: Annotated[list[Assignment], keyed("node", at_most=10_000)]


class Counts(Status):
    """Members as of the last write; live ones come from the controller's JSON API."""

    members: Count = 0
    released: Count = 0
    bound: Count = 0
    running: Count = 0
    succeeded: Count = 0
    failed: Count = 0


class Blocker(Status):
    """What stands in the way first."""

    reason: Word
    message: Message = ""


class PodGroupStatus(Status):
    """Everything a restart of the controller needs; written on change only."""

    fence: Count = 0
    """The fence of the last writer; an older one is refused."""
    conditions: Annotated[list[Condition], keyed("type", at_most=16)] = Field(default_factory=list)
    """QuotaReserved, Placed, Released, Running, Evicted, Deactivated, Finished."""
    queued_at: Time | None = None
    """Since when it waits; kept when it is given back."""
    started_at: Time | None = None
    """When all members of the last round had started."""
    requeue: Requeue | None = None
    """How often the gang was given back, and when it may start again."""
    admission: Admission | None = None
    """The recorded decision, while it holds; written once per round."""
    counts: Counts | None = None
    """Members as of the last write; live ones come from the controller's JSON API."""
    blocker: Blocker | None = None
    """What stands in the way first."""
    round: Count = 0
    """The last round used; each admission takes the next."""
    observed_generation: Count = 0
    """The generation of the spec that this status is about."""


class PodGroup(Spec):
    """A gang of pods: they are released together or not at all."""

    api_version: str = API_VERSION
    kind: str = "PodGroup"
    metadata: Metadata
    spec: PodGroupSpec
    status: PodGroupStatus | None = None

    rules = (
        Rule(
            "self.spec.queue == oldSelf.spec.queue || !has(oldSelf.status) || !has(oldSelf.status.conditions)"
            " || !oldSelf.status.conditions.exists(c, c.type == 'Placed' && c.status == 'True')",
            ".spec.queue",
            "cannot change while the gang is placed; hold or requeue it first",
            lambda self, old: old is None or self.spec.queue == old.spec.queue or not placed(old),
        ),
    )


def placed(group: PodGroup) -> bool:
    """Whether its condition Placed is true: an admission is recorded."""
    conditions = group.status.conditions if group.status else []
    return any(one.type == "Placed" and one.status == "True" for one in conditions)


# --- Pool ----------------------------------------------------------------------------------------------------------


class PoolSpec(Spec):
    """Which nodes the pool has, and what is shared there."""

    node_selector: Annotated[dict[str, LabelValue], Field(max_length=16)] = Field(default_factory=dict)
    """Labels that its nodes carry, all of them; empty: every node. A node may belong to several pools, or to none."""
    resources: Annotated[
        list[Resource], Field(max_length=64, json_schema_extra={"x-kubernetes-list-type": "set"})
    ] = Field(default_factory=list)  # fmt: skip
    """What plays a part in shares and quotas there; empty: devices, cpu and memory. A limit holds for any resource."""
    topology: Name = DEFAULT_TOPOLOGY
    """The Topology of its nodes. Where a node is in several pools, the first by name counts whose is not "default"."""

    rules = (
        Rule(
            f"!has(self.nodeSelector) || self.nodeSelector.all(key, key.matches('{LABEL_KEY}'))",
            ".nodeSelector",
            "has a key that no label can have; write it as in the nodes' labels",
            lambda self, _: all(re.fullmatch(LABEL_KEY, key) for key in self.node_selector),
        ),
        Rule(
            f"!has(self.resources) || !self.resources.exists(one, one == '{PODS}')",
            ".resources",
            f"{PODS} are never shared; leave them out",
            lambda self, _: PODS not in self.resources,
        ),
        Rule(
            None,
            ".resources",
            "names a resource twice",
            lambda self, _: len(set(self.resources)) == len(self.resources),
        ),
    )


class Pool(Spec):
    """A named set of nodes: queues have quotas and limits of their own there, and a gang is placed inside one pool."""

    api_version: str = API_VERSION
    kind: str = "Pool"
    metadata: Metadata
    spec: PoolSpec = PoolSpec()


# --- Topology ------------------------------------------------------------------------------------------------------


class TopologyLevel(Spec):
    """Nodes with the same value of the first key that they carry share a domain, within the level above."""

    name: LevelName
    """How gangs name this level: zone, rack, node."""
    keys: Annotated[
        list[Annotated[str, Field(pattern=LABEL_KEY, max_length=253)]],
        Field(min_length=1, max_length=8, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ]
    """Node labels, alternatives in order of preference (providers differ)."""

    rules = (Rule(None, ".keys", "names a key twice", lambda self, _: len(set(self.keys)) == len(self.keys)),)


class TopologySpec(Spec):
    """The levels of the cluster."""

    levels: Annotated[list[TopologyLevel], keyed("name", at_most=16), Field(min_length=1)]
    """From coarse to fine."""

    rules = (
        Rule(
            "!self.levels.exists(l, l.name == 'node') || self.levels[size(self.levels) - 1].name == 'node'",
            ".levels",
            "go from coarse to fine: the level node must be the last",
            lambda self, _: all(level.name != "node" for level in self.levels[:-1]),
        ),
    )


class Topology(Spec):
    """How nodes are near each other. "default" applies where no Pool names another; without any the only level is the node."""

    api_version: str = API_VERSION
    kind: str = "Topology"
    metadata: Metadata
    spec: TopologySpec


KINDS: Final[dict[str, type[Queue | PodGroup | Pool | Topology]]] = {
    "Queue": Queue,
    "PodGroup": PodGroup,
    "Pool": Pool,
    "Topology": Topology,
}
Wire = dict[str, Any]


@overload
def validate(kind: Literal["Queue"], obj: Wire, old: Wire | None = None) -> Queue: ...
@overload
def validate(kind: Literal["PodGroup"], obj: Wire, old: Wire | None = None) -> PodGroup: ...
@overload
def validate(kind: Literal["Pool"], obj: Wire, old: Wire | None = None) -> Pool: ...
@overload
def validate(kind: Literal["Topology"], obj: Wire, old: Wire | None = None) -> Topology: ...
@overload
def validate(kind: str, obj: Wire, old: Wire | None = None) -> Queue | PodGroup | Pool | Topology: ...
def validate(kind: str, obj: Wire, old: Wire | None = None) -> Queue | PodGroup | Pool | Topology:
    """The object as a model. ``old`` is what it replaces, for rules about changes.

    Raises KeyError for a kind that is not ours, and InvalidObject with one clause per bad field, each with its path:
    ``spec.weight: …``.
    """
    model = KINDS[kind]
    try:
        before = model.model_validate(old) if old is not None else None
        return model.model_validate(obj, context={"old": before} if before is not None else None)
    except ValidationError as error:
        raise InvalidObject("; ".join(describe(one) for one in error.errors())) from None
