"""The fair shares in exact rationals, written from the definition and for reading; slow, and independent of the fast ones.

After every event everything is worked out anew from what the leaves hold: who may grow, how fast, and when the next event
comes. ``rule`` chooses the variant of the surplus: max–min (ours), or all siblings at one rate, which oracle H6 tells apart.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from msgspec import Struct, field
from msgspec.structs import replace

from queuectl.engine.claims import Claim

Vector = dict[str, Fraction]
ZERO = Fraction(0)


class Rule(enum.Enum):
    """How siblings rise."""

    MAX_MIN = "the lowest level first, the others wait"
    EQUAL_RATE = "all at one rate of their levels, whatever the levels are"


class Set(Struct):
    """The demand of one support set: ``ray`` is what E does not cover of it, ``progress`` the part of the ray that is held."""

    demand: Vector
    ray: Vector = field(default_factory=dict)
    progress: Fraction = ZERO


class Queue(Struct):
    """A node of the tree, the root included."""

    name: str
    weight: Fraction = Fraction(1)
    priority: int = 0
    kids: list[Queue] = field(default_factory=list)
    quota: Vector = field(default_factory=dict)
    limit: Vector = field(default_factory=dict)
    guarantee: Vector = field(default_factory=dict)
    sets: list[Set] = field(default_factory=list)
    g: Vector = field(default_factory=dict)  # G
    c: Vector = field(default_factory=dict)  # C
    e: Vector = field(default_factory=dict)  # E
    f: Vector = field(default_factory=dict)  # F

    def below(self) -> Iterator[Queue]:
        """This queue and all below it."""
        yield self
        for kid in self.kids:
            yield from kid.below()


class Tree:
    """A pool's queues. After ``divide`` every queue has its E and F."""

    def __init__(
        self, capacity: Mapping[str, int], claims: Iterable[Claim], weights: Mapping[str, Fraction] | None = None
    ) -> None:
        self.capacity = {resource: Fraction(amount) for resource, amount in capacity.items()}
        self.resources = sorted(capacity)
        self.root = Queue("")
        self.queues = {claim.name: self._queue(claim) for claim in claims}
        for name, weight in (weights or {}).items():
            self.queues[name].weight = weight
        for claim in claims:
            parent = self.root if claim.parent is None else self.queues[claim.parent]
            parent.kids.append(self.queues[claim.name])

    def _vector(self, listed: Iterable[tuple[str, int]]) -> Vector:
        vector = dict.fromkeys(self.resources, ZERO)
        for resource, amount in listed:
            if resource in vector:
                vector[resource] += amount
        return vector

    def _queue(self, claim: Claim) -> Queue:
        return Queue(
            claim.name,
            Fraction(claim.weight),
            claim.priority,
            quota=self._vector(claim.quota),
            limit={resource: Fraction(amount) for resource, amount in claim.limit if resource in self.capacity},
            guarantee=self._vector(claim.guarantee),
            sets=[Set(self._vector(vector)) for vector in claim.demand],
        )

    def depths(self) -> dict[str, int]:
        """How many levels below the root each queue is."""
        found: dict[str, int] = {}

        def visit(queue: Queue, depth: int) -> None:
            found[queue.name] = depth
            for kid in queue.kids:
                visit(kid, depth + 1)

        visit(self.root, 0)
        return found

    def entitled(self) -> Tree:
        """Phase 1, and the rays that phase 2 follows."""
        for kid in self.root.kids:
            self._ask(kid)
        self.root.e = dict(self.capacity)
        self._give(self.root)
        for queue in self.queues.values():
            for one in queue.sets:
                total = {r: sum((other.demand[r] for other in queue.sets), ZERO) for r in self.resources}
                one.ray = {
                    r: one.demand[r] - queue.e[r] * one.demand[r] / total[r] if total[r] > queue.e[r] else ZERO
                    for r in self.resources
                }
                if not any(one.ray.values()):
                    one.progress = Fraction(1)
        return self

    def divide(self, rule: Rule = Rule.MAX_MIN) -> Tree:
        """Both phases."""
        self.entitled()
        for top in self.tops(self.root):
            Fill(self, top, rule).run()
        for queue in self.root.below():
            queue.f = self.reserved(queue)
        for queue in self.queues.values():
            if queue.kids:
                for r in self.resources:
                    held = sum((self.held(one)[r] for one in queue.below() if not one.kids), ZERO)
                    queue.e[r] = max(min(queue.e[r], held), min(queue.g[r], queue.e[r]))
        return self

    def tops(self, queue: Queue) -> Iterator[Queue]:
        """Inner queues, deepest first."""
        for kid in queue.kids:
            yield from self.tops(kid)
        if queue.kids:
            yield queue

    # ---- phase 1

    def _ask(self, queue: Queue) -> None:
        for kid in queue.kids:
            self._ask(kid)
        for r in self.resources:
            own = sum((one.demand[r] for one in queue.sets), ZERO)
            demand = sum((kid.c[r] for kid in queue.kids), ZERO) if queue.kids else own
            queue.g[r] = max(queue.guarantee[r], sum((kid.g[r] for kid in queue.kids), ZERO))
            queue.c[r] = max(min(demand, queue.limit.get(r, demand)), queue.g[r])

    def _give(self, queue: Queue) -> None:
        for r in self.resources:
            kids = queue.kids
            gs = water_fill(queue.e[r], [kid.g[r] for kid in kids], [kid.g[r] for kid in kids])
            rest = water_fill(
                queue.e[r] - sum(gs, ZERO),
                [kid.c[r] - floor for kid, floor in zip(kids, gs, strict=True)],
                [max(kid.quota[r] - floor, ZERO) for kid, floor in zip(kids, gs, strict=True)],
            )
            for kid, floor, more in zip(kids, gs, rest, strict=True):
                kid.e[r] = floor + more
        for kid in queue.kids:
            self._give(kid)

    # ---- what is held

    def held(self, queue: Queue) -> Vector:
        """Σ of what the leaves below hold."""
        if queue.kids:
            below = [self.held(kid) for kid in queue.kids]
            return {r: sum((one[r] for one in below), ZERO) for r in self.resources}
        return {r: queue.e[r] + sum((one.progress * one.ray[r] for one in queue.sets), ZERO) for r in self.resources}

    def used(self, queue: Queue) -> Vector:
        """What counts against the budget and limit of a queue: what is held below it, or kept for guarantees."""
        if not queue.kids:
            return self.held(queue)
        below = [self.reserved(kid) for kid in queue.kids]
        return {r: sum((one[r] for one in below), ZERO) for r in self.resources}

    def reserved(self, queue: Queue) -> Vector:
        """The same, and what this queue itself keeps for its guarantee."""
        used = self.used(queue)
        if not queue.kids or queue is self.root:
            return used
        return {r: max(used[r], min(queue.g[r], queue.e[r])) for r in self.resources}


