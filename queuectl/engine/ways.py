"""Which pool a gang goes to: the choices there are, what limits leave of them, and the best that fits.

A gang is placed inside one pool, its groups all in the same one. Only members that no node there could ever hold (another
selector, no such device) go to another; equal members are never spread. Nodes of no pool count as one more. While nobody has
declared a pool, every request has all nodes, as if this module were not there.
"""

from __future__ import annotations

from itertools import islice, product

import numpy as np
from msgspec import Struct

from queuectl.engine.branches import Branch
from queuectl.engine.lines import Stance
from queuectl.engine.ordering import keeps_within
from queuectl.engine.placement import Placement
from queuectl.engine.request import Fit, Refusal, Request, Way, Zone
from queuectl.engine.state import State
from queuectl.model.pools import OUTSIDE
from queuectl.model.reasons import Misfit, QueueEvidence, Reason
from queuectl.model.resources import Amounts, plus, times

_KEPT = 20_000  # requests whose ways are kept; after this many they are found anew
# Ways with one pool for as much as it can hold: the rest of a gang goes elsewhere in at most so many manners. Each is a search.
_MANNERS = 8
_TOLD = 8  # ways about which a refusal says something; each costs about 0.5 ms on 10,000 nodes


class _Left(Struct, frozen=True):
    """A way that limits leave: how far it goes beyond quotas, where each group may go, and the limits that take nodes away."""

    rank: tuple[bool, ...]
    way: Way
    zones: tuple[Zone, ...]
    misfits: tuple[Misfit, ...]


