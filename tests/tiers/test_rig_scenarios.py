"""The scenarios on a real control plane: a sample of them, or with SCENARIOS=all every one that can be played there."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from queuectl.drivers.replay.reading import load
from tests.proofs.stage import Stage
from tests.tiers.rig import played
from tests.tiers.wired import playable

FILES = sorted((Path(__file__).parents[1] / "scenarios").glob("*.yaml"))
SAMPLE = {  # one of each kind: placement, queues, extras, owners, nodes, strangers, restart
    "rack-needs-eight-has-four", "a-parents-limit-counts-all-its-children", "extras-start-one-by-one",
    "requeued-by-hand-it-starts-again", "a-node-deleted-under-a-gang", "a-foreign-gate-is-left-alone",
    "a-restart-decides-nothing-anew",
}  # fmt: skip
ALL = os.environ.get("SCENARIOS") == "all"
HERE = [path for path in FILES if path.stem in SAMPLE or (ALL and playable(load(path)))]
_serial = itertools.count(1)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stage() -> AsyncIterator[Stage]:
    async with Stage.up() as running:
        yield running


@pytest.mark.rig
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("path", HERE, ids=lambda path: path.stem)
async def test_what_it_expects_holds(stage: Stage, path: Path) -> None:
    outcome = await played(stage, load(path), f"s{next(_serial)}")
    assert outcome.failed == []
