"""StatefulSets and ReplicaSets on the in-memory cluster: staged pods in the slots of one decision, and back by eviction."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from queuectl.contract import names
from queuectl.contract.config import Configuration
from queuectl.contract.foreign import BUDGETS, JOBS, POD_GROUPS, PODS, QUEUES, REPLICA_SETS, STATEFUL_SETS, Kind
from queuectl.control.loop import Controller
from queuectl.drivers.embedded.cluster import API_SERVER, USER
from queuectl.drivers.embedded.rules import gates
from queuectl.drivers.embedded.store import Stored
from queuectl.drivers.embedded.whole import World, embedded
from queuectl.model.reasons import Reason
from tests.drivers.embedded_world import (
    GPU,
    NAMESPACE,
    Json,
    clock,
    job,
    most_over,
    node,
    phases,
    releases_before_record,
    run,
    until,
)
from tests.drivers.replicas import controllers, service

TENANT = "tenant"
QUICK = Configuration.model_validate({"blockerInterval": "1s", "backoff": "1s", "fenceGrace": "50ms"})


class Stage:
    """A cluster, and controllers that come and go."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.leaders = 0
        self.controller: Controller
        self._running: list[asyncio.Task[None]] = []

    async def lead(self) -> None:
        """A new process; returns when it leads."""
        self.leaders += 1
        time = self.world.store.clock
        self.controller = Controller(self.world.cluster(), time, QUICK, f"controller-{self.leaders}")
        self._running.append(asyncio.create_task(self.controller.run()))
        await until(lambda: self.controller.leading)

    def crash(self) -> None:
        """The process is gone, with whatever it was about to do."""
        self._running[-1].cancel()

    async def close(self) -> None:
        """End all."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def submit(self, kind: Kind, body: Json) -> None:
        """A tenant's set or Job."""
        self.world.store.create(kind, NAMESPACE, body, TENANT)

    def pods(self, app: str) -> list[Json]:
        """The pods of a set, by name."""
        return [p for p in self.world.store.list(PODS, NAMESPACE) if p["metadata"]["labels"].get("app") == app]

    def running(self, app: str) -> int:
        """How many of them run and are to stay."""
        return sum(
            p["status"]["phase"] == "Running" and "deletionTimestamp" not in p["metadata"] for p in self.pods(app)
        )

    def group(self, name: str) -> Json:
        """The PodGroup of an owner, with a status."""
        groups = self.world.store.list(POD_GROUPS)
        found = next((g for g in groups if g["metadata"]["ownerReferences"][0]["name"] == name), {})
        return {"status": {}, **found}

    def requeue(self, name: str) -> None:
        """What ``queuectl requeue gang`` writes."""
        asked = {"metadata": {"annotations": {names.REQUEUE: "2026-11-30T00:00:00Z"}}}
        self.world.store.patch(POD_GROUPS, NAMESPACE, self.group(name)["metadata"]["name"], asked, TENANT)


@asynccontextmanager
async def stage(gpus: int = 4, nodes: int = 2, *, ranked: bool = True) -> AsyncIterator[Stage]:
    """Nodes, a queue "team", the sets' controllers and a leader. At the end no promise may have been broken.

    ``ranked``: every pod has a rank and goes to the place of its rank in the record.
    """
    random.seed(1)  # the jitter of leases and retries
    async with embedded([node(f"n{i}", gpus) for i in range(nodes)], clock=clock(), history=None) as world:
        with controllers(world):
            spec = {"resources": [{"name": GPU, "limit": 10_000}]}
            world.store.create(QUEUES, "", {"metadata": {"name": "team"}, "spec": spec}, "admin")
            here = Stage(world)
            try:
                await here.lead()
                yield here
                history = list(world.store.log)
                assert most_over(history) == 0
                if ranked:
                    assert releases_before_record(history)[1] == []
            finally:
                await here.close()


