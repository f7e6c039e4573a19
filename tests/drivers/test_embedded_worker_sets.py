"""LeaderWorkerSets on the in-memory cluster: whole groups, whose workers come when the leader is ready; back by eviction."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from queuectl.contract.foreign import JOBS, LEADER_WORKER_SETS, POD_GROUPS, PODS
from queuectl.contract.names import GATE, GROUP_INDEX, REQUEUE, SET_NAME, WORKER_INDEX
from queuectl.contract.v1alpha1 import parse_slots
from queuectl.drivers.embedded.kubelet import START_SECONDS
from queuectl.drivers.embedded.rules import gates
from queuectl.drivers.embedded.store import Stored
from tests.drivers.embedded_world import NAMESPACE, Json, job, phases, run, until
from tests.drivers.test_embedded_services import TENANT, Stage, evictions, stage
from tests.drivers.worker_sets import WorkerSets, worker_set

SLOW = {"metadata": {"labels": {"queuectl.io/queue": "team"}, "annotations": {START_SECONDS: "100"}}}


@asynccontextmanager
async def sets(gpus: int = 4, nodes: int = 2) -> AsyncIterator[Stage]:
    """A stage with the LeaderWorkerSet controller."""
    async with stage(gpus, nodes, ranked=False) as here:
        controller = WorkerSets(here.world.store, here.world._failed)
        try:
            yield here
        finally:
            controller.close()


def pods(here: Stage, group: int | None = None) -> list[Json]:
    """The pods of all sets, or of the groups of one number, that are to stay: leaders first."""
    found = []
    for pod in here.world.store.list(PODS, NAMESPACE):
        labels = pod["metadata"]["labels"]
        meant = SET_NAME in labels and group in (None, int(labels[GROUP_INDEX]))
        if meant and "deletionTimestamp" not in pod["metadata"]:
            found.append(pod)
    return sorted(found, key=lambda pod: int(pod["metadata"]["labels"][WORKER_INDEX]))


def running(here: Stage, group: int | None = None) -> int:
    """How many of them run."""
    return sum(pod["status"]["phase"] == "Running" for pod in pods(here, group))


def gang(here: Stage, group: int = 0) -> Json:
    """The PodGroup of a group, with a status."""
    groups = here.world.store.list(POD_GROUPS)
    found = next((one for one in groups if one["metadata"]["name"].startswith(f"leaderworkerset-serve-{group}-")), {})
    return {"status": {}, **found}


def places(here: Stage, group: int = 0) -> list[str]:
    """The nodes of the record, slot by slot."""
    found: dict[int, str] = {}
    for one in gang(here, group)["status"]["admission"]["assignments"]:
        found |= dict.fromkeys(parse_slots(one["slots"]), one["node"])
    return [found[slot] for slot in sorted(found)]


def requeue(here: Stage, group: int = 0) -> None:
    """What ``queuectl requeue gang`` writes."""
    asked = {"metadata": {"annotations": {REQUEUE: "2026-11-30T00:00:00Z"}}}
    here.world.store.patch(POD_GROUPS, NAMESPACE, gang(here, group)["metadata"]["name"], asked, TENANT)


async def _staged() -> None:
    async with sets() as here:
        here.submit(LEADER_WORKER_SETS, worker_set("serve", 1, 7, leader=SLOW, startupPolicy="LeaderReady"))
        await until(lambda: gang(here)["status"].get("admission"))
        kept = places(here)
        assert (len(kept), len(pods(here))) == (7, 1)  # placed although only the leader exists
        here.submit(JOBS, job("greedy", 2, queue="team"))
        await asyncio.sleep(50)
        assert (len(pods(here)), running(here)) == (1, 0)  # the leader pulls its image
        await until(lambda: running(here) == 7)
        assert places(here) == kept
        assert [pod["spec"]["nodeName"] for pod in pods(here)] == kept
        assert phases(here.world.store, "greedy") == ["Pending"] * 2
        await until(lambda: gang(here)["status"].get("startedAt"))
        owners = [one["metadata"]["ownerReferences"][0]["kind"] for one in here.world.store.list(POD_GROUPS)]
        assert sorted(owners) == ["Job", "LeaderWorkerSet"]  # none for its StatefulSets


def test_workers_that_come_when_their_leader_is_ready_find_their_places_kept() -> None:
    """The group is placed and charged as a whole; a stranger cannot take what the workers need."""
    run(_staged())


async def _groups() -> None:
    async with sets() as here:
        here.submit(LEADER_WORKER_SETS, worker_set("serve", 3, 3))
        await until(lambda: running(here) == 6)
        await until(lambda: all(gang(here, group) != {"status": {}} for group in range(3)))
        waits = next(group for group in range(3) if not running(here, group))
        await until(lambda: (gang(here, waits)["status"].get("blocker") or {}).get("reason") == "NoCapacity")
        assert "3 pods must fit" in gang(here, waits)["status"]["blocker"]["message"]
        assert all(GATE in gates(pod) for pod in pods(here, waits))
        scaled = {"spec": {"replicas": 0}}
        here.world.store.patch(LEADER_WORKER_SETS, NAMESPACE, "serve", scaled, TENANT)
        await until(lambda: not pods(here))
        await until(lambda: all(gang(here, group)["status"].get("admission") is None for group in range(3)))
        here.world.store.patch(LEADER_WORKER_SETS, NAMESPACE, "serve", {"spec": {"replicas": 2}}, TENANT)
        await until(lambda: (running(here, 0), running(here, 1)) == (3, 3))


def test_each_group_starts_when_it_fits_as_a_whole() -> None:
    """Two of three fit; the third holds nothing. Scaled to nothing all is free, and scaled up they run again."""
    run(_groups())


async def _recreated() -> None:
    async with sets() as here:
        here.submit(LEADER_WORKER_SETS, worker_set("serve", 1, 4, startupPolicy="LeaderReady"))
        await until(lambda: gang(here)["status"].get("startedAt"))
        first = {pod["metadata"]["uid"] for pod in pods(here)}
        lost = pods(here)[2]["metadata"]
        here.world.store.delete(PODS, NAMESPACE, lost["name"], TENANT)
        await until(lambda: running(here) == 4 and not first & {pod["metadata"]["uid"] for pod in pods(here)})
        await asyncio.sleep(60)
        assert running(here) == 4
        assert gang(here)["status"]["round"] == 1  # made anew in its own places: nobody gave it back


def test_a_group_that_is_made_anew_whole_keeps_its_places() -> None:
    """One worker is lost, so the set's controller takes all; each successor goes where its predecessor was."""
    run(_recreated())


