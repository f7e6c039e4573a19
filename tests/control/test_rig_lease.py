"""Leadership on the real API server: processes that are stopped, killed and ended, and what the Lease says of it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.control.lease_process import TERMS
from tests.rig.client import Api, eventually
from tests.rig.controlplane import ControlPlane
from tests.rig.process import Process

pytestmark = pytest.mark.rig

Start = Callable[[str], "Candidate"]


class Candidate:
    """A process of ``lease_process`` and what it has printed."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def lines(self, what: str) -> list[tuple[float, int]]:
        """(time, fence) of each whole line of that kind."""
        text = self.process.log.read_text()
        split = [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]
        return [(float(words[1]), int(words[2])) for words in split if len(words) == 3 and words[0].startswith(what)]

    async def waits_for(self, what: str) -> tuple[float, int]:
        lines = await eventually(lambda: self.lines(what), what=f"{what} in {self.process.log}: {self.process.tail()}")
        return lines[-1]


@pytest.fixture
def start(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[Start]:
    """Start a candidate of that identity; all are ended after the test."""
    started: list[Process] = []

    def begin(identity: str) -> Candidate:
        module = "tests.control.lease_process"
        argv: list[str | Path] = [sys.executable, "-m", module, control_plane.admin_kubeconfig, namespace, identity]
        started.append(Process(identity, argv, tmp_path / f"{identity}.log"))
        return Candidate(started[-1])

    yield begin
    for process in started:
        process.signal(signal.SIGCONT)
        process.stop()


async def test_stopped_killed_and_ended(start: Start, namespace: str, admin: Api) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/queuectl"
    a = start("a")
    assert (await a.waits_for("leading"))[1] == 1
    b = start("b")
    await eventually(lambda: len(a.lines("write")) > 100)  # 2 s and more of renewals, while b looks on
    assert not b.lines("leading")

    a.process.signal(signal.SIGSTOP)
    taken, fence = await b.waits_for("leading")
    assert fence == 2
    last = a.lines("write")[-1][0]
    assert taken - last > TERMS.margin
    a.process.signal(signal.SIGCONT)
    await a.waits_for("lost")
    assert a.lines("write")[-1][0] == last  # not one more write when it went on
    assert a.process.wait(10) == 0

    lease = await admin.get(path)
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("b", 2)

    c = start("c")
    b.process.signal(signal.SIGKILL)
    killed, fence = await c.waits_for("leading")
    assert fence == 3
    assert killed - b.lines("write")[-1][0] > TERMS.margin

    d = start("d")
    c.process.terminate()
    ended, _ = await c.waits_for("ended")
    began, fence = await d.waits_for("leading")
    assert fence == 4
    assert began > c.lines("write")[-1][0]
    assert ended - c.lines("write")[-1][0] < 2
    d.process.terminate()
    assert d.process.wait(10) == 0
    lease = await admin.get(path)
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("", 4)


async def test_only_one_of_several_that_start_at_once(start: Start, namespace: str, admin: Api) -> None:
    candidates = [start(f"p{n}") for n in range(4)]
    await eventually(lambda: any(c.lines("leading") for c in candidates))
    leader = next(c for c in candidates if c.lines("leading"))
    await eventually(lambda: len(leader.lines("write")) > 60)
    assert sum(bool(c.lines("leading")) for c in candidates) == 1
    lease = await admin.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/queuectl")
    assert lease["spec"]["leaseTransitions"] == 1
    assert lease["spec"]["leaseDurationSeconds"] == TERMS.duration
