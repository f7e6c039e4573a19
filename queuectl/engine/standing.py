"""Where a gang stands: the latest facts about it, what we promised, and what is charged for it right now.

``Standing`` is written by ``state`` and read by everybody else in the engine. Facts (``gang``, ``members``, ``known``)
are replaced as they arrive, in any order; all else follows from them in ``State.settle``, except for the few memories
that no fact holds yet: assumptions, moved slots, and what was already said.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from msgspec import Struct, field

from queuectl.model.gangs import Gang, Member, Record, Role, Shape, Stage
from queuectl.model.reasons import Misfit
from queuectl.model.resources import Amounts

LIVE = (Stage.RELEASED, Stage.BOUND, Stage.RUNNING)


class Phase(enum.StrEnum):
    """How far a gang has come. Assumed: decided, not yet committed; Recorded: committed."""

    PENDING = "Pending"
    ASSUMED = "Assumed"
    RECORDED = "Recorded"
    RELEASED = "Released"
    BOUND = "Bound"
    RUNNING = "Running"
    LEAVING = "Leaving"
    FINISHED = "Finished"


class Charge(Struct, frozen=True, gc=False):
    """One pod's worth of a shape on one node."""

    node: str
    shape: Shape


class Extra(Struct, frozen=True, gc=False):
    """A promise to one member beyond the record, not yet seen on its pod."""

    slot: int
    node: str


class Wait(Struct, frozen=True, gc=False):
    """A slot that is not running: how far its pod has come (None: there is none), which pod, and since when (ms).

    ``decides`` is true where the gang is not whole without it; else the gang is well and its lateness is only told.
    """

    stage: Stage | None
    member: str | None
    since: int
    decides: bool


