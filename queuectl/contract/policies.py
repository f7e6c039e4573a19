"""Admission policies: how pods get our gate, who may take it away, and what our own account may not do.

MutatingAdmissionPolicy needs Kubernetes 1.36 or newer; on older servers whoever submits writes the gate. The rest needs
1.30. A policy is in force 1 to 2 seconds after it was created (measured on 1.37.2), and it cannot read other objects:
only its parameter and the namespace. Expressions are written so that a missing label, annotation or list is no error,
because an error refuses the request (failurePolicy Fail).
"""

from __future__ import annotations

import json

from queuectl.contract.admission import (
    DEPLOYMENT,
    EVICTION,
    JOB,
    JOB_SET,
    MANAGED,
    POD,
    POD_STATUS,
    REPLICA_SET,
    STATEFUL_SET,
    Json,
    gated,
    label,
    mutating_policy,
    only,
    rule,
    same,
    validating_policy,
)
from queuectl.contract.home import GROUP, LEASE, NAMESPACE, USER
from queuectl.contract.names import (
    DEFAULT_QUEUE_LABEL,
    FENCE,
    GATE,
    OPERATOR_HOLD,
    POD_GROUP_LABEL,
    QUEUE_LABEL,
    RECORD,
    ROLE_LABEL,
    SUSPENSION,
    UNMANAGED_LABEL,
    WAITING,
)
from queuectl.contract.templates import labelled

STALE_FENCE = "stale fence"  # how the refusal of the policies below begins: another process leads
FENCE_POLICIES = ("queuectl-fence", "queuectl-status-fence")
SUMMARY = {
    "queuectl-gate": "adds the gate to new pods with a queue label",
    "queuectl-default-queue": f"labels and gates new pods without a queue in namespaces labelled `{DEFAULT_QUEUE_LABEL}`",
    "queuectl-default-queue-jobs": "the same label for Jobs and their pod templates, so that suspended Jobs are seen",
    "queuectl-job-template": "copies a new Job's queue label to its pod template",
    "queuectl-service-template": "copies the queue label of a Deployment or StatefulSet to its pod template",
    "queuectl-release": f"refuses to remove the gate unless one may `release` podgroups.{GROUP} in the namespace",
    "queuectl-managed-pods": "refuses pods with a queue label that have no gate or name their node",
    "queuectl-labels": "refuses changes of our labels on pods and Jobs, unless one may `release`",
    "queuectl-jobs": "refuses a Job whose pod template names another queue, and changes of our labels in the template",
    "queuectl-services": "refuses a Deployment or StatefulSet whose pod template names another queue, and changes of our"
    " labels in the templates of StatefulSets and ReplicaSets that have a queue",
    "queuectl-jobsets": "refuses a new JobSet with a queue label unless every Job template of it has the same",
    "queuectl-workersets": "the same for LeaderWorkerSets and their pod templates",
    "queuectl-records": "refuses to set or change the controller's own annotations on pods, unless one may `release`",
    "queuectl-records-jobs": "the same for Jobs and their pod templates",
    "queuectl-records-jobsets": "the same for JobSets",
    "queuectl-operator-hold": f"refuses changes of the annotation `{OPERATOR_HOLD}` on PodGroups, and to delete such a"
    " PodGroup, unless one may `release`",
    "queuectl-own-writes-pods": "keeps the controller's own account to its gate, pin and annotations",
    "queuectl-own-writes-pod-status": f"keeps the controller's own account to its condition `{WAITING}`",
    "queuectl-own-writes-jobs": "keeps the controller's own account to suspending, resuming and its annotations",
    "queuectl-own-writes-jobsets": "the same for JobSets",
    "queuectl-own-writes-evictions": "keeps the controller's own account to evicting the very pod that it names by UID",
    "queuectl-fence": f"refuses the controller's writes to pods and owners whose annotation `{FENCE}` is older than the Lease",
    "queuectl-status-fence": "the same for `status.fence` of Queues and PodGroups",
    "queuectl-lease": "refuses to delete the controller's Lease, which holds the fence, unless one may `release`",
}

