"""What the rig leaves behind: nothing. And what it says when a program fails."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rig.client import Api, eventually
from tests.rig.controlplane import ControlPlane
from tests.rig.kubelet import MakeNodes
from tests.rig.nodes import REJECT
from tests.rig.objects import gated_pod, paths
from tests.rig.process import Process, RigError

# Starts a child in a folder that are both in the rig's care, and dies at once.
KILLED = """
import os, signal, sys
from pathlib import Path
from tests.rig.process import Folder, Process
folder = Folder(Path(sys.argv[1]) / "data")
print(Process("child", ["sleep", "600"], Path(sys.argv[1]) / "log").pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def alive(pid: int) -> bool:
    """Whether that process runs; an ended one that nobody has reaped (in a container without init) does not."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")
        return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")
    except (ProcessLookupError, FileNotFoundError):
        return False


async def test_nothing_survives_a_killed_run(tmp_path: Path) -> None:
    run = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, str(tmp_path), stdout=subprocess.PIPE)
    output, _ = await run.communicate()
    assert run.returncode == -signal.SIGKILL
    await eventually(lambda: not alive(int(output)))
    await eventually(lambda: not (tmp_path / "data").exists())


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    stubborn = Process("stubborn", ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"], tmp_path / "log")
    while "up" not in stubborn.tail():
        assert stubborn.returncode is None
    stubborn.stop(0.1)
    assert stubborn.returncode == -signal.SIGKILL


def test_a_failure_shows_the_log(tmp_path: Path) -> None:
    child = Process("child", ["sh", "-c", "echo why it failed; exit 3"], tmp_path / "log")
    assert child.wait(10) == 3
    assert "exited with 3" in str(child.failure("died"))
    assert "why it failed" in str(child.failure("died"))
    with pytest.raises(RigError, match="cannot start"):
        Process("absent", [tmp_path / "absent"], tmp_path / "log")


@pytest.mark.rig
async def test_the_kubelet_outlives_a_restart_of_the_api_server(
    control_plane: ControlPlane, namespace: str, admin: Api, fake_nodes: MakeNodes
) -> None:
    kubelet = await fake_nodes(1)
    _, pods = paths(namespace)
    await admin.create(pods, gated_pod("before", gates=()))
    await admin.wait(f"{pods}/before", lambda p: p["status"]["phase"] == "Running")
    await asyncio.to_thread(control_plane.restart, "kube-apiserver")  # beside the loop, which sees the connections end
    await admin.create(pods, gated_pod("after", gates=()))
    await admin.create(pods, gated_pod("refused", gates=(), annotations={REJECT: "true"}))
    await admin.wait(f"{pods}/after", lambda p: p["status"]["phase"] == "Running", 60)
    await admin.wait(f"{pods}/refused", lambda p: p["status"]["phase"] == "Failed", 60)
    kubelet.check()
