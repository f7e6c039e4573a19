"""The loop around the engine, where it decides when to look again."""

from __future__ import annotations

import pytest

from queuectl.contract import foreign
from tests.serve.standin import Standin, queue


@pytest.mark.parametrize("short", [0.0, 1e-15, 1e-12])
def test_it_never_looks_again_before_any_time_has_passed(short: float) -> None:
    """A wait below what the clock can tell apart ends at once, and for ever again where work costs no time."""
    here = Standin()
    here.see(foreign.QUEUES, queue("q", quota=1))
    here.lead()
    controller, now = here.controller, 40.0
    interval = controller.configuration.queue_status_interval / 1000
    controller._write(here.clock.now(), now)
    here.see(foreign.QUEUES, queue("other", quota=1))
    waits = controller._write(here.clock.now(), now + interval - short)
    assert min(waits) >= 0.01