def _writes(here: Stage) -> int:
    return sum(s.user == "queuectl" and s.kind in (PODS, POD_GROUPS) for s in here.world.store.log)


async def _crashing(policy: str, after: int) -> int:
    """A leader is killed at its so manieth write of a give-back. Returns how many it made, at most ``after``."""
    async with sets() as here:
        here.submit(LEADER_WORKER_SETS, worker_set("serve", 1, 3, startupPolicy=policy))
        await until(lambda: gang(here)["status"].get("startedAt"))
        first = {pod["metadata"]["uid"] for pod in pods(here)}
        begun = _writes(here)

        def killed(_: Stored) -> None:
            if here.leaders == 1 and _writes(here) - begun >= after:
                here.crash()

        def whole() -> bool:
            return (gang(here)["status"].get("round"), running(here)) == (2, 3)

        here.world.store.listen(killed)
        requeue(here)
        await until(lambda: whole() or (here.leaders == 1 and _writes(here) - begun >= after))
        made = min(_writes(here) - begun, after)
        if made == after:
            await here.lead()
        await until(whole)
        await asyncio.sleep(60)
        assert whole()
        assert not first & {pod["metadata"]["uid"] for pod in pods(here)}
        gone = evictions(here.world)
        assert set(gone) <= first
        assert set(gone.values()) == {1}
        return made


@pytest.mark.parametrize("policy", ["LeaderReady", "LeaderCreated"])
def test_a_group_is_given_back_by_eviction_whatever_becomes_of_the_leader(policy: str) -> None:
    """Killed at any write: the next one ends it; no pod of the second round is told to go."""
    made = next(made for after in itertools.count(1) if (made := run(_crashing(policy, after))) < after)
    assert made >= 8  # evicted, of at least one pod a mark and its deletion, returned, recorded, three released, noted
