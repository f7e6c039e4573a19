"""The best placement of a request that no single node takes whole, or that nothing takes it.

The objective (engine.md §4) is lexicographic: domains touched, coarse to fine; wholly free domains broken into; what is
left over in the domains touched. So the search goes from the finest level up: the first level with a domain that holds
the gang is the one where it is placed, and a preferred level needs no rule of its own. Within a level bounds tell which
domain to look into first and when none of the rest can be better.
"""

from __future__ import annotations

from math import prod

import numpy as np

from queuectl.engine.curves import BUDGET, Curves, Need, objective
from queuectl.engine.packing import Steps, pack, spread
from queuectl.engine.rooms import Rooms
from queuectl.engine.state import State
from queuectl.engine.sums import Column

_EXACT_GROUPS = 3  # count vectors of more groups than this are searched by packing (engine.md §4)
_EXACT_VECTORS = 10_000  # Π (count + 1): the states of one curve
_EXACT_CELLS = 1_000_000  # members × domains below the one looked at
_NEAR = 50_000  # merge steps before the few fullest domains are given up for a look at all

_Rows = list[dict[int, int]]


class Search:
    """One request of groups under a required level ``top`` (-1: none), there ``inside`` one domain (None: any)."""

    def __init__(self, state: State, rooms: Rooms, needs: tuple[Need, ...], top: int, inside: int | None) -> None:
        self._state, self._rooms, self._fleet = state, rooms, state.fleet
        self._needs, self._top, self._inside = needs, top, inside
        self._named = {top, *(need.level for need in needs)} - {-1}
        self._taken = sum(need.gpus * need.count for need in needs)
        self._free, self._installed = rooms.fleet.gpus_free, rooms.fleet.gpus
        self._objective = objective(len(self._fleet.starts))

    def rows(self) -> _Rows | bool:
        """Rows per group; else whether the search was cut short (True) or proves that nothing fits (False).

        Unless that was easy, the tallies of ``needs`` are current afterwards.
        """
        fleet, needs = self._fleet, self._needs
        if (near := self._near()) is not None:
            return near
        for need in needs:
            need.room.current()
        if not all(need.count <= need.room.total for need in needs):
            return False
        curves = self._curves()
        lowest = len(fleet.starts) - (1 if len(needs) > 1 else 2)  # one group was asked for a node already
        unproven = False
        for level in range(lowest, max(self._top, 0) - 1, -1):
            domains = self._holding(level, range(len(fleet.starts[level])))
            if len(domains):
                found, cut = self._at(level, domains, curves)
                if found is not None:
                    return found
                unproven |= cut
        if self._top < 0:
            found, cut = self._at(-1, np.zeros(1, np.int64), curves)
            if found is not None:
                return found
            unproven |= cut
        return unproven

    def _near(self) -> _Rows | None:
        """The best placement of equal members if it is in one of the fullest of the coarsest domains, and ideal.

        Ideal: inside one domain of nodes, on the fewest nodes that could ever hold them, nothing wholly free broken into.
        Then what is left over decides, which is least where least is free. O(rows of a few domains).
        """
        fleet, need = self._fleet, self._needs[0]
        level = len(fleet.starts) - 2
        if len(self._needs) > 1 or self._inside is not None or level < max(self._named, default=0):
            return None
        most = min((fleet.largest.get(name, 0) // amount for name, amount in need.requests), default=0)
        if not most:
            return None
        fewest = max(2, -(-need.count // most))  # no node takes all of them
        curves = self._curves(_NEAR)
        for coarse in self._rooms.fullest(self._taken, level):
            need.room.look(coarse)
            domain = self._ideal(level, fleet.inside(0, coarse, level), fewest, curves)
            if domain is not None:
                return curves.rows(level, domain)
        return None

    def _ideal(self, level: int, within: range, fewest: int, curves: Curves) -> int | None:
        """The one of these domains of nodes with the best placement on so few nodes that breaks nothing; None without one."""
        need, rows_of = self._needs[0], self._fleet.rows_of
        domains = self._holding(level, within)
        free = self._free.sums[level][domains]
        domains = domains[(free < self._installed.sums[level][domains]) | (free <= self._taken)]
        left = [self._free.sums[above][self._above(level, domains, above)].tolist() for above in range(1, level + 1)]
        best: tuple[list[int], int, int] | None = None
        for *leftover, domain in sorted(zip(*left, domains.tolist(), strict=True)):
            if best is not None and leftover != best[0]:
                break
            part = rows_of(level, domain)
            if sum(sorted(need.room.rows[part.start : part.stop].tolist())[-fewest:]) < need.count:
                continue
            cost = curves.cost(level, domain)
            if curves.exhausted:
                return None
            if cost is not None:
                cost += self._coarse(level, domain)
                if self._objective.ideal(cost, fewest) and (best is None or cost < best[1]):
                    best = leftover, cost, domain
        return None if best is None else best[2]

    def _curves(self, budget: int = BUDGET) -> Curves:
        return Curves(self._fleet, self._needs, self._free, self._installed, budget)

    def _holding(self, level: int, among: range) -> Column:
        """Those of these domains of a level that have room for every group by itself, under the required level."""
        fleet, part = self._fleet, slice(among.start, among.stop)
        holding = self._needs[0].room.sums[level][part] >= self._needs[0].count
        for need in self._needs[1:]:
            holding &= need.room.sums[level][part] >= need.count
        domains = holding.nonzero()[0] + among.start
        for above in self._named:
            if above <= level and not fleet.complete[above]:
                domains = domains[fleet.named[above][self._above(level, domains, above)]]
        if self._inside is not None:
            domains = domains[self._above(level, domains, self._top) == self._inside]
        return domains

    def _above(self, level: int, domains: Column, above: int) -> Column:
        """The domains of a coarser level that hold these."""
        return self._fleet.domain[above][self._fleet.starts[level][domains]]

    def _at(self, level: int, domains: Column, curves: Curves) -> tuple[_Rows | None, bool]:
        """The best placement inside one of these domains, and whether any of them could not be searched to the end."""
        ranked, bounds = self._ranked(level, domains)
        best, complete = self._best(level, ranked, bounds, curves)
        if not complete:
            return self._greedy(level, ranked)
        return (None, False) if best is None else (curves.rows(level, best[1]), False)

    def _ranked(self, level: int, domains: Column) -> tuple[list[int], list[Column]]:
        """The domains by their bounds, and these: the objective's terms in order where known, else a lower bound of them."""
        if level < 0 or len(domains) == 1:
            return domains.tolist(), []
        fleet, first, last = self._fleet, int(domains[0]), int(domains[-1])
        bounds: list[Column] = []
        for below in range(level + 1, len(fleet.starts)):
            part = fleet.inside(level, first, below).start, fleet.inside(level, last, below).stop
            starts = fleet.first[level][below][first : last + 1] - part[0]
            fewest = np.zeros(len(domains), np.int64)
            for need in self._needs:
                most = np.maximum.reduceat(need.room.sums[below][slice(*part)], starts)[domains - first]
                fewest = np.maximum(fewest, -(-need.count // most))
            bounds.append(fewest)
        left: list[Column] = []
        for above in range(level + 1):
            coarse = self._above(level, domains, above)
            free, installed = self._free.sums[above][coarse], self._installed.sums[above][coarse]
            bounds.append(np.where((free == installed) & (free > self._taken), installed, 0))
            left.append(free - self._taken)
        bounds += left
        order = np.lexsort(bounds[::-1])
        return domains[order].tolist(), [bound[order] for bound in bounds]

    def _best(
        self, level: int, ranked: list[int], bounds: list[Column], curves: Curves
    ) -> tuple[tuple[int, int] | None, bool]:
        """The least cost in these domains and where it is, if anywhere; and whether the search came to its end."""
        best: tuple[int, int] | None = None
        for place, domain in enumerate(ranked):
            if best is not None and self._packed(level, bounds, place) >= best[0]:
                break
            if not self._exact(level, domain):
                return None, False
            cost = curves.cost(level, domain)
            if curves.exhausted:
                return None, False
            if cost is not None:
                cost += self._coarse(level, domain)
                if best is None or cost < best[0]:
                    best = cost, domain
        return best, True

    def _packed(self, level: int, bounds: list[Column], place: int) -> int:
        """A domain's lower bound in the same form as the cost of a curve."""
        term, depth = self._objective.term, len(self._fleet.starts)
        terms = [(0, one) for one in range(level + 1, depth)]
        terms += [(kind, one) for kind in (1, 2) for one in range(level + 1)]
        total = sum(term(0, one, 1) for one in range(level + 1))
        for (kind, one), column in zip(terms, bounds, strict=True):
            total += term(kind, one, int(column[place]))
        return total

    def _coarse(self, level: int, domain: int) -> int:
        """Cost of the domains above the one that holds the gang."""
        total = 0
        for above in range(level):
            coarse = int(self._fleet.domain[above][self._fleet.starts[level][domain]])
            free, installed = int(self._free.sums[above][coarse]), int(self._installed.sums[above][coarse])
            total += self._objective.touch(above, free, installed, self._taken)
        return total

    def _exact(self, level: int, domain: int) -> bool:
        needs = self._needs
        if len(needs) == 1:
            return needs[0].count * len(self._fleet.rows_of(level, domain)) <= _EXACT_CELLS
        return len(needs) <= _EXACT_GROUPS and prod(need.count + 1 for need in needs) <= _EXACT_VECTORS

    def _greedy(self, level: int, domains: list[int]) -> tuple[_Rows | None, bool]:
        """Not the best, but found: equal members spread over the roomiest domains, unlike ones packed with a budget."""
        needs = self._needs
        if len(needs) == 1 and (needs[0].level < 0 or needs[0].level <= level):
            return [spread(self._fleet, needs[0].room, level, domains[0], needs[0].count)], False
        steps = Steps()
        for domain in domains:
            found = pack(self._state, self._fleet.rows_of(level, domain), needs, steps)
            if found is not None:
                return found, False
        return None, steps.spent
