"""Fixtures for all tests: the control plane, a namespace, fake nodes; and the rule on skips.

``RIG`` says what the tests marked ``rig`` do:

* unset: they run when the control plane is built, else they are skipped with one line;
* ``require``: a missing control plane is built first, and any skip of the whole run is a failure;
* ``off``: they are skipped.

The one skip that is tolerated under ``RIG=require`` is that of data kept beside the repository (fixture ``shared``).
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.rig import build
from tests.rig.client import Api
from tests.rig.controlplane import ADMIN_GROUPS, ControlPlane
from tests.rig.kubelet import FakeKubelet, MakeNodes
from tests.rig.nodes import NodeSpec, gpu_nodes

RIG = os.environ.get("RIG", "")
TOLERATED = "no ../shared"  # how the reason of a tolerated skip begins
SHARED = Path(__file__).resolve().parents[2] / "shared"

_skips: list[tuple[str, str]] = []
_serial = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a misspelt RIG: it would silently skip everything."""
    if RIG not in {"", "require", "off"}:
        raise pytest.UsageError(f"RIG={RIG}: use RIG=require, RIG=off, or leave it unset")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip rig tests when there is no control plane and none is required."""
    if RIG == "off":
        reason = "RIG=off"
    elif RIG != "require" and build.binaries() is None:
        reason = "the control plane is not built (python -m tests.rig.build)"
    else:
        return
    for item in items:
        if item.get_closest_marker("rig"):
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what is required now, after deselection and outside any test's timeout."""
    if RIG != "require" or session.config.option.collectonly:
        return
    if any(item.get_closest_marker("rig") for item in session.items):
        try:
            build.build(build.PROGRAMS)
        except (SystemExit, OSError, subprocess.SubprocessError) as error:
            pytest.exit(f"RIG=require: {error}", returncode=1)


def _note_skip(nodeid: str, longrepr: object) -> None:
    reason = str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)
    _skips.append((nodeid, reason.removeprefix("Skipped: ")))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Take note of skipped tests (an expected failure is reported as one, and is none)."""
    if report.skipped and not hasattr(report, "wasxfail"):
        _note_skip(report.nodeid, report.longrepr)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Take note of modules that were skipped as a whole."""
    if report.skipped:
        _note_skip(report.nodeid, report.longrepr)


def _forbidden() -> list[tuple[str, str]]:
    return [(test, why) for test, why in _skips if not why.startswith(TOLERATED)] if RIG == "require" else []


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """With RIG=require, a run with a skip has failed."""
    if _forbidden() and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the skips that made the run fail."""
    if forbidden := _forbidden():
        terminalreporter.section("skipped although RIG=require", red=True)
        for test, why in forbidden:
            terminalreporter.line(f"{test}: {why}")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data beside the repository; skips where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"{TOLERATED}: reference data beside the repository is absent")
    return SHARED


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """The control plane of the whole run. Tests share it: use your own namespace and your own nodes."""
    with ControlPlane() as running:
        yield running


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> str:
    """A name that no other test of this run uses, made from the test's own (at most 40 characters)."""
    plain = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower().removeprefix("test_")).strip("-")
    return f"t{next(_serial)}-{plain[:32].strip('-')}"


@pytest.fixture
def namespace(control_plane: ControlPlane, unique: str) -> Iterator[str]:
    """A namespace of this test, ready for pods; deleted afterwards without waiting."""
    control_plane.check()
    yield control_plane.namespace(unique)
    control_plane.request("DELETE", f"/api/v1/namespaces/{unique}")


@pytest.fixture
async def admin(control_plane: ControlPlane) -> AsyncIterator[Api]:
    """A client with all rights."""
    async with Api(control_plane.admin_kubeconfig) as api:
        yield api


@pytest.fixture
async def fake_nodes(control_plane: ControlPlane, unique: str) -> AsyncIterator[MakeNodes]:
    """``await fake_nodes(count, gpus=4, racks=1)`` or ``await fake_nodes([NodeSpec, …])``: a running fake kubelet.

    Nodes are named ``<unique>-0`` … with label example.com/pool=<unique>; they and their pods go away after the test.
    """
    async with Api(control_plane.kubeconfig("rig-kubelet", ADMIN_GROUPS)) as api:
        running: list[FakeKubelet] = []

        async def make(nodes: int | list[NodeSpec], gpus: int = 4, racks: int = 1, **allocatable: str) -> FakeKubelet:
            specs = gpu_nodes(unique, nodes, gpus, racks, **allocatable) if isinstance(nodes, int) else nodes
            kubelet = FakeKubelet(api, specs, heartbeat=control_plane.node_grace / 4)
            running.append(kubelet)
            await kubelet.start()
            return kubelet

        yield make
        for kubelet in running:
            await kubelet.stop(remove=True)
