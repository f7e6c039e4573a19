"""The surplus being handed out, event by event: the fast form of what ``surplus`` defines.

A heap at each inner queue holds its children's next events, so that an event touches its own path only (``rising``).

Cost: O(depth × resources + log children) for each event: a support set is met, a sibling is reached, another resource becomes
dominant. O(queues below that can still grow) when a bound is reached, at most once a queue and resource.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from queuectl.engine.entitlement import BITS, NEAR, ONE
from queuectl.engine.rising import NEVER, Cause, Record, Riser, Vector


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
        self.rises: list[
            tuple[int, int, Riser]
        ] = []  # heap of (water at the next event, number, child), one entry a child
        self.eddies: list[tuple[int, int, Riser]] = []
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
            heappush(self.eddies, (kid.seen + kid.due * ONE // kid.speed, kid.number, kid))
        else:
            kid.seen = self.water
            heappush(self.rises, (kid.seen + (kid.due * kid.slope >> BITS), kid.number, kid))
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
            _, _, kid = heappop(heap)
            self._sync(kid)
            self._count(kid, -1)
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
