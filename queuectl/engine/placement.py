"""One gang onto the topology, or why not. Knows no queues.

The objective (engine.md §4) is lexicographic: domains touched, coarse to fine; wholly free domains broken into; what is
left over in the domains touched. So the search goes from the finest level up: the first level with a domain that holds
the gang is the one where it is placed, and a preferred level needs no rule of its own.
"""

from __future__ import annotations

import numpy as np

from queuectl.engine.curves import Curves, Need, Objective, gpus, objective
from queuectl.engine.fleet import Column
from queuectl.engine.packing import Steps, pack, spread
from queuectl.engine.refusal import refuse
from queuectl.engine.request import Fit, Group, Refusal, Request
from queuectl.engine.rooms import Rooms
from queuectl.engine.single import Single
from queuectl.engine.state import State
from queuectl.model.topology import NODE_LEVEL

_EXACT_GROUPS = 3  # count vectors of more groups than this are searched by packing (engine.md §4)
_EXACT_VECTORS = 10_000  # Π (count + 1): the states of one curve
_EXACT_CELLS = 1_000_000  # members × domains below the one looked at


class Placement:
    """Places requests on the fleet of ``state`` and remembers what did not fit until some node gains room."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._fleet = state.fleet
        self.rooms = Rooms(state.fleet)
        self._refused: dict[Request, Refusal] = {}
        self._last: tuple[Request, Fit, int, int] | None = (
            None  # one pod that was placed; the fleet's ticks and era then
        )

    def known(self, level: str) -> bool:
        """Whether the topology has a level of that name."""
        return level == NODE_LEVEL or any(one.name == level for one in self._fleet.levels)

    def place(self, request: Request) -> Fit | Refusal:
        """The best placement, or the refusal. About 0.1 ms for equal members on 10,000 nodes; ``curves.BUDGET`` bounds it.

        Refusals are remembered until ``forget``: queues that ask for the same thing share the answer.
        """
        if (refusal := self._refused.get(request)) is not None:
            return refusal
        if (again := self._again(request)) is not None:
            return again
        top = self._depth(request.required)
        needs: tuple[Need, ...] = ()
        rows: list[dict[int, int]] | bool = False
        # A group's preference is tried as if it were required, then one level coarser, until nothing is left of it.
        for climb in range(self._finest_preference(request), -1, -1):
            levels = [max(self._depth(group.required), self._preference(group, climb)) for group in request.groups]
            if len(levels) == 1 and (row := self._one_node(request, top, levels[0])) is not None:
                return self._fit(request, [{row: request.groups[0].count}])
            needs = tuple(
                Need(self.rooms.room(group.shape), group.shape.requests, group.count, level)
                for group, level in zip(request.groups, levels, strict=True)
            )
            rows = self._search(request, needs, top)
            if isinstance(rows, list):
                return self._fit(request, rows)
        inside = self._inside(request, top)
        shapes = tuple(group.shape for group in request.groups)
        misfits = refuse(self.rooms, needs, shapes, top, inside, unproven=rows is True)
        short, missing = _shortest(needs, top)
        refusal = self._refused[request] = Refusal(misfits, short, missing)
        return refusal

    def _fit(self, request: Request, rows: list[dict[int, int]]) -> Fit:
        """The answer in names, and remembered where it is one pod."""
        names = self._fleet.tree.nodes
        fit = Fit(tuple(tuple((names[row], count) for row, count in sorted(one.items())) for one in rows))
        if len(request.groups) == 1 and request.groups[0].count == 1:
            self._last = request, fit, self._fleet.ticks, self._fleet.era
        return fit

    def _again(self, request: Request) -> Fit | None:
        """The node of the last single pod, if all that happened since is that this pod was charged there.

        It is still the best: its domains are broken into already, and left over is less there than it was. O(resources).
        """
        if self._last is None or self._last[0] is not request:
            return None
        _, fit, ticks, era = self._last
        fleet, name = self._fleet, fit.nodes[0][0][0]
        alone = era == fleet.era and fleet.ticks == ticks + 1 == fleet.touched[fleet.row[name]]
        if not alone or not fleet.fits(name, request.groups[0].shape.requests):
            return None
        self._last = request, fit, ticks + 1, era
        return fit

    def forget(self) -> None:
        """Some node has changed or gained room: what did not fit may fit now."""
        self._refused.clear()
        self._last = None

    def _finest_preference(self, request: Request) -> int:
        return max(self._depth(group.preferred) + 1 if group.preferred else 0 for group in request.groups)

    def _preference(self, group: Group, climb: int) -> int:
        """The level preferred by a group after climbing down to at most ``climb`` levels; -1 for none."""
        return -1 if group.preferred is None else min(self._depth(group.preferred), climb - 1)

    def _depth(self, level: str | None) -> int:
        """Number of a level, coarse first; -1 for none. One that does not exist is none: requiring it is told earlier."""
        if level is None:
            return -1
        if level == NODE_LEVEL:
            return len(self._fleet.levels) - 1
        return next((depth for depth, one in enumerate(self._fleet.levels) if one.name == level), -1)

    def _inside(self, request: Request, top: int) -> int | None:
        """The one domain of the required level that may be used; None for any."""
        if request.anchor is None or top < 0:
            return None
        row = self._fleet.row.get(request.anchor)
        return -1 if row is None else int(self._fleet.domain[top][row])

    def _one_node(self, request: Request, top: int, level: int) -> int | None:
        """The best node for all members of a request of one group, if any holds them."""
        fleet, group, inside = self._fleet, request.groups[0], self._inside(request, top)
        within = fleet.rows_of(-1, 0) if inside is None else fleet.rows_of(top, inside) if inside >= 0 else range(0)
        taken = gpus(group.shape.requests) * group.count
        return Single(self.rooms, group.shape, group.count, taken, {top, level} - {-1}).node(within)

    def _search(self, request: Request, needs: tuple[Need, ...], top: int) -> list[dict[int, int]] | bool:
        """Rows per group; else whether the search was cut short (True) or proves that nothing fits (False)."""
        fleet = self._fleet
        if not all(group.count <= need.room.total for group, need in zip(request.groups, needs, strict=True)):
            return False
        inside = self._inside(request, top)
        # Of one group, no node holds all: that was asked first.
        lowest = len(fleet.starts) - (1 if len(needs) > 1 else 2)
        unproven = False
        curves: Curves | None = None
        for level in range(lowest, max(top, 0) - 1, -1):
            domains = self._holding(needs, level, top, inside)
            if not len(domains):
                continue
            curves = curves or Curves(fleet, needs, self.rooms.gpus_free(), self.rooms.gpus())
            found, cut = self._at(level, domains, needs, curves)
            if found is not None:
                return found
            unproven |= cut
        if top < 0:
            curves = curves or Curves(fleet, needs, self.rooms.gpus_free(), self.rooms.gpus())
            found, cut = self._at(-1, np.zeros(1, np.int64), needs, curves)
            if found is not None:
                return found
            unproven |= cut
        return unproven

    def _holding(self, needs: tuple[Need, ...], level: int, top: int, inside: int | None) -> Column:
        """Domains of a level with room for every group by itself, under the required level."""
        fleet = self._fleet
        holding = needs[0].room.sums[level] >= needs[0].count
        for need in needs[1:]:
            holding &= need.room.sums[level] >= need.count
        domains = holding.nonzero()[0]
        for above in {top, *(need.level for need in needs)} - {-1}:
            if above <= level and not fleet.complete[above]:
                domains = domains[fleet.named[above][self._above(level, domains, above)]]
        if inside is not None:
            domains = domains[self._above(level, domains, top) == inside]
        return domains

    def _above(self, level: int, domains: Column, above: int) -> Column:
        """The domains of a coarser level that hold these."""
        return self._fleet.domain[above][self._fleet.starts[level][domains]]

    def _terms(self, above: int, taken: int) -> tuple[Column, Column]:
        """Breakage and leftover of every domain of a level, if it gave ``taken`` GPUs."""
        free, installed = self.rooms.gpus_free().sums[above], self.rooms.gpus().sums[above]
        return np.where((free == installed) & (free > taken), installed, 0), free - taken

    def _bounds(self, needs: tuple[Need, ...], level: int, domains: Column) -> list[Column]:
        """Per candidate domain, the objective's terms in order where known, else a lower bound of them."""
        fleet = self._fleet
        taken = sum(need.gpus * need.count for need in needs)
        touched: list[Column] = []
        for below in range(level + 1, len(fleet.starts)):
            first = fleet.first[level][below]
            fewest = np.zeros(len(domains), np.int64)
            for need in needs:
                most = np.maximum.reduceat(need.room.sums[below], first)[domains]
                fewest = np.maximum(fewest, -(-need.count // most))
            touched.append(fewest)
        pairs = [self._terms(above, taken) for above in range(level + 1)]
        coarse = [self._above(level, domains, above) for above in range(level + 1)]
        return [*touched, *(pair[kind][one] for kind in (0, 1) for pair, one in zip(pairs, coarse, strict=True))]

    def _at(
        self, level: int, domains: Column, needs: tuple[Need, ...], curves: Curves
    ) -> tuple[list[dict[int, int]] | None, bool]:
        """The best placement inside one of these domains, and whether any of them could not be searched to the end."""
        if level >= 0 and len(domains) > 1:
            bounds = self._bounds(needs, level, domains)
            order = np.lexsort(bounds[::-1])
        else:
            bounds, order = [], np.zeros(1, np.int64)
        best: tuple[int, int] | None = None
        for position in order.tolist():
            domain = int(domains[position])
            if best is not None and bounds and self._packed(level, bounds, position) >= best[0]:
                break
            if not self._exact(level, domain, needs):
                return self._greedy(level, [int(domains[one]) for one in order], needs)
            cost = curves.cost(level, domain)
            if curves.exhausted:
                return self._greedy(level, [int(domains[one]) for one in order], needs)
            if cost is not None:
                cost += self._coarse(level, domain, needs)
                if best is None or cost < best[0]:
                    best = cost, domain
        return (None, False) if best is None else (curves.rows(level, best[1]), False)

    def _packed(self, level: int, bounds: list[Column], position: int) -> int:
        """A candidate's lower bound in the same form as the cost of a curve."""
        term, depth = self._objective().term, len(self._fleet.starts)
        terms = [(0, one) for one in range(level + 1, depth)]
        terms += [(kind, one) for kind in (1, 2) for one in range(level + 1)]
        total = sum(term(0, one, 1) for one in range(level + 1))
        for (kind, one), column in zip(terms, bounds, strict=True):
            total += term(kind, one, int(column[position]))
        return total

    def _objective(self) -> Objective:
        return objective(len(self._fleet.starts))

    def _coarse(self, level: int, domain: int, needs: tuple[Need, ...]) -> int:
        """Cost of the domains above the one that holds the gang."""
        if level <= 0:
            return 0
        free, installed = self.rooms.gpus_free(), self.rooms.gpus()
        taken = sum(need.gpus * need.count for need in needs)
        row = int(self._fleet.starts[level][domain])
        total = 0
        for above in range(level):
            coarse = int(self._fleet.domain[above][row])
            total += self._objective().touch(
                above, int(free.sums[above][coarse]), int(installed.sums[above][coarse]), taken
            )
        return total

    def _exact(self, level: int, domain: int, needs: tuple[Need, ...]) -> bool:
        vectors = 1
        for need in needs:
            vectors *= need.count + 1
        rows = len(self._fleet.rows_of(level, domain))
        if len(needs) == 1:
            return needs[0].count * rows <= _EXACT_CELLS
        return len(needs) <= _EXACT_GROUPS and vectors <= _EXACT_VECTORS

    def _greedy(
        self, level: int, domains: list[int], needs: tuple[Need, ...]
    ) -> tuple[list[dict[int, int]] | None, bool]:
        """Not the best, but found: equal members spread over the roomiest domains, unlike ones packed with a budget."""
        if len(needs) == 1 and (needs[0].level < 0 or needs[0].level <= level):
            return [spread(self._fleet, needs[0].room, level, domains[0], needs[0].count)], False
        steps = Steps()
        for domain in domains:
            found = pack(self._state, self._fleet.rows_of(level, domain), needs, steps)
            if found is not None:
                return found, False
        return None, steps.spent


def _shortest(needs: tuple[Need, ...], top: int) -> tuple[int, int]:
    """The group that lacks most room by itself, and how much: in its best domain, or in all of the cluster."""
    lacks = []
    for number, need in enumerate(needs):
        level = max(top, need.level)
        have = need.room.total if level < 0 else int(need.room.sums[level].max(initial=0))
        lacks.append((max(need.count - have, 0), -number))
    missing, number = max(lacks)
    return -number, missing