class Ways:
    """Ways of requests, and placement by them."""

    def __init__(self, state: State, placement: Placement) -> None:
        self._state, self._placement = state, placement
        self._known: dict[Request, tuple[Way, ...]] = {}
        self._version = (-1, -1)

    def of(self, request: Request) -> tuple[Way, ...]:
        """Every way, in the order in which equal ones are preferred: smaller pools first; () where pools play no part.

        Kept until nodes or pools change. O(groups × pools × nodes).
        """
        fleet = self._state.fleet
        if not fleet.pools:
            return ()
        version = (fleet.edition, fleet.pools.version)
        if self._version != version or len(self._known) >= _KEPT:
            self._version = version
            self._known.clear()
        if (known := self._known.get(request)) is None:
            known = self._known[request] = tuple(self._find(request))
        return known

    def place(
        self, branch: Branch | None, request: Request, need: Amounts
    ) -> tuple[tuple[Misfit, ...], Fit | Refusal | None]:
        """The limits in the way, and the best placement within quotas, else the best beyond, else why there is none.

        No refusal (None) where limits leave nowhere to look. ``branch`` is the leaf whose path has the limits.
        """
        over = self._state.branches.over_limit(branch, need) if branch is not None else ()
        ways = self.of(request)
        if not ways:
            return over, self._placement.place(request)
        shut: list[Misfit] = []
        left: list[_Left] = []
        for way in ways:
            zones, misfits = self._left(branch, way)
            if zones is None:
                shut += misfits
            else:
                left.append(_Left(self._beyond(branch, way, need), way, zones, misfits))
        for rank in sorted({one.rank for one in left}):
            if (found := self._best(request, [one for one in left if one.rank == rank])) is not None:
                return over, found
        shut += (misfit for one in left for misfit in one.misfits)
        near = self._nearest(request, left)
        answers = [self._placement.place(request, one.zones) for one in near]
        refusal = _merged([one for one in answers if isinstance(one, Refusal)], apart=bool(shut))
        if refusal is not None and len(near) < len(left):
            refusal = Refusal(refusal.misfits, refusal.short)  # what the others lack may be less
        return tuple(dict.fromkeys((*over, *shut))), refusal

    def _nearest(self, request: Request, left: list[_Left]) -> list[_Left]:
        """Of many ways, the few that have most room for the gang: enough is said with these."""
        if len(left) <= _TOLD:
            return left
        rooms = self._placement.rooms

        def lacking(one: _Left) -> int:
            pairs = zip(request.groups, one.zones, strict=True)
            return sum(max(group.count - rooms.room(group.shape, zone).total, 0) for group, zone in pairs)

        return sorted(left, key=lacking)[:_TOLD]

    def _best(self, request: Request, left: list[_Left]) -> Fit | None:
        """The cheapest placement by one of these ways, of equal ones the first."""
        if len(left) > 1 and not any(zone.without for one in left for zone in one.zones):
            # Together first: mostly the best of all lies in one pool anyway, and one search answers for all.
            pools = zip(*(one.way.pools for one in left), strict=True)
            found = self._placement.fit(request, tuple(Zone(tuple(sorted(set(each)))) for each in pools))
            if found is None or any(self._lies(found, one.way) for one in left):
                return found
        best: tuple[int, Fit] | None = None
        for one in left:
            found = self._placement.fit(request, one.zones)
            if found is not None and (best is None or self._placement.cost(request, found) < best[0]):
                best = self._placement.cost(request, found), found
        return None if best is None else best[1]

    def _lies(self, fit: Fit, way: Way) -> bool:
        """Whether every group is inside the pool of this way."""
        of = self._state.fleet.pools.of
        return all(
            all(pool in of[name] if pool != OUTSIDE else not of[name] for name, _ in nodes)
            for pool, nodes in zip(way.pools, fit.nodes, strict=True)
        )

    def stance(self, branch: Branch, request: Request, need: Amounts) -> Stance:
        """How limits stand to a request: while this is the same, they let nothing more in. O(ways × depth × limits)."""
        over = bool(self._state.branches.over_limit(branch, need))
        return over, tuple(self._left(branch, way)[0] for way in self.of(request))

    def _left(self, branch: Branch | None, way: Way) -> tuple[tuple[Zone, ...] | None, tuple[Misfit, ...]]:
        """The nodes that limits leave to each group, None for nowhere, and the limits that take nodes away.

        A pool that holds some of a way's nodes only is avoided as a whole where its limit cannot take all of the request.
        """
        if branch is None:
            return tuple(Zone((pool,)) for pool in way.pools), ()
        branches = self._state.branches
        if over := branches.over_limit_in(branch, way.adds):
            return None, over
        if not way.may_add:
            return tuple(Zone((pool,)) for pool in way.pools), ()
        most = {pool: plus(way.adds.get(pool, ()), added) for pool, added in way.may_add.items()}
        over = branches.over_limit_in(branch, most)
        avoided = {misfit.evidence.pool for misfit in over if isinstance(misfit.evidence, QueueEvidence)}
        across = self._state.fleet.pools.kinship.across
        zones = (Zone((pool,), tuple(one for one in across[pool] if one in avoided)) for pool in way.pools)
        return tuple(zones), over

    def _beyond(self, branch: Branch | None, way: Way, need: Amounts) -> tuple[bool, ...]:
        """For each queue on the path, leaf first, whether it would go beyond its quotas: what a way is judged by first."""
        fleet, path = self._state.fleet, branch.path if branch is not None else ()
        return tuple(not keeps_within(node, way, need, fleet.capacity, fleet.pools) for node in path)

    def _find(self, request: Request) -> list[Way]:
        pools = self._state.fleet.pools
        names = sorted((*pools.pools, OUTSIDE), key=lambda name: (name == OUTSIDE, pools.size(name), name))
        suited = [self._suited(request, number, names) for number in range(len(request.groups))]
        if not all(suited):
            return []
        choices: dict[tuple[str, ...], None] = {}
        for name in names:
            if any(name in one for one in suited):
                apart = ([name] if name in one else one for one in suited)
                choices.update(dict.fromkeys(islice(product(*apart), _MANNERS)))
        return [self._way(request, choice) for choice in choices]

    def _suited(self, request: Request, number: int, names: list[str]) -> list[str]:
        """The pools that could ever hold one member of a group, those that it should be in if there are any."""
        group, rooms = request.groups[number], self._placement.rooms
        ever = rooms.ever(group.shape).rows > 0
        suited = [name for name in names if np.logical_and(ever, rooms.filters.zone(Zone((name,)))).any()]
        if group.pools is None:
            return suited
        wanted = group.pools or (OUTSIDE,)
        return [name for name in suited if name in wanted] or suited

    def _way(self, request: Request, choice: tuple[str, ...]) -> Way:
        kinship = self._state.fleet.pools.kinship
        adds: dict[str, Amounts] = {}
        may_add: dict[str, Amounts] = {}
        for group, pool in zip(request.groups, choice, strict=True):
            need = times(group.shape.requests, group.count)
            for totals, kin in ((adds, kinship.around), (may_add, kinship.across)):
                for one in kin[pool]:
                    totals[one] = plus(totals.get(one, ()), need)
        return Way(choice, tuple(kinship.around[pool] for pool in choice), adds, may_add)


def _merged(refused: list[Refusal], *, apart: bool) -> Refusal | None:
    """One refusal of several ways. What can never be is only told where no way is any better (``apart``: one is shut).

    It may fit when one of the ways may: the least that is missing counts, nothing where they lack members of other groups.
    """
    if not refused:
        return None
    never = [any(misfit.reason is Reason.NEVER_FITS for misfit in one.misfits) for one in refused]
    told = [one for one, lost in zip(refused, never, strict=True) if not lost] or ([] if apart else refused)
    misfits = tuple(dict.fromkeys(misfit for one in told for misfit in one.misfits))
    alike = len({one.short for one in refused}) == 1
    return Refusal(misfits, refused[0].short, min(one.missing for one in refused) if alike else 0)
