"""One suite for both clusters. ``recorded.json`` is what the real one answered; ``RECORD=1`` writes it anew.

What our own policies say is asked of the real one in ``tests/contract``, whose control plane has them.
"""

from __future__ import annotations

import pytest

from queuectl.drivers.embedded.whole import embedded
from tests.conformance import living, policies
from tests.conformance.cases import CASES, Case, Facts
from tests.conformance.recorded import expected, known
from tests.conformance.tiers import ADMIN, InMemory, Real
from tests.drivers.embedded_world import clock, run
from tests.rig.client import Api
from tests.rig.kubelet import MakeNodes


@pytest.mark.rig
@pytest.mark.parametrize("name", CASES)
async def test_the_real_one(name: str, admin: Api, namespace: str) -> None:
    """It still answers what was recorded."""
    facts = await CASES[name](Real(admin), namespace)
    assert facts == expected(name, facts)


@pytest.mark.rig
@pytest.mark.parametrize("name", living.CASES)
async def test_the_real_one_at_work(name: str, admin: Api, namespace: str, fake_nodes: MakeNodes) -> None:
    """Its controllers still do what was recorded."""
    facts = await living.CASES[name](Real(admin, fake_nodes=fake_nodes), namespace)
    assert facts == expected(name, facts)


async def _in_memory(case: Case) -> Facts:
    async with embedded(clock=clock(), releasers=frozenset({ADMIN})) as world:
        return await case(InMemory.on(world), "ns")


@pytest.mark.parametrize("name", [*CASES, *living.CASES, *policies.CASES])
def test_the_one_in_memory(name: str) -> None:
    """It answers what the real one answered."""
    case = {**CASES, **living.CASES, **policies.CASES}[name]
    assert run(_in_memory(case)) == known()[name]


def test_nothing_is_recorded_that_is_not_asked() -> None:
    """And everything that is asked is recorded."""
    assert known().keys() == CASES.keys() | living.CASES.keys() | policies.CASES.keys()
