"""Admission policies for what makes pods by several templates: a queue label stands on each of them, or means nothing.

On the object alone it would not reach a pod, and all of them would start past every queue. These are other projects'
definitions, which our mutating policies do not touch; so it is asked for instead of copied.
"""

from __future__ import annotations

from queuectl.contract.admission import JOB_SET, MANAGED, WORKER_SET, Json, label, rule, validating_policy
from queuectl.contract.names import QUEUE_LABEL

_GROUP = "object.spec.?leaderWorkerTemplate"
_FROM_THERE = "from there it comes to the pods"


def labelled() -> list[Json]:
    """The policies, with their bindings."""
    own = label("object.metadata", QUEUE_LABEL)
    jobs = f"object.spec.?replicatedJobs.orValue([]).all(j, {label('j.?template.?metadata', QUEUE_LABEL)} == {own})"
    worker, leader = (f"{_GROUP}.?{name}Template" for name in ("worker", "leader"))
    pods = (
        f"{label(f'{worker}.?metadata', QUEUE_LABEL)} == {own}"
        f" && (!{leader}.hasValue() || {label(f'{leader}.?metadata', QUEUE_LABEL)} == {own})"
    )
    in_jobs = f"its label {QUEUE_LABEL} belongs on every spec.replicatedJobs[].template.metadata too: {_FROM_THERE}"
    in_pods = (
        f"its label {QUEUE_LABEL} belongs on workerTemplate.metadata (and leaderTemplate.metadata, where there is one) in"
        f" spec.leaderWorkerTemplate too: {_FROM_THERE}"
    )
    return [
        *validating_policy("queuectl-jobsets", [rule(JOB_SET, "CREATE")], [MANAGED], [(jobs, in_jobs)]),
        *validating_policy("queuectl-workersets", [rule(WORKER_SET, "CREATE")], [MANAGED], [(pods, in_pods)]),
    ]
