"""One suite for both clusters. ``recorded.json`` is what the real one answered; ``RECORD=1`` writes it anew.

What our own policies say is asked of the real one in ``tests/contract``, whose control plane has them.
"""

from __future__ import annotations

import pytest

from tests.conformance import policies
from tests.conformance.cases import CASES
from tests.conformance.recorded import expected, known
from tests.conformance.tiers import InMemory, Real
from tests.rig.client import Api


@pytest.mark.rig
@pytest.mark.parametrize("name", CASES)
async def test_the_real_one(name: str, admin: Api, namespace: str) -> None:
    """It still answers what was recorded."""
    facts = await CASES[name](Real(admin), namespace)
    assert facts == expected(name, facts)


@pytest.mark.parametrize("name", CASES)
async def test_the_one_in_memory(name: str) -> None:
    """It answers what the real one answered."""
    assert await CASES[name](InMemory.new(), "ns") == known()[name]


@pytest.mark.parametrize("name", policies.CASES)
async def test_the_one_in_memory_with_our_policies(name: str) -> None:
    """The stand-ins of our policies answer what the policies answered."""
    assert await policies.CASES[name](InMemory.managed(), "ns") == known()[name]


def test_nothing_is_recorded_that_is_not_asked() -> None:
    """And everything that is asked is recorded."""
    assert known().keys() == CASES.keys() | policies.CASES.keys()
