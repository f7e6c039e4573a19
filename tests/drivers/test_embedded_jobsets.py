"""JobSets on the in-memory cluster: several roles and stages in one decision, given back by suspending the JobSet."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from queuectl.contract.foreign import JOB_SETS, JOBS, POD_GROUPS, PODS
from queuectl.contract.v1alpha1 import parse_slots
from queuectl.drivers.embedded.store import Stored
from tests.drivers.embedded_world import NAMESPACE, Json, job, phases, run, status_of, until
from tests.drivers.jobsets import JobSets, job_set, part
from tests.drivers.test_embedded_services import Stage, stage


@asynccontextmanager
async def sets(gpus: int = 4, nodes: int = 2) -> AsyncIterator[Stage]:
    """A stage with the JobSet controller."""
    async with stage(gpus, nodes, ranked=False) as here:
        controller = JobSets(here.world.store, here.world._failed)
        try:
            yield here
        finally:
            controller.close()


def pods(here: Stage, role: str = "") -> list[Json]:
    """Pods of all JobSets, or of one role, that are to stay."""
    found = here.world.store.list(PODS, NAMESPACE)
    names = [(p, p["metadata"]["labels"].get("jobset.sigs.k8s.io/replicatedjob-name", "")) for p in found]
    return [p for p, name in names if name and role in ("", name) and "deletionTimestamp" not in p["metadata"]]


def running(here: Stage, role: str = "") -> int:
    """How many of them run."""
    return sum(p["status"]["phase"] == "Running" for p in pods(here, role))


def places(here: Stage, name: str) -> list[str]:
    """The nodes of the record, slot by slot."""
    found: dict[int, str] = {}
    for one in here.group(name)["status"]["admission"]["assignments"]:
        found |= dict.fromkeys(parse_slots(one["slots"]), one["node"])
    return [found[slot] for slot in sorted(found)]


async def _staged() -> None:
    async with sets() as here:
        here.submit(JOB_SETS, job_set("train", part("driver", 1, 1), part("worker", 2, 3, after=("driver", "Ready"))))
        await until(lambda: running(here, "driver") == 1)
        kept = places(here, "train")
        assert (len(kept), pods(here, "worker")) == (7, [])  # placed although they do not exist
        here.submit(JOBS, job("greedy", 2, queue="team"))
        await until(lambda: running(here) == 7)
        assert places(here, "train") == kept
        used = sorted(p["spec"]["nodeName"] for p in pods(here, "worker"))
        assert used == sorted(kept[1:])
        assert pods(here, "driver")[0]["spec"]["nodeName"] == kept[0]
        assert phases(here.world.store, "greedy") == ["Pending"] * 2
        groups = [g["metadata"]["ownerReferences"][0]["kind"] for g in here.world.store.list(POD_GROUPS)]
        assert sorted(groups) == ["Job", "JobSet"]  # none for the JobSet's own Jobs


def test_workers_that_come_after_their_driver_is_ready_find_their_places_kept() -> None:
    """All roles are placed and charged in one decision; a stranger cannot take what the later stage needs."""
    run(_staged())


async def _suspended() -> None:
    async with sets() as here:
        here.submit(JOBS, job("first", 8, queue="team", seconds=60))
        await until(lambda: phases(here.world.store, "first") == ["Running"] * 8)
        parts = part("a", 1, 2, seconds=30), part("b", 1, 2, seconds=30)
        here.submit(JOB_SETS, job_set("later", *parts, suspend=True))
        await asyncio.sleep(20)
        assert pods(here) == []
        await until(lambda: running(here) == 4)
        await until(lambda: (here.world.store.get(JOB_SETS, NAMESPACE, "later")["status"]).get("conditions"))
        await until(lambda: any(c["type"] == "Finished" for c in here.group("later")["status"]["conditions"]))
        resumed = {
            after.user
            for s, after in itertools.pairwise(s for s in here.world.store.log if s.kind is JOB_SETS)
            if s.object["spec"]["suspend"] > after.object["spec"]["suspend"]
        }
        assert resumed == {"queuectl"}


def test_a_suspended_jobset_waits_without_pods_and_is_resumed() -> None:
    """By us, when there is room for the whole; its end is the gang's."""
    run(_suspended())


async def _after_completion() -> None:
    async with sets(4, 1) as here:
        parts = part("prepare", 1, 4, seconds=1500), part("train", 1, 4, after=("prepare", "Complete"), seconds=60)
        here.submit(JOB_SETS, job_set("steps", *parts))
        await until(lambda: running(here, "prepare") == 4)
        assert len(places(here, "steps")) == 4
        await until(lambda: running(here, "train") == 4, 3000)
        assert here.group("steps")["status"]["round"] == 1  # nobody took it back for what was not to come yet


def test_what_starts_after_others_have_completed_is_not_waited_for() -> None:
    """Longer than any deadline: it is no part of what starts together, and takes the places that the others left."""
    run(_after_completion())


def _writes(here: Stage) -> int:
    return sum(s.user == "queuectl" and s.kind in (PODS, POD_GROUPS, JOB_SETS) for s in here.world.store.log)


async def _crashing(after: int) -> int:
    """A leader is killed at its so manieth write of a give-back. Returns how many it made, at most ``after``."""
    async with sets() as here:
        here.submit(JOB_SETS, job_set("train", part("driver", 1, 1), part("worker", 1, 3, after=("driver", "Ready"))))
        await until(lambda: here.group("train")["status"].get("startedAt"))
        first = {p["metadata"]["uid"] for p in pods(here)}
        begun = _writes(here)

        def killed(_: Stored) -> None:
            if here.leaders == 1 and _writes(here) - begun >= after:
                here.crash()

        def whole() -> bool:
            return (here.group("train")["status"].get("round"), running(here)) == (2, 4)

        here.world.store.listen(killed)
        here.requeue("train")
        await until(lambda: whole() or (here.leaders == 1 and _writes(here) - begun >= after))
        made = min(_writes(here) - begun, after)
        if made == after:
            await here.lead()
        await until(whole)
        await asyncio.sleep(60)
        assert whole()
        assert not first & {p["metadata"]["uid"] for p in pods(here)}
        assert not any("failed" in status_of(here.world.store, f"train-{role}-0") for role in ("driver", "worker"))
        return made


def test_a_jobset_is_given_back_by_suspend_whatever_becomes_of_the_leader() -> None:
    """Killed at any write: the next one ends it; no pod counts as failed, and the stages start anew."""
    made = next(made for after in itertools.count(1) if (made := run(_crashing(after))) < after)
    assert made >= 10  # evicted, suspended, returned, resumed, recorded, resumed, four released, noted


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"annotations": {"queuectl.io/min-member": "2"}}, "a JobSet starts as a whole"),
        ({}, "more completions than parallelism"),
    ],
    ids=["part", "rolling"],
)
def test_a_jobset_that_cannot_be_a_gang_says_why(change: Json, says: str) -> None:
    """Its pods stay behind their gate."""

    async def look() -> None:
        async with sets() as here:
            body = job_set("train", part("a", 1, 2), part("b", 1, 2))
            body["metadata"] |= change
            if not change:
                body["spec"]["replicatedJobs"][1]["template"]["spec"]["completions"] = 5
            here.submit(JOB_SETS, body)
            await until(lambda: says in (here.group("train")["status"].get("blocker") or {}).get("message", ""))
            assert running(here) == 0

    run(look())
