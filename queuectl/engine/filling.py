"""The surplus being handed out, event by event: the fast form of what ``surplus`` defines.

Between two events every queue grows along a straight line. Each has a *clock* of its own (of a leaf: the part of its rays
that is filled; of an inner queue: the level of its rising children) and is brought up to date only when its own next event
comes or when something above it changes. A heap at each inner queue holds its children's next events.

Amounts are shares of the pool's capacity in 2^-128ths, rounded down, in lists by counted resource. Two events nearer than
2^-80 of the capacity are taken for one: without that, a resource that is used up in the moment in which a queue has all it
wants would seem to have a crumb left, and H-DRF treats a resource that is used up quite differently.

Cost: O(depth × resources + log children) for each event: a support set is met, a sibling is reached, another resource becomes
dominant. O(queues below) when a ceiling is reached, at most once a queue and resource.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from queuectl.engine.entitlement import BITS, NEAR, ONE

NEVER = 1 << 400  # later than any event

Vector = list[int]


class Cause(enum.StrEnum):
    """What ended a round of filling, or stopped a queue."""

    MET = "DemandMet"
    LIMIT = "Limit"
    CAPACITY = "NothingLeft"
    NO_WEIGHT = "NoWeight"


class Event(NamedTuple):
    """The end of a round: of which top, why, at which queue, in which resource (-1: none), at which level."""

    top: int
    cause: Cause
    queue: int
    resource: int
    level: int


class Record:
    """The events of all fills, in order."""

    def __init__(self) -> None:
        self.top = -1
        self.events: list[Event] = []

    def add(self, cause: Cause, queue: int, resource: int, level: int) -> None:
        """An event of the fill that is going on."""
        self.events.append(Event(self.top, cause, queue, resource, level))


class Riser:
    """A queue below the top. Vectors are lists by counted resource; ``number`` names the queue and orders siblings."""

    __slots__ = (
        "band", "base", "ceiling", "dominance", "draw", "due", "fullness", "growth", "held", "inverse", "lead", "level",
        "moving", "number", "open", "pull", "record", "seen", "shut", "slope", "speed", "spent", "stalled", "stamp", "take",
        "weight",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        base: Vector,
        ceiling: Sequence[int | None],
        band: int,
        weight: int,
        inverse: int,
        record: Record,
    ) -> None:
        self.number = number
        self.record = record
        self.base = base  # E
        self.held = list(base)  # F so far
        self.ceiling = ceiling  # limit
        self.band = band
        self.weight = weight  # surplus share ÷ level
        self.inverse = inverse  # level ÷ surplus share
        self.shut = self.spent = 0  # resources that cannot be had from above; of which the top has nothing left (bits)
        self.fullness = 0  # resources whose ceiling is reached (bits)
        self.open: Sequence[int] = range(len(base))  # resources that count for the level
        self.growth: Vector = []  # of ``held`` for each unit of the own clock
        self.draw: Vector = []  # the part of it that the parent has to find
        self.lead = 0  # the dominant resource
        self.level = self.slope = 0  # the level and its growth for each unit of the own clock
        self.due = NEVER  # how far the own clock may go before something happens
        self.dominance = False  # what then happens is that another resource becomes dominant
        self.moving = self.stalled = False
        self.speed = 0  # of the own clock for each unit of the parent's
        self.pull: Vector = []  # growth and draw for each unit of the parent's clock
        self.take: Vector = []
        self.seen = 0  # the parent's clock when this queue was last brought up to date
        self.stamp = 0  # grows whenever an entry in a heap becomes void

    @property
    def alive(self) -> bool:
        """Whether anything here can still grow."""
        raise NotImplementedError

    def measure(self) -> None:
        """Work out ``held`` anew from the leaves, which clears what rounding has left. O(queues below)."""
        raise NotImplementedError

    def arrange(self, shut: int, spent: int) -> None:
        """Decide who moves, given what cannot be had from above. O(queues below)."""
        raise NotImplementedError

    def settle(self) -> None:
        """Bring all queues below up to date. O(queues below)."""

    def advance(self, step: int) -> None:
        """Let the own clock go on."""
        raise NotImplementedError

    def horizon(self) -> int:
        """How far the own clock may go before something other than dominance changes, ``NEVER`` if it may for ever."""
        raise NotImplementedError

    def fire(self) -> None:
        """The clock has come to ``due``: let what is due happen."""
        raise NotImplementedError

    def aim(self) -> None:
        """Find level, slope and the next event after ``growth`` has changed. O(resources)."""
        held, base, growth = self.held, self.base, self.growth
        highest, lead = -NEVER, -1
        for r in self.open:
            surplus = held[r] - base[r]
            if surplus > highest + NEAR or (surplus >= highest - NEAR and growth[r] > growth[lead]):
                lead = r
            highest = max(highest, surplus)
        self.lead = lead
        self.level = highest * self.inverse >> BITS
        fastest = growth[lead]
        self.slope = fastest * self.inverse >> BITS
        self.due, self.dominance = self.horizon(), False
        for r in self.open:
            if growth[r] > fastest:
                until = (highest - held[r] + base[r]) * ONE // (growth[r] - fastest)
                if until < self.due:
                    self.due, self.dominance = until, True

    def ended(self, cause: Cause, r: int) -> None:
        """Put an event on record."""
        level = (self.held[self.lead] - self.base[self.lead]) * self.inverse >> BITS
        self.record.add(cause, self.number, r, level)

    def reached(self, taken: Vector) -> int:
        """The resources of which so much reaches the ceiling, as bits."""
        bits = 0
        for r, limit in enumerate(self.ceiling):
            if limit is not None and limit - taken[r] <= NEAR:
                bits |= 1 << r
        return bits

    def full(self) -> int:
        """The resources whose ceiling is reached, as bits."""
        raise NotImplementedError


class Leaf(Riser):
    """A queue without children. Its clock is the part of its rays that is filled, the same for all that still move."""

    __slots__ = ("active", "progress", "rays")

    def __init__(
        self,
        number: int,
        base: Vector,
        ceiling: Sequence[int | None],
        band: int,
        weight: int,
        inverse: int,
        record: Record,
        rays: list[tuple[int, Vector]],
    ) -> None:
        super().__init__(number, base, ceiling, band, weight, inverse, record)
        self.rays = rays  # for each support set the resources it still needs (bits), and how much of them
        self.progress = [0 if needs else ONE for needs, _ in rays]
        self.active: list[int] = []

    @property
    def alive(self) -> bool:
        """Whether a support set can still grow."""
        return bool(self.active)

    def measure(self) -> None:
        """What is held: E and the filled part of each ray. O(support sets × resources)."""
        self.held = list(self.base)
        for progress, (_, ray) in zip(self.progress, self.rays, strict=True):
            if progress:
                self.held = [have + (more * progress >> BITS) for have, more in zip(self.held, ray, strict=True)]

    def arrange(self, shut: int, spent: int) -> None:
        """Let all support sets grow that are not met and need nothing that cannot be had."""
        self.shut, self.spent = shut, spent
        self.fullness = self.full()
        self._choose()

    def full(self) -> int:
        """The resources whose limit is reached, as bits."""
        return self.reached(self.held)

    def _choose(self) -> None:
        closed = self.shut | self.fullness
        self.active = [
            one for one, (needs, _) in enumerate(self.rays) if self.progress[one] < ONE and not needs & closed
        ]
        rays = [self.rays[one][1] for one in self.active]
        self.growth = self.draw = rays[0] if len(rays) == 1 else [sum(parts) for parts in zip(*rays, strict=True)]

    def advance(self, step: int) -> None:
        """Fill so much more of the rays."""
        self.held = [have + (more * step >> BITS) for have, more in zip(self.held, self.growth, strict=True)]
        for one in self.active:
            self.progress[one] += step

    def horizon(self) -> int:
        """How much more of the rays until a support set is met or a limit reached."""
        due = ONE - max(self.progress[one] for one in self.active)
        for r, limit in enumerate(self.ceiling):
            if limit is not None and self.growth[r]:
                due = min(due, (limit - self.held[r]) * ONE // self.growth[r])
        return max(0, due)

    def fire(self) -> None:
        """Support sets that are met and limits that are reached end here."""
        if not self.dominance:
            self.advance(self.horizon())  # what rounding has left
        for one in self.active:
            if max(self.rays[one][1]) * (ONE - self.progress[one]) >> BITS <= NEAR:
                self.progress[one] = ONE
                self.ended(Cause.MET, -1)
        full = self.full()
        for r in range(len(self.base)):
            if (full & ~self.fullness) >> r & 1:
                self.ended(Cause.LIMIT, r)
        self.fullness = full
        self._choose()


class Inner(Riser):
    """A queue with children, or the root. Its clock is ``water``, the level of its rising children.

    A child whose level does not grow, because what it gets is not yet its dominant resource, is *stalled*: while there are
    any, they alone move, each at its weight, and ``eddy`` takes the place of ``water``.
    """

    __slots__ = (
        "count", "eddies", "eddy", "flow", "guarded", "kids", "later", "reserve", "rise", "rise_take", "rises", "shielded",
        "stall", "stall_take", "top", "use", "waiting", "water",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        base: Vector,
        ceiling: Sequence[int | None],
        band: int,
        weight: int,
        inverse: int,
        record: Record,
        reserve: Vector,
        kids: list[Riser],
    ) -> None:
        super().__init__(number, base, ceiling, band, weight, inverse, record)
        self.reserve = reserve  # guaranteed: kept even if nobody below uses it
        self.kids = kids
        self.top = False
        self.guarded = False  # some reserve below is unused, so ``use`` and ``held`` differ
        self.shielded = 0  # resources whose reserve is not used up: growth below costs nobody above anything (bits)
        self.use = self.held  # Σ of what the children hold, reserves included
        self.flow: Vector = []  # growth of ``use``
        self.later: list[list[Riser]] = []  # lower priority bands, the next one last
        self.waiting: list[tuple[int, int, Riser]] = []
        self.water = self.eddy = 0
        self.rises: list[tuple[int, int, int, Riser]] = []  # heap of (water at the next event, number, stamp, child)
        self.eddies: list[tuple[int, int, int, Riser]] = []
        self.count = [0, 0]  # rising, stalled
        self.rise, self.stall = list(base), list(base)
        self.rise_take, self.stall_take = self.rise, self.stall

    @property
    def alive(self) -> bool:
        """Whether a child can still grow."""
        return bool(self.count[0] or self.count[1])

    def measure(self) -> None:
        """The sums over the children, measured first. O(queues below × resources)."""
        zeros = [0] * len(self.base)
        held, use, guarded = zeros, list(zeros), False
        for kid in self.kids:
            kid.measure()
            held = [a + b for a, b in zip(held, kid.held, strict=True)]
            if isinstance(kid, Inner):
                use = [a + max(b, c) for a, b, c in zip(use, kid.use, kid.reserve, strict=True)]
                guarded = guarded or kid.guarded or bool(kid.unused())
            else:
                use = [a + b for a, b in zip(use, kid.held, strict=True)]
        self.guarded = guarded
        self.held, self.use = held, use if guarded else held

    def full(self) -> int:
        """The resources whose limit, or of the top whose E, is reached; as bits."""
        return self.reached(self.use)

    def unused(self) -> int:
        """Resources of which a part of the reserve is unused, as bits."""
        bits = 0
        for r, kept in enumerate(self.reserve):
            if kept - self.use[r] > NEAR:
                bits |= 1 << r
        return bits

    def arrange(self, shut: int, spent: int) -> None:
        """Begin anew with what the leaves hold: who is full, which band is next, who rises and who waits."""
        self.shut, self.spent = shut, spent
        self.fullness, self.shielded = self.full(), 0 if self.top else self.unused()
        shut = shut & ~self.shielded | self.fullness
        spent = spent & ~self.shielded | (self.fullness if self.top else 0)
        self.open = [r for r in range(len(self.base)) if not spent >> r & 1]
        self.rises, self.eddies, self.waiting, self.count = [], [], [], [0, 0]
        zeros = [0] * len(self.base)
        self.rise, self.stall = list(zeros), list(zeros)
        self.rise_take, self.stall_take = (list(zeros), list(zeros)) if self.guarded else (self.rise, self.stall)
        bands: dict[int, list[Riser]] = {}
        nothing = shut + 1 == 1 << len(self.base) and not self.guarded
        for kid in self.kids:
            kid.moving = False
            if kid.weight and not nothing:
                kid.arrange(shut, spent)
                if kid.alive:
                    kid.aim()
                    bands.setdefault(kid.band, []).append(kid)
        self.later = [bands[band] for band in sorted(bands)]
        self._go_on()

    def _go_on(self) -> None:
        """After children have changed: let the next band begin if this one has ended, and renew the growth."""
        if not (self.count[0] or self.count[1] or self.waiting) and self.later:
            kids = self.later.pop()
            self.water = min(kid.level for kid in kids)
            for kid in kids:
                heappush(self.waiting, (kid.level, kid.number, kid))
        if not (self.count[0] or self.count[1]) and self.waiting:
            self.water = self.waiting[0][0]
        while self.waiting and (self.waiting[0][0] - self.water) * self.waiting[0][2].weight >> BITS <= NEAR:
            self._place(heappop(self.waiting)[2])
        self.growth, self.flow = (self.stall, self.stall_take) if self.count[1] else (self.rise, self.rise_take)
        self.draw = self.flow
        if self.shielded:
            self.draw = [0 if self.shielded >> r & 1 else more for r, more in enumerate(self.flow)]

    def _place(self, kid: Riser) -> None:
        """Let a child move that is at the level of the water."""
        kid.moving, kid.stalled = True, not kid.slope
        kid.speed = kid.weight * ONE // max(kid.growth) if kid.stalled else ONE * ONE // kid.slope
        kid.pull = [more * kid.speed >> BITS for more in kid.growth]
        kid.take = kid.pull if kid.draw is kid.growth else [more * kid.speed >> BITS for more in kid.draw]
        kid.seen = self.eddy if kid.stalled else self.water
        entry = kid.seen + kid.due * ONE // kid.speed, kid.number, kid.stamp, kid
        heappush(self.eddies if kid.stalled else self.rises, entry)
        self._count(kid, 1)

    def _count(self, kid: Riser, sign: int) -> None:
        self.count[kid.stalled] += sign
        sums, takes = (self.stall, self.stall_take) if kid.stalled else (self.rise, self.rise_take)
        for r, more in enumerate(kid.pull):
            sums[r] += sign * more
        if takes is not sums:
            for r, more in enumerate(kid.take):
                takes[r] += sign * more

    def _sync(self, kid: Riser) -> None:
        now = self.eddy if kid.stalled else self.water
        if now != kid.seen:
            kid.advance((now - kid.seen) * kid.speed >> BITS)
            kid.seen = now

    def settle(self) -> None:
        """Bring the children that move up to the water, and those below them."""
        for kid in self.kids:
            if kid.moving:
                self._sync(kid)
                kid.settle()

    def advance(self, step: int) -> None:
        """Let the water (or, with stalled children, the eddy) rise; the children follow when they are looked at."""
        self.held = [have + (more * step >> BITS) for have, more in zip(self.held, self.growth, strict=True)]
        if self.guarded:
            self.use = [have + (more * step >> BITS) for have, more in zip(self.use, self.flow, strict=True)]
        else:
            self.use = self.held
        if self.count[1]:
            self.eddy += step
        else:
            self.water += step

    def horizon(self) -> int:
        """How far until a child's event, a waiting child, a ceiling, or the end of an unused reserve."""
        heap, now = (self.eddies, self.eddy) if self.count[1] else (self.rises, self.water)
        while heap and heap[0][2] != heap[0][3].stamp:
            heappop(heap)
        due = heap[0][0] - now if heap else NEVER
        if self.waiting and not self.count[1]:
            due = min(due, self.waiting[0][0] - now)
        flow, use = self.flow, self.use
        for r, limit in enumerate(self.ceiling):
            if limit is not None and flow[r] > 0 and not self.fullness >> r & 1:
                due = min(due, (limit - use[r]) * ONE // flow[r])
        if self.shielded:
            for r, kept in enumerate(self.reserve):
                if self.shielded >> r & 1 and flow[r] > 0:
                    due = min(due, (kept - use[r]) * ONE // flow[r])
        return max(0, due)

    def fire(self) -> None:
        """Pass the event on to the children whose it is, then see who is reached and what is full."""
        if not self.dominance:
            self.advance(self.horizon())  # what rounding has left
        heap, now = (self.eddies, self.eddy) if self.count[1] else (self.rises, self.water)
        while heap and heap[0][0] <= now:
            _, _, stamp, kid = heappop(heap)
            if stamp == kid.stamp:
                self._sync(kid)
                self._count(kid, -1)
                kid.stamp += 1
                kid.moving = False
                kid.fire()
                if kid.alive:
                    kid.aim()
                    self._place(kid)
        full = self.full()
        if full != self.fullness or (self.shielded and self.unused() != self.shielded):
            for r in range(len(self.base)):
                if (full & ~self.fullness) >> r & 1:
                    self.record.add(Cause.CAPACITY if self.top else Cause.LIMIT, self.number, r, self.water)
            self.settle()
            self.arrange(self.shut, self.spent)
        else:
            self._go_on()


def fill(top: Inner, missing: int) -> None:
    """Hand out what the E of ``top`` leaves over; everything deeper comes first. ``missing``: resources of capacity 0."""
    for kid in top.kids:
        if isinstance(kid, Inner):
            fill(kid, missing)
    limits, top.ceiling, top.top = top.ceiling, top.base, True
    top.record.top = top.number
    top.measure()
    top.arrange(missing, missing)
    while top.alive:
        top.advance(top.horizon())
        top.fire()
    top.ceiling, top.top = limits, False
