"""What gangs offer, and what of it was refused: parked until something it waits for has changed.

A refused batch sleeps through everything that cannot help it: the nodes that gained room are asked what they add for its
shape (``gains``), and the queues that gave back whether its limits still hold. Both are a few comparisons a batch.
"""

from __future__ import annotations

from itertools import islice

from queuectl.engine.gains import Gains
from queuectl.engine.lines import Batch, Offer
from queuectl.engine.ordering import Turns
from queuectl.engine.placement import Placement
from queuectl.engine.request import Fit, Refusal, Request
from queuectl.engine.state import State
from queuectl.engine.ways import Ways
from queuectl.model.reasons import Misfit, Reason, by_dominance

_REQUESTS = 20_000  # equal requests share one object; after this many, sharing starts anew and only costs time
_RENEWED = 64  # refusals renewed when nodes changed: only their words may be old, and each may cost 0.5 ms


class Backlog:
    """Offers by gang and slot, in batches of equal requests; those refused are parked."""

    def __init__(self, state: State, placement: Placement, turns: Turns, ways: Ways) -> None:
        self._state, self._placement, self._turns, self._ways = state, placement, turns, ways
        self._offered: dict[str, dict[int, tuple[Batch, Offer]]] = {}
        self._batches = 0
        self._requests: dict[Request, Request] = {}
        self._parked: dict[int, Batch] = {}  # refused longest ago first
        self._awake: list[Batch] = []  # woken in this decision because these nodes gained room
        self._gained: frozenset[str] = frozenset()
        self._eased = 0
        self._revision = -1

    @property
    def stirred(self) -> bool:
        """Whether anything was freed or changed since the last ``wake`` that could help who was refused."""
        fleet, branches = self._state.fleet, self._state.branches
        return bool(fleet.gained) or self._revision != fleet.revision or self._eased != branches.eased

    def offers(self, uid: str) -> list[Batch]:
        """The batches in which a gang has offers."""
        return [batch for batch, _ in self._offered.get(uid, {}).values()]

    def offer(self, uid: str, queue: str, wanted: list[tuple[Request, Offer]]) -> None:
        """Put a gang's offers into its leaf's line, in place of what it offered before. Cost: what differs."""
        if not wanted and uid not in self._offered:
            return
        held, new = self._offered.get(uid, {}), {offer.slot: (request, offer) for request, offer in wanted}
        for slot, (batch, offer) in list(held.items()):
            request, now = new.get(slot, (None, None))
            if batch.queue == queue and now == offer and (batch.request is request or batch.request == request):
                del new[slot]
            else:
                self._remove(batch, held.pop(slot)[1])
        line = self._turns.line(queue)
        batches: dict[int, Batch] = {}  # by the request's identity: a gang's extras share theirs
        for slot, (request, offer) in new.items():
            batch = batches.get(id(request)) or line.batches.get(request) or self._batch(queue, request)
            batches[id(request)] = batch
            line.add(batch, offer)
            held[slot] = batch, offer
        if new:
            self._turns.touch(queue)
        if held:
            self._offered[uid] = held
        else:
            self._offered.pop(uid, None)

    def take(self, uid: str, slot: int) -> None:
        """One offer was answered; the gang's others stand as they are."""
        batch, offer = self._offered[uid].pop(slot)
        self._remove(batch, offer)

    def park(self, batch: Batch, over: tuple[Misfit, ...], found: Fit | Refusal | None) -> bool:
        """Refused, by limits or by the nodes; true when the reasons are others than before."""
        batch.over_limit, batch.unplaced = bool(over), isinstance(found, Refusal)
        unplaced: tuple[Misfit, ...] = ()
        if isinstance(found, Refusal):
            unplaced, batch.short, batch.missing = found.misfits, found.short, found.missing
        batch.misfits = by_dominance((*over, *unplaced))
        batch.eased = self._state.branches.eased
        batch.stance = None
        if over and self._state.fleet.pools:
            branch = self._state.branches.branches[batch.queue]
            batch.stance = self._ways.stance(branch, batch.request, batch.need)
        before, batch.reasons = batch.reasons, frozenset(misfit.reason for misfit in batch.misfits)
        self._set_parked(batch, parked=True)
        return before != batch.reasons

    def wake(self) -> None:
        """Batches that may fit now are tried again. O(parked batches), only if anything was freed."""
        if not self.stirred:
            return
        fleet, branches = self._state.fleet, self._state.branches
        renewed = [] if self._revision == fleet.revision else list(islice(self._parked.values(), _RENEWED))
        self._revision, self._eased = fleet.revision, branches.eased
        self._gained = frozenset(fleet.gained)
        fleet.gained.clear()
        asked = self._gained and self._parked
        gains = Gains(fleet, self._placement.rooms.filters, self._gained) if asked else None
        for batch in list(self._parked.values()):
            if gains is not None and batch.unplaced and self._hopeful(batch, gains):
                self._awake.append(batch)
            elif not (batch.over_limit and self._eased_for(batch)):
                continue
            self._set_parked(batch, parked=False)
        for batch in renewed:
            if batch.parked:
                self._set_parked(batch, parked=False)
        self._placement.forget()

    def doze(self, fit: Fit) -> None:
        """After an admission: batches woken for the room it took go back to sleep, their refusal unchanged.

        One sweep, so that each leaf is re-keyed once and not once for every batch that would be refused again.
        """
        if not self._awake or not any(name in self._gained for nodes in fit.nodes for name, _ in nodes):
            return
        gains = Gains(self._state.fleet, self._placement.rooms.filters, self._gained)
        awake, self._awake = self._awake, []
        for batch in awake:
            if batch.parked or not batch.offers:
                continue
            if self._hopeful(batch, gains):
                self._awake.append(batch)
            else:
                self._set_parked(batch, parked=True)

    def settle(self) -> None:
        """The decision is over."""
        self._awake.clear()

    def _hopeful(self, batch: Batch, gains: Gains) -> bool:
        """Whether it may fit now that these nodes gained room, or is refused for other reasons than it was.

        First by what they add at most; where that could be enough, by all the room there is. Either counts for the next time.
        """
        if lacking := gains.lacking(batch.request, batch.short, batch.missing):
            batch.missing = lacking if batch.missing else 0
            return False
        group = batch.request.groups[batch.short]
        if not batch.missing or gains.pods(group.shape) >= group.count:
            return True
        lack = self._placement.lacking(batch.request)
        if not lack.missing or lack.overall != (Reason.NO_CAPACITY in batch.reasons):
            return True
        batch.short, batch.missing = lack.short, lack.missing
        return False

    def _eased_for(self, batch: Batch) -> bool:
        """Whether usage or limits on the batch's path fell, and far enough for it."""
        branches = self._state.branches
        branch = branches.branches.get(batch.queue)
        if branch is None or all(node.eased <= batch.eased for node in branch.path):
            return False
        batch.eased = branches.eased
        if not self._state.fleet.pools:
            return not branches.over_limit(branch, batch.need)
        before, batch.stance = batch.stance, self._ways.stance(branch, batch.request, batch.need)
        over, left = batch.stance
        return batch.stance != before and not over and (any(left) or not left)

    def _batch(self, queue: str, request: Request) -> Batch:
        self._batches += 1
        if len(self._requests) > _REQUESTS:
            self._requests.clear()
        return Batch(self._batches, queue, self._requests.setdefault(request, request))

    def _remove(self, batch: Batch, offer: Offer) -> None:
        self._turns.line(batch.queue).remove(batch, offer)
        self._turns.touch(batch.queue)
        if not batch.offers:
            self._parked.pop(batch.number, None)

    def _set_parked(self, batch: Batch, *, parked: bool) -> None:
        if parked:
            self._parked[batch.number] = batch
        else:
            del self._parked[batch.number]
        self._turns.line(batch.queue).park(batch, parked=parked)
        self._turns.touch(batch.queue)
