"""Why a gang waits: one closed enum of reasons, each with its evidence, and the one place that puts them into words.

The engine makes values; a ``Misfit`` flows unchanged to status, events, command line and dashboard. ``sentence`` and
``remedy`` are called only at those edges.
"""

from __future__ import annotations

import enum

from msgspec import Struct

from queuectl.model.pools import ALL_POOLS, OUTSIDE
from queuectl.model.resources import show


class Reason(enum.StrEnum):
    """Every reason there is. ``api/`` publishes the list; a test fails when they differ."""

    # queue
    QUEUE_MISSING = "QueueMissing"
    QUEUE_NOT_LEAF = "QueueNotLeaf"
    QUEUE_HELD = "QueueHeld"
    QUEUE_INACTIVE = "QueueInactive"
    OVER_LIMIT = "OverLimit"
    BEHIND_IN_QUEUE = "BehindInQueue"
    # gang
    WAITING_FOR_MEMBERS = "WaitingForMembers"
    POD_GROUP_MISSING = "PodGroupMissing"
    UNKNOWN_LEVEL = "UnknownLevel"
    FOREIGN_GATE = "ForeignGate"
    HELD = "Held"
    SUSPENDED = "Suspended"
    INVALID_REQUEST = "InvalidRequest"
    PATCH_REJECTED = "PatchRejected"
    UNMODELLED = "Unmodelled"
    BACKOFF = "Backoff"
    DEACTIVATED = "Deactivated"
    # fit
    NO_CAPACITY = "NoCapacity"
    NO_DOMAIN_FITS = "NoDomainFits"
    FRAGMENTED = "Fragmented"
    NODE_SELECTOR_MISMATCH = "NodeSelectorMismatch"
    TAINT_NOT_TOLERATED = "TaintNotTolerated"
    NODE_UNHEALTHY = "NodeUnhealthy"
    NEVER_FITS = "NeverFits"
    SEARCH_BUDGET = "SearchBudget"
    # after release
    NOT_BINDING = "NotBinding"
    NOT_STARTING = "NotStarting"
    TORN = "Torn"
    ROLLED_BACK = "RolledBack"
    BYPASSED_GATE = "BypassedGate"
    NOT_REQUEUEABLE = "NotRequeueable"
    VICTIM_PROTECTED = "VictimProtected"


class QueueEvidence(Struct, frozen=True):
    """A queue on the gang's path stands in the way. Amounts are in the resource's integer unit.

    For OverLimit: ``need`` more of ``resource`` in ``pool`` than ``have`` = limit − usage leaves. For the others only
    ``queue``, and ``detail`` (the missing parent, the cycle, the number of gangs ahead).
    """

    queue: str
    resource: str = ""
    need: int = 0
    have: int = 0
    limit: int = 0
    usage: int = 0
    detail: str = ""
    pool: str = ALL_POOLS


class LevelEvidence(Struct, frozen=True):
    """One topology level at which the gang does not fit.

    ``need`` pods had to fit into one domain of ``level``; the best of ``domains`` domains, ``best``, has room for
    ``have`` now, and ``ever`` when empty. ``resource`` is the one that is short there, with ``short_need`` a pod and
    ``short_have`` free in the whole best domain. ``required`` is true for the level that the gang itself demands. ``pool``
    is the one that was looked at, ``OUTSIDE`` the nodes of none, "" where pools play no part.
    """

    level: str
    domains: int
    best: str
    need: int
    have: int
    ever: int
    required: bool = False
    resource: str = ""
    short_need: int = 0
    short_have: int = 0
    pool: str = ""


class NodesEvidence(Struct, frozen=True):
    """``nodes`` of ``total`` nodes are out for one cause (``what``: the taint, the selector term, the condition)."""

    nodes: int
    total: int
    what: str


class CountEvidence(Struct, frozen=True):
    """``need`` of something, ``have`` of it, named by ``what`` (members, a time in ms, requeues)."""

    need: int
    have: int
    what: str = ""


class TextEvidence(Struct, frozen=True):
    """``what`` in the cluster's own words (an API message, the name of a gate, an unmodelled constraint)."""

    what: str


Evidence = QueueEvidence | LevelEvidence | NodesEvidence | CountEvidence | TextEvidence


class Misfit(Struct, frozen=True):
    """One reason with its evidence. Equal misfits are equal values, so a set of them tells whether anything changed."""

    reason: Reason
    evidence: Evidence


