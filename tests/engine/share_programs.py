"""Linear programs that confirm the rounds of the exact fill, and another way to divide a flat pool; solved by HiGHS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
from scipy.optimize import linprog

from queuectl.engine.claims import Claim
from tests.engine.fairshare_exact import Fill, Queue, Step

Row = dict[int, float]


class Program:
    """Maximise the sum of some variables; rows are sparse."""

    def __init__(self) -> None:
        self.bounds: list[tuple[float, float | None]] = []
        self.most: list[tuple[Row, float]] = []
        self.equal: list[tuple[Row, float]] = []

    def variable(self, high: float | None = None) -> int:
        """A new one, from 0 to ``high``."""
        self.bounds.append((0.0, high))
        return len(self.bounds) - 1

    def best(self, wanted: Sequence[int]) -> list[float]:
        """The values of all variables in an optimum."""
        goal = np.zeros(len(self.bounds))
        goal[list(wanted)] = -1.0
        found = linprog(goal, *self._matrix(self.most), *self._matrix(self.equal), bounds=self.bounds, method="highs")
        assert found.status == 0, found.message
        return [float(value) for value in found.x]

    def _matrix(self, rows: list[tuple[Row, float]]) -> tuple[np.ndarray | None, np.ndarray | None]:
        if not rows:
            return None, None
        matrix = np.zeros((len(rows), len(self.bounds)))
        for number, (row, _) in enumerate(rows):
            for column, value in row.items():
                matrix[number, column] += value
        return matrix, np.array([right for _, right in rows])


def plus(*rows: Row) -> Row:
    """The sum of sparse rows."""
    total: Row = {}
    for row in rows:
        for column, value in row.items():
            total[column] = total.get(column, 0.0) + value
    return total


def times(row: Row, factor: float) -> Row:
    """A sparse row, scaled."""
    return {column: value * factor for column, value in row.items()}


class Longest:
    """How far a step may go at most, written from the meaning of a round; the answer is what each moving support set gains.

    Siblings that rise together gain the same level, none passes one that waits, no other resource becomes dominant, and
    budget, limits, guarantees and demand are kept. Everything in parts of the capacity.
    """

    def __init__(self, fill: Fill, step: Step) -> None:
        self.fill, self.step = fill, step
        self.resources = [r for r in fill.resources if fill.capacity[r]]
        self.program = Program()
        self.sets = {id(one): self.program.variable(float(1 - one.progress)) for _, one, _ in step.growth}
        self.rise = self._rises()
        for queue in fill.top.below():
            if any(self.rise[queue.name].values()):
                self._keep(queue)
                self._order(queue)

    def gains(self) -> list[float]:
        """In the order of ``step.growth``."""
        found = self.program.best(list(self.sets.values()))
        return [found[self.sets[id(one)]] for _, one, _ in self.step.growth]

    def _rises(self) -> dict[str, dict[str, Fraction]]:
        """What each queue gains in the step. Only the signs and the order of these matter here: who moves, what leads."""
        rises = {queue.name: dict.fromkeys(self.resources, Fraction(0)) for queue in self.fill.top.below()}
        for queue in self.fill.top.below():
            inside = {one.name for one in queue.below()}
            for owner, one, growth in self.step.growth:
                if owner.name in inside:
                    for r in self.resources:
                        rises[queue.name][r] += growth * one.ray[r] / self.fill.capacity[r]
        return rises

    def _gain(self, queue: Queue, r: str) -> Row:
        """What a queue gains of a resource, in terms of the variables."""
        if queue.kids:
            return plus(*(self._gain(kid, r) for kid in queue.kids))
        have = self.fill.capacity[r]
        return {self.sets[id(one)]: float(one.ray[r] / have) for one in queue.sets if id(one) in self.sets}

    def _draw(self, queue: Queue, r: str) -> Row:
        """The part of it that is not in the guarantees below already."""
        if not queue.kids:
            return self._gain(queue, r)
        return plus(*(self._draw(kid, r) for kid in queue.kids if not self._unused(kid, r)))

    def _unused(self, queue: Queue, r: str) -> Fraction:
        kept = min(queue.g[r], queue.e[r]) if queue.kids and queue is not self.fill.top else Fraction(0)
        return max(Fraction(0), kept - self.fill.used[queue.name][r])

    def _keep(self, queue: Queue) -> None:
        for r in self.resources:
            have, used = self.fill.capacity[r], self.fill.used[queue.name][r]
            ends = [queue.limit[r]] if r in queue.limit else []
            ends += [queue.e[r]] if queue is self.fill.top else []
            ends += [used + self._unused(queue, r)] if self._unused(queue, r) else []
            draw = self._draw(queue, r)
            self.program.most += [(draw, max(0.0, float((end - used) / have))) for end in ends if draw]

    def _order(self, queue: Queue) -> None:
        program, fill = self.program, self.fill
        own = [self.sets[id(one)] for one in queue.sets if id(one) in self.sets]
        program.equal += [({own[0]: 1.0, other: -1.0}, 0.0) for other in own[1:]]
        if queue is not fill.top:
            lead = self._lead(queue)
            for r in fill.counting(queue):
                gap = self._surplus(queue, lead) - self._surplus(queue, r)
                row = plus(self._gain(queue, r), times(self._gain(queue, lead), -1.0))
                if r != lead and any(value > 0 for value in row.values()):
                    program.most.append((row, float(gap)))
        if queue.name in self.step.members:
            members, stalled = self.step.members[queue.name]
            rows = [self._level(kid, stalled) for kid in members]
            program.equal += [(plus(rows[0], times(row, -1.0)), 0.0) for row in rows[1:]]
            if not stalled:
                level = fill.level(members[0])
                waiting = [
                    kid for kid in fill.growing(queue) if kid.priority == members[0].priority and kid not in members
                ]
                program.most += [(rows[0], float(fill.level(kid) - level)) for kid in waiting]

    def _level(self, queue: Queue, stalled: bool) -> Row:
        """What a queue gains of level; of one whose level stands still, what it gains of share for its weight."""
        rise = self.rise[queue.name]
        r = max(self.resources, key=lambda one: rise[one]) if stalled else self._lead(queue)
        return times(self._gain(queue, r), 1 / float(queue.weight))

    def _surplus(self, queue: Queue, r: str) -> Fraction:
        return (self.fill.held[queue.name][r] - queue.e[r]) / self.fill.capacity[r]

    def _lead(self, queue: Queue) -> str:
        """The resource that the level is measured by: dominant now, and of those the fastest."""
        counting = self.fill.counting(queue)
        top = max(self._surplus(queue, r) for r in counting)
        return max((r for r in counting if self._surplus(queue, r) == top), key=lambda r: self.rise[queue.name][r])


def flat_max_min(capacity: Mapping[str, int], claims: Sequence[Claim]) -> dict[str, float]:
    """The part of its demand that each queue of a flat pool gets: weighted max–min of dominant shares, as a series of programs.

    Raise the lowest share as far as it goes, find who cannot have more than that, fix them, and go on with the rest.
    """
    demand = {claim.name: dict(claim.demand[0]) for claim in claims}
    level = {
        claim.name: max(amount / capacity[r] for r, amount in claim.demand[0]) / claim.weight for claim in claims
    }  # of all that a queue asks for
    fixed: dict[str, float] = {}

    def solve(low: float | None, one: str | None) -> list[float]:
        program = Program()
        parts = {name: program.variable(1.0) for name in demand}
        common = program.variable()
        for r, have in capacity.items():
            program.most.append(({parts[name]: wants.get(r, 0) / have for name, wants in demand.items()}, 1.0))
        for name, part in parts.items():
            if name in fixed:
                program.equal.append(({part: 1.0}, fixed[name]))
            elif low is None:
                program.most.append(({part: -level[name], common: 1.0}, 0.0))
            else:
                program.most.append(({part: -level[name]}, -low + 1e-12))
        return program.best([common if one is None else parts[one]])

    names = list(demand)
    while len(fixed) < len(names):
        low = solve(None, None)[-1]
        for name in [name for name in names if name not in fixed]:
            if solve(low, name)[names.index(name)] * level[name] <= low + 1e-9:
                fixed[name] = low / level[name]
    return fixed
