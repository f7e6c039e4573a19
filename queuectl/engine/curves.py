"""The exact answer to "which nodes": the best cost of placing every possible part of a gang into every domain.

``f_d(k)``, the least cost of ``k`` members in domain ``d``, is the min-plus convolution of its children's curves plus what
touching ``d`` itself costs. Costs are the objective's terms, lexicographic, packed into one integer: they add term by
term, and comparing the integers compares the terms in order. Domains that look alike share one curve, those without room
have none, and where only the whole is asked for, parts that cannot become it any more are dropped on the way.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat

import numpy as np
from msgspec import Struct

from queuectl.engine.fleet import MOST_GPUS, Fleet
from queuectl.engine.rooms import Tally
from queuectl.engine.sums import Sums
from queuectl.model.resources import GPU, Amounts

BUDGET = 1_000_000  # merge steps of about 0.15 µs: the most one decision may cost is about 0.15 s
_TERM = 48  # bits a term: a domain's GPUs in thousandths stay below 2^48 up to 10^11 devices
_FIELD = 20  # bits a group's count within a state, with one guard bit: up to 524,287 members of a shape


class Need(Struct, frozen=True):
    """One group of equal members as the curves see it. ``level`` is the one whose domain must hold all of them, or -1."""

    room: Tally
    requests: Amounts
    count: int
    level: int = -1

    @property
    def gpus(self) -> int:
        """GPU units a member takes."""
        return gpus(self.requests)


def gpus(requests: Amounts) -> int:
    """GPU units among these requests, bounded as the objective's terms are."""
    return next((min(amount, MOST_GPUS) for name, amount in requests if name == GPU), 0)


class Curve(Struct):
    """Cost by state (counts per group, packed), and how each state is put together from alike children."""

    number: int
    cost: dict[int, int]
    steps: list[tuple[int, dict[int, int]]]  # (child curve, state -> what that child took), in order of merging


class Objective:
    """Packs the terms of engine.md §4: domains touched, then breakage, then leftover, each coarse to fine."""

    def __init__(self, levels: int) -> None:
        self._shifts = [
            tuple(_TERM * (3 * levels - 1 - kind * levels - level) for kind in range(3)) for level in range(levels)
        ]

    def touch(self, level: int, free: int, installed: int, taken: int) -> int:
        """Cost of touching one domain with ``free`` of ``installed`` GPUs and taking ``taken`` of them."""
        touched, broken, leftover = self._shifts[level]
        left = free - taken
        cost = (1 << touched) + (left << leftover)
        return cost + (installed << broken) if 0 < installed == free and left > 0 else cost

    def term(self, kind: int, level: int, value: int) -> int:
        """One term at its place: ``kind`` 0 touched, 1 breakage, 2 leftover."""
        return value << self._shifts[level][kind]

    def ideal(self, cost: int, nodes: int) -> bool:
        """Whether a cost is that of so many nodes inside one domain of every other level, with nothing broken into."""
        levels = len(self._shifts)
        touched = (nodes << self._shifts[-1][0]) + sum(1 << touched for touched, _, _ in self._shifts[:-1])
        return cost >> _TERM * levels == touched >> _TERM * levels

    def shift(self, level: int) -> int:
        """A cost shifted right by this many bits is how many domains of the level it has touched, if none coarser."""
        return self._shifts[level][0]


@lru_cache(maxsize=64)
def objective(levels: int) -> Objective:
    """The objective of a topology with so many levels."""
    return Objective(levels)


