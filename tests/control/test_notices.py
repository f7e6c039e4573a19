"""What people read in status is written until it is there, and no oftener than it may be."""

from __future__ import annotations

from queuectl.contract import foreign
from queuectl.control.notices import Blockers, QueueStatuses
from queuectl.control.steps import Write
from queuectl.engine.view import QueueView
from queuectl.model.reasons import Misfit, Reason, TextEvidence
from tests.control.tiny import FENCE, NOW, Tiny

HELD = Misfit(Reason.HELD, TextEvidence("by the operator"))


def test_a_blocker_that_was_not_written_is_written_again() -> None:
    """A lost race or a broken connection does not leave a gang without its reason."""
    tiny = Tiny()
    tiny.job("train", 1)
    tiny.settle()
    uid = tiny.group()["metadata"]["uid"]
    blockers = Blockers(tiny.source, 30.0)
    blockers.refuse(uid, (HELD,))

    def at(now: float) -> list[Write]:
        return list(blockers.next_writes(FENCE, now))

    assert len(at(100.0)) == 1  # and it is lost on its way
    assert at(129.0) == []
    assert blockers.next_due(129.0) == 130.0
    (write,) = at(130.0)
    tiny.send(write)
    assert at(160.0) == []
    assert blockers.next_due(160.0) is None


def test_a_queue_status_that_was_not_written_is_written_again() -> None:
    """And one that stands already is not."""
    tiny = Tiny()
    tiny.put(foreign.QUEUES, {"metadata": {"name": "q"}, "spec": {}})
    statuses = QueueStatuses(tiny.source, 10.0)
    statuses.show(
        QueueView(
            name="q",
            parent=None,
            leaf=True,
            weight=1,
            priority=0,
            usage=(("nvidia.com/gpu", 8000), ("pods", 8)),
            entries=(),
            pending=(),
            gangs_pending=0,
            gangs_admitted=1,
            gangs_running=0,
            misfits=(),
        )
    )
    assert len(list(statuses.next_writes(FENCE, 5.0, NOW))) == 1
    assert statuses.next_due(5.0) == 15.0
    (write,) = statuses.next_writes(FENCE, 15.0, NOW)
    assert write.body["status"]["allocated"] == [{"name": "nvidia.com/gpu", "pool": "*", "amount": "8"}]
    tiny.send(write)
    assert list(statuses.next_writes(FENCE, 25.0, NOW)) == []
    assert statuses.next_due(25.0) is None
