"""What is charged of a gang that is gone, while a release of one of its pods may still be carried out."""

from __future__ import annotations

import copy

import pytest

from queuectl.contract import foreign
from queuectl.contract.patches import pin
from queuectl.control.lost import LINGERS
from tests.rig.client import eventually
from tests.serve.standin import Json, Standin, group, node, placed, pod, queue

UID = "podgroups-ml-band"
PODS = [pod(f"p{number}", "q", 1, group="band") for number in range(2)]
BOTH = pytest.mark.parametrize("extra", [False, True], ids=["both recorded", "one is an extra"])


def band(*, extra: bool) -> Json:
    """A PodGroup that was admitted with both its pods, or with one."""
    found = group("band", "q", 1 if extra else 2, status=placed({"n0": "0" if extra else "0-1"}))
    found["spec"]["maxMember"] = 2
    found["status"]["conditions"] = []
    return found


def released(body: Json) -> Json:
    """The same pod as the release leaves it."""
    found = copy.deepcopy(body)
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": pin(None, "n0")}}
    found["spec"] |= {"schedulingGates": [], "affinity": {"nodeAffinity": required}}
    return found


def charged(here: Standin) -> int:
    """GPUs of the node that are taken."""
    (found,) = here.controller.view().nodes
    return dict(found.used).get("nvidia.com/gpu", 0) // 1000


async def look(here: Standin) -> None:
    """One round of the loop, and all that follows from it."""
    here.controller._round()
    await eventually(lambda: not here.controller.actuator._tasks, 5, "nothing on its way")


async def lost(*, extra: bool) -> Standin:
    """A leader whose releases of both pods got no answer, and whose PodGroup is deleted since."""
    here = Standin()
    here.see(foreign.NODES, node("n0", "r0"))
    here.see(foreign.QUEUES, queue("q"))
    here.see(foreign.POD_GROUPS, band(extra=extra))
    here.see(foreign.PODS, *PODS)
    here.sync()
    controller = here.controller
    controller.leading = controller.fence_proven = True
    controller.actuator._fresh = lambda: True
    controller.source.touched.update(controller.source.groups)
    await look(here)
    pods = sorted(controller.source.members[UID])
    assert [controller.release.lost.lingers(controller.source, pod=uid) for uid in pods] == [True, True]
    controller.observe(controller.source.gone(foreign.POD_GROUPS, UID))
    assert charged(here) == 2
    return here


@BOTH
async def test_places_are_free_once_both_pods_have_changed(extra: bool) -> None:
    """Neither release can be carried out any more."""
    here = await lost(extra=extra)
    here.see(foreign.PODS, PODS[0])
    assert charged(here) > 0
    here.see(foreign.PODS, PODS[1])
    assert charged(here) == 0


@BOTH
async def test_a_place_stays_taken_by_a_pod_that_was_released_after_all(extra: bool) -> None:
    """It counts where it is, though it has no gang any more."""
    here = await lost(extra=extra)
    here.see(foreign.PODS, released(PODS[0]))
    assert charged(here) >= 2
    here.see(foreign.PODS, PODS[1])
    assert charged(here) == 1


@BOTH
async def test_places_are_free_once_both_pods_are_gone(extra: bool) -> None:
    """A pod of the same name is another one."""
    here = await lost(extra=extra)
    controller = here.controller
    for uid in sorted(controller.source.pods):
        assert charged(here) > 0
        controller.observe(controller.source.gone(foreign.PODS, uid))
    assert charged(here) == 0


@BOTH
async def test_places_are_free_when_no_request_can_live_any_more(extra: bool) -> None:
    """Nothing can be written and nothing is seen: five minutes later they are used again."""
    here = await lost(extra=extra)
    here.later(LINGERS / 1000 - 1)
    await look(here)
    assert charged(here) == 2
    here.later(1)
    await look(here)
    assert charged(here) == 0
