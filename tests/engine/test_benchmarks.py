"""The engine's benchmarks in small: the load is the one that is claimed, and the figures are of what happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import backlog, decisions
from benchmarks.decisions import Figures, Load
from queuectl.engine.engine import Engine
from queuectl.model.resources import GPU

NODES = 64


def test_the_cluster_is_kept_nine_tenths_full_and_only_admissions_count() -> None:
    """What the load believes to run is what the engine has charged; whoever came was admitted, waits or gave up."""
    engine = Engine()
    load, filling, figures = Load(engine, NODES, 1), Figures([]), Figures([])
    while not load.full:
        load.step(filling)
    assert load._held >= 0.9 * NODES * 8
    for _ in range(150):
        load.step(figures)
        engine._state.check()
        assert load._held == sum(used.get(GPU, 0) for used in engine._state.fleet.used.values()) // 1000
    came = len(filling.decided) + len(figures.decided)
    assert filling.admitted + figures.admitted + filling.gave_up + figures.gave_up + load.waiting == came
    assert figures.refused > 0  # gangs of up to 256 pods come to 64 nodes


def test_the_load_is_the_one_that_is_claimed() -> None:
    """At least 50 shapes, sizes 1 to 256, 1,000 queues on three levels, three gangs in ten with a required level."""
    engine = Engine()
    load = Load(engine, NODES, 1)
    gangs = [load._gang() for _ in range(4000)]
    assert len({gang.roles[0].shape for gang in gangs}) >= 50
    assert {gang.minimum for gang in gangs} == {2**power for power in range(9)}
    assert 0.28 < sum(gang.required is not None for gang in gangs) / len(gangs) < 0.32
    assert {gang.required for gang in gangs} == {None, "rack", "zone"}
    engine.decide(0)
    assert (
        sorted(len(branch.path) for branch in engine._state.branches.branches.values())
        == [1] * 10 + [2] * 90 + [3] * 900
    )


def test_its_line_is_complete_and_the_seed_decides_the_load() -> None:
    line = decisions.measure(NODES, 0.0, 3)
    assert line["admitted"] == line["n"] == 1
    assert (line["benchmark"], line["seed"], line["nodes"], line["queues"]) == ("decisions", 3, NODES, 1000)
    assert all(line[key] for key in ("decisions_per_s", "p50_ms", "p99_ms"))
    one, same, other = (Load(Engine(), NODES, seed) for seed in (3, 3, 4))
    assert [one._gang() for _ in range(9)] == [same._gang() for _ in range(9)] != [other._gang() for _ in range(9)]


def test_calls_are_counted_alike_on_every_machine() -> None:
    """The same seed, the same decisions, the same calls."""
    found = []
    for _ in range(2):
        load = Load(Engine(), NODES, 5)
        load.step(Figures([]))  # whatever is imported and cached on first use
        found.append(decisions.calls(load, 20))
    assert found[0] == found[1] > 100


@pytest.mark.parametrize(
    ("says", "found"),
    [("echo 1$(echo $* | grep -c ' 1001 ')00000000,,instructions:u,1,100.00,, >&2", 100_000),
     ("echo '<not supported>,,instructions:u,0,100.00,,' >&2", None)],
)  # fmt: skip
def test_instructions_are_those_of_more_decisions_less_those_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, found: int | None
) -> None:
    """As perf writes them: a number, or that this machine does not count."""
    perf = tmp_path / "perf"
    perf.write_text(f"#!/bin/sh\n{says}\n")
    perf.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert decisions.instructions(NODES, 1) == found
    perf.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert decisions.instructions(NODES, 1) is None


def test_quantiles_are_values_that_were_measured() -> None:
    spent = [number / 1000 for number in range(1, 101)]
    assert [decisions.quantile(spent, part) for part in (500, 990, 1000)] == [50, 99, 100]
    assert decisions.quantile([0.25], 500) == 250


def test_a_thousand_questions_at_once_get_the_answers_that_are_timed() -> None:
    """All extras start; no refused shape does, before the node it needs is free, and then one."""
    line = backlog.measure(32, 40)
    assert line["extras_admitted"] == 39
    assert line["admitted"] == [0, 0, 1]
