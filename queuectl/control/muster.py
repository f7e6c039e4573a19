"""How far a gang's members have come, as the mirror shows them. O(members) each."""

from __future__ import annotations

from collections.abc import Iterator

from queuectl.control.source import Source, Tracked
from queuectl.control.steps import Target, pod_target
from queuectl.model.gangs import Gang, Member, Record, Stage


def members(view: Source, gang: str) -> Iterator[Member]:
    """The gang's members."""
    return (view.pods[uid].member for uid in view.members.get(gang, ()))


def ready(tracked: Tracked) -> bool:
    """Only our gate keeps the pod, and it is not on its way out."""
    member = tracked.member
    return member.stage is Stage.GATED and not member.foreign_gates and not member.leaving


def counts(view: Source, gang: str) -> dict[str, int]:
    """Members by stage, as status shows them."""
    stages = [member.stage for member in members(view, gang)]
    return {
        "members": len(stages),
        "released": sum(stage is not Stage.GATED for stage in stages),
        "bound": sum(stage >= Stage.BOUND for stage in stages),
        "running": stages.count(Stage.RUNNING),
        "succeeded": stages.count(Stage.SUCCEEDED),
        "failed": stages.count(Stage.FAILED),
    }


def live(view: Source, gang: str) -> bool:
    """Whether a pod of the gang still holds, or may come to hold, a node."""
    return any(
        Stage.GATED < pod.stage < Stage.SUCCEEDED or (pod.leaving and pod.stage is Stage.GATED)
        for pod in members(view, gang)
    )


def evictable(view: Source, gang: str, *, running: bool = False) -> Iterator[Tracked]:
    """Members that were released and hold on until they are told to go; only those that have started, if ``running``."""
    first = Stage.RUNNING if running else Stage.RELEASED
    for uid in view.members.get(gang, ()):
        member = view.pods[uid].member
        if first <= member.stage < Stage.SUCCEEDED and not member.leaving:
            yield view.pods[uid]


def gated(view: Source, gang: str) -> Iterator[Target]:
    """Members behind our gate, as targets of writes."""
    found = (view.pods[uid] for uid in view.members.get(gang, ()))
    return (pod_target(tracked) for tracked in found if tracked.member.stage is Stage.GATED)


def all_started(view: Source, gang: str, record: Record) -> bool:
    """Whether every slot of the record has a member that runs or has succeeded.

    A member's slot is the one that its own record names, else that of its rank in its role; members without either, or of
    a rank that the role has no slot for (a StatefulSet may count from any number), count one by one.
    """
    slots_of = _slots(view.gang(gang))
    wanted = {place.slot for place in record.places}
    slots: set[int] = set()
    unranked = 0
    for member in members(view, gang):
        if member.stage not in (Stage.RUNNING, Stage.SUCCEEDED):
            continue
        first, count = slots_of.get(member.role) or slots_of[""]
        if member.record is not None and member.record.places:
            slots.add(member.record.places[0].slot)
        elif member.rank is not None and member.rank < count:
            slots.add(first + member.rank)
        else:
            unranked += 1
    return len(slots & wanted) + unranked >= len(wanted)


def _slots(gang: Gang | None) -> dict[str, tuple[int, int]]:
    """Role → its first slot and how many it has; "" stands for the only role, and where there are several for none."""
    found, first = {"": (0, 0)}, 0
    for role in gang.roles if gang is not None else ():
        found[role.name] = (first, role.maximum)
        first += role.maximum
    if len(found) == 2 and gang is not None:  # the only one takes whatever its members call themselves
        found[""] = (0, gang.maximum)
    return found


def all_over(view: Source, gang: str) -> bool:
    """Whether a gang without an owner has ended: every slot's member succeeded."""
    known = view.gang(gang)
    if known is None:
        return False
    succeeded = sum(member.stage is Stage.SUCCEEDED for member in members(view, gang))
    return succeeded >= max(known.maximum, 1)
