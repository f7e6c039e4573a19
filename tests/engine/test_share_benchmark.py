"""The benchmark of the shares in small: its load is the one that is claimed, and its line is complete."""

from __future__ import annotations

from benchmarks import shares
from queuectl.engine.claims import refusals
from queuectl.engine.fairshare import ONE, fair_shares
from queuectl.engine.rising import Cause
from queuectl.model.resources import GPU


def test_the_load_is_the_one_that_is_claimed() -> None:
    """Three levels, quotas of half of what there is, twice the GPUs wanted, all of them given; both kinds of leaves besides."""
    capacity, claims = shares.cluster(400, 3, 1)
    assert refusals(claims) == {}
    levels = [[claim for claim in claims if claim.name[0] == letter] for letter in "tml"]
    assert [len(level) for level in levels] == [10, 4, 400]
    for level in (levels[0], levels[2]):
        assert 0.45 < sum(dict(claim.quota)[GPU] for claim in level) / capacity[GPU] <= 0.5
    wanted = sum(dict(vector).get(GPU, 0) for claim in levels[2] for vector in claim.demand)
    assert 1.5 < wanted / capacity[GPU] < 2.2
    support = [sorted(len(vector) for vector in claim.demand) for claim in levels[2]]
    assert 0.05 < support.count([1]) / 400 < 0.15
    assert 0.25 < support.count([1, 3]) / 400 < 0.35
    found = fair_shares(capacity, claims)
    gpu = found.resources.index(GPU)
    assert sum(found.queues[claim.name].fair[gpu] for claim in levels[0]) >= (capacity[GPU] - 1) * ONE
    assert {stop.cause for share in found.queues.values() for stop in share.stops} == {Cause.MET, Cause.CAPACITY}


def test_its_line_is_complete() -> None:
    line = shares.measure(200, 1, 20, 2)
    assert (line["benchmark"], line["leaves"], line["queues"], line["resources"]) == ("shares", 200, 212, 1)
    assert all(line[key] for key in ("rounds", "full_ms", "refresh_ms", "ratio", "unchanged_ms"))
