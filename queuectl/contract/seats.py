"""Where a pod sits, by what its creator wrote on it: the group of its set, its role there, and its rank.

The labels of LeaderWorkerSets are those of sigs.k8s.io/lws (api/leaderworkerset/v1): its webhook puts group and worker
index on every pod, and the leader of a group is worker 0. The other numbers are Kubernetes' own.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from queuectl.contract import names
from queuectl.contract.foreign import Meta
from queuectl.contract.slots import MAX_MEMBERS

LEADER: Final = "leader"  # roles of a LeaderWorkerSet's group
WORKER: Final = "worker"
GROUPS: Final = 1_000_000  # of one LeaderWorkerSet: more than any cluster has pods


@lru_cache(maxsize=4096)
def number(text: str | None, limit: int) -> int | None:
    """A plain number below ``limit``, None for anything else that strangers may have written."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 10:
        return None
    return found if (found := int(text)) < limit else None


def group(meta: Meta) -> tuple[str, int] | None:
    """Name of the LeaderWorkerSet that a pod or StatefulSet says it is of, and its group's number; None for all others."""
    labels = meta.labels
    if not labels or names.SET_NAME not in labels:
        return None
    index = number(labels.get(names.GROUP_INDEX), GROUPS)
    return None if index is None else (labels[names.SET_NAME], index)


def of_workers(meta: Meta) -> bool:
    """Whether this is the StatefulSet of a group's workers: it has the group's labels and is controlled by the leader's pod."""
    return group(meta) is not None and any(one.controller and one.kind == "Pod" for one in meta.owner_references)


def seat(meta: Meta) -> tuple[str, int | None]:
    """Role of a pod in its gang, and its rank there: "" and None where nothing tells."""
    labels, annotations = meta.labels or {}, meta.annotations or {}
    worker = number(labels.get(names.WORKER_INDEX), MAX_MEMBERS)
    if worker is not None and names.POD_GROUP_LABEL not in labels:
        return (WORKER, worker - 1) if worker else (LEADER, 0)
    role = labels.get(names.ROLE_LABEL) or labels.get(names.REPLICATED_JOB, "")
    if names.REPLICATED_JOB in labels:
        return role, None  # it has a number in one of the JobSet's Jobs, and not in its role
    index = annotations.get(names.COMPLETION_INDEX) or labels.get(names.COMPLETION_INDEX)
    return role, worker if worker is not None else number(index or labels.get(names.POD_INDEX), MAX_MEMBERS)
