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

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from queuectl.engine.claims import Claim, refusals
from queuectl.engine.entitlement import BITS as FINE
from queuectl.engine.entitlement import Node, entitle, entitle_again, planted
from queuectl.engine.rising import Cause
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


def fair_shares(capacity: Mapping[str, int], claims: Iterable[Claim]) -> Shares:
    """E and F of every queue with all that explains them. The same as ``Division``, which see, and all its ``share``s."""
    division = Division(capacity, claims)
    return Shares(
        division.resources,
        division.capacity,
        {name: division.share(name) for name in division.queues},
        division.rounds(),
    )


class Division:
    """The shares of one pool, kept up to date. ``capacity`` names the counted resources (0 is allowed).

    The order of ``claims`` does not matter. Amounts are in 2^-64ths of the resource's unit, rounded down; they differ from
    exact arithmetic by less than depth × events × 2^-64 of the capacity, unless two different events of it lie nearer than
    2^-80 of the capacity. Whole units come out whole.

    Raises ValueError when the tree is unsound: ask ``refusals`` first and leave those out.
    Cost: O(queues × depth × resources) and, for each event of the surplus, O(depth × resources + log queues).
    """

    def __init__(self, capacity: Mapping[str, int], claims: Iterable[Claim]) -> None:
        self.resources = tuple(sorted(capacity))
        self.capacity = tuple(capacity[resource] for resource in self.resources)
        self._index = {resource: r for r, resource in enumerate(self.resources)}
        self._plant(list(claims))

    def _plant(self, claims: list[Claim]) -> None:
        if refused := refusals(claims):
            raise ValueError("; ".join(f"queue {name}: {why}" for name, why in sorted(refused.items())))
        self._nodes = planted(claims)
        self.queues = {node.name: node for node in self._nodes if node.claim}
        self._late: set[int] = set()  # leaves whose demand has changed without an effect, so far
        entitle(self._nodes, self.capacity, self._index)
        self._surplus = Surplus(self._nodes, self.capacity)

    def refresh(self, changed: Iterable[Claim]) -> bool:
        """Take in claims of queues that are here already; false: no share has changed by it.

        Where only demand has changed, O(queues × resources) and the fills above and below the changed ones: of deeper queues
        that nothing has changed for, what they handed out is kept. O(depth × resources) when every changed leaf wants one
        resource, still more of it than it gets, and no entitlement moves. Anything else is computed from the start.
        """
        new = {claim.name: claim for claim in changed}
        nodes = [self.queues[name] for name in sorted(new) if self.queues[name].claim != new[name]]
        if not nodes:
            return False
        if any(_but_demand(node.claim) != _but_demand(new[node.name]) for node in nodes):
            self._plant([new.get(name, node.claim) for name, node in self.queues.items() if node.claim])
            return True
        alike = all(_one_resource(node.claim) == _one_resource(new[node.name]) != "" for node in nodes)
        for node in nodes:
            node.claim = new[node.name]
        moved = entitle_again(self._nodes, nodes, self.capacity, self._index)
        if alike and not moved and all(self._surplus.frozen(node) for node in nodes):
            self._late.update(node.number for node in nodes)
            return False
        self._surplus.again(moved | self._late | {node.number for node in nodes})
        self._late = set()
        return True

    def entitlement(self, queue: str) -> tuple[int, ...]:
        """E by counted resource, as it stands after the surplus. O(resources)."""
        return tuple([amount >> SHOWN for amount in self.queues[queue].entitled])

    def fair(self, queue: str) -> tuple[int, ...]:
        """F by counted resource. O(resources)."""
        return tuple([amount >> SHOWN for amount in self.queues[queue].fair])

    def share(self, queue: str) -> Share:
        """All that explains one queue's share. O(depth × resources) for each support set."""
        node = self.queues[queue]
        needs = [tuple(resource for resource, _ in vector) for vector in (node.claim.demand if node.claim else ())]
        return Share(
            tuple(node.total),
            tuple(node.want),
            tuple(node.quota),
            tuple(amount >> SHOWN for amount in node.floor),
            self.entitlement(queue),
            self.fair(queue),
            self._dominant(node),
            tuple(
                Stop(support, cause, at, self._named(r))
                for support, (cause, at, r) in zip(needs, self._surplus.stops(node), strict=False)
            ),
        )

    def rounds(self) -> tuple[Round, ...]:
        """The rounds of all fills, deeper tops first and the root last. O(rounds)."""
        fills = self._surplus.record.fills
        return tuple(
            Round(
                self._nodes[top].name,
                event.cause,
                self._nodes[event.queue].name,
                self._named(event.resource),
                event.level >> SHOWN,
            )
            for top in sorted(fills, reverse=True)
            for event in fills[top]
        )

    def _named(self, r: int) -> str | None:
        return None if r < 0 else self.resources[r]

    def _dominant(self, node: Node) -> str | None:
        best, top, bottom = None, 0, 1  # the largest part so far, compared by cross-multiplication
        for resource, amount, have in zip(self.resources, node.fair, self.capacity, strict=True):
            if have and amount * bottom > top * have:
                best, top, bottom = resource, amount, have
        return best


def _but_demand(claim: Claim | None) -> Claim | None:
    return replace(claim, demand=()) if claim else None


def _one_resource(claim: Claim | None) -> str:
    """The resource of a claim that wants only one, else an empty name."""
    wanted = [resource for vector in (claim.demand if claim else ()) for resource, _ in vector]
    return wanted[0] if len(wanted) == 1 else ""
