"""What is explored: small clusters in which not everything fits at once, and what may go wrong in each.

Two nodes of two GPUs and one; a gang of two pods, of a Job, a StatefulSet or written by hand, and a group of one that needs
two GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from queuectl.contract import foreign, names
from queuectl.contract.foreign import Kind
from queuectl.contract.home import LEASE, NAMESPACE
from tests.exploration.server import NS, Snapshot
from tests.exploration.surroundings import (
    GPU,
    Action,
    controller,
    ended,
    gated,
    job,
    leaving,
    node,
    orphaned,
    over,
    pod,
    replicas,
    stateful_set,
)

Json = dict[str, Any]


class Configuration(Struct, frozen=True):
    """A cluster at its beginning, and how often each disturbance may come.

    ``most`` writes are on their way at once. ``holds``: what may be held up. ``standby``: whether a second process mirrors
    the cluster from the beginning, to lead when the first does not; else its successor is started then.
    """

    name: str
    about: str
    objects: list[tuple[Kind, str, Json]]
    disturbances: dict[str, int]
    most: int = 1
    holds: tuple[str, ...] = ("answer", "request", "watch", "decision", "process", "cluster")
    standby: bool = False
    solo_priority: int = 0
    solo_size: int = 2


def _cluster(*namespaced: tuple[Kind, Json], sizes: tuple[int, ...] = (2, 1)) -> list[tuple[Kind, str, Json]]:
    limit = {"resources": [{"name": GPU, "limit": 3}]}
    return [
        *((foreign.NODES, "", node(f"n{number}", size)) for number, size in enumerate(sizes)),
        (foreign.QUEUES, "", {"metadata": {"name": "q"}, "spec": limit}),
        (foreign.LEASES, NAMESPACE, {"metadata": {"name": LEASE}, "spec": {"leaseTransitions": 1}}),
        *((kind, NS, body) for kind, body in namespaced),
    ]


def _job(count: int = 2, *, suspend: bool = False, gang: str = "all") -> tuple[Kind, Json]:
    return foreign.JOBS, job("train", count, suspend=suspend, gang=gang)


_SOLO = foreign.PODS, pod("solo", 2)
_SET = foreign.STATEFUL_SETS, stateful_set("web", 2)
_BAND = (
    (foreign.POD_GROUPS, {"metadata": {"name": "band"}, "spec": {"queue": "q", "minMember": 2}}),
    (foreign.PODS, pod("band-0", 1, group="band")),
    (foreign.PODS, pod("band-1", 1, group="band")),
)

CONFIGURATIONS = {
    one.name: one
    for one in (
        Configuration(
            "job",
            "a Job and a group of one; controllers die, are replaced by a stand-by while they live, and lose answers",
            _cluster(_job(), _SOLO),
            {"crash": 1, "takeover": 1, "timeout": 1},
            standby=True,
        ),
        Configuration(
            "suspended",
            "a Job that is queued suspended; its user resumes and suspends it",
            _cluster(_job(suspend=True), _SOLO),
            {"crash": 1, "takeover": 1, "timeout": 1, "suspend": 1, "resume": 1},
        ),
        Configuration(
            "give-back",
            "a Job that is requeued by hand, refused, or late, and goes back to its queue",
            _cluster(_job(), _SOLO),
            {"requeue": 1, "refuse": 1, "tick": 1, "crash": 1, "takeover": 1, "timeout": 1},
        ),
        Configuration(
            "people",
            "a Job whose user suspends, resumes, replaces or deletes it, and edits its PodGroup",
            _cluster(_job(), _SOLO),
            {
                "suspend": 1,
                "resume": 1,
                "requeue": 1,
                "hold": 1,
                "note-group": 1,
                "note-pod": 1,
                "delete-pod": 1,
                "delete-group": 1,
                "delete-job": 1,
                "replace-job": 1,
                "collect": 1,
                "fail": 1,
            },
        ),
        Configuration(
            "replaced",
            "a Job that is requeued by hand, and deleted with another made of its name",
            _cluster(_job(), _SOLO),
            {"requeue": 1, "replace-job": 1, "collect": 1, "crash": 1, "takeover": 1},
        ),
        Configuration(
            "by hand",
            "a PodGroup and pods written by hand, whose members are deleted and replaced by other people's",
            _cluster(*_BAND, _SOLO),
            {
                "crash": 1,
                "takeover": 1,
                "timeout": 1,
                "hold": 1,
                "note-group": 1,
                "note-pod": 1,
                "delete-pod": 1,
                "delete-group": 1,
                "replace-pod": 1,
            },
        ),
        Configuration(
            "late arrival",
            "a group of one with priority arrives while controllers change and a PodGroup is deleted",
            _cluster(_job()),
            {"arrive": 1, "crash": 1, "takeover": 1, "timeout": 1, "delete-group": 1},
            solo_priority=10,
        ),
        Configuration(
            "two at once",
            "as 'give-back', with two writes on their way at once",
            _cluster(_job(), _SOLO),
            {"requeue": 1, "refuse": 1, "crash": 1, "takeover": 1, "timeout": 1},
            most=2,
            standby=True,
        ),
        Configuration(
            "evicted",
            "a StatefulSet that is requeued by hand, refused, late, or short of a pod, and whose pods are evicted",
            _cluster(_SET, _SOLO),
            {
                "requeue": 1,
                "refuse": 1,
                "tick": 1,
                "crash": 1,
                "takeover": 1,
                "timeout": 1,
                "delete-pod": 1,
                "fail": 1,
                "scale": 1,
            },
        ),
        Configuration(
            "lingering",
            "a PodGroup written by hand is deleted while a release of its pod lingers in the API server",
            _cluster(*_BAND),
            {"timeout": 1, "delete-group": 1, "arrive": 1},
            holds=(),
        ),
        Configuration(
            "lingering extra",
            "a Job whose pods start one by one; its PodGroup is deleted while releases of two of them linger",
            _cluster(_job(3, gang="1"), sizes=(3,)),
            {"timeout": 2, "delete-group": 1, "arrive": 1},
            holds=(),
            solo_size=1,
        ),
        Configuration(
            "claimed",
            "a Job is suspended by its user in the very moment in which it is given back",
            _cluster(_job()),
            {"requeue": 1, "suspend": 1, "resume": 1},
            holds=(),
        ),
        Configuration(
            "taken away",
            "a Job that its user suspends, and resumes before it has returned; answers are lost",
            _cluster(_job()),
            {"suspend": 1, "resume": 1, "timeout": 1},
            holds=(),
        ),
    )
}


def disturbances(configuration: Configuration, state: Snapshot, left: set[str]) -> Iterator[Action]:
    """What people may do to the cluster now, of those disturbances that are left."""
    if "arrive" in left and "pods/solo" not in state.born:
        yield "arrive", "solo", str(configuration.solo_size), str(configuration.solo_priority)
    if "collect" in left and orphaned(state):
        yield ("collect",)
    for body in state.all("jobs"):
        name = body["metadata"]["name"]
        if "suspend" in left and not body["spec"].get("suspend") and not over(body):
            yield "suspend", name
        if "resume" in left and body["spec"].get("suspend"):
            yield "resume", name
        for verb in ("delete-job", "replace-job"):
            if verb in left:
                yield verb, name
    for body in state.all("statefulsets"):
        if "scale" in left:
            yield "scale", body["metadata"]["name"], "0" if replicas(body) else "2"
    for body in state.all("podgroups"):
        name, notes = body["metadata"]["name"], body["metadata"].get("annotations") or {}
        if "requeue" in left and names.REQUEUE not in notes:
            yield "requeue", name
        if "hold" in left and not body["spec"].get("hold"):
            yield "hold", name
        if "note-group" in left and "example.com/note" not in notes:
            yield "note-group", name
        if "delete-group" in left:
            yield "delete-group", name
    for body in state.all("pods"):
        name, notes = body["metadata"]["name"], body["metadata"].get("annotations") or {}
        if ended(body) or leaving(body):
            continue
        if "delete-pod" in left:
            yield "delete-pod", name
        if "note-pod" in left and gated(body) and "example.com/note" not in notes:
            yield "note-pod", name
        if "replace-pod" in left and gated(body) and not controller(body):
            yield "replace-pod", name
        if "fail" in left and body["status"]["phase"] == "Running":
            yield "fail", name
