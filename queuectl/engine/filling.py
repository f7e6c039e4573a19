"""The surplus being handed out, event by event: the fast form of what ``surplus`` defines.

Between two events every queue grows along a straight line. Each has a *clock* of its own (of a leaf: the part of its rays
that is filled; of an inner queue: the level of its rising children) and is brought up to date only when its own next event
comes or when something above it changes. A heap at each inner queue holds its children's next events.

Amounts are parts of the pool's capacity in 2^-128ths, rounded down, in lists by counted resource; sets of resources are bits.
Two events nearer than 2^-80 of the capacity are taken for one: without that, a resource that is used up in the moment in
which a queue has all it wants would seem to have a crumb left, and H-DRF treats a resource that is used up quite differently.

Cost: O(depth × resources + log children) for each event: a support set is met, a sibling is reached, another resource becomes
dominant. O(queues below that can still grow) when a ceiling is reached, at most once a queue and resource.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from heapq import heappop, heappush
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
        "level", "moving", "number", "open", "pull", "record", "seen", "slope", "speed", "stalled", "stamp", "take", "weight",
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
        self.stamp = 0  # grows whenever an entry in a heap becomes void

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


class Inner(Riser):
    """A queue with children, or the root. Its clock is ``water``, the level of its rising children.

    A child whose level does not grow, because what it gets is not yet its dominant resource, is *stalled*: while there are
    any, they alone move, each at its weight, and ``eddy`` takes the place of ``water``.
    """

    __slots__ = (
        "eddies", "eddy", "flow", "goal", "guarded", "kids", "later", "live", "reserve", "rise", "rise_take", "rises", "rising",
        "shielded", "shut", "spent", "stall", "stall_take", "stalls", "top", "use", "waiting", "water",
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
        reserve: Vector,
        kids: list[Riser],
    ) -> None:
        super().__init__(number, base, bounds, band, weight, inverse, record)
        self.reserve = reserve  # guaranteed: kept even if nobody below uses it
        self.kids = kids
        self.live = kids  # those that can still grow in this fill
        self.top = False
        self.shut = self.spent = 0  # as given by ``arrange``
        self.guarded = False  # some reserve below is unused, so ``use`` and ``held`` differ
        self.shielded = 0  # resources whose reserve is not used up: growth below costs nobody above anything
        self.use = self.held  # Σ of what the children hold, reserves included
        self.flow: Vector = []  # growth of ``use``
        self.later: list[list[Riser]] = []  # lower priority bands, the next one last
        self.waiting: list[tuple[int, int, Riser]] = []
        self.water = self.eddy = 0
        self.rises: list[tuple[int, int, int, Riser]] = []  # heap of (water at the next event, number, stamp, child)
        self.eddies: list[tuple[int, int, int, Riser]] = []
        self.rising = self.stalls = 0  # how many
        self.goal = 0  # water, or eddy, when something is due
        self.rise, self.stall = list(base), list(base)
        self.rise_take, self.stall_take = self.rise, self.stall

    def full(self) -> int:
        """The resources whose limit, or of the top whose E, is reached."""
        return self.reached(self.use)

    def begin(self) -> None:
        """The sums over the children, and who of them may still want something."""
        counted = range(len(self.base))
        kids = self.kids
        for kid in kids:
            kid.begin()
        self.live = [kid for kid in kids if kid.weight and not kid.finished]
        self.finished = not self.live
        self.held = [sum([kid.held[r] for kid in kids]) for r in counted]
        inner = [kid for kid in kids if isinstance(kid, Inner)]
        self.guarded = any(kid.guarded or kid.unused() for kid in inner)
        self.use = self.held
        if self.guarded:
            more = [[max(0, kid.use[r] - kid.held[r], kid.reserve[r] - kid.held[r]) for kid in inner] for r in counted]
            self.use = [have + sum(kept) for have, kept in zip(self.held, more, strict=True)]

    def keep(self, depth: int) -> None:
        """Of all leaves below."""
        for kid in self.kids:
            kid.keep(depth)

    def restore(self, depth: int) -> None:
        """Of all leaves below."""
        for kid in self.kids:
            kid.restore(depth)

    def unused(self) -> int:
        """Resources of which a part of the reserve is unused."""
        bits = 0
        for r, kept in enumerate(self.reserve):
            if kept - self.use[r] > NEAR:
                bits |= 1 << r
        return bits

    def arrange(self, shut: int, spent: int) -> bool:
        """Begin anew with what the leaves hold: who is full, which band is next, who rises and who waits."""
        self.shut, self.spent = shut, spent
        self.fullness, self.shielded = self.full(), 0 if self.top else self.unused()
        shut = shut & ~self.shielded | self.fullness
        spent = spent & ~self.shielded | (self.fullness if self.top else 0)
        counted = range(len(self.base))
        self.open = [r for r in counted if not spent >> r & 1] if spent else counted
        self.rises, self.eddies, self.waiting, self.rising, self.stalls = [], [], [], 0, 0
        self.rise, self.stall = [0 for _ in counted], [0 for _ in counted]
        self.rise_take, self.stall_take = self.rise, self.stall
        if self.guarded:
            self.rise_take, self.stall_take = list(self.rise), list(self.stall)
        for kid in self.live:
            kid.moving = False
        if shut + 1 == 1 << len(self.base) and not self.guarded:
            self.live = []
        self.live = [kid for kid in self.live if kid.arrange(shut, spent)]
        bands: dict[int, list[Riser]] = {}
        for kid in self.live:
            bands.setdefault(kid.band, []).append(kid)
        self.later = [bands[band] for band in sorted(bands)]
        return self._go_on()

    def _go_on(self) -> bool:
        """After children have changed: let the next band begin if this one has ended, and find the growth and what is due."""
        if not (self.rising or self.stalls):
            if not self.waiting and self.later:
                self.waiting = sorted([(kid.level, kid.number, kid) for kid in self.later.pop()])
            if self.waiting:
                self.water = self.waiting[0][0]
        while self.waiting and (self.waiting[0][0] - self.water) * self.waiting[0][2].weight >> BITS <= NEAR:
            self._place(heappop(self.waiting)[2])
        if not (self.rising or self.stalls):
            return False
        self.growth, self.flow = (self.stall, self.stall_take) if self.stalls else (self.rise, self.rise_take)
        self.draw = self.flow
        if self.shielded:
            self.draw = [0 if self.shielded >> r & 1 else more for r, more in enumerate(self.flow)]
        if self.top:
            self.due = self._next()
        else:
            self.aim(self._next())
        self.goal = (self.eddy if self.stalls else self.water) + self.due
        return True

    def _place(self, kid: Riser) -> None:
        """Let a child move that is at the level of the water."""
        kid.moving = True
        if kid.stalled:
            kid.seen = self.eddy
            heappush(self.eddies, (kid.seen + kid.due * ONE // kid.speed, kid.number, kid.stamp, kid))
        else:
            kid.seen = self.water
            heappush(self.rises, (kid.seen + (kid.due * kid.slope >> BITS), kid.number, kid.stamp, kid))
        self._count(kid, 1)

    def _count(self, kid: Riser, sign: int) -> None:
        if kid.stalled:
            self.stalls += sign
            sums, takes = self.stall, self.stall_take
        else:
            self.rising += sign
            sums, takes = self.rise, self.rise_take
        for r, more in enumerate(kid.pull):
            if more:
                sums[r] += more if sign > 0 else -more
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
        for kid in self.live:
            if kid.moving:
                self._sync(kid)
                kid.settle()

    def advance(self, step: int) -> None:
        """Let the water (or, with stalled children, the eddy) rise; the children follow when they are looked at."""
        held = self.held
        for r, more in enumerate(self.growth):
            if more:
                held[r] += more * step >> BITS
        if self.guarded:
            for r, more in enumerate(self.flow):
                self.use[r] += more * step >> BITS
        if self.stalls:
            self.eddy += step
        else:
            self.water += step

    def _next(self) -> int:
        """How far until a child's event, a waiting child, a bound, or the end of an unused reserve."""
        heap, now = (self.eddies, self.eddy) if self.stalls else (self.rises, self.water)
        while heap and heap[0][2] != heap[0][3].stamp:
            heappop(heap)
        due = heap[0][0] - now if heap else NEVER
        if self.waiting and not self.stalls:
            due = min(due, self.waiting[0][0] - now)
        flow, use = self.flow, self.use
        for r, limit in self.bounds:
            if flow[r] and not self.fullness >> r & 1:
                due = min(due, (limit - use[r]) * ONE // flow[r])
        if self.shielded:
            for r, kept in enumerate(self.reserve):
                if self.shielded >> r & 1 and flow[r]:
                    due = min(due, (kept - use[r]) * ONE // flow[r])
        return max(0, due)

    def fire(self) -> bool:
        """Pass the event on to the children whose it is, then see who is reached and what is full."""
        if rest := self.goal - (self.eddy if self.stalls else self.water):
            self.advance(rest)  # what rounding has left
        heap, now = (self.eddies, self.eddy) if self.stalls else (self.rises, self.water)
        while heap and heap[0][0] <= now:
            _, _, stamp, kid = heappop(heap)
            if stamp == kid.stamp:
                self._sync(kid)
                self._count(kid, -1)
                kid.stamp += 1
                if kid.fire():
                    self._place(kid)
                else:
                    kid.moving = False
        full = self.full() if self.bounds else 0
        if full != self.fullness or (self.shielded and self.unused() != self.shielded):
            for r, _ in self.bounds:
                if (full & ~self.fullness) >> r & 1:
                    self.record.add(Cause.CAPACITY if self.top else Cause.LIMIT, self.number, r, self.water)
            self.settle()
            return self.arrange(self.shut, self.spent)
        return self._go_on()


def fill(top: Inner, depth: int, missing: int) -> None:
    """Hand out what the E of ``top`` leaves over its children's; what is deeper comes before. ``missing``: has no capacity."""
    limits, top.top = top.bounds, True
    top.bounds = list(enumerate(top.base))
    top.record.begin(top.number)
    top.begin()
    going = top.arrange(missing, missing)
    while going:
        top.advance(top.due)
        going = top.fire()
    top.bounds, top.top = limits, False
    top.keep(depth)