# Conditions on the object of a request. A label with an empty value counts as none.
_NO_QUEUE = {
    "name": "no-queue",
    "expression": f"{label('object.metadata', QUEUE_LABEL)} == ''"
    f" && {label('object.metadata', UNMANAGED_LABEL)} != 'true'",
}
_NO_NODE = {"name": "no-node", "expression": "object.spec.?nodeName.orValue('') == ''"}
_NO_DAEMON = {
    "name": "no-daemon",
    "expression": "!object.metadata.?ownerReferences.orValue([]).exists(o, o.kind == 'DaemonSet')",
}
_NO_GATE = {"name": "no-gate", "expression": f"!{gated('object', GATE)}"}

_MAY_RELEASE = (
    f"authorizer.group('{GROUP}').resource('podgroups').namespace(request.namespace).check('release').allowed()"
)
# Kubernetes' own controllers: what they delete belongs to something that somebody else was allowed to delete.
_CLEANS_UP = (
    "(request.userInfo.username == 'system:kube-controller-manager'"
    " || 'system:serviceaccounts:kube-system' in request.userInfo.?groups.orValue([]))"
)
_ADD_GATE = f"spec: Object.spec{{schedulingGates: [Object.spec.schedulingGates{{name: '{GATE}'}}]}}"


def mutating() -> list[Json]:
    """Label and gate: what makes a pod ours, written where it is missing."""
    default = {
        "matchExpressions": [
            {"key": DEFAULT_QUEUE_LABEL, "operator": "Exists"},
            {"key": DEFAULT_QUEUE_LABEL, "operator": "NotIn", "values": [""]},
        ]
    }
    # namespaceObject can be read in a mutation, but not in a condition (measured): the selector decides.
    queue = f"namespaceObject.metadata.labels['{DEFAULT_QUEUE_LABEL}']"

    def labels(value: str) -> str:
        return f"labels: {{'{QUEUE_LABEL}': {value}}}"

    def template(value: str) -> str:
        inner = f"metadata: Object.spec.template.metadata{{{labels(value)}}}"
        return f"spec: Object.spec{{template: Object.spec.template{{{inner}}}}}"

    plain_template = {
        "name": "plain-template",
        "expression": f"{label('object.spec.template.?metadata', QUEUE_LABEL)} == ''"
        f" && {label('object.spec.template.?metadata', UNMANAGED_LABEL)} != 'true'",
    }
    own = f"object.metadata.labels['{QUEUE_LABEL}']"
    return [
        *mutating_policy("queuectl-gate", [rule(POD, "CREATE")], [MANAGED, _NO_NODE, _NO_GATE], _ADD_GATE),
        *mutating_policy(
            "queuectl-default-queue",
            [rule(POD, "CREATE")],
            [_NO_QUEUE, _NO_NODE, _NO_DAEMON],
            f"metadata: Object.metadata{{{labels(queue)}}}, {_ADD_GATE}",
            default,
        ),
        *mutating_policy(
            "queuectl-default-queue-jobs",
            [rule(JOB, "CREATE")],
            [_NO_QUEUE, plain_template],
            f"metadata: Object.metadata{{{labels(queue)}}}, {template(queue)}",
            default,
        ),
        *mutating_policy("queuectl-job-template", [rule(JOB, "CREATE")], [MANAGED, plain_template], template(own)),
        # Whoever replaces the whole object leaves the label out again. Not ReplicaSets: a Deployment finds its own by their
        # template, and would make one after another if it were changed.
        *mutating_policy(
            "queuectl-service-template",
            [rule(DEPLOYMENT, "CREATE", "UPDATE"), rule(STATEFUL_SET, "CREATE", "UPDATE")],
            [MANAGED, plain_template],
            template(own),
        ),
    ]


