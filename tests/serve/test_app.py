"""Probes, metrics, and who may ask: read-only, for addresses and localhost only."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from aiohttp import ClientSession
from prometheus_client.parser import text_string_to_metric_families

from queuectl.contract import foreign
from queuectl.control.loop import Controller
from queuectl.engine.view import View
from queuectl.serve.app import local, serving
from queuectl.serve.readiness import Readiness, readiness
from tests.serve import standin
from tests.serve.standin import GPU, Standin, story
from tests.serve.test_api import asking, get


async def test_alive_before_anything_was_read() -> None:
    async with asking(Standin()) as client, client.get("/healthz") as reply:
        assert (reply.status, await reply.text()) == (200, "ok\n")


async def test_not_ready_names_every_kind_that_is_missing() -> None:
    here = Standin()
    for informer in here.controller.informers:
        if informer.kind.plural not in {"pods", "queues"}:
            informer.synced.set()
    async with asking(here) as client:
        found = await get(client, "/readyz", 503)
    advice = "(are the definitions installed? `queuectl crds | kubectl apply --server-side -f -`)"
    assert found == {
        "kind": "Readiness",
        "ready": False,
        "role": "starting",
        "leader": "",
        "missing": [f"queues not synced {advice}", "pods not synced"],
    }


async def test_ready_while_leading_and_while_standing_by() -> None:
    here = story()
    async with asking(here) as client:
        assert (await get(client, "/readyz"))["role"] == "leading"
        here.controller.leading = False
        here.controller.leadership.holder = "two"
        standing = await get(client, "/readyz")
    assert (standing["ready"], standing["role"], standing["leader"]) == (True, "standing by", "two")


def test_holding_the_lease_without_a_proven_fence_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Standin()
    here.sync()
    here.controller.leadership.holder = "one"
    monkeypatch.setattr(here.controller.leadership, "fresh", lambda: True)
    assert readiness(here.controller) == Readiness(
        ready=False,
        role="taking over",
        leader="one",
        missing=["fence not enforced: install the admission policies"],
    )


def test_a_lease_that_cannot_be_read_is_named() -> None:
    here = Standin()
    here.sync()
    here.controller.leadership.trouble = "leases is forbidden"
    assert readiness(here.controller).missing == ["the lease is not held yet: leases is forbidden"]


def test_a_view_that_was_cut_off_is_not_ready() -> None:
    here = story()
    here.controller.informers[0].lost_at = here.clock.monotonic()
    here.later(61)
    assert readiness(here.controller).missing == [
        "events have been cut off for 61 s; nothing is decided on a view so old"
    ]


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"])
@pytest.mark.parametrize("path", ["/healthz", "/api/v1/queues", "/nothing"])
async def test_only_get(method: str, path: str) -> None:
    async with asking(Standin()) as client, client.request(method, path) as reply:
        assert (reply.status, reply.headers["Allow"]) == (405, "GET")
        if method != "HEAD":
            assert (await reply.json())["message"] == f"{method} is not allowed: this API only reads"


async def test_an_unknown_path_is_a_status() -> None:
    async with asking(Standin()) as client:
        found = await get(client, "/api/v2/queues", 404)
    assert (found["kind"], found["reason"], found["message"]) == ("Status", "NotFound", "Not Found: /api/v2/queues")


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("127.0.0.1:8080", True),
        ("localhost", True),
        ("[::1]:8080", True),
        ("10.1.2.3:8080", True),
        ("queuectl.queuectl-system.svc:8080", True),
        ("queuectl.queuectl-system.svc.cluster.local", True),
        ("example.com", False),
        ("localhost.example.com", False),
        ("127.0.0.1.example.com", False),
        ("x.svc.example.com", False),
        ("", False),
        (None, False),
        ("[::1", False),
    ],
)
def test_which_hosts_are_ours(host: str | None, ours: bool) -> None:
    assert local(host) is ours


async def test_a_page_that_points_its_name_here_reads_nothing() -> None:
    async with asking(story()) as client, client.get("/api/v1/gangs", headers={"Host": "evil.example"}) as reply:
        assert reply.status == 403
        assert "items" not in await reply.json()


async def test_no_other_origin_may_read() -> None:
    async with asking(story()) as client, client.get("/api/v1/gangs", headers={"Origin": "https://x.example"}) as reply:
        assert not any(name.lower().startswith("access-control") for name in reply.headers)
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert reply.headers["Cache-Control"] == "no-store"


async def test_an_answer_that_fails_is_a_500_and_the_server_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    here = story()

    def broken(_: Controller) -> View:
        raise RuntimeError("secret detail")

    with monkeypatch.context() as patch:
        patch.setattr(Controller, "view", broken)
        async with asking(here) as client:
            found = await get(client, "/api/v1/queues", 500)
            assert found["message"] == "this answer failed; the controller's log says why"
            async with client.get("/healthz") as reply:
                assert reply.status == 200


async def scrape(here: Standin) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    async with asking(here) as client, client.get("/metrics") as reply:
        assert reply.status == 200
        assert reply.headers["Content-Type"].startswith("text/plain")
        text = await reply.text()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_metrics_in_base_units() -> None:
    here = story()
    here.controller.actuator.written["RELEASE"] = 7
    here.controller.actuator.refused["Conflict"] = 2
    here.controller.actuator.outstanding["a"] = 3
    here.controller.source.problems["pods", "ml", "bad"] = "memory: x"
    found = await scrape(here)

    def value(name: str, **labels: str) -> Any:
        return found.get((name, tuple(sorted(labels.items()))))

    assert value("queuectl_queue_usage", queue="research", resource=GPU) == 9.0
    assert value("queuectl_queue_usage", queue="production", resource=GPU) == 0.0
    assert value("queuectl_queue_usage", queue="vision", resource="cpu") == 2.0
    assert value("queuectl_queue_quota", queue="vision", resource=GPU) == 8.0
    assert value("queuectl_queue_quota", queue="language", resource=GPU) is None
    assert value("queuectl_queue_limit", queue="vision", resource=GPU) == 10.0
    assert value("queuectl_queue_pending", queue="vision", resource=GPU) == 17.0
    assert value("queuectl_gangs", queue="vision", phase="Pending") == 2.0
    assert value("queuectl_gangs", queue="vision", phase="Running") == 1.0
    assert value("queuectl_gangs", queue="production", phase="Running") == 0.0
    assert value("queuectl_leading") == 1.0
    assert value("queuectl_synced") == 1.0
    assert value("queuectl_behind_seconds") == 0.0
    assert value("queuectl_writes_total", step="release") == 7.0
    assert value("queuectl_writes_refused_total", kind="Conflict") == 2.0
    assert value("queuectl_in_flight") == 3.0
    assert value("queuectl_object_problems") == 1.0
    assert value("queuectl_changes_total") > 0
    assert value("queuectl_decide_seconds_count") == 0.0


async def test_metrics_of_pools() -> None:
    """Of those that are declared; what is listed and not used is 0, and what a queue has over all nodes stays what it was."""
    here = story()
    assert not any(name.startswith("queuectl_pool") for name, _ in await scrape(here))
    here.see(foreign.POOLS, standin.pool("old", "r1"), standin.pool("new", "r2"))
    entries = [{"name": GPU, "pool": "old", "quota": "4", "limit": "9"}, {"name": GPU, "pool": "new", "limit": "1"}]
    here.see(foreign.QUEUES, standin.queue("vision", "research", resources=entries))
    found = await scrape(here)

    def value(name: str, **labels: str) -> Any:
        return found.get((name, tuple(sorted(labels.items()))))

    assert value("queuectl_pool_usage", pool="old", queue="vision", resource=GPU) == 8.0
    assert value("queuectl_pool_usage", pool="new", queue="vision", resource=GPU) == 0.0
    assert value("queuectl_pool_usage", pool="new", queue="language", resource=GPU) == 1.0
    assert value("queuectl_pool_quota", pool="old", queue="vision", resource=GPU) == 4.0
    assert value("queuectl_pool_quota", pool="new", queue="vision", resource=GPU) is None
    assert value("queuectl_pool_limit", pool="new", queue="vision", resource=GPU) == 1.0
    assert value("queuectl_pool_allocatable", pool="new", resource=GPU) == 8.0
    assert value("queuectl_queue_usage", queue="vision", resource=GPU) == 8.0
    assert value("queuectl_queue_quota", queue="vision", resource=GPU) is None


async def test_serving_ends_with_its_block_and_a_taken_port_is_an_error() -> None:
    here = story()
    async with serving(here.controller, port=0) as url:
        async with ClientSession() as session, session.get(f"{url}/healthz") as reply:
            assert reply.status == 200
        port = int(url.rpartition(":")[2])
        with pytest.raises(OSError, match="address already in use"):
            async with serving(here.controller, port=port):
                pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1.0)
