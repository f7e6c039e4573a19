"""What waits in a leaf, and in which order: offers of equal requests in one batch, batches in one line.

Equal offers share their fate: when the first of a batch is refused, the whole batch is parked with that refusal, and
costs nothing until something it waits for has changed.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from sortedcontainers import SortedList

from queuectl.engine.request import Request, Zone
from queuectl.model.reasons import Misfit

Order = tuple[bool, int, int, str, int]
"""Extras after gangs, higher priority, older queue time, gang UID, slot (-1 for the gang itself)."""


Stance = tuple[bool, tuple[tuple[Zone, ...] | None, ...]]
"""Whether a limit over all nodes is in the way, and for every way the nodes that limits in pools leave; None: none."""


class Offer(Struct, frozen=True, order=True, gc=False):
    """A gang below its minimum (``slot`` -1), or one extra member of a running gang, that could start now."""

    order: Order
    gang: str
    slot: int = -1
    member: str = ""

    @property
    def queued_at(self) -> int:
        """When its gang was queued (ms)."""
        return self.order[2]


class Batch:
    """Equal offers of one leaf. ``number`` is the evidence id; parked with ``misfits`` once refused."""

    def __init__(self, number: int, queue: str, request: Request) -> None:
        self.number = number
        self.queue = queue
        self.request = request
        self.need = request.need
        self.offers: SortedList[Offer] = SortedList()
        self.parked = False
        self.misfits: tuple[Misfit, ...] = ()
        self.reasons: frozenset[str] = frozenset()
        self.over_limit = False  # some limit on the path is in the way
        self.unplaced = False  # the nodes are in the way
        self.short = 0  # the group that lacks most room by itself
        self.missing = 0  # how many more pods of it must fit, at least; 0 when every group fits, only not together
        self.eased = 0  # ``Branches.eased`` when it was parked
        self.stance: Stance | None = None  # how limits stood to it then, where there are pools

    @property
    def head(self) -> Offer:
        """The first of its offers."""
        first: Offer = self.offers[0]
        return first


class Line:
    """One leaf's batches; ``head`` is the best offer of those not parked. O(log n) an edit."""

    def __init__(self) -> None:
        self.batches: dict[Request, Batch] = {}
        self._active: SortedList[tuple[Order, int]] = SortedList()
        self._listed: dict[int, Order] = {}
        self._by_number: dict[int, Batch] = {}

    def head(self) -> Batch | None:
        """The batch whose first offer is next in this leaf."""
        return self._by_number[self._active[0][1]] if self._active else None

    @property
    def idle(self) -> bool:
        """Whether all that is here was refused, or nothing is here."""
        return not self._active

    def add(self, batch: Batch, offer: Offer) -> None:
        """One more offer."""
        self.batches[batch.request] = batch
        self._by_number[batch.number] = batch
        batch.offers.add(offer)
        self._list(batch)

    def remove(self, batch: Batch, offer: Offer) -> None:
        """An offer is gone; an empty batch goes with it."""
        batch.offers.remove(offer)
        self._list(batch)
        if not batch.offers:
            del self.batches[batch.request], self._by_number[batch.number]

    def park(self, batch: Batch, *, parked: bool) -> None:
        """Take a batch out of the running, or back in."""
        batch.parked = parked
        self._list(batch)

    def offers(self) -> Iterator[Offer]:
        """All offers in pending order, parked or not. O(n log n)."""
        return iter(
            sorted((offer for batch in self.batches.values() for offer in batch.offers), key=lambda one: one.order)
        )

    def _list(self, batch: Batch) -> None:
        old = self._listed.pop(batch.number, None)
        if old is not None:
            self._active.remove((old, batch.number))
        if batch.offers and not batch.parked:
            order = self._listed[batch.number] = batch.head.order
            self._active.add((order, batch.number))
