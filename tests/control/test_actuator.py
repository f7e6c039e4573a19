"""Writes that wait: what is sent of them when their gang goes, and when what it held is free."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from queuectl.contract import foreign
from queuectl.control.actuator import Actuator
from queuectl.control.clock import RealClock
from queuectl.control.steps import Step
from queuectl.model.changes import Change
from tests.control.tiny import FENCE, NOW, Tiny
from tests.rig.client import eventually


class Slow:
    """A cluster that answers a patch when it is told to."""

    def __init__(self, tiny: Tiny) -> None:
        self.tiny = tiny
        self.asked: list[str] = []
        self.answer = asyncio.Event()

    async def patch(self, kind: foreign.Kind, namespace: str, name: str, body: Any, **_: Any) -> Any:
        self.asked.append(name)
        await self.answer.wait()
        stored = self.tiny.get(kind, namespace, name)
        return msgspec.convert(stored, kind.type)


async def test_what_waits_when_its_gang_goes_is_never_sent() -> None:
    """One release is on its way, two wait; the PodGroup is deleted: the two stay gated, and are accounted for."""
    tiny = Tiny()
    job = tiny.job("train", 3)
    tiny.settle()
    tiny.pods(job, 3)
    tiny.admit(3)
    while tiny.next()[0].step is not Step.RELEASE:
        tiny.send(tiny.next()[0])
    gang = tiny.group()["metadata"]["uid"]
    seen: list[list[Change]] = []
    cluster = Slow(tiny)
    actuator = Actuator(
        cluster,  # type: ignore[arg-type]  # patch is all that is asked of it
        tiny.source,
        tiny.release,
        RealClock(),
        lambda: True,
        seen.append,
        1,
    )
    for write in tiny.release.next_writes(gang, FENCE, NOW):
        actuator.offer(write)
    actuator.pump()
    await asyncio.sleep(0)
    assert (len(cluster.asked), actuator.outstanding[gang]) == (1, 3)
    tiny.drop(foreign.POD_GROUPS, "ns", tiny.group()["metadata"]["name"])
    tiny.release.forget(gang)
    cluster.answer.set()
    await eventually(lambda: not actuator.outstanding[gang] and not actuator._tasks, 5, "nothing on its way")
    assert len(cluster.asked) == 1
    assert seen[-1] == []  # told after the last was accounted for
