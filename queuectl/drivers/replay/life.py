"""One gang's life on the cluster: what was submitted, what became of it, and how long things take."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

from queuectl.drivers.replay.submission import Submission
from queuectl.model.gangs import Gang, Member, Stage

LIVE = (Stage.GATED, Stage.RELEASED, Stage.BOUND, Stage.RUNNING)
HOLDING = (Stage.BOUND, Stage.RUNNING)
BACKOFF_LIMIT = 6  # pods that a Job may lose before it fails: what batch/v1 does unless told otherwise
# How long (ms) a Job waits after a failed pod before it makes the next, doubled with each, and never longer than this:
# DefaultJobPodFailureBackOff and MaxJobPodFailureBackOff of Kubernetes' Job controller.
FAILURE_BACKOFF, FAILURE_BACKOFF_LIMIT = 10_000, 600_000


class Delays(Struct, frozen=True, kw_only=True):
    """How long things take, in milliseconds.

    ``record``: a write of status. ``release``: the pods' own writes after it. ``bind``: kube-scheduler. ``start``: the
    kubelet. ``create``: an owner makes pods. ``stop``: a running pod ends after it was deleted. ``give_up``: the pods of a
    node that went silent are deleted (Kubernetes adds this toleration of 300 s to every pod).
    """

    record: int = 0
    release: int = 0
    bind: int = 0
    start: int = 0
    create: int = 0
    stop: int = 0
    give_up: int = 300_000


Seat = tuple[str, int]  # role and index of a pod in its gang


class Life(Struct, eq=False):
    """One gang as the cluster holds it. ``generation`` counts edits of its spec; ``emptied`` waits for its last pod."""

    submission: Submission
    gang: Gang
    pods: dict[str, Member] = field(default_factory=dict)
    seats: dict[Seat, str] = field(default_factory=dict)  # who sits there now
    seat_of: dict[str, Seat] = field(default_factory=dict)
    done: set[Seat] = field(default_factory=set)
    born: int = 0
    failures: int = 0
    retry_at: int = 0  # its owner makes no pods before
    generation: int = 1
    suspended: bool = False
    emptied: Callable[[], None] | None = None
    started_at: int | None = None
    ended_at: int | None = None

    def live(self) -> list[str]:
        """Pods that have not ended."""
        return [uid for uid, member in self.pods.items() if member.stage in LIVE]


def core(submission: Submission) -> set[int]:
    """The slots that start together: the first ``minimum`` of every role, counted through the roles by their size."""
    slots: set[int] = set()
    offset = 0
    for part in submission.parts:
        slots.update(range(offset, offset + part.minimum))
        offset += part.size
    return slots
