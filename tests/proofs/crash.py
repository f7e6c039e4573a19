"""Claims about crashes and pauses: a controller killed at any committed write, or stopped between check and write."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from queuectl.contract.v1alpha1 import parse_slots
from tests.proofs.judge import judge
from tests.proofs.stage import USER, Running, Stage, gated, groups, job, jobs, live, parsed, pods, queuectl
from tests.proofs.table import Proof
from tests.rig.audit import Event
from tests.rig.client import eventually
from tests.rig.nodes import gpu_nodes
from tests.rig.objects import Object
from tests.rig.proxy import Proxy, Request, Rule

COUNT, SIZE = 10, 16
SEED = 20261130


class Trial(Struct, frozen=True):
    """Kill after the ``index``-th committed write that matches."""

    step: str
    method: str
    target: str
    body: str
    index: int


def trials(sample: bool) -> list[Trial]:
    """20 seeded crash points, four for each step of the protocol (one release in the sample)."""
    chance = random.Random(SEED)
    status = r"/podgroups/[^/]+/status"
    steps = (
        ("create", "POST", r"/podgroups(\?|$)", "", COUNT),
        ("record", "PATCH", status, r'"admission":\{', COUNT),
        ("resume", "PATCH", r"/jobs/", "", COUNT // 2),
        ("release", "PATCH", r"/pods/(?!.*dryRun)", "", COUNT * SIZE),
        ("note", "PATCH", status, '"startedAt":"', COUNT),
    )
    drawn = [
        Trial(step, method, target, body, chance.randint(1, most))
        for step, method, target, body, most in steps
        for _ in range(4)
    ]
    return [drawn[13]] if sample else drawn


def step_of(event: Event) -> str:
    """Which step of the protocol a stored write of the controller is."""
    body = event.request_object or {}
    match event.what:
        case "podgroups":
            return "create"
        case "podgroups/status":
            status = body.get("status") or {}
            if status.get("admission"):
                return "record"
            running = [c for c in status.get("conditions") or () if c["type"] == "Running" and c["status"] == "True"]
            return "note" if running and "startedAt" in status else "other status"
        case "jobs":
            return "resume" if (body.get("spec") or {}).get("suspend") is False else "suspend"
        case "pods":
            return "release"
        case _:
            return event.what


async def killed(proof: Proof, stage: Stage) -> None:
    """10 Jobs of 16 pods (half of them suspended at first); the process is killed after a write and a new one takes over."""
    nodes = gpu_nodes("crash", COUNT, SIZE)
    hit: Counter[str] = Counter()
    torn = mismatched = over = early = 0
    planned = trials(proof.sample)
    async with stage.scenario(nodes) as namespace, stage.tenant(namespace) as tenant:
        for number, trial in enumerate(planned):
            names = [f"t{number}-{i}" for i in range(COUNT)]
            async with Proxy(stage.control_plane.pki, stage.control_plane.kubeconfig(USER)) as proxy:
                if trial.index > 1:
                    proxy.delay(0, trial.method, trial.target, body=trial.body, times=trial.index - 1)
                rule = proxy.stall_reply(trial.method, trial.target, body=trial.body)
                async with stage.leader(kubeconfig=proxy.kubeconfig):
                    for i, name in enumerate(names):
                        await tenant.create(jobs(namespace), job(name, namespace, SIZE, suspend=i % 2 == 0))
                    await eventually(_hit(rule), 60, f"{trial.step} write {trial.index}")
                    committed = partial(_committed, stage, namespace, rule)
                    step = await eventually(committed, 10, f"{trial.step} write {trial.index} in the audit log")
                hit[step] += 1
            async with stage.leader() as second:
                torn += await _torn(stage, namespace, names)
                mismatched += await _mismatched(stage, namespace, second)
            verdict = judge(stage.audit.events(), namespace, USER, {n.name: n.gpus for n in nodes})
            over, early = max(over, verdict.most_over), len(verdict.before_record) + len(verdict.by_others)
            await _clear(stage, namespace)
    least = 0 if proof.sample else 3
    steps = ("create", "record", "resume", "release", "note")
    proof.row(
        f"killed after {len(planned)} seeded committed writes of a {COUNT} × {SIZE}-pod release: hits by step",
        ", ".join(f"{step} {hit[step]}" for step in sorted(hit)),
        f"each step ≥ {least}",
        all(hit[step] >= least for step in steps) and sum(hit.values()) == len(planned),
    )
    proof.row("… after the restart every gang is whole", f"{torn} torn of {len(planned) * COUNT}", "0", torn == 0)
    proof.row(
        "… `get queues -o json` equals a recount from pods and records",
        f"{mismatched} differences",
        "0",
        mismatched == 0,
    )
    proof.row(
        "… Σ released requests ≤ allocatable on every node at every audit event",
        f"at most {over} GPUs over",
        "0",
        over == 0,
    )
    proof.row("… no gate removed before its record or by others", f"{early}", "0", early == 0)


def _hit(rule: Rule) -> Callable[[], bool]:
    return lambda: rule.hits >= 1


def _answered(held: list[Request]) -> Callable[[], bool]:
    return lambda: all(request.status for request in held)


def _ended(controller: Running) -> Callable[[], bool]:
    return lambda: controller.process.returncode is not None


def _committed(stage: Stage, namespace: str, rule: Rule) -> str:
    """The step of the write whose answer is held back, once the audit log shows it as stored; "" before that."""
    path = rule.requests[0].path
    stored = [
        e
        for e in stage.audit.events()
        if e.stored and e.user.username == USER and e.object_ref.namespace == namespace
        if e.request_uri.partition("?")[0] == path
    ]
    return step_of(stored[-1]) if stored else ""


async def _torn(stage: Stage, namespace: str, names: list[str]) -> int:
    """How many gangs do not become whole."""

    async def whole() -> bool:
        bound: Counter[str] = Counter()
        for pod in await stage.admin.list(pods(namespace)):
            if not gated(pod) and pod["spec"].get("nodeName"):
                bound[pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]] += 1
        return all(bound[name] == SIZE for name in names)

    try:
        await eventually(whole, 60, "every gang whole")
    except AssertionError:
        found = await stage.admin.list(pods(namespace))
        counts = Counter(p["metadata"]["labels"]["batch.kubernetes.io/job-name"] for p in found if live(p))
        return sum(counts[name] != SIZE for name in names)
    return 0


async def _mismatched(stage: Stage, namespace: str, controller: Running) -> int:
    """Differences between what the controller says of the queue and a recount, once it has seen the last event."""
    found = await stage.admin.list(pods(namespace))
    released = sum(live(pod) for pod in found)
    recorded = sum(map(_recorded_slots, await stage.admin.list(groups(namespace))))
    said: list[str] = []

    async def equal() -> bool:
        code, out, err = await queuectl("get", "queues", "-o", "json", "--server", controller.url)
        if code != 0:
            raise AssertionError(err)
        queue = next(q for q in parsed(out)["items"] if q["metadata"]["name"] == namespace)
        said[:] = [next((r["used"] for r in queue["resources"] if r["name"] == "nvidia.com/gpu"), "0")]
        return said[0] == str(released) == str(recorded)

    try:
        await eventually(equal, 10, "the queue's usage")
    except AssertionError:
        print(f"# usage {said}, pods {released}, records {recorded}", flush=True)
        return 1
    return 0


def _recorded_slots(group: Object) -> int:
    admission = (group.get("status") or {}).get("admission") or {}
    return sum(len(parse_slots(one["slots"])) for one in admission.get("assignments") or ())


async def _clear(stage: Stage, namespace: str) -> None:
    """Between two trials: no Jobs, PodGroups or pods."""
    await stage.admin.delete(jobs(namespace), {"propagationPolicy": "Background"})

    async def empty() -> bool:
        return not await stage.admin.list(pods(namespace)) and not await stage.admin.list(groups(namespace))

    await eventually(empty, 60, "the namespace to be empty")


async def paused(proof: Proof, stage: Stage) -> None:
    """SIGSTOP between check and write, for the record and for a pod's patch, while a second controller takes over."""
    cases = [("patch", r"/pods/(?!.*dryRun)"), ("record", r"/podgroups/[^/]+/status")]
    for what, target in cases[:1] if proof.sample else cases:
        nodes = gpu_nodes(f"stop-{what}", 2, 4)
        async with stage.scenario(nodes) as namespace, stage.tenant(namespace) as tenant:
            async with Proxy(stage.control_plane.pki, stage.control_plane.kubeconfig(USER)) as proxy:
                rule = proxy.stall("PATCH", target)
                first = stage.controller(kubeconfig=proxy.kubeconfig)
                await first.leads()
                await tenant.create(jobs(namespace), job("train", namespace, 8))
                await tenant.create(jobs(namespace), job("other", namespace, 8))
                await eventually(_hit(rule), 30, f"a {what} on its way")
                first.process.signal(signal.SIGSTOP)
                seen = len(proxy.requests)
                second = stage.controller()
                await second.leads()

                async def one_bound(namespace: str = namespace) -> bool:
                    found = await stage.admin.list(pods(namespace))
                    return sum(not gated(p) and bool(p["spec"].get("nodeName")) for p in found) == 8

                await eventually(one_bound, 30, "the second controller's gang bound")
                held = [
                    r
                    for r in proxy.requests[:seen]
                    if r.method == "PATCH" and rule.target.search(f"{r.path}?{r.query}")
                ]
                proxy.lift(rule)
                await eventually(_answered(held), 10, "the held writes answered")
                answers = Counter(r.status for r in held)
                first.process.signal(signal.SIGCONT)
                ended = await eventually(_ended(first), 20, "the first to end")
            found = await stage.admin.list(pods(namespace))
            released = sum(live(pod) for pod in found)
            verdict = judge(stage.audit.events(), namespace, USER, {n.name: n.gpus for n in nodes})
            refused = sum(count for status, count in answers.items() if status in (409, 422))
            proof.row(
                f"stopped (SIGSTOP) between check and write of a {what} while a second controller takes over",
                f"late writes {dict(answers)}, {released} pods released, {verdict.most_over} GPUs over, first ended: {ended}",
                "all refused (409 or 422), 8 released, 0 over",
                refused == sum(answers.values()) > 0 and released == 8 and verdict.clean,
            )
            second.kill()
            first.kill()


async def all_crashes(proof: Proof, stage: Stage) -> None:
    """Every claim of this file."""
    await proof.part("killed by pid", lambda: killed(proof, stage))
    await proof.part("paused", lambda: paused(proof, stage))
