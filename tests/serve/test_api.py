"""The JSON API over HTTP: what it shows of the story, what it refuses, and what hostile names come out as."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from queuectl.contract import foreign
from queuectl.serve import slices, world
from queuectl.serve.app import application
from queuectl.serve.world import MAX_AGE, RESTRAINT, World
from tests.serve import standin
from tests.serve.standin import GPU, Standin, story

Json = dict[str, Any]


@asynccontextmanager
async def asking(here: Standin) -> AsyncIterator[TestClient[Any, Any]]:
    async with TestClient(TestServer(application(World(here.controller, here.clock.monotonic)))) as client:
        yield client


@pytest.fixture
async def client() -> AsyncIterator[TestClient[Any, Any]]:
    async with asking(story()) as client:
        yield client


async def get(client: TestClient[Any, Any], path: str, status: int = 200) -> Json:
    async with client.get(path) as reply:
        assert reply.status == status, await reply.text()
        assert reply.headers["Content-Type"] == "application/json"
        found = await reply.json()
    assert isinstance(found, dict)
    return found


async def test_queues_come_as_a_tree_with_kubernetes_quantities(client: TestClient[Any, Any]) -> None:
    found = await get(client, "/api/v1/queues")
    assert (found["kind"], found["asOf"], found["leading"]) == ("QueueList", "2026-11-30T10:00:00.000Z", True)
    assert [queue["path"] for queue in found["items"]] == [
        ["production"],
        ["research"],
        ["research", "language"],
        ["research", "vision"],
    ]
    assert found["items"][3] == {
        "kind": "Queue",
        "metadata": {"name": "vision", "namespace": "", "uid": "queues--vision"},
        "parent": "research",
        "path": ["research", "vision"],
        "leaf": True,
        "weight": 1,
        "priority": 0,
        "state": "Open",
        "counts": {"pending": 2, "admitted": 0, "running": 1},
        "resources": [
            {"name": "cpu", "used": "2", "quota": None, "limit": None, "pending": "5"},
            {"name": GPU, "used": "8", "quota": "8", "limit": "10", "pending": "17"},
        ],
        "pools": [],
        "blockers": [],
    }


async def test_a_held_queue_says_so(client: TestClient[Any, Any]) -> None:
    found = await get(client, "/api/v1/queues/production")
    assert found["state"] == "Held"
    assert [(one["reason"], one["where"]) for one in found["blockers"]] == [
        ("QueueHeld", {"type": "queue", "name": "production"})
    ]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["job-big-bbbbb", "job-later-ccccc", "job-train-aaaaa", "shell", "sweep"]),
        ("?namespace=nlp", ["shell", "sweep"]),
        ("?queue=research&phase=Running", ["job-train-aaaaa", "shell"]),
        ("?queue=vision", ["job-big-bbbbb", "job-later-ccccc", "job-train-aaaaa"]),
        ("?phase=Evicting", []),
        ("?queue=nothing", []),
    ],
)
async def test_gangs_are_chosen(client: TestClient[Any, Any], query: str, names: list[str]) -> None:
    found = await get(client, f"/api/v1/gangs{query}")
    assert [gang["metadata"]["name"] for gang in found["items"]] == names


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("?sort=-name", ["sweep", "shell", "job-train-aaaaa", "job-later-ccccc", "job-big-bbbbb"]),
        ("?sort=pods", ["job-later-ccccc", "shell", "job-train-aaaaa", "sweep", "job-big-bbbbb"]),
        ("?sort=-pods", ["job-big-bbbbb", "sweep", "job-train-aaaaa", "job-later-ccccc", "shell"]),
        ("?sort=queue", ["shell", "sweep", "job-big-bbbbb", "job-later-ccccc", "job-train-aaaaa"]),
        ("?sort=position&phase=Pending", ["sweep", "job-big-bbbbb", "job-later-ccccc"]),
        ("?sort=phase", ["job-big-bbbbb", "job-later-ccccc", "sweep", "job-train-aaaaa", "shell"]),
        ("?sort=reason", ["job-later-ccccc", "job-big-bbbbb", "sweep", "job-train-aaaaa", "shell"]),
        ("?search=BIG", ["job-big-bbbbb"]),
        ("?search=train", ["job-train-aaaaa"]),
        ("?search=waitingfor", ["sweep"]),
        ("?search=ml/job", ["job-big-bbbbb", "job-later-ccccc", "job-train-aaaaa"]),
        ("?phase=Pending,Running&queue=language", ["shell", "sweep"]),
    ],
)
async def test_gangs_are_sorted_stably_and_searched(client: TestClient[Any, Any], query: str, names: list[str]) -> None:
    found = await get(client, f"/api/v1/gangs{query}")
    assert [gang["metadata"]["name"] for gang in found["items"]] == names
    assert found["total"] == len(names)


async def test_of_many_gangs_the_first_are_described_and_all_are_counted(client: TestClient[Any, Any]) -> None:
    found = await get(client, "/api/v1/gangs?phase=Pending&limit=1&sort=-pods")
    assert [gang["metadata"]["name"] for gang in found["items"]] == ["job-big-bbbbb"]
    assert found["total"] == 3
    assert found["reasons"] == {"Held": 1, "NeverFits": 1, "WaitingForMembers": 1}


@pytest.mark.parametrize("few", [200, 1])
async def test_a_list_with_a_limit_says_what_the_explanation_says(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """Also of gangs that no decision has looked at since what they wait for became another thing."""
    monkeypatch.setattr(world, "FEW", few)
    here = story()
    here.see(foreign.NODES, *(standin.node(f"gpu-{i}", "r1") for i in (4, 5)))  # nothing was decided on these
    here.see(foreign.QUEUES, standin.queue("vision", "research", quota=8, limit=9))
    async with asking(here) as client:
        old = await get(client, "/api/v1/gangs?search=big")
        new = await get(client, "/api/v1/gangs?search=big&limit=5")
        why = await get(client, "/api/v1/explain/namespaces/ml/gangs/big")
    assert old["items"][0]["reason"] == "NeverFits"
    first = why["blockers"][0]
    assert (new["items"][0]["reason"], new["items"][0]["message"]) == (first["reason"], first["sentence"])
    assert first["sentence"] == "queue vision: needs 16 nvidia.com/gpu, 1 left of its limit 9 (8 in use)"
    assert new["reasons"] == ({"OverLimit": 1} if few == 200 else {"NeverFits": 1})


async def test_what_a_reader_has_already_is_not_sent_again() -> None:
    """The tag holds while nothing but the time has changed, and for one answer alone."""
    here = story()
    async with asking(here) as client:
        tags = {}
        for path in (
            "queues",
            "gangs",
            "nodes",
            "occupancy",
            "namespaces/ml/gangs/big",
            "explain/namespaces/ml/gangs/big",
        ):
            async with client.get(f"/api/v1/{path}") as reply:
                tags[path] = reply.headers["ETag"]
        assert len(set(tags.values())) == len(tags)
        here.later(MAX_AGE)
        for path, tag in tags.items():
            async with client.get(f"/api/v1/{path}", headers={"If-None-Match": tag}) as reply:
                assert (reply.status, await reply.read(), reply.headers["ETag"]) == (304, b"", tag), path
        here.see(foreign.NODES, standin.node("gpu-4", "r3"))
        here.later(MAX_AGE)
        for path in ("nodes", "occupancy"):
            async with client.get(f"/api/v1/{path}", headers={"If-None-Match": tags[path]}) as reply:
                assert reply.status == 200
                assert reply.headers["ETag"] != tags[path]


async def test_the_state_tells_what_an_answer_would_show() -> None:
    """A number is told once a reader is sure to get what it stands for: else a page would show the state before it."""
    here = story()
    async with asking(here) as client:
        first = await get(client, "/api/v1/controller")
        assert first == {
            "kind": "Controller",
            "asOf": "2026-11-30T10:00:00.000Z",
            "revision": here.controller.revision,
            "leading": True,
            "role": "leading",
            "leader": "one",
            "ready": True,
            "missing": [],
            "behind": 0,
        }
        assert len((await get(client, "/api/v1/nodes"))["items"]) == 4
        here.see(foreign.NODES, standin.node("gpu-4", "r3"))
        assert (await get(client, "/api/v1/controller"))["revision"] == first["revision"]
        assert len((await get(client, "/api/v1/nodes"))["items"]) == 4
        here.later(MAX_AGE)
        assert (await get(client, "/api/v1/controller"))["revision"] == first["revision"] + 1
        assert len((await get(client, "/api/v1/nodes"))["items"]) == 5


async def test_the_state_is_told_before_anything_was_read() -> None:
    async with asking(Standin()) as client:
        found = await get(client, "/api/v1/controller")
    assert (found["role"], found["ready"], found["leading"]) == ("starting", False, False)
    assert "pods not synced" in found["missing"]


async def test_many_watchers_cost_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each description is work on the loop that decides: lists are made once while the view stands."""
    here, described = story(), Counter[str]()
    for name in ("describe", "_queue", "node_listing", "_map"):
        real = getattr(World, name)

        def counting(*given: Any, name: str = name, real: Any = real, **more: Any) -> Any:
            described[name] += 1
            return real(*given, **more)

        monkeypatch.setattr(World, name, counting)
    once = {"describe": 5, "_queue": 4, "node_listing": 1, "_map": 1}
    async with asking(here) as client:
        for path in ("gangs", "queues", "nodes", "occupancy"):
            first = await get(client, f"/api/v1/{path}")
            for _ in range(20):
                assert await get(client, f"/api/v1/{path}") == first
        assert described == once
        here.later(MAX_AGE)
        assert (await get(client, "/api/v1/gangs"))["asOf"] == "2026-11-30T10:00:00.500Z"
        assert described["describe"] == 2 * once["describe"]
        here.controller.leading = False
        assert (await get(client, "/api/v1/gangs"))["leading"] is False