def guarding() -> list[Json]:
    """What nobody may do to managed pods and their owners, except whoever holds the virtual verb ``release``."""
    labels = (QUEUE_LABEL, POD_GROUP_LABEL, ROLE_LABEL, UNMANAGED_LABEL)
    template, old_template = "object.spec.template.?metadata", "oldObject.spec.template.?metadata"
    who = f"only who may 'release' podgroups.{GROUP} in this namespace"
    return [
        *validating_policy(
            "queuectl-release",
            [rule(POD, "UPDATE")],
            [{"name": "was-gated", "expression": gated("oldObject", GATE)}],
            [
                (
                    f"{gated('object', GATE)} || {_MAY_RELEASE}",
                    f"{who} removes the gate {GATE}",
                )
            ],
        ),
        *validating_policy(
            "queuectl-managed-pods",
            [rule(POD, "CREATE")],
            # A kubelet reports its static pods as they already run.
            [
                MANAGED,
                {"name": "no-kubelet", "expression": "!('system:nodes' in request.userInfo.?groups.orValue([]))"},
            ],
            [
                (
                    _NO_NODE["expression"],
                    f"a pod of a queue must not name its node; label it {UNMANAGED_LABEL}: 'true', or drop nodeName",
                ),
                (
                    gated("object", GATE),
                    f"a pod of a queue needs the scheduling gate {GATE}; add it to spec.schedulingGates",
                ),
            ],
        ),
        *validating_policy(
            "queuectl-labels",
            [rule(POD, "UPDATE"), rule(JOB, "UPDATE")],
            [],
            [
                (
                    f"{label('object.metadata', name)} == {label('oldObject.metadata', name)} || {_MAY_RELEASE}",
                    f"the label {name} cannot change; delete and create again",
                )
                for name in labels
            ],
        ),
        *validating_policy(
            "queuectl-jobs",
            [rule(JOB, "CREATE", "UPDATE")],
            [],
            [
                (
                    (
                        f"request.operation != 'CREATE' || {label('object.metadata', QUEUE_LABEL)} == ''"
                        f" || {label(template, UNMANAGED_LABEL)} == 'true'"
                        f" || {label(template, QUEUE_LABEL)} == {label('object.metadata', QUEUE_LABEL)}"
                    ),
                    f"the pod template's label {QUEUE_LABEL} must be the Job's own, or be left out",
                ),
                # While a Job is suspended, its template's labels could be changed.
                *(
                    (
                        (
                            f"request.operation != 'UPDATE'"
                            f" || {label(template, name)} == {label(old_template, name)}"
                            f" || {_MAY_RELEASE}"
                        ),
                        f"the pod template's label {name} cannot change; delete and create again",
                    )
                    for name in labels
                ),
            ],
        ),
        *validating_policy(
            "queuectl-services",
            [
                rule(DEPLOYMENT, "CREATE", "UPDATE"),
                rule(STATEFUL_SET, "CREATE", "UPDATE"),
                rule(REPLICA_SET, "UPDATE"),
            ],
            [],
            [
                (
                    (
                        f"request.kind.kind == 'ReplicaSet' || {label('object.metadata', QUEUE_LABEL)} == ''"
                        f" || {label(template, UNMANAGED_LABEL)} == 'true'"
                        f" || {label(template, QUEUE_LABEL)} == {label('object.metadata', QUEUE_LABEL)}"
                        # One that is older than this policy can still be rolled out, scaled and deleted.
                        " || (request.operation == 'UPDATE'"
                        f" && {label('object.metadata', QUEUE_LABEL)} == {label('oldObject.metadata', QUEUE_LABEL)}"
                        f" && {label(template, QUEUE_LABEL)} == {label(old_template, QUEUE_LABEL)})"
                    ),
                    f"the pod template's label {QUEUE_LABEL} must be the owner's own, or be left out",
                ),
                # Its PodGroup stays, and with it the queue. (A Deployment makes another ReplicaSet, which has its own.) One
                # that has no queue may be given one: pods of before stay as they are until they are made anew.
                *(
                    (
                        (
                            "request.kind.kind == 'Deployment' || request.operation != 'UPDATE'"
                            f" || {label(old_template, QUEUE_LABEL)} == ''"
                            f" || {label(template, name)} == {label(old_template, name)} || {_MAY_RELEASE}"
                        ),
                        f"the pod template's label {name} cannot change; delete and create again",
                    )
                    for name in labels
                ),
            ],
        ),
        *labelled(),
        # A record that somebody else wrote would charge nodes, or have a Job suspended. (A status can bring annotations
        # along too, but only nodes and Kubernetes' own controllers may write the status of pods and Jobs.)
        *validating_policy(
            "queuectl-records",
            [rule(POD, "CREATE", "UPDATE")],
            [],
            [_untouched("object.metadata", name) for name in (FENCE, RECORD)],
        ),
        *validating_policy(
            "queuectl-records-jobs",
            [rule(JOB, "CREATE", "UPDATE")],
            [],
            [
                *(_untouched("object.metadata", name) for name in (FENCE, SUSPENSION)),
                *(_untouched(template, name, "the pod template's ") for name in (FENCE, RECORD)),
            ],
        ),
        *validating_policy(
            "queuectl-records-jobsets",
            [rule(JOB_SET, "CREATE", "UPDATE")],
            [],
            [_untouched("object.metadata", name) for name in (FENCE, SUSPENSION)],
        ),
        *validating_policy(
            "queuectl-operator-hold",
            [rule((GROUP, "*", "podgroups"), "UPDATE", "DELETE")],
            [],
            [
                (
                    f"request.operation == 'DELETE' || variables.new == variables.old || {_MAY_RELEASE}",
                    f"{who} changes the annotation {OPERATOR_HOLD}",
                ),
                # Of a derived PodGroup that is gone, the next one would not be held.
                (
                    f"request.operation != 'DELETE' || !variables.old.hasValue() || {_CLEANS_UP} || {_MAY_RELEASE}",
                    f"it carries the annotation {OPERATOR_HOLD}: {who} deletes it",
                ),
                # Nor by way of the garbage collector.
                (
                    (
                        "request.operation == 'DELETE' || !variables.old.hasValue()"
                        f" || {same('metadata', ('ownerReferences',))} || {_CLEANS_UP} || {_MAY_RELEASE}"
                    ),
                    f"it carries the annotation {OPERATOR_HOLD}: {who} changes its owners",
                ),
            ],
            variables={
                "old": f"oldObject.metadata.?annotations[?'{OPERATOR_HOLD}']",
                "new": f"object.metadata.?annotations[?'{OPERATOR_HOLD}']",
            },
        ),
    ]


