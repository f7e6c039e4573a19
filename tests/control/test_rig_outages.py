"""A whole controller whose connections, replies and processes are lost, on the real control plane."""

from __future__ import annotations

import asyncio

import pytest

from queuectl.contract.admission import POD, rule, validating_policy
from queuectl.contract.config import Configuration
from queuectl.control.clock import RealClock
from queuectl.control.loop import Controller
from queuectl.drivers.kube.cluster import KubeCluster
from queuectl.drivers.kube.session import Timing
from tests.control.troupe import Scene, ended, scene
from tests.proofs.stage import NAMESPACE, QUEUES, USER, Stage, job
from tests.rig.audit import reads
from tests.rig.client import Api, ApiError, eventually
from tests.rig.proxy import Proxy

pytestmark = [pytest.mark.rig, pytest.mark.asyncio(loop_scope="session")]
STATUS = r"/podgroups/[^/]+/status"
RELEASE = r"/pods/(?!.*dryRun)"
KINDS = 10  # each is listed once, and watched; JobSets are not installed here
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"


def lists(stage: Stage) -> int:
    """How often our account has read a whole collection."""
    return sum(e.verb == "list" or "sendInitialEvents" in e.request_uri for e in reads(stage.audit.events(), USER))


def proxy_of(stage: Stage) -> Proxy:
    """A proxy through which a controller acts as itself."""
    return Proxy(stage.control_plane.pki, stage.control_plane.kubeconfig(USER))


async def completes(play: Scene, *names: str) -> None:
    """Jobs complete, and none of their pods has failed."""
    for name in names:
        done = await play.stage.complete(play.namespace, name)
        assert not done["status"].get("failed"), done["status"]


async def test_everything_is_listed_once_and_again_only_when_it_expired(stage: Stage) -> None:
    """At the start, and after a take-over; then gangs come and go, all watches are cut, one expires: one list more."""
    start = lists(stage)
    async with proxy_of(stage) as proxy, scene(stage, 2, kubeconfig=proxy.kubeconfig) as play:
        before = lists(stage)
        assert KINDS <= before - start <= 2 * KINDS
        for name in ("a", "b", "c"):
            await play.job(name, 4, seconds=0.5)
        await completes(play, "a", "b", "c")
        assert proxy.cut("watch=1") == KINDS
        await eventually(lambda: proxy.watches() == KINDS, 20, "watches again")
        await play.job("d", 4, seconds=0.5)
        await completes(play, "d")
        assert lists(stage) == before
        assert proxy.expire(r"/pods\?") == 1
        await eventually(lambda: lists(stage) == before + 1 and proxy.watches() == KINDS, 20, "one list more")
        await play.job("e", 4, seconds=0.5)
        await completes(play, "e")
        assert lists(stage) == before + 1


