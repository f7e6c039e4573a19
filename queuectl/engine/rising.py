"""A queue while the surplus is handed out, and the leaves, which hold it; ``filling`` has the inner queues and the fill.

Between two events every queue grows along a straight line. Each has a *clock* of its own (of a leaf: the part of its rays
that is filled; of an inner queue: the level of its rising children) and is brought up to date only when its own next event
comes or when something above it changes.

Amounts are parts of the pool's capacity in 2^-128ths, rounded down, in lists by counted resource; sets of resources are bits.
Two events nearer than 2^-80 of the capacity are taken for one: without that, a resource that is used up in the moment in
which a queue has all it wants would seem to have a crumb left, and H-DRF treats a resource that is used up quite differently.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from queuectl.engine.entitlement import BITS, NEAR, ONE

NEVER = 1 << 400  # later than any event
SQUARE = ONE * ONE

Vector = list[int]


class Cause(enum.StrEnum):
    """What ended a round of filling, or stopped a queue."""

    MET = "DemandMet"
    LIMIT = "Limit"
    CAPACITY = "NothingLeft"
    NO_WEIGHT = "NoWeight"


class Event(NamedTuple):
    """The end of a round: why, at which queue, in which resource (-1: none), at which level."""

    cause: Cause
    queue: int
    resource: int
    level: int


class Record:
    """The events of each fill, in order, by the number of its top."""

    def __init__(self) -> None:
        self.fills: dict[int, list[Event]] = {}
        self._now: list[Event] = []

    def begin(self, top: int) -> None:
        """What follows is of this top's fill; what was known of it is forgotten."""
        self._now = self.fills[top] = []

    def add(self, cause: Cause, queue: int, resource: int, level: int) -> None:
        """An event of the fill that is going on."""
        self._now.append(Event(cause, queue, resource, level))


class Riser:
    """A queue below the top. ``number`` names the queue and orders siblings."""

    __slots__ = (
        "band", "base", "bounds", "draw", "due", "finished", "fullness", "growth", "held", "inverse", "lead",
        "level", "moving", "number", "open", "pull", "record", "seen", "slope", "speed", "stalled", "take", "weight",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        base: Vector,
        bounds: Sequence[tuple[int, int]],
        band: int,
        weight: int,
        inverse: int,
        record: Record,
    ) -> None:
        self.number = number
        self.record = record
        self.base = base  # E
        self.held = list(base)  # F so far
        self.bounds = bounds  # (resource, limit) where there is one
        self.band = band
        self.weight = weight  # surplus share ÷ level
        self.inverse = inverse  # level ÷ surplus share
        self.finished = False  # all below has what it wants
        self.fullness = 0  # resources whose bound is reached
        self.open: Sequence[int] = range(len(base))  # resources that count for the level
        self.growth: Vector = []  # of ``held`` for each unit of the own clock
        self.draw: Vector = []  # the part of it that the parent has to find
        self.lead = 0  # the dominant resource
        self.level = self.slope = 0  # the level and its growth for each unit of the own clock
        self.due = NEVER  # how far the own clock may go before something happens
        self.moving = self.stalled = False
        self.speed = 0  # of the own clock for each unit of the parent's
        self.pull: Vector = []  # growth and draw for each unit of the parent's clock
        self.take: Vector = []
        self.seen = 0  # the parent's clock when this queue was last brought up to date

    def aim(self, due: int) -> None:
        """Find level, direction and the next event after ``growth`` has changed; ``due``: the next other event. O(resources)."""
        held, base, growth = self.held, self.base, self.growth
        highest, lead, fastest = -NEVER, -1, -1
        for r in self.open:
            surplus = held[r] - base[r]
            if surplus > highest - NEAR:
                if surplus > highest + NEAR or growth[r] > fastest:
                    lead, fastest = r, growth[r]
                if surplus > highest:  # noqa: PLR1730 - max() takes five times as long, and this is where the time goes
                    highest = surplus
        for r in self.open:
            if growth[r] > fastest:
                until = (highest - held[r] + base[r]) * ONE // (growth[r] - fastest)
                due = min(due, until)
        self.lead, self.due = lead, due
        self.level = highest * self.inverse >> BITS
        self.slope = slope = fastest * self.inverse >> BITS
        self.stalled = not fastest
        self.speed = speed = SQUARE // slope if fastest else self.weight * ONE // max(growth)
        self.pull = [more * speed >> BITS for more in growth]
        self.take = self.pull if self.draw is growth else [more * speed >> BITS for more in self.draw]

    def ended(self, cause: Cause, r: int) -> None:
        """Put an event on record."""
        level = (self.held[self.lead] - self.base[self.lead]) * self.inverse >> BITS
        self.record.add(cause, self.number, r, level)

    def reached(self, taken: Vector) -> int:
        """The resources of which so much reaches the bound."""
        bits = 0
        for r, limit in self.bounds:
            if limit - taken[r] <= NEAR:
                bits |= 1 << r
        return bits

    def full(self) -> int:
        """The resources whose bound is reached."""
        raise NotImplementedError

    def begin(self) -> None:
        """A fill of something above begins: what is held is worked out anew. O(queues below × resources)."""
        raise NotImplementedError

    def keep(self, depth: int) -> None:
        """Remember what the fill of the queue at ``depth`` above has led to. O(queues below)."""
        raise NotImplementedError

    def restore(self, depth: int) -> None:
        """Go back to that; at a leaf's own depth, to nothing but E. O(queues below)."""
        raise NotImplementedError

    def arrange(self, shut: int, spent: int) -> bool:
        """Decide who moves, given what cannot be had from above, and of which the top has nothing left; false: nobody."""
        raise NotImplementedError

    def settle(self) -> None:
        """Bring all queues below up to date. O(queues below that move)."""

    def advance(self, step: int) -> None:
        """Let the own clock go on."""
        raise NotImplementedError

    def fire(self) -> bool:
        """The clock has come to ``due``: let what is due happen. False: nothing here can grow any more."""
        raise NotImplementedError


