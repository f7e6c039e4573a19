"""A sample of the exploration, and that it would find out a protocol that is broken."""

from __future__ import annotations

import pytest

from tests.exploration.configurations import CONFIGURATIONS
from tests.exploration.mutants import MUTANTS
from tests.exploration.search import explore


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_no_run_with_one_departure_breaks_a_promise(name: str) -> None:
    """One thing held up, lost, killed or done by somebody else, at every moment; and the recovery from each."""
    result = explore(CONFIGURATIONS[name], departures=1)
    assert [fault.text for fault in result.faults] == []
    assert result.departures == 1
    assert result.states > 1000


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_protocol_is_found_out(name: str) -> None:
    """And the shortest way to it reads like a story."""
    make, where, promise = MUTANTS[name]
    result = explore(CONFIGURATIONS[where], make, states=300_000, first=True)
    (fault, *_) = result.faults
    assert fault.text.startswith(promise), fault
    print(fault.text, *fault.trace, sep="\n  ")  # shown with -s, and when something fails
