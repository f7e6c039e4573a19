"""What the policies answer is what their stand-ins in memory answer: see ``tests/conformance``."""

from __future__ import annotations

import pytest

from tests.conformance.policies import CASES
from tests.conformance.recorded import expected
from tests.conformance.tiers import OURS, TENANT, Real
from tests.rig.client import Api

pytestmark = pytest.mark.rig


@pytest.mark.parametrize("name", CASES)
async def test_policies(name: str, admin: Api, ours: Api, tenant: Api, namespace: str) -> None:
    """They still answer what was recorded."""
    facts = await CASES[name](Real(admin, {OURS: ours, TENANT: tenant}), namespace)
    assert facts == expected(name, facts)
