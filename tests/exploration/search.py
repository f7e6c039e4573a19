"""The search: every run with at most so many departures from the prompt one.

Runs are explored by rising number of departures, so the first run that breaks a promise is one with the fewest. From every
state that is reached the prompt run is followed to its end: every state is also the beginning of a recovery, at whose
end nothing may be torn or stuck.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct, field

from queuectl.control.release import Release
from queuectl.control.source import Source
from tests.exploration import promises
from tests.exploration.configurations import Configuration
from tests.exploration.explorer import Explorer, Move, State
from tests.exploration.labels import label

_LOOK = 256  # states between two looks at the clock
_LONGEST = 2000  # steps: ten times more than any run needs that ends
_OVER, _UNKNOWN = -1, -2  # instead of the number of the next state in the prompt run


class Fault(Struct, frozen=True):
    """A promise broken, and the steps that lead to it."""

    text: str
    trace: tuple[str, ...]


class Result(Struct):
    """What an exploration found: all runs with so many ``departures`` were explored (-1: not even the prompt one)."""

    configuration: str
    states: int = 0
    transitions: int = 0
    depth: int = 0
    departures: int = -1
    exhausted: bool = False
    seconds: float = 0.0
    clusters: int = 0
    processes: int = 0
    faults: list[Fault] = field(default_factory=list)

    def text(self) -> str:
        """In one line."""
        reach = "all runs there are" if self.exhausted else f"all runs with up to {self.departures} departures"
        return (
            f"{self.configuration}: {self.states:,} states, {self.transitions:,} transitions, depth {self.depth}; {reach}; "
            f"{self.clusters:,} states of the cluster, {self.processes:,} of a process; {self.seconds:.0f} s; "
            f"{len(self.faults)} violations"
        )


def explore(
    configuration: Configuration,
    make: Callable[[Source], Release] = Release,
    *,
    states: int = 1_000_000,
    seconds: float = 600.0,
    departures: int = 99,
    first: bool = False,
) -> Result:
    """Explore one configuration until a bound is met; ``first``: or until a promise is broken.

    Memory: about 1.5 GB for a million states.
    """
    with _quiet():
        search = _Search(configuration, make)
        search.run(states, time.monotonic() + seconds, departures, first=first)
        return search.result


@contextmanager
def _quiet() -> Iterator[None]:
    """The loop's log would tell of every give-back that was ever tried; and nothing here makes cycles."""
    log = logging.getLogger("queuectl")
    before, collects = log.level, gc.isenabled()
    log.setLevel(logging.CRITICAL)
    gc.disable()
    try:
        yield
    finally:
        log.setLevel(before)
        if collects:
            gc.enable()


class _Search:
    """States by number: how each was reached, by how many departures, and where the prompt run goes from it."""

    def __init__(self, configuration: Configuration, make: Callable[[Source], Release]) -> None:
        self.result = Result(configuration.name)
        self._explorer = Explorer(configuration, make)
        self._numbers: dict[State, int] = {}
        self._states: list[State] = []
        self._reached: list[tuple[int, Move | None]] = []
        self._cost: list[int] = []
        self._next: list[int] = []
        self._depth: list[int] = []
        self._found: set[str] = set()

    def run(self, states: int, until: float, departures: int, *, first: bool) -> None:
        """Layer by layer: all states that so many departures lead to."""
        started, result = time.monotonic(), self.result
        stack, level = [self._put(self._explorer.first(), -1, None, 0)], 0
        later: list[int] = []
        over = False
        while not over:
            count = 0
            while stack and not over:
                number = stack.pop()
                if self._next[number] == _UNKNOWN and self._cost[number] == level:
                    self._expand(number, stack, later if level < departures else None)
                count += 1
                late = count % _LOOK == 0 and time.monotonic() > until
                over = late or result.states >= states or bool(first and result.faults)
            if over:
                break
            result.departures = level
            result.exhausted = not later and level < departures
            over = not later
            stack, later, level = later, [], level + 1
        self._circles()
        result.depth = max(self._depth)
        result.clusters, result.processes = len(self._explorer.parts.clusters), len(self._explorer.parts.minds)
        result.seconds = time.monotonic() - started

    def _put(self, state: State, before: int, move: Move | None, cost: int) -> int:
        """The number of a state; of an unexpanded one the cheapest way to it is kept."""
        number = self._numbers.setdefault(state, len(self._states))
        depth = self._depth[before] + 1 if before >= 0 else 0
        if number == len(self._states):
            self._states.append(state)
            self._reached.append((before, move))
            self._cost.append(cost)
            self._next.append(_UNKNOWN)
            self._depth.append(depth)
        elif cost < self._cost[number]:
            self._reached[number], self._cost[number], self._depth[number] = (before, move), cost, depth
        return number

    def _expand(self, number: int, stack: list[int], later: list[int] | None) -> None:
        """Follow all moves from a state; those that cost a departure only if there is a ``later``."""
        self.result.states += 1
        explorer, state, cost = self._explorer, self._states[number], self._cost[number]
        choices = explorer.choices(state)
        prompt = choices[0][0] if choices and choices[0][1] == 0 and choices[0][0][0] != "late" else None
        self._next[number] = _OVER
        if self._depth[number] >= _LONGEST:
            if not state.held:
                self._fault("L3: the run does not end", number, None)
            return
        if explorer.rests(prompt):
            self._at_rest(number, state, over=prompt is None)
        for move, extra in reversed(choices):  # the prompt one last, so that it is followed first
            if extra and later is None:
                continue
            after, faults = explorer.after(state, move)
            self.result.transitions += 1
            known = self._put(after, number, move, cost + extra)
            for fault in faults:
                self._fault(fault, number, move)
            if self._next[known] == _UNKNOWN and self._cost[known] == cost + extra:
                (later if extra and later is not None else stack).append(known)
            if move is prompt:
                self._next[number] = known

    def _at_rest(self, number: int, state: State, *, over: bool) -> None:
        leader = self._explorer.leader(state)
        faults = self._explorer.parts.at_rest(state.cluster, leader.mind) if leader is not None else ()
        stuck = tuple(promises.stuck(self._explorer.parts.clusters[state.cluster])) if over else ()
        for fault in (*faults, *stuck):
            self._fault(fault, number, None)

    def _circles(self) -> None:
        """Prompt runs that never end, though nothing is held up: what is held up goes on at some time."""
        seen: dict[int, int] = {}
        for start in range(len(self._states)):
            number = start
            while number >= 0 and number not in seen:
                seen[number] = start
                number = self._next[number]
            if number >= 0 and seen[number] == start and not self._states[number].held:
                self._fault("L3: the run goes round in a circle", number, None)

    def _fault(self, text: str, number: int, move: Move | None) -> None:
        if text in self._found:
            return
        self._found.add(text)
        moves = [] if move is None else [(self._states[number], move)]
        while (reached := self._reached[number])[1] is not None:
            number, taken = reached[0], reached[1]
            moves.append((self._states[number], taken))
        lines = tuple(label(self._explorer, state, taken) for state, taken in reversed(moves))
        self.result.faults.append(Fault(text, lines))
