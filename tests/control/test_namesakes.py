"""A PodGroup that is deleted and made anew under its name, while the watch is still telling of the first."""

from __future__ import annotations

from typing import Any

import msgspec

from queuectl.contract import foreign
from queuectl.contract.foreign import Custom, Pod
from queuectl.control.ports import Deleted, Upserted
from queuectl.control.source import Source
from tests.control.tiny import spec

LABELS = {"queuectl.io/queue": "q", "queuectl.io/pod-group": "band"}


def group(uid: str, version: str) -> Custom:
    meta = {"name": "band", "namespace": "ns", "uid": uid, "resourceVersion": version}
    return msgspec.convert({"metadata": meta, "spec": {"queue": "q", "minMember": 1}}, Custom)


def pod() -> Pod:
    body: dict[str, Any] = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "p", "resourceVersion": "1", "labels": LABELS},
        "spec": {**spec(), "schedulingGates": [{"name": "queuectl.io/admission"}]},
        "status": {"phase": "Pending"},
    }
    return msgspec.convert(body, Pod)


def test_what_the_watch_still_tells_of_the_first_does_not_hide_the_second() -> None:
    """Our write to the first was refused, and reading back showed the second; only then its last change and its end are told."""
    source = Source()
    source.apply(foreign.POD_GROUPS, Upserted(group("first", "10")))
    source.apply(foreign.PODS, Upserted(pod()))
    assert list(source.members) == ["first"]
    source.apply(foreign.POD_GROUPS, Upserted(group("second", "13")))
    assert list(source.members) == ["second"]
    source.apply(foreign.POD_GROUPS, Upserted(group("first", "11")))
    assert list(source.groups) == ["second"]
    source.apply(foreign.POD_GROUPS, Deleted(group("first", "12")))
    source.apply(foreign.POD_GROUPS, Upserted(group("second", "13")))
    assert (list(source.groups), list(source.members)) == (["second"], ["second"])


def test_of_one_that_was_never_seen_nothing_is_taken_in() -> None:
    """It was made by a write whose answer was lost, and is gone: it makes no gang, and takes no members along."""
    source = Source()
    source.apply(foreign.POD_GROUPS, Upserted(group("second", "13")))
    source.apply(foreign.PODS, Upserted(pod()))
    assert source.apply(foreign.POD_GROUPS, Upserted(group("first", "10"))) == []
    assert source.apply(foreign.POD_GROUPS, Deleted(group("first", "12"))) == []
    assert (list(source.groups), list(source.members)) == (["second"], ["second"])


def test_the_second_takes_over_from_a_first_whose_end_is_still_to_be_told() -> None:
    """As ever: the later of two is the one that exists."""
    source = Source()
    source.apply(foreign.POD_GROUPS, Upserted(group("first", "10")))
    source.apply(foreign.PODS, Upserted(pod()))
    source.apply(foreign.POD_GROUPS, Upserted(group("second", "13")))
    source.apply(foreign.POD_GROUPS, Deleted(group("first", "12")))
    assert (list(source.groups), list(source.members)) == (["second"], ["second"])
