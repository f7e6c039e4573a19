"""The few fields we read of the cluster's objects, as msgspec structs: what is not named here is skipped in C.

A ``Kind`` says where objects of a resource live and how they are decoded. Our own resources are decoded as ``Custom``
(plain mappings) and validated one by one by ``contract/v1alpha1.py``, so that a bad object harms nobody else.

``gc=False``: decoded JSON holds no cycles, so the garbage collector need not track what only reference counts can free.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct, field, json

from queuectl.contract import home

GROUP = home.GROUP


class OwnerReference(Struct, rename="camel", frozen=True, gc=False):
    """Who made an object; ``controller`` marks the one that manages it."""

    kind: str
    name: str
    uid: str
    api_version: str = ""
    controller: bool = False


class Meta(Struct, rename="camel", kw_only=True, gc=False):
    """Object metadata; times stay RFC 3339 text until somebody needs them."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None


class Gate(Struct, frozen=True, gc=False):
    """A scheduling gate."""

    name: str


class Expression(Struct, frozen=True, gc=False):
    """One requirement of a node selector term."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None


class SelectorTerm(Struct, rename="camel", frozen=True, gc=False):
    """One OR-term of a node selector."""

    match_expressions: tuple[Expression, ...] | None = None
    match_fields: tuple[Expression, ...] | None = None


class NodeSelector(Struct, rename="camel", frozen=True, gc=False):
    """Required node affinity."""

    node_selector_terms: tuple[SelectorTerm, ...] | None = None


class NodeAffinity(Struct, frozen=True, gc=False):
    """Only the required part: preferences do not decide whether a pod may run."""

    required: NodeSelector | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class PodTerms(Struct, frozen=True, gc=False):
    """Inter-pod (anti-)affinity: only whether anything is required."""

    required: tuple[Any, ...] | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class Affinity(Struct, rename="camel", frozen=True, gc=False):
    """A pod's affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodTerms | None = None
    pod_anti_affinity: PodTerms | None = None


class PodToleration(Struct, frozen=True, gc=False):
    """A toleration as on the wire."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class Resources(Struct, gc=False):
    """Requests and limits of a container or a pod; quantities stay text until parsed."""

    requests: dict[str, str] | None = None
    limits: dict[str, str] | None = None


class Port(Struct, rename="camel", gc=False):
    """A container port; only host ports constrain placement."""

    host_port: int = 0
    container_port: int = 0
    protocol: str = "TCP"


class Container(Struct, rename="camel", gc=False):
    """What a container asks for. ``restart_policy`` Always marks a restartable init container (a sidecar)."""

    image: str = ""
    resources: Resources | None = None
    ports: tuple[Port, ...] | None = None
    restart_policy: str | None = None


class ClaimVolume(Struct, rename="camel", gc=False):
    """A volume from a PersistentVolumeClaim."""

    claim_name: str = ""


class Volume(Struct, rename="camel", gc=False):
    """Only the volumes that may bind a pod to nodes."""

    name: str = ""
    persistent_volume_claim: ClaimVolume | None = None
    ephemeral: dict[str, Any] | None = None


class Spread(Struct, rename="camel", gc=False):
    """A topology spread constraint; only DoNotSchedule is a hard one."""

    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"


class PodSpec(Struct, rename="camel", kw_only=True, gc=False):
    """What decides where and when a pod may run."""

    node_name: str | None = None
    scheduling_gates: tuple[Gate, ...] | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[PodToleration, ...] | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] | None = None
    overhead: dict[str, str] | None = None
    resources: Resources | None = None
    volumes: tuple[Volume, ...] | None = None
    topology_spread_constraints: tuple[Spread, ...] | None = None
    resource_claims: tuple[Any, ...] | None = None
    scheduler_name: str | None = None
    service_account_name: str | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    host_network: bool = False


class Condition(Struct, rename="camel", gc=False):
    """A status condition."""

    type: str
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class PodStatus(Struct, rename="camel", gc=False):
    """How far the pod has come."""

    phase: str = "Pending"
    reason: str | None = None
    message: str | None = None
    conditions: Raw = Raw()  # read by ``conditions_of``: seldom asked for, and a tenth of the cost of a pod


def conditions_of(pod: Pod) -> tuple[Condition, ...]:
    """A pod's conditions."""
    raw = pod.status.conditions
    return json.decode(raw, type=tuple[Condition, ...] | None) or () if bytes(raw) else ()