class Curves:
    """Curves of one request, built bottom up on demand. ``exhausted`` once the budget is spent; then nothing is proven."""

    def __init__(
        self, fleet: Fleet, needs: tuple[Need, ...], free: Sums, installed: Sums, budget: int = BUDGET
    ) -> None:
        self._fleet, self._needs, self._free, self._installed = fleet, needs, free, installed
        self._gpus = [need.gpus for need in needs]
        self._objective = objective(len(fleet.starts))
        self._guards = sum(1 << (_FIELD * number + _FIELD - 1) for number in range(len(needs)))
        self.whole = sum(need.count << (_FIELD * number) for number, need in enumerate(needs))
        self._curves: list[Curve] = []
        self._by_signature: dict[object, int] = {}
        self._of: dict[tuple[int, int, bool], int] = {}  # (level, domain, only the whole is asked for) -> curve
        self._below: dict[tuple[int, int], list[tuple[int, int]]] = {}  # children with room: (domain, curve)
        self._budget = budget
        # Of several groups, a packed state says nothing about each, so none can be dropped on the way.
        self._alone = len(needs) == 1

    @property
    def exhausted(self) -> bool:
        """Whether the budget is spent."""
        return self._budget < 0

    def cost(self, level: int, domain: int) -> int | None:
        """Least cost of the whole request inside one domain, the domain itself included; None when it does not fit."""
        return self._curves[self._curve(level, domain, final=self._alone)].cost.get(self.whole)

    def rows(self, level: int, domain: int) -> list[dict[int, int]]:
        """The placement behind ``cost``: per group, row -> members."""
        found: list[dict[int, int]] = [{} for _ in self._needs]
        self._unfold(level, domain, self.whole, found, final=self._alone)
        return found

    def _curve(self, level: int, domain: int, *, final: bool = False) -> int:
        """The curve of a domain; ``final``: of nothing but the whole."""
        known = self._of.get((level, domain, final))
        if known is None:
            if level == len(self._fleet.starts) - 1:
                ((_, known),) = self._leaves(range(domain, domain + 1))
            else:
                known = self._inner(level, domain, final=final)
            self._of[level, domain, final] = known
        return known

    def _children(self, level: int, domain: int) -> list[tuple[int, int]]:
        """The domains one level below that have room for anything, with their curves."""
        found = self._below.get((level, domain))
        if found is None:
            rows, lowest = self._fleet.rows_of(level, domain), len(self._fleet.starts) - 1
            if level + 1 == lowest:
                found = self._leaves(rows)
            elif rows:
                below = self._fleet.domain[level + 1]
                first, last = int(below[rows.start]), int(below[rows.stop - 1])
                room = sum(need.room.sums[level + 1][first : last + 1] for need in self._needs)
                found = [
                    (first + child, self._curve(level + 1, first + child)) for child in np.flatnonzero(room).tolist()
                ]
            else:
                found = []
            self._below[level, domain] = found
        return found

    def _leaves(self, rows: range) -> list[tuple[int, int]]:
        """The nodes that have room for anything, with their curves."""
        part = slice(rows.start, rows.stop)
        rooms = zip(*(need.room.rows[part].tolist() for need in self._needs), strict=True)
        free, installed = self._free.rows[part].tolist(), self._installed.rows[part].tolist()
        return [
            (row, self._leaf(row, room, idle, whole))
            for row, room, idle, whole in zip(rows, rooms, free, installed, strict=True)
            if any(room)
        ]

    def _leaf(self, row: int, rooms: tuple[int, ...], free: int, installed: int) -> int:
        # Several groups compete for the node's resources, so two nodes are alike only if all that is free is equal.
        vector = tuple(int(column[row]) for column in self._fleet.free.values()) if len(rooms) > 1 else ()
        signature = (rooms, free, installed, vector)
        if (known := self._by_signature.get(signature)) is not None:
            return known
        level = len(self._fleet.starts) - 1
        cost = {0: 0}
        for state in self._packings(row, rooms):
            cost[state] = self._objective.touch(level, free, installed, self._taken(state))
        return self._add(signature, self._together(level, cost, named=True), [])

    def _packings(self, row: int, rooms: tuple[int, ...]) -> Sequence[int]:
        """All states but 0 that fit a node together."""
        if self._alone:
            self._budget -= 1 + min(rooms[0], self._needs[0].count)
            return range(1, 1 + min(rooms[0], self._needs[0].count))
        found = [0]
        free = {name: int(column[row]) for name, column in self._fleet.free.items()}
        for number, need in enumerate(self._needs):
            wider: list[int] = []
            for state in found:
                left = dict(free)
                for other in range(number):
                    taken = self._part(state, other)
                    for name, amount in self._needs[other].requests:
                        left[name] -= amount * taken
                most = min(rooms[number], need.count)
                if state:
                    most = min(most, *(left[name] // amount for name, amount in need.requests))
                wider.extend(state + (count << (_FIELD * number)) for count in range(most + 1))
            self._budget -= len(wider)
            found = wider
        return found[1:]

    def _inner(self, level: int, domain: int, *, final: bool) -> int:
        children = [child for _, child in self._children(level, domain)]
        free = installed = 0
        named = True
        if level >= 0:
            free, installed = int(self._free.sums[level][domain]), int(self._installed.sums[level][domain])
            named = bool(self._fleet.named[level][domain])
        alike = Counter(child for child in children if len(self._curves[child].cost) > 1)
        signature = (level, free, installed, named, final, tuple(sorted(alike.items())))
        if (known := self._by_signature.get(signature)) is not None:
            return known
        cost, steps = {0: 0}, []
        most = self._touched(alike)
        # More copies of a child than can be touched change nothing.
        order = [child for child, copies in sorted(alike.items()) for _ in range(min(copies, most))]
        floors = self._floors([max(self._curves[child].cost) for child in order], most) if final else repeat(None)
        for child, floor in zip(order, floors, strict=False):
            if self.exhausted:
                break
            cost, choice = self._merge(level + 1, cost, self._curves[child].cost, floor)
            steps.append((child, choice))
        if level >= 0:
            for state in cost:
                if state:
                    cost[state] += self._objective.touch(level, free, installed, self._taken(state))
            cost = self._together(level, cost, named=named)
        return self._add(signature, cost, steps)

    def _together(self, level: int, cost: dict[int, int], *, named: bool) -> dict[int, int]:
        """Only the states in which a group that must share a domain of this level is here whole or not at all."""
        for number, need in enumerate(self._needs):
            if need.level == level:
                whole = (0, need.count) if named else (0,)
                cost = {state: price for state, price in cost.items() if self._part(state, number) in whole}
        return cost

    def _touched(self, alike: Counter[int]) -> int:
        """How many children a best placement touches at most: of equal members the fewest that hold them all."""
        members = sum(need.count for need in self._needs)
        if len(self._needs) > 1:
            return members  # each takes one at least
        children = 0
        for room, child in sorted(((max(self._curves[child].cost), child) for child in alike), reverse=True):
            enough = min(alike[child], -(-members // room))
            children, members = children + enough, members - enough * room
            if members <= 0:
                break
        return children

    def _floors(self, rooms: list[int], most: int) -> list[list[int]]:
        """After each child, by the number of children touched: the least state that can still become the whole.

        With ``most`` children at most, and the roomiest of those to come. Above ``most`` there is none.
        """
        floors = []
        roomiest = [0] * most  # of the children to come, largest last
        for room in reversed(rooms):
            floors.append(
                [*(self.whole - sum(roomiest[touched:]) for touched in range(most)), self.whole, self.whole + 1]
            )
            insort(roomiest, room)
            del roomiest[0]
        return floors[::-1]

    def _merge(
        self, level: int, one: dict[int, int], other: dict[int, int], floors: list[int] | None
    ) -> tuple[dict[int, int], dict[int, int]]:
        """The states that both make together, and what ``other``, a domain of this level, takes in each.

        Those below the ``floors``, by the number of domains they have touched, are dropped.
        """
        shift, total, choice = self._objective.shift(level), dict(one), dict[int, int]()
        if floors:
            total = {state: cost for state, cost in one.items() if state >= floors[cost >> shift]}
        limit, guards, floor = self.whole | self._guards, self._guards, 0
        parts = [(taken, price) for taken, price in other.items() if taken]
        for state, cost in one.items():
            if floors:
                floor = floors[(cost >> shift) + 1]
            for taken, price in parts:
                reached = state + taken
                # The guard bit of a group survives the subtraction exactly when its count is not above the whole.
                if reached >= floor and (limit - reached) & guards == guards:
                    best = total.get(reached)
                    if best is None or cost + price < best:
                        total[reached] = cost + price
                        choice[reached] = taken
        self._budget -= len(one) * len(other)
        return total, choice

    def _unfold(self, level: int, domain: int, state: int, found: list[dict[int, int]], *, final: bool) -> None:
        if level == len(self._fleet.starts) - 1:
            for number, rows in enumerate(found):
                if count := self._part(state, number):
                    rows[domain] = count
            return
        curve = self._curves[self._curve(level, domain, final=final)]
        taken: dict[int, list[int]] = {}
        for child, choice in reversed(curve.steps):
            if part := choice.get(state):
                taken.setdefault(child, []).append(part)
                state -= part
        for below, child in self._children(level, domain):
            if parts := taken.get(child):
                self._unfold(level + 1, below, parts.pop(), found, final=False)

    def _part(self, state: int, number: int) -> int:
        return state >> (_FIELD * number) & ((1 << _FIELD) - 1)

    def _taken(self, state: int) -> int:
        if self._alone:
            return self._gpus[0] * state
        return sum(gpus * self._part(state, number) for number, gpus in enumerate(self._gpus) if gpus)

    def _add(self, signature: object, cost: dict[int, int], steps: list[tuple[int, dict[int, int]]]) -> int:
        curve = Curve(len(self._curves), cost, steps)
        self._curves.append(curve)
        self._by_signature[signature] = curve.number
        return curve.number
