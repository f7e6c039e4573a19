"""``queuectl run`` and its log, as far as no cluster is needed."""

from __future__ import annotations

import json
import logging
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from queuectl.cli import logs
from queuectl.cli.problems import Usage
from queuectl.cli.run import address, ending
from queuectl.control.lease import LeadershipLost
from queuectl.control.ports import Refused
from queuectl.control.source import KINDS
from queuectl.control.steps import Fenced
from tests.cli.conftest import invoke


def record(message: str, *arguments: object, level: int = logging.INFO, **extra: object) -> logging.LogRecord:
    made = logging.getLogger("queuectl.x").makeRecord(
        "queuectl.x", level, "f", 1, message, arguments, None, extra=extra
    )
    made.created = 1_796_032_800.5
    return made


def test_json_lines_hold_gang_and_decision() -> None:
    line = logs.JsonLines().format(record("admit", gang="uid-1", round=3, pods=8))
    assert json.loads(line) == {
        "time": "2026-11-30T10:00:00.500Z",
        "level": "info",
        "logger": "queuectl.x",
        "msg": "admit",
        "gang": "uid-1",
        "round": 3,
        "pods": 8,
    }


def test_fields_never_replace_ours_and_anything_can_be_logged() -> None:
    one = record("gone: %s", "x\n\x1b\u202e", level=logging.WARNING, level_=1, time="t", obj={1})
    line = logs.JsonLines().format(one)
    assert "\n" not in line
    assert "\x1b" not in line
    found = json.loads(line)
    assert found["msg"] == "gone: x\n\x1b\u202e"
    assert (found["level"], found["time"], found["time_"], found["obj"]) == (
        "warn",
        "2026-11-30T10:00:00.500Z",
        "t",
        "{1}",
    )


def failed() -> logging.LogRecord:
    one = record("write failed", level=logging.ERROR, gang="g")
    try:
        int("a\nb")
    except ValueError:
        one.exc_info = sys.exc_info()
    return one


def test_an_exception_is_one_field() -> None:
    line = logs.JsonLines().format(failed())
    assert "\n" not in line
    assert json.loads(line)["exception"].splitlines()[-1].startswith("ValueError: ")


def test_text_lines_are_for_people() -> None:
    form = logs.TextLines()
    assert form.format(record("admit", gang="uid-1", round=3)) == "10:00:00.500 INFO    admit gang=uid-1 round=3"
    assert form.format(record("x\ny", what="\x1b")) == "10:00:00.500 INFO    x\\ny what=\\x1b"
    lines = form.format(failed()).splitlines()
    assert lines[0] == "10:00:00.500 ERROR   write failed gang=g"
    assert lines[-1].startswith("  ValueError: ")


@pytest.mark.parametrize(
    ("listen", "meant"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:8080", ("::1", 8080)),
        (":8080", ("0.0.0.0", 8080)),
    ],
)
def test_addresses(listen: str, meant: tuple[str, int]) -> None:
    assert address(listen) == meant


@pytest.mark.parametrize("listen", ["8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "a:-1"])
def test_addresses_that_are_none(listen: str) -> None:
    with pytest.raises(Usage):
        address(listen)


def test_why_it_ended() -> None:
    assert ending(LeadershipLost("taken over by b, fence 4")) == (
        "the lease is lost: taken over by b, fence 4",
        "start it again to stand by",
    )
    assert ending(Fenced("stale fence"))[0] == "another process leads: stale fence"
    assert ending(Refused("forbidden", 403)) == ("the API server refuses what the controller needs: forbidden", "")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("bindTimeout: 60", 'bindTimeout: must be a duration with a unit, as "60s", "15m" or "1h30m"'),
        ("nonsense: 1", "nonsense: Extra inputs are not permitted"),
        ("[1]", "must be a mapping of settings, as `bindTimeout: 60s`"),
        ("inFlight: 0", "inFlight: Input should be greater than or equal to 1"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_wrong_usage(tmp_path: Path, content: str, message: str) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(content)
    done = invoke("run", "--config", str(config))
    assert (done.code, done.out, done.err) == (2, "", f"error: {config}: {message}\n")


@pytest.fixture
def quiet() -> object:
    """Root logging as it was."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)
    logging.captureWarnings(capture=False)


@pytest.mark.usefixtures("quiet")
def test_without_a_kubeconfig_it_says_what_to_do(tmp_path: Path) -> None:
    done = invoke("run", "--kubeconfig", str(tmp_path / "none"), "--log-format", "json")
    assert (done.code, done.out) == (1, "")
    line = json.loads(done.err)
    assert line["level"] == "error"
    assert str(tmp_path / "none") in line["msg"]
    assert line["advice"]


def kubeconfig(folder: Path, port: int) -> Path:
    """One whose server is not there."""
    path = folder / "kubeconfig"
    cluster = {"server": f"http://127.0.0.1:{port}"}
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "x",
                "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
                "clusters": [{"name": "x", "cluster": cluster}],
                "users": [{"name": "x", "user": {"token": "t"}}],
            }
        )
    )
    return path


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "queuectl.cli.main", "run", "--kubeconfig", str(kubeconfig(folder, 1)), *arguments]
    return subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_alive_but_not_ready_without_an_api_server_and_it_ends_when_told(tmp_path: Path) -> None:
    with started(tmp_path, "--listen", "127.0.0.1:0") as child:
        assert child.stderr is not None
        serving = json.loads(child.stderr.readline())
        assert serving["msg"] == "serving"
        with urllib.request.urlopen(f"{serving['url']}/healthz", timeout=10) as reply:
            assert reply.status == 200
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{serving['url']}/readyz", timeout=10)
        with refused.value as answer:
            missing = json.loads(answer.read())["missing"]
        assert "pods not synced" in missing
        assert len(missing) == len(KINDS)
        listed = invoke("get", "nodes", "--server", serving["url"])
        assert listed.code == 1
        assert listed.err.startswith("error: the controller has not read the cluster yet: no nodes, ")
        child.send_signal(signal.SIGTERM)
        out, err = child.communicate(timeout=20)
    assert (child.returncode, out) == (0, "")
    assert [json.loads(line)["msg"] for line in err.splitlines()][-2:] == ["ending", "ended"]


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with started(tmp_path, "--listen", listen, "--log-format", "text") as child:
            _, err = child.communicate(timeout=20)
    assert child.returncode == 1
    assert f"ERROR   cannot listen on {listen}: Address already in use advice=choose another: --listen" in err
    assert "Traceback" not in err
