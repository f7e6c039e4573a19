"""What a gang asks placement for: its core while it waits, then its extras one by one; and how an answer is numbered."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from queuectl.engine.pools import Pools
from queuectl.engine.request import Fit, Group, Request
from queuectl.engine.standing import Standing
from queuectl.model.gangs import Place, Role, Shape, Stage


def core_request(standing: Standing, pools: Pools) -> tuple[Request, tuple[tuple[int, ...], ...]]:
    """The request for the slots of the core that nobody holds yet, and the slots of each of its groups, ascending.

    Equal shapes are one group, unless their role must or should stay together by itself. Every shape must be known.
    """
    gang = standing.seen
    groups: dict[tuple[Shape, str], tuple[Role, list[int]]] = {}
    for role, shape, slots in standing.vacant():
        if shape is None:
            continue  # readiness holds the gang back until every shape is known
        own = role.required is not None or role.preferred is not None
        groups.setdefault((shape, role.name if own else ""), (role, []))[1].extend(slots)
    wanted = tuple(
        Group(shape, len(slots), role.required, role.preferred, home(standing, role, -1, pools))
        for (shape, _), (role, slots) in groups.items()
    )
    held = None
    if standing.charges and gang.required is not None:
        held = next((slot for slot in standing.core() if slot in standing.charges), None)
    anchor = None if held is None else standing.charges[held].node
    return Request(wanted, gang.required, anchor), tuple(tuple(sorted(slots)) for _, slots in groups.values())


def single_request(standing: Standing, slot: int, shape: Shape, pools: Pools) -> Request | None:
    """The request for one more member, inside the domains and pools that the gang must share. O(slots) if there are any."""
    role = standing.role_of(slot)
    if role is None:
        return None
    level = role.required or standing.seen.required
    group = Group(shape, 1, pools=home(standing, role, slot, pools))
    return Request((group,), level, None if level is None else _anchor(standing, role, slot))


def extra_requests(standing: Standing, pools: Pools) -> Iterator[tuple[int, str, Request]]:
    """(slot, member, request) of every extra that could be released now. Equal ones share their request. O(members)."""
    made: dict[
        tuple[str, int], Request | None
    ] = {}  # by the shape's identity: hashing thousands costs more than sharing saves
    for slot, uid in extra_slots(standing):
        member, role = standing.members[uid], standing.role_of(slot)
        if role is None or not member.pinnable or member.foreign_gates:
            continue
        kind = role.name, id(member.shape)
        if kind not in made:
            made[kind] = single_request(standing, slot, member.shape, pools)
        if (request := made[kind]) is not None:
            yield slot, uid, request


def _anchor(standing: Standing, role: Role, slot: int) -> str | None:
    """A node in whose domain the slot must lie: that of the first other slot that shares its level."""
    peers = (
        key
        for key in standing.charges
        if isinstance(key, int) and key != slot and (role.required is None or standing.role_of(key) == role)
    )
    first = min(peers, default=None)
    return None if first is None else standing.charges[first].node


def home(standing: Standing, role: Role, slot: int, pools: Pools) -> tuple[str, ...] | None:
    """The pools that hold all other charged members of a role, or of the gang where the role has none; () where none does.

    None where nothing is said by that: there are no pools, no others, or the others lie in several. O(slots).
    """
    if not (pools and standing.charges):
        return None
    found: dict[bool, list[frozenset[str]]] = {True: [], False: []}  # whether of the same role -> their nodes' pools
    for key, charge in standing.charges.items():
        if isinstance(key, int) and key != slot and (here := pools.of.get(charge.node)) is not None:
            found[standing.role_of(key) == role].append(frozenset(here))
    kin = found[True] or found[False]
    if not kin:
        return None
    shared = frozenset.intersection(*kin)
    return tuple(sorted(shared)) if shared or not any(kin) else None


def places(standing: Standing, fit: Fit, slots: tuple[tuple[int, ...], ...]) -> tuple[Place, ...]:
    """Slots on nodes, sorted by slot: each group's slots in order over its nodes in order, so neighbours stay close.

    Slots of the core that are held already are part of the record, where they are.
    """
    found = [Place(slot, standing.charges[slot].node) for slot in standing.core() if slot in standing.charges]
    for group, nodes in zip(slots, fit.nodes, strict=True):
        order = [node for node, count in nodes for _ in range(count)]
        found.extend(Place(slot, node) for slot, node in zip(group, order, strict=True))
    return tuple(sorted(found, key=attrgetter("slot")))


def extra_slots(standing: Standing) -> tuple[tuple[int, str], ...]:
    """(slot, member) of gated members beyond what was admitted that were promised nothing yet, by slot."""
    promised = standing.promised()
    return tuple(
        sorted(
            (slot, uid)
            for uid, slot in standing.slot_of.items()
            if slot not in promised
            and standing.members[uid].stage is Stage.GATED
            and not standing.members[uid].leaving
            and uid not in standing.extras
            and uid not in standing.barred
        )
    )


def levels(standing: Standing) -> tuple[str, ...]:
    """The levels that the gang or its roles require."""
    gang = standing.gang
    roles: tuple[Role, ...] = gang.roles if gang else ()
    named = (gang.required if gang else None, *(role.required for role in roles))
    return tuple(dict.fromkeys(level for level in named if level is not None))