# The dominant blocker is the one that must go first: what is wrong with the gang itself, then with its queue, then fit.
_RANK = {reason: number for number, reason in enumerate(
    [
        Reason.INVALID_REQUEST, Reason.POD_GROUP_MISSING, Reason.DEACTIVATED, Reason.UNKNOWN_LEVEL, Reason.UNMODELLED,
        Reason.PATCH_REJECTED, Reason.HELD, Reason.SUSPENDED, Reason.FOREIGN_GATE, Reason.WAITING_FOR_MEMBERS,
        Reason.QUEUE_MISSING, Reason.QUEUE_INACTIVE, Reason.QUEUE_NOT_LEAF, Reason.QUEUE_HELD, Reason.NEVER_FITS,
        Reason.BACKOFF, Reason.OVER_LIMIT, Reason.NO_CAPACITY, Reason.NO_DOMAIN_FITS, Reason.FRAGMENTED,
    ]
)}  # fmt: skip


def by_dominance(misfits: tuple[Misfit, ...]) -> tuple[Misfit, ...]:
    """The misfits, dominant first; ties keep the engine's order (required level first, then coarse to fine)."""
    return tuple(sorted(misfits, key=lambda misfit: _RANK.get(misfit.reason, len(_RANK))))


def sentence(misfit: Misfit) -> str:
    """One sentence for people: what stands in the way, with need, have and where."""
    reason, it = misfit.reason, misfit.evidence
    match it:
        case QueueEvidence():
            return _queue_sentence(reason, it)
        case LevelEvidence():
            return _level_sentence(reason, it)
        case NodesEvidence():
            kind = {
                Reason.NODE_SELECTOR_MISMATCH: "do not match",
                Reason.TAINT_NOT_TOLERATED: "have a taint that is not tolerated:",
                Reason.NODE_UNHEALTHY: "cannot be used now:",
            }.get(reason, "are out:")
            return f"{it.nodes} of {it.total} nodes {kind} {it.what}"
        case CountEvidence():
            if reason is Reason.BACKOFF:
                return f"given back {it.have} times; next try at {clock(it.need)}"
            if reason is Reason.DEACTIVATED:
                return f"given back {it.have} times, at most {it.need} are tried"
            return f"has {it.have} of {it.need} {it.what or 'members'}"
        case TextEvidence():
            prefix = _TEXT.get(reason)
            return f"{prefix}: {it.what}" if prefix else it.what


_TEXT = {
    Reason.POD_GROUP_MISSING: "no PodGroup of that name",
    Reason.UNKNOWN_LEVEL: "no topology level of that name",
    Reason.FOREIGN_GATE: "another scheduling gate is still there",
    Reason.INVALID_REQUEST: "the object cannot be used",
    Reason.PATCH_REJECTED: "the API server would refuse the release",
    Reason.UNMODELLED: "a required constraint is not modelled",
    Reason.NOT_BINDING: "released but not bound",
    Reason.NOT_STARTING: "bound but not started",
    Reason.TORN: "not all of the gang could be placed",
    Reason.BYPASSED_GATE: "started without our admission",
    Reason.NOT_REQUEUEABLE: "nobody makes its pods again, so it cannot be given back",
    Reason.VICTIM_PROTECTED: "to be given back, but protected from eviction",
    Reason.HELD: "held",
    Reason.SUSPENDED: "suspended by its user",
    Reason.ROLLED_BACK: "given back",
}


def _queue_sentence(reason: Reason, it: QueueEvidence) -> str:
    match reason:
        case Reason.QUEUE_MISSING:
            return f"queue {it.queue} does not exist"
        case Reason.QUEUE_NOT_LEAF:
            return f"queue {it.queue} has child queues; only leaf queues hold gangs"
        case Reason.QUEUE_HELD:
            return f"queue {it.queue} is held"
        case Reason.QUEUE_INACTIVE:
            return f"queue {it.queue} is inactive: {it.detail}"
        case Reason.OVER_LIMIT:
            need, have = show(it.resource, it.need), show(it.resource, it.have)
            limit, usage = show(it.resource, it.limit), show(it.resource, it.usage)
            pool = "" if it.pool == ALL_POOLS else f" in pool {it.pool}"
            return (
                f"queue {it.queue}{pool}: needs {need} {it.resource}, {have} left of its limit {limit} ({usage} in use)"
            )
        case Reason.BEHIND_IN_QUEUE:
            return f"not yet its turn in queue {it.queue}" + (f": {it.detail}" if it.detail else "")
        case _:
            return f"queue {it.queue}: {it.detail}"


def _level_sentence(reason: Reason, it: LevelEvidence) -> str:
    domain = where(it) if it.level == "" else f"one {it.level}{f' of {where(it)}' if it.pool else ''}"
    short = ""
    if it.resource:
        need, have = show(it.resource, it.short_need), show(it.resource, it.short_have)
        short = f"; short of {it.resource}: {need} a pod, {have} free there"
    best = f": the best, {it.best}," if it.best and it.level else ", which"
    if reason is Reason.NEVER_FITS:
        even = best.replace(", which", "; even empty, it").replace(": the best", "; even empty, the best")
        return f"{_pods(it.need)} can never fit into {domain}{even} has room for {it.ever}"
    count = f" ({it.domains} looked at)" if it.domains > 1 else ""
    return f"{_pods(it.need)} must fit into {domain}{count}{best} has room for {it.have}{short}"


def where(it: LevelEvidence) -> str:
    """The nodes that were looked at, in words."""
    if not it.pool:
        return "the cluster"
    return "the cluster outside all pools" if it.pool == OUTSIDE else f"pool {it.pool}"


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def remedy(misfit: Misfit) -> str:
    """What would free it, as an instruction to the reader; empty when only waiting helps."""
    it = misfit.evidence
    match misfit.reason:
        case Reason.NEVER_FITS if isinstance(it, LevelEvidence):
            return f"ask for at most {_pods(it.ever)}, or for less per pod, or for a coarser level"
        case Reason.NO_DOMAIN_FITS | Reason.NO_CAPACITY | Reason.FRAGMENTED if isinstance(it, LevelEvidence):
            place = it.best if it.level and it.best else where(it)
            more = it.need - it.have
            return f"it can start when {more} more such pod{' fits' if more == 1 else 's fit'} into {place}"
        case Reason.QUEUE_INACTIVE if isinstance(it, QueueEvidence) and it.pool != ALL_POOLS:
            return f"create the Pool {it.pool}, or correct its name in the resources of {it.queue}"
        case Reason.OVER_LIMIT if isinstance(it, QueueEvidence):
            pool = "" if it.pool == ALL_POOLS else f" in pool {it.pool}"
            amount = show(it.resource, it.need - it.have)
            return (
                f"raise the limit of {it.queue}{pool} or wait until {amount} are given back{' there' if pool else ''}"
            )
        case reason:
            return _REMEDY.get(reason, "")


_REMEDY = {
    Reason.QUEUE_MISSING: "create the queue, or correct the label queuectl.io/queue",
    Reason.QUEUE_NOT_LEAF: "name one of its leaf queues",
    Reason.QUEUE_HELD: "set the queue's state to Open",
    Reason.QUEUE_INACTIVE: "correct the queue's parent",
    Reason.WAITING_FOR_MEMBERS: "create the missing members, or lower minMember",
    Reason.POD_GROUP_MISSING: "create the PodGroup, or remove the label queuectl.io/pod-group",
    Reason.UNKNOWN_LEVEL: "name a level of the Topology 'default', or of one that a Pool names",
    Reason.FOREIGN_GATE: "its owner must remove that gate",
    Reason.HELD: "remove the hold",
    Reason.SUSPENDED: "resume the owner",
    Reason.INVALID_REQUEST: "correct the object",
    Reason.PATCH_REJECTED: "correct what the message names, then `queuectl requeue gang`",
    Reason.UNMODELLED: 'remove the constraint, or annotate queuectl.io/best-effort: "true"',
    Reason.DEACTIVATED: "correct the cause, then `queuectl requeue gang`",
    Reason.NODE_SELECTOR_MISMATCH: "correct the selector, or label nodes",
    Reason.TAINT_NOT_TOLERATED: "add a toleration, or remove the taint",
    Reason.NODE_UNHEALTHY: "uncordon or repair the nodes",
    Reason.TORN: "make room for these pods; else the gang is given back, if its owner can take it back",
    Reason.NOT_REQUEUEABLE: (
        'delete the pods by hand, or annotate the PodGroup (a pod on its own: the pod) queuectl.io/preemptible: "true", '
        "which accepts that they are deleted"
    ),
    Reason.VICTIM_PROTECTED: "raise what the budget allows, or scale the owner to 0 and back",
}


def clock(at: int) -> str:
    """UTC time of day of ``at`` (ms since the epoch), without importing a clock: ``14:05:09Z``."""
    seconds = at // 1000
    return f"{seconds // 3600 % 24:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}Z"
