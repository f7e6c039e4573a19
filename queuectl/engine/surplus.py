"""Phase 2 of the fair shares: what nobody is entitled to, divided by max–min hierarchical dominant resource fairness.

Every inner queue, deepest first and the root last, is once the *top*: it hands out what its E leaves over its children's E.

* A leaf rises along its *rays*: for each support set the demand that its E does not cover.
* The *level* of a queue is its dominant share of the surplus ÷ its weight. Of the siblings in the highest priority band that
  can still grow, those at the lowest level rise together, and the others wait until they are reached; then the next band.
* The level of an inner queue ignores resources of which the top has nothing left (the second repair of H-DRF).
* A support set stops when its demand is met, or when a resource it needs cannot be had: the top has nothing left, or a
  limit on the way to it is reached. Limits block; they do not bend the ray. What a queue guarantees and nobody uses counts as
  held, and growth below that queue uses it first.
* A queue of weight 0 gets no surplus.

How it is computed is in ``rising`` and ``filling``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

from queuectl.engine.decay import surplus_weights
from queuectl.engine.entitlement import BITS, NEAR, ONE, Node, whole
from queuectl.engine.filling import Inner, fill
from queuectl.engine.rising import Cause, Leaf, Record, Riser, Vector


class Surplus:
    """The surplus on a tree that has its entitlements; writes F (``fair``) and E as it stands after it into the tree."""

    def __init__(self, nodes: Sequence[Node], capacity: Sequence[int]) -> None:
        self.nodes, self.capacity = nodes, capacity
        self.record = Record()
        self._missing = sum(1 << r for r, have in enumerate(capacity) if not have)
        # Of each queue the part of its siblings' weights, in 2^-128ths, and its reciprocal.
        self._weights, self._levels = [ONE] * len(nodes), [ONE] * len(nodes)
        self._weigh(nodes[0], 0)
        self._risers: dict[int, Riser] = {}
        for node in reversed(nodes):  # children before their parents
            self._risers[node.number] = self._riser(node)
        self._run({node.number for node in nodes})

    def again(self, changed: AbstractSet[int]) -> None:
        """The same after the demand or E of these queues has changed: only fills with one of them below, or at their top.

        Whole units come out as from the start; of the rest the last digit may depend on what was computed before.
        """
        dirty = set(changed)
        for number in changed:
            node = self.nodes[number]
            riser = self._risers[number]
            if isinstance(riser, Inner):
                riser.base = self._parts(node.budget)
                riser.reserve = self._parts(_kept(node))
            else:
                self._risers[number] = self._riser(node)
            while (above := node.parent) is not None and above.number not in dirty:
                dirty.add(above.number)
                node = above
        for number in dirty:
            riser = self._risers[number]
            if isinstance(riser, Inner):
                riser.kids = [self._risers[kid.number] for kid in self.nodes[number].kids]
        self._run(dirty)

    def _run(self, dirty: AbstractSet[int]) -> None:
        for number in sorted(dirty, reverse=True):  # children before their parents
            node, riser = self.nodes[number], self._risers[number]
            if isinstance(riser, Inner):
                for kid in node.kids:
                    if kid.number not in dirty:
                        self._risers[kid.number].restore(kid.depth)
                fill(riser, node.depth, self._missing)
        for node in reversed(self.nodes):
            node.fair = self._fair(node)
        self._lower(self.nodes[0])

    def frozen(self, leaf: Node) -> bool:
        """Whether a leaf was stopped before it had what it wanted, with less than what it wants now."""
        riser = self._risers[leaf.number]
        if not isinstance(riser, Leaf) or ONE in riser.progress:
            return False
        return all(amount * ONE > held for amount, held in zip(leaf.total, leaf.fair, strict=True) if amount)

    def stops(self, leaf: Node) -> Iterator[tuple[Cause, str, int]]:
        """Why each support set of a leaf gets no more: the cause, the queue whose it is, the resource or -1. O(depth)."""
        riser = self._risers[leaf.number]
        if isinstance(riser, Leaf):
            for progress, (needs, _) in zip(riser.progress, riser.rays, strict=True):
                yield (Cause.MET, leaf.name, -1) if progress == ONE else self._stop(leaf, needs)

    def _stop(self, leaf: Node, needs: int) -> tuple[Cause, str, int]:
        path = [leaf]
        while (above := path[-1].parent) is not None:
            path.append(above)
        for node in path:
            if not self._weights[node.number]:
                return Cause.NO_WEIGHT, node.name, -1
        for node in path:
            closed = self._risers[node.number].full()
            if closed := needs & (closed if node.claim else closed | self._missing):
                r = (closed & -closed).bit_length() - 1
                return (Cause.LIMIT if node.claim else Cause.CAPACITY), node.name, r
        raise AssertionError(f"queue {leaf.name} gets no more, for no reason")

    def _weigh(self, node: Node, k: int) -> None:
        if node.claim is not None and node.claim.usage_weight is not None:
            k = node.claim.usage_weight
        used = [max(self._parts([one * ONE for one in kid.used]), default=0) if k else 0 for kid in node.kids]
        weights = surplus_weights([kid.claim.weight for kid in node.kids if kid.claim], used, k)
        total = sum(weights)
        for kid, weight in zip(node.kids, weights, strict=True):
            self._weights[kid.number] = weight * ONE // total if weight else 0
            self._levels[kid.number] = total * ONE // weight if weight else 0
            self._weigh(kid, k)

    def _parts(self, amounts: Sequence[int]) -> Vector:
        """Amounts in 2^-128ths of a unit as parts of the capacity."""
        return [amount // have if amount and have else 0 for amount, have in zip(amounts, self.capacity, strict=True)]

    def _riser(self, node: Node) -> Riser:
        bounds = [
            (r, limit * ONE // have)
            for r, (limit, have) in enumerate(zip(node.ceiling, self.capacity, strict=True))
            if limit is not None and have
        ]
        band = node.claim.priority if node.claim else 0
        weight, inverse = self._weights[node.number], self._levels[node.number]
        base = self._parts(node.budget)
        if node.claim is not None and not node.kids:
            return Leaf(node.number, base, bounds, band, weight, inverse, self.record, self._rays(node), node.depth)
        kids = [self._risers[kid.number] for kid in node.kids]
        return Inner(node.number, base, bounds, band, weight, inverse, self.record, self._parts(_kept(node)), kids)

    def _rays(self, leaf: Node) -> list[tuple[int, Vector]]:
        """For each support set which resources it still needs and how much: its demand less its proportional part of E."""
        rays: list[tuple[int, Vector]] = []
        left = [total * ONE - e for total, e in zip(leaf.total, leaf.budget, strict=True)]
        for amounts in leaf.sets:
            needs, ray = 0, []
            for r, amount in enumerate(amounts):
                have = self.capacity[r]
                part = 0
                if amount and left[r] > NEAR:
                    needs |= 1 << r
                    if have:
                        part = amount * left[r] // (leaf.total[r] * have)
                ray.append(part)
            rays.append((needs, ray))
        return rays

    def _fair(self, node: Node) -> Vector:
        riser = self._risers[node.number]
        if not isinstance(riser, Leaf):
            below = [max(kept, sum([kid.fair[r] for kid in node.kids])) for r, kept in enumerate(_kept(node))]
            return [whole(held, have) for held, have in zip(below, self.capacity, strict=True)]
        fair = []
        for r, (e, total, have) in enumerate(zip(node.budget, node.total, self.capacity, strict=True)):
            held, left = e, total * ONE - e
            if left > 0:
                for amounts, progress in zip(node.sets, riser.progress, strict=True):
                    if progress and amounts[r]:
                        held += amounts[r] * left * progress // total >> BITS
            fair.append(whole(held, have))
        return fair

    def _lower(self, node: Node) -> Vector:
        """Lower E of inner queues to what somebody below holds or is guaranteed, and return what the leaves below hold.

        An entitlement that nobody below can use would shield capacity from reclaim; lowered, F ≥ E everywhere.
        """
        if not node.kids:
            node.entitled = node.budget
            return node.fair if node.claim else [0] * len(self.capacity)
        below = [self._lower(kid) for kid in node.kids]
        held = [sum([one[r] for one in below]) for r in range(len(self.capacity))]
        node.entitled = [
            whole(max(min(e, leaves), kept), have)
            for e, leaves, kept, have in zip(node.budget, held, _kept(node), self.capacity, strict=True)
        ]
        return held


def _kept(node: Node) -> Vector:
    """The guaranteed part of an inner queue's E, which is held even if nobody below uses it."""
    if node.claim is None or not any(node.reserve):
        return [0] * len(node.budget)
    return [min(e, amount * ONE) for e, amount in zip(node.budget, node.reserve, strict=True)]
