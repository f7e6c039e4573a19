"""What somebody submits: one gang with its owner, in the engine's own terms."""

from __future__ import annotations

import enum

from msgspec import Struct

from queuectl.model.gangs import Gang, GiveBack, Role, Shape
from queuectl.model.reasons import Misfit, Reason, TextEvidence

HELD = Misfit(Reason.HELD, TextEvidence("spec.hold is true"))


class Owner(enum.StrEnum):
    """Who makes the pods: one of these kinds, or their submitter, who wrote a PodGroup for them.

    A StatefulSet makes one after the other, each when the one before runs; the workers of an LWS (one group of a
    LeaderWorkerSet) come when their leader runs.
    """

    JOB = "Job"
    STATEFUL_SET = "StatefulSet"
    REPLICA_SET = "ReplicaSet"
    LWS = "LWS"
    PODS = "Pods"

    @property
    def keeps(self) -> bool:
        """Whether whichever pod ends is followed by another, at once and for ever."""
        return self in (Owner.STATEFUL_SET, Owner.REPLICA_SET, Owner.LWS)

    @property
    def ranked(self) -> bool:
        """Whether it numbers its pods."""
        return self in (Owner.JOB, Owner.STATEFUL_SET, Owner.LWS)

    @property
    def give_back(self) -> GiveBack:
        """How it lets go of its pods; their submitter does not, unless that was accepted."""
        return GiveBack.SUSPEND if self is Owner.JOB else GiveBack.EVICT if self.keeps else GiveBack.NONE


class Part(Struct, frozen=True, kw_only=True):
    """Equal pods of a gang: ``size`` of them, of which ``minimum`` start together. ``pinnable`` as in ``Member``."""

    role: str = ""
    size: int
    minimum: int
    shape: Shape
    required: str | None = None
    preferred: str | None = None
    pinnable: bool = True


class Submission(Struct, frozen=True, kw_only=True):
    """One gang as it is handed in. ``run`` is how long each pod runs (ms), None for ever.

    ``gates`` are scheduling gates of others on every pod. ``suspended``: its Job is created suspended, so the gang waits
    without pods. ``preemptible``: pods that nobody makes again may be deleted to give them back.
    """

    name: str
    queue: str
    parts: tuple[Part, ...]
    namespace: str = "default"
    owner: Owner = Owner.JOB
    required: str | None = None
    preferred: str | None = None
    priority: int = 0
    gates: tuple[str, ...] = ()
    run: int | None = None
    suspended: bool = False
    hold: bool = False
    best_effort: bool = False
    preemptible: bool = False

    @property
    def size(self) -> int:
        """All pods."""
        return sum(part.size for part in self.parts)

    @property
    def minimum(self) -> int:
        """Pods that start together."""
        return sum(part.minimum for part in self.parts)

    @property
    def lone(self) -> bool:
        """A pod on its own, for which nobody writes a PodGroup."""
        return self.owner is Owner.PODS and self.size == self.minimum == 1 and not self.parts[0].role

    def roles(self) -> tuple[Role, ...]:
        """The roles as the engine sees them: owners tell their templates, hand-written pods tell only themselves."""
        if self.owner is not Owner.PODS:
            return tuple(Role(part.role, part.minimum, part.size, part.shape, gates=self.gates) for part in self.parts)
        if self.lone:
            return (Role("", 1, 1, self.parts[0].shape),)
        return tuple(
            Role(part.role, part.minimum, part.size, None, part.required, part.preferred) for part in self.parts
        )

    def gang(self, uid: str, created: int) -> Gang:
        """The gang that the cluster then holds."""
        return Gang(
            uid=uid,
            namespace=self.namespace,
            name=self.name,
            queue=self.queue,
            roles=self.roles(),
            required=self.required,
            preferred=self.preferred,
            priority=self.priority,
            created=created,
            queued_at=created,
            give_back=GiveBack.EVICT if self.preemptible else self.owner.give_back,
            resumes=self.suspended,
            best_effort=self.best_effort,
            lone=self.lone,
            rolling=self.owner.keeps,
            blocked=(HELD,) if self.hold else (),
        )
