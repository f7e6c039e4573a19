"""The scenarios once more, through objects: the real controller on the cluster in memory, in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from queuectl.drivers.replay.reading import load, read
from tests.tiers.memory import played
from tests.tiers.wired import playable

FILES = sorted((Path(__file__).parents[1] / "scenarios").glob("*.yaml"))
HERE = [path for path in FILES if playable(load(path))]


@pytest.mark.parametrize("path", HERE, ids=lambda path: path.stem)
def test_what_it_expects_holds(path: Path) -> None:
    assert played(load(path)).failed == []


def test_nearly_all_of_them_are_played_here() -> None:
    assert len(HERE) >= len(FILES) - 8


def test_the_same_scenario_goes_the_same_way_twice() -> None:
    path = next(path for path in HERE if path.stem == "held-gangs-are-passed-over")
    assert played(load(path)) == played(load(path))


def test_an_expectation_that_does_not_hold_fails_here_too() -> None:
    text = (Path(__file__).parents[1] / "scenarios" / "gang-all-or-nothing.yaml").read_text()
    assert played(read(text.replace("running: [first]", "running: [second]"))).failed == [
        "expect[0] at 2s: running: expected second; is first"
    ]
