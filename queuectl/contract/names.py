"""Our labels, annotations, gate and conditions: every public word that is written on other people's objects.

``api/v1alpha1/README.md`` lists them; a test fails when it differs.
"""

from queuectl.contract.foreign import GROUP

GATE = f"{GROUP}/admission"
# labels
QUEUE_LABEL = f"{GROUP}/queue"
POD_GROUP_LABEL = f"{GROUP}/pod-group"
ROLE_LABEL = f"{GROUP}/role"
UNMANAGED_LABEL = f"{GROUP}/unmanaged"
DEFAULT_QUEUE_LABEL = f"{GROUP}/default-queue"
# annotations of users
MIN_MEMBER = f"{GROUP}/min-member"
TOPOLOGY_REQUIRED = f"{GROUP}/topology-required"
TOPOLOGY_PREFERRED = f"{GROUP}/topology-preferred"
BEST_EFFORT = f"{GROUP}/best-effort"
PREEMPTIBLE = f"{GROUP}/preemptible"
REQUEUE = f"{GROUP}/requeue"
OPERATOR_HOLD = f"{GROUP}/operator-hold"
# annotations of ours
FENCE = f"{GROUP}/fence"
RECORD = f"{GROUP}/admission"
# on owners, written with spec.suspend: "<UID of the PodGroup>:<round>:suspended", or the same with "resumed"
SUSPENSION = f"{GROUP}/suspension"
# pod conditions of ours
WAITING = f"{GROUP}/Waiting"
PREEMPTING = f"{GROUP}/Preempting"
# of Kubernetes
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
POD_INDEX = "apps.kubernetes.io/pod-index"
# of LeaderWorkerSets, on their pods: the set's name, which of its groups, and which pod of the group (0 is the leader)
SET_NAME = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
FIELD_NAME = "metadata.name"
SCHEDULER = "default-scheduler"
