"""Placements that are found, not proven best: for gangs too large or too unlike for the curves.

``spread`` always succeeds where there is room. ``pack`` is a depth-first search over nodes with trial charges and a
budget: without a result and with the budget spent, nothing is known.
"""

from __future__ import annotations

from collections.abc import Sequence

from queuectl.engine.curves import Need
from queuectl.engine.fleet import Fleet
from queuectl.engine.rooms import Tally
from queuectl.engine.state import State

STEPS = 5_000  # trial charges a decision: about 10 ms


class Steps:
    """How many trial charges are left."""

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

    Members of one group go to nodes in a fixed order, so that equal choices are not tried twice.
    """
    fleet = state.fleet
    order = sorted(range(len(needs)), key=lambda number: (needs[number].room.total // needs[number].count, number))
    found: list[dict[int, int]] = [{} for _ in needs]
    mark = state.checkpoint()

    def choose(depth: int, left: int, start: int, candidates: list[int]) -> bool:
        if left == 0:
            if depth + 1 == len(order):
                return True
            following = needs[order[depth + 1]]
            return choose(depth + 1, following.count, 0, _candidates(rows, following, found))
        number = order[depth]
        need = needs[number]
        for position in range(start, len(candidates)):
            row = candidates[position]
            name = fleet.tree.nodes[row]
            if not _together(fleet, need, row, found[number]) or not fleet.fits(name, need.requests):
                continue
            if steps.spent:
                return False
            steps.left -= 1
            inner = state.checkpoint()
            state.try_charge(name, need.requests, 1)
            found[number][row] = found[number].get(row, 0) + 1
            if choose(depth, left - 1, position, candidates):
                return True
            state.rollback(inner)
            found[number][row] -= 1
            if not found[number][row]:
                del found[number][row]
        return False

    first = needs[order[0]]
    done = choose(0, first.count, 0, _candidates(rows, first, found))
    state.rollback(mark)
    return found if done else None


def _together(fleet: Fleet, need: Need, row: int, taken: dict[int, int]) -> bool:
    """Whether the row is in the domain that the group must share: a named one, and that of its other members."""
    if need.level < 0:
        return True
    domain = fleet.domain[need.level]
    return bool(fleet.named[need.level][domain[row]]) and all(domain[row] == domain[other] for other in taken)


def _candidates(rows: Sequence[int], need: Need, found: list[dict[int, int]]) -> list[int]:
    """Nodes for a group: those already touched, then the fullest that still take a member, then by row."""
    touched = {row for one in found for row in one}
    room = need.room.rows
    return sorted((row for row in rows if room[row]), key=lambda row: (row not in touched, int(room[row]), row))
