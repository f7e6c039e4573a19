"""The synthetic day: the same for everybody, and as much work as was asked for."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections import Counter

from queuectl.drivers.embedded import day

GPUS = 512


def first_day(seed: int = 1, load: float = 0.9, gpus: int = GPUS) -> list[day.Submission]:
    """All that comes on the first day."""
    return list(itertools.takewhile(lambda one: one.at < day.DAY, day.submissions(gpus, load, seed)))


def test_the_offered_load_is_what_was_asked_for() -> None:
    """Within one gang; and there are enough gangs for a day to look like one."""
    for load in (0.5, 0.9):
        found = first_day(load=load)
        work = sum(one.gpus * one.seconds for one in found)
        assert load <= work / (GPUS * day.DAY) < load + 0.1
    assert len(found) >= 1500
    assert [one.at for one in found] == sorted(one.at for one in found)
    assert len({one.body["metadata"]["name"] for one in found}) == len(found)


def test_most_gangs_are_small_and_few_take_most() -> None:
    """As published of shared clusters: the median is one or a few GPUs, the largest tenth takes more than half."""
    found = first_day()
    sizes = sorted(one.gpus for one in found)
    work = sorted((one.gpus * one.seconds for one in found), reverse=True)
    assert sizes[len(sizes) // 2] <= 4
    assert 4 <= sum(sizes) / len(sizes) <= 10
    assert sum(work[: len(work) // 10]) > sum(work) / 2
    hours = Counter(int(one.at // 3600) for one in found)
    assert sum(hours[hour] for hour in range(9, 18)) > 2 * sum(hours[hour] for hour in range(9))


def test_nobody_asks_for_what_can_never_be() -> None:
    """No gang is larger than the cluster, its queue's limit, or, where it needs one rack, a rack."""
    for gpus in (16, 64, GPUS):
        limits = {queue["metadata"]["name"]: queue["spec"]["resources"][0].get("limit") for queue in day.queues(gpus)}
        for one in first_day(gpus=gpus):
            limit = limits[one.namespace]
            assert one.gpus <= (gpus if limit is None else limit)
            if "queuectl.io/topology-required" in one.body["metadata"]["annotations"]:
                assert one.gpus <= day.RACK_NODES * 8


def test_quotas_add_up_in_the_tree() -> None:
    """Children share their parent's quota, and the top ones all GPUs."""
    quotas = {queue["metadata"]["name"]: queue["spec"]["resources"][0]["quota"] for queue in day.queues(GPUS)}
    assert quotas["research"] == quotas["language"] + quotas["vision"]
    assert quotas["product"] == quotas["search"] + quotas["ads"]
    assert quotas["research"] + quotas["product"] == GPUS


def test_the_same_seed_is_the_same_day_in_every_process() -> None:
    """Whatever Python hashes strings to; another seed is another day."""
    code = (
        "import hashlib, itertools; from queuectl.drivers.embedded import day; "
        "print(hashlib.sha256(repr(list(itertools.islice(day.submissions(512, 0.9, 7), 3000))).encode()).hexdigest())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(seen) == 1
    assert first_day(1) != first_day(2)
