"""How long do 100,000 pods take from bytes to what we keep of them, and how much memory is that?

Run: ``python benchmarks/decode.py [count]``. One JSON line. Target: below 2 s and 100 MB, because a controller that starts
anew decides nothing before it has read every pod. The pods are realistic in what costs time: 5.9 KB each with managedFields,
500 to a page, as the API server sends them; no network, because only our part is asked about.
"""

from __future__ import annotations

import gc
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from queuectl.contract.foreign import PODS, Pod
from queuectl.control.ports import Upserted
from queuectl.drivers.kube.decode import decoders

PAGE = 500
POD_BYTES = 5900  # measured mean of pods with managedFields in clusters of training jobs
NODES = 10_000


def pages(count: int, *, bound: float = 0.9) -> Iterator[bytes]:
    """``count`` pods as the API server lists them, 500 a page, made one page at a time; ``bound`` is the share with a node.

    Names, UIDs, versions, nodes and owners differ from pod to pod; the bulk (environment, managedFields) does not.
    """
    before, after = _frame()
    for start in range(0, count, PAGE):
        end = min(start + PAGE, count)
        items = []
        for number in range(start, end):
            gang, rank = divmod(number, 8)
            node = f',"nodeName":"node-{number % NODES:05d}"' if number % 100 < bound * 100 else ""
            items.append(
                before
                % {
                    "name": f"train-{gang:06d}-{rank}-{number:05x}",
                    "namespace": f"team-{gang % 40:02d}",
                    "uid": f"{number:08x}-5b6e-4c3a-9d55-{number:012x}",
                    "version": 1_000_000 + number,
                    "job": f"train-{gang:06d}",
                    "job_uid": f"{gang:08x}-1111-4c3a-9d55-{gang:012x}",
                    "rank": rank,
                    "node": node,
                }
                + after
            )
        more = f',"continue":"page-{end}","remainingItemCount":{count - end}' if end < count else ""
        head = f'{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"2000000"{more}}},"items":['
        yield f"{head}{','.join(items)}]}}".encode()


def keep(pod: Pod) -> tuple[str, str, str, str | None]:
    """The least that anybody could keep of a pod."""
    meta = pod.metadata
    return meta.uid, meta.name, meta.resource_version, pod.spec.node_name


def measure(count: int = 100_000, reduce: Callable[[Pod], Any] = keep) -> dict[str, Any]:
    """Decode ``count`` pods page by page, keep ``reduce(pod)`` of each; seconds, and MB that stay afterwards.

    Making the pages is not timed. ``cpu_seconds`` is the number to compare on a machine that does other
    things too. Memory is the growth of the resident set, with all garbage collected.
    """
    decode = decoders(PODS.type).page
    kept: list[Any] = []
    seconds, cpu, size = 0.0, 0.0, 0
    warm = [reduce(event.object) for event in decode(next(pages(PAGE)))[0] if isinstance(event, Upserted)]
    del warm
    gc.collect()
    before = _resident()
    for page in pages(count):
        size += len(page)
        start, used = time.perf_counter(), time.process_time()
        events, _ = decode(page)
        kept.extend(reduce(event.object) for event in events if isinstance(event, Upserted))
        seconds += time.perf_counter() - start
        cpu += time.process_time() - used
    del page, events
    gc.collect()
    return {
        "benchmark": "decode",
        "pods": len(kept),
        "json_mb": round(size / 1e6),
        "bytes_per_pod": round(size / count),
        "seconds": round(seconds, 3),
        "cpu_seconds": round(cpu, 3),
        "us_per_pod": round(cpu / count * 1e6, 2),
        "kept_mb": round((_resident() - before) / 1e6, 1),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def _resident() -> int:
    """Bytes of resident memory of this process."""
    pages_held = int(Path("/proc/self/statm").read_text().split()[1])
    return pages_held * 4096


def _frame() -> tuple[str, str]:
    """A pod's JSON as a template for ``%``, and its padding to POD_BYTES."""
    gpu = {"nvidia.com/gpu": "8", "cpu": "96", "memory": "960Gi"}
    managed = [
        {
            "manager": manager,
            "operation": "Update",
            "apiVersion": "v1",
            "time": "2027-01-15T08:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {f"f:label-{n}": {} for n in range(12)}}, "f:spec": {"f:containers": {
                'k:{"name":"trainer"}': {f"f:field-{n}": {".": {}, f"f:inner-{n}": {}} for n in range(14)}}}},
        }
        for manager in ("kube-controller-manager", "queuectl", "kubelet")
    ]  # fmt: skip
    pod = {
        "metadata": {
            "name": "@name", "generateName": "train-", "namespace": "@namespace", "uid": "@uid",
            "resourceVersion": "@version", "creationTimestamp": "2027-01-15T08:00:00Z",
            "labels": {
                "queuectl.io/queue": "research", "batch.kubernetes.io/job-name": "@job", "job-name": "@job",
                "batch.kubernetes.io/job-completion-index": "@rank", "app": "trainer",
            },
            "annotations": {"batch.kubernetes.io/job-completion-index": "@rank", "example.com/owner": "someone"},
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": "@job", "uid": "@job_uid", "controller": True,
                "blockOwnerDeletion": True,
            }],
            "managedFields": managed,
        },
        "spec": {
            "volumes": [{"name": "token", "projected": {"defaultMode": 420}}, {"name": "shm", "emptyDir": {}}],
            "containers": [{
                "name": "trainer", "image": "registry.example.com/trainer:v1", "command": ["torchrun", "train.py"],
                "env": [{"name": f"SETTING_{n}", "value": f"value-{n}"} for n in range(8)],
                "resources": {"limits": gpu, "requests": gpu},
                "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
            }],
            "restartPolicy": "Never", "schedulerName": "default-scheduler", "priority": 0,
            "tolerations": [
                {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
            ],
            "preemptionPolicy": "Never", "@node": "",
        },
        "status": {
            "phase": "Running", "qosClass": "Guaranteed", "startTime": "2027-01-15T08:00:05Z",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": "2027-01-15T08:00:05Z"}
                for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            ],
        },
    }  # fmt: skip
    text = json.dumps(pod, separators=(",", ":")).replace("%", "%%").replace(',"@node":""', "%(node)s")
    for key in ("namespace", "name", "uid", "version", "job", "rank", "job_uid"):
        text = text.replace(f'"@{key}"', f'"%({key})s"')
    missing = max(0, POD_BYTES - len(text) - len(',"x":""'))
    return text[:-1], ',"x":"%s"}' % ("x" * missing)


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)))
