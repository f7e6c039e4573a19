"""What the ledger remembers of an object, and for how long."""

from __future__ import annotations

from queuectl.control.ledger import FORGET, LAST_RETRY, Ledger

POD = ("pods", "ns", "p")


def test_failures_in_a_row_wait_longer_and_longer() -> None:
    ledger = Ledger()
    waits = []
    now = 0.0
    for _ in range(12):
        ledger.sent(POD)
        ledger.failed(POD, now)
        due = ledger.next_due(now)
        assert due is not None
        waits.append(round(due - now, 3))
        assert not ledger.free(POD, now)
        now = due
        assert ledger.free(POD, now)
    assert waits[:3] == [0.2, 0.4, 0.8]
    assert waits[-1] == LAST_RETRY


def test_objects_that_are_gone_are_forgotten() -> None:
    """A controller that runs for months must not remember every pod that was deleted under its hands."""
    ledger = Ledger()
    for number in range(1000):
        ledger.sent(("pods", "ns", f"p{number}"))
        ledger.raced(("pods", "ns", f"p{number}"), float(number) / 1000)
    assert ledger.next_due(FORGET + 2) is None
    assert ledger._failed == {}
