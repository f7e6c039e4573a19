"""What tables show of queues, gangs, nodes and pools: headers, and rows from the JSON API's objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from queuectl.cli.options import GANGS, NODES, POOLS, QUEUES
from queuectl.cli.text import ago
from queuectl.contract.home import GROUP

Json = dict[str, Any]
Row = list[object]


def full_name(kind: str, item: Json) -> str:
    """As ``-o name`` prints it; every verb takes it back."""
    name = item["metadata"]["name"]
    kinds = {QUEUES: f"queue.{GROUP}", GANGS: f"podgroup.{GROUP}", NODES: "node", POOLS: f"pool.{GROUP}"}
    return f"{kinds[kind]}/{name}"


def key(item: Json) -> tuple[str, str, str]:
    """Tells an object from all others of its kind, over time."""
    meta = item["metadata"]
    return meta.get("namespace", ""), meta["name"], meta.get("uid", "")


def headers(kind: str, *, wide: bool, namespaces: bool) -> list[str]:
    """Column names."""
    match kind:
        case "queues":
            more = ["parent", "weight", "priority"] if wide else []
            pool = ["pool"] if wide else []
            return [
                "name",
                "state",
                "pending",
                "admitted",
                "running",
                *pool,
                "resource",
                "used",
                "quota",
                "limit",
                "wanted",
                *more,
            ]
        case "gangs":
            first = ["namespace"] if namespaces else []
            more = ["priority", "owner", "round", "requeues", "nodes", "message"] if wide else []
            return [*first, "name", "queue", "phase", "running", "position", "reason", "age", *more]
        case "nodes":
            more = ["domains", "pools"] if wide else []
            return ["name", "status", "resource", "used", "allocatable", "free", *more]
        case _:
            more = ["selector", "topology", "counted"] if wide else []
            return ["name", "nodes", "usable", "resource", "used", "allocatable", "free", *more]


def rows(
    kind: str, items: Iterable[Json], shown: Sequence[str], as_of: str, *, wide: bool, namespaces: bool
) -> list[Row]:
    """The rows of these objects; all but gangs have one for each resource in ``shown`` that they know.

    Queues have, when ``wide``, one more for each resource of each pool in which they use or list something.
    """
    found: list[Row] = []
    for item in items:
        match kind:
            case "queues":
                found += _queue(item, shown, wide=wide)
            case "gangs":
                found.append(_gang(item, as_of, wide=wide, namespaces=namespaces))
            case "nodes":
                found += _node(item, shown, wide=wide)
            case _:
                found += _pool(item, shown, wide=wide)
    return found


def resources(items: Iterable[Json], *, wide: bool) -> list[str]:
    """Which resources to show: devices if there are any (what people queue for), all when ``wide``."""
    names = sorted({resource["name"] for item in items for resource in item.get("resources", ())})
    devices = [name for name in names if "/" in name and not name.startswith("hugepages-")]
    return names if wide or not devices else devices


def since(at: str | None, now: str) -> str | None:
    """Time from ``at`` to ``now``, both RFC 3339."""
    if not at or not now:
        return None
    passed = datetime.fromisoformat(now) - datetime.fromisoformat(at)
    return ago(round(passed.total_seconds() * 1000))


def owner(item: Json) -> str | None:
    """``Job/train``; None for a pod on its own and for a PodGroup written by hand."""
    return f"{item['owner']['kind']}/{item['owner']['name']}" if item.get("owner") else None


def spread(nodes: Sequence[Json], most: int = 4) -> str | None:
    """``gpu-01:4,gpu-02:4``: nodes and the pods on each, the first few."""
    listed = [f"{node['name']}:{node['pods']}" for node in nodes[:most]]
    return ",".join([*listed, *([f"+{len(nodes) - most}"] if len(nodes) > most else [])]) or None


def selector(item: Json) -> str | None:
    """``gpu=h100,zone=a``: the labels of a pool's nodes; None where it has all nodes."""
    return ",".join(f"{key}={value}" for key, value in item["selector"].items()) or None


def _queue(item: Json, shown: Sequence[str], *, wide: bool) -> list[Row]:
    counts = item["counts"]
    name = "  " * (len(item["path"]) - 1) + item["metadata"]["name"]
    first: Row = [name, item["state"], counts["pending"], counts["admitted"], counts["running"]]
    more: Row = [item["parent"], item["weight"], item["priority"]] if wide else []
    known = [{"pool": "*", **one} for one in item["resources"] if one["name"] in shown]
    if wide:
        known += [{**one, "pending": None} for one in item["pools"] if one["name"] in shown]
    fields = [*(["pool"] if wide else []), "name", "used", "quota", "limit", "pending"]
    cells: list[Row] = [[one[field] for field in fields] for one in known]
    return [[*first, *cell, *more] for cell in cells or [[None] * len(fields)]]


def _gang(item: Json, as_of: str, *, wide: bool, namespaces: bool) -> Row:
    meta = item["metadata"]
    row: Row = [meta["namespace"]] if namespaces else []
    row += [meta["name"], item["queue"], item["phase"], f"{item['counts']['running']}/{item['minMember']}"]
    row += [item["position"], item["reason"], since(item["createdAt"], as_of)]
    if wide:
        row += [item["priority"], owner(item), item["round"], item["requeues"], spread(item["nodes"]), item["message"]]
    return row


def _node(item: Json, shown: Sequence[str], *, wide: bool) -> list[Row]:
    domains = ",".join(f"{one['level']}={one['name']}" for one in item["domains"])
    more: Row = [domains, ",".join(item["pools"]) or None] if wide else []
    known = [one for one in item["resources"] if one["name"] in shown]
    cells = [[one["name"], one["used"], one["allocatable"], one["free"]] for one in known]
    return [[item["metadata"]["name"], item["status"], *cell, *more] for cell in cells or [[None] * 4]]


def _pool(item: Json, shown: Sequence[str], *, wide: bool) -> list[Row]:
    first: Row = [item["metadata"]["name"], item["nodes"], item["usable"]]
    more: Row = [selector(item), item["topology"], ",".join(item["counted"]) or None] if wide else []
    known = [one for one in item["resources"] if one["name"] in shown]
    cells = [[one["name"], one["used"], one["allocatable"], one["free"]] for one in known]
    return [[*first, *cell, *more] for cell in cells or [[None] * 4]]
