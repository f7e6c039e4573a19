"""``queuectl explain`` and ``describe``: whole outputs."""

from __future__ import annotations

import json

import pytest

from queuectl.contract import foreign
from tests.cli.conftest import Call, Served
from tests.serve import standin
from tests.serve.standin import GPU, Standin


def test_a_waiting_gang_shows_every_blocker_with_numbers_and_what_frees_it(call: Call) -> None:
    done = call("explain", "gang", "big", "-n", "ml")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "Gang job-big-bbbbb (Job/big) in namespace ml waits in queue vision, position 1, for a place for 4 pods at once.",
        "Queued 60m ago; 1 wait in its queue.",
        "",
        "1. NeverFits: 4 pods can never fit into one rack; even empty, the best, r1, has room for 2.",
        "   What would free it: ask for at most 2 pods, or for less per pod, or for a coarser level.",
        "",
        "2. OverLimit: queue vision: needs 16 nvidia.com/gpu, 2 left of its limit 10 (8 in use).",
        "   What would free it: raise the limit of vision or wait until 14 are given back.",
        "",
        "3. OverLimit: queue research: needs 16 nvidia.com/gpu, 7 left of its limit 16 (9 in use).",
        "   What would free it: raise the limit of research or wait until 9 are given back.",
        "",
        "4. NoCapacity: 4 pods must fit into the cluster, which has room for 0; short of nvidia.com/gpu: 4 a pod, 3 free there.",
        "   What would free it: it can start when 4 more such pods fit into the cluster.",
        "",
        "5. NodeUnhealthy: 1 of 4 nodes cannot be used now: cordoned.",
        "   What would free it: uncordon or repair the nodes.",
        "",
        "QUEUE      STATE   RESOURCE         USED   QUOTA   LIMIT",
        "vision     Open    nvidia.com/gpu   8      8       10",
        "research   Open    nvidia.com/gpu   9      12      16",
    ]


def test_where_queues_list_pools_their_rows_stand_beside_those_over_all_nodes(served: Served, call: Call) -> None:
    def pooled(here: Standin) -> None:
        here.see(foreign.POOLS, standin.pool("old", "r1"))
        entries = [{"name": GPU, "quota": "8"}, {"name": GPU, "pool": "old", "limit": "9"}]
        here.see(foreign.QUEUES, standin.queue("vision", "research", resources=entries))
        here.lead()

    served.do(pooled)
    lines = call("explain", "gang", "big", "-n", "ml").out.splitlines()
    assert lines[-4:] == [
        "QUEUE      STATE   POOL   RESOURCE         USED   QUOTA    LIMIT",
        "vision     Open    *      nvidia.com/gpu   8      8        <none>",
        "vision     Open    old    nvidia.com/gpu   8      <none>   9",
        "research   Open    *      nvidia.com/gpu   9      12       16",
    ]
    assert any(
        "OverLimit: queue vision in pool old: needs 16 nvidia.com/gpu, 1 left of its limit 9" in line for line in lines
    )


def test_a_running_gang_shows_where(call: Call) -> None:
    assert call("explain", "job/train", "-n", "ml").out.splitlines() == [
        "Gang job-train-aaaaa (Job/train) in namespace ml runs on 2 nodes: 2 of 2 pods running.",
        "Admitted 30m ago.",
        "",
        "NODE    PODS",
        "gpu-0   1",
        "gpu-1   1",
    ]


def test_explained_as_typed_fields(call: Call) -> None:
    found = json.loads(call("explain", "gang", "sweep", "-n", "nlp", "-o", "json").out)
    assert found["kind"] == "Explanation"
    assert found["blockers"][0] == {
        "reason": "WaitingForMembers",
        "sentence": "has 1 of 3 members",
        "remedy": "create the missing members, or lower minMember",
        "where": {"type": "gang", "name": ""},
        "need": "3",
        "have": "1",
        "of": "members",
    }


