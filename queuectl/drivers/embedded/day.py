"""A synthetic day of a shared GPU cluster: who submits what and when, as wire objects, the same for the same seed.

Sizes and run times follow what is published of shared clusters: most gangs are small and short, most of the capacity goes
to few large ones (mean GPUs a job 1.9 Philly, 3.7 Helios, 5.7 Acme-Seren, 26.8 Acme-Kalos; mean run time 1,400 s and more
with medians of some minutes: AcmeTrace's cluster summary, CC-BY-4.0). Submissions follow office hours.
"""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from queuectl.contract import names
from queuectl.drivers.embedded.kubelet import RUN_SECONDS
from queuectl.model.resources import GPU
from queuectl.model.topology import HOSTNAME

Json = dict[str, Any]

DAY = 86_400  # seconds
RACK = "topology.example.com/rack"  # label of a node
RACK_NODES = 8
KEPT = 1800  # seconds for which a Job that has ended is kept
LONGEST = 8 * 3600  # seconds; what runs longer belongs to a reservation, not to a day
SHORTEST = 60


class Work(Struct, frozen=True):
    """One kind of gang: how often (a weight), its pods, GPUs a pod, the level it needs, and its run time (log-normal)."""

    weight: float
    pods: int
    gpus: int
    level: str
    median: float  # seconds
    sigma: float  # of the logarithm

    @property
    def total(self) -> int:
        """GPUs of the whole gang."""
        return self.pods * self.gpus


WORKS = (
    Work(0.50, 1, 1, "", 720, 1.2),
    Work(0.10, 4, 1, "", 1200, 1.1),
    Work(0.13, 8, 1, "", 1500, 1.0),
    Work(0.14, 1, 8, "", 1800, 1.0),
    Work(0.075, 2, 8, "rack", 2100, 0.9),
    Work(0.037, 4, 8, "rack", 2400, 0.8),
    Work(0.015, 8, 8, "rack", 2700, 0.7),
    Work(0.003, 16, 8, "", 3000, 0.6),
)
ACTIVITY = (20, 14, 11, 10, 10, 12, 20, 38, 66, 88, 98, 96, 84, 90, 100, 99, 94, 84, 68, 56, 48, 42, 34, 27)
"""Submissions by hour of the day, of a hundred: office hours, with a dip for lunch."""

QUEUES: tuple[tuple[str, str, dict[str, int], float], ...] = (
    # name, parent, weight and resources in GPUs of a thousand, part of all submissions (0: an inner queue)
    ("research", "", {"weight": 2, "quota": 625}, 0.0),
    ("language", "research", {"weight": 2, "quota": 375}, 0.38),
    ("vision", "research", {"weight": 1, "quota": 250}, 0.27),
    ("product", "", {"weight": 1, "quota": 375}, 0.0),
    ("search", "product", {"weight": 1, "quota": 250}, 0.22),
    ("ads", "product", {"weight": 1, "quota": 125, "limit": 250}, 0.13),
)


class Submission(Struct, frozen=True):
    """A Job that comes at ``at`` (seconds since the start of the first day) and runs ``seconds`` once it is started."""

    at: float
    seconds: int
    gpus: int
    namespace: str
    body: Json


def nodes(count: int, gpus: int) -> list[Json]:
    """So many nodes, eight to a rack."""
    found = []
    for number in range(count):
        name, rack = f"gpu-{number:03}", f"rack-{number // RACK_NODES:02}"
        amounts = {GPU: str(gpus), "cpu": "128", "memory": "2Ti", "pods": "110"}
        found.append(
            {
                "metadata": {"name": name, "labels": {HOSTNAME: name, RACK: rack}},
                "status": {"capacity": amounts, "allocatable": amounts},
            }
        )
    return found


def topology() -> Json:
    """Racks of nodes."""
    levels = [{"name": "rack", "keys": [RACK]}, {"name": "node", "keys": [HOSTNAME]}]
    return {"metadata": {"name": "default"}, "spec": {"levels": levels}}


