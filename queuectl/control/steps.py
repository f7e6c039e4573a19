"""The vocabulary of the release protocol: its steps, and how each becomes one request."""

from __future__ import annotations

import enum
from typing import Any

from msgspec import Struct

from queuectl.contract import foreign, owners, patches
from queuectl.contract.foreign import Custom, Kind, Workload
from queuectl.control.source import Source, Tracked
from queuectl.model.plan import AdmitExtra


class Fenced(Exception):
    """The API server refused a write because another process leads now: stop writing at once."""


class Step(enum.IntEnum):
    """Steps of the protocol; the number is the order in which waiting writes are sent: torn gangs come first."""

    RELEASE = 0  # pin and remove the gate of a member of a recorded gang
    RESUME = 1  # let an owner make its pods
    EXTRA = 2  # a member beyond the record, with its own record in the same patch
    EVICTED = 3  # say that the gang is given back
    SUSPEND = 4  # let the owner take its pods away
    EVICT = 5  # have one pod go by the Eviction API
    VOID = 6  # keep a release that was not answered from being carried out after all
    RETURN = 7  # nothing is left: back in the queue
    RECORD = 8  # the decision
    ASK = 9  # would the API server accept the release? (dry run)
    BUDGETS = 10  # would disruption budgets let all members go? (reads only)
    CREATE = 11  # the PodGroup of an owner
    RESET = 12  # requeued by hand while waiting, or edited
    FINISH = 13
    NOTE = 14  # all have started
    BLOCKER = 15  # why it waits, or is not given back
    QUEUE = 16  # a queue's status


Target = tuple[str, str, str]
"""(plural, namespace, name): an object. Its status counts as the same object, for they share a version."""


class Write(Struct, frozen=True):
    """One request. ``name`` of the object it goes to; ``gang`` and ``member`` say for whom."""

    step: Step
    kind: Kind
    namespace: str
    name: str
    body: dict[str, Any]
    gang: str
    round: int = 0
    member: str = ""
    subresource: str = ""
    dry_run: bool = False

    @property
    def target(self) -> Target:
        """The object it goes to."""
        return self.kind.plural, self.namespace, self.name


def pod_target(tracked: Tracked) -> Target:
    """The target of writes to a pod, before one is made."""
    return foreign.PODS.plural, tracked.namespace, tracked.member.name


def on_group(step: Step, group: Custom, body: dict[str, Any], round_: int = 0) -> Write:
    """A write to a PodGroup's status."""
    meta = group.metadata
    return Write(step, foreign.POD_GROUPS, meta.namespace, meta.name, body, meta.uid, round_, subresource="status")


def on_pod_status(tracked: Tracked, body: dict[str, Any]) -> Write:
    """Say on a group of one why it waits, or that it does no more."""
    uid, name = tracked.member.uid, tracked.member.name
    return Write(Step.BLOCKER, foreign.PODS, tracked.namespace, name, body, uid, member=uid, subresource="status")


def on_owner(step: Step, gang: str, owner: Workload, round_: int, fence: int) -> Write:
    """Suspend or resume the owner."""
    body = patches.suspension(owner, gang, round_, fence, suspend=step is Step.SUSPEND)
    return Write(step, owners.of(owner).kind, owner.metadata.namespace, owner.metadata.name, body, gang, round_)


def on_pod(step: Step, tracked: Tracked, node: str, round_: int, fence: int) -> Write:
    """Release a member of a recorded gang, or ask whether that would be accepted."""
    member = tracked.member
    body = patches.release(member.uid, tracked.version, tracked.terms, node, fence)
    return Write(
        step,
        foreign.PODS,
        tracked.namespace,
        member.name,
        body,
        member.gang,
        round_,
        member.uid,
        dry_run=step is Step.ASK,
    )


def with_record(step: Step, tracked: Tracked, extra: AdmitExtra, fence: int) -> Write:
    """Release a member that carries its own record: a group of one, an extra, a replacement."""
    member = tracked.member
    own = patches.own_record(extra.round, fence, extra.slot, extra.node, extra.decided_at)
    body = patches.release(member.uid, tracked.version, tracked.terms, extra.node, fence, own)
    return Write(step, foreign.PODS, tracked.namespace, member.name, body, member.gang, extra.round, member.uid)


def voiding(tracked: Tracked, lost: Write, fence: int) -> Write:
    """Change the version of a pod, and nothing that counts, so that a release of it that is still on its way is refused."""
    member = tracked.member
    body = patches.void(member.uid, tracked.version, fence)
    return Write(Step.VOID, foreign.PODS, tracked.namespace, member.name, body, lost.gang, lost.round, member.uid)


def eviction(tracked: Tracked, round_: int) -> Write:
    """Have this very pod go. It carries no fence: the pod was released in the round that is given back, and no other."""
    member, body = tracked.member, {"metadata": {"uid": tracked.member.uid}}
    return Write(Step.EVICT, foreign.PODS, tracked.namespace, member.name, body, member.gang, round_, member.uid)


def ask_budgets(group: Custom, round_: int) -> Write:
    """Ask whether disruption budgets let all running members go. Nothing is stored."""
    meta = group.metadata
    return Write(Step.BUDGETS, foreign.BUDGETS, meta.namespace, meta.name, {}, meta.uid, round_, dry_run=True)


def derive(view: Source, uid: str, queue: str) -> Write | None:
    """The PodGroup that a managed owner (its ``owners.key``) still lacks; None when the owner is gone."""
    owner = view.owners.get(uid)
    if owner is None:
        return None
    body = patches.derived_pod_group(owners.of(owner), owner, queue)
    meta = body["metadata"]
    return Write(Step.CREATE, foreign.POD_GROUPS, meta["namespace"], meta["name"], body, gang="", member=uid)
