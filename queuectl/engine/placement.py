"""One gang onto the topology, or why not. Knows no queues.

A request that one node takes whole is answered by ``single``, all others by ``search``. What was refused is remembered.
"""

from __future__ import annotations

from msgspec import Struct

from queuectl.engine.curves import Need, gpus, objective
from queuectl.engine.refusal import refuse
from queuectl.engine.request import Fit, Group, Refusal, Request, Zone
from queuectl.engine.rooms import Rooms
from queuectl.engine.search import Search
from queuectl.engine.single import Single
from queuectl.engine.state import State
from queuectl.model.topology import NODE_LEVEL

_Asked = Request | tuple[Request, tuple[Zone, ...]]


class Lack(Struct, frozen=True, gc=False):
    """The group that lacks most room by itself, for how many pods (0: none lacks any), and whether the cluster is too small."""

    short: int
    missing: int
    overall: bool


class Placement:
    """Places requests on the fleet of ``state`` and remembers what did not fit until some node gains room."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._fleet = state.fleet
        self.rooms = Rooms(state.fleet)
        self._refused: dict[_Asked, Refusal] = {}
        self._unfit: set[_Asked] = set()
        self._last: tuple[Request, tuple[Zone, ...], Fit, int, int] | None = (
            None  # one pod that was placed; the fleet's ticks and era then
        )

    def known(self, level: str) -> bool:
        """Whether the topology has a level of that name."""
        return level == NODE_LEVEL or any(one.name == level for one in self._fleet.levels)

    def place(self, request: Request, zones: tuple[Zone, ...] = ()) -> Fit | Refusal:
        """The best placement, or the refusal. About 0.1 ms for equal members on 10,000 nodes; ``curves.BUDGET`` bounds it.

        ``zones`` confine its groups, one each; without them all nodes are there to use.

        Refusals are remembered until ``forget``: queues that ask for the same thing share the answer.
        """
        asked: _Asked = (request, zones) if zones else request
        if (refusal := self._refused.get(asked)) is not None:
            return refusal
        found, needs, unproven = self._find(request, zones)
        if found is not None:
            return found
        top = self._depth(request.required)
        inside = self._inside(request, top)
        shapes = tuple(group.shape for group in request.groups)
        misfits = refuse(self.rooms, needs, shapes, top, inside, zones, unproven=unproven)
        short, missing = _shortest(needs, top)
        refusal = self._refused[asked] = Refusal(misfits, short, missing)
        return refusal

    def fit(self, request: Request, zones: tuple[Zone, ...]) -> Fit | None:
        """As ``place``, for those who try several zones: without evidence when nothing fits."""
        if (request, zones) in self._refused or (request, zones) in self._unfit:
            return None
        found, _, _ = self._find(request, zones)
        if found is None:
            self._unfit.add((request, zones))
        return found

    def _find(self, request: Request, zones: tuple[Zone, ...]) -> tuple[Fit | None, tuple[Need, ...], bool]:
        """The best placement, if there is one; what was looked for last, and whether that was cut short."""
        if (again := self._again(request, zones)) is not None:
            return again, (), False
        top = self._depth(request.required)
        each = zones or (None,) * len(request.groups)
        needs: tuple[Need, ...] = ()
        rows: list[dict[int, int]] | bool = False
        # A group's preference is tried as if it were required, then one level coarser, until nothing is left of it.
        for climb in range(self._finest_preference(request), -1, -1):
            levels = [max(self._depth(group.required), self._preference(group, climb)) for group in request.groups]
            if len(levels) == 1 and (row := self._one_node(request, top, levels[0], each[0])) is not None:
                return self._fit(request, zones, [{row: request.groups[0].count}]), (), False
            needs = tuple(
                Need(self.rooms.tally(group.shape, zone), group.shape.requests, group.count, level)
                for group, zone, level in zip(request.groups, each, levels, strict=True)
            )
            rows = Search(self._state, self.rooms, needs, top, self._inside(request, top)).rows()
            if isinstance(rows, list):
                return self._fit(request, zones, rows), needs, False
        return None, needs, rows is True

    def lacking(self, request: Request) -> Lack:
        """What a request lacks on all nodes, whatever pool they are in: if anything, it does not fit. O(rows changed)."""
        needs = tuple(
            Need(self.rooms.room(group.shape), group.shape.requests, group.count, self._depth(group.required))
            for group in request.groups
        )
        short, missing = _shortest(needs, self._depth(request.required))
        return Lack(short, missing, any(need.room.total < need.count for need in needs))

    def _fit(self, request: Request, zones: tuple[Zone, ...], rows: list[dict[int, int]]) -> Fit:
        """The answer in names, and remembered where it is one pod."""
        names = self._fleet.tree.nodes
        fit = Fit(tuple(tuple((names[row], count) for row, count in sorted(one.items())) for one in rows))
        if len(request.groups) == 1 and request.groups[0].count == 1:
            self._last = request, zones, fit, self._fleet.ticks, self._fleet.era
        return fit

    def _again(self, request: Request, zones: tuple[Zone, ...]) -> Fit | None:
        """The node of the last single pod, if all that happened since is that this pod was charged there.

        It is still the best: its domains are broken into already, and left over is less there than it was. O(resources).
        """
        if self._last is None or self._last[0] is not request or self._last[1] != zones:
            return None
        _, _, fit, ticks, era = self._last
        fleet, name = self._fleet, fit.nodes[0][0][0]
        alone = era == fleet.era and fleet.ticks == ticks + 1 == fleet.touched[fleet.row[name]]
        if not alone or not fleet.fits(name, request.groups[0].shape.requests):
            return None
        self._last = request, zones, fit, ticks + 1, era
        return fit

    def cost(self, request: Request, fit: Fit) -> int:
        """The objective's value of a placement, to compare it with others of the same request. O(its nodes × levels)."""
        fleet, touch = self._fleet, objective(len(self._fleet.starts)).touch
        free, installed = fleet.gpus_free, fleet.gpus
        taken: dict[int, int] = {}
        for group, nodes in zip(request.groups, fit.nodes, strict=True):
            each = gpus(group.shape.requests)
            for name, count in nodes:
                taken[fleet.row[name]] = taken.get(fleet.row[name], 0) + each * count
        total = 0
        for level, domain in enumerate(fleet.domain):
            touched: dict[int, int] = {}
            for row, units in taken.items():
                touched[int(domain[row])] = touched.get(int(domain[row]), 0) + units
            for one, units in touched.items():
                total += touch(level, int(free.sums[level][one]), int(installed.sums[level][one]), units)
        return total

    def forget(self) -> None:
        """Some node has changed or gained room: what did not fit may fit now."""
        self._refused.clear()
        self._unfit.clear()
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

    def _one_node(self, request: Request, top: int, level: int, zone: Zone | None) -> int | None:
        """The best node for all members of a request of one group, if any holds them."""
        fleet, group, inside = self._fleet, request.groups[0], self._inside(request, top)
        within = fleet.rows_of(-1, 0) if inside is None else fleet.rows_of(top, inside) if inside >= 0 else range(0)
        taken = gpus(group.shape.requests) * group.count
        return Single(self.rooms, group.shape, group.count, taken, {top, level} - {-1}, zone).node(within)


def _shortest(needs: tuple[Need, ...], top: int) -> tuple[int, int]:
    """The group that lacks most room by itself, and how much: in its best domain, or in all of the cluster."""
    lacks = []
    for number, need in enumerate(needs):
        level = max(top, need.level)
        have = need.room.total if level < 0 else int(need.room.sums[level].max(initial=0))
        lacks.append((max(need.count - have, 0), -number))
    missing, number = max(lacks)
    return -number, missing
