"""``python -m tests.exploration``: explore every configuration and every mutant, and print what was found."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from tests.exploration.configurations import CONFIGURATIONS
from tests.exploration.mutants import MUTANTS
from tests.exploration.search import Result, explore


def everything(states: int, seconds: float, departures: int = 99) -> Iterator[Result]:
    """All configurations, each with its share of the states and seconds that those before it left over."""
    for left, configuration in zip(range(len(CONFIGURATIONS), 0, -1), CONFIGURATIONS.values(), strict=True):
        result = explore(configuration, states=states // left, seconds=seconds / left, departures=departures)
        states, seconds = states - result.states, seconds - result.seconds
        yield result


def mutants(seconds: float = 60.0) -> Iterator[tuple[str, str, Result]]:
    """Every mutant's name, the promise that it must break, and what was found until it broke one."""
    for name, (make, where, promise) in MUTANTS.items():
        yield name, promise, explore(where, make, seconds=seconds, first=True)


def main() -> int:
    """Exit code 0 when nothing was broken but by the mutants, each of which broke what it should."""
    parser = argparse.ArgumentParser(prog="python -m tests.exploration", description=__doc__)
    parser.add_argument("--states", type=int, default=1_000_000, help="states in all")
    parser.add_argument("--minutes", type=float, default=10.0, help="minutes in all, without the mutants")
    parser.add_argument("--departures", type=int, default=99, help="at most so many departures from the prompt run")
    options = parser.parse_args()
    well = True
    for result in everything(options.states, options.minutes * 60, options.departures):
        print(result.text(), flush=True)
        well = well and not result.faults
        _tell(result)
    for name, promise, result in mutants():
        caught = bool(result.faults) and result.faults[0].text.startswith(promise)
        well = well and caught
        print(f"{name}: {'caught' if caught else 'NOT CAUGHT'} after {result.states:,} states, {result.seconds:.0f} s")
        _tell(result)
    return 0 if well else 1


def _tell(result: Result) -> None:
    for fault in result.faults:
        print(f"  {fault.text}")
        for number, line in enumerate(fault.trace, 1):
            print(f"    {number:3} {line}")


if __name__ == "__main__":
    sys.exit(main())
