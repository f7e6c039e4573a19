"""Hierarchical DRF one task at a time, as published (Bhattacharya et al., SoCC 2013), and the variants that get it wrong.

It walks down from the root to the child with the lowest share ÷ weight and gives the leaf one task. The dynamic algorithm
has two repairs. *Rescale*: before summing its children, an inner queue scales the usage of those that are not blocked to the
smallest share among them. *Ignore*: blocked children are added as they are and do not count for that smallest share, and
resources that are used up do not count for an inner queue's dominant share.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from fractions import Fraction

from msgspec import Struct, field


class Mode(enum.Enum):
    """Which repairs are in."""

    NAIVE = "neither"
    RESCALE = "rescale, with all children"
    FULL = "both"


class Queue(Struct):
    """``task``: what one task of a leaf takes; ``most``: how many tasks it has."""

    name: str
    weight: int = 1
    task: Mapping[str, Fraction] = field(default_factory=dict)
    kids: Sequence[Queue] = ()
    most: int = 10**9
    tasks: int = 0


def hdrf(root: Queue, capacity: Mapping[str, Fraction], mode: Mode) -> dict[str, int]:
    """Tasks of every leaf when nobody can get another. Of equal shares the first child is chosen."""
    round_ = _Round(root, capacity, mode)
    while True:
        round_.look()
        if round_.blocked[root.name]:
            return {name: leaf.tasks for name, leaf in round_.leaves.items()}
        at = root
        while at.kids:
            going = [kid for kid in at.kids if not round_.blocked[kid.name]]
            at = min(going, key=lambda kid: round_.share(kid) / kid.weight)
        at.tasks += 1


class _Round:
    def __init__(self, root: Queue, capacity: Mapping[str, Fraction], mode: Mode) -> None:
        self.root, self.capacity, self.mode = root, capacity, mode
        self.leaves: dict[str, Queue] = {}
        todo = [root]
        while todo:
            queue = todo.pop()
            todo.extend(queue.kids)
            if not queue.kids:
                self.leaves[queue.name] = queue

    def look(self) -> None:
        """What is used, who is blocked, and what each queue counts for."""
        used = {
            r: sum((leaf.tasks * leaf.task.get(r, Fraction(0)) for leaf in self.leaves.values()), Fraction(0))
            for r in self.capacity
        }
        free = {r: have - used[r] for r, have in self.capacity.items()}
        self.full = {
            r
            for r in self.capacity
            if all(leaf.task.get(r, 0) > free[r] for leaf in self.leaves.values() if leaf.task.get(r, 0))
        }
        self.blocked: dict[str, bool] = {}
        self.counts: dict[str, dict[str, Fraction]] = {}
        self._look(self.root, free)

    def _look(self, queue: Queue, free: Mapping[str, Fraction]) -> None:
        if not queue.kids:
            self.blocked[queue.name] = queue.tasks >= queue.most or any(
                size > free[r] for r, size in queue.task.items()
            )
            self.counts[queue.name] = {r: queue.tasks * queue.task.get(r, Fraction(0)) for r in self.capacity}
            return
        for kid in queue.kids:
            self._look(kid, free)
        self.blocked[queue.name] = all(self.blocked[kid.name] for kid in queue.kids)
        scaled = [kid for kid in queue.kids if self.mode is not Mode.FULL or not self.blocked[kid.name]]
        low = min((self.share(kid) / kid.weight for kid in scaled), default=Fraction(0))
        total = dict.fromkeys(self.capacity, Fraction(0))
        for kid in queue.kids:
            share = self.share(kid) / kid.weight
            times = low / share if self.mode is not Mode.NAIVE and kid in scaled and share else Fraction(1)
            for r, amount in self.counts[kid.name].items():
                total[r] += times * amount
        self.counts[queue.name] = total

    def share(self, queue: Queue) -> Fraction:
        """The dominant share by what the queue counts for."""
        ignored = self.full if queue.kids and self.mode is Mode.FULL else set()
        return max(
            (amount / self.capacity[r] for r, amount in self.counts[queue.name].items() if r not in ignored),
            default=Fraction(0),
        )
