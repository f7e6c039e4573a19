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

How it is computed is in ``filling``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from queuectl.engine.decay import surplus_weights
from queuectl.engine.entitlement import BITS, NEAR, ONE, Node, whole
from queuectl.engine.filling import Cause, Inner, Leaf, Record, Riser, Vector, fill


class Surplus:
    """One computation on a tree that has its entitlements: writes ``fair`` (F) into it."""

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
        top = self._risers[0]
        if isinstance(top, Inner):
            fill(top, self._missing)
            top.measure()
        for node in reversed(nodes):
            node.fair = self._fair(node)

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
        """Amounts as parts of the capacity."""
        return [amount // have if have else 0 for amount, have in zip(amounts, self.capacity, strict=True)]

    def _riser(self, node: Node) -> Riser:
        ceiling = [
            None if limit is None or not have else (limit << BITS) // have
            for limit, have in zip(node.ceiling, self.capacity, strict=True)
        ]
        band = node.claim.priority if node.claim else 0
        weight, inverse = self._weights[node.number], self._levels[node.number]
        base = self._parts(node.entitled)
        if node.claim is not None and not node.kids:
            return Leaf(node.number, base, ceiling, band, weight, inverse, self.record, self._rays(node))
        kids = [self._risers[kid.number] for kid in node.kids]
        return Inner(node.number, base, ceiling, band, weight, inverse, self.record, self._parts(_kept(node)), kids)

    def _rays(self, leaf: Node) -> list[tuple[int, Vector]]:
        """For each support set which resources it still needs and how much: its demand less its proportional part of E."""
        rays: list[tuple[int, Vector]] = []
        left = [max(0, total * ONE - e) for total, e in zip(leaf.total, leaf.entitled, strict=True)]
        for amounts in leaf.sets:
            needs, ray = 0, []
            for r, amount in enumerate(amounts):
                if amount and left[r] > NEAR:
                    needs |= 1 << r
                have = self.capacity[r]
                ray.append(amount * left[r] // (leaf.total[r] * have) if needs >> r & 1 and have else 0)
            rays.append((needs, ray))
        return rays

    def _fair(self, node: Node) -> Vector:
        riser = self._risers[node.number]
        fair = []
        for r, (e, kept, have) in enumerate(zip(node.entitled, _kept(node), self.capacity, strict=True)):
            if isinstance(riser, Leaf):
                total = node.total[r]
                left = max(0, total * ONE - e)
                held = e + sum(
                    amounts[r] * left * progress // total >> BITS
                    for amounts, progress in zip(node.sets, riser.progress, strict=True)
                    if amounts[r]
                )
            else:
                held = max(kept, sum(kid.fair[r] for kid in node.kids))
            fair.append(whole(held, have))
        return fair


def _kept(node: Node) -> Vector:
    """The guaranteed part of an inner queue's E, which is held even if nobody below uses it."""
    return [min(e, amount * ONE) for e, amount in zip(node.entitled, node.reserve, strict=True)]
