"""Every scenario of tests/scenarios on the engine: what it expects holds, and its plans depend on nothing but the facts."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from queuectl.drivers.replay.play import Outcome, play
from queuectl.drivers.replay.reading import load
from queuectl.drivers.replay.simulator import Arrange
from queuectl.drivers.replay.stage import EngineTier
from queuectl.engine.ordering import ZERO
from queuectl.engine.pools import Kinship
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


def nothing(*_: object, **__: object) -> tuple[()]:
    """In place of a function that finds something."""
    return ()


# What a plausible mistake in the engine looks like, and a scenario that finds it.
MISTAKES: dict[str, tuple[str, object]] = {
    "a-limit-holds-although-nodes-are-free": ("queuectl.engine.branches.Branches.over_limit", nothing),
    "a-held-queue-admits-nothing": ("queuectl.engine.branches.Branches._path_misfits", nothing),
    "gangs-live-in-leaves-only": ("queuectl.engine.branches.Branches.misfits", nothing),
    "within-quota-comes-before-borrowing": (
        "queuectl.engine.ordering.key", lambda _, offer, *__: (0, 0, 0, ZERO, offer.queued_at, offer.gang, offer.slot)
    ),
    "a-limit-of-one-pool-leaves-the-other-free": ("queuectl.engine.branches.Branches.over_limit_in", nothing),
    "the-pool-with-quota-is-used-first": ("queuectl.engine.ways.keeps_within", lambda *_: True),
    "quotas-of-pools-decide-whose-turn-it-is": ("queuectl.engine.ordering._measured", lambda *_: (True, ZERO)),
    "a-gang-stays-in-one-pool": ("queuectl.engine.ways.Ways.of", nothing),
    "extras-stay-in-the-gangs-pool": ("queuectl.engine.asks.home", lambda *_: None),
    "a-node-that-changes-pools-takes-its-pods-along": ("queuectl.engine.state.State.recount", lambda _: False),
    "a-limit-keeps-out-of-the-part-that-pools-share": (
        "queuectl.engine.pools.Pools.kinship", Kinship(defaultdict(tuple, a=("a",), b=("b",)), defaultdict(tuple))
    ),
    "a-taint-keeps-out-who-does-not-tolerate-it": ("queuectl.engine.filters._refusing", lambda *_, **__: None),
    "a-selector-and-an-affinity-choose-nodes": (
        "queuectl.engine.filters.Filters._affine", lambda self, _: ~self._none()
    ),
    "two-large-gangs-never-meet-halfway": ("queuectl.engine.backlog.Backlog._hopeful", lambda *_: False),
    "no-other-node-for-the-lost-one": ("queuectl.engine.engine.deadlines.overdue", lambda *_: None),
    "requeued-by-hand-it-starts-again": ("queuectl.engine.engine.deadlines.requested", lambda *_: None),
    "a-foreign-gate-is-left-alone": ("queuectl.engine.engine.blockers", nothing),
    "an-annotated-minimum-starts-a-job-early": ("queuectl.engine.engine.extra_requests", nothing),
    "extras-stay-in-the-gangs-rack": ("queuectl.engine.asks._anchor", lambda *_: None),
    "rack-names-repeat-in-another-zone": (
        "queuectl.model.topology.path", lambda node, levels, _: tuple(dict(node.labels).get("rack") for _ in levels[:-1])
    ),
    "whoever-bypassed-the-gate-is-charged": ("queuectl.engine.state.charges", lambda _: {}),
    "a-lost-member-keeps-its-place": (
        "queuectl.engine.state.forget_round", lambda standing: standing.moved.clear() or standing.charges.clear()
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(MISTAKES))
def test_a_mistake_in_the_engine_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, wrong = MISTAKES[name]
    monkeypatch.setattr(target, wrong)
    tier = EngineTier()
    try:
        failed = asyncio.run(play(load(FOLDER / f"{name}.yaml"), tier)).failed
    except Exception as bug:  # noqa: BLE001 - a mistake may also be found by falling over
        failed = [repr(bug)]
    assert failed != []