def _untouched(metadata: str, name: str, whose: str = "the ") -> tuple[str, str]:
    """Nobody but the controller sets, changes or removes this annotation; what carries it can be changed otherwise."""
    new = f"{metadata}.?annotations[?'{name}']"
    old = new.replace("object", "oldObject", 1)
    return (
        f"(request.operation == 'CREATE' ? !{new}.hasValue() : {new} == {old}) || {_MAY_RELEASE}",
        f"{whose}annotation {name} is the controller's own; leave it as it is, and out of what you create",
    )


# Of a pod or Job, what the API server lets anybody change, and our account must not.
_POD_SPEC = (
    "containers", "initContainers", "ephemeralContainers", "tolerations", "nodeSelector", "activeDeadlineSeconds",
    "terminationGracePeriodSeconds",
)  # fmt: skip
_POD_STATUS = (
    "phase", "reason", "message", "nominatedNodeName", "startTime", "hostIP", "hostIPs", "podIP", "podIPs", "qosClass",
    "initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses", "resourceClaimStatuses",
)  # fmt: skip
_JOB_SPEC = (
    "parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished", "template",
    "podFailurePolicy", "successPolicy", "maxFailedIndexes",
)  # fmt: skip
_JOB_SET_SPEC = (
    "replicatedJobs", "network", "successPolicy", "failurePolicy", "startupPolicy", "coordinator", "managedBy",
    "ttlSecondsAfterFinished",
)  # fmt: skip
_PREFERRED = "affinity.?nodeAffinity.?preferredDuringSchedulingIgnoredDuringExecution"


