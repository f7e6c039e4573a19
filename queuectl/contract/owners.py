"""Kinds of owner, as one table of data: how many slots, how large the gang, how it is given back.

An owner is what creates a gang's pods. The table says of each kind how to read its size from the object; everything else
(slots, shapes, release, give-back) is the same for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from msgspec import Struct

from queuectl.contract import names
from queuectl.contract.foreign import (
    JOB_SETS,
    JOBS,
    LEADER_WORKER_SETS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Job,
    JobSet,
    JobSpec,
    Kind,
    LeaderWorkerSet,
    OwnerReference,
    PodTemplate,
    ReplicaSet,
    StatefulSet,
    WorkerGroup,
    Workload,
)
from queuectl.contract.seats import LEADER, WORKER
from queuectl.contract.slots import MAX_MEMBERS
from queuectl.model.gangs import GiveBack


class Size(Struct, frozen=True):
    """``minimum`` pods are released together, ``maximum`` may run."""

    minimum: int
    maximum: int


class Part(Struct, frozen=True):
    """Pods of one template: a role of the gang. ``name`` is "" where there is only one.

    ``least`` of its ``count`` belong to the gang, and ``done`` have succeeded for good. ``labels`` are those that its
    pods will carry.
    """

    name: str
    count: int
    least: int
    done: int
    template: PodTemplate
    labels: dict[str, str]


class Owner(Struct, frozen=True):
    """One row: its resource, how it lets go of its pods, and how many it makes.

    ``remaining`` is how many pods are still to succeed where each makes room for the next, None where no next one comes.
    ``cleaned`` is how many have succeeded where no next one comes, beyond the given number that can still be seen.
    ``suspended`` is true while it makes no pods at all because its user wants none. ``vacated`` is true when it says itself
    that no pod of it is left to end. ``labelled`` is true where its own labels, too, decide about its pods.
    ``parts`` are its roles. ``optional`` is true of kinds that a cluster may not know.
    """

    kind: Kind
    give_back: GiveBack
    parallelism: Callable[[Any], int]
    remaining: Callable[[Any], int | None]
    cleaned: Callable[[Any, int], int]
    suspended: Callable[[Any], bool]
    vacated: Callable[[Any], bool]
    finished: Callable[[Any], bool]
    failed: Callable[[Any], bool]
    labelled: bool
    parts: Callable[[Any], tuple[Part, ...]]
    optional: bool = False


class InvalidAnnotation(ValueError):
    """The size that a user's object asks for cannot be used; the message says which, why, and what is right."""


def _parallelism(spec: JobSpec) -> int:
    """Pods that run at once: parallelism, but never more than the completions asked for."""
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    return parallelism if spec.completions is None else min(parallelism, spec.completions)


def _job_parallelism(job: Job) -> int:
    return _parallelism(job.spec)


def _job_remaining(job: Job) -> int | None:
    """A Job with more completions than parallelism replaces each pod that succeeds, until all have."""
    if job.spec.completions is None or job.spec.completions <= _job_parallelism(job):
        return None
    return max(job.spec.completions - job.status.succeeded, 0)


def _job_cleaned(job: Job, seen: int) -> int:
    """Without completions, or with more of them than pods at once, the pods that succeeded do not tell what is left."""
    if job.spec.completions is None or _job_remaining(job) is not None:
        return 0
    return max(job.status.succeeded - seen, 0)


def _job_is(job: Job, *types: str) -> bool:
    return any(c.type in types and c.status == "True" for c in job.status.conditions or ())


def _one_part(row: Callable[[Any], int]) -> Callable[[Any], tuple[Part, ...]]:
    def parts(owner: Any) -> tuple[Part, ...]:
        template = owner.spec.template
        return (Part("", row(owner), row(owner), 0, template, template.metadata.labels or {}),)

    return parts


def _job_set_parts(owner: JobSet) -> tuple[Part, ...]:
    """A role for each of its replicated Jobs. A Job's labels are copied to its pods, as of any Job.

    What starts only when others have completed is not there together with them: its pods are admitted as they come.
    """
    done = {one.name: one.succeeded for one in owner.status.replicated_jobs_status or ()}
    found, later = [], set()
    for one in owner.spec.replicated_jobs:
        if any(other.status == "Complete" or other.name in later for other in one.depends_on or ()):
            later.add(one.name)  # a replicated Job depends on earlier ones only
        each = _parallelism(one.template.spec)
        labels = {**(one.template.metadata.labels or {}), **(one.template.spec.template.metadata.labels or {})}
        over = min(done.get(one.name, 0), one.replicas) * each
        count = one.replicas * each
        least = 0 if one.name in later else count
        found.append(Part(one.name, count, least, over, one.template.spec.template, labels))
    return tuple(found)


