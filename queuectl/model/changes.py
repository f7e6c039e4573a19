"""Everything the engine can be told. A closed union: outcomes of our own writes come back this way too, and no other."""

from __future__ import annotations

from msgspec import Struct

from queuectl.model.gangs import Gang, Member, Record
from queuectl.model.pools import Pool
from queuectl.model.queues import Queue
from queuectl.model.reasons import Misfit
from queuectl.model.resources import Amounts
from queuectl.model.topology import DEFAULT_TOPOLOGY, Level, Node


class NodeSeen(Struct, frozen=True, gc=False):
    """A node appeared or changed."""

    node: Node


class NodeGone(Struct, frozen=True, gc=False):
    """A node was deleted."""

    name: str


class LevelsSeen(Struct, frozen=True, gc=False):
    """A topology's levels, coarse to fine; the node level is always the last."""

    levels: tuple[Level, ...]
    topology: str = DEFAULT_TOPOLOGY


class LevelsGone(Struct, frozen=True, gc=False):
    """A topology was deleted."""

    topology: str


class PoolSeen(Struct, frozen=True, gc=False):
    """A pool appeared or changed."""

    pool: Pool


class PoolGone(Struct, frozen=True, gc=False):
    """A pool was deleted."""

    name: str


class QueueSeen(Struct, frozen=True, gc=False):
    """A queue appeared or changed."""

    queue: Queue


class QueueGone(Struct, frozen=True, gc=False):
    """A queue was deleted."""

    name: str


class GangSeen(Struct, frozen=True, gc=False):
    """A gang appeared, or its PodGroup or owner changed."""

    gang: Gang


class GangGone(Struct, frozen=True, gc=False):
    """A gang's PodGroup (or the pod of a group of one) was deleted: all it still held by assumption is free."""

    uid: str


class MemberSeen(Struct, frozen=True, gc=False):
    """A member's pod appeared or changed."""

    member: Member


class MemberGone(Struct, frozen=True, gc=False):
    """A member's pod no longer exists."""

    uid: str


class OccupantSeen(Struct, frozen=True, gc=False):
    """A pod that is no member of any gang sits on a node and uses it. ``requests`` include ``pods: 1``."""

    uid: str
    node: str
    requests: Amounts


class OccupantGone(Struct, frozen=True, gc=False):
    """That pod ended or was deleted."""

    uid: str


class RecordSeen(Struct, frozen=True, gc=False):
    """Our admission record was committed (the API server's own reply, ahead of the watch)."""

    gang: str
    record: Record


class WriteFailed(Struct, frozen=True, gc=False):
    """The API server refused a write of this round and nothing of the round was committed: the assumption is over.

    ``misfit`` says why; ``retry`` is true when the same admission may be tried again at once (a lost race), false when it
    should be refused until the gang changes. ``member`` names the pod when the write was that pod's alone (an extra, a
    replacement): the gang itself is not affected then.
    """

    gang: str
    round: int
    misfit: Misfit
    retry: bool = False
    member: str | None = None


Change = (
    NodeSeen
    | NodeGone
    | LevelsSeen
    | LevelsGone
    | PoolSeen
    | PoolGone
    | QueueSeen
    | QueueGone
    | GangSeen
    | GangGone
    | MemberSeen
    | MemberGone
    | OccupantSeen
    | OccupantGone
    | RecordSeen
    | WriteFailed
)