async def _comes_and_goes(kind: Kind, gang: str, spec: Json) -> None:
    async with stage(ranked=gang == "all" and kind is STATEFUL_SETS) as here:
        here.submit(kind, service("web", 6, gang=gang, **spec))
        await until(lambda: here.running("web") == 6)
        first = {p["metadata"]["uid"] for p in here.pods("web")}
        here.requeue("web")
        await until(lambda: (here.group("web")["status"].get("round"), here.running("web")) == (2, 6))
        assert not first & {p["metadata"]["uid"] for p in here.pods("web")}
        assert here.group("web")["status"]["requeue"]["count"] == 0
        assert evictions(here.world) == Counter(first)


def evictions(world: World) -> Counter[str]:
    """How often each pod was told to go by our account; what follows by itself does not count."""
    found: Counter[str] = Counter()
    gone: set[str] = set()
    for stored in world.store.log:
        meta = stored.object["metadata"]
        if (
            stored.kind is PODS
            and stored.user == "queuectl"
            and "deletionTimestamp" in meta
            and meta["uid"] not in gone
        ):
            gone.add(meta["uid"])
            found[meta["uid"]] += 1
    return found


@pytest.mark.parametrize(
    ("kind", "gang", "spec"),
    [
        (STATEFUL_SETS, "all", {"podManagementPolicy": "Parallel"}),
        (STATEFUL_SETS, "all", {}),
        (STATEFUL_SETS, "1", {}),
        (REPLICA_SETS, "1", {}),
        (REPLICA_SETS, "4", {}),
        (REPLICA_SETS, "all", {}),
    ],
    ids=["parallel-all", "ordered-all", "ordered-1", "replicas-1", "replicas-4", "replicas-all"],
)
def test_a_gang_is_given_back_by_eviction_and_runs_again(kind: Kind, gang: str, spec: Json) -> None:
    """Each pod of the round is evicted once; those that were made anew run in the next round."""
    run(_comes_and_goes(kind, gang, spec))


async def _ordered() -> None:
    async with stage() as here:
        here.submit(STATEFUL_SETS, service("web", 6, gang="all"))
        await until(lambda: here.running("web") == 1)
        placed = here.group("web")["status"]["admission"]["assignments"]
        assert len(here.pods("web")) == 2  # the second is made when the first is ready
        here.submit(JOBS, job("greedy", 4, queue="team"))
        await until(lambda: here.running("web") == 6)
        assert here.group("web")["status"]["admission"]["assignments"] == placed
        assert {p["spec"]["nodeName"] for p in here.pods("web")} == {one["node"] for one in placed}
        assert phases(here.world.store, "greedy") == ["Pending"] * 4  # 2 of 8 are left


def test_pods_that_come_one_after_the_other_find_their_places_kept() -> None:
    """All slots are placed and charged in one decision: who asks meanwhile cannot take what the later ones need."""
    run(_ordered())


async def _guarded() -> None:
    async with stage() as here:
        here.submit(STATEFUL_SETS, service("web", 4, gang="all", podManagementPolicy="Parallel"))
        await until(lambda: here.running("web") == 4)
        spec = {"minAvailable": 3, "selector": {"matchLabels": {"app": "web"}}}
        here.world.store.create(BUDGETS, NAMESPACE, {"metadata": {"name": "web"}, "spec": spec}, TENANT)
        here.requeue("web")
        await until(lambda: (here.group("web")["status"].get("blocker") or {}).get("reason") == "VictimProtected")
        message = here.group("web")["status"]["blocker"]["message"]
        assert "PodDisruptionBudget web lets 1 of 4 pods go now" in message
        await asyncio.sleep(120)
        assert here.running("web") == 4
        assert evictions(here.world) == Counter()
        uid = here.group("web")["metadata"]["uid"]
        told = [one.reason for one in here.controller.explain(uid)]
        shown = next(one.misfits for one in here.controller.view().gangs if one.uid == uid)
        assert (told, [one.reason for one in shown]) == ([Reason.VICTIM_PROTECTED], [Reason.VICTIM_PROTECTED])
        here.world.store.patch(BUDGETS, NAMESPACE, "web", {"spec": {"minAvailable": 0}}, TENANT)
        await until(lambda: (here.group("web")["status"].get("round"), here.running("web")) == (2, 4))
        assert here.group("web")["status"].get("blocker") is None
        assert here.controller.explain(uid) == ()


