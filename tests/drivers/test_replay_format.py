"""Scenario files that cannot be used: each mistake is named with its field and with what is allowed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from queuectl.drivers.replay.play import play
from queuectl.drivers.replay.reading import MOST, BadFileError, load, read
from queuectl.drivers.replay.snapshot import Snapshot, as_json
from queuectl.drivers.replay.stage import EngineTier

WHOLE: dict[str, Any] = {
    "nodes": [{"name": "n", "allocatable": {"nvidia.com/gpu": 8}}],
    "queues": [{"name": "q"}],
    "gangs": [{"name": "g", "queue": "q", "size": 1, "pod": {"nvidia.com/gpu": 1}}],
}


def refusal(**changes: Any) -> str:
    """What is said of the small scenario with these parts replaced."""
    with pytest.raises(BadFileError) as caught:
        read(yaml.safe_dump({**WHOLE, **changes}))
    return str(caught.value)


def gang(**fields: Any) -> str:
    """What is said of a gang with these fields more."""
    return refusal(gangs=[{**WHOLE["gangs"][0], **fields}])


def step(**fields: Any) -> str:
    """What is said of a step."""
    return refusal(steps=[{"at": "1s", **fields}])


def expectation(**fields: Any) -> str:
    """What is said of an expectation."""
    return refusal(expect=[{"at": "1s", **fields}])


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"sizes": 2}, "gangs[0].sizes: unknown field, did you mean size? Known are: name, namespace, queue"),
        ({"size": 0}, "gangs[0].size: should be greater than or equal to 1"),
        ({"size": "8"}, "gangs[0].size: should be a valid integer"),
        ({"size": True}, "gangs[0].size: should be a valid integer"),
        ({"min": 2}, "gangs[0].min: must not be above size"),
        ({"owner": "JobSet"}, "gangs[0].owner: should be 'Job', 'StatefulSet', 'ReplicaSet', 'LWS' or 'Pods'"),
        ({"owner": "LWS", "min": 1}, "gangs[0].min: an LWS starts as a whole: leave it out"),
        ({"owner": "StatefulSet", "run": "5s"}, "gangs[0].run: only a Job and Pods end by themselves"),
        ({"owner": "ReplicaSet", "state": "Running", "nodes": ["n"], "record": False},
         "gangs[0].record: only a Job and Pods can run without our admission"),
        ({"owner": "LWS", "size": None, "roles": [{"name": "a", "size": 1}]}, "gangs[0].owner: makes pods by its own templates"),
        ({"roles": [{"name": "a", "size": 1}]}, "gangs[0].size: give either size or roles"),
        ({"state": "Suspended", "owner": "Pods"}, "gangs[0].state: only a Job can be created suspended"),
        ({"state": "Running"}, "gangs[0].nodes: state Running needs the nodes"),
        ({"state": "Running", "nodes": ["m"]}, "gangs[0].nodes: there is no node m"),
        ({"state": "Running", "size": 3, "nodes": ["n", "n"]}, "gangs[0].nodes: has 2 names; write one node for all 3"),
        ({"nodes": ["n"]}, "gangs[0].nodes: state Running needs the nodes"),
        ({"run": 60}, 'gangs[0].run: must be a duration with a unit, as "60s"'),
        ({"run": "-1s"}, "gangs[0].run: must be a duration with a unit"),
        ({"promise": "60s"}, "gangs[0].promise: not yet: promises and estimates come with the timeline; leave it out"),
        ({"preemptible": False}, "gangs[0].preemptible: not yet: nothing is preempted"),
        ({"pod": {"nvidia.com/gpu": "many"}}, "gangs[0].pod.nvidia.com/gpu: 'many' is no quantity"),
        ({"pod": {"nvidia.com/gpu": 0.5}}, "gangs[0].pod.nvidia.com/gpu: write 0.5 in quotes"),
        ({"pod": {"cpu": "-1"}}, "gangs[0].pod.cpu: -1: must not be negative"),
        ({"spec": {"nodeselector": {"a": "b"}}}, "gangs[0].spec.nodeselector: decides nothing about where"),
        ({"spec": {"tolerations": [{"keys": "a"}]}}, "gangs[0].spec.tolerations[0].keys: decides nothing"),
        ({"spec": {"tolerations": "all"}}, "gangs[0].spec: Expected `array"),
        ({"topology": {"required": "rack", "slice": 4}}, "gangs[0].topology.slice: unknown field"),
        ({"name": "G"}, "gangs[0].name: "),
        ({"name": "g\n"}, "gangs[0].name: "),
    ],
)  # fmt: skip
def test_a_gang_that_cannot_be(fields: dict[str, Any], says: str) -> None:
    assert says in gang(**fields)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"pools": [{"name": "x", "product": "H100"}]}, "pools[0].product: not yet: a pool's spec has no such field yet"),
        ({"pools": [{"name": "x"}, {"name": "x"}]}, "pools: x is listed twice"),
        ({"pools": [{"name": "x", "nodeSelector": {"a b": "c"}}]}, "pools[0].nodeSelector: has a key that no label can have"),
        ({"nodes": [{"name": "n", "links": "dgx1.txt"}]}, "nodes[0].links: not yet: links inside a node"),
        ({"nodes": [{"name": "n"}, {"name": "n"}]}, "nodes[1].name: there is another node n"),
        ({"nodes": [{"name": "n", "count": 2}, {"name": "n1"}]}, "nodes[1].name: there is another node n1"),
        ({"nodes": [{"name": "n", "count": 0}]}, "nodes[0].count: should be greater than or equal to 1"),
        ({"nodes": [{"name": "n", "taints": [{"key": "a", "effect": "Never"}]}]}, "nodes[0].taints[0].effect: should be 'No"),
        ({"nodes": "n"}, "nodes: should be a valid list"),
        ({"queues": [{"name": "q", "weight": -1}]}, "queues[0].weight: should be greater than or equal to 0"),
        ({"queues": [{"name": "q", "parent": "q"}]}, "queues[0].parent: a queue cannot be its own parent"),
        ({"queues": [{"name": "q"}, {"name": "q"}]}, "queues: q is listed twice"),
        ({"queues": [{"name": "q", "resources": [{"name": "cpu", "quota": 2, "limit": 1}]}]},
         "queues[0].resources[0].quota: must not be above limit"),
        ({"queues": [{"name": "q", "patience": "1h"}]}, "queues[0].patience: not yet"),
        ({"unmanaged": [{"name": "x", "node": "m"}]}, "unmanaged[0].node: there is no node m"),
        ({"topology": {"levels": []}}, "topology.levels: "),
        ({"delays": {"bind": 1}}, "delays.bind: must be a duration"),
        ({"jobs": []}, "jobs: unknown field"),
    ],
)  # fmt: skip
def test_a_part_that_cannot_be(parts: dict[str, Any], says: str) -> None:
    assert says in refusal(**parts)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"do": "explode", "target": "g"}, "steps[0].do: should be 'finish', 'fail'"),
        ({"do": "finish"}, "steps[0].target: names nothing"),
        ({"do": "finish", "target": "h"}, "steps[0].target: there is no gang, node, queue, pool or unmanaged pod h"),
        ({"do": "finish", "target": "gang/q"}, "steps[0].target: there is no gang q"),
        ({"do": "finish", "target": "job/g"}, "steps[0].target: job is none of gang, node, queue, pool, pod"),
        ({"do": "cordon", "target": "g"}, "steps[0].do: cordon is nothing for a gang; a gang knows finish, fail"),
        ({"do": "edit", "target": "g"}, "steps[0].with: edit needs the fields that change"),
        ({"do": "hold", "target": "g", "with": {"a": 1}}, "steps[0].with: belongs to edit"),
        ({"do": "fail", "target": "g", "with": {"member": 1}}, "steps[0].with.member: is a number from 0 to 0"),
        ({"do": "fail", "target": "g", "with": {"members": 0}}, "steps[0].with: is member: NUMBER"),
        ({"do": "fail", "target": "g", "with": {"role": "x", "member": 0}}, "steps[0].with.role: there is no role 'x'"),
    ],
)
def test_a_step_that_cannot_be(fields: dict[str, Any], says: str) -> None:
    assert says in step(**fields)


@pytest.mark.parametrize(
    ("owner", "fields", "says"),
    [
        ("StatefulSet", {"do": "finish"}, "steps[0].do: finish: a StatefulSet makes its pods again"),
        (
            "ReplicaSet",
            {"do": "finish", "with": {"member": 0}},
            "steps[0].do: finish: a ReplicaSet makes its pods again",
        ),
        ("LWS", {"do": "fail"}, "steps[0].do: fail: an LWS makes its pods again; let one of them fail (with: member)"),
        ("LWS", {"do": "fail", "with": {"member": 0}}, "steps[0].with.role: there is no role ''"),
        ("LWS", {"do": "edit", "with": {"size": 3}}, "steps[0].with: a group of an LWS keeps its size"),
    ],
)
def test_what_keeps_its_pods_alive_does_not_end(owner: str, fields: dict[str, Any], says: str) -> None:
    one = {**WHOLE["gangs"][0], "owner": owner, "size": 2}
    assert says in refusal(gangs=[one], steps=[{"at": "1s", "target": "g", **fields}])


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"runing": []}, "expect[0].runing: unknown field, did you mean running?"),
        ({"running": ["h"]}, "expect[0].running: there is no gang h"),
        ({"givenBack": ["h"]}, "expect[0].givenBack: there is no gang h"),
        ({"waiting": {"g": ["TooBig"]}}, "expect[0].waiting.g[0]: should be 'QueueMissing'"),
        ({"usage": {"r": {"cpu": 1}}}, "expect[0].usage: there is no queue r"),
        ({"shares": {}}, "expect[0].shares: not yet: fair shares come with the fairness work"),
        ({"eta": {}}, "expect[0].eta: not yet"),
    ],
)
def test_an_expectation_that_cannot_be(fields: dict[str, Any], says: str) -> None:
    assert says in expectation(**fields)


def test_a_name_of_two_things_needs_its_kind() -> None:
    nodes = [{"name": "g", "allocatable": {"nvidia.com/gpu": 8}}]
    found = refusal(nodes=nodes, steps=[{"at": "1s", "do": "delete", "target": "g"}])
    assert found == "steps[0].target: g is the name of a gang and of a node; write gang/g"
    read(yaml.safe_dump({**WHOLE, "nodes": nodes, "steps": [{"at": "1s", "do": "delete", "target": "gang/g"}]}))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a scenario: must be a mapping"),
        ("- 1", "not a scenario: must be a mapping"),
        ("nodes: [", "not YAML: "),
        ("nodes: []\nnodes: []", "nodes is written twice"),
        ("nodes: [{name: a, name: b}]", "name is written twice"),
        ("!!python/object:os.system x", "not YAML: "),
        ("[" * 5000, "not "),
        ("? [a]\n: b", "not YAML: "),
        ("nodes: []\x00", "not YAML: "),
    ],
    ids=["empty", "list", "torn", "twice", "twice inside", "python", "deep", "list as key", "control"],
)
def test_a_file_that_is_none(text: str, says: str) -> None:
    with pytest.raises(BadFileError, match=says):
        read(text)


def test_a_file_that_is_not_there_or_too_large(tmp_path: Path) -> None:
    with pytest.raises(BadFileError, match="No such file"):
        load(tmp_path / "none.yaml")
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (MOST + 1))
    with pytest.raises(BadFileError, match="at most"):
        load(large)
    torn = tmp_path / "torn.yaml"
    torn.write_bytes(b"nodes: \xff")
    with pytest.raises(BadFileError, match="utf-8"):
        load(torn)


def test_all_mistakes_are_said_at_once() -> None:
    found = refusal(queues=[{"name": "q", "weight": -1}], gangs=[{"name": "g", "queue": "q", "size": 0}])
    assert found.splitlines() == [
        "queues[0].weight: should be greater than or equal to 0",
        "gangs[0].size: should be greater than or equal to 1",
    ]


def failures(**parts: Any) -> list[str]:
    """What is not as expected when this is played."""
    return asyncio.run(play(read(yaml.safe_dump({**WHOLE, **parts})), EngineTier())).failed


def test_each_failed_expectation_is_one_line() -> None:
    expect = [
        {
            "at": "1s", "running": [], "finished": ["g"], "waiting": {"g": ["Held"]}, "notes": {"g": []},
            "givenBack": ["g"], "usage": {"q": {"nvidia.com/gpu": 2}}, "nodesOf": {"g": {"n": 2}},
        }
    ]  # fmt: skip
    assert failures(expect=expect) == [
        "expect[0] at 1s: running: expected none; is g",
        "expect[0] at 1s: finished: expected g; is none",
        "expect[0] at 1s: waiting: expected g; is none",
        "expect[0] at 1s: notes: expected g; is none",
        "expect[0] at 1s: givenBack: expected g; is none",
        "expect[0] at 1s: usage: q: expected 2 nvidia.com/gpu; is 1",
        "expect[0] at 1s: nodesOf: g: expected n: 2; is n: 1",
    ]


def test_reasons_are_compared_as_far_as_they_are_written() -> None:
    big = [{**WHOLE["gangs"][0], "pod": {"nvidia.com/gpu": 9}, "queue": "r"}]
    for reasons in ([], ["QueueMissing"], ["QueueMissing", "NeverFits"]):
        assert failures(gangs=big, expect=[{"at": "1s", "waiting": {"g": reasons}}]) == []
    assert failures(gangs=big, expect=[{"at": "1s", "waiting": {"g": ["NeverFits"]}}]) == [
        "expect[0] at 1s: waiting: g: expected NeverFits; is QueueMissing, NeverFits"
    ]


def test_steps_that_cannot_be_done_fail_the_scenario() -> None:
    steps = [
        {"at": "1s", "do": "create", "target": "n"},
        {"at": "2s", "do": "edit", "target": "g", "with": {"queue": "r"}},
        {"at": "3s", "do": "edit", "target": "g", "with": {"pod": {"cpu": 1}}},
        {"at": "4s", "do": "edit", "target": "n", "with": {"taints": [{}]}},
        {"at": "5s", "do": "edit", "target": "q", "with": {"weight": -1}},
        {"at": "6s", "do": "delete", "target": "g"},
        {"at": "7s", "do": "finish", "target": "g"},
        {"at": "8s", "do": "delete", "target": "n"},
        {"at": "9s", "do": "cordon", "target": "n"},
    ]
    steps[0] = {"at": "1s", "do": "edit", "target": "n", "with": {"name": "m"}}
    assert failures(steps=steps) == [
        "steps at 1s: edit n: name and count cannot change",
        "steps at 2s: edit g: queue cannot change while the gang is placed",
        "steps at 3s: edit g: pod cannot be edited; what can is queue, size, min, topology, gates, bestEffort",
        "steps at 4s: edit n: taints[0].key: is missing",
        "steps at 5s: edit q: weight: should be greater than or equal to 0",
        "steps at 7s: finish g: it is not there",
        "steps at 9s: cordon n: it does not exist",
    ]


def test_a_moment_as_json() -> None:
    found = as_json(
        Snapshot(
            at=90_000,
            running=["g"],
            given_back=[("h", None, "Torn")],
            usage={"q": {"cpu": 1500, "memory": 2**30, "nvidia.com/gpu": 8000, "pods": 8}},
            usage_in={"q": {"h100": {"nvidia.com/gpu": 8000, "pods": 8}}, "r": {}},
            nodes_of={"g": {"n": 8}},
        )
    )
    assert found == {
        "at": "90s", "running": ["g"], "admitted": [], "leaving": [], "finished": [], "waiting": {}, "notes": {},
        "givenBack": [{"gang": "h", "by": None, "rule": "Torn"}],
        "usage": {"q": {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "8"}},
        "usageIn": {"q": {"h100": {"nvidia.com/gpu": "8"}}}, "nodesOf": {"g": {"n": 8}},
    }  # fmt: skip
