"""Placements that are found, not proven best: for gangs too large or too unlike for the curves.

``spread`` always succeeds where there is room. ``pack`` is a depth-first search over nodes with trial charges and a
budget: without a result and with the budget spent, nothing is known. Neither recurses by member or node.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from queuectl.engine.curves import Need
from queuectl.engine.fleet import Fleet
from queuectl.engine.rooms import Tally
from queuectl.engine.state import State

STEPS = 30_000  # nodes looked at in a decision: about 50 ms


class Steps:
    """How many nodes may still be looked at."""

    def __init__(self, left: int = STEPS) -> None:
        self.left = left

    @property
    def spent(self) -> bool:
        """Whether the search was cut short."""
        return self.left <= 0


def spread(fleet: Fleet, room: Tally, level: int, domain: int, count: int) -> dict[int, int]:
    """``count`` equal members in a domain that has room for them: the roomiest children whole, the last one best fit.

    Fewest children touched on every level, which is the first half of the objective. O(children × levels).
    """
    if level == len(fleet.starts) - 1:
        return {domain: count}
    rows = fleet.rows_of(level, domain)
    below = fleet.domain[level + 1]
    first, last = int(below[rows.start]), int(below[rows.stop - 1])
    sums = room.sums[level + 1][first : last + 1].tolist()
    order = sorted(range(len(sums)), key=lambda child: (-sums[child], child))
    found: dict[int, int] = {}
    for position, child in enumerate(order):
        if sums[child] >= count:
            # The smallest that still holds the rest; the list is sorted, so it is the last that does.
            holding = [one for one in order[position:] if sums[one] >= count]
            found.update(spread(fleet, room, level + 1, first + holding[-1], count))
            break
        found.update(spread(fleet, room, level + 1, first + child, sums[child]))
        count -= sums[child]
    return found


def pack(state: State, rows: Sequence[int], needs: tuple[Need, ...], steps: Steps) -> list[dict[int, int]] | None:
    """Rows for unlike members, hardest group first, or None; proven impossible unless ``steps`` are spent.

    Members of one group go to nodes in a fixed order, so that equal choices are not tried twice: each node takes as many
    as it can, then one less when those after it do not suffice.
    """
    order = sorted(range(len(needs)), key=lambda number: (needs[number].room.total // needs[number].count, number))
    found: list[dict[int, int]] = [{} for _ in needs]
    mark = state.checkpoint()
    filled: list[_Filling] = []
    filling = _Filling(state, needs[order[0]], rows, found, order[0])
    # Forward while groups can be filled, back to the group before when one cannot; ``filled`` holds those before it.
    going = filling.fill(steps)
    while not (going and len(filled) + 1 == len(order)):
        if going:
            filled.append(filling)
            number = order[len(filled)]
            filling = _Filling(state, needs[number], rows, found, number)
            going = filling.fill(steps)
        elif filled and not steps.spent:
            filling = filled.pop()
            going = filling.change(steps)
        else:
            break
    state.rollback(mark)
    return found if going else None


class _Filling:
    """One group being put onto its candidate nodes, given where the groups before it are."""

    def __init__(self, state: State, need: Need, rows: Sequence[int], found: list[dict[int, int]], number: int) -> None:
        self._state, self._need, self._taken = state, need, found[number]
        self._candidates = _candidates(rows, need, found)
        # What the candidates from here on can hold at most, were they as free as they were: prunes hopeless tails.
        self._rest = [0]
        for row in reversed(self._candidates):
            self._rest.append(self._rest[-1] + int(need.room.rows[row]))
        self._rest.reverse()
        self._left = need.count
        self._choices: list[tuple[int, int, int]] = []  # (position, members, mark before them)

    def fill(self, steps: Steps, start: int = 0) -> bool:
        """Place all that is left from candidate ``start`` on; when that fails, change earlier choices until it works."""
        while True:
            position = start
            while self._left and self._rest[position] >= self._left and not steps.spent:
                steps.left -= 1
                self._take(position, min(self._left, self._fitting(self._candidates[position])))
                position += 1
            if not self._left:
                return True
            if steps.spent or not self._choices:
                return False
            start = self._less()

    def change(self, steps: Steps) -> bool:
        """Another way to place the group, after the groups that follow could not be placed with this one."""
        return bool(self._choices) and self.fill(steps, self._less())

    def _less(self) -> int:
        """One member less at the last node chosen; the position after it."""
        position, count, mark = self._choices.pop()
        self._state.rollback(mark)
        self._left += count
        del self._taken[self._candidates[position]]
        self._take(position, count - 1)
        return position + 1

    def _take(self, position: int, count: int) -> None:
        if count:
            row = self._candidates[position]
            self._choices.append((position, count, self._state.checkpoint()))
            self._state.try_charge(self._state.fleet.tree.nodes[row], self._need.requests, count)
            self._taken[row] = count
            self._left -= count

    def _fitting(self, row: int) -> int:
        """How many members the node holds now, 0 if it lies outside the domain of those placed already."""
        fleet = self._state.fleet
        if not _together(fleet, self._need, row, self._taken):
            return 0
        return fleet.holds(fleet.tree.nodes[row], self._need.requests)


def _together(fleet: Fleet, need: Need, row: int, taken: dict[int, int]) -> bool:
    """Whether the row is in the domain that the group must share: a named one, and that of its other members."""
    if need.level < 0:
        return True
    domain = fleet.domain[need.level]
    return bool(fleet.named[need.level][domain[row]]) and all(
        domain[row] == domain[other] for other in islice(taken, 1)
    )


def _candidates(rows: Sequence[int], need: Need, found: list[dict[int, int]]) -> list[int]:
    """Nodes for a group: those already touched, then the fullest that still take a member, then by row."""
    touched = {row for one in found for row in one}
    room = need.room.rows
    return sorted((row for row in rows if room[row]), key=lambda row: (row not in touched, int(room[row]), row))