def water_fill(amount: Fraction, room: list[Fraction], weights: list[Fraction]) -> list[Fraction]:
    """min(room, λ · weight) with the largest λ ≤ 1 whose sum is at most ``amount``."""
    pour = [min(pair) for pair in zip(room, weights, strict=True)]
    if sum(pour, ZERO) <= amount:
        return pour
    # The sum grows along straight lines that bend where somebody's room ends: find the piece in which it meets the amount.
    bends = sorted({have / weight for have, weight in zip(room, weights, strict=True) if weight})
    low = ZERO
    for high in [bend for bend in bends if bend < 1] + [Fraction(1)]:
        filled = sum((min(have, high * weight) for have, weight in zip(room, weights, strict=True)), ZERO)
        if filled >= amount:
            before = sum((min(have, low * weight) for have, weight in zip(room, weights, strict=True)), ZERO)
            level = low + (high - low) * (amount - before) / (filled - before) if filled > before else low
            return [min(have, level * weight) for have, weight in zip(room, weights, strict=True)]
        low = high
    raise AssertionError("the sum at λ = 1 is above the amount")


class Step(Struct):
    """What happens between two events of a fill, as a linear program may check it.

    ``growth``: of every support set that moves, how much of its ray it gains until the event. ``members``: of every inner
    queue that moves, the children that rise or (``stalled``) catch up.
    """

    top: Queue
    growth: list[tuple[Queue, Set, Fraction]]
    members: dict[str, tuple[list[Queue], bool]]
    length: Fraction


