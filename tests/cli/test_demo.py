"""``queuectl demo``: a day of figures, and a live cluster that every other verb can be tried on."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.rig.client import eventually

ROOT = Path(__file__).resolve().parents[2]
DEMO = [sys.executable, "-m", "queuectl.cli.main", "demo"]


def demo(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """To its end."""
    return subprocess.run(
        [*DEMO, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def once(*arguments: str, **environment: str) -> dict[str, Any]:
    """The result of ``--once --json``."""
    done = demo("--once", "--json", *arguments, **environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_small_day_ends_with_everything_finished() -> None:
    """One JSON line with the promised fields; the same day twice is the same history."""
    found = [once("--nodes", "8x8", "--load", "0.6", PYTHONHASHSEED=seed) for seed in ("0", "1")]
    first = found[0]
    assert set(first) == {
        "gangs",
        "finished",
        "failed",
        "waiting",
        "gpu_utilisation",
        "wait_p50_s",
        "wait_p95_s",
        "partial_releases",
        "double_charges",
        "violations",
        "seconds",
        "first_running_s",
    }
    assert first["gangs"] > 100
    assert first["finished"] == first["gangs"]
    assert (first["waiting"], first["partial_releases"], first["double_charges"], first["violations"]) == (0, 0, 0, 0)
    assert 0.3 < first["gpu_utilisation"] < 0.7
    for one in found:
        del one["seconds"], one["first_running_s"]
    assert found[0] == found[1]


def test_the_figures_as_sentences() -> None:
    """For people."""
    done = demo("--once", "--nodes", "2x8", "--load", "0.3", "--seed", "3")
    assert done.returncode == 0, done.stderr
    assert re.match(r"(\d+) of \1 gangs finished, 0 failed, 0 still wait\n", done.stdout)


def test_a_trace_is_played(shared: Path) -> None:
    """Sixty jobs on two nodes of eight GPUs: all of them."""
    found = once("--trace", str(shared / "data/traces/small/tiresias_60_job.csv"), "--nodes", "2x8")
    assert (found["gangs"], found["finished"], found["violations"]) == (60, 60, 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--nodes", "many"), "--nodes many: write it as 128x8"),
        (("--nodes", "99999x99"), "at most 100,000 GPUs"),
        (("--json",), "--json goes with --once"),
        (("--listen", "nowhere"), "must be HOST:PORT"),
        (("--trace", str(Path(__file__)), "--once"), "no known format; they are philly-chronus"),
    ],
)
def test_what_cannot_be_played_is_refused_with_advice(arguments: tuple[str, ...], said: str) -> None:
    """Exit code 2, and no traceback."""
    done = demo(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken() -> None:
    """Said before anything is drawn."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = demo("--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert done.returncode == 1
    assert "choose another: --listen" in done.stderr


async def test_every_verb_works_on_the_live_demo(tmp_path: Path) -> None:
    """From a second terminal: list, explain, describe, and requeue what runs; Ctrl-C ends it cleanly."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = f"http://127.0.0.1:{port}"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "200",
        "QUEUECTL_SERVER": server,
        "TMPDIR": str(tmp_path),
    }
    process = await asyncio.create_subprocess_exec(
        *DEMO,
        "--listen",
        f"127.0.0.1:{port}",
        "--nodes",
        "8x8",
        "--speed",
        "5",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )

    async def verb(*arguments: str) -> str:
        one = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "queuectl.cli.main",
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
        out, err = await one.communicate()
        assert one.returncode == 0, err.decode()
        return out.decode()

    async def running() -> list[dict[str, Any]]:
        assert process.returncode is None
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{server}/api/v1/gangs?phase=Running") as reply:
                return list((await reply.json()).get("items") or ())
        except aiohttp.ClientError:
            return []

    try:
        gangs = await eventually(running, 60, "a gang to run")
        name, namespace = gangs[0]["metadata"]["name"], gangs[0]["metadata"]["namespace"]
        assert "research" in await verb("get", "queues")
        assert "gpu-007" in await verb("get", "nodes")
        assert name in await verb("get", "gangs", "-A")
        assert namespace in await verb("describe", "gang", name, "-n", namespace)
        config = _only(tmp_path)
        asked = await verb("requeue", "gang", name, "-n", namespace, "--kubeconfig", str(config))
        assert "asked to be requeued" in asked

        async def asked_again() -> bool:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{server}/api/v1/namespaces/{namespace}/gangs/{name}") as reply,
            ):
                found = await reply.json()
            return reply.status == 404 or found["round"] >= 2 or found["phase"] in ("Evicting", "Pending", "Finished")

        await eventually(asked_again, 60, "the gang to be given back")
    finally:
        process.send_signal(signal.SIGINT)
        _, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    assert "Traceback" not in err.decode()
    assert os.listdir(tmp_path) == []


def _only(folder: Path) -> Path:
    """The one kubeconfig that a demo has written."""
    return next(folder.glob("queuectl-demo-*/kubeconfig"))
