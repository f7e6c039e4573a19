"""The audit reader on lines written by hand: no control plane needed."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.rig.audit import GATE, AuditLog, Event, bindings, evictions, gate_removals, in_order, reads

TIME = "2026-01-02T03:04:05.000006Z"


def line(
    verb: str,
    version: int,
    gates: list[str] | None = None,
    *,
    uid: str = "u1",
    user: str = "someone",
    code: int = 200,
    stage: str = "ResponseComplete",
    resource: str = "pods",
    subresource: str = "",
    request: Any = None,
    reply: Any = None,
    uri: str = "/api/v1/namespaces/n/pods/a",
    time: str = TIME,
) -> str:
    ref = {"resource": resource, "namespace": "n", "name": "a", "apiVersion": "v1"}
    if subresource:
        ref["subresource"] = subresource
    pod = {
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "n", "uid": uid, "resourceVersion": str(version)},
        "spec": {} if gates is None else {"schedulingGates": [{"name": gate} for gate in gates]},
    }
    return json.dumps(
        {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "RequestResponse",
            "auditID": "1",
            "stage": stage,
            "requestURI": uri,
            "verb": verb,
            "user": {"username": user, "groups": ["g"], "extra": {"unknown": ["x"]}},
            "objectRef": ref,
            "responseStatus": {"metadata": {}, "code": code},
            "requestObject": request,
            "responseObject": pod if reply is None else reply,
            "requestReceivedTimestamp": time,
            "stageTimestamp": time,
        }
    )


def events(*lines: str) -> list[Event]:
    return [msgspec.json.decode(text, type=Event) for text in lines]


def test_fields() -> None:
    (event,) = events(line("patch", 7, subresource="status", user="kubelet"))
    assert (event.user.username, event.verb, event.what, event.version) == ("kubelet", "patch", "pods/status", 7)
    assert (event.name, event.uid, event.response_status.code) == ("a", "u1", 200)
    assert event.stage_timestamp == dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)


def test_a_removal_is_found_in_the_order_of_the_store() -> None:
    found = gate_removals(events(line("patch", 9, user="queuectl"), line("create", 5, [GATE]), line("patch", 12)))
    assert [(r.user, r.version, r.name, r.uid) for r in found] == [("queuectl", 9, "a", "u1")]


def test_only_our_gate_counts() -> None:
    log = events(line("create", 5, [GATE, "other"]), line("patch", 6, [GATE]), line("patch", 7, []))
    assert [r.version for r in gate_removals(log)] == [7]


def test_no_removal_where_nothing_was_stored() -> None:
    log = events(
        line("create", 5, [GATE]),
        line("patch", 6, uri="/api/v1/namespaces/n/pods/a?dryRun=All"),
        line("patch", 0, code=409, reply={"kind": "Status", "metadata": {}, "code": 409}),
        line("delete", 8, [GATE]),
    )
    assert gate_removals(log) == []


def test_pods_of_one_name_are_told_apart_by_uid() -> None:
    log = events(line("create", 5, [GATE]), line("create", 9, None, uid="u2"), line("patch", 10, uid="u2"))
    assert gate_removals(log) == []


def test_a_removal_without_the_creation() -> None:
    request = {"spec": {"schedulingGates": [{"name": GATE, "$patch": "delete"}]}}
    assert [r.version for r in gate_removals(events(line("patch", 6, request=request)))] == [6]
    assert gate_removals(events(line("patch", 6, request={"metadata": {}}))) == []


def test_bindings_and_evictions() -> None:
    success = {"kind": "Status", "metadata": {}, "status": "Success"}
    target = {"target": {"kind": "Node", "name": "node-1"}}
    log = events(
        line("create", 0, subresource="binding", user="system:kube-scheduler", code=201, request=target, reply=success),
        line("create", 0, subresource="binding", user="other", code=409, request=target, reply=success),
        line("create", 0, subresource="eviction", code=201, reply=success),
    )
    assert [(b.name, b.node, b.user) for b in bindings(log)] == [("a", "node-1", "system:kube-scheduler")]
    assert len(evictions(log)) == 1
    assert in_order(log) == []


def test_reads_of_a_user_since_a_time() -> None:
    later = TIME.replace("03:04", "03:05")
    log = events(
        line("list", 0, user="queuectl"),
        line("list", 0, user="queuectl", time=later),
        line("list", 0, user="other", time=later),
        line("watch", 0, user="queuectl", stage="ResponseStarted", time=later),
        line("watch", 0, user="queuectl", time=later),
        line("watch", 0, user="queuectl", code=410, time=later),
        line("get", 0, user="queuectl", time=later),
    )
    since = dt.datetime(2026, 1, 2, 3, 5, tzinfo=dt.UTC)
    assert [(e.verb, e.response_status.code) for e in reads(log, "queuectl", since=since)] == [
        ("list", 200),
        ("watch", 200),
        ("watch", 410),
    ]
    assert len(list(reads(log, "queuectl", verbs=["get"]))) == 1


def test_incremental_reading(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = AuditLog(path)
    assert log.events() == []
    first, second = line("create", 5, [GATE]), line("patch", 6)
    path.write_text(first + "\n" + second[:50])
    assert len(log.events()) == 1  # the half line waits
    with path.open("a") as file:
        file.write(second[50:] + "\n")
    assert [e.version for e in log.events()] == [5, 6]
    assert AuditLog(path, from_end=True).events() == []


def test_a_broken_line_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text('{"kind": "Event"}\n')
    with pytest.raises(msgspec.ValidationError):
        AuditLog(path).events()