class Fill:
    """The fill of one top."""

    def __init__(self, tree: Tree, top: Queue, rule: Rule = Rule.MAX_MIN) -> None:
        self.tree, self.top, self.rule = tree, top, rule
        self.resources, self.capacity = tree.resources, tree.capacity
        self.members: dict[str, tuple[list[Queue], bool]] = {}

    def run(self) -> None:
        """All steps."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[Step]:
        """Step by step: each is given before it is taken."""
        while True:
            self.survey()
            self.members = {}
            rates = dict(self.rate(self.top)[1])
            if not rates:
                return
            speeds = [
                (queue, one, rates[id(one)]) for queue in self.top.below() for one in queue.sets if id(one) in rates
            ]
            length = self.first_event(speeds)
            yield Step(self.top, [(queue, one, speed * length) for queue, one, speed in speeds], self.members, length)
            for _, one, speed in speeds:
                one.progress += speed * length

    # ---- who may grow

    def survey(self) -> None:
        """What is full at present, as seen by each queue below the top."""
        self.held = {queue.name: self.tree.held(queue) for queue in self.top.below()}
        self.used = {queue.name: self.tree.used(queue) for queue in self.top.below()}
        self.spent: dict[str, set[str]] = {}  # of which the top has nothing left for this queue
        self.closed: dict[str, set[str]] = {}  # the same, or a limit at or above the queue is reached
        budget = {r for r in self.resources if self.used[self.top.name][r] >= self.top.e[r] or not self.capacity[r]}
        self._see(self.top, budget, set(budget))

    def _see(self, queue: Queue, spent: set[str], closed: set[str]) -> None:
        used = self.used[queue.name]
        if queue is not self.top and queue.kids:
            keeps = {r for r in self.resources if used[r] < min(queue.g[r], queue.e[r])}
            spent, closed = spent - keeps, closed - keeps
        closed = closed | {r for r, limit in queue.limit.items() if used[r] >= limit}
        self.spent[queue.name], self.closed[queue.name] = spent, closed
        for kid in queue.kids:
            self._see(kid, spent, closed)

    def free(self, queue: Queue) -> list[Set]:
        """The support sets of a leaf that may grow."""
        closed = self.closed[queue.name]
        return [one for one in queue.sets if one.progress < 1 and not any(one.ray[r] for r in closed)]

    # ---- how fast

    def level(self, queue: Queue) -> Fraction:
        """Dominant surplus share ÷ weight."""
        return max(
            (self.held[queue.name][r] - queue.e[r]) / self.capacity[r] / queue.weight for r in self.counting(queue)
        )

    def counting(self, queue: Queue) -> list[str]:
        """The resources that count for the level of a queue."""
        spent = self.spent[queue.name] if queue.kids else set()
        return [r for r in self.resources if self.capacity[r] and r not in spent]

    def climb(self, queue: Queue, rate: Vector) -> Fraction:
        """How fast the level grows along ``rate``: the fastest of the resources that are dominant now."""
        level = self.level(queue)
        return max(
            rate[r] / self.capacity[r] / queue.weight
            for r in self.counting(queue)
            if (self.held[queue.name][r] - queue.e[r]) / self.capacity[r] / queue.weight == level
        )

    def rate(self, queue: Queue) -> tuple[Vector, list[tuple[int, Fraction]]]:
        """The direction in which a queue grows, its largest share 1, and the speed of each support set along it."""
        if not queue.kids:
            free = self.free(queue)
            vector = {r: sum((one.ray[r] for one in free), ZERO) for r in self.resources}
            return self._normal(vector, [(id(one), Fraction(1)) for one in free])
        rates = {kid.name: self.rate(kid) for kid in queue.kids if kid.weight}
        moving = [kid for kid in queue.kids if kid.weight and rates[kid.name][1]]
        if not moving:
            return dict.fromkeys(self.resources, ZERO), []
        band = max(kid.priority for kid in moving)
        moving = [kid for kid in moving if kid.priority == band]
        if self.rule is Rule.MAX_MIN:
            low = min(self.level(kid) for kid in moving)
            moving = [kid for kid in moving if self.level(kid) == low]
        climbs = {kid.name: self.climb(kid, rates[kid.name][0]) for kid in moving}
        stalled = [kid for kid in moving if not climbs[kid.name]]
        members = stalled or moving
        self.members[queue.name] = members, bool(stalled)
        vector, speeds = dict.fromkeys(self.resources, ZERO), []
        for kid in members:
            times = kid.weight if stalled else 1 / climbs[kid.name]
            for r in self.resources:
                vector[r] += times * rates[kid.name][0][r]
            speeds += [(one, times * speed) for one, speed in rates[kid.name][1]]
        return self._normal(vector, speeds)

    def _normal(self, vector: Vector, speeds: list[tuple[int, Fraction]]) -> tuple[Vector, list[tuple[int, Fraction]]]:
        if not speeds:
            return vector, speeds
        largest = max(vector[r] / self.capacity[r] for r in self.resources if self.capacity[r])
        return {r: more / largest for r, more in vector.items()}, [(one, speed / largest) for one, speed in speeds]

    # ---- when

    def first_event(self, speeds: list[tuple[Queue, Set, Fraction]]) -> Fraction:
        """The time of the earliest event."""
        growth: dict[str, Vector] = {}
        draw: dict[str, Vector] = {}
        moving = {id(one): speed for _, one, speed in speeds}
        self._grow(self.top, moving, growth, draw)
        times = [(1 - one.progress) / speed for _, one, speed in speeds]
        for queue in self.top.below():
            name = queue.name
            for r in self.resources:
                if draw[name][r]:
                    ends = [queue.limit[r]] if r in queue.limit else []
                    if queue is self.top:
                        ends.append(queue.e[r])
                    elif queue.kids:
                        ends.append(min(queue.g[r], queue.e[r]))
                    times += [(end - self.used[name][r]) / draw[name][r] for end in ends if end > self.used[name][r]]
            if queue is not self.top and queue.weight and any(growth[name].values()):
                times += self._overtaking(queue, growth[name])
            times += self._reaching(queue, growth)
        return min(times)

    def _grow(
        self, queue: Queue, moving: dict[int, Fraction], growth: dict[str, Vector], draw: dict[str, Vector]
    ) -> Vector:
        """Growth of what is held, and of what counts as used, of all queues; the part of the latter that the parent sees."""
        for kid in queue.kids:
            draw.setdefault(queue.name, dict.fromkeys(self.resources, ZERO))
            seen = self._grow(kid, moving, growth, draw)
            for r in self.resources:
                draw[queue.name][r] += seen[r]
        if not queue.kids:
            own = {r: sum((moving.get(id(one), ZERO) * one.ray[r] for one in queue.sets), ZERO) for r in self.resources}
            growth[queue.name] = draw[queue.name] = own
            return own
        growth[queue.name] = {r: sum((growth[kid.name][r] for kid in queue.kids), ZERO) for r in self.resources}
        if queue is self.top:
            return draw[queue.name]
        return {
            r: ZERO if self.used[queue.name][r] < min(queue.g[r], queue.e[r]) else draw[queue.name][r]
            for r in self.resources
        }

    def _overtaking(self, queue: Queue, growth: Vector) -> list[Fraction]:
        shares = {r: (self.held[queue.name][r] - queue.e[r]) / self.capacity[r] for r in self.counting(queue)}
        rates = {r: growth[r] / self.capacity[r] for r in shares}
        top = max(shares.values())
        fastest = max(rates[r] for r in shares if shares[r] == top)
        return [(top - shares[r]) / (rates[r] - fastest) for r in shares if shares[r] < top and rates[r] > fastest]

    def _reaching(self, queue: Queue, growth: dict[str, Vector]) -> list[Fraction]:
        """Times until the members reach siblings that wait above them."""
        if queue.name not in self.members or self.rule is not Rule.MAX_MIN:
            return []
        members, stalled = self.members[queue.name]
        one = members[0]
        if stalled or not any(growth[one.name].values()):
            return []
        climb, level = self.climb(one, growth[one.name]), self.level(one)
        above = [self.level(kid) for kid in self.growing(queue) if kid.priority == one.priority]
        return [(other - level) / climb for other in above if other > level]

    def growing(self, queue: Queue) -> list[Queue]:
        """The children that may grow."""
        return [kid for kid in queue.kids if kid.weight and (self.growing(kid) if kid.kids else self.free(kid))]


def collapsed(capacity: Mapping[str, int], claims: Iterable[Claim]) -> Tree:
    """The variant that flattens the tree: each leaf's weight is the product of its path's parts of their siblings' weights."""
    claims = list(claims)
    parts: dict[str, Fraction] = {}
    for claim in claims:
        siblings = sum(one.weight for one in claims if one.parent == claim.parent)
        parts[claim.name] = Fraction(claim.weight, siblings) if siblings else ZERO
    parents = {claim.name: claim.parent for claim in claims}
    weights: dict[str, Fraction] = {}
    leaves = [claim for claim in claims if claim.name not in parents.values()]
    for leaf in leaves:
        weight = Fraction(1)
        at: str | None = leaf.name
        while at is not None:
            weight, at = weight * parts[at], parents[at]
        weights[leaf.name] = weight
    return Tree(capacity, [replace(leaf, parent=None) for leaf in leaves], weights).divide()
