"""A sample of the exploration, that it would find out a protocol that is broken, and that what it remembers is the truth."""

from __future__ import annotations

import random
from typing import Any

import pytest

from queuectl.control.release import Release
from tests.exploration.configurations import CONFIGURATIONS
from tests.exploration.explorer import Explorer
from tests.exploration.mutants import MUTANTS
from tests.exploration.parts import Moved, Parts
from tests.exploration.process import Process, thaw
from tests.exploration.search import explore

NARROW = ("lingering", "lingering extra", "claimed", "taken away")  # small enough for all runs that there are


@pytest.mark.parametrize("name", [name for name in CONFIGURATIONS if name not in NARROW])
def test_no_run_with_one_departure_breaks_a_promise(name: str) -> None:
    """One thing held up, lost, killed or done by somebody else, at every moment; and the recovery from each."""
    result = explore(CONFIGURATIONS[name], departures=1)
    assert [fault.text for fault in result.faults] == []
    assert result.departures == 1
    assert result.states > 1000


@pytest.mark.parametrize("name", NARROW)
def test_no_run_at_all_breaks_a_promise(name: str) -> None:
    """What takes several things at once to go wrong."""
    result = explore(CONFIGURATIONS[name])
    assert [fault.text for fault in result.faults] == []
    assert result.exhausted


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_protocol_is_found_out(name: str) -> None:
    """With the fewest departures that it takes; the steps are shown with -s, and when something fails."""
    make, where, promise = MUTANTS[name]
    result = explore(where, make, states=50_000, first=True)
    (fault, *_) = result.faults
    print(fault.text, *fault.trace, sep="\n  ")
    assert fault.text.startswith(promise)
    assert [line for line in fault.trace if line in STORIES.get(name, ())] == STORIES.get(name, [])


STORIES = {
    "without the version": [
        "controller 1 decides and sends RECORD job-train-b96ba (0 on n0, 1 on n0)",
        "hold job-train-b96ba",
        "the API server carries out RECORD job-train-b96ba (0 on n0, 1 on n0) of controller 1",
    ],
    "without the fence": [
        "controller 1 decides and sends RECORD job-train-b96ba (0 on n0, 1 on n0)",
        "request 1 RECORD job-train-b96ba: from now on is held up",
        "arrive solo 2 10",
        "controller 2 takes the Lease and reads everything",
        "the API server carries out RELEASE solo to n0 of controller 2",
        "request 1 RECORD job-train-b96ba: goes on",
        "the API server carries out RECORD job-train-b96ba (0 on n0, 1 on n0) of controller 1",
    ],
    "without the eviction's UID": [
        "the connection is reset under EVICT web-1 of controller 1",
        "the API server carries out EVICT web-1 of controller 1",
        "the API server carries out RETURN statefulset-web-a9bff of controller 1",
        "late, the API server carries out EVICT web-1",
    ],
    "without making lost releases void": [
        "the connection is reset under RELEASE band-1 to n0 of controller 1",
        "delete-group band",
        "the API server carries out RELEASE solo to n0 of controller 1",
        "late, the API server carries out RELEASE band-1 to n0",
    ],
}
"""Steps that the way to a fault must show, in this order."""


class Watched(Parts):
    """Parts beside processes that live on and are never frozen, each under the number of its mind."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.live: dict[int, Process] = {}
        self.inputs = 0

    def begins(self, cluster: int, fence: int) -> Moved:
        moved = super().begins(cluster, fence)
        self.live[moved.mind] = thaw(self.minds[moved.mind].frozen)
        return moved

    def takes(self, mind: int, verb: str, *what: int) -> Moved:
        moved = super().takes(mind, verb, *what)
        process = self.live.pop(mind)
        self.give(process, verb, *what)
        assert self._settle(process) == moved
        self.live[moved.mind] = process
        self.inputs += 1
        return moved


@pytest.mark.parametrize("name", ["give-back", "two at once"])
def test_a_process_that_lives_on_does_what_is_remembered_of_its_like(name: str) -> None:
    """Random runs: states that count as equal stay equal, whichever way each was reached."""
    chance = random.Random(1)
    explorer = Explorer(CONFIGURATIONS[name])
    explorer.parts = watched = Watched(Release, CONFIGURATIONS[name].most)
    first = explorer.first()
    begun = {mind: watched.minds[mind].frozen for mind in watched.live}
    for _ in range(12):
        state = first
        watched.live = {mind: thaw(frozen) for mind, frozen in begun.items()}
        for _ in range(100):
            choices = explorer.choices(state)
            if not choices:
                break
            prompt = choices[0][0]
            move = prompt if chance.random() < 0.8 else chance.choice(choices)[0]
            state, faults = explorer.after(state, move)
            assert faults == ()
    assert watched.inputs > 500