async def test_what_is_expensive_is_not_made_anew_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a list takes a second, readers get one of every five seconds of the loop, and no more."""
    here = story()
    describe = World.describe

    def slow(*given: Any, **more: Any) -> Any:
        here.later(0.2)
        return describe(*given, **more)

    monkeypatch.setattr(World, "describe", slow)
    monkeypatch.setattr(slices, "SLICE", 1000.0)  # the clock stands still while somebody waits for the next slice
    async with asking(here) as client:
        first = await get(client, "/api/v1/gangs")  # five gangs
        here.later(RESTRAINT - 1.1)
        assert await get(client, "/api/v1/gangs") == first
        here.later(0.2)
        assert (await get(client, "/api/v1/gangs"))["asOf"] == "2026-11-30T10:00:04.100Z"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "gangs?phase=running",
            'phase "running" is none of Pending, Admitted, Running, Evicting, Finished, Deactivated',
        ),
        ("gangs?name=x", 'parameter "name" is unknown; known are namespace, queue, phase, search, sort, limit'),
        (
            "gangs?phase=Pending,running",
            'phase "running" is none of Pending, Admitted, Running, Evicting, Finished, Deactivated',
        ),
        ("gangs?limit=-1", 'limit "-1" is no number up to 10000'),
        ("gangs?limit=10001", 'limit "10001" is no number up to 10000'),
        (
            "gangs?sort=size",
            'sort "size" is none of name, position, queued, queue, pods, phase, reason, or one of these after a "-"',
        ),
        (
            "occupancy?resource=x",
            'no node has resource "x"; known are nvidia.com/gpu, cpu, memory',
        ),
        ("gangs?queue=a&queue=b", 'parameter "queue" is given twice'),
        ("queues?namespace=x", 'parameter "namespace" is unknown'),
    ],
)
async def test_a_filter_that_would_be_ignored_is_refused(client: TestClient[Any, Any], path: str, message: str) -> None:
    found = await get(client, f"/api/v1/{path}", 400)
    assert found == {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": 400,
        "reason": "BadRequest",
        "message": message,
    }


@pytest.mark.parametrize(
    ("namespace", "name", "group"),
    [
        ("ml", "job-train-aaaaa", "job-train-aaaaa"),
        ("ml", "train", "job-train-aaaaa"),
        ("ml", "train-1", "job-train-aaaaa"),
        ("nlp", "shell", "shell"),
        ("nlp", "sweep-0", "sweep"),
    ],
)
async def test_a_gang_answers_to_its_own_its_owners_and_its_pods_names(
    client: TestClient[Any, Any], namespace: str, name: str, group: str
) -> None:
    found = await get(client, f"/api/v1/namespaces/{namespace}/gangs/{name}")
    assert found["metadata"]["name"] == group


async def test_one_gang_whole(client: TestClient[Any, Any]) -> None:
    assert await get(client, "/api/v1/namespaces/ml/gangs/train") == {
        "asOf": "2026-11-30T10:00:00.000Z",
        "leading": True,
        "kind": "Gang",
        "metadata": {"name": "job-train-aaaaa", "namespace": "ml", "uid": "podgroups-ml-job-train-aaaaa"},
        "owner": {"kind": "Job", "name": "train"},
        "single": False,
        "queue": "vision",
        "phase": "Running",
        "reason": "",
        "message": "",
        "position": None,
        "priority": 0,
        "minMember": 2,
        "maxMember": 2,
        "counts": {"members": 2, "released": 2, "bound": 2, "running": 2, "succeeded": 0},
        "nodes": [{"name": "gpu-0", "pods": 1}, {"name": "gpu-1", "pods": 1}],
        "need": {"cpu": "2", GPU: "8"},
        "required": None,
        "preferred": None,
        "createdAt": "2026-11-30T09:00:00.000Z",
        "queuedAt": "2026-11-30T09:00:00.000Z",
        "admittedAt": "2026-11-30T09:30:00.000Z",
        "round": 1,
        "requeues": 0,
        "roles": [
            {
                "name": "",
                "minMember": 2,
                "maxMember": 2,
                "requests": {"cpu": "1", GPU: "4", "pods": "1"},
                "required": None,
                "preferred": None,
            }
        ],
        "pods": [
            {
                "name": f"train-{rank}",
                "role": "",
                "rank": rank,
                "stage": "Running",
                "node": f"gpu-{rank}",
                "gates": [],
                "trouble": "",
            }
            for rank in range(2)
        ],
    }


async def test_an_explanation_has_every_level_with_need_and_have(client: TestClient[Any, Any]) -> None:
    found = await get(client, "/api/v1/explain/namespaces/ml/gangs/big")
    assert (found["kind"], found["phase"], found["position"], found["waiting"]) == ("Explanation", "Pending", 1, 1)
    assert [queue["metadata"]["name"] for queue in found["path"]] == ["vision", "research"]
    assert [(one["reason"], one["need"], one["have"], one["of"], one["where"]) for one in found["blockers"]] == [
        ("NeverFits", "4", "0", "pods", {"type": "domain", "name": "r1", "level": "rack"}),
        ("OverLimit", "16", "2", GPU, {"type": "queue", "name": "vision"}),
        ("OverLimit", "16", "7", GPU, {"type": "queue", "name": "research"}),
        ("NoCapacity", "4", "0", "pods", {"type": "cluster", "name": ""}),
        ("NodeUnhealthy", None, "3", "nodes", {"type": "nodes", "name": ""}),
    ]
    first = found["blockers"][0]
    assert first["ever"] == "2"
    assert first["domains"] == 2
    assert first["required"] is True
    assert first["short"] == {"resource": GPU, "perPod": "4", "free": "0"}
    assert all(one["sentence"] for one in found["blockers"])
    assert first["remedy"].startswith("ask for at most 2 pods")


async def test_a_running_gang_is_explained_by_where_it_runs(client: TestClient[Any, Any]) -> None:
    found = await get(client, "/api/v1/explain/namespaces/ml/gangs/train")
    assert found["summary"] == "runs on 2 nodes: 2 of 2 pods running"
    assert found["nodes"] == [{"name": "gpu-0", "pods": 1}, {"name": "gpu-1", "pods": 1}]
    assert found["blockers"] == []


async def test_pools_with_their_nodes_and_what_queues_have_there() -> None:
    """While none is declared there is one of all nodes; then those that are, and what is of none is in none."""
    here = story()
    async with asking(here) as client:
        (default,) = (await get(client, "/api/v1/pools"))["items"]
        assert (default["metadata"]["name"], default["declared"], default["nodes"], default["usable"]) == (
            "default", False, 4, 3,
        )  # fmt: skip
        one = await get(client, "/api/v1/pools/default")
        assert [(share["queue"], share["used"]) for share in one["queues"] if share["name"] == GPU] == [
            ("language", "1"), ("production", "0"), ("research", "9"), ("vision", "8"),
        ]  # fmt: skip
        here.see(foreign.POOLS, standin.pool("old", "r1", resources=[GPU]))
        entries = [{"name": GPU, "pool": "old", "quota": "4", "limit": "9"}]
        here.see(foreign.QUEUES, standin.queue("vision", "research", resources=entries))
        here.lead()
        here.later(1)
        one = await get(client, "/api/v1/pools/old")
        assert (one["declared"], one["selector"], one["counted"]) == (True, {"example.com/rack": "r1"}, [GPU])
        assert {"name": GPU, "allocatable": "8", "used": "8", "free": "0"} in one["resources"]
        assert {"queue": "vision", "name": GPU, "used": "8", "quota": "4", "limit": "9"} in one["queues"]
        queue = await get(client, "/api/v1/queues/vision")
        assert queue["pools"] == [
            {"pool": "old", "name": "cpu", "used": "2", "quota": None, "limit": None},
            {"pool": "old", "name": GPU, "used": "8", "quota": "4", "limit": "9"},
        ]
        nodes = (await get(client, "/api/v1/nodes"))["items"]
        assert [node["pools"] for node in nodes] == [["old"], ["old"], [], []]
        blockers = (await get(client, "/api/v1/explain/namespaces/ml/gangs/big"))["blockers"]
        limits = [(one["where"], one["need"], one["have"]) for one in blockers if one["reason"] == "OverLimit"]
        assert ({"type": "queue", "name": "vision", "pool": "old"}, "16", "1") in limits


async def test_nodes_with_their_domains_and_what_is_free(client: TestClient[Any, Any]) -> None:
    found = await get(client, "/api/v1/nodes")
    assert found["kind"] == "NodeList"
    assert [(node["metadata"]["name"], node["status"], node["domains"]) for node in found["items"]] == [
        ("gpu-0", "Ready", [{"level": "rack", "name": "r1"}]),
        ("gpu-1", "Ready", [{"level": "rack", "name": "r1"}]),
        ("gpu-2", "Ready", [{"level": "rack", "name": "r2"}]),
        ("gpu-3", "Cordoned", [{"level": "rack", "name": "r2"}]),
    ]
    one = await get(client, "/api/v1/nodes/gpu-2")
    assert one["gangs"] == [{"name": "shell", "namespace": "nlp", "pods": 1}]
    assert {"name": GPU, "allocatable": "4", "used": "1", "free": "3"} in one["resources"]


@pytest.mark.parametrize(
    ("path", "message", "nearest"),
    [
        ("queues/visions", 'queue "visions" not found', ["vision"]),
        ("nodes/gpu-9", 'node "gpu-9" not found', ["gpu-3", "gpu-2", "gpu-1"]),
        ("pools/defalt", 'pool "defalt" not found', ["default"]),
        ("namespaces/ml/gangs/trian", 'gang "trian" not found in namespace "ml"', ["train"]),
        ("explain/namespaces/ml/gangs/bi", 'gang "bi" not found in namespace "ml"', ["big"]),
        ("namespaces/ml/gangs/shell", 'gang "shell" not found in namespace "ml"; there is one in nlp', []),
    ],
)
async def test_what_is_not_there_names_what_looks_like_it(
    client: TestClient[Any, Any], path: str, message: str, nearest: list[str]
) -> None:
    found = await get(client, f"/api/v1/{path}", 404)
    assert (found["reason"], found["message"], found["details"]) == ("NotFound", message, {"nearest": nearest})


async def test_of_two_groups_of_one_job_name_the_unfinished_is_meant() -> None:
    here = story()
    done = standin.placed({"gpu-0": "0"})
    done["conditions"].append({**done["conditions"][0], "type": "Finished"})
    here.see(foreign.JOBS, standin.job("train", "vision", 1, 4, tail="zzzzz"))
    here.see(foreign.POD_GROUPS, standin.group("job-train-zzzzz", "vision", 1, owner="train", status=done))
    async with asking(here) as client:
        found = await get(client, "/api/v1/namespaces/ml/gangs/train")
    assert found["metadata"]["name"] == "job-train-aaaaa"


def revision(here: Standin, number: int, replicas: int) -> None:
    """A ReplicaSet of the Deployment "api", with its PodGroup and its pods."""
    name, tail = f"api-{number}", f"ddd{number:02}"
    made = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "api", "uid": "deployment", "controller": True}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": f"{tail}-{name}", "controller": True}
    template = standin.job("any", "language", 1, 1)["spec"]["template"]
    meta = {"name": name, "namespace": "ml", "uid": owner["uid"], "ownerReferences": [made]}
    here.see(foreign.REPLICA_SETS, {"metadata": meta, "spec": {"replicas": replicas, "template": template}})
    group = standin.group(f"replicaset-{name}-{tail}", "language", 1)
    here.see(foreign.POD_GROUPS, {**group, "metadata": {**group["metadata"], "ownerReferences": [owner]}})
    for replica in range(replicas):
        pod = standin.pod(f"{name}-{replica}", "language", 1)
        here.see(foreign.PODS, {**pod, "metadata": {**pod["metadata"], "ownerReferences": [owner]}})


async def test_a_gang_is_known_by_the_name_of_its_deployment() -> None:
    """Of its revisions the one that has pods is meant, be it an old one; and its name helps who cannot spell it."""
    here = story()
    revision(here, 1, 2)
    revision(here, 2, 0)
    here.lead()
    async with asking(here) as client:
        found = await get(client, "/api/v1/namespaces/ml/gangs/api")
        explained = await get(client, "/api/v1/explain/namespaces/ml/gangs/api")
        missing = await get(client, "/api/v1/namespaces/ml/gangs/apii", 404)
        elsewhere = await get(client, "/api/v1/namespaces/nlp/gangs/api", 404)
    assert found["metadata"]["name"] == explained["metadata"]["name"] == "replicaset-api-1-ddd01"
    assert found["owner"] == {"kind": "ReplicaSet", "name": "api-1"}
    assert missing["details"]["nearest"][0] == "api"
    assert elsewhere["message"] == 'gang "api" not found in namespace "nlp"; there is one in ml'


async def test_a_gang_given_back_too_often_is_deactivated() -> None:
    here = story()
    status = {
        "requeue": {"count": 6, "reason": "BindDeadline"},
        "conditions": [
            {
                "type": "Deactivated",
                "status": "True",
                "reason": "BindDeadline",
                "message": "",
                "lastTransitionTime": "2026-11-30T09:50:00Z",
            }
        ],
    }
    here.see(foreign.POD_GROUPS, standin.group("tired", "language", 1, status=status))
    here.see(foreign.PODS, standin.pod("tired-0", "language", 1, group="tired"))
    here.lead()
    async with asking(here) as client:
        found = await get(client, "/api/v1/namespaces/ml/gangs/tired")
        listed = await get(client, "/api/v1/gangs?phase=Deactivated")
    assert (found["phase"], found["reason"], found["requeues"]) == ("Deactivated", "Deactivated", 6)
    assert [gang["metadata"]["name"] for gang in listed["items"]] == ["tired"]


async def test_a_podgroup_that_cannot_be_used_waits_and_says_what_is_wrong() -> None:
    here = story()
    bad = standin.group("bad", "vision", 2)
    bad["spec"]["maxMember"] = 1
    here.see(foreign.POD_GROUPS, bad)
    here.lead()
    async with asking(here) as client:
        found = await get(client, "/api/v1/explain/namespaces/ml/gangs/bad")
    assert (found["phase"], [one["reason"] for one in found["blockers"]]) == ("Pending", ["InvalidRequest"])
    assert "maxMember: must not be below minMember" in found["blockers"][0]["sentence"]


async def test_pods_that_wait_for_the_podgroup_of_their_job_are_found_by_its_name() -> None:
    here = story()
    here.see(foreign.JOBS, standin.job("fresh", "vision", 1, 1))
    here.see(foreign.PODS, standin.pod("fresh-0", "vision", 1, job="fresh", index=0))
    here.lead()
    async with asking(here) as client:
        found = await get(client, "/api/v1/namespaces/ml/gangs/fresh")
    assert (found["owner"], found["reason"]) == ({"kind": "Job", "name": "fresh"}, "PodGroupMissing")


async def test_hostile_names_come_out_as_plain_json_text() -> None:
    evil = "x\x1b[31m</script>\u202e\n\x00"
    here = story()
    here.see(foreign.POD_GROUPS, standin.group(evil, evil, 1, namespace=evil))
    here.lead()
    async with asking(here) as client:
        async with client.get("/api/v1/gangs") as reply:
            body = await reply.read()
        found = await get(client, "/api/v1/gangs")
        missing = await get(client, "/api/v1/namespaces/ml/gangs/%1b%5B31m%0a%22", 404)
    assert not any(byte < 0x20 for byte in body.removesuffix(b"\n"))
    assert found["items"][-1]["metadata"]["name"] == evil
    assert missing["message"] == 'gang "\x1b[31m\n"" not found in namespace "ml"'


@pytest.mark.parametrize(
    "path", ["queues", "queues/x", "gangs", "namespaces/a/gangs/b", "nodes", "explain/namespaces/a/gangs/b"]
)
async def test_nothing_is_listed_before_everything_was_read(path: str) -> None:
    here = Standin()
    here.sync()
    for informer in here.controller.informers:
        if informer.kind.plural in {"pods", "jobs"}:
            informer.synced.clear()
    async with asking(here) as client:
        found = await get(client, f"/api/v1/{path}", 503)
    message = "the controller has not read the cluster yet: no jobs, pods; /readyz says more"
    assert (found["reason"], found["message"]) == ("ServiceUnavailable", message)


async def test_a_view_is_used_again_for_half_a_second() -> None:
    here = story()
    async with asking(here) as client:
        assert len((await get(client, "/api/v1/nodes"))["items"]) == 4
        here.see(foreign.NODES, standin.node("gpu-4", "r3"))
        here.later(0.4)
        old = await get(client, "/api/v1/nodes")
        assert (len(old["items"]), old["asOf"]) == (4, "2026-11-30T10:00:00.000Z")
        here.later(0.1)
        new = await get(client, "/api/v1/nodes")
        assert (len(new["items"]), new["asOf"]) == (5, "2026-11-30T10:00:00.500Z")