class Pod(Struct, kw_only=True, gc=False):
    """A pod."""

    metadata: Meta
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)


class NodeTaint(Struct, gc=False):
    """A taint as on the wire."""

    key: str
    value: str | None = None
    effect: str = ""


class NodeSpec(Struct, gc=False):
    """Cordon and taints."""

    unschedulable: bool = False
    taints: tuple[NodeTaint, ...] | None = None


class NodeStatus(Struct, gc=False):
    """Allocatable resources and conditions."""

    allocatable: dict[str, str] | None = None
    conditions: tuple[Condition, ...] | None = None


class Node(Struct, kw_only=True, gc=False):
    """A node."""

    metadata: Meta
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)


class TemplateMeta(Struct, kw_only=True, gc=False):
    """What a template writes on its pods."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class PodTemplate(Struct, kw_only=True, gc=False):
    """A pod template inside an owner."""

    metadata: TemplateMeta = field(default_factory=TemplateMeta)
    spec: PodSpec = field(default_factory=PodSpec)


class JobSpec(Struct, rename="camel", kw_only=True, gc=False):
    """What of a Job decides its gang."""

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    suspend: bool = False
    template: PodTemplate = field(default_factory=PodTemplate)


class JobStatus(Struct, kw_only=True, gc=False):
    """A Job's progress."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0
    conditions: tuple[Condition, ...] | None = None


class Job(Struct, kw_only=True, gc=False):
    """A batch Job."""

    metadata: Meta
    spec: JobSpec = field(default_factory=JobSpec)
    status: JobStatus = field(default_factory=JobStatus)


class ScaleSpec(Struct, kw_only=True, gc=False):
    """What of a ReplicaSet or StatefulSet decides its gang."""

    replicas: int | None = None
    template: PodTemplate = field(default_factory=PodTemplate)


class ReplicaSet(Struct, kw_only=True, gc=False):
    """A ReplicaSet: a Deployment's, as a rule, one for each revision."""

    metadata: Meta
    spec: ScaleSpec = field(default_factory=ScaleSpec)


class StatefulSet(Struct, kw_only=True, gc=False):
    """A StatefulSet."""

    metadata: Meta
    spec: ScaleSpec = field(default_factory=ScaleSpec)


class JobTemplate(Struct, kw_only=True, gc=False):
    """A Job template inside an owner."""

    metadata: TemplateMeta = field(default_factory=TemplateMeta)
    spec: JobSpec = field(default_factory=JobSpec)


class DependsOn(Struct, gc=False):
    """What must be so of another replicated Job first: Ready or Complete."""

    name: str
    status: str = ""


class ReplicatedJob(Struct, rename="camel", kw_only=True, gc=False):
    """So many equal Jobs of a JobSet."""

    name: str
    replicas: int = 1
    template: JobTemplate = field(default_factory=JobTemplate)
    depends_on: tuple[DependsOn, ...] | None = None


class JobSetSpec(Struct, rename="camel", kw_only=True, gc=False):
    """What of a JobSet decides its gang."""

    suspend: bool = False
    replicated_jobs: tuple[ReplicatedJob, ...] = ()


class ReplicatedJobStatus(Struct, gc=False):
    """How far the Jobs of one name have come: counts of Jobs, not of pods."""

    name: str
    active: int = 0
    succeeded: int = 0


class JobSetStatus(Struct, rename="camel", kw_only=True, gc=False):
    """A JobSet's progress."""

    conditions: tuple[Condition, ...] | None = None
    replicated_jobs_status: tuple[ReplicatedJobStatus, ...] | None = None


class JobSet(Struct, kw_only=True, gc=False):
    """A JobSet (jobset.x-k8s.io), which makes Jobs, all at once or in stages."""

    metadata: Meta
    spec: JobSetSpec = field(default_factory=JobSetSpec)
    status: JobSetStatus = field(default_factory=JobSetStatus)


class LeaderWorkerTemplate(Struct, rename="camel", kw_only=True, gc=False):
    """The pods of every group: ``size`` of them with the leader, who is made as a worker unless it has a template."""

    size: int | None = None
    leader_template: PodTemplate | None = None
    worker_template: PodTemplate = field(default_factory=PodTemplate)


class LeaderWorkerSetSpec(Struct, rename="camel", kw_only=True, gc=False):
    """What of a LeaderWorkerSet decides its gangs."""

    replicas: int | None = None
    leader_worker_template: LeaderWorkerTemplate = field(default_factory=LeaderWorkerTemplate)