def _job_set_is(owner: JobSet, *types: str) -> bool:
    return any(c.type in types and c.status == "True" for c in owner.status.conditions or ())


def group_of(owner: LeaderWorkerSet, index: int) -> WorkerGroup:
    """One group of a set."""
    wanted = index < (1 if owner.spec.replicas is None else owner.spec.replicas)
    return WorkerGroup(owner.metadata, index, wanted, owner.spec.leader_worker_template)


def _group_parts(group: WorkerGroup) -> tuple[Part, ...]:
    """A leader and the workers, who are made when it is there or ready. All of them start together."""
    template = group.template
    leader, workers = template.leader_template or template.worker_template, _group_size(group) - 1
    found = (Part(LEADER, 1, 1, 0, leader, leader.metadata.labels or {}),)
    if workers < 1:
        return found
    labels = template.worker_template.metadata.labels or {}
    return (*found, Part(WORKER, workers, workers, 0, template.worker_template, labels))


def _group_size(group: WorkerGroup) -> int:
    return 1 if group.template.size is None else max(group.template.size, 1)


def _replicas(owner: ReplicaSet | StatefulSet) -> int:
    return 1 if owner.spec.replicas is None else owner.spec.replicas


def _scaled(kind: Kind) -> Owner:
    """A row of what keeps so many pods alive: whichever ends is followed by another, and only a scale of 0 takes them away.

    Only its template's labels count: its own are copied there when it is stored, or mean nothing to its pods.
    """
    return Owner(
        kind=kind,
        give_back=GiveBack.EVICT,
        parallelism=_replicas,
        remaining=_replicas,
        cleaned=lambda _, __: 0,
        suspended=lambda owner: _replicas(owner) == 0,
        vacated=lambda _: True,
        finished=lambda _: False,
        failed=lambda _: False,
        labelled=False,
        parts=_one_part(_replicas),
    )


JOB = Owner(
    kind=JOBS,
    give_back=GiveBack.SUSPEND,
    parallelism=_job_parallelism,
    remaining=_job_remaining,
    cleaned=_job_cleaned,
    suspended=lambda job: job.spec.suspend,
    vacated=lambda job: not job.status.active,
    finished=lambda job: _job_is(job, "Complete", "Failed"),
    failed=lambda job: _job_is(job, "Failed"),
    labelled=True,
    parts=_one_part(_job_parallelism),
)
JOB_SET = Owner(
    kind=JOB_SETS,
    give_back=GiveBack.SUSPEND,
    parallelism=lambda owner: sum(part.count for part in _job_set_parts(owner)),
    remaining=lambda _: None,
    cleaned=lambda _, __: 0,
    suspended=lambda owner: owner.spec.suspend,
    vacated=lambda owner: not any(one.active for one in owner.status.replicated_jobs_status or ()),
    finished=lambda owner: _job_set_is(owner, "Completed", "Failed"),
    failed=lambda owner: _job_set_is(owner, "Failed"),
    labelled=False,
    parts=_job_set_parts,
    optional=True,
)
REPLICA_SET, STATEFUL_SET = _scaled(REPLICA_SETS), _scaled(STATEFUL_SETS)
LEADER_WORKER_SET = Owner(
    kind=LEADER_WORKER_SETS,
    give_back=GiveBack.EVICT,
    parallelism=lambda group: _group_size(group) if group.wanted else 0,
    remaining=_group_size,
    cleaned=lambda _, __: 0,
    suspended=lambda group: not group.wanted,
    vacated=lambda _: True,
    finished=lambda _: False,
    failed=lambda _: False,
    labelled=False,
    parts=_group_parts,
    optional=True,
)
_ROWS: dict[type, Owner] = {
    Job: JOB,
    ReplicaSet: REPLICA_SET,
    StatefulSet: STATEFUL_SET,
    JobSet: JOB_SET,
    WorkerGroup: LEADER_WORKER_SET,
}
OWNERS: dict[tuple[str, str], Owner] = {(row.kind.api_version, row.kind.kind): row for row in _ROWS.values()}


def of(owner: Workload) -> Owner:
    """The row of an owner."""
    return _ROWS[type(owner)]


def key(owner: Workload) -> str:
    """What tells the owner of a gang from all others: its UID, of a set's group with the group's number behind it."""
    uid = owner.metadata.uid
    return f"{uid}/{owner.index}" if isinstance(owner, WorkerGroup) else uid


def left(owner: Owner, obj: Any, cleaned: int = 0, present: int = 0) -> int:
    """Pods that may still run at once, those that have succeeded and can still be seen included.

    ``cleaned`` pods have succeeded and are gone: nothing comes in their place. ``present`` can be seen and have not
    failed: one of them may be among the cleaned ones by the owner's count, where that is ahead of our view of the pods.
    """
    maximum, remaining = owner.parallelism(obj), owner.remaining(obj)
    if remaining is not None:
        return min(maximum, remaining)
    return min(maximum, max(maximum - cleaned, present)) if cleaned else maximum