def queues(gpus: int) -> list[Json]:
    """The tree, parents first, with quotas that add up to all GPUs."""
    found = []
    for name, parent, numbers, _ in QUEUES:
        amounts = {field: gpus * numbers[field] // 1000 for field in ("quota", "limit") if field in numbers}
        spec: Json = {"weight": numbers["weight"], "resources": [{"name": GPU, **amounts}]}
        found.append({"metadata": {"name": name}, "spec": {**spec, **({"parent": parent} if parent else {})}})
    return found


def submissions(gpus: int, load: float, seed: int) -> Iterator[Submission]:
    """Day after day, for ever, in order of time. Each day asks for ``load`` of what ``gpus`` can do in it.

    Gangs larger than the cluster are left out, and none is submitted to a queue whose limit it could never keep.
    """
    works = [work for work in WORKS if work.total <= gpus]
    limits = {name: numbers.get("limit", 1000) * gpus // 1000 for name, _, numbers, _ in QUEUES}
    serial = itertools.count(1)
    for day in itertools.count():
        chance = random.Random(f"{seed}/{day}")  # noqa: S311 - a workload, not a secret
        drawn: list[tuple[Work, int]] = []
        asked = 0.0
        while asked < load * gpus * DAY:
            work = chance.choices(works, [one.weight for one in works])[0]
            seconds = run_time(work, chance)
            drawn.append((work, seconds))
            asked += work.total * seconds
        times = sorted(moment(chance) for _ in drawn)
        for at, (work, seconds) in zip(times, drawn, strict=True):
            yield _submission(next(serial), day * DAY + at, work, seconds, limits, chance)


def run_time(work: Work, chance: random.Random) -> int:
    """Seconds, within ``SHORTEST`` and ``LONGEST``."""
    return round(min(max(chance.lognormvariate(math.log(work.median), work.sigma), SHORTEST), LONGEST))


def moment(chance: random.Random) -> float:
    """A time of the day, in seconds, drawn by ``ACTIVITY``."""
    whole = list(itertools.accumulate(ACTIVITY))
    hour = bisect.bisect_right(whole, chance.random() * whole[-1])
    return (min(hour, 23) + chance.random()) * 3600


_PEOPLE = ("ana", "bo", "chen", "dara", "eli", "fay", "gus", "hana")
_TASKS = ("train", "tune", "eval", "sweep", "embed", "distill")


def _submission(
    serial: int, at: float, work: Work, seconds: int, limits: dict[str, int], chance: random.Random
) -> Submission:
    leaves = [(name, part) for name, _, _, part in QUEUES if part and limits[name] >= work.total]
    queue = chance.choices([name for name, _ in leaves], [part for _, part in leaves])[0]
    name = f"{chance.choice(_TASKS)}-{chance.choice(_PEOPLE)}-{serial:05}"
    # Whoever suspends a Job at first keeps its pods out of the API server until they can run; some do, some do not.
    body = job(name, queue, work.pods, work.gpus, seconds, level=work.level, suspend=chance.random() < 0.3)
    return Submission(at, seconds, work.total, queue, body)


def job(name: str, queue: str, pods: int, gpus: int, seconds: int, *, level: str = "", suspend: bool = False) -> Json:
    """An Indexed Job, as its tenant would write it."""
    annotations = {names.MIN_MEMBER: "all"} if pods > 1 else {}
    if level:
        annotations[names.TOPOLOGY_REQUIRED] = level
    container = {"name": "main", "image": "registry.example/train:1", "resources": {"limits": {GPU: str(gpus)}}}
    return {
        "metadata": {"name": name, "labels": {names.QUEUE_LABEL: queue}, "annotations": annotations},
        "spec": {
            "completionMode": "Indexed",
            "completions": pods,
            "parallelism": pods,
            "suspend": suspend,
            "ttlSecondsAfterFinished": KEPT,
            "template": {
                "metadata": {"annotations": {RUN_SECONDS: str(seconds)}},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }
