"""What a pod asks for, exactly as Kubernetes counts it, and what of its constraints is not modelled."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from queuectl.contract.foreign import PodSpec
from queuectl.contract.shapes import MOST, Shapes, unmodelled
from queuectl.model.gangs import Requirement, Term, Toleration
from queuectl.model.quantity import QuantityError

GIB = 2**30


def spec(**fields: Any) -> PodSpec:
    """A pod's spec from wire fields."""
    return msgspec.convert({"containers": [], **fields}, PodSpec)


def asks(cpu: str = "", **more: Any) -> dict[str, Any]:
    """A container."""
    return {"resources": {"requests": {"cpu": cpu}} if cpu else {}, **more}


@pytest.mark.parametrize(
    ("wire", "cpu"),
    [
        pytest.param({"containers": [asks("1"), asks("500m")]}, 1500, id="containers add up"),
        pytest.param(
            {"containers": [asks("1")], "initContainers": [asks("3"), asks("2")]}, 3000, id="the largest init"
        ),
        pytest.param(
            {"containers": [asks("1")], "initContainers": [asks("2", restartPolicy="Always"), asks("3")]},
            5000,
            id="an init container runs beside the sidecars before it",
        ),
        pytest.param(
            {"containers": [asks("1")], "initContainers": [asks("3"), asks("2", restartPolicy="Always")]},
            3000,
            id="but not beside those after it",
        ),
        pytest.param(
            {"containers": [asks("4")], "initContainers": [asks("2", restartPolicy="Always"), asks("1")]},
            6000,
            id="sidecars stay beside the containers",
        ),
        pytest.param({"containers": [asks("1")], "overhead": {"cpu": "250m"}}, 1250, id="overhead is added"),
        pytest.param(
            {"containers": [asks("1")], "resources": {"requests": {"cpu": "8"}}, "overhead": {"cpu": "1"}},
            9000,
            id="pod-level resources replace",
        ),
        pytest.param({"containers": [{"resources": {"limits": {"cpu": "2"}}}]}, 2000, id="a limit is a request"),
        pytest.param(
            {"containers": [{"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}]},
            1000,
            id="unless there is one",
        ),
    ],
)
def test_effective_requests(wire: dict[str, Any], cpu: int) -> None:
    """k8s.io/component-helpers/resource, PodRequests."""
    assert dict(Shapes().requests(spec(**wire))) == {"cpu": cpu, "pods": 1}


def test_units() -> None:
    """cpu in milli, GPUs in thousandths, memory in bytes; and every pod is one pod."""
    container = {"resources": {"limits": {"nvidia.com/gpu": "2", "memory": "64Gi", "cpu": "1"}}}
    assert Shapes().requests(spec(containers=[container])) == (
        ("cpu", 1000),
        ("memory", 64 * GIB),
        ("nvidia.com/gpu", 2000),
        ("pods", 1),
    )


def memory(*texts: str) -> dict[str, Any]:
    """Containers that ask for so much memory each, and for one cpu."""
    return {"containers": [{"resources": {"requests": {"memory": text, "cpu": "1"}}} for text in texts]}


@pytest.mark.parametrize(
    "wire",
    [
        memory("7Ei"),
        memory("7Ei", "7Ei"),
        memory("5Pi", "5Pi"),
        {**memory("5Pi"), "overhead": {"memory": "5Pi"}},
        {**memory("1"), "initContainers": [{**memory("7Ei")["containers"][0], "restartPolicy": "Always"}] * 2},
        {**memory("1"), "resources": {"requests": {"memory": "7Ei"}}},
    ],
)
def test_more_than_can_be_counted_is_refused_by_name(wire: dict[str, Any]) -> None:
    """Each quantity is one that the API server stores, but nothing that adds them could: not Go's int64, not our columns."""
    with pytest.raises(QuantityError, match=r"memory: .* more than any node"):
        Shapes().of(spec(**wire))


@pytest.mark.parametrize("wire", [memory("7Ei", "7Ei"), memory("plenty", "1Gi"), memory("9" * 1000, "9" * 1000)])
def test_a_pod_that_is_there_takes_all_of_what_it_asks_for_beyond_counting(wire: dict[str, Any]) -> None:
    """Its node is full of that, and of that alone."""
    requests, problem = Shapes().held(spec(**wire))
    assert requests == (("cpu", 2000), ("memory", MOST), ("pods", 1))
    assert problem
    shape, same = Shapes().shaped(spec(**wire))
    assert (shape.requests, same) == (requests, problem)
    assert 1000 * MOST < 2**63


def test_a_pod_that_can_be_read_takes_what_it_asks_for() -> None:
    """And nothing is wrong with it."""
    assert Shapes().held(spec(**memory("1Gi"))) == ((("cpu", 1000), ("memory", GIB), ("pods", 1)), "")


def test_equal_pods_share_one_shape() -> None:
    """Order of selectors, expressions and tolerations does not matter, nor do the tolerations that admission adds."""
    shapes = Shapes()
    added = [
        {"key": f"node.kubernetes.io/{k}", "operator": "Exists", "effect": "NoExecute"}
        for k in ("not-ready", "unreachable")
    ]
    one = spec(
        containers=[asks("1")], nodeSelector={"a": "1", "b": "2"}, tolerations=[{"key": "x", "operator": "Exists"}]
    )
    other = spec(
        containers=[asks("1000m")],
        nodeSelector={"b": "2", "a": "1"},
        tolerations=[*added, {"key": "x", "operator": "Exists"}],
    )
    assert shapes.of(one) == shapes.of(other)
    assert shapes.of(one) is shapes.of(
        spec(
            containers=[asks("1")], nodeSelector={"a": "1", "b": "2"}, tolerations=[{"key": "x", "operator": "Exists"}]
        )
    )
    assert shapes.of(one).tolerations == (Toleration("x", "Exists"),)


def test_affinity_keeps_its_terms() -> None:
    """OR of terms, AND inside; no terms at all matches no node, which is not the same as no affinity."""

    def required(*terms: Any) -> PodSpec:
        return spec(
            affinity={
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
            }
        )

    term = {
        "matchExpressions": [
            {"key": "zone", "operator": "In", "values": ["b", "a"]},
            {"key": "gpu", "operator": "Exists"},
        ]
    }
    assert Shapes().of(required(term)).affinity == (
        Term((Requirement("gpu", "Exists"), Requirement("zone", "In", ("a", "b")))),
    )
    assert Shapes().of(required()).affinity == ()
    assert Shapes().of(spec()).affinity is None


@pytest.mark.parametrize(
    ("wire", "words"),
    [
        ({"containers": [{"ports": [{"hostPort": 80, "containerPort": 80}]}]}, ["host port 80"]),
        ({"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}, ["volume claim data"]),
        ({"volumes": [{"name": "scratch", "ephemeral": {}}]}, ["ephemeral volume scratch"]),
        ({"volumes": [{"name": "shm", "emptyDir": {}}]}, []),
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            ["required pod affinity"],
        ),
        ({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}}, []),
        (
            {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            ["required pod anti-affinity"],
        ),
        (
            {"topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]},
            ["hard topology spread over zone"],
        ),
        ({"topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]}, []),
        ({"resourceClaims": [{"name": "gpu"}]}, ["resource claims"]),
        ({"schedulerName": "volcano"}, ["scheduler volcano"]),
        ({"schedulerName": "default-scheduler"}, []),
    ],
)
def test_what_is_not_modelled_is_named(wire: dict[str, Any], words: list[str]) -> None:
    """Required constraints only; preferences do not decide whether a pod may run."""
    assert list(unmodelled(spec(**wire))) == words


def test_the_table_of_shapes_is_bounded() -> None:
    """A cluster of ever new shapes does not grow it without end, and equality outlives a clearing."""
    shapes = Shapes(limit=10)
    first = shapes.of(spec(containers=[asks("1")]))
    for cpu in range(1, 50):
        shapes.of(spec(containers=[asks(f"{cpu}m")]))
    assert len(shapes._shapes) <= 10
    assert shapes.of(spec(containers=[asks("1")])) == first