def size(owner: Owner, obj: Any, cleaned: int = 0, present: int = 0) -> Size:
    """Gang size of an owner: 1 unless annotated (``all`` = its parallelism), and never more than what is still to be done.

    At least 1, for a PodGroup has no smaller size; ``left`` tells whether there is anything to do. Raises
    InvalidAnnotation.
    """
    maximum = max(owner.parallelism(obj), 1)
    if maximum > MAX_MEMBERS:
        raise InvalidAnnotation(f"{maximum} pods at once: a gang has at most {MAX_MEMBERS}; lower the parallelism")
    most = max(left(owner, obj, cleaned, present), 1)
    text = (obj.metadata.annotations or {}).get(names.MIN_MEMBER)
    if len(parts := owner.parts(obj)) != 1 or parts[0].name:
        _whole(owner, obj, text)
        return Size(most, most)
    if text is None:
        return Size(1, most)
    if text == "all":
        return Size(most, most)
    # at most 6 digits: larger than any gang, and no integer that takes long to parse
    if not (text.isascii() and text.isdigit() and len(text) <= 6 and int(text) >= 1):
        raise InvalidAnnotation(
            f"annotation {names.MIN_MEMBER}: {shorten(text)!r} is neither a number from 1 nor 'all'"
        )
    if int(text) > maximum and owner.parallelism(obj) > 0:
        raise InvalidAnnotation(f"annotation {names.MIN_MEMBER}: {text} is more than the owner's {maximum} pods")
    return Size(min(int(text), most), most)


def _whole(owner: Owner, obj: Any, text: str | None) -> None:
    """What makes pods of several kinds starts as a whole. Raises InvalidAnnotation for what would be another gang."""
    if text not in (None, "all"):
        what = "each group of a LeaderWorkerSet" if owner is LEADER_WORKER_SET else f"a {owner.kind.kind}"
        raise InvalidAnnotation(f"annotation {names.MIN_MEMBER}: {shorten(text or '')!r}: {what} starts as a whole")
    for one in obj.spec.replicated_jobs if isinstance(obj, JobSet) else ():
        spec = one.template.spec
        if spec.completions is not None and spec.completions > _parallelism(spec):
            raise InvalidAnnotation(f"replicatedJob {one.name}: more completions than parallelism; make them equal")


def disagreement(owner: Workload) -> str:
    """Why an owner's pods can be no gang, since its templates send them to different places; "" when they do not."""
    templates = [part.labels for part in of(owner).parts(owner)]
    if len(asked := {labels.get(names.QUEUE_LABEL, "") for labels in templates}) > 1:
        found = shorten(", ".join(sorted(name or "none" for name in asked)), 200)
        return f"its pod templates name different queues ({found}): give all of them the same {names.QUEUE_LABEL}"
    if any(labels.get(names.UNMANAGED_LABEL) == "true" for labels in templates):
        return (
            f"some of its pods are labelled {names.UNMANAGED_LABEL}: label the templates of all of them so, or of none"
        )
    return ""


def shorten(text: str, limit: int = 40) -> str:
    """Text of strangers, short enough for a message."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


@lru_cache(maxsize=65536)  # asked for every event of every pod
def pod_group_name(kind: str, name: str, key: str) -> str:
    """Name of the PodGroup derived from an owner: ``<kind>-<owner>-<5 of uid>``, at most 63 characters.

    ``key`` is the owner's (see above); the number of a set's group stands before the UID.
    """
    uid, _, index = key.partition("/")
    tail = f"-{index}-{uid[:5]}" if index else f"-{uid[:5]}"
    head = f"{kind.lower()}-{name}"[: 63 - len(tail)].rstrip("-.")
    return head + tail


def key_of(pod_group: str, reference: OwnerReference) -> str:
    """Key of the owner that a PodGroup of this name is derived from, if it has the right name for its reference."""
    if (reference.api_version, reference.kind) != (LEADER_WORKER_SETS.api_version, LEADER_WORKER_SETS.kind):
        return reference.uid
    index = pod_group.removesuffix(f"-{reference.uid[:5]}").rpartition("-")[2]
    return f"{reference.uid}/{index}"


_DERIVED = re.compile(f"(?:{'|'.join(kind.lower() for _, kind in OWNERS)})-.+-[0-9a-f]{{5}}")


def derived(name: str) -> bool:
    """Whether a PodGroup of this name was derived from some owner, whoever that was."""
    return _DERIVED.fullmatch(name) is not None
