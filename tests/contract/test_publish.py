"""``api/`` is what the code says, complete, and small enough to apply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from queuectl.contract import names
from queuectl.contract.home import LEASE, NAMESPACE, USER
from queuectl.contract.policies import FENCE_POLICIES, STALE_FENCE, SUMMARY, policies
from queuectl.contract.publish import FOLDER, main, manifests, render
from queuectl.contract.rbac import rbac, subject
from queuectl.contract.v1alpha1 import validate
from queuectl.contract.vocabulary import examples
from queuectl.model.reasons import Reason

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / FOLDER / "examples").glob("*.yaml"))


def test_the_folder_is_up_to_date() -> None:
    for path, text in render().items():
        assert (ROOT / path).read_text() == text, f"{path}: run `python -m queuectl.contract.publish`"
    extra = {str(path.relative_to(ROOT)) for path in (ROOT / FOLDER).iterdir() if path.is_file()} - set(render())
    assert extra == set()


def test_files_hold_all_manifests_and_nothing_else() -> None:
    documents = [
        document for path, text in render().items() if path.endswith(".yaml") for document in yaml.safe_load_all(text)
    ]
    assert sorted(map(json.dumps, documents)) == sorted(map(json.dumps, manifests()))


def test_main_writes_below_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main()
    (tmp_path / "pyproject.toml").touch()
    main()
    assert {str(path.relative_to(tmp_path)) for path in (tmp_path / "api").rglob("*.*")} >= set(render())


def test_apply_order() -> None:
    """What others refer to comes first: namespace, definitions, roles before bindings, policies before theirs."""
    kinds = [one["kind"] for one in manifests()]
    assert kinds[0] == "Namespace"
    assert kinds.index("CustomResourceDefinition") < kinds.index("ClusterRole") < kinds.index("ClusterRoleBinding")
    assert kinds.index("Role") < kinds.index("RoleBinding")
    assert kinds.index("ClusterRoleBinding") < kinds.index("MutatingAdmissionPolicy")


def test_client_side_apply_is_possible() -> None:
    """Its annotation holds at most 262144 bytes."""
    assert max(len(json.dumps(one)) for one in manifests()) < 262_144


def test_every_policy_is_bound_once_and_described() -> None:
    bound: dict[str, str] = {}
    written: list[str] = []
    for one in policies():
        name = one["metadata"]["name"]
        assert name.startswith("queuectl-")
        if one["kind"].endswith("Binding"):
            bound[one["spec"]["policyName"]] = name
        else:
            written.append(name)
            assert one["spec"]["failurePolicy"] == "Fail"
    assert written == list(bound) == list(SUMMARY)


def test_the_fence_policies_say_what_the_controller_listens_for() -> None:
    """It takes a refusal that begins so for the word that another process leads."""
    said = {
        one["metadata"]["name"]
        for one in policies()
        for validation in one["spec"].get("validations", [])
        if validation["message"].startswith(STALE_FENCE)
    }
    assert said == set(FENCE_POLICIES)


def test_the_readme_knows_every_name_and_reason() -> None:
    text = render()[f"{FOLDER}/README.md"]
    ours = {value for key, value in vars(names).items() if key.isupper() and str(value).startswith("queuectl.io/")}
    ours -= {names.PREEMPTING}  # published with the code that writes it
    assert {name for name in ours if f"`{name}`" not in text} == set()
    assert {reason for reason in Reason if f"| `{reason}` |" not in text} == set()
    assert {name for name in SUMMARY if f"| `{name}` |" not in text} == set()
    fields = {"round", "requeue.requested", "requeue.suspendedByUs", "admission.assignments[].slots", "fence"}
    assert {name for name in fields if f"| `{name}` | " not in text} == set()
    assert names.PREEMPTING not in text


def test_every_reason_has_a_sentence_of_its_own_evidence() -> None:
    assert list(examples()) == list(Reason)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples(path: Path) -> None:
    for manifest in yaml.safe_load_all(path.read_text()):
        if manifest["apiVersion"].startswith("queuectl.io/"):
            validate(manifest["kind"], manifest)


def test_there_are_examples() -> None:
    assert {path.stem for path in EXAMPLES} >= {"queues", "pools", "topology", "podgroup", "job", "suspended-job"}


def rules(role: str) -> dict[str, set[str]]:
    (found,) = [one for one in rbac() if one["kind"] == "ClusterRole" and one["metadata"]["name"] == role]
    verbs: dict[str, set[str]] = {}
    for rule in found["rules"]:
        for resource in rule["resources"]:
            verbs.setdefault(resource, set()).update(rule["verbs"])
    return verbs


def test_the_controller_has_no_more_than_it_needs() -> None:
    follow = {"list", "watch"}
    read = {"get", *follow}
    assert rules("queuectl") == {
        "pods": {*read, "patch"},
        "pods/status": {"patch"},
        "pods/eviction": {"create"},
        "nodes": follow,
        "jobs": {*read, "patch"},
        "jobsets": {*read, "patch"},
        "leaderworkersets": follow,
        "replicasets": follow,
        "statefulsets": follow,
        "poddisruptionbudgets": {"list"},
        "priorityclasses": follow,
        "queues": follow,
        "pools": follow,
        "topologies": follow,
        "podgroups": {*read, "create", "release"},
        "queues/status": {"patch"},
        "podgroups/status": {"patch"},
    }


def test_in_its_own_namespace_it_has_its_lease() -> None:
    (role,) = [one for one in rbac() if one["kind"] == "Role"]
    assert [(rule["resources"], rule["verbs"], rule.get("resourceNames")) for rule in role["rules"]] == [
        (["leases"], ["create"], None),  # a create cannot be bound to a name
        (["leases"], ["get", "patch"], [LEASE]),
    ]


def test_nobody_else_gets_release_or_status() -> None:
    for one in rbac():
        for rule in one.get("rules", []):
            assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
            if one["metadata"]["name"] != "queuectl":
                assert "release" not in rule["verbs"]
                assert not any("/" in resource for resource in rule["resources"])


def test_other_users() -> None:
    assert subject("alice") == {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}
    assert subject("system:serviceaccount:a:b") == {"kind": "ServiceAccount", "namespace": "a", "name": "b"}
    alice = json.dumps(manifests("alice", "elsewhere"))
    assert USER not in alice
    assert NAMESPACE not in alice
    assert not any(one["kind"] == "ServiceAccount" for one in manifests("alice"))
