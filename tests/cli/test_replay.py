"""``queuectl replay``: what it prints, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import invoke

SCENARIO = """
nodes: [{name: n, allocatable: {nvidia.com/gpu: 8}}]
queues: [{name: q}]
gangs:
- {name: g, queue: q, size: 8, pod: {nvidia.com/gpu: 1}, run: 60s}
- {name: h, queue: q, size: 8, pod: {nvidia.com/gpu: 1}}
expect: [{at: 10s, running: [g], waiting: {h: [NoCapacity]}}]
"""
TRACE = "job_id,num_gpu,submit_time,duration\n0,1,0,100\n1,2,30,50\n2,0,30,5\n"


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "scenario.yaml"
    path.write_text(SCENARIO)
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def test_a_scenario_for_people(scenario: Path) -> None:
    done = invoke("replay", str(scenario))
    *shown, plans = done.out.splitlines()
    assert (done.code, done.err) == (0, "")
    assert shown == [
        "10s",
        "  GANG   STATE     NODES    REASONS",
        "  g      Running   n:8      <none>",
        "  h      Waiting   <none>   NoCapacity",
        "1m (the end)",
        "  GANG   STATE      NODES    REASONS",
        "  h      Running    n:8      <none>",
        "  g      Finished   <none>   <none>",
    ]
    assert plans.startswith("plan hash: ")


def test_a_scenario_for_programs(scenario: Path) -> None:
    done = invoke("replay", str(scenario), "-o", "json")
    found = json.loads(done.out)
    assert done.code == 0
    assert [one["at"] for one in found["moments"]] == ["10s", "1m"]
    assert found["moments"][0] == {
        "at": "10s", "running": ["g"], "admitted": [], "leaving": [], "finished": [], "waiting": {"h": ["NoCapacity"]},
        "notes": {}, "givenBack": [], "usage": {"q": {"nvidia.com/gpu": "8"}}, "usageIn": {},
        "nodesOf": {"g": {"n": 8}},
    }  # fmt: skip
    assert len(found["planHash"]) == 64
    assert found["failed"] == []


def test_a_failed_expectation_is_exit_code_1(scenario: Path) -> None:
    scenario.write_text(SCENARIO.replace("running: [g]", "running: [h]"))
    done = invoke("replay", str(scenario), "-o", "json")
    assert done.code == 1
    assert done.err == "expect[0] at 10s: running: expected h; is g\n"
    assert json.loads(done.out)["failed"] == [done.err.strip()]


def test_a_bad_file_is_exit_code_2(scenario: Path) -> None:
    scenario.write_text(SCENARIO.replace("size: 8", "size: many").replace("queues: [{name: q}]", "queues: [{name: Q}]"))
    done = invoke("replay", str(scenario))
    assert (done.code, done.out) == (2, "")
    lines = done.err.splitlines()
    assert lines[0].startswith("error: queues[0].name: ")
    assert lines[1:] == ["gangs[0].size: should be a valid integer", "gangs[1].size: should be a valid integer"]


def test_a_trace_for_people(trace: Path) -> None:
    done = invoke("replay", str(trace), "--nodes", "1x2")
    assert done.code == 0
    assert done.out.splitlines()[:-1] == [
        "Format:            tiresias",
        "Gangs:             2",
        "Finished:          2",
        "Still waiting:     0",
        "Dropped (no GPU):  1",
        "GPUs:              2",
        "Makespan:          150 s (2m30s)",
        "Wait:              avg 35 s, p50 0 s, p95 70 s, p99 70 s",
        "Completion time:   avg 110 s",
        "Utilisation:       66.67%",
    ]


def test_a_trace_for_programs(trace: Path) -> None:
    done = invoke("replay", str(trace), "--nodes", "1x2", "-o", "json", "--limit", "1")
    found = json.loads(done.out)
    assert (done.code, found["gangs"], found["finished"], found["waitSeconds"]["avg"]) == (0, 1, 1, 0.0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["trace.csv"], "a trace needs --nodes, as in --nodes 128x8"),
        (["trace.csv", "--nodes", "eight"], "write it as 128x8"),
        (["trace.csv", "--nodes", "1x2", "--format", "philly-gavel"], "no column vc; philly-gavel has"),
        (["trace.csv", "--format", "scenario"], "not a scenario: must be a mapping"),
        (["scenario.yaml", "--nodes", "1x2"], "are for traces"),
        (["none.yaml"], "does not exist"),
    ],
)
def test_wrong_usage(scenario: Path, trace: Path, arguments: list[str], says: str) -> None:
    done = invoke("replay", str(scenario.parent / arguments[0]), *arguments[1:])
    assert done.code == 2
    assert says in done.err


def test_a_table_of_some_other_kind_is_named_as_such(tmp_path: Path) -> None:
    """It is no scenario with mistakes."""
    other = tmp_path / "pods.csv"
    other.write_text("name,cpu_milli,memory_mib,num_gpu\np,1,2,3\n")
    done = invoke("replay", str(other), "--nodes", "1x2")
    known = "philly-chronus, tiresias, philly-gavel"
    assert done.err == f"error: {other}: its first line is of no trace that is known: {known} (docs/replay.md)\n"
    assert done.code == 2