class Leaf(Riser):
    """A queue without children. Its clock is the part of its rays that is filled, the same for all sets that still move."""

    __slots__ = ("active", "aimed", "clock", "closed", "end", "known", "progress", "rays", "stages")

    def __init__(
        self,
        number: int,
        base: Vector,
        bounds: Sequence[tuple[int, int]],
        band: int,
        weight: int,
        inverse: int,
        record: Record,
        rays: list[tuple[int, Vector]],
        depth: int,
    ) -> None:
        super().__init__(number, base, bounds, band, weight, inverse, record)
        self.rays = rays  # for each support set the resources it still needs, and how much of them
        self.progress = [0 if needs else ONE for needs, _ in rays]
        self.stages = {depth: (self.progress, self.held)}  # after the fill of the queue at each depth
        self.active: list[int] = []
        self.aimed: list[int] = []  # the active sets that direction and end are known for
        self.closed = -1  # resources that cannot be had, when the active sets were chosen
        self.clock = self.known = 0  # now, and when ``held`` and ``progress`` were last written
        self.end = NEVER  # the clock at the next event
        self.fullness = self.full() if bounds else 0

    def full(self) -> int:
        """The resources whose limit is reached."""
        return self.reached(self.held)

    def begin(self) -> None:
        """Nothing is left to do where all sets are met."""
        self._write()
        self.closed = -1
        self.finished = min(self.progress, default=ONE) == ONE

    def keep(self, depth: int) -> None:
        """Remember what is held."""
        self._write()
        self.stages[depth] = self.progress, self.held

    def restore(self, depth: int) -> None:
        """Hold what was held then."""
        self.progress, self.held = self.stages[depth]
        self.known = self.clock
        self.active, self.aimed, self.closed = [], [], -1
        self.fullness = self.full() if self.bounds else 0

    def arrange(self, shut: int, spent: int) -> bool:  # noqa: ARG002 - the level of a leaf counts all resources
        """Let all support sets grow that are not met and need nothing that cannot be had."""
        closed = shut | self.fullness
        if closed != self.closed:
            self.closed = closed
            self._choose()
        if not self.active:
            return False
        if self.clock != self.known:
            self._write()
        self.level = (self.held[self.lead] - self.base[self.lead]) * self.inverse >> BITS
        self.due = self.end - self.clock
        return True

    def _choose(self) -> None:
        """Find out which sets are active, and where they lead if that is not known."""
        closed, progress = self.closed, self.progress
        active = [one for one, (needs, _) in enumerate(self.rays) if not needs & closed and progress[one] < ONE]
        if active != self.active:
            self._write()
            self.active = active
        if active and active != self.aimed:
            self._aim()

    def _aim(self) -> None:
        rays = [self.rays[one][1] for one in self.active]
        self.growth = self.draw = rays[0] if len(rays) == 1 else [sum(parts) for parts in zip(*rays, strict=True)]
        due = ONE - max([self.progress[one] for one in self.active])
        for r, limit in self.bounds:
            if self.growth[r]:
                due = min(due, (limit - self.held[r]) * ONE // self.growth[r])
        self.aim(max(0, due))
        self.end = self.clock + self.due
        self.aimed = self.active

    def _write(self) -> None:
        if step := self.clock - self.known:
            self.known = self.clock
            self.held = [have + (more * step >> BITS) for have, more in zip(self.held, self.growth, strict=True)]
            self.progress = list(self.progress)
            for one in self.active:
                self.progress[one] += step

    def advance(self, step: int) -> None:
        """Fill so much more of the rays."""
        self.clock += step

    def fire(self) -> bool:
        """Support sets that are met and limits that are reached end here."""
        self.clock = self.end  # what rounding has left
        self._write()
        self.progress = list(self.progress)  # what is kept for later must not change
        for one in self.active:
            if max(self.rays[one][1]) * (ONE - self.progress[one]) >> BITS <= NEAR:
                self.progress[one] = ONE
                self.ended(Cause.MET, -1)
        if self.bounds:
            full = self.full()
            for r, _ in self.bounds:
                if (full & ~self.fullness) >> r & 1:
                    self.ended(Cause.LIMIT, r)
            self.closed |= full
            self.fullness = full
        self.aimed = []
        self._choose()
        return bool(self.active)