def bounding(user: str = USER, namespace: str = NAMESPACE) -> list[Json]:
    """What our own account may write at all, and the fence: nothing once a later leader has begun.

    ``user`` is the controller's user name as the API server sees it, ``namespace`` that of its Lease.
    """
    is_us = {"name": "is-us", "expression": f"request.userInfo.username == {json.dumps(user)}"}
    gates = "spec.?schedulingGates.orValue([])"
    least = "params.spec.?leaseTransitions.orValue(0)"
    annotation = f"object.metadata.?annotations[?'{FENCE}'].orValue('')"
    said, had = (f"{one}.?status.?conditions.orValue([])" for one in ("object", "oldObject"))
    stale = f"{STALE_FENCE}: another leader has begun since"
    metadata = [
        (only("annotations", (FENCE, RECORD, SUSPENSION)), "the controller changes no annotations but its own"),
        (only("labels", (QUEUE_LABEL,)), f"the controller changes no label but {QUEUE_LABEL}"),
        (same("metadata", ("finalizers", "ownerReferences")), "the controller changes neither finalizers nor owners"),
    ]
    return [
        *validating_policy(
            "queuectl-own-writes-pods",
            [rule(POD, "UPDATE")],
            [is_us],
            [
                *metadata,
                (
                    f"oldObject.{gates}.all(o, o.name == '{GATE}' || object.{gates}.exists(n, n.name == o.name))",
                    "the controller removes no scheduling gate but its own",
                ),
                (same("spec", (*_POD_SPEC, _PREFERRED)), "the controller only pins and releases pods"),
            ],
        ),
        # Without a fence: it is compared and set on the version that was seen, and says only why a pod waits.
        *validating_policy(
            "queuectl-own-writes-pod-status",
            [rule(POD_STATUS, "UPDATE")],
            [is_us],
            [
                (
                    same("metadata", ("annotations", "labels", "finalizers", "ownerReferences")),
                    "the controller changes a pod's status alone",
                ),
                (same("status", _POD_STATUS), f"the controller writes no more of a pod's status than {WAITING}"),
                (
                    (
                        f"{said}.all(n, n.type == '{WAITING}' || {had}.exists(o, o == n))"
                        f" && {had}.all(o, o.type == '{WAITING}' || {said}.exists(n, n.type == o.type))"
                    ),
                    f"the controller writes no condition but {WAITING}",
                ),
            ],
        ),
        *validating_policy(
            "queuectl-own-writes-jobs",
            [rule(JOB, "UPDATE")],
            [is_us],
            [*metadata, (same("spec", _JOB_SPEC), "the controller only suspends and resumes Jobs")],
        ),
        *validating_policy(
            "queuectl-own-writes-jobsets",
            [rule(JOB_SET, "UPDATE")],
            [is_us],
            [*metadata, (same("spec", _JOB_SET_SPEC), "the controller only suspends and resumes JobSets")],
        ),
        # Evictions carry no fence: whatever leads, a pod that was to go in a round cannot belong to a later one.
        *validating_policy(
            "queuectl-own-writes-evictions",
            [rule(EVICTION, "CREATE")],
            [is_us],
            [
                (
                    "object.?deleteOptions.?preconditions.?uid.orValue('') != ''",
                    "the controller evicts a pod only by its UID",
                )
            ],
        ),
        *validating_policy(
            FENCE_POLICIES[0],
            [rule(POD, "UPDATE"), rule(JOB, "UPDATE"), rule(JOB_SET, "UPDATE")],
            [is_us],
            [
                (
                    "variables.fence.matches('^[0-9]{1,18}$')",
                    f"every write of the controller carries the annotation {FENCE}",
                ),
                (
                    f"!variables.fence.matches('^[0-9]{{1,18}}$') || int(variables.fence) >= {least}",
                    stale,
                ),
            ],
            variables={"fence": annotation},
            lease_in=namespace,
        ),
        *validating_policy(
            FENCE_POLICIES[1],
            [
                rule((GROUP, "*", "queues/status"), "UPDATE"),
                rule((GROUP, "*", "podgroups/status"), "UPDATE"),
            ],
            [is_us],
            [(f"object.?status.?fence.orValue(-1) >= {least}", stale)],
            lease_in=namespace,
        ),
        # A new Lease would begin with a fence that the writes of earlier leaders pass.
        *validating_policy(
            "queuectl-lease",
            [rule(("coordination.k8s.io", "*", "leases"), "DELETE")],
            [
                {
                    "name": "is-ours",
                    "expression": f"request.namespace == {json.dumps(namespace)}"
                    f" && oldObject.metadata.name == {json.dumps(LEASE)}",
                }
            ],
            [
                (
                    f"{_CLEANS_UP} || {_MAY_RELEASE}",
                    (
                        "this Lease holds the fence that keeps earlier leaders from writing: only who may 'release'"
                        f" podgroups.{GROUP} in this namespace deletes it"
                    ),
                )
            ],
        ),
    ]


def policies(user: str = USER, namespace: str = NAMESPACE) -> list[Json]:
    """All policies and bindings, in the order in which to apply them."""
    return [*mutating(), *guarding(), *bounding(user, namespace)]