def test_a_gang_under_a_budget_that_does_not_let_all_go_stays_whole() -> None:
    """Half a gang that cannot come back would be the worst of all; the status says what is in the way."""
    run(_guarded())


def _writes(world: World) -> int:
    """Ours, and what the API server writes on our behalf: it marks a pod that is evicted before it deletes it."""
    users = (USER, API_SERVER)
    return sum(stored.user in users and stored.kind in (PODS, POD_GROUPS) for stored in world.store.log)


async def _crashing(after: int) -> int:
    """A leader is killed at its so manieth write of a give-back. Returns how many it made, at most ``after``."""
    async with stage() as here:
        here.submit(STATEFUL_SETS, service("web", 3, gang="all", podManagementPolicy="Parallel"))
        await until(lambda: here.group("web")["status"].get("startedAt"))
        first = {p["metadata"]["uid"] for p in here.pods("web")}
        begun = _writes(here.world)

        def killed(_: Stored) -> None:
            if here.leaders == 1 and _writes(here.world) - begun >= after:
                here.crash()

        here.world.store.listen(killed)
        here.requeue("web")

        def over() -> Any:
            whole = (here.group("web")["status"].get("round"), here.running("web")) == (2, 3)
            return whole or (here.leaders == 1 and _writes(here.world) - begun >= after)

        await until(over)
        made = min(_writes(here.world) - begun, after)
        if made == after:
            await here.lead()
        await until(lambda: (here.group("web")["status"].get("round"), here.running("web")) == (2, 3))
        await asyncio.sleep(60)
        pods = here.pods("web")
        assert (here.group("web")["status"]["round"], here.running("web")) == (2, 3)
        assert not first & {p["metadata"]["uid"] for p in pods}
        assert not any(names.GATE in gates(p) for p in pods)
        assert evictions(here.world) == Counter(first)
        return made


def test_a_leader_that_dies_at_any_write_of_a_give_back_leaves_what_the_next_one_ends() -> None:
    """Each pod of the first round is evicted once, none of the second; and the gang runs again."""
    made = next(made for after in itertools.count(1) if (made := run(_crashing(after))) < after)
    assert made >= 12  # evicted, of each pod a mark and its deletion, returned, recorded, three released, noted


def test_the_stand_in_deletes_what_is_beyond_its_scale() -> None:
    """The stand-ins do what they are trusted with."""

    async def look(kind: Kind) -> None:
        async with stage(ranked=False) as here:
            here.submit(kind, service("web", 4, podManagementPolicy="Parallel"))
            await until(lambda: here.running("web") == 4)
            here.world.store.patch(kind, NAMESPACE, "web", {"spec": {"replicas": 1}}, TENANT)
            await until(lambda: len(here.pods("web")) == 1)
            await until(lambda: _held(here) == 1)
            here.world.store.patch(kind, NAMESPACE, "web", {"spec": {"replicas": 0}}, TENANT)
            await until(lambda: here.group("web")["status"].get("requeue", {}).get("reason") == "Suspended")
            assert here.group("web")["status"].get("admission") is None
            here.world.store.patch(kind, NAMESPACE, "web", {"spec": {"replicas": 2}}, TENANT)
            await until(lambda: here.running("web") == 2)
            assert here.group("web")["status"]["round"] == 2

    kinds: tuple[Callable[[], Any], ...] = (lambda: look(REPLICA_SETS), lambda: look(STATEFUL_SETS))
    for kind in kinds:
        run(kind())


def _held(here: Stage) -> int:
    """GPUs that the queue is charged."""
    status = here.world.store.get(QUEUES, "", "team").get("status") or {}
    return int(next((one["amount"] for one in status.get("allocated") or () if one["name"] == GPU), 0))
