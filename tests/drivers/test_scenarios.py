"""Every scenario of tests/scenarios on the engine: what it expects holds, and its plans depend on nothing but the facts."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from queuectl.drivers.replay.play import Outcome, play
from queuectl.drivers.replay.reading import load
from queuectl.drivers.replay.simulator import Arrange
from queuectl.drivers.replay.stage import EngineTier
from queuectl.model.changes import Change

FOLDER = Path(__file__).parents[1] / "scenarios"
FILES = sorted(FOLDER.glob("*.yaml"))
HASHES = """
import asyncio, sys
from pathlib import Path
from queuectl.drivers.replay.play import play
from queuectl.drivers.replay.reading import load
from queuectl.drivers.replay.stage import EngineTier
for name in sorted(Path(sys.argv[1]).glob("*.yaml")):
    tier = EngineTier()
    asyncio.run(play(load(name), tier))
    print(name.stem, tier.simulator.plans.hexdigest)
"""


def played(path: Path, arrange: Arrange | None = None) -> tuple[Outcome, str]:
    """What came of a file, and the hash of its plans; the engine's aggregates are checked at the end."""
    tier = EngineTier(arrange=arrange)
    outcome = asyncio.run(play(load(path), tier))
    tier.simulator.engine._state.check()
    return outcome, tier.simulator.plans.hexdigest


def shuffled(seed: int) -> Arrange:
    """Changes of one moment in another order."""
    drawn = random.Random(seed)

    def arrange(changes: list[Change]) -> list[Change]:
        return drawn.sample(changes, len(changes))

    return arrange


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_it_expects_holds(path: Path) -> None:
    outcome, _ = played(path)
    assert outcome.failed == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_says_what_it_shows_and_expects_something(path: Path) -> None:
    scenario = load(path)
    assert path.read_text().startswith("# ")
    assert scenario.file.expect


def test_there_are_enough_of_them() -> None:
    assert len(FILES) >= 40


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_plans_do_not_depend_on_the_order_in_which_facts_of_one_moment_come(path: Path) -> None:
    first, plans = played(path)
    for seed in range(3):
        again, same = played(path, shuffled(seed))
        assert (again, same) == (first, plans)


def test_the_plans_do_not_depend_on_the_seed_of_hashes() -> None:
    def hashes(seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        argv = [sys.executable, "-c", HASHES, str(FOLDER)]
        return subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout

    first = hashes("1")
    assert len(first.splitlines()) == len(FILES)
    assert hashes("2") == hashes("1717") == first
