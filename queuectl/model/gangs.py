"""Gangs, their slots, the pods that fill them, and the shapes that decide where a pod may run.

A *gang* is released together or not at all. It is a list of *slots* (role, rank), known before its pods exist when its
owner has a template; *members* are the pods that fill slots. Two pods of equal *shape* are interchangeable for placement.
"""

from __future__ import annotations

import enum

from msgspec import Struct

from queuectl.model.reasons import Misfit
from queuectl.model.resources import Amounts


class Requirement(Struct, frozen=True, order=True, gc=False):
    """One node selector requirement; ``operator`` is In, NotIn, Exists, DoesNotExist, Gt or Lt as in core/v1."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Term(Struct, frozen=True, order=True, gc=False):
    """One OR-term of required node affinity: all label expressions and all fields (metadata.name) must hold."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


class Toleration(Struct, frozen=True, order=True, gc=False):
    """A pod's toleration; empty ``key`` with operator Exists tolerates everything, empty ``effect`` every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Shape(Struct, frozen=True, gc=False):
    """All that placement may know of a pod. Canonical (sorted), so that equal pods have equal shapes and hash alike.

    ``requests`` include ``pods: 1``. ``affinity`` is None when there is no required node affinity; an empty tuple
    matches no node. ``unmodelled`` names required constraints that the engine does not model: such a pod is refused
    with ``Unmodelled``, never guessed.
    """

    requests: Amounts
    selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[Term, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    unmodelled: tuple[str, ...] = ()


class Role(Struct, frozen=True, gc=False):
    """Slots of one kind inside a gang: ``minimum`` belong to the gang, those up to ``maximum`` are extras.

    ``shape`` is the owner's template; None when only the members themselves can tell. ``required`` and ``preferred``
    name topology levels for this role alone. ``gates`` are foreign scheduling gates that the template puts on every pod
    of it.
    """

    name: str
    minimum: int
    maximum: int
    shape: Shape | None = None
    required: str | None = None
    preferred: str | None = None
    gates: tuple[str, ...] = ()


class Place(Struct, frozen=True, gc=False):
    """One slot on one node. ``slot`` counts through the roles in order: role offset (by maximum) + rank."""

    slot: int
    node: str


class Record(Struct, frozen=True, gc=False):
    """A persisted admission: the ``round``-th of this gang, its places (sorted by slot), and when it was decided (ms)."""

    round: int
    places: tuple[Place, ...]
    decided_at: int = 0


class GiveBack(enum.StrEnum):
    """How a gang's owner lets go of its pods (contract/owners.py): by suspend, by eviction, or not at all."""

    SUSPEND = "suspend"
    EVICT = "evict"
    NONE = "none"


class Gang(Struct, frozen=True, kw_only=True):
    """A gang as the cluster describes it. Times are integer milliseconds since the epoch.

    ``blocked`` holds what the wire already says against it (held, suspended, invalid). ``record`` is the admission
    in its status, None when there is none. ``evicted`` is true while it is being given back. ``requested`` changes when
    somebody asks for a requeue by hand; ``handled`` is the last value of it that was acted on, as the status tells it
    after a restart. ``lone`` is a group of one without a PodGroup object. ``rolling`` is true where a member that succeeds
    leaves its slot to the next one (more completions than slots).
    """

    uid: str
    namespace: str
    name: str
    queue: str
    roles: tuple[Role, ...]
    required: str | None = None
    preferred: str | None = None
    priority: int = 0
    created: int = 0
    queued_at: int = 0
    round: int = 0
    record: Record | None = None
    evicted: bool = False
    finished: bool = False
    requeues: int = 0
    not_before: int = 0
    requested: str = ""
    handled: str = ""
    give_back: GiveBack = GiveBack.NONE
    resumes: bool = False
    best_effort: bool = False
    lone: bool = False
    rolling: bool = False
    blocked: tuple[Misfit, ...] = ()

    @property
    def minimum(self) -> int:
        """Slots that are released together."""
        return sum(role.minimum for role in self.roles)

    @property
    def maximum(self) -> int:
        """All slots, extras included."""
        return sum(role.maximum for role in self.roles)


class Stage(enum.IntEnum):
    """How far a member's pod has come. Ordered: later stages hold their node more firmly, the last two have let go."""

    GATED = 0  # our gate is still there
    RELEASED = 1  # gate gone, no node yet
    BOUND = 2  # has a node
    RUNNING = 3  # all containers started
    SUCCEEDED = 4
    FAILED = 5


class Member(Struct, frozen=True, kw_only=True, gc=False):
    """A pod of a gang. ``rank`` is None where its owner does not number its pods; ``node`` is set from BOUND on.

    ``pinned`` is the node named by our pin of a released pod. ``record`` is the admission carried by the pod itself
    (groups of one, extras, replacements). ``foreign_gates`` are scheduling gates that are not ours. ``leaving`` is true
    once deletion has begun. ``pinnable`` is false when its own affinity cannot be tightened to one node. ``trouble`` is why
    a released pod does not come further, in the scheduler's or kubelet's own words.
    """

    uid: str
    gang: str
    name: str
    shape: Shape
    stage: Stage
    role: str = ""
    rank: int | None = None
    node: str | None = None
    pinned: str | None = None
    record: Record | None = None
    foreign_gates: tuple[str, ...] = ()
    leaving: bool = False
    created: int = 0
    pinnable: bool = True
    trouble: str = ""
