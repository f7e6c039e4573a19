"""The parts of admission policies: rules, policies with their bindings, and the few CEL phrases that all of them use."""

from __future__ import annotations

import json
from typing import Any

from queuectl.contract.home import LEASE
from queuectl.contract.names import QUEUE_LABEL, UNMANAGED_LABEL

Json = dict[str, Any]
Kind = tuple[str, str, str]  # group, version, resource

POD: Kind = ("", "v1", "pods")
POD_STATUS: Kind = ("", "v1", "pods/status")
JOB: Kind = ("batch", "v1", "jobs")
JOB_SET: Kind = ("jobset.x-k8s.io", "*", "jobsets")
WORKER_SET: Kind = ("leaderworkerset.x-k8s.io", "*", "leaderworkersets")
DEPLOYMENT: Kind = ("apps", "v1", "deployments")
REPLICA_SET: Kind = ("apps", "v1", "replicasets")
STATEFUL_SET: Kind = ("apps", "v1", "statefulsets")
EVICTION: Kind = ("", "v1", "pods/eviction")
_API = "admissionregistration.k8s.io/v1"


def label(of: str, name: str) -> str:
    """CEL: the value of a label of this metadata, empty when it is not there."""
    return f"{of}.?labels[?'{name}'].orValue('')"


# Condition on the object of a request. A label with an empty value counts as none.
MANAGED = {
    "name": "managed",
    "expression": f"{label('object.metadata', QUEUE_LABEL)} != ''"
    f" && {label('object.metadata', UNMANAGED_LABEL)} != 'true'",
}


def gated(of: str, gate: str) -> str:
    """CEL: whether this pod carries the scheduling gate."""
    return f"{of}.spec.?schedulingGates.orValue([]).exists(g, g.name == '{gate}')"


def same(part: str, fields: tuple[str, ...]) -> str:
    """CEL: these fields of this part of the object are as before."""
    return " && ".join(f"object.?{part}.?{field} == oldObject.?{part}.?{field}" for field in fields)


def only(what: str, ours: tuple[str, ...]) -> str:
    """CEL: entries of this map of the metadata are as before, except those of these names."""
    new, old = f"object.metadata.?{what}.orValue({{}})", f"oldObject.metadata.?{what}.orValue({{}})"
    names = json.dumps(list(ours))
    return f"{new}.all(k, k in {names} || (k in {old} && {old}[k] == {new}[k])) && {old}.all(k, k in {names} || k in {new})"


def rule(kind: Kind, *operations: str) -> Json:
    """The requests that a policy looks at."""
    group, version, resource = kind
    return {"apiGroups": [group], "apiVersions": [version], "operations": list(operations), "resources": [resource]}


def mutating_policy(
    name: str, rules: list[Json], conditions: list[Json], expression: str, selector: Json | None = None
) -> list[Json]:
    """A policy that merges ``expression`` (the fields of an Object) into the request's object, and its binding.

    ``selector`` chooses namespaces by their labels.
    """
    constraints: Json = {"resourceRules": rules} | ({"namespaceSelector": selector} if selector else {})
    return [
        {
            "apiVersion": _API,
            "kind": "MutatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "matchConstraints": constraints,
                "matchConditions": conditions,
                "failurePolicy": "Fail",
                "reinvocationPolicy": "IfNeeded",  # another policy or webhook may have added the label
                "mutations": [
                    {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": f"Object{{{expression}}}"}}
                ],
            },
        },
        {
            "apiVersion": _API,
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name},
        },
    ]


def validating_policy(
    name: str,
    rules: list[Json],
    conditions: list[Json],
    validations: list[tuple[str, str]],
    *,
    variables: dict[str, str] | None = None,
    lease_in: str = "",
) -> list[Json]:
    """A policy of (expression, message) pairs that must all hold, and its binding.

    With ``lease_in``, our Lease in that namespace is its parameter.
    """
    spec: Json = {
        "matchConstraints": {"resourceRules": rules},
        "matchConditions": conditions,
        "failurePolicy": "Fail",
        "variables": [{"name": key, "expression": value} for key, value in (variables or {}).items()],
        "validations": [{"expression": expression, "message": message} for expression, message in validations],
    }
    binding: Json = {"policyName": name, "validationActions": ["Deny"]}
    if lease_in:
        spec["paramKind"] = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        # Before anybody has led there is no lease, and nobody whose writes could be stale.
        binding["paramRef"] = {"name": LEASE, "namespace": lease_in, "parameterNotFoundAction": "Allow"}
    return [
        {
            "apiVersion": _API,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {key: value for key, value in spec.items() if value},
        },
        {
            "apiVersion": _API,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": binding,
        },
    ]
