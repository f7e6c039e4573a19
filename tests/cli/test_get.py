"""``queuectl get``: whole outputs."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from queuectl.cli import get
from queuectl.contract import foreign
from tests.cli.conftest import Call, Served, invoke
from tests.serve import standin
from tests.serve.standin import GPU, Standin


def table(text: str) -> str:
    """As written in a test: without the first line break and the common indentation."""
    lines = text.strip("\n").rstrip().splitlines()
    return "".join(f"{line[8:].rstrip()}\n" for line in lines)


def test_queues_are_a_tree(call: Call) -> None:
    done = call("get", "queues")
    assert (done.code, done.err) == (0, "")
    assert done.out == table("""
        NAME         STATE   PENDING   ADMITTED   RUNNING   RESOURCE         USED   QUOTA    LIMIT    WANTED
        production   Held    0         0          0         nvidia.com/gpu   0      4        <none>   0
        research     Open    3         0          2         nvidia.com/gpu   9      12       16       18
          language   Open    1         0          1         nvidia.com/gpu   1      <none>   <none>   1
          vision     Open    2         0          1         nvidia.com/gpu   8      8        10       17
    """)


def test_wide_queues_have_a_row_for_every_resource(call: Call) -> None:
    done = call("get", "queue", "vision", "-o", "wide")
    first = ["NAME", "STATE", "PENDING", "ADMITTED", "RUNNING", "POOL", "RESOURCE", "USED", "QUOTA", "LIMIT", "WANTED"]
    assert [line.split() for line in done.out.splitlines()] == [
        [*first, "PARENT", "WEIGHT", "PRIORITY"],
        ["vision", "Open", "2", "0", "1", "*", "cpu", "2", "<none>", "<none>", "5", "research", "1", "0"],
        ["vision", "Open", "2", "0", "1", "*", "nvidia.com/gpu", "8", "8", "10", "17", "research", "1", "0"],
    ]


def test_gangs_of_all_namespaces(call: Call) -> None:
    done = call("get", "gangs", "-A")
    assert (done.code, done.err) == (0, "")
    assert done.out == table("""
        NAMESPACE   NAME              QUEUE      PHASE     RUNNING   POSITION   REASON              AGE
        ml          job-big-bbbbb     vision     Pending   0/4       1          NeverFits           60m
        ml          job-later-ccccc   vision     Pending   0/1       <none>     Held                60m
        ml          job-train-aaaaa   vision     Running   2/2       <none>     <none>              60m
        nlp         shell             language   Running   1/1       <none>     <none>              60m
        nlp         sweep             language   Pending   0/3       <none>     WaitingForMembers   60m
    """)


def test_wide_gangs_say_who_made_them_where_they_run_and_why_they_wait(call: Call) -> None:
    done = call("get", "gangs", "-n", "ml", "-o", "wide", "--phase", "running")
    first = ["NAME", "QUEUE", "PHASE", "RUNNING", "POSITION", "REASON", "AGE"]
    none = "<none>"
    last = ["0", "Job/train", "1", "0", "gpu-0:1,gpu-1:1", none]
    assert [line.split() for line in done.out.splitlines()] == [
        [*first, "PRIORITY", "OWNER", "ROUND", "REQUEUES", "NODES", "MESSAGE"],
        ["job-train-aaaaa", "vision", "Running", "2/2", none, none, "60m", *last],
    ]


def test_nodes(call: Call) -> None:
    done = call("get", "nodes", "-o", "wide")
    assert [line.split() for line in done.out.splitlines() if line.startswith(("NAME", "gpu-3", "gpu-2"))] == [
        ["NAME", "STATUS", "RESOURCE", "USED", "ALLOCATABLE", "FREE", "DOMAINS", "POOLS"],
        ["gpu-2", "Ready", "cpu", "1", "64", "63", "rack=r2", "<none>"],
        ["gpu-2", "Ready", "memory", "0", "256Gi", "256Gi", "rack=r2", "<none>"],
        ["gpu-2", "Ready", "nvidia.com/gpu", "1", "4", "3", "rack=r2", "<none>"],
        ["gpu-2", "Ready", "pods", "1", "110", "109", "rack=r2", "<none>"],
        ["gpu-3", "Cordoned", "cpu", "0", "64", "64", "rack=r2", "<none>"],
        ["gpu-3", "Cordoned", "memory", "0", "256Gi", "256Gi", "rack=r2", "<none>"],
        ["gpu-3", "Cordoned", "nvidia.com/gpu", "0", "4", "4", "rack=r2", "<none>"],
        ["gpu-3", "Cordoned", "pods", "0", "110", "110", "rack=r2", "<none>"],
    ]


def test_while_there_is_no_pool_there_is_one_of_all_nodes(call: Call) -> None:
    done = call("get", "pools", "-o", "wide")
    assert [line.split() for line in done.out.splitlines() if line.startswith(("NAME", "default"))][:3] == [
        ["NAME", "NODES", "USABLE", "RESOURCE", "USED", "ALLOCATABLE", "FREE", "SELECTOR", "TOPOLOGY", "COUNTED"],
        ["default", "4", "3", "cpu", "3", "256", "253", "<none>", "default", "<none>"],
        ["default", "4", "3", "memory", "0", "1Ti", "1Ti", "<none>", "default", "<none>"],
    ]


def pooled(here: Standin) -> None:
    """The two racks become two pools, in one of which vision has a limit."""
    here.see(foreign.POOLS, standin.pool("new", "r2"), standin.pool("old", "r1", resources=[GPU], topology="nowhere"))
    entries = [{"name": GPU, "quota": "8"}, {"name": GPU, "pool": "old", "limit": "8"}]
    here.see(foreign.QUEUES, standin.queue("vision", "research", resources=entries))
    here.lead()


def test_pools_and_what_queues_have_there(served: Served, call: Call) -> None:
    served.do(pooled)
    assert call("get", "pools").out == table("""
        NAME   NODES   USABLE   RESOURCE         USED   ALLOCATABLE   FREE
        new    2       1        nvidia.com/gpu   1      8             7
        old    2       2        nvidia.com/gpu   8      8             0
    """)
    wide = call("get", "queues", "vision", "-o", "wide").out.splitlines()
    assert [line.split()[5:11] for line in wide] == [
        ["POOL", "RESOURCE", "USED", "QUOTA", "LIMIT", "WANTED"],
        ["*", "cpu", "2", "<none>", "<none>", "5"],
        ["*", "nvidia.com/gpu", "8", "8", "<none>", "17"],
        ["old", "cpu", "2", "<none>", "<none>", "<none>"],
        ["old", "nvidia.com/gpu", "8", "<none>", "8", "<none>"],
    ]
    assert call("get", "nodes", "gpu-3", "-o", "wide").out.split()[-1] == "new"
    assert call("describe", "pool", "old").out.splitlines() == [
        "Name:      old",
        "Selector:  example.com/rack=r1",
        "Topology:  nowhere",
        "Counted:   nvidia.com/gpu",
        "Nodes:     2, 2 of them usable",
        "",
        "Not as declared: there is no Topology nowhere; the default one applies",
        "",
        "Resources:",
        "  RESOURCE         USED   ALLOCATABLE   FREE",
        "  cpu              2      128           126",
        "  memory           0      512Gi         512Gi",
        "  nvidia.com/gpu   8      8             0",
        "  pods             2      220           218",
        "",
        "Queues:",
        "  QUEUE      RESOURCE         USED   QUOTA    LIMIT",
        "  research   cpu              2      <none>   <none>",
        "  research   nvidia.com/gpu   8      <none>   <none>",
        "  vision     cpu              2      <none>   <none>",
        "  vision     nvidia.com/gpu   8      <none>   8",
    ]
    described = call("describe", "queue", "vision").out.splitlines()
    assert described[described.index("In pools:") : described.index("In pools:") + 4] == [
        "In pools:",
        "  POOL   RESOURCE         USED   QUOTA    LIMIT",
        "  old    cpu              2      <none>   <none>",
        "  old    nvidia.com/gpu   8      <none>   8",
    ]


def test_filters_take_in_the_queues_below(call: Call) -> None:
    done = call("get", "gangs", "-A", "--queue", "research", "--phase", "Pending", "--sort", "position", "-o", "name")
    assert done.out.split() == [
        "podgroup.queuectl.io/job-big-bbbbb",
        "podgroup.queuectl.io/sweep",
        "podgroup.queuectl.io/job-later-ccccc",
    ]


@pytest.mark.parametrize("kind", ["queues", "gangs", "nodes", "pools"])
def test_names_are_taken_back_by_every_verb(call: Call, kind: str) -> None:
    everywhere = ["-n", "ml"] if kind == "gangs" else []
    names = call("get", kind, "-o", "name", *everywhere).out.split()
    assert names
    for name in names:
        assert call("get", name, "-o", "name", *everywhere).out.split() == [name]
        assert call("describe", name, *everywhere).code == 0


@pytest.mark.parametrize("kind", ["queues", "gangs", "nodes", "pools"])
def test_json_and_yaml_are_one_object(call: Call, kind: str) -> None:
    everywhere = ["-A"] if kind == "gangs" else []
    as_json = call("get", kind, "-o", "json", *everywhere)
    as_yaml = call("get", kind, "-o", "yaml", *everywhere)
    found: Any = json.loads(as_json.out)
    assert found == yaml.safe_load(as_yaml.out)
    assert (found["kind"], found["asOf"]) == (f"{kind[:-1].capitalize()}List", "2026-11-30T10:00:00.000Z")
    one = found["items"][0]["metadata"]
    where = ["-n", one["namespace"]] if kind == "gangs" else []
    single = json.loads(call("get", kind, one["name"], "-o", "json", *where).out)
    assert single["metadata"] == one


def test_the_namespace_is_that_of_the_kubeconfig(call: Call, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config"
    contexts = [
        {"name": "a", "context": {"cluster": "c", "namespace": "nlp"}},
        {"name": "b", "context": {"cluster": "c", "namespace": "ml"}},
    ]
    config.write_text(yaml.safe_dump({"current-context": "a", "contexts": contexts}))
    assert call("get", "gangs", "-o", "name", "--kubeconfig", str(config)).out.count("\n") == 2
    assert call("get", "gangs", "-o", "name", "--kubeconfig", str(config), "--context", "b").out.count("\n") == 3
    monkeypatch.setenv("KUBECONFIG", f"/nothing/there:{config}")
    assert call("get", "gangs", "-o", "name").out.count("\n") == 2
    config.write_text("not: [a, kubeconfig")
    assert call("get", "gangs").err == "No gangs found in namespace default; -A shows those of all namespaces.\n"


def test_nothing_found_is_no_failure_and_says_so_on_stderr(call: Call) -> None:
    done = call("get", "gangs", "-n", "empty")
    said = "No gangs found in namespace empty; -A shows those of all namespaces.\n"
    assert (done.code, done.out, done.err) == (0, "", said)
    assert call("get", "gangs", "-A", "--phase", "Evicting").err == "No gangs found.\n"


def test_a_name_that_is_not_there_fails_after_the_others_were_printed(call: Call) -> None:
    done = call("get", "gangs", "trian", "big", "-n", "ml", "-o", "name")
    assert (done.code, done.out) == (1, "podgroup.queuectl.io/job-big-bbbbb\n")
    assert done.err == 'error: gang "trian" not found in namespace "ml"\nnearest: train\n'


def test_several_names_are_a_list(call: Call) -> None:
    found = json.loads(call("get", "queues", "vision", "research", "-o", "json").out)
    assert (found["kind"], found["asOf"]) == ("List", "2026-11-30T10:00:00.000Z")
    assert [one["metadata"]["name"] for one in found["items"]] == ["vision", "research"]


def test_one_missing_name_prints_no_json(call: Call) -> None:
    done = call("get", "queue", "visio", "-o", "json")
    assert (done.code, done.out, done.err) == (1, "", 'error: queue "visio" not found\nnearest: vision\n')


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["get", "pods"], '"pods" is none of queues, gangs, nodes, pools'),
        (["get", "queues", "-n", "ml"], "-n, -A, --queue and --phase choose among gangs; queues have none of these"),
        (["get", "gangs", "x", "-A"], "give either names or -A, --queue and --phase"),
        (["get", "gangs", "-n", ""], "-n needs a name; all namespaces: -A"),
        (["get", "queue/a", "b"], "queue/a b: write either KIND NAME or KIND/NAME"),
        (["get", "queue/"], "queue/: write either KIND NAME or KIND/NAME"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], message: str) -> None:
    done = invoke(*arguments)
    assert (done.code, done.out, done.err) == (2, "", f"error: {message}\n")


def test_watch_prints_what_changes_until_the_controller_is_gone(
    served: Served, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def more(here: Standin) -> None:
        here.see(foreign.PODS, standin.pod("sweep-1", "language", 1, namespace="nlp", group="sweep"))
        here.lead()

    def fewer(here: Standin) -> None:
        uid = "podgroups-nlp-sweep"
        here.controller.observe(list(here.controller.source.gone(foreign.POD_GROUPS, uid)))
        for pod in ("pods-nlp-sweep-0", "pods-nlp-sweep-1"):
            here.controller.observe(list(here.controller.source.gone(foreign.PODS, pod)))
        here.lead()

    changes = iter([lambda _: None, more, fewer])

    def pause(_: float) -> None:
        change = next(changes, None)
        if change is None:
            raise KeyboardInterrupt
        served.do(change)

    monkeypatch.setattr(get, "pause", pause)
    done = call("get", "gangs", "-n", "nlp", "-w")
    assert [line.split() for line in done.out.splitlines()] == [
        ["NAME", "QUEUE", "PHASE", "RUNNING", "POSITION", "REASON", "AGE"],
        ["shell", "language", "Running", "1/1", "<none>", "<none>", "60m"],
        ["sweep", "language", "Pending", "0/3", "<none>", "WaitingForMembers", "60m"],
        ["sweep", "language", "Pending", "0/3", "<none>", "WaitingForMembers", "60m"],
        ["sweep", "language", "Gone", "0/3", "<none>", "<none>", "60m"],
    ]


def test_watch_tells_what_became_of_that_which_fits_no_more(
    served: Served, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that wait, one finishes and another is deleted: only that one is gone."""

    def over(here: Standin) -> None:
        status = {"conditions": [{"type": "Finished", "status": "True", "reason": "Completed", "message": ""}]}
        here.see(foreign.POD_GROUPS, standin.group("job-later-ccccc", "vision", 1, owner="later", status=status))
        here.controller.observe(list(here.controller.source.gone(foreign.POD_GROUPS, "podgroups-nlp-sweep")))
        here.controller.observe(list(here.controller.source.gone(foreign.PODS, "pods-nlp-sweep-0")))
        here.lead()

    changes = iter([over])

    def pause(_: float) -> None:
        change = next(changes, None)
        if change is None:
            raise KeyboardInterrupt
        served.do(change)

    monkeypatch.setattr(get, "pause", pause)
    done = call("get", "gangs", "-A", "--phase", "Pending", "-w")
    assert [line.split()[1:4:2] for line in done.out.splitlines()] == [
        ["NAME", "PHASE"],
        ["job-big-bbbbb", "Pending"],
        ["job-later-ccccc", "Pending"],
        ["sweep", "Pending"],
        ["job-later-ccccc", "Finished"],
        ["sweep", "Gone"],
    ]


def test_a_controller_that_does_not_lead_is_noted(served: Served, call: Call) -> None:
    served.do(lambda here: setattr(here.controller, "leading", False))
    done = call("get", "queues", "-o", "name")
    assert done.code == 0
    assert done.err == "note: this controller does not lead; positions and reasons may be old or missing\n"