async def test_lost_replies_and_a_server_that_has_enough(stage: Stage) -> None:
    """Every kind of write is committed without an answer, refused with 503 or put off with 429: no gang is torn for long."""
    async with proxy_of(stage) as proxy, scene(stage, 2, kubeconfig=proxy.kubeconfig) as play:
        lost = [
            proxy.cut_after_commit("POST", "/podgroups"),
            proxy.cut_after_commit("PATCH", STATUS, times=2),
            proxy.cut_after_commit("PATCH", RELEASE, times=3),
            proxy.cut_after_commit("PATCH", "/jobs/"),
        ]
        await play.job("suspended", 4, seconds=2, suspend=True)
        await play.job("gated", 4, seconds=2)
        await completes(play, "suspended", "gated")
        assert [one.hits for one in lost] == [1, 2, 3, 1]

        for status in (503, 429):  # on the one write that is left: nothing else happens that could remind us of it
            refused = proxy.answer(status, "PATCH", RELEASE, times=2, retry_after=1)
            await play.job(f"single-{status}", 1, seconds=0.5)
            await completes(play, f"single-{status}")
            assert refused.hits == 2

        busy = proxy.answer(503, "PATCH", STATUS, times=4)
        starved = proxy.answer(429, "PATCH", RELEASE, times=6, retry_after=1)
        fence = (await stage.admin.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/queuectl"))["spec"]
        await play.job("large", 8, seconds=2)
        await completes(play, "large")
        assert (busy.hits, starved.hits) == (4, 6)
        lease = (await stage.admin.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/queuectl"))["spec"]
        assert lease["leaseTransitions"] == fence["leaseTransitions"]

        await play.job("again", 8, seconds=3)
        await play.run(8, "again")
        lost = [proxy.cut_after_commit("PATCH", target, times=2) for target in ("/jobs/", STATUS)]
        name = (await play.group("again"))["metadata"]["name"]
        await play.tenant.patch(f"{play.groups}/{name}", {"metadata": {"annotations": {"queuectl.io/requeue": "now"}}})
        await completes(play, "again")
        assert [one.hits for one in lost] == [2, 2]

        # What people read is written in the end.
        unread = [proxy.answer(503, "PATCH", target, times=2) for target in (STATUS, "/queues/")]
        await stage.admin.patch(f"{QUEUES}/{play.namespace}", {"spec": {"state": "Held"}})
        await play.job("held", 2)
        await play.waits_for("held", "QueueHeld")

        async def counted() -> bool:
            counts = (await stage.admin.get(f"{QUEUES}/{play.namespace}"))["status"]["counts"]
            return bool(counts["pending"] == 1)

        await eventually(counted, 20, "the queue's status")
        assert [one.hits for one in unread] == [2, 2]


async def test_a_half_open_watch_is_noticed_and_resumed(stage: Stage) -> None:
    """Within the watch's own time and without a list; a resumed watch on which nothing happens is no old view."""
    timing = Timing(connect=2, request=2, opening=3, watch=(2, 3), silence=1)
    async with proxy_of(stage) as proxy, scene(stage, 1) as play:
        await ended(play.controller)
        async with KubeCluster.connect(proxy.kubeconfig, timing=timing) as cluster:
            controller = Controller(cluster, RealClock(), Configuration(lease_duration="2s"), "in-process")
            running = asyncio.create_task(controller.run())
            try:
                await eventually(lambda: controller.leading, 20, "leading")
                before = lists(stage)
                frozen = proxy.freeze(r"/pods\?")
                await play.job("a", 4)
                await eventually(lambda: controller.behind > 0, 20, "the silence noticed")
                proxy.thaw(frozen)
                await play.run(4)
                await eventually(lambda: controller.behind == 0, 20, "all streams live")
                assert lists(stage) == before
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
        async with KubeCluster.connect(proxy.kubeconfig) as cluster:  # with watches that last for minutes
            controller = Controller(cluster, RealClock(), Configuration(lease_duration="2s"), "in-process-2")
            running = asyncio.create_task(controller.run())
            try:
                await eventually(lambda: controller.leading, 20, "leading")
                before = lists(stage)
                proxy.cut("watch=1")
                await eventually(lambda: controller.behind > 0, 5, "the cut noticed")
                await eventually(lambda: controller.behind == 0, 5, "all streams live although nothing happens")
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
        assert lists(stage) == before
        await play.restart()


async def test_a_policy_of_somebody_else_refuses_a_member(stage: Stage) -> None:
    """Before the record: its own words and nothing done. After it (the pods came late): given back, no pod failed.

    A gang written by hand cannot be given back: it says so, and is whole when the policy is gone.
    """
    ours = f"request.userInfo.username == '{USER}' && 'rig/refuse' in object.metadata.?labels.orValue({{}})"
    refusing = validating_policy(
        "rig-refuses", [rule(POD, "UPDATE")], [{"name": "ours", "expression": ours}], [("false", "the rig refuses it")]
    )
    kinds = ("ies", "ybindings")
    async with proxy_of(stage) as proxy, scene(stage, 2, kubeconfig=proxy.kubeconfig, bindTimeout="4s") as play:
        stalled = proxy.stall("PATCH", r"/pods/band-1(?!.*dryRun)", times=1)
        await play.pod_group("band", minMember=2)
        await play.pod("band-0", group="band")
        await play.pod("band-1", group="band", labels={"rig/refuse": "yes"})
        await eventually(lambda: stalled.hits, 20, "a torn gang")

        def unwanted(name: str, *, suspend: bool = False) -> dict[str, object]:
            body = job(name, play.namespace, 3, suspend=suspend)
            body["spec"]["template"]["metadata"]["labels"] = {"rig/refuse": "yes"}
            return body

        for kind, body in zip(kinds, refusing, strict=True):
            await play.admin.create(POLICIES + kind, body)
        try:
            await play.pod("probe", labels={"rig/refuse": "yes"}, gates=["queuectl.io/admission", "example.com/never"])
            async with Api(stage.control_plane.kubeconfig(USER)) as us:

                async def refused() -> bool:
                    patch = {"metadata": {"annotations": {"queuectl.io/fence": "99999"}}}
                    try:
                        await us.patch(f"{play.pods}/probe", patch, dryRun="All")
                    except ApiError as error:
                        return "the rig refuses it" in error.message
                    return False

                await eventually(refused, 20, "the policy in force")
            proxy.lift(stalled)
            await play.tenant.create(play.jobs, unwanted("now"))
            assert "the rig refuses it" in await play.waits_for("now", "PatchRejected")
            assert "admission" not in (await play.group("now"))["status"]
            await play.tenant.create(play.jobs, unwanted("late", suspend=True))
            await play.status("late", lambda s: (s.get("requeue") or {}).get("count"))
            await play.job("welcome", 6)
            await play.run(6, "welcome")
            await play.delete(f"{play.jobs}/welcome")
            await play.waits_for("late", "PatchRejected")  # its new pods were asked about first

            async def says_so() -> bool:
                found = str(await play.controller.get(f"/api/v1/explain/namespaces/{play.namespace}/gangs/band"))
                return "NotRequeueable" in found and "the rig refuses it" in found

            await eventually(says_so, 20, "the reasons of a torn gang")
        finally:
            for kind in kinds:
                await play.admin.delete(f"{POLICIES}{kind}/rig-refuses")
        await play.run(2, "band")
        late = f"{play.groups}/{(await play.group('late'))['metadata']['name']}"
        for hold in (True, False):  # what was refused for good is tried again when the gang changes
            await play.tenant.patch(late, {"spec": {"hold": hold}})
        await play.run(3, "late")
        assert not (await play.admin.get(f"{play.jobs}/late"))["status"].get("failed")
        await play.delete(f"{play.jobs}/now")


async def test_of_two_one_leads_and_the_other_finishes_its_work(stage: Stage) -> None:
    """Killed in the middle of a release: the second leads within a lease's time and makes the gang whole."""
    async with proxy_of(stage) as proxy, scene(stage, 2, kubeconfig=proxy.kubeconfig) as play:
        second = stage.controller()
        await second.ready()
        proxy.delay(0, "PATCH", RELEASE, times=3)
        stalled = proxy.stall("PATCH", RELEASE)
        await play.job("train", 8)
        await eventually(lambda: stalled.hits, 20, "a torn gang")
        play.controller.kill()
        await second.leads(8)
        play.controller = second
        await play.run(8, "train")
        await play.settled(8)
