"""Which member fills which slot of its gang.

A slot is found by what binds hardest: the record on the pod itself, what we already told it, its rank, the node it is on,
then the lowest free slot of its role, of equal shape first. Pods already released choose before gated ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from queuectl.engine.standing import LIVE, Standing
from queuectl.model.gangs import Member, Role, Shape, Stage


def match(standing: Standing) -> tuple[dict[str, int], frozenset[int]]:
    """Member → slot, and the slots closed by members that have succeeded. O(members × log + slots).

    Failed members fill nothing, and succeeded ones of a rolling gang neither. Without a record, members on their way out
    fill nothing either: they belong to a round that was given back. A pure function of the standing, whatever the order
    of arrival.
    """
    gang = standing.gang
    if gang is None or not standing.members:
        return {}, frozenset()
    table = _Table(standing)
    members = sorted(
        (
            one
            for one in standing.members.values()
            if one.stage is not Stage.FAILED
            and not (gang.rolling and one.stage is Stage.SUCCEEDED)
            and not (one.leaving and standing.placed is None)
        ),
        key=lambda one: (one.stage is Stage.GATED, one.leaving and one.stage is Stage.GATED, one.created, one.uid),
    )
    for choose in (table.recorded, table.kept, table.placed, table.ranked):
        for member in members:
            if member.leaving and choose == table.ranked:
                continue  # a pod of an earlier round keeps no slot of this one
            if member.uid not in table.slot_of and (slot := choose(member)) is not None and table.free(member, slot):
                table.take(member, slot)
    for member in members:
        if member.uid not in table.slot_of and not member.leaving and not table.waits_for_its_rank(member):
            slot = table.lowest(member)
            if slot is not None:
                table.take(member, slot)
    closed = frozenset(slot for uid, slot in table.slot_of.items() if standing.members[uid].stage is Stage.SUCCEEDED)
    return table.slot_of, closed


class _Table:
    """The slots of one gang while members choose."""

    def __init__(self, standing: Standing) -> None:
        self.slot_of: dict[str, int] = {}
        self._standing = standing
        self._owner: dict[int, Member] = {}
        self._ranges: dict[str, tuple[int, Role]] = {}
        offset = 0
        for role in standing.seen.roles:
            self._ranges[role.name] = (offset, role)
            offset += role.maximum
        self._only = standing.seen.roles[0].name if len(standing.seen.roles) == 1 else None
        self._by_node: dict[str, list[int]] = {}
        for place in standing.placed.places if standing.placed else ():
            self._by_node.setdefault(standing.moved.get(place.slot, place.node), []).append(place.slot)
        self._open: dict[tuple[str, Shape | None], Iterator[int]] = {}

    def recorded(self, member: Member) -> int | None:
        """The slot named by the admission that the pod itself carries."""
        return member.record.places[0].slot if member.record and member.record.places else None

    def kept(self, member: Member) -> int | None:
        """The slot it was promised, or has held in this round."""
        if (extra := self._standing.extras.get(member.uid)) is not None:
            return extra.slot
        return self._standing.slot_of.get(member.uid) if self._standing.placed else None

    def ranked(self, member: Member) -> int | None:
        """The slot of its rank."""
        found = self._range(member)
        return None if found is None or member.rank is None else found[0] + member.rank

    def placed(self, member: Member) -> int | None:
        """A free slot of the record on the node where the pod already is; the one of its rank first."""
        node = member.node or member.pinned
        if member.stage not in LIVE or node is None:
            return None
        here = [slot for slot in self._by_node.get(node, ()) if self.free(member, slot)]
        ranked = self.ranked(member)
        if ranked is not None and ranked not in here:
            return None
        return ranked if ranked is not None else next(iter(here), None)

    def lowest(self, member: Member) -> int | None:
        """The lowest free slot of its role whose shape is the member's, else the lowest free one."""
        found = self._range(member)
        if found is None:
            return None
        offset, role = found
        alike = self._open.get((role.name, member.shape))
        if alike is None:
            alike = self._open[role.name, member.shape] = self._free_slots(offset, role, member.shape)
        slot = next(alike, None)
        if slot is None:
            rest = self._open.setdefault((role.name, None), self._free_slots(offset, role, None))
            slot = next(rest, None)
        return slot

    def free(self, member: Member, slot: int) -> bool:
        """Whether nobody has this slot and it belongs to the member's role."""
        found = self._range(member)
        return slot not in self._owner and found is not None and found[0] <= slot < found[0] + found[1].maximum

    def waits_for_its_rank(self, member: Member) -> bool:
        """A replacement whose predecessor is still on its way out takes that slot next, not an extra one now."""
        slot = self.ranked(member)
        return slot is not None and slot in self._owner and self._owner[slot].leaving

    def take(self, member: Member, slot: int) -> None:
        """Seat the member."""
        self.slot_of[member.uid] = slot
        self._owner[slot] = member

    def _range(self, member: Member) -> tuple[int, Role] | None:
        return self._ranges.get(member.role) or self._ranges.get(self._only or "")

    def _free_slots(self, offset: int, role: Role, shape: Shape | None) -> Iterator[int]:
        """Free slots of a role, ascending, of one shape or any. Read on and on: a slot once taken is never free again."""
        for slot in range(offset, offset + role.maximum):
            if slot not in self._owner and (shape is None or self._shape(slot, role.shape) == shape):
                yield slot

    def _shape(self, slot: int, template: Shape | None) -> Shape | None:
        charge = self._standing.charges.get(slot) if self._standing.placed else None
        return charge.shape if charge else template
