"""Fair shares: what each queue of a tree may count on (E) and what is fairly its own at the moment (F ≥ E).

    F(queue) = E(queue) + its surplus

*Entitlement* (``entitlement``) is a promise: first guarantees, which are held even while nobody uses them, then quotas, each
only as far as the queue can use it and as far as its parent's E reaches; where they do not fit they are scaled down alike.
Resources are independent of each other here.

*Surplus* (``surplus``) is what nobody claims by entitlement. Every inner queue hands its own out among its children first,
then the root the rest, by hierarchical dominant resource fairness: of the siblings in the highest priority band, those
whose dominant share of the surplus ÷ weight is lowest rise first.

Both depend on demand, not on usage. Admissions and evictions turn waiting demand into running demand and back, so shares stay
put while a decision is made, and only usage moves.

One pool is one computation, over the nodes of that pool; the pool ``*`` is one over all nodes.

Sources: dominant resource fairness is Ghodsi et al., NSDI 2011; the hierarchical form with its two repairs is Bhattacharya et
al., SoCC 2013. Entitlements before it, limits, bands, and siblings that wait for each other (max–min) instead of all rising at
one rate are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from queuectl.engine.claims import Claim, refusals
from queuectl.engine.entitlement import BITS as FINE
from queuectl.engine.entitlement import ONE as WHOLE
from queuectl.engine.entitlement import Node, entitle, planted, whole
from queuectl.engine.filling import Cause
from queuectl.engine.surplus import Surplus

BITS = 64
ONE = 1 << BITS
"""One unit of a resource in the results: a byte, a thousandth of a CPU or of a device."""

SHOWN = FINE - BITS  # what the computation carries beyond that, so that its own rounding stays below the last digit


class Stop(Struct, frozen=True):
    """Why a support set of a leaf gets no more: ``queue`` is whose limit, weight or (root) capacity it is."""

    needs: tuple[str, ...]
    cause: Cause
    queue: str
    resource: str | None = None


class Round(Struct, frozen=True):
    """The end of a round of the surplus of ``top``: ``cause`` at ``queue`` when that had come to ``level``.

    Level: dominant share of the surplus ÷ the part that the queue has of its siblings' weights, in 2^-64ths. Of an inner
    queue: the level that its children had reached.
    """

    top: str
    cause: Cause
    queue: str
    resource: str | None
    level: int


class Share(Struct, frozen=True):
    """One queue. Amounts follow ``Shares.resources``; ``entitlement`` and ``fair`` are in 2^-64ths of the resource's unit.

    ``demand``: of a leaf what it asks for, of an inner queue what its children can make use of. ``claim``: the same within
    the limit, and at least the guarantees. ``floor``: the guaranteed part of the entitlement. ``dominant``: the resource of
    which the fair share is the largest part of the capacity, None when the share is empty.
    """

    demand: tuple[int, ...]
    claim: tuple[int, ...]
    quota: tuple[int, ...]
    floor: tuple[int, ...]
    entitlement: tuple[int, ...]
    fair: tuple[int, ...]
    dominant: str | None
    stops: tuple[Stop, ...]


class Shares(Struct, frozen=True):
    """The shares of all queues in one pool, and the rounds in which the surplus was handed out."""

    resources: tuple[str, ...]
    capacity: tuple[int, ...]
    queues: dict[str, Share]
    rounds: tuple[Round, ...]

    def within(self, queue: str, amounts: Mapping[str, int], *, fair: bool) -> bool:
        """Whether these amounts of whole units are at most the queue's fair share (else its entitlement). O(resources)."""
        share = self.queues[queue]
        held = share.fair if fair else share.entitlement
        return all(
            amounts.get(resource, 0) << BITS <= most for resource, most in zip(self.resources, held, strict=True)
        )


def fair_shares(capacity: Mapping[str, int], claims: Iterable[Claim]) -> Shares:
    """E and F of every queue, whatever the order of ``claims``. ``capacity`` names the counted resources (0 is allowed).

    Differs from exact arithmetic by less than depth × events × 2^-64 of the capacity, unless two different events of it lie
    nearer than 2^-80 of the capacity. Whole numbers come out whole.

    Raises ValueError when the tree is unsound: ask ``refusals`` first and leave those out.
    Cost: O(queues × depth × resources) and, for each event of the surplus, O(depth × resources + log queues).
    """
    claims = sorted(claims, key=lambda claim: claim.name)
    if refused := refusals(claims):
        raise ValueError("; ".join(f"queue {name}: {why}" for name, why in sorted(refused.items())))
    resources = tuple(sorted(capacity))
    amounts = tuple(capacity[resource] for resource in resources)
    nodes = planted(claims)
    entitle(nodes, amounts, {resource: r for r, resource in enumerate(resources)})
    surplus = Surplus(nodes, amounts)
    _lower(nodes[0], amounts)
    return Shares(
        resources,
        amounts,
        {node.name: _share(node, resources, amounts, surplus) for node in nodes if node.claim},
        tuple(
            Round(
                nodes[event.top].name,
                event.cause,
                nodes[event.queue].name,
                _named(resources, event.resource),
                event.level >> SHOWN,
            )
            for event in surplus.record.events
        ),
    )


def _named(resources: Sequence[str], r: int) -> str | None:
    return None if r < 0 else resources[r]


def _share(node: Node, resources: tuple[str, ...], capacity: tuple[int, ...], surplus: Surplus) -> Share:
    demand = node.claim.demand if node.claim else ()
    return Share(
        tuple(node.total),
        tuple(node.want),
        tuple(node.quota),
        tuple(amount >> SHOWN for amount in node.floor),
        tuple(amount >> SHOWN for amount in node.entitled),
        tuple(amount >> SHOWN for amount in node.fair),
        _dominant(node, resources, capacity),
        tuple(
            Stop(tuple(resource for resource, _ in vector), cause, queue, _named(resources, r))
            for vector, (cause, queue, r) in zip(demand, surplus.stops(node), strict=False)
        ),
    )


def _lower(node: Node, capacity: Sequence[int]) -> list[int]:
    """Lower E of inner queues to what somebody below holds or is guaranteed, and return what the leaves below hold.

    An entitlement that nobody below can use would shield capacity from reclaim; lowered, F ≥ E everywhere.
    """
    if not node.kids:
        return node.fair
    held = [sum(parts) for parts in zip(*(_lower(kid, capacity) for kid in node.kids), strict=True)]
    if node.claim is not None:
        node.entitled = [
            whole(max(min(e, below), min(e, kept * WHOLE)), have)
            for e, below, kept, have in zip(node.entitled, held, node.reserve, capacity, strict=True)
        ]
    return held


def _dominant(node: Node, resources: Sequence[str], capacity: Sequence[int]) -> str | None:
    best, top, bottom = None, 0, 1  # the largest part so far, compared by cross-multiplication
    for resource, amount, have in zip(resources, node.fair, capacity, strict=True):
        if have and amount * bottom > top * have:
            best, top, bottom = resource, amount, have
    return best