class Standing(Struct, kw_only=True):
    """One gang, or pods whose gang was not seen yet (``gang`` None)."""

    uid: str
    gang: Gang | None = None
    members: dict[str, Member] = field(default_factory=dict)
    known: Record | None = None  # from RecordSeen: ahead of the watch
    assumed: Record | None = None  # decided, not committed
    refused: Misfit | None = None  # a failed write that is not tried again until the gang changes
    last_round: int = 0  # never used twice, so that a late reply cannot hit a newer assumption
    handled: str = ""  # the request for a requeue acted on last

    # memories of one round, forgotten with it
    round: int = 0
    slot_of: dict[str, int] = field(default_factory=dict)
    moved: dict[int, str] = field(default_factory=dict)  # slots of the record that now live on another node
    filled: set[int] = field(default_factory=set)  # slots that a released member has held
    shed: set[int] = field(
        default_factory=set
    )  # slots of the record that the gang shrank away: room that is no longer ours
    reshaped: dict[int, Amounts] = field(
        default_factory=dict
    )  # slots whose gated member is unlike what was charged before -> what that was
    told: set[str] = field(default_factory=set)  # members named in an Admit or AdmitExtra
    extras: dict[str, Extra] = field(default_factory=dict)
    barred: set[str] = field(default_factory=set)  # members whose own write failed; not tried again until they change
    broken: Misfit | None = None  # a write after the record failed for good: the gang must be given back
    withdrawn: bool = False
    unanswered: bool = False  # that Withdraw failed for good; it is said again when anything about the gang changes
    done: set[int] = field(default_factory=set)  # slots whose member has succeeded, although its pod may be gone by now
    waits: dict[int, Wait] = field(default_factory=dict)
    reached: dict[int, Stage] = field(default_factory=dict)  # how far each slot of the core has ever come
    steps: dict[Stage, int] = field(
        default_factory=dict
    )  # when some slot of the core first came this far, the last time
    late: set[int] = field(default_factory=set)  # slots whose lateness was told
    delays: tuple[Misfit, ...] = ()  # how it was told

    # what follows from the above, renewed by ``State.settle``
    placed: Record | None = None
    charges: dict[int | str, Charge] = field(default_factory=dict)
    charged_to: str = ""
    closed: frozenset[int] = frozenset()  # slots whose member has succeeded
    phase: Phase = Phase.PENDING
    counted: tuple[str, Phase, Amounts] | None = None  # as what it counts in its queue: phase, and what it waits for
    edition: int = 0  # grows whenever something of it may be seen otherwise
    blockers: tuple[Misfit, ...] = ()  # why it is not even tried
    notes: tuple[Misfit, ...] = ()  # what is to be said of a gang that is not waiting
    said: frozenset[str] = frozenset()  # the reasons named in the last Refuse
    due: int | None = None  # when its deadline or back-off ends
    stuck: frozenset[int] = frozenset()  # slots of the record whose gated member has no place to go

    @property
    def seen(self) -> Gang:
        """The gang itself, where the caller knows that it was seen."""
        if self.gang is None:
            raise LookupError(self.uid)
        return self.gang

    @property
    def waiting(self) -> bool:
        """Whether the gang needs an admission."""
        return self.gang is not None and self.phase is Phase.PENDING

    @property
    def well(self) -> bool:
        """Whether it has its admission, and there is nothing to tell of it."""
        placed = self.placed is not None and self.phase is not Phase.PENDING
        return placed and not (self.notes or self.delays or self.stuck)

    def news(self) -> None:
        """Something about the gang has changed, so what failed for good may work now."""
        self.refused = None
        if self.unanswered:
            self.withdrawn = self.unanswered = False

    def remember(self, uid: str) -> None:
        """Keep, for the rest of the round, that a live member holds its slot and where: its pod may go, the slot stays.

        And that one has succeeded: its pod may be cleaned away, the slot is done.
        """
        member, slot = self.members.get(uid), self.slot_of.get(uid)
        if member is None or slot is None or self.placed is None:
            return
        if member.stage is Stage.SUCCEEDED and self.gang is not None and not self.gang.rolling:
            self.done.add(slot)
        if member.stage not in LIVE:
            return
        self.filled.add(slot)
        if (node := member.node or member.pinned) is not None:
            self.moved[slot] = node

    def filler(self) -> dict[int, Member]:
        """Slot -> the member that fills it."""
        return {slot: self.members[uid] for uid, slot in self.slot_of.items()} if self.slot_of else {}

    def role_of(self, slot: int) -> Role | None:
        """The role a slot belongs to; None when no role is that long (the gang shrank)."""
        offset = 0
        for role in self.gang.roles if self.gang else ():
            if slot < offset + role.maximum:
                return role
            offset += role.maximum
        return None

    def core(self) -> tuple[int, ...]:
        """The slots that are released together: the first ``minimum`` of every role."""
        slots: list[int] = []
        offset = 0
        for role in self.gang.roles if self.gang else ():
            slots.extend(range(offset, offset + role.minimum))
            offset += role.maximum
        return tuple(slots)

    def vacant(self) -> list[tuple[Role, Shape | None, Sequence[int]]]:
        """The slots of the core that nothing is charged for and that have not succeeded, with what each would be charged.

        In runs of one role and one shape object, slots ascending. O(roles) while the gang has no members, else O(core).
        """
        found: list[tuple[Role, Shape | None, Sequence[int]]] = []
        filler = self.filler()
        offset = 0
        for role in self.gang.roles if self.gang else ():
            slots = range(offset, offset + role.minimum)
            offset += role.maximum
            if not (filler or self.charges or self.closed):
                found.append((role, role.shape, slots))
                continue
            runs: dict[int, tuple[Shape | None, list[int]]] = {}  # by identity: a template's slots are many
            for slot in slots:
                if slot not in self.closed and slot not in self.charges:
                    shape = filler[slot].shape if slot in filler else role.shape
                    runs.setdefault(id(shape), (shape, []))[1].append(slot)
            found.extend((role, shape, run) for shape, run in runs.values())
        return [run for run in found if run[2]]

    def shapes(self) -> list[tuple[Shape | None, int]]:
        """What slots of the core are charged, or would be, and how many of them; None where nobody can tell yet.

        One entry for each shape object, in the order of their first slots. O(roles) while the gang has no members, else O(core).
        """
        filler = self.filler()
        if not (filler or self.charges):
            return [(role.shape, role.minimum) for role in (self.gang.roles if self.gang else ()) if role.minimum]
        found: dict[int, tuple[Shape | None, int]] = {}  # by identity: a template's slots are many
        for slot in self.core():
            shape = self.shape_of(slot, filler.get(slot))
            _, count = found.get(id(shape), (shape, 0))
            found[id(shape)] = shape, count + 1
        return list(found.values())

    def duties(self) -> tuple[int, ...]:
        """The slots that the record promises to the core and that have not succeeded, ascending."""
        promised, closed = self.promised(), self.closed
        return tuple(slot for slot in self.core() if slot in promised and slot not in closed)

    def owed(self, filler: dict[int, Member]) -> frozenset[int]:
        """Those of its duties without which the gang is not whole: of roles that too few members of run or have succeeded."""
        well = {slot for slot, member in filler.items() if member.stage is Stage.RUNNING} | self.closed
        short: list[range] = []
        offset = 0
        for role in self.gang.roles if self.gang else ():
            slots = range(offset, offset + role.maximum)
            offset += role.maximum
            if len(well.intersection(slots)) < role.minimum:
                short.append(slots)
        if not short:
            return frozenset()
        return frozenset(slot for slot in self.duties() if slot not in well and any(slot in slots for slots in short))

    def promised(self) -> set[int]:
        """The slots that the admission covers: those of its record, else (of a gang that ran before we knew it) the core."""
        if self.placed is None:
            return set(self.core())
        return {place.slot for place in self.placed.places} - self.shed

    def shape_of(self, slot: int, member: Member | None) -> Shape | None:
        """What a slot is charged: its member's shape, else the template's, else what was charged before or a peer's."""
        if member is not None:
            return member.shape
        role = self.role_of(slot)
        if role is not None and role.shape is not None:
            return role.shape
        return self.charges[slot].shape if slot in self.charges else None