def test_a_standby_says_that_it_does_not_know(served: Served, call: Call) -> None:
    served.do(lambda here: setattr(here.controller, "leading", False))
    assert call("explain", "gang", "big", "-n", "ml").err.startswith("note: this controller does not lead")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", "queue", "vision"], '"queue" is no kind of gang; as in: gang NAME, job/NAME, pod/NAME'),
        (["explain", "train"], '"train" is no kind of gang; as in: gang NAME, job/NAME, pod/NAME'),
        (["explain", "job"], '"job" is no kind of gang; as in: gang NAME, job/NAME, pod/NAME'),
        (["explain", "gang"], "name one of the gangs, as in: gang NAME"),
        (["explain", "gang", "a", "b"], "name one of the gangs, as in: gang NAME"),
        (["describe", "gangs"], "name one of the gangs, as in: gang NAME"),
    ],
)
def test_exactly_one_is_named(call: Call, arguments: list[str], message: str) -> None:
    done = call(*arguments)
    assert (done.code, done.err) == (2, f"error: {message}\n")


def test_a_queue_described(call: Call) -> None:
    assert call("describe", "queue", "research").out.splitlines() == [
        "Name:      research",
        "Path:      research",
        "State:     Open",
        "Weight:    1",
        "Priority:  0",
        "Gangs:     3 pending, 0 admitted, 2 running",
        "",
        "Resources:",
        "  RESOURCE         USED   QUOTA    LIMIT    WANTED",
        "  cpu              3      <none>   <none>   6",
        "  nvidia.com/gpu   9      12       16       18",
        "",
        "Waiting:",
        "  POSITION   NAMESPACE   NAME              QUEUE      PODS   QUEUED   REASON",
        "  <none>     nlp         sweep             language   3      60m      WaitingForMembers",
        "  1          ml          job-big-bbbbb     vision     4      60m      NeverFits",
        "  <none>     ml          job-later-ccccc   vision     1      60m      Held",
    ]


def test_a_held_queue_described(call: Call) -> None:
    assert call("describe", "queue/production").out.splitlines()[5:] == [
        "Gangs:     0 pending, 0 admitted, 0 running",
        "",
        "QueueHeld: queue production is held",
        "  What would free it: set the queue's state to Open",
        "",
        "Resources:",
        "  RESOURCE         USED   QUOTA   LIMIT    WANTED",
        "  nvidia.com/gpu   0      4       <none>   0",
    ]


def test_a_gang_described(call: Call) -> None:
    assert call("describe", "gang", "train", "-n", "ml").out.splitlines() == [
        "Name:        job-train-aaaaa",
        "Namespace:   ml",
        "Owner:       Job/train",
        "Queue:       vision",
        "Phase:       Running",
        "Position:    <none>",
        "Priority:    0",
        "Pods:        2",
        "Topology:    <none>",
        "Created:     2026-11-30T09:00:00.000Z",
        "Queued:      2026-11-30T09:00:00.000Z",
        "Admitted:    2026-11-30T09:30:00.000Z",
        "Round:       1",
        "Given back:  0 times",
        "Members:     2 members, 2 released, 2 bound, 2 running, 0 succeeded",
        "",
        "Roles:",
        "  ROLE     MIN   MAX   TOPOLOGY   EACH ASKS FOR",
        "  <none>   2     2     <none>     cpu=1,nvidia.com/gpu=4,pods=1",
        "",
        "Members:",
        "  POD       ROLE     RANK   STAGE     NODE    OTHER GATES   TROUBLE",
        "  train-0   <none>   0      Running   gpu-0   <none>        <none>",
        "  train-1   <none>   1      Running   gpu-1   <none>        <none>",
    ]


def test_a_waiting_gang_described_names_its_first_blocker(call: Call) -> None:
    lines = call("describe", "gang", "big", "-n", "ml").out.splitlines()
    assert "Topology:    one rack required" in lines
    assert "NeverFits: 4 pods can never fit into one rack; even empty, the best, r1, has room for 2" in lines
    assert "All reasons: queuectl explain gang big -n ml" in lines


def test_a_node_described(call: Call) -> None:
    assert call("describe", "node", "gpu-2").out.splitlines() == [
        "Name:     gpu-2",
        "Status:   Ready",
        "Domains:  rack r2",
        "Pools:    <none>",
        "",
        "Resources:",
        "  RESOURCE         USED   ALLOCATABLE   FREE",
        "  cpu              1      64            63",
        "  memory           0      256Gi         256Gi",
        "  nvidia.com/gpu   1      4             3",
        "  pods             1      110           109",
        "",
        "Gangs:",
        "  NAMESPACE   NAME    PODS",
        "  nlp         shell   1",
    ]
