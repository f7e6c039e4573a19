"""Who holds what on which node, for one resource."""

from __future__ import annotations

from typing import Any

import pytest

from queuectl.contract import foreign
from queuectl.model.gangs import Gang, Member, Place, Record, Role, Shape, Stage
from queuectl.serve.occupancy import Occupants, amounts
from tests.serve import standin
from tests.serve.standin import GPU, story
from tests.serve.test_api import asking, get

Json = dict[str, Any]


async def test_racks_with_their_nodes_and_whose_devices_are_in_use() -> None:
    async with asking(story()) as client:
        found = await get(client, "/api/v1/occupancy")
    vision = {
        "namespace": "ml",
        "name": "job-train-aaaaa",
        "label": "train",
        "queue": "vision",
        "pods": 1,
        "amount": "4",
    }
    shell = {"namespace": "nlp", "name": "shell", "label": "shell", "queue": "language", "pods": 1, "amount": "1"}

    def host(number: int, used: int, parts: list[Json], *, usable: bool = True) -> Json:
        name, free = f"gpu-{number}", str(4 - used)
        state = "Ready" if usable else "Cordoned"
        common = {
            "name": name,
            "usable": usable,
            "status": state,
            "allocatable": "4",
            "used": str(used),
            "free": free,
            "other": "0",
        }
        return {**common, "parts": parts}

    assert found == {
        "asOf": "2026-11-30T10:00:00.000Z",
        "leading": True,
        "kind": "Occupancy",
        "resource": GPU,
        "resources": [GPU, "cpu", "memory"],
        "allocatable": "16",
        "used": "9",
        "free": "3",
        "unusable": "4",
        "blocks": [
            {
                "domains": [{"level": "rack", "name": "r1"}],
                "allocatable": "8",
                "used": "8",
                "free": "0",
                "nodes": [host(0, 4, [vision]), host(1, 4, [vision])],
            },
            {
                "domains": [{"level": "rack", "name": "r2"}],
                "allocatable": "8",
                "used": "1",
                "free": "3",
                "nodes": [host(2, 1, [shell]), host(3, 0, [], usable=False)],
            },
        ],
    }


async def test_pods_of_no_queue_and_nodes_of_no_rack_are_told_apart() -> None:
    here = story()
    lost = standin.node("lost", "")
    del lost["metadata"]["labels"]["example.com/rack"]
    stranger = standin.pod("stranger", "", 2, namespace="kube-system", node_name="lost")
    stranger["metadata"]["labels"] = {}
    here.see(foreign.NODES, lost)
    here.see(foreign.PODS, stranger)
    here.lead()
    async with asking(here) as client:
        found = await get(client, "/api/v1/occupancy?resource=cpu")
    last = found["blocks"][-1]
    assert found["resource"] == "cpu"
    assert last["domains"] == []
    assert [(node["name"], node["used"], node["other"], node["parts"]) for node in last["nodes"]] == [
        ("lost", "1", "1", [])
    ]


@pytest.mark.parametrize(
    ("charged", "held"),
    [
        ((("n0", 1), ("n1", 2)), {"n0": 1000, "n1": 8000 + 8000}),  # as recorded
        ((("n0", 2), ("n1", 2)), {"n0": 1000 + 8000, "n1": 16000}),  # an extra worker on n0: its pods tell
    ],
)
def test_roles_that_ask_for_different_amounts(charged: tuple[tuple[str, int], ...], held: dict[str, int]) -> None:
    """A leader with one GPU and workers with eight."""
    small, large = (Shape(requests=((GPU, amount),)) for amount in (1000, 8000))
    roles = (Role("leader", 1, 1, small), Role("worker", 2, 4, large))
    record = Record(1, (Place(0, "n0"), Place(1, "n1"), Place(2, "n1")))
    gang = Gang(uid="g", namespace="a", name="g", queue="q", roles=roles, record=record)
    pods = [("leader", "n0", small), ("worker", "n0", large), ("worker", "n1", large), ("worker", "n1", large)]
    members = [
        Member(uid=f"p{i}", gang="g", name=f"p{i}", shape=shape, stage=Stage.RUNNING, role=role, node=node)
        for i, (role, node, shape) in enumerate(pods)
    ]
    assert amounts(Occupants("", gang, members), charged, GPU) == held