class LeaderWorkerSet(Struct, kw_only=True, gc=False):
    """A LeaderWorkerSet (leaderworkerset.x-k8s.io): so many groups of a leader and its workers."""

    metadata: Meta
    spec: LeaderWorkerSetSpec = field(default_factory=LeaderWorkerSetSpec)


class WorkerGroup(Struct, frozen=True, gc=False):
    """One group of a LeaderWorkerSet: the owner of a gang's pods, for which the cluster has no object of its own.

    ``metadata`` is the set's; ``index`` counts its groups from 0. ``wanted`` is false beyond the set's replicas: of a
    group that was scaled away, or is there for the time of a rolling update.
    """

    metadata: Meta
    index: int
    wanted: bool
    template: LeaderWorkerTemplate


Workload = Job | ReplicaSet | StatefulSet | JobSet | WorkerGroup
"""What creates the pods of one gang from a template of its own, and is known to us (``owners.OWNERS``)."""


class LabelSelector(Struct, rename="camel", frozen=True, gc=False):
    """Which labels are meant; all requirements must hold, and none at all mean every object."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[Expression, ...] | None = None


class BudgetSpec(Struct, gc=False):
    """Which pods a disruption budget protects; without a selector none."""

    selector: LabelSelector | None = None


class BudgetStatus(Struct, rename="camel", gc=False):
    """How many more of its pods may go now."""

    disruptions_allowed: int = 0


class DisruptionBudget(Struct, kw_only=True, gc=False):
    """A PodDisruptionBudget."""

    metadata: Meta
    spec: BudgetSpec = field(default_factory=BudgetSpec)
    status: BudgetStatus = field(default_factory=BudgetStatus)


class PriorityClass(Struct, rename="camel", kw_only=True, gc=False):
    """A priority class: the priority of a template that has no pods yet."""

    metadata: Meta
    value: int = 0
    global_default: bool = False


class LeaseSpec(Struct, rename="camel", kw_only=True, gc=False):
    """Leadership: ``lease_transitions`` is the fence."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int = 0


class Lease(Struct, kw_only=True, gc=False):
    """A coordination Lease."""

    metadata: Meta
    spec: LeaseSpec = field(default_factory=LeaseSpec)


class Custom(Struct, kw_only=True, gc=False):
    """One of our own resources, not yet validated."""

    metadata: Meta
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None


class Kind(Struct, frozen=True, gc=False):
    """A resource: where it lives, how its objects are decoded, and whether it takes strategic merge patches."""

    group: str
    version: str
    plural: str
    kind: str
    type: type[Struct]
    namespaced: bool = True
    strategic: bool = True

    @property
    def api_version(self) -> str:
        """``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """URL path of the collection (all namespaces when ``namespace`` is empty), an object, or its subresource."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        middle = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        tail = "".join(f"/{part}" for part in (name, subresource) if part)
        return f"{root}{middle}/{self.plural}{tail}"


PODS = Kind("", "v1", "pods", "Pod", Pod)
NODES = Kind("", "v1", "nodes", "Node", Node, namespaced=False)
JOBS = Kind("batch", "v1", "jobs", "Job", Job)
REPLICA_SETS = Kind("apps", "v1", "replicasets", "ReplicaSet", ReplicaSet)
STATEFUL_SETS = Kind("apps", "v1", "statefulsets", "StatefulSet", StatefulSet)
JOB_SETS = Kind("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", JobSet, strategic=False)
LEADER_WORKER_SETS = Kind(
    "leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet", LeaderWorkerSet, strategic=False
)
BUDGETS = Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", DisruptionBudget)
PRIORITY_CLASSES = Kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", PriorityClass, namespaced=False)
LEASES = Kind("coordination.k8s.io", "v1", "leases", "Lease", Lease)
QUEUES = Kind(GROUP, "v1alpha1", "queues", "Queue", Custom, namespaced=False, strategic=False)
POD_GROUPS = Kind(GROUP, "v1alpha1", "podgroups", "PodGroup", Custom, strategic=False)
TOPOLOGIES = Kind(GROUP, "v1alpha1", "topologies", "Topology", Custom, namespaced=False, strategic=False)
POOLS = Kind(GROUP, "v1alpha1", "pools", "Pool", Custom, namespaced=False, strategic=False)
