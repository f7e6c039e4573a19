"""Requests and credentials: every answer of a server becomes one of the port's exceptions, and 401 is healed once."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from kubernetes_asyncio.config import incluster_config

from queuectl.contract.foreign import LEASES, PODS, QUEUES
from queuectl.control.ports import ClusterError, Conflict, Expired, NotFound, Refused, Throttled, Unreachable
from queuectl.drivers.kube import credentials
from queuectl.drivers.kube.cluster import KubeCluster
from queuectl.drivers.kube.credentials import ConfigurationProblem
from queuectl.drivers.kube.session import Session, Timing
from tests.drivers.fake_server import QUICK, FakeServer, answer
from tests.rig.client import eventually

POD = {"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7"}}


def status(code: int, message: str, **details: Any) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "message": message, "details": details}


@pytest.mark.parametrize(
    ("code", "exception"),
    [
        (400, Refused),
        (403, Refused),
        (404, NotFound),
        (405, Refused),
        (409, Conflict),
        (410, Expired),
        (422, Refused),
        (429, Throttled),
        (500, Unreachable),
        (503, Unreachable),
        (504, Unreachable),
    ],
)
async def test_a_status_is_an_exception_with_the_servers_words(
    server: FakeServer, cluster: KubeCluster, code: int, exception: type[ClusterError]
) -> None:
    server.then(answer(code, status(code, "because")))
    with pytest.raises(exception) as caught:
        await cluster.get(PODS, "n", "a")
    assert type(caught.value) is exception
    assert (caught.value.message, caught.value.status) == ("because", code)
    assert len(server.requests) == 1


async def test_throttling_says_how_long(server: FakeServer, cluster: KubeCluster) -> None:
    for handler, seconds in (
        (answer(429, "Too many requests, please try again later.", **{"Retry-After": "7"}), 7),
        (answer(429, status(429, "slow", retryAfterSeconds=3)), 3),
        (answer(429, status(429, "budget")), 1),
        (answer(429, "x", **{"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}), 1),
    ):
        server.script = [handler]
        with pytest.raises(Throttled) as caught:
            await cluster.evict("n", "a", "u")
        assert caught.value.retry_after == seconds


async def test_answers_of_something_else_than_an_api_server(server: FakeServer, cluster: KubeCluster) -> None:
    server.script = [answer(502, "<html>bad gateway</html>")]
    with pytest.raises(Unreachable, match="502 Bad Gateway: <html>"):
        await cluster.get(PODS, "n", "a")
    server.script = [answer(302, "", Location="https://login.example.com")]
    with pytest.raises(Refused, match=r"login\.example\.com; check the server's URL"):
        await cluster.get(PODS, "n", "a")
    server.script = [answer(200, "<html>welcome</html>")]
    with pytest.raises(Refused, match="cannot be decoded"):
        await cluster.get(PODS, "n", "a")
    with pytest.raises(Unreachable, match="not a list"):
        await cluster.list(PODS)
    with pytest.raises(Unreachable, match="cannot be decoded"):  # whether it was stored is unknown
        await cluster.patch(PODS, "n", "a", {})


async def test_no_server_and_a_silent_server_are_unreachable(
    server: FakeServer, tmp_path: Path, unused_tcp_port: int
) -> None:
    async def silent(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    server.then(silent)
    async with KubeCluster.connect(server.kubeconfig(tmp_path), timing=Timing(request=0.3)) as cluster:
        with pytest.raises(Unreachable, match="timed out"):
            await cluster.get(PODS, "n", "a")
    server.url = f"http://127.0.0.1:{unused_tcp_port}"
    async with KubeCluster.connect(server.kubeconfig(tmp_path), timing=QUICK) as cluster:
        with pytest.raises(Unreachable, match="GET /api/v1/namespaces/n/pods/a: Cannot connect"):
            await cluster.get(PODS, "n", "a")


async def test_a_lease_passes_a_pool_that_is_busy(server: FakeServer, tmp_path: Path) -> None:
    busy = asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        if "pods" in request.path:
            await busy.wait()
        return web.json_response({"metadata": {"name": "x"}})

    server.then(handler)
    async with KubeCluster.connect(server.kubeconfig(tmp_path), timing=QUICK) as cluster:
        patches = [asyncio.create_task(cluster.patch(PODS, "n", f"p{n}", {})) for n in range(80)]
        await eventually(lambda: len(server.requests) >= 64)
        lease = await cluster.get(LEASES, "n", "x")
        assert lease.metadata.name == "x"
        assert sum("pods" in r.path for r in server.requests) == 64
        busy.set()
        await asyncio.gather(*patches)


async def test_a_rotated_token_is_read_again_once_for_all(server: FakeServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")

    async def handler(request: web.Request) -> web.Response:
        good = request.headers["Authorization"] == f"Bearer {token.read_text()}"
        return web.json_response(POD if good else status(401, "Unauthorized"), status=200 if good else 401)

    server.then(handler)
    async with KubeCluster.connect(server.kubeconfig(tmp_path, {"tokenFile": str(token)}), timing=QUICK) as cluster:
        await cluster.get(PODS, "n", "a")
        token.write_text("new")
        found = await asyncio.gather(*(cluster.patch(PODS, "n", "a", {"x": n}) for n in range(10)))
        assert len(found) == 10
        assert len(server.requests) <= 21
        before = len(server.requests)
        server.script = [answer(401, status(401, "Unauthorized"))]
        with pytest.raises(Unreachable, match="Unauthorized"):  # the same token again: later perhaps
            await cluster.get(PODS, "n", "a")
        assert len(server.requests) == before + 1


async def test_an_exec_plugin_is_run_once_and_again_after_401(server: FakeServer, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "import json, pathlib\n"
        f"runs = pathlib.Path({str(runs)!r})\n"
        "n = len(runs.read_text()) + 1 if runs.exists() else 1\n"
        "runs.write_text('x' * n)\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',"
        " 'status': {'token': f'token-{n}', 'expirationTimestamp': '2999-01-01T00:00:00Z'}}))\n"
    )
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(plugin)],
            "interactiveMode": "Never",
        }
    }
    server.then(answer(200, POD))
    server.then(answer(200, POD))
    server.then(answer(401, status(401, "Unauthorized")))
    server.then(answer(200, POD))
    async with KubeCluster.connect(server.kubeconfig(tmp_path, user), timing=QUICK) as cluster:
        for _ in range(3):
            await cluster.get(PODS, "n", "a")
    assert [r.headers["Authorization"] for r in server.requests] == ["Bearer token-1"] * 3 + ["Bearer token-2"]


async def test_in_cluster(server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("of-the-pod\n")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(credentials, "DEFAULT_KUBECONFIG", tmp_path / "none")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(ConfigurationProblem, match="service account cannot be used: Service token file does not exist"):
        await credentials.Credentials.load()

    def load(configuration: Any, *, try_refresh_token: bool) -> None:
        incluster_config.InClusterConfigLoader(
            str(tmp_path / "token"), str(Path(os.__file__)), try_refresh_token
        ).load_and_set(configuration)
        configuration.ssl_ca_cert = None

    monkeypatch.setattr(credentials, "load_incluster_config", load)
    found = await credentials.Credentials.load()
    assert found.server == "https://[fd00::1]:443"
    assert await found.authorization() == "Bearer of-the-pod"
    (tmp_path / "token").write_text("rotated")
    assert await found.authorization() == "Bearer of-the-pod"  # not yet a minute old
    monkeypatch.setattr(found, "_check_at", 0.0)
    assert await found.authorization() == "Bearer rotated"


async def test_problems_of_configuration_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def problem(kubeconfig: Path | None, context: str | None = None) -> str:
        with pytest.raises(ConfigurationProblem) as caught:
            async with Session.connect(kubeconfig, context):
                pass
        assert caught.value.advice
        return str(caught.value)

    assert "no kubeconfig file" in await problem(tmp_path / "missing")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "gone"))
    assert "(from $KUBECONFIG)" in await problem(None)
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr(credentials, "DEFAULT_KUBECONFIG", tmp_path / "none")
    assert "this is not a pod" in await problem(None)
    bad = tmp_path / "bad"
    for text in ("", "{", "[]", "a: b", "\x00", "clusters: 3"):
        bad.write_text(text)
        assert "cannot be used" in await problem(bad), text
    good = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority-data": "AAAA"}}],
        "users": [{"name": "u", "user": {}}],
    }
    bad.write_text(yaml.safe_dump(good))
    assert "bad certificate or key" in await problem(bad)
    assert "Expected object with name nope" in await problem(bad, "nope")
    good["clusters"][0]["cluster"] = {"server": "not a url"}  # type: ignore[index]  # the kubeconfig is a mapping of anything
    bad.write_text(yaml.safe_dump(good))
    assert "no usable server URL" in await problem(bad)


async def test_the_user_s_kubeconfig_is_never_written(server: FakeServer, tmp_path: Path) -> None:
    path = server.kubeconfig(tmp_path)
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    server.then(answer(200, POD))
    async with KubeCluster.connect(path, timing=QUICK) as cluster:
        await cluster.get(PODS, "n", "a")
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


async def test_an_empty_name_never_means_the_whole_collection(server: FakeServer, cluster: KubeCluster) -> None:
    server.then(answer(200, POD))
    for call in (
        cluster.delete(PODS, "n", "", "u"),
        cluster.delete(PODS, "", "a", "u"),
        cluster.get(PODS, "n", ""),
        cluster.patch(PODS, "n", "", {}),
        cluster.evict("n", "", "u"),
        cluster.create(PODS, "", {}),
    ):
        with pytest.raises(ValueError, match="nam"):
            await call
    assert server.requests == []
    await cluster.get(PODS, "n", "../a?x")
    assert server.requests[0].rel_url.raw_path == "/api/v1/namespaces/n/pods/..%2Fa%3Fx"


async def test_sockets_notice_a_peer_that_vanished(server: FakeServer, tmp_path: Path) -> None:
    address = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1))
    async with Session.connect(server.kubeconfig(tmp_path), timing=Timing(dead_peer=30)) as session:
        made = session._socket(address)
    with made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000


async def test_environment_proxies_and_compression_are_left_alone(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{unused_tcp_port}")
    server.then(answer(200, POD))
    async with KubeCluster.connect(server.kubeconfig(tmp_path), timing=QUICK) as cluster:
        await cluster.patch(PODS, "n", "a", {"metadata": {"labels": {"a": "é"}}}, dry_run=True)
        await cluster.patch(QUEUES, "", "q", {"spec": {}}, subresource="status")
    first, second = server.requests
    assert first.headers["Accept-Encoding"] == "identity"
    assert first.headers["User-Agent"].startswith("queuectl/")
    assert first.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert dict(first.query) == {"fieldManager": "queuectl", "fieldValidation": "Strict", "dryRun": "All"}
    assert json.loads(server.bodies[0]) == {"metadata": {"labels": {"a": "é"}}}
    assert second.headers["Content-Type"] == "application/merge-patch+json"
    assert second.path == "/apis/queuectl.io/v1alpha1/queues/q/status"
    assert "dryRun" not in second.query
