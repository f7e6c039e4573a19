"""One control plane with the contract installed, for all tests of a whole controller in this folder."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.proofs.stage import Stage


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def stage() -> AsyncIterator[Stage]:
    """It starts once; each test plays its own scene on it."""
    async with Stage.up() as running:
        yield running
