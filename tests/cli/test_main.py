"""The program as a whole: help, verbs, versions, and errors when nobody answers."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import click
import pytest
import yaml

from queuectl import __version__
from queuectl.cli.main import VERBS, cli
from queuectl.contract.crd import DEFINITIONS
from queuectl.contract.publish import manifests
from tests.cli.conftest import Call, Served, invoke

HEAVY = (
    "aiohttp",
    "asyncio",
    "kubernetes_asyncio",
    "msgspec",
    "numpy",
    "prometheus_client",
    "pydantic",
    "rich",
    "yaml",
)


def loaded(*arguments: str) -> list[str]:
    """Which heavy modules a command loads."""
    program = (
        "import sys, contextlib\nfrom queuectl.cli.main import cli\n"
        "with contextlib.suppress(SystemExit): cli.main(sys.argv[1:], prog_name='queuectl')\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return [name for name in HEAVY if f"'{name}'" in done.stderr.splitlines()[-1]]


def test_help_loads_nothing_but_click() -> None:
    assert loaded("--help") == []
    assert loaded("get", "--help") == []


def test_a_listing_loads_no_framework(served: Served) -> None:
    assert loaded("get", "gangs", "-n", "ml", "--server", served.url) == []


@pytest.mark.parametrize("verb", list(VERBS))
def test_every_verb_has_help_that_begins_as_the_overview_says(verb: str) -> None:
    done = invoke(verb, "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"Usage: queuectl {verb} ")
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    assert (command.help or "").partition("\n")[0] == VERBS[verb][1]
    assert VERBS[verb][1].split()[0] in invoke("--help").out
    described = [one for one in command.params if isinstance(one, click.Option) and not one.help]
    assert described == []


def test_examples_stand_in_lines_of_their_own() -> None:
    """The mark that keeps them is not shown."""
    for verb in VERBS:
        assert "\\b" not in invoke(verb, "--help").out
    assert "\n  queuectl demo --once --json\n" in invoke("demo", "--help").out


def test_as_a_module_and_as_a_plugin() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "queuectl.cli.main", "version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"queuectl {__version__}\n"
    program = "import sys; sys.argv = ['/x/kubectl-queuectl', '--help']; from queuectl.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: kubectl queuectl ")


@pytest.mark.parametrize("arguments", [["nonsense"], ["get"], ["get", "gangs", "-o", "xml"], ["get", "--nonsense"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    done = invoke(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Usage: ")


def free() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_nobody_answers() -> None:
    port = free()
    done = invoke("get", "queues", "--server", f"http://127.0.0.1:{port}")
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"error: cannot reach the controller at http://127.0.0.1:{port}: Connection refused\n"
        "The controller serves on loopback. When it runs in the cluster:\n"
        "  kubectl -n queuectl-system port-forward POD 8080:8080\n"
        "When it listens elsewhere: --server URL, or set QUEUECTL_SERVER.\n"
    )


def test_a_name_that_does_not_resolve() -> None:
    done = invoke("get", "queues", "--server", "http://nobody.invalid:8080")
    assert done.code == 1
    assert done.err.startswith("error: cannot reach the controller at http://nobody.invalid:8080: ")


@pytest.mark.parametrize("server", ["127.0.0.1:8080", "ftp://x", "http://", "http://x:99999", "http://[x", ""])
def test_a_server_that_is_no_url(server: str) -> None:
    done = invoke("get", "queues", "--server", server)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: --server {server}: ")


class Stranger(BaseHTTPRequestHandler):
    """Another program on our port; it answers by the path."""

    def do_GET(self) -> None:
        status, body = {
            "/page/api/v1/queues": (200, b"<html>hello</html>"),
            "/json/api/v1/queues": (200, b"[1, 2]"),
            "/error/api/v1/queues": (502, b"Bad Gateway"),
        }.get(self.path, (404, b"not here"))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def stranger() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Stranger)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(("path", "code"), [("page", 200), ("json", 200), ("error", 502), ("nothing", 404)])
def test_another_program_answers(stranger: str, path: str, code: int) -> None:
    done = invoke("get", "queues", "--server", f"{stranger}/{path}/")
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"error: {stranger}/{path} does not answer as a queuectl controller does (HTTP {code})\n"
        "Is another program listening there? --server URL names the right one.\n"
    )


def test_the_server_may_come_from_the_environment(served: Served, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUECTL_SERVER", served.url)
    assert invoke("get", "queues").out == call("get", "queues").out


def test_a_proxy_is_not_asked_for_this_machine(served: Served, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free()}")
    assert call("get", "queues", "-o", "name").code == 0


def test_crds_are_what_is_published() -> None:
    done = invoke("crds")
    assert (done.code, done.err) == (0, "")
    assert list(yaml.safe_load_all(done.out)) == json.loads(json.dumps(manifests()))
    assert "&id" not in done.out


def test_crds_in_parts_and_for_another_user() -> None:
    parts = [list(yaml.safe_load_all(invoke("crds", "--only", part).out)) for part in ("crds", "policies", "rbac")]
    assert len(parts[0]) == len(DEFINITIONS)
    whole = sorted(json.dumps(one, sort_keys=True) for one in manifests())
    assert sorted(json.dumps(one, sort_keys=True) for part in parts for one in part) == whole
    alice = invoke("crds", "--user", "alice", "--namespace", "queues")
    assert list(yaml.safe_load_all(alice.out)) == json.loads(json.dumps(manifests("alice", "queues")))
    assert invoke("crds", "--user", "").code == 2


def test_output_may_be_cut_short(served: Served) -> None:
    shell = f"{sys.executable} -m queuectl.cli.main crds | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", shell], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("apiVersion: v1\n", "")
